//! One exchange with a Redfish service: bounded in size and time, to paths of its own alone, and read as JSON.

use super::super::{
    address::Networks,
    error::{BmcError, Reason},
    tls::{self, Seen},
};
use crate::{
    metal::facts::{Credentials, Reach},
    outside::{self, Unreached, client::builder},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, ETAG, IF_MATCH},
};
use reqwest::{Client, Response, Url};
use serde_json::Value;
use std::{fmt, time::Duration};
use zeroize::Zeroizing;

/// The longest answer that is read, in bytes (4 MiB).
const MAX_BODY_BYTES: usize = 4 << 20;
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a whole exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Where Redfish is served unless an address names a port.
const PORT: u16 = 443;
/// The longest path that is followed, in bytes.
const MAX_PATH_BYTES: usize = 512;
/// The longest `MessageId` that is told, in bytes.
const MAX_MESSAGE_ID_BYTES: usize = 128;

/// A path below `/redfish/`: what a BMC's answer may lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Path(String);

impl Path {
    /// `/redfish/v1`, the service root.
    pub(super) fn root() -> Self {
        Self("/redfish/v1/".to_owned())
    }

    /// The path that an answer names: no other host, nothing that climbs, no query.
    pub(super) fn of(text: &str) -> Option<Self> {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"/._~:@!$&'()*+,;=-".contains(&byte);
        let fits = text.len() <= MAX_PATH_BYTES && text.bytes().all(inner);
        let climbs = text.split('/').any(|part| part == "..") || text.contains("//");
        (text.starts_with("/redfish/") && fits && !climbs).then(|| Self(text.to_owned()))
    }

    /// The path of a link, `{"@odata.id": …}`.
    pub(super) fn linked(value: Option<&Value>) -> Option<Self> {
        Self::of(value?.get("@odata.id")?.as_str()?)
    }

    /// The paths of a list of links, as many as `most`.
    pub(super) fn list(value: Option<&Value>, most: usize) -> Vec<Self> {
        let links = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        links.iter().take(most).filter_map(|link| Self::linked(Some(link))).collect()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// What was read at a path.
#[derive(Clone, Debug)]
pub(super) struct Document {
    pub(super) path: Path,
    pub(super) etag: Option<String>,
    pub(super) body: Value,
}

/// The way to one service.
pub(super) struct Line {
    client: Client,
    base: Url,
    authorization: Option<HeaderValue>,
    pub(super) seen: Seen,
}

impl Line {
    /// Judges the address and gets ready; connects at the first exchange.
    pub(super) async fn to(
        reach: &Reach,
        credentials: Option<&Credentials>,
        networks: &Networks,
    ) -> Result<Self, BmcError> {
        let (location, addresses) = networks.judged(&reach.address, PORT).await?;
        let seen = Seen::default();
        let tls = tls::config(&reach.tls, &seen).ok_or(Reason::TlsUnsaid)?;
        let client = builder(Some(tls))
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(EXCHANGE_TIMEOUT)
            .dns_resolver(outside::judged(addresses.clone()))
            .build()
            .map_err(|_| Reason::Unreachable)?;
        let port = addresses.first().map_or(PORT, std::net::SocketAddr::port);
        let base =
            Url::parse(&format!("https://{}:{port}/", location.host)).map_err(|_| Reason::AddressRefused)?;
        Ok(Self { client, base, authorization: credentials.map(basic).transpose()?, seen })
    }

    /// What is at a path; the service root is read by nobody in particular.
    pub(super) async fn get(&self, path: &Path) -> Result<Document, BmcError> {
        let answer = self.exchange(Method::GET, path, None, None).await?;
        let (status, etag) = (answer.status(), text_of(answer.headers().get(ETAG)));
        let body = read(answer).await?;
        if !status.is_success() {
            return Err(refusal(status, &body));
        }
        let body: Value = serde_json::from_slice(&body).map_err(|_| Reason::Malformed)?;
        if !body.is_object() {
            return Err(Reason::Malformed.into());
        }
        let etag = etag.or_else(|| body.get("@odata.etag").and_then(Value::as_str).map(str::to_owned));
        Ok(Document { path: path.clone(), etag, body })
    }

    /// Runs an action.
    pub(super) async fn post(&self, path: &Path, body: &Value) -> Result<(), BmcError> {
        let answer = self.exchange(Method::POST, path, Some(body), None).await?;
        settled(answer).await
    }

    /// Changes what was read. Services want an ETag in several ways: as they gave it, without the mark of a weak one, none, or any.
    pub(super) async fn patch(&self, of: &Document, body: &Value) -> Result<(), BmcError> {
        let given = of.etag.clone();
        let strong = given.as_deref().and_then(|etag| etag.strip_prefix("W/")).map(str::to_owned);
        let mut ladder = vec![given.filter(|etag| !etag.is_empty()), strong, None, Some("*".to_owned())];
        ladder.dedup();
        let mut last = BmcError::from(Reason::Refused);
        for etag in ladder {
            let answer = self.exchange(Method::PATCH, &of.path, Some(body), etag.as_deref()).await?;
            match settled(answer).await {
                Err(error) if matches!(error.status, Some(412 | 428)) => last = error,
                settled => return settled,
            }
        }
        Err(last)
    }

    async fn exchange(
        &self,
        method: Method,
        path: &Path,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Response, BmcError> {
        let url = self.base.join(&path.0).map_err(|_| Reason::Malformed)?;
        let mut request = self.client.request(method, url).header(ACCEPT, "application/json");
        // Some services keep connections that they answer nothing on any more.
        request = request.header(CONNECTION, "close").header("OData-Version", "4.0");
        if let Some(authorization) = self.authorization.as_ref().filter(|_| *path != Path::root()) {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(body) = body {
            request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        }
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request = request.header(IF_MATCH, etag);
        }
        request.send().await.map_err(|error| self.unreached(&error))
    }

    fn unreached(&self, error: &reqwest::Error) -> BmcError {
        match outside::unreached(error) {
            Unreached::Timeout => Reason::Timeout,
            Unreached::Tls if self.seen.is_refused() => Reason::PinChanged,
            Unreached::Tls => Reason::Tls,
            _ => Reason::Unreachable,
        }
        .into()
    }
}

fn basic(credentials: &Credentials) -> Result<HeaderValue, BmcError> {
    let pair = Zeroizing::new(format!("{}:{}", credentials.username, credentials.password.expose()));
    let text = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut value = HeaderValue::from_str(&text).map_err(|_| Reason::CredentialsMissing)?;
    value.set_sensitive(true);
    Ok(value)
}

fn text_of(value: Option<&HeaderValue>) -> Option<String> {
    value.and_then(|value| value.to_str().ok()).map(str::to_owned)
}

async fn settled(answer: Response) -> Result<(), BmcError> {
    let status = answer.status();
    let body = read(answer).await?;
    if status.is_success() { Ok(()) } else { Err(refusal(status, &body)) }
}

async fn read(mut answer: Response) -> Result<Vec<u8>, BmcError> {
    let mut body = Vec::new();
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() > MAX_BODY_BYTES => {
                return Err(Reason::TooLarge.into());
            }
            Ok(Some(chunk)) => body.extend_from_slice(&chunk),
            Ok(None) => return Ok(body),
            Err(error) if error.is_timeout() => return Err(Reason::Timeout.into()),
            Err(_) => return Err(Reason::Unreachable.into()),
        }
    }
}

/// What a refusal means. Of its words only the `MessageId` is kept: arguments echo what was sent.
fn refusal(status: StatusCode, body: &[u8]) -> BmcError {
    let body: Value = serde_json::from_slice(body).unwrap_or_default();
    let info = body.get("error").and_then(|error| error.get("@Message.ExtendedInfo"));
    let first = info.and_then(|info| info.as_array().map_or(Some(info), |all| all.first()));
    let id = first.and_then(|first| first.get("MessageId")).or_else(|| body.get("error")?.get("code"));
    let is_word = |id: &&str| {
        id.len() <= MAX_MESSAGE_ID_BYTES
            && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'.')
    };
    let message_id = id.and_then(Value::as_str).filter(is_word).map(str::to_owned);
    let reason = match status {
        _ if message_id.as_deref().is_some_and(|id| id.ends_with(".PasswordChangeRequired")) => {
            Reason::PasswordChangeRequired
        }
        StatusCode::UNAUTHORIZED => Reason::Unauthorized,
        StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS => Reason::Busy,
        status if status.is_redirection() => Reason::Malformed,
        _ => Reason::Refused,
    };
    BmcError { reason, status: Some(status.as_u16()), message_id }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_path_leads_nowhere_but_below_redfish() {
        for good in
            ["/redfish/v1/", "/redfish/v1/Systems/437XR1138R2", "/redfish/v1/Managers/1/VirtualMedia/CD1"]
        {
            assert_eq!(Path::of(good).map(|it| it.0).as_deref(), Some(good));
        }
        let long = format!("/redfish/{}", "a".repeat(MAX_PATH_BYTES));
        for bad in [
            "",
            "/",
            "/redfish",
            "//evil.example/redfish/",
            "https://evil.example/redfish/v1",
            "/redfish/../etc",
            "/redfish//evil.example",
            "/redfish/v1?x=y",
            "/redfish/v1#x",
            "/redfish/v1/%2e%2e/x",
            "/redfish/v1/a b",
            "/redfish/v1/\\evil",
            &long,
        ] {
            assert_eq!(Path::of(bad), None, "{bad}");
        }
        assert_eq!(Path::linked(Some(&json!({"@odata.id": 1}))), None);
        assert_eq!(
            Path::list(Some(&json!([{"@odata.id": "/redfish/a"}, {}, 1, {"@odata.id": "/redfish/b"}])), 3)
                .len(),
            1
        );
    }

    #[test]
    fn of_a_refusal_only_status_and_message_id_are_kept() {
        let refused = |status: u16, body: Value| {
            refusal(StatusCode::from_u16(status).unwrap(), body.to_string().as_bytes())
        };
        let echo = json!({"error": {"code": "Base.1.8.GeneralError", "@Message.ExtendedInfo": [
            {"MessageId": "Base.1.8.PropertyValueError", "MessageArgs": ["hunter2"], "Message": "hunter2"},
        ]}});
        let error = refused(400, echo);
        assert_eq!(error.message_id.as_deref(), Some("Base.1.8.PropertyValueError"));
        assert!(!format!("{error:?}{error}").contains("hunter2"));
        let odd = json!({"error": {"@Message.ExtendedInfo": [{"MessageId": "the password hunter2"}]}});
        assert_eq!(refused(400, odd).message_id, None);
        let change =
            json!({"error": {"@Message.ExtendedInfo": {"MessageId": "Base.1.8.PasswordChangeRequired"}}});
        assert_eq!(refused(403, change).reason, Reason::PasswordChangeRequired);
        for (status, reason) in [
            (401, Reason::Unauthorized),
            (503, Reason::Busy),
            (302, Reason::Malformed),
            (404, Reason::Refused),
            (500, Reason::Refused),
        ] {
            assert_eq!(refused(status, Value::Null).reason, reason, "{status}");
        }
    }
}
