//! What the relay says while it runs: lines on standard error, JSON for machines or pretty for people. Standard
//! output is a command's answer and never a log. No secret is ever given to a log line: the types refuse it.

use crate::config::{LogFormat, LogSettings};
use std::io::{self, IsTerminal as _};
use tracing_subscriber::{EnvFilter, fmt};

/// The text is no log filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be error, warn, info, debug, trace, off, or directives such as info,relay::join=debug")]
pub struct InvalidFilter;

/// The log could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The filter does not parse.
    #[error("set up the log: the filter {0}")]
    Filter(#[from] InvalidFilter),
    /// There is a log already.
    #[error("set up the log: it was set up before in this process")]
    Twice,
}

/// Whether `directives` is a filter.
///
/// # Errors
/// It is not.
pub fn check_filter(directives: &str) -> Result<(), InvalidFilter> {
    filter(directives).map(drop)
}

/// Sends the log of this process to standard error. Once in a process.
///
/// # Errors
/// There is a log already.
pub fn start(settings: &LogSettings) -> Result<(), LogError> {
    let filter = filter(&settings.filter)?;
    let on_terminal = io::stderr().is_terminal();
    // A line that can't be written is lost: to complain about that would need the same place, and nobody's call fails by it.
    let lines = fmt().with_env_filter(filter).with_writer(io::stderr).log_internal_errors(false);
    let started = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).with_current_span(false).try_init(),
        LogFormat::Auto if !on_terminal => {
            lines.json().flatten_event(true).with_current_span(false).try_init()
        }
        LogFormat::Auto | LogFormat::Pretty => lines.with_ansi(on_terminal).try_init(),
    };
    started.map_err(|_| LogError::Twice)
}

fn filter(directives: &str) -> Result<EnvFilter, InvalidFilter> {
    if directives.trim().is_empty() {
        return Err(InvalidFilter);
    }
    EnvFilter::try_new(directives).map_err(|_| InvalidFilter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_levels_and_directives() {
        for good in ["info", "off", "warn,relay::join=debug", "relay=trace"] {
            assert_eq!(check_filter(good), Ok(()), "{good}");
        }
        for bad in ["", " ", "relay=loud", "info,,=x=y"] {
            assert_eq!(check_filter(bad), Err(InvalidFilter), "{bad}");
        }
    }
}
