//! What goes to the terminal: answers on standard output, everything else on standard error. Machines name
//! themselves, so no text goes out with characters that steer a terminal instead of being shown.

use std::{
    fmt::{Display, Write as _},
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

/// Says something beside the answer. Where nobody listens there is nobody to tell.
pub fn say(text: &dyn Display) {
    let _ = writeln!(io::stderr().lock(), "relay: {text}");
}

/// JSON text without raw characters that steer a terminal or that YAML does not print: `\u` escapes instead.
/// Outside of strings JSON has only ASCII, so what is replaced always stands in one.
#[must_use]
pub(super) fn harmless(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if steers(c) && c != '\n' {
            let _ = write!(out, "\\u{:04x}", u32::from(c));
        } else {
            out.push(c);
        }
    }
    out
}

/// A text on one line, without what steers a terminal.
#[must_use]
pub(super) fn shown(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether the character does something to a terminal instead of being shown: controls, direction marks, separators.
#[must_use]
pub(super) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{fffe}'
            | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_json_says_the_same() {
        let bad = "\u{1b}[31m\u{9b}2J\u{7f}\u{202e}x\u{2028}\u{feff}\u{0}é";
        let written = harmless(&serde_json::json!(bad).to_string());
        assert!(!written.chars().any(steers), "{written:?}");
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), bad);
        assert_eq!(shown("a\u{1b}[2Jé\n"), "a\u{fffd}[2Jé\u{fffd}");
    }
}
