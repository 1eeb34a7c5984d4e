//! The exit codes: the contract with scripts. Pure.

use shared::problem::Code;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It is done.
    Ok,
    /// It was refused, or something is wrong.
    Refused,
    /// The command line or a value in it is not right.
    Usage,
    /// The relay knows no such credential, or none was found to show.
    Unauthenticated,
    /// There is no such thing.
    NotFound,
    /// It may work later.
    TryAgain,
}

impl Exit {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Refused => 1,
            Self::Usage => 2,
            Self::Unauthenticated => 3,
            Self::NotFound => 4,
            Self::TryAgain => 75,
        }
    }
}

impl From<Code> for Exit {
    fn from(code: Code) -> Self {
        match code {
            Code::InvalidInput | Code::PayloadTooLarge => Self::Usage,
            Code::Unauthenticated => Self::Unauthenticated,
            Code::NotFound => Self::NotFound,
            Code::ResourceExhausted | Code::Unavailable => Self::TryAgain,
            Code::PermissionDenied | Code::Conflict | Code::InvalidState | Code::Internal => Self::Refused,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.number().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_the_exit_of_the_contract() {
        let numbers = Code::ALL.map(|code| (code.as_str(), Exit::from(code).number()));
        let expected = [
            ("INVALID_INPUT", 2),
            ("UNAUTHENTICATED", 3),
            ("PERMISSION_DENIED", 1),
            ("NOT_FOUND", 4),
            ("CONFLICT", 1),
            ("INVALID_STATE", 1),
            ("PAYLOAD_TOO_LARGE", 2),
            ("RESOURCE_EXHAUSTED", 75),
            ("INTERNAL", 1),
            ("UNAVAILABLE", 75),
        ];
        assert_eq!(numbers, expected);
    }
}
