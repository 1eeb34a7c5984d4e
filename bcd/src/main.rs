//! The bcd binary: reads the command line and exits with the command's code.

use clap::Parser as _;
use shared::token::{looks_like_token, without_tokens};
use std::{io::Write as _, process::ExitCode};

fn main() -> ExitCode {
    match bcd::cli::Cli::try_parse() {
        Ok(cli) => ExitCode::from(bcd::cli::main(&cli).code()),
        Err(error) => {
            if looks_like_token(&error.to_string()) {
                // Whoever gave a token as an argument must not find it in a log too.
                let _ = write!(std::io::stderr(), "{}", without_tokens(&error.to_string()));
            } else {
                let _ = error.print();
            }
            // Help and version are no mistakes.
            ExitCode::from(if error.use_stderr() { bcd::failure::Exit::Usage.code() } else { 0 })
        }
    }
}
