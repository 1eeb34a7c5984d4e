//! The wire error: RFC 9457 problem details with a code, and every bad field named.
//!
//! A relay sends the codes and reasons of its release and no others: they are enums. A client may be older than its relay,
//! so it reads a problem by [`Problem::read`], which knows what to make of a word that is newer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What went wrong, as a client's program reads it. One HTTP status each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// The body is not JSON, or a field is unknown, missing or out of its constraint.
    InvalidInput,
    /// No, malformed, expired, revoked or unknown credential; the answer never says which.
    Unauthenticated,
    /// The caller may see the resource but may not do this.
    PermissionDenied,
    /// Absent, or the caller may not know that it exists.
    NotFound,
    /// Same idempotency key with other content, an identity taken, a version that moved on.
    Conflict,
    /// The resource's state forbids the move.
    InvalidState,
    /// The body is over the limit.
    PayloadTooLarge,
    /// Rate limited; always with Retry-After.
    ResourceExhausted,
    /// A fault of the relay; never with internals in the detail.
    Internal,
    /// Overload, or the store is unreachable; always with Retry-After.
    Unavailable,
}

impl Code {
    /// Every code, in the order of the reference.
    pub const ALL: [Self; 10] = [
        Self::InvalidInput,
        Self::Unauthenticated,
        Self::PermissionDenied,
        Self::NotFound,
        Self::Conflict,
        Self::InvalidState,
        Self::PayloadTooLarge,
        Self::ResourceExhausted,
        Self::Internal,
        Self::Unavailable,
    ];

    /// The HTTP status and the title for people.
    #[must_use]
    pub const fn status_and_title(self) -> (u16, &'static str) {
        match self {
            Self::InvalidInput => (400, "The input is not valid"),
            Self::Unauthenticated => (401, "No valid credential"),
            Self::PermissionDenied => (403, "Not allowed"),
            Self::NotFound => (404, "Not found"),
            Self::Conflict => (409, "Conflict"),
            Self::InvalidState => (409, "The state does not allow this"),
            Self::PayloadTooLarge => (413, "The body is too large"),
            Self::ResourceExhausted => (429, "Too many requests"),
            Self::Internal => (500, "The relay failed"),
            Self::Unavailable => (503, "Try again later"),
        }
    }

    /// The code that an HTTP status stands for by itself; `None` if it is no error.
    #[must_use]
    pub const fn of_status(status: u16) -> Option<Self> {
        Some(match status {
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::NotFound,
            409 => Self::Conflict,
            413 => Self::PayloadTooLarge,
            429 => Self::ResourceExhausted,
            400..=499 => Self::InvalidInput,
            502..=504 => Self::Unavailable,
            500..=599 => Self::Internal,
            _ => return None,
        })
    }

    /// The code as the wire says it, `INVALID_INPUT`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidInput => "INVALID_INPUT",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::NotFound => "NOT_FOUND",
            Self::Conflict => "CONFLICT",
            Self::InvalidState => "INVALID_STATE",
            Self::PayloadTooLarge => "PAYLOAD_TOO_LARGE",
            Self::ResourceExhausted => "RESOURCE_EXHAUSTED",
            Self::Internal => "INTERNAL",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// One bad field: its path in the input (`expect.mac`) and what it must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FieldError {
    /// The path, members joined by dots; empty for the body as a whole.
    pub field: String,
    /// The rule, and how to meet it.
    pub message: String,
}

/// Why a join or a node's call was refused; told only to a caller whose secret or key matched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Reason {
    /// The join token's time is over.
    TokenExpired,
    /// All uses of the join token are spent.
    TokenExhausted,
    /// The join token was revoked.
    TokenRevoked,
    /// A member of the token's `expect` does not match.
    IdentityMismatch,
    /// A live node of the same tenant holds this identity.
    IdentityTaken,
    /// A reclaim with another endorsement key.
    EndorsementKeyMismatch,
    /// The policy or the pin demands a TPM.
    TpmRequired,
    /// The proof of possession fails.
    BadProof,
    /// The key's attributes are not the demanded ones.
    KeyNotTpm,
    /// A person denied the join request.
    RequestDenied,
    /// The join request's time is over.
    RequestExpired,
    /// The node, its key or its endorsement key is banned.
    NodeBanned,
    /// Too many requests of this token are waiting.
    TooManyPending,
    /// A later join or renewal has overtaken this one.
    Superseded,
    /// The node was released.
    NodeReleased,
    /// The endorsement key is not of a TCG template, weak, or not its certificate's.
    BadEndorsementKey,
    /// The certificate request is malformed or its signature does not hold.
    BadCsr,
}

impl Reason {
    /// Every reason, in the order of the reference.
    pub const ALL: [Self; 17] = [
        Self::TokenExpired,
        Self::TokenExhausted,
        Self::TokenRevoked,
        Self::IdentityMismatch,
        Self::IdentityTaken,
        Self::EndorsementKeyMismatch,
        Self::TpmRequired,
        Self::BadProof,
        Self::KeyNotTpm,
        Self::RequestDenied,
        Self::RequestExpired,
        Self::NodeBanned,
        Self::TooManyPending,
        Self::Superseded,
        Self::NodeReleased,
        Self::BadEndorsementKey,
        Self::BadCsr,
    ];

    /// The code that goes with the reason.
    #[must_use]
    pub const fn code(self) -> Code {
        match self {
            Self::TokenExpired
            | Self::TokenExhausted
            | Self::TokenRevoked
            | Self::IdentityMismatch
            | Self::TpmRequired
            | Self::BadProof
            | Self::KeyNotTpm
            | Self::RequestDenied
            | Self::RequestExpired
            | Self::NodeBanned
            | Self::BadEndorsementKey => Code::PermissionDenied,
            Self::IdentityTaken | Self::EndorsementKeyMismatch | Self::Superseded | Self::NodeReleased => {
                Code::Conflict
            }
            Self::TooManyPending => Code::ResourceExhausted,
            Self::BadCsr => Code::InvalidInput,
        }
    }
}

/// The body of every error answer, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// A URI reference for the kind of problem; `about:blank` says that the code is all there is to know.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// This occurrence, for people: what was refused, by which rule, and the remedy.
    pub detail: String,
    /// The kind, for programs.
    pub code: Code,
    /// Why a machine's call was refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// Every bad field of the input.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// The id of the request, as in the `x-request-id` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Seconds to wait before another try, as in the `Retry-After` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<u32>,
    /// The state that forbids the move, of a machine.
    #[serde(flatten, default, skip_serializing_if = "Option::is_none")]
    pub in_state: Option<Box<InState>>,
}

/// A machine's state that forbids a move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InState {
    /// The state.
    pub state: String,
    /// The verbs that it allows.
    pub allowed_verbs: Vec<String>,
}

impl Problem {
    /// A problem of this code; `detail` names the operation, the rule and the remedy.
    #[must_use]
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let (status, title) = code.status_and_title();
        let retry_after_seconds = matches!(code, Code::ResourceExhausted | Code::Unavailable).then_some(1);
        Self {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status,
            detail: detail.into(),
            code,
            reason: None,
            errors: Vec::new(),
            request_id: None,
            retry_after_seconds,
            in_state: None,
        }
    }

    /// A problem as a relay of this release, an older or a newer one sent it with this HTTP status; `None` if it is no
    /// problem of a relay.
    ///
    /// What it has beside its detail is taken as far as it is understood. A code that is not known counts as the one that
    /// the status stands for, which says as much of whether another try may help. A reason that is not known counts as none
    /// ([`Problem::reason`]): nobody stops for good for a reason that they don't know. Both words are added to the
    /// detail, so that people see them.
    #[must_use]
    pub fn read(status: u16, body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let text = |name: &str| body.get(name).and_then(Value::as_str);
        let (detail, said) = (text("detail")?, text("code")?);
        let known = word::<Code>(said);
        let of_status = Code::of_status(status);
        let code = known.or(of_status)?;
        let reason = text("reason").and_then(word::<Reason>);
        let odd = [
            text("reason").filter(|_| reason.is_none()).map(|word| format!(" (reason {word})")),
            known.is_none().then(|| format!(" (code {said})")),
        ];
        let errors = body.get("errors").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let seconds = body.get("retryAfterSeconds").and_then(Value::as_u64);
        Some(Self {
            kind: text("type").unwrap_or("about:blank").to_owned(),
            title: text("title").unwrap_or_default().to_owned(),
            status,
            detail: odd.into_iter().flatten().fold(detail.to_owned(), |all, one| all + &one),
            code,
            reason,
            errors: errors.iter().filter_map(|error| FieldError::deserialize(error).ok()).collect(),
            request_id: text("requestId").map(str::to_owned),
            retry_after_seconds: seconds.map(|seconds| u32::try_from(seconds).unwrap_or(u32::MAX)),
            in_state: InState::deserialize(body).ok().map(Box::new),
        })
    }

    /// A refusal of a machine's call.
    #[must_use]
    pub fn refused(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason: Some(reason), ..Self::new(reason.code(), detail) }
    }

    /// INVALID_INPUT with its bad fields, sorted and without repeats.
    #[must_use]
    pub fn invalid(mut errors: Vec<FieldError>) -> Self {
        errors.sort();
        errors.dedup();
        let fields: Vec<&str> =
            errors.iter().map(|e| if e.field.is_empty() { "(body)" } else { &e.field }).collect();
        let detail = format!("Correct these fields and try again: {}.", fields.join(", "));
        Self { errors, ..Self::new(Code::InvalidInput, detail) }
    }

    /// INVALID_INPUT for one field.
    #[must_use]
    pub fn invalid_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::invalid(vec![FieldError { field: field.into(), message: message.into() }])
    }

    /// The same problem with its bad fields.
    #[must_use]
    pub fn with_errors(mut self, errors: Vec<FieldError>) -> Self {
        self.errors = errors;
        self
    }

    /// The same problem with the state that forbids a move, and the verbs that it allows.
    #[must_use]
    pub fn in_state(mut self, state: &str, allowed: Vec<String>) -> Self {
        self.in_state = Some(Box::new(InState { state: state.to_owned(), allowed_verbs: allowed }));
        self
    }

    /// The same problem with another wait before the next try, in seconds.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }
}

/// A word of the wire, if it is one of this release.
fn word<'a, T: Deserialize<'a>>(text: &'a str) -> Option<T> {
    T::deserialize(serde::de::value::BorrowedStrDeserializer::<serde::de::value::Error>::new(text)).ok()
}

impl std::fmt::Display for Problem {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}: {}", self.code.as_str(), self.detail)
    }
}

impl std::error::Error for Problem {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn codes_are_spelled_alike_everywhere() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
        }
    }

    #[test]
    fn every_reason_is_listed_once_in_the_order_of_the_enum() {
        for (at, reason) in Reason::ALL.iter().enumerate() {
            assert_eq!(*reason as usize, at);
        }
        assert_eq!(Reason::ALL.len(), Reason::BadCsr as usize + 1);
    }

    #[test]
    fn a_problem_of_this_release_is_read_as_it_was_written() {
        for code in Code::ALL {
            let status = code.status_and_title().0;
            let problem = Problem::new(code, "x").with_errors(Problem::invalid_field("a.b", "c").errors);
            let problem = Problem { request_id: Some("r-1".into()), ..problem };
            assert_eq!(Problem::read(status, &serde_json::to_vec(&problem).unwrap()), Some(problem));
            // Its status alone stands for something that is tried again, or not, as it is.
            let of_status = Code::of_status(status).unwrap();
            assert_eq!(of_status.status_and_title().0, status);
        }
        for reason in Reason::ALL {
            let problem = Problem::refused(reason, "x");
            let read = Problem::read(problem.status, &serde_json::to_vec(&problem).unwrap());
            assert_eq!(read, Some(problem));
        }
    }

    #[test]
    fn what_a_newer_relay_says_is_shown_and_counts_by_its_status() {
        let read = |status: u16, body: Value| Problem::read(status, body.to_string().as_bytes());
        let frozen = read(
            403,
            json!({
                "type": "about:blank", "title": "t", "status": 403, "detail": "the pool is frozen",
                "code": "PERMISSION_DENIED", "reason": "poolFrozen", "instance": "/x", "errors": "odd",
                "retryAfterSeconds": 99_999_999_999_u64,
            }),
        );
        let frozen = frozen.unwrap();
        assert_eq!((frozen.code, frozen.reason), (Code::PermissionDenied, None));
        assert_eq!(frozen.detail, "the pool is frozen (reason poolFrozen)");
        assert_eq!(frozen.retry_after_seconds, Some(u32::MAX));
        for (status, code) in [
            (409, Code::Conflict),
            (418, Code::InvalidInput),
            (429, Code::ResourceExhausted),
            (500, Code::Internal),
            (503, Code::Unavailable),
            (504, Code::Unavailable),
        ] {
            let newer = json!({"detail": "why", "code": "PRECONDITION_FAILED"});
            let newer = read(status, newer).unwrap();
            assert_eq!((newer.code, newer.status), (code, status));
            assert_eq!(newer.detail, "why (code PRECONDITION_FAILED)");
        }
    }

    #[test]
    fn what_is_no_problem_is_not_taken_for_one() {
        let odd = json!({"detail": "x", "code": "PRECONDITION_FAILED"}).to_string();
        for (status, body) in [
            (502, "<html>"),
            (502, "{}"),
            (502, r#"{"detail": "x"}"#),
            (502, r#"{"detail": 1, "code": "INTERNAL"}"#),
            (302, &*odd),
        ] {
            assert_eq!(Problem::read(status, body.as_bytes()), None, "{status} {body}");
        }
    }

    #[test]
    fn what_can_be_tried_again_says_when() {
        for code in Code::ALL {
            let waits = Problem::new(code, "x").retry_after_seconds.is_some();
            assert_eq!(waits, matches!(code, Code::ResourceExhausted | Code::Unavailable), "{code:?}");
        }
    }
}
