//! How an attempt can fail, and what follows: the exit code, and whether trying again can help.
//!
//! One table maps the relay's reasons to exit codes, one says which codes are final.

use crate::{
    client::CallError, csr::CsrError, files, key::KeyError, state::StateError, token::TokenError,
    tpm::TpmError, trust::TrustError,
};
use shared::{
    problem::{Code, Problem, Reason},
    terminal::shown_within,
    token::without_tokens,
};
use std::{fmt, time::Duration};

/// The most characters of the relay's id of a request that are shown.
const MAX_REQUEST_ID: usize = 64;

/// The most characters of what a relay says that are shown and kept.
const MAX_MESSAGE: usize = 2_000;

/// What a command came to; the exit codes of `bcd join` and `bcd run`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Joined, or already so.
    Done = 0,
    /// The request is malformed, or this machine's own state is unusable.
    Broken = 1,
    /// A person decides.
    Waiting = 10,
    /// Denied, or the request's time is over.
    Denied = 11,
    /// The token is wrong, expired, exhausted or revoked.
    Token = 12,
    /// The identity is not the pinned one, or it is taken.
    Identity = 13,
    /// The relay is not the one it should be.
    NotTrusted = 14,
    /// The node is banned.
    Banned = 15,
    /// This machine's clock is wrong.
    Clock = 16,
    /// Released, or overtaken.
    Released = 17,
    /// Something about the TPM.
    Tpm = 20,
    /// The command or the settings are wrong.
    Usage = 64,
    /// Try again.
    Transient = 75,
}

/// Every code and what it says, in the order of the help.
pub const EXITS: &[(Exit, &str)] = &[
    (Exit::Done, "joined, or already so"),
    (Exit::Broken, "malformed request, or this machine's state is unusable"),
    (Exit::Waiting, "waits for approval"),
    (Exit::Denied, "denied, or the request expired"),
    (Exit::Token, "the join token is missing, wrong, expired, exhausted or revoked"),
    (Exit::Identity, "not the pinned machine, or its identity is taken"),
    (Exit::NotTrusted, "the relay is not the one that it should be"),
    (Exit::Banned, "banned"),
    (Exit::Clock, "this machine's clock is wrong"),
    (Exit::Released, "released, or overtaken by a later join"),
    (Exit::Tpm, "something about the TPM"),
    (Exit::Usage, "wrong usage or settings"),
    (Exit::Transient, "try again"),
];

impl Exit {
    /// The process's exit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// Whether trying again is of no use until a person changes something on purpose. These are the codes that the unit
    /// file does not restart after.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(
            self,
            Self::Broken | Self::Denied | Self::Identity | Self::Banned | Self::Released | Self::Usage
        )
    }

    /// The code with this number, where it is one of the final ones.
    #[must_use]
    pub fn from_final(code: u8) -> Self {
        let finals = [Self::Broken, Self::Denied, Self::Identity, Self::Banned, Self::Released, Self::Usage];
        finals.into_iter().find(|exit| exit.code() == code).unwrap_or(Self::Broken)
    }
}

/// The exit code of a refusal that says its reason.
#[must_use]
pub const fn exit_of(reason: Reason) -> Exit {
    match reason {
        Reason::TokenExpired | Reason::TokenExhausted | Reason::TokenRevoked => Exit::Token,
        Reason::IdentityMismatch | Reason::IdentityTaken | Reason::EndorsementKeyMismatch => Exit::Identity,
        Reason::TpmRequired | Reason::BadProof | Reason::KeyNotTpm | Reason::BadEndorsementKey => Exit::Tpm,
        Reason::RequestDenied | Reason::RequestExpired => Exit::Denied,
        Reason::NodeBanned => Exit::Banned,
        Reason::Superseded | Reason::NodeReleased => Exit::Released,
        Reason::TooManyPending => Exit::Transient,
        Reason::BadCsr => Exit::Broken,
    }
}

/// The word for a refusal, which the README's table has, and the id under which the relay's log has it.
fn named(problem: &Problem) -> String {
    let reason = problem.reason.and_then(|reason| serde_json::to_value(reason).ok());
    let word = reason.as_ref().and_then(|word| word.as_str()).unwrap_or(problem.code.as_str());
    match &problem.request_id {
        Some(id) => format!("{word}, request {}", id.chars().take(MAX_REQUEST_ID).collect::<String>()),
        None => word.to_owned(),
    }
}

/// A failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it comes to.
    pub exit: Exit,
    /// What failed, by which rule, and the remedy.
    pub message: String,
    /// The relay's word on when to try again.
    pub retry_after: Option<Duration>,
    /// The relay's code, where it refused.
    pub code: Option<Code>,
}

impl Failure {
    /// A failure of this kind.
    #[must_use]
    pub fn new(exit: Exit, message: impl fmt::Display) -> Self {
        // A token in the place of a path, say, must not end up in a journal.
        let message = without_tokens(&message.to_string()).into_owned();
        Self { exit, message, retry_after: None, code: None }
    }

    /// Whether trying again can help.
    #[must_use]
    pub fn is_final(&self) -> bool {
        self.exit.is_final()
    }

    /// Whether the relay does not take this node's certificate (any more), and says no reason that would be final.
    #[must_use]
    pub fn is_unknown_certificate(&self) -> bool {
        self.code == Some(Code::Unauthenticated) && self.exit == Exit::Transient
    }

    /// Whether the relay takes the caller for who it is, and still denies it this.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.code == Some(Code::PermissionDenied) && self.exit == Exit::Transient
    }

    fn refused(problem: &Problem, retry_after: Option<Duration>, with_certificate: bool) -> Self {
        let exit = match (problem.reason, problem.code) {
            (Some(reason), _) => exit_of(reason),
            (None, Code::Unauthenticated) if !with_certificate => Exit::Token,
            (None, _) => Exit::Transient,
        };
        let details = problem.errors.iter().map(|error| format!("; {}: {}", error.field, error.message));
        let detail = problem.detail.trim_end_matches('.');
        let message =
            format!("the relay refuses: {detail}{} ({})", details.collect::<String>(), named(problem));
        Self { exit, message, retry_after, code: Some(problem.code) }
    }

    /// A failed call, where the caller showed a token or a certificate.
    #[must_use]
    pub fn of_call(error: &CallError, with_certificate: bool) -> Self {
        let failure = Self::of_error(error, with_certificate);
        // What the other end says and what its certificate names ends up on terminals, in journals and in the state.
        Self { message: shown_within(&failure.message, MAX_MESSAGE), ..failure }
    }

    fn of_error(error: &CallError, with_certificate: bool) -> Self {
        match error {
            CallError::Refused { problem, retry_after } => {
                Self::refused(problem, *retry_after, with_certificate)
            }
            CallError::Trust(TrustError::ClockBehind { .. }) => Self::new(Exit::Clock, error),
            CallError::Trust(_) => Self::new(Exit::NotTrusted, error),
            CallError::NoTrust | CallError::NoRelay | CallError::CaFile(..) => Self::new(Exit::Usage, error),
            CallError::Tpm(_) => Self::new(Exit::Tpm, error),
            CallError::Odd { retry_after, .. } => {
                Self { retry_after: *retry_after, ..Self::new(Exit::Transient, error) }
            }
            _ => Self::new(Exit::Transient, error),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = match self.exit {
            Exit::Waiting => "waiting",
            exit if exit.is_final() => "final",
            _ => "transient",
        };
        write!(out, "{} ({label}, exit code {})", self.message, self.exit.code())
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        let exit = match &error {
            StateError::Io { source, .. } if files::is_lasting(source) => Exit::Usage,
            StateError::Busy(_) | StateError::Io { .. } => Exit::Transient,
            StateError::Newer { .. } | StateError::Damaged(..) => Exit::Broken,
        };
        Self::new(exit, error)
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::State(error) => error.into(),
            KeyError::Tpm(_) => Self::new(Exit::Tpm, error),
            // The setting contradicts the key that is there, and neither changes by itself.
            KeyError::InFile(_) | KeyError::InTpm(_) => Self::new(Exit::Usage, error),
            KeyError::Damaged(_) => Self::new(Exit::Broken, error),
            KeyError::Crypto(_) => Self::new(Exit::Transient, error),
        }
    }
}

impl From<TokenError> for Failure {
    fn from(error: TokenError) -> Self {
        let exit = match &error {
            // It may still come: a file, a credential.
            TokenError::Absent(_) | TokenError::Malformed { .. } => Exit::Token,
            // So may one that is another's file, or no text: the file is read anew at each attempt.
            TokenError::Unreadable { source, .. } if files::is_lasting(source) => Exit::Token,
            TokenError::Unreadable { .. } => Exit::Transient,
        };
        Self::new(exit, error)
    }
}

impl From<CsrError> for Failure {
    fn from(error: CsrError) -> Self {
        match error {
            CsrError::Key(error) => error.into(),
            error => Self::new(Exit::Transient, error),
        }
    }
}

impl From<TpmError> for Failure {
    fn from(error: TpmError) -> Self {
        Self::new(Exit::Tpm, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::problem::FieldError;
    use std::io;

    #[test]
    fn codes_are_the_documented_ones() {
        let codes = [
            (Exit::Done, 0, false),
            (Exit::Broken, 1, true),
            (Exit::Waiting, 10, false),
            (Exit::Denied, 11, true),
            (Exit::Token, 12, false),
            (Exit::Identity, 13, true),
            (Exit::NotTrusted, 14, false),
            (Exit::Banned, 15, true),
            (Exit::Clock, 16, false),
            (Exit::Released, 17, true),
            (Exit::Tpm, 20, false),
            (Exit::Usage, 64, true),
            (Exit::Transient, 75, false),
        ];
        for (exit, code, is_final) in codes {
            assert_eq!((exit.code(), exit.is_final()), (code, is_final), "{exit:?}");
            assert_eq!(Exit::from_final(code) == exit, is_final, "{exit:?}");
        }
    }

    #[test]
    fn the_units_leave_it_down_at_the_final_codes() {
        let finals = EXITS.iter().map(|(exit, _)| exit).filter(|exit| exit.is_final());
        let finals: Vec<u8> = finals.map(|exit| exit.code()).collect();
        for unit in
            [include_str!("../../systemd/bcd.service"), include_str!("../../systemd/bcd-join.service")]
        {
            let listed =
                unit.lines().find_map(|line| line.strip_prefix("RestartPreventExitStatus=")).unwrap();
            let numbers = listed.split(' ').map(|number| number.parse().unwrap());
            // Those from 200 on are systemd's own.
            assert_eq!(numbers.filter(|number| *number < 200).collect::<Vec<u8>>(), finals);
        }
    }

    #[test]
    fn a_wrong_secret_is_the_tokens_fault_and_an_unknown_certificate_is_none() {
        let error = CallError::Refused {
            problem: Box::new(Problem::new(Code::Unauthenticated, "no")),
            retry_after: None,
        };
        let join = Failure::of_call(&error, false);
        assert_eq!((join.exit, join.is_unknown_certificate()), (Exit::Token, false));
        let renewal = Failure::of_call(&error, true);
        assert_eq!((renewal.exit, renewal.is_unknown_certificate()), (Exit::Transient, true));
    }

    #[test]
    fn nothing_that_the_other_end_says_steers_a_terminal() {
        let bad = "A\u{1b}[2J\u{202e}evil\u{2066}\u{9b}31m\nB";
        let problem = Problem::new(Code::InvalidInput, bad)
            .with_errors(vec![FieldError { field: bad.into(), message: bad.into() }]);
        let refused = CallError::Refused { problem: Box::new(problem), retry_after: None };
        let names = TrustError::NameMismatch { wanted: "x".into(), named: vec![bad.into()] };
        for error in [refused, names.into(), TrustError::NotARelay(vec![bad.into()]).into()] {
            let text = Failure::of_call(&error, false).to_string();
            assert!(text.contains("evil") && !text.chars().any(shared::terminal::steers), "{text:?}");
        }
    }

    #[test]
    fn a_refusal_names_every_member_and_its_label() {
        let problem =
            Problem::refused(Reason::IdentityMismatch, "the machine is not the expected one.").with_errors(
                vec![FieldError { field: "expect.serial".into(), message: "expected A, saw B".into() }],
            );
        let problem = Problem { request_id: Some("r-1".into()), ..problem };
        let error = CallError::Refused { problem: Box::new(problem), retry_after: None };
        let text = Failure::of_call(&error, false).to_string();
        for part in [
            "the expected one; expect.serial: expected A, saw B",
            "(identityMismatch, request r-1)",
            "(final, exit code 13)",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn no_message_has_a_token_and_no_odd_request_id_is_long() {
        let text = format!("/run/bcjt_{0}.{0}: No such file", "k".repeat(52));
        assert!(!Failure::new(Exit::Usage, text).message.contains("kkk"));
        let problem =
            Problem { request_id: Some("x".repeat(5000)), ..Problem::new(Code::Unauthenticated, "no") };
        let error = CallError::Refused { problem: Box::new(problem), retry_after: None };
        let message = Failure::of_call(&error, true).message;
        assert!(message.contains("(UNAUTHENTICATED, request xxx") && message.len() < 200, "{message}");
    }

    #[test]
    fn what_only_a_person_can_change_is_no_transient_failure() {
        let failed = |kind: io::ErrorKind| {
            let error = StateError::Io { action: "cannot make", path: "/proc/x".into(), source: kind.into() };
            Failure::from(error).exit
        };
        assert_eq!(failed(io::ErrorKind::PermissionDenied), Exit::Usage);
        assert_eq!(failed(io::ErrorKind::NotFound), Exit::Usage);
        assert_eq!(failed(io::ErrorKind::ReadOnlyFilesystem), Exit::Usage);
        assert_eq!(failed(io::ErrorKind::InvalidInput), Exit::Usage);
        assert_eq!(failed(io::ErrorKind::AlreadyExists), Exit::Usage);
        assert_eq!(failed(io::ErrorKind::StorageFull), Exit::Transient);
        for error in [KeyError::InFile("/k".into()), KeyError::InTpm("/k".into())] {
            assert_eq!(Failure::from(error).exit, Exit::Usage);
        }
        let token = |kind: io::ErrorKind| {
            Failure::from(TokenError::Unreadable { place: "/t".into(), source: kind.into() }).exit
        };
        for kind in [io::ErrorKind::InvalidData, io::ErrorKind::InvalidInput, io::ErrorKind::PermissionDenied]
        {
            assert_eq!(token(kind), Exit::Token, "{kind}");
        }
        assert_eq!(token(io::ErrorKind::Interrupted), Exit::Transient);
        let error = CallError::CaFile("/nope".into(), "No such file or directory".into());
        assert_eq!(Failure::of_call(&error, false).exit, Exit::Usage);
    }
}
