//! One answer of a Redfish service: read to a bound, and what it means. Of a refusal's words only the `MessageId` is kept: messages
//! and their arguments echo what was sent.

use super::{
    super::{
        error::{BmcError, Reason},
        redact::Redact,
    },
    path::Path,
};
use http::{
    HeaderMap, StatusCode,
    header::{ETAG, LOCATION, WWW_AUTHENTICATE},
};
use reqwest::{Response, Url};
use serde_json::Value;

/// The longest answer that is read, in bytes (4 MiB).
const MAX_BODY_BYTES: usize = 4 << 20;
/// The longest `MessageId` that is told, in bytes.
const MAX_MESSAGE_ID_BYTES: usize = 128;

/// What messages of DSP0268 and of makers' own registries mean, by the last part of their id. Whatever is not here is a refusal.
const MESSAGES: &[(&str, Reason)] = &[
    ("CreateLimitReachedForResource", Reason::Busy),
    ("PasswordChangeRequired", Reason::PasswordChangeRequired),
    ("ResourceInStandby", Reason::Busy),
    ("ServiceShuttingDown", Reason::Busy),
    ("ServiceTemporarilyUnavailable", Reason::Busy),
    ("SessionLimitExceeded", Reason::Busy),
    // HPE's: the machine starts. It passes by waiting alone, so no other form of the request is tried.
    ("UnableToModifyDuringSystemPOST", Reason::Busy),
];

/// What was read at a path.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) path: Path,
    pub(super) etag: Option<String>,
    pub(super) body: Value,
}

/// An answer that was read to its end.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Vec<u8>,
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// [`Reason::TooLarge`], [`Reason::Timeout`], [`Reason::Unreachable`].
    pub(super) async fn read(mut answer: Response) -> Result<Self, BmcError> {
        let (status, headers) = (answer.status(), std::mem::take(answer.headers_mut()));
        let mut body = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() > MAX_BODY_BYTES => {
                    return Err(Reason::TooLarge.into());
                }
                Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                Ok(None) => return Ok(Self { status, headers, body }),
                Err(error) if error.is_timeout() => return Err(Reason::Timeout.into()),
                Err(_) => return Err(Reason::Unreachable.into()),
            }
        }
    }

    /// What was read at this path.
    ///
    /// # Errors
    /// A refusal; [`Reason::Malformed`].
    pub(super) fn document(&self, path: &Path, redact: &Redact) -> Result<Document, BmcError> {
        self.accepted(redact)?;
        let body = self.json().filter(Value::is_object).ok_or(Reason::Malformed)?;
        let etag = self.header(&ETAG).map(str::to_owned);
        let etag = etag.or_else(|| body.get("@odata.etag").and_then(Value::as_str).map(str::to_owned));
        Ok(Document { path: path.clone(), etag, body })
    }

    /// # Errors
    /// A refusal.
    pub(super) fn accepted(&self, redact: &Redact) -> Result<(), BmcError> {
        if self.status.is_success() { Ok(()) } else { Err(refusal(self.status, &self.body, redact)) }
    }

    /// Where an accepted request goes on: the monitor of its task (DSP0266, asynchronous operations).
    pub(super) fn task(&self, base: &Url) -> Option<Path> {
        if self.status != StatusCode::ACCEPTED {
            return None;
        }
        let located = self.header(&LOCATION).and_then(|text| Path::located(text, base));
        located.or_else(|| Path::linked(self.json().as_ref()))
    }

    /// Whether a refusal of credentials offers to take them by Basic (RFC 7617).
    pub(super) fn offers_basic(&self) -> bool {
        let offers = self.headers.get_all(WWW_AUTHENTICATE).iter();
        offers
            .filter_map(|offer| offer.to_str().ok())
            .any(|offer| offer.to_ascii_lowercase().contains("basic"))
    }

    pub(super) fn header(&self, name: &http::HeaderName) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }

    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }
}

/// What a refusal means.
pub(super) fn refusal(status: StatusCode, body: &[u8], redact: &Redact) -> BmcError {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let info = body.get("error").and_then(|error| error.get("@Message.ExtendedInfo"));
    let first = info.and_then(|info| info.as_array().map_or(Some(info), |all| all.first()));
    let id = first.and_then(|first| first.get("MessageId")).or_else(|| body.get("error")?.get("code"));
    let message_id = id.and_then(Value::as_str).and_then(|id| message_id(id, redact));
    let reason = match status {
        _ if let Some(reason) = message_id.as_deref().and_then(meaning) => reason,
        StatusCode::UNAUTHORIZED => Reason::Unauthorized,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Reason::Busy,
        status if status.is_redirection() => Reason::Malformed,
        _ => Reason::Refused,
    };
    BmcError { reason, status: Some(status.as_u16()), message_id }
}

/// A `MessageId` that can be told: short, of letters, digits and dots, and no password.
pub(super) fn message_id(id: &str, redact: &Redact) -> Option<String> {
    let is_word = (1..=MAX_MESSAGE_ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.');
    (is_word && !redact.is_in(id)).then(|| id.to_owned())
}

fn meaning(id: &str) -> Option<Reason> {
    let last = id.rsplit('.').next()?;
    MESSAGES.iter().find(|(message, _)| *message == last).map(|(_, reason)| *reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use shared::secret::Secret;

    fn refused(status: u16, body: &Value) -> BmcError {
        let redact = Redact::new(Secret::new("hunter2".to_owned()));
        refusal(StatusCode::from_u16(status).unwrap(), body.to_string().as_bytes(), &redact)
    }

    fn with(id: &str) -> Value {
        json!({"error": {"code": "Base.1.8.GeneralError", "@Message.ExtendedInfo": [
            {"MessageId": id, "MessageArgs": ["hunter2"], "Message": "hunter2"},
        ]}})
    }

    #[test]
    fn of_a_refusal_only_status_and_message_id_are_kept() {
        let error = refused(400, &with("Base.1.8.PropertyValueError"));
        assert_eq!(error.message_id.as_deref(), Some("Base.1.8.PropertyValueError"));
        assert!(!format!("{error:?}{error}").contains("hunter2"));
        for odd in ["the password hunter2", "Base.hunter2.X", "", &"a".repeat(129)] {
            assert_eq!(refused(400, &with(odd)).message_id, None, "{odd}");
        }
    }

    #[test]
    fn a_refusal_means_what_its_message_says_or_its_status() {
        let change =
            json!({"error": {"@Message.ExtendedInfo": {"MessageId": "Base.1.8.PasswordChangeRequired"}}});
        assert_eq!(refused(403, &change).reason, Reason::PasswordChangeRequired);
        for (message, reason) in MESSAGES {
            assert_eq!(refused(400, &with(&format!("Base.1.19.{message}"))).reason, *reason, "{message}");
        }
        for (status, reason) in [
            (401, Reason::Unauthorized),
            (503, Reason::Busy),
            (429, Reason::Busy),
            (302, Reason::Malformed),
            (404, Reason::Refused),
            (500, Reason::Refused),
        ] {
            assert_eq!(refused(status, &Value::Null).reason, reason, "{status}");
        }
    }
}
