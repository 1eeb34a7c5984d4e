//! How a step can fail: a word for the relay, a sentence for people.

pub(crate) use shared::api::steps::StepFault;
use shared::{api::steps::StepError, bounded::Label, terminal::shown_within};
use std::{fmt, io};

/// The most characters of a message.
const MAX_CHARS: usize = 256;

/// Why a step is not done.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Fault {
    pub(crate) code: StepFault,
    pub(crate) message: String,
}

/// A fault of this kind.
pub(crate) fn fault(code: StepFault, message: impl fmt::Display) -> Fault {
    Fault { code, message: message.to_string() }
}

/// What an input or output of a disk failed at.
pub(crate) fn disk(what: impl fmt::Display) -> impl FnOnce(io::Error) -> Fault {
    move |error| fault(StepFault::Disk, format!("{what}: {error}"))
}

impl Fault {
    /// As it is reported.
    pub(crate) fn report(&self) -> StepError {
        StepError { code: self.code.as_str().to_owned(), message: label(&self.message) }
    }
}

/// A text cut and cleaned to what the wire takes.
pub(crate) fn label(text: &str) -> Label {
    let shown = shown_within(text, MAX_CHARS - 1);
    let clean: String = shown.chars().filter(|c| !c.is_control()).take(MAX_CHARS).collect();
    let text = if clean.is_empty() { "-".to_owned() } else { clean };
    text.parse().unwrap_or_else(|_| dash())
}

#[expect(clippy::unwrap_used, reason = "a dash is a label")]
fn dash() -> Label {
    "-".parse().unwrap()
}
