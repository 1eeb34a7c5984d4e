//! What goes to the terminal: answers on standard output, everything else on standard error. Machines name
//! themselves, so no text goes out with characters that steer a terminal instead of being shown (`shared::terminal`).

use shared::{terminal::shown_lines, token::without_tokens};
use std::{
    fmt::Display,
    io::{self, Write as _},
};

/// Prints an answer. A reader that went away (`| head`) is no failure.
///
/// # Errors
/// Standard output can't be written.
pub(super) fn answer(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}

/// Prints one of many answers; `false` if the reader went away, so that there is nobody to go on for.
///
/// # Errors
/// Standard output can't be written.
pub(super) fn follow(text: &str) -> io::Result<bool> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
        Ok(()) => Ok(true),
    }
}

/// Says something beside the answer, without what looks like a token. Where nobody listens there is nobody to tell.
pub fn say(text: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "relay: {}", shown_lines(&without_tokens(&text.to_string())));
}
