//! How a step can fail: a word for the relay, a sentence for people.

use shared::{api::steps::StepError, bounded::Label, terminal::shown_within};
use std::{fmt, io};

/// The most characters of a message.
const MAX_CHARS: usize = 256;

/// The kinds of faults. Whether a step is tried again is the relay's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepFault {
    /// No disk fits.
    NoDisk,
    /// A disk can't be read or written.
    Disk,
    /// The image can't be fetched.
    Fetch,
    /// The image's server is at an address that it may not be fetched from.
    AddressRefused,
    /// The image is another one than its hash says.
    Digest,
    /// The image is not of its format, or of a form that is not taken.
    Image,
    /// The image is larger than the disk.
    TooLarge,
    /// What was read back is not what was written.
    ReadBack,
    /// There is no system to put files into.
    NoSystem,
    /// A program of the agent's image failed or is missing.
    Program,
    /// It took too long, or is wanted no more.
    Timeout,
}

impl StepFault {
    /// As the relay is told.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::NoDisk => "noDisk",
            Self::Disk => "diskFault",
            Self::Fetch => "fetchFailed",
            Self::AddressRefused => "addressRefused",
            Self::Digest => "digestMismatch",
            Self::Image => "badImage",
            Self::TooLarge => "imageTooLarge",
            Self::ReadBack => "readBackMismatch",
            Self::NoSystem => "noSystem",
            Self::Program => "programFailed",
            Self::Timeout => "timeout",
        }
    }
}

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
