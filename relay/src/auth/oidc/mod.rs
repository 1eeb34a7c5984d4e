//! The identity provider: its discovery document and keys, the address that a browser is sent to, and the exchange of a
//! code for the person that it vouches for.
//!
//! Everything that a provider says is hostile until its token's signature and claims are judged (`id_token`): bounded in
//! size and time, over https, redirected nowhere. Its documents are kept for an hour; its keys are read again once for a
//! token that names an unknown one, a minute after the last time at the earliest. Nothing of a token, a code or the
//! client's secret is ever in a log or an error.

mod device;
mod document;
mod fetch;
pub mod id_token;

pub use device::{Confirmed, MAX_INTERVAL_SECONDS, Polled};
pub use document::word;

use crate::{
    config::Oidc,
    facts::Vouched,
    outside::client::builder,
    trusting::{TrustFileError, trusting_file},
};
use document::{Document, error_word, https, id_token_of};
use fetch::{Fetch, FetchError};
use id_token::{Expected, IdTokenError, Keys, Nonce};
use reqwest::Url;
use rustls::DEFAULT_VERSIONS;
use shared::{secret::Secret, time::Timestamp};
use std::{io, path::PathBuf, sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, Semaphore, SemaphorePermit},
    time::Instant,
};

/// How long a provider's documents are kept.
const KEPT: Duration = Duration::from_secs(3600);
/// How long after its keys were read again for an unknown one they are not read for another.
const REFETCH: Duration = Duration::from_secs(60);
/// How many logins may wait for the provider.
const PLACES: usize = 32;
/// The longest discovery document and token answer, in bytes.
const MAX_DOCUMENT_BYTES: usize = 64 << 10;
/// Where a code is exchanged for a token, as errors call it.
const TOKEN_ENDPOINT: &str = "token endpoint";
/// The longest JWK Set, in bytes.
const MAX_KEYS_BYTES: usize = 256 << 10;
/// The longest file of a secret, in bytes.
const MAX_SECRET_BYTES: u64 = 4096;

/// Why the provider did not vouch for anybody. No variant holds a secret, a code or a token.
#[derive(Debug, thiserror::Error)]
pub enum OidcError {
    /// The connection can't be set up.
    #[error("set up the connection to the identity provider: {0}")]
    SetUp(String),
    /// A file can't be used.
    #[error("read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// No answer that can be used came.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// A document is not what it must be.
    #[error("read the identity provider's {what}: {rule}")]
    Document {
        /// Which.
        what: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// It failed for another login while this one waited for the same.
    #[error("the identity provider's documents could not be read")]
    Failed,
    /// Too many logins wait.
    #[error("too many logins wait for the identity provider")]
    Busy,
    /// The provider refused the code.
    #[error("the identity provider refused: {0}")]
    Refused(String),
    /// The ID token does not count.
    #[error("the identity provider's ID token does not count: {0}")]
    IdToken(#[from] IdTokenError),
}

impl OidcError {
    /// Whether it may pass by itself.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Fetch(_) | Self::Failed | Self::Busy)
    }
}

/// The provider of the settings.
pub struct Provider {
    settings: Oidc,
    fetch: Fetch,
    known: Mutex<Known>,
    places: Semaphore,
}

#[derive(Default)]
struct Known {
    discovered: Option<(Instant, Arc<Discovered>)>,
    refetched: Option<Instant>,
    failed: Option<Instant>,
}

/// What the provider says of itself.
struct Discovered {
    authorization: Url,
    token: Url,
    end_session: Option<Url>,
    /// Where a login on another device begins, if it offers that.
    device: Option<Url>,
    /// Whether the relay's secret goes into the form; else into the header.
    secret_in_form: bool,
    /// Whether its answers name it (RFC 9207).
    names_itself: bool,
    keys: Keys,
}

/// What a browser takes to the provider.
pub struct Asked<'a> {
    /// Comes back with the answer.
    pub state: &'a str,
    /// Comes back in the ID token.
    pub nonce: &'a str,
    /// S256 of what the relay alone knows.
    pub challenge: &'a str,
    /// Where the answer goes: the relay's own.
    pub redirect_uri: &'a str,
}

/// What a browser brought back.
pub struct Brought<'a> {
    /// The code.
    pub code: &'a str,
    /// The issuer, where it says so (RFC 9207).
    pub issuer: Option<&'a str>,
    /// What the challenge is S256 of.
    pub verifier: &'a str,
    /// As it was asked.
    pub redirect_uri: &'a str,
    /// As it was asked.
    pub nonce: &'a str,
    /// When the login began.
    pub begun_at: Timestamp,
    /// The time.
    pub now: Timestamp,
}

impl Provider {
    /// Gets ready; nothing is asked yet.
    ///
    /// # Errors
    /// A file can't be used, or TLS can't be set up.
    pub fn new(settings: Oidc) -> Result<Self, OidcError> {
        let trusted = settings.ca_file.as_deref().map(|path| trusting_file(path, DEFAULT_VERSIONS));
        let tls = trusted.transpose().map_err(|error| match error {
            TrustFileError::Read { path, source } => OidcError::File { path, source },
            TrustFileError::Trust(error) => OidcError::SetUp(error.to_string()),
        })?;
        let client = builder(tls).build().map_err(|error| OidcError::SetUp(error.to_string()))?;
        let fetch = Fetch::new(client);
        let this = Self { settings, fetch, known: Mutex::default(), places: Semaphore::new(PLACES) };
        this.client_secret()?;
        Ok(this)
    }

    /// The address to send a browser to.
    ///
    /// # Errors
    /// The provider does not say where it is.
    pub async fn authorization(&self, asked: &Asked<'_>) -> Result<String, OidcError> {
        let _place = self.enter()?;
        let mut url = self.discovered().await?.authorization.clone();
        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &self.settings.client_id),
            ("redirect_uri", asked.redirect_uri),
            ("scope", &self.settings.scopes),
            ("state", asked.state),
            ("nonce", asked.nonce),
            ("code_challenge", asked.challenge),
            ("code_challenge_method", "S256"),
        ]);
        Ok(url.into())
    }

    /// Whom the provider vouches for.
    ///
    /// # Errors
    /// It vouches for nobody.
    pub async fn identify(&self, brought: &Brought<'_>) -> Result<Vouched, OidcError> {
        let _place = self.enter()?;
        let discovered = self.discovered().await?;
        let named = brought.issuer.map_or(!discovered.names_itself, |issuer| issuer == self.settings.issuer);
        if !named {
            return Err(IdTokenError::Issuer.into());
        }
        let token = self.exchange(&discovered, brought).await?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: Nonce::Always(brought.nonce),
            begun_at: brought.begun_at,
            now: brought.now,
            key: self.settings.key,
        };
        self.judged(&token, &discovered, &expected).await
    }

    /// Where a browser ends its session with the provider, if it offers that.
    ///
    /// # Errors
    /// The provider does not say where it is.
    pub async fn end_session(&self) -> Result<Option<String>, OidcError> {
        let _place = self.enter()?;
        Ok(self.discovered().await?.end_session.clone().map(|mut url| {
            url.query_pairs_mut().append_pair("client_id", &self.settings.client_id);
            url.into()
        }))
    }

    fn enter(&self) -> Result<SemaphorePermit<'_>, OidcError> {
        self.places.try_acquire().map_err(|_| OidcError::Busy)
    }

    /// Whom an ID token vouches for; the provider's keys are read again for one that names an unknown one.
    async fn judged(
        &self,
        token: &Secret,
        known: &Discovered,
        expected: &Expected<'_>,
    ) -> Result<Vouched, OidcError> {
        match id_token::judge(token.expose(), &known.keys, expected) {
            Err(IdTokenError::UnknownKey) => {
                let newer = self.refetched().await?;
                Ok(id_token::judge(token.expose(), &newer.keys, expected)?)
            }
            judged => Ok(judged?),
        }
    }

    /// The ID token for a code.
    async fn exchange(&self, at: &Discovered, brought: &Brought<'_>) -> Result<Secret, OidcError> {
        let form = vec![
            ("grant_type", "authorization_code"),
            ("code", brought.code),
            ("redirect_uri", brought.redirect_uri),
            ("code_verifier", brought.verifier),
        ];
        let answer = self.post_as_client(TOKEN_ENDPOINT, at, &at.token, form).await?;
        id_token_of(&answer.map_err(|error| OidcError::Refused(error_word(&error)))?)
    }

    /// The answer to a form that this relay proves to be its own, or to a refusal its body.
    async fn post_as_client(
        &self,
        what: &'static str,
        at: &Discovered,
        url: &Url,
        mut form: Vec<(&str, &str)>,
    ) -> Result<Result<fetch::Bytes, fetch::Bytes>, OidcError> {
        let client_id = self.settings.client_id.as_str();
        let secret = self.client_secret()?;
        let mut basic = None;
        match &secret {
            Some(secret) if !at.secret_in_form => basic = Some((client_id, secret)),
            Some(secret) => form.extend([("client_id", client_id), ("client_secret", secret.expose())]),
            None => form.push(("client_id", client_id)),
        }
        Ok(self.fetch.post(what, url.clone(), &form, basic, MAX_DOCUMENT_BYTES).await?)
    }

    /// The provider's documents, read if none are kept.
    async fn discovered(&self) -> Result<Arc<Discovered>, OidcError> {
        let came = Instant::now();
        let mut known = self.known.lock().await;
        match &known.discovered {
            Some((at, discovered)) if at.elapsed() < KEPT => Ok(discovered.clone()),
            _ => self.discover_into(&mut known, came).await,
        }
    }

    /// The provider's documents read again, or those that there are where that was done a moment ago.
    async fn refetched(&self) -> Result<Arc<Discovered>, OidcError> {
        let came = Instant::now();
        let mut known = self.known.lock().await;
        match (&known.discovered, known.refetched) {
            (Some((_, discovered)), Some(at)) if at.elapsed() < REFETCH => Ok(discovered.clone()),
            _ => {
                known.refetched = Some(Instant::now());
                self.discover_into(&mut known, came).await
            }
        }
    }

    /// Reads the documents, for whoever `came` for them and found them missing. Those who waited meanwhile share what
    /// becomes of it: a provider that stalls is not waited for once by each, one after the other.
    async fn discover_into(&self, known: &mut Known, came: Instant) -> Result<Arc<Discovered>, OidcError> {
        if known.failed.is_some_and(|at| came <= at) {
            return Err(OidcError::Failed);
        }
        match self.discover().await {
            Ok(discovered) => {
                let fresh = Arc::new(discovered);
                known.discovered = Some((Instant::now(), fresh.clone()));
                Ok(fresh)
            }
            Err(error) => {
                known.failed = Some(Instant::now());
                Err(error)
            }
        }
    }

    async fn discover(&self) -> Result<Discovered, OidcError> {
        let what = "discovery document";
        let base = self.settings.issuer.trim_end_matches('/');
        let url = https(&format!("{base}/.well-known/openid-configuration"), what)?;
        let body = self.fetch.get(what, url, MAX_DOCUMENT_BYTES).await?;
        let document: Document = serde_json::from_slice(&body).map_err(|_| OidcError::Document {
            what,
            rule: "it must be the JSON of OpenID Connect Discovery 1.0",
        })?;
        if document.issuer != self.settings.issuer {
            return Err(OidcError::Document {
                what,
                rule: "it must name oidc.issuer, to the letter, as its issuer",
            });
        }
        let jwks = https(&document.jwks_uri, what)?;
        let keys = self.fetch.get("keys", jwks, MAX_KEYS_BYTES).await?;
        let methods = document.token_endpoint_auth_methods_supported.unwrap_or_default();
        let offers = |method: &str| methods.iter().any(|offered| offered == method);
        Ok(Discovered {
            authorization: https(&document.authorization_endpoint, what)?,
            token: https(&document.token_endpoint, what)?,
            device: document.device_authorization_endpoint.map(|url| https(&url, what)).transpose()?,
            end_session: document.end_session_endpoint.map(|url| https(&url, what)).transpose()?,
            secret_in_form: offers("client_secret_post") && !offers("client_secret_basic"),
            names_itself: document.authorization_response_iss_parameter_supported,
            keys: Keys::parse(&keys)
                .ok_or(OidcError::Document { what: "keys", rule: "they must be a JWK Set (RFC 7517)" })?,
        })
    }

    /// The relay's secret, as the file has it now.
    fn client_secret(&self) -> Result<Option<Secret>, OidcError> {
        let Some(path) = &self.settings.client_secret_file else { return Ok(None) };
        let failed = |source| OidcError::File { path: path.clone(), source };
        let text = fetch::small_file(path, MAX_SECRET_BYTES).map_err(failed)?;
        let line = text.expose().trim();
        if line.is_empty() || line.contains(char::is_control) {
            return Err(failed(io::Error::other("it must hold the client's secret in one line")));
        }
        Ok(Some(Secret::new(line.to_owned())))
    }
}
