//! The bcd binary: reads the command line and exits with the command's code.

use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match bcd::cli::Cli::try_parse() {
        Ok(cli) => ExitCode::from(bcd::cli::main(&cli).code()),
        Err(error) => {
            let _ = error.print();
            // Help and version are no mistakes.
            ExitCode::from(if error.use_stderr() { bcd::failure::Exit::Usage.code() } else { 0 })
        }
    }
}
