//! A session of a Redfish service. It takes one of the few places that a service has, so it is ended on every path: by
//! [`Session::end`], and where nobody comes to that, as when a step has taken too long, when it is dropped.

use super::{
    super::error::{BmcError, Reason},
    http::{Line, TOKEN},
    path::Path,
};
use crate::metal::facts::Credentials;
use http::{HeaderValue, Method, header::LOCATION};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::{runtime::Handle, time::timeout};

/// How long ending it may take.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// A session that was begun.
pub(super) struct Session {
    token: HeaderValue,
    /// The request that ends it, until that was made.
    end: Option<RequestBuilder>,
}

impl Session {
    /// Begins one, with what lets us in.
    ///
    /// # Errors
    /// [`BmcError`]; [`Reason::PasswordChangeRequired`] where the service lets nobody do anything else.
    pub(super) async fn begin(
        line: &Line,
        sessions: &Path,
        credentials: &Credentials,
    ) -> Result<Self, BmcError> {
        let body = json!({"UserName": credentials.username, "Password": credentials.password.expose()});
        let answer = line.exchange(Method::POST, sessions, Some(&body), None).await?;
        answer.accepted(&line.redact)?;
        let mut token: HeaderValue = answer.headers.get(TOKEN).cloned().ok_or(Reason::Malformed)?;
        token.set_sensitive(true);
        let said = answer.json().unwrap_or_default();
        let place = answer.header(&LOCATION).and_then(|text| Path::located(text, &line.base));
        let place = place.or_else(|| Path::linked(Some(&said)));
        let end = match place {
            Some(place) => Some(line.request(Method::DELETE, &place)?.header(TOKEN, token.clone())),
            None => None,
        };
        let session = Self { token, end };
        if wants_password(&said) {
            session.end().await;
            return Err(Reason::PasswordChangeRequired.into());
        }
        Ok(session)
    }

    pub(super) fn token(&self) -> HeaderValue {
        self.token.clone()
    }

    /// Ends it. A service that does not hear of that ends it by itself in time.
    pub(super) async fn end(mut self) {
        if let Some(end) = self.end.take() {
            sent(end).await;
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let (Some(end), Ok(runtime)) = (self.end.take(), Handle::try_current()) {
            drop(runtime.spawn(sent(end)));
        }
    }
}

async fn sent(end: RequestBuilder) {
    drop(timeout(END_TIMEOUT, end.send()).await);
}

/// Whether a service that let us in says that the password must be changed first.
fn wants_password(said: &Value) -> bool {
    let info = said.get("@Message.ExtendedInfo").and_then(Value::as_array);
    let ids = info.into_iter().flatten().filter_map(|info| info.get("MessageId")?.as_str());
    ids.into_iter().any(|id| id.ends_with(".PasswordChangeRequired"))
}
