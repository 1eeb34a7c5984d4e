//! Why a workflow failed where it was not the BMC that said so, nor the agent: a closed set, each with its word and what it means.
//! (A BMC's reasons are [`REASONS`](super::bmc::REASONS), an agent's are [`StepFault`](shared::api::steps::StepFault).)

use shared::api::metal::LastError;

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a row of CAUSES, which says what it means")]
pub enum Cause {
    Aborted,
    AgentContested,
    Deadline,
    IdentityMismatch,
    IdentityTaken,
    ImageRefused,
    MalformedReport,
    NoBootListener,
    NoStep,
    NotErased,
    PowerUnchanged,
    Restored,
}

/// A row: the cause, its word on the wire, what it means and what to do.
type Row = (Cause, &'static str, &'static str);

/// Every cause, in order of the enum.
#[rustfmt::skip]
pub const CAUSES: &[Row] = &[
    (Cause::Aborted, "aborted", "somebody ended the workflow"),
    (Cause::AgentContested, "agentContested", "a second agent came with this start's token: somebody took the image off the network between relay and BMC, or the machine started from it twice; what the first one was given (a deployment's user data among it) may be known to somebody else"),
    (Cause::Deadline, "deadline", "the step took too long"),
    (Cause::IdentityMismatch, "identityMismatch", "the machine is not the one that its BMC, or expectSerial, says; is it the right BMC?"),
    (Cause::IdentityTaken, "identityTaken", "the machine's UUID or serial number is held by another node of the site; retire or release that one first"),
    (Cause::ImageRefused, "imageRefused", "the image's address leads to where no image may come from: not to the relay's machine, nor into private networks, unless the site lists them"),
    (Cause::MalformedReport, "malformedReport", "the agent says that it looked, and not what it saw"),
    (Cause::NoBootListener, "noBootListener", "the relay serves no image of the agent; set boot_listen, and do the verb again"),
    (Cause::NoStep, "noStep", "this release of the relay does not know the machine's step"),
    (Cause::NotErased, "notErased", "not all disks were erased; the machine does not become available"),
    (Cause::PowerUnchanged, "powerUnchanged", "the BMC took the requests, and the machine's power did not change; see what is wrong with the machine"),
    (Cause::Restored, "restored", "the store was restored from a backup, and the machine may have been used since: see what is on it before you go on; commission and release erase its disks in full"),
];

impl Cause {
    fn row(self) -> &'static Row {
        let found = CAUSES.iter().find(|(cause, ..)| *cause == self);
        found.unwrap_or(&(
            Self::NoStep,
            "noStep",
            "this release of the relay does not know the machine's step",
        ))
    }

    /// As the wire says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.row().1
    }

    /// As people are told it.
    #[must_use]
    pub fn told(self) -> LastError {
        self.told_of(self.row().2)
    }

    /// As people are told it of this machine.
    #[must_use]
    pub fn told_of(self, message: impl Into<String>) -> LastError {
        worded(self.as_str(), message)
    }
}

/// What an agent says of its step.
#[must_use]
pub fn worded(code: &str, message: impl Into<String>) -> LastError {
    LastError { code: code.to_owned(), message: message.into(), bmc_status: None, bmc_message_id: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_has_its_row_and_its_word() {
        for (at, (cause, word, text)) in CAUSES.iter().enumerate() {
            assert_eq!(*cause as usize, at, "{word}");
            assert_eq!(cause.as_str(), *word);
            assert_eq!(CAUSES.iter().filter(|(_, other, _)| other == word).count(), 1, "{word}");
            assert!(!text.ends_with('.'), "{word}");
        }
        assert_eq!(CAUSES.len(), Cause::Restored as usize + 1);
    }
}
