//! Exchanges with a Redfish service: bounded in size and time, to paths of its own alone. Nobody's credential is in one before the
//! service's certificate holds, nor in what is read by nobody in particular.

use super::{
    super::{
        address::Networks,
        error::{BmcError, Reason},
        quirks::Quirks,
        redact::Redact,
        tls::{self, Seen},
    },
    answer::{Answer, Document},
    path::Path,
    session::Session,
};
use crate::{
    metal::facts::{Credentials, Reach},
    outside::{self, Unreached, client::builder},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{ACCEPT, AUTHORIZATION, CONNECTION, CONTENT_TYPE, IF_MATCH},
};
use reqwest::{Client, RequestBuilder, Url};
use serde_json::Value;
use shared::secret::Secret;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a whole exchange may take.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(60);
/// Where Redfish is served unless an address names a port.
const PORT: u16 = 443;
/// What a session is shown by (DSP0266).
pub(super) const TOKEN: HeaderName = HeaderName::from_static("x-auth-token");

/// What lets us in.
enum Pass {
    /// Nothing.
    Nobody,
    /// The credentials, in each request.
    Basic(HeaderValue),
    /// A session of the service.
    Session(Box<Session>),
}

/// The way to one service.
pub(super) struct Line {
    client: Client,
    pub(super) base: Url,
    pass: Pass,
    pub(super) redact: Redact,
    pub(super) quirks: Quirks,
    pub(super) seen: Seen,
}

impl Line {
    /// Judges the address and gets ready; connects at the first exchange.
    pub(super) async fn to(reach: &Reach, networks: &Networks) -> Result<Self, BmcError> {
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
        let redact = Redact::new(Secret::new(String::new()));
        Ok(Self { client, base, pass: Pass::Nobody, redact, quirks: Quirks::of(&[]), seen })
    }

    /// Lets us in, and reads what only those who are let in may.
    ///
    /// By Basic, which leaves nothing behind at the service. Where that is not offered, by a session: credentials that are wrong are
    /// tried once, since services lock out who tries too often.
    ///
    /// # Errors
    /// [`BmcError`].
    pub(super) async fn log_in(
        &mut self,
        credentials: &Credentials,
        sessions: Option<Path>,
        first: &Path,
    ) -> Result<Document, BmcError> {
        self.redact = Redact::new(credentials.password.clone());
        self.pass = Pass::Basic(basic(credentials)?);
        let answer = self.exchange(Method::GET, first, None, None).await?;
        match sessions {
            Some(sessions) if answer.status == StatusCode::UNAUTHORIZED && !answer.offers_basic() => {
                self.pass = Pass::Nobody;
                self.pass = Pass::Session(Box::new(Session::begin(self, &sessions, credentials).await?));
                self.get(first).await
            }
            _ => answer.document(first, &self.redact),
        }
    }

    /// Ends the session, if there is one.
    pub(super) async fn log_out(&mut self) {
        if let Pass::Session(session) = std::mem::replace(&mut self.pass, Pass::Nobody) {
            session.end().await;
        }
    }

    /// What is at a path.
    pub(super) async fn get(&self, path: &Path) -> Result<Document, BmcError> {
        let answer = self.exchange(Method::GET, path, None, None).await?;
        answer.document(path, &self.redact).map_err(|error| self.meant(error))
    }

    /// What is at a path, if it is there now: a member may be away while its host is off, and its service busy with it.
    pub(super) async fn get_if_there(&self, path: &Path) -> Result<Option<Document>, BmcError> {
        match self.get(path).await {
            Ok(document) => Ok(Some(document)),
            Err(error) if matches!(error.status, Some(404 | 410 | 500..=599)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Runs an action; the monitor of its task, where the service goes on with it by itself.
    pub(super) async fn post(&self, path: &Path, body: &Value) -> Result<Option<Path>, BmcError> {
        let answer = self.exchange(Method::POST, path, Some(body), None).await?;
        self.taken(&answer)
    }

    /// Changes what was read. One that was changed meanwhile is read again, and changed all the same: what is written does not
    /// depend on what was there.
    pub(super) async fn patch(&self, of: &Document, body: &Value) -> Result<Option<Path>, BmcError> {
        match self.patch_as_read(of, body).await {
            Err(error) if error.status == Some(412) => match self.get(&of.path).await {
                Ok(now) if now.etag != of.etag => self.patch_as_read(&now, body).await,
                _ => Err(error),
            },
            patched => patched,
        }
    }

    /// Services want an ETag in several ways: as they gave it, without the mark of a weak one, none, or any.
    async fn patch_as_read(&self, of: &Document, body: &Value) -> Result<Option<Path>, BmcError> {
        let given = of.etag.clone();
        let strong = given.as_deref().and_then(|etag| etag.strip_prefix("W/")).map(str::to_owned);
        let mut ladder = vec![given.filter(|etag| !etag.trim_matches('"').is_empty()), strong, None];
        ladder.push(Some("*".to_owned()));
        ladder.dedup();
        let mut last = BmcError::from(Reason::Refused);
        for etag in ladder {
            let answer = self.exchange(Method::PATCH, &of.path, Some(body), etag.as_deref()).await?;
            match self.taken(&answer) {
                // Of the two, that it has none or another one, the latter can be helped.
                Err(error) if error.status == Some(428) && last.status == Some(412) => {}
                Err(error) if matches!(error.status, Some(412 | 428)) => last = error,
                taken => return taken,
            }
        }
        Err(last)
    }

    fn taken(&self, answer: &Answer) -> Result<Option<Path>, BmcError> {
        answer.accepted(&self.redact).map_err(|error| self.meant(error))?;
        Ok(answer.task(&self.base))
    }

    /// Who had been let in by a session and is not any more has lost it: the service has started anew, and nothing is said of the
    /// credentials.
    fn meant(&self, error: BmcError) -> BmcError {
        match self.pass {
            Pass::Session(_) if error.reason == Reason::Unauthorized => {
                BmcError { reason: Reason::Busy, ..error }
            }
            _ => error,
        }
    }

    pub(super) async fn exchange(
        &self,
        method: Method,
        path: &Path,
        body: Option<&Value>,
        etag: Option<&str>,
    ) -> Result<Answer, BmcError> {
        let mut request = self.request(method, path)?;
        request = match &self.pass {
            Pass::Basic(value) if *path != Path::root() => request.header(AUTHORIZATION, value.clone()),
            Pass::Session(session) if *path != Path::root() => request.header(TOKEN, session.token()),
            _ => request,
        };
        if let Some(body) = body {
            // It may carry a password: the only copies are the client's own.
            let text = Zeroizing::new(body.to_string());
            request = request.header(CONTENT_TYPE, "application/json").body(text.as_bytes().to_vec());
        }
        if let Some(etag) = etag.and_then(|etag| HeaderValue::from_str(etag).ok()) {
            request = request.header(IF_MATCH, etag);
        }
        Answer::read(request.send().await.map_err(|error| self.unreached(&error))?).await
    }

    /// A request that lets nobody in.
    pub(super) fn request(&self, method: Method, path: &Path) -> Result<RequestBuilder, BmcError> {
        let url = self.base.join(path.as_str()).map_err(|_| Reason::Malformed)?;
        let request = self.client.request(method, url).header(ACCEPT, "application/json");
        let request = request.header("OData-Version", "4.0");
        Ok(if self.quirks.closes { request.header(CONNECTION, "close") } else { request })
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
