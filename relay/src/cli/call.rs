//! One call of a method over HTTPS: bounded in time and size, redirected nowhere, its refusal read as a problem.

use super::target::Target;
use crate::{
    config::RelayUrl,
    trusting::{TrustError, trusting},
};
use reqwest::{Client, Response, header, redirect};
use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use shared::{problem::Problem, secret::Secret};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a whole call may take.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer, in bytes: a page of 200 of the largest things, and room.
const MAX_ANSWER_BYTES: usize = 32 << 20;

/// A relay that can be asked.
#[derive(Clone)]
pub(super) struct Relay {
    client: Client,
    base: String,
    authorization: Option<Secret>,
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// The relay refused.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The CA file holds no certificate.
    #[error("trust the relay: the CA file must hold PEM certificates")]
    Ca,
    /// The client could not be made.
    #[error("set up the connection: {0}")]
    SetUp(String),
    /// The relay's certificate is not trusted.
    #[error(
        "trust the relay at {relay}: {why}; give its CA by --ca-file: the file trust-bundle.pem of its data directory, \
         fetched from there, not from this address"
    )]
    Untrusted {
        /// Its address.
        relay: String,
        /// Why.
        why: String,
    },
    /// The relay can't be reached, or stopped answering.
    #[error("reach the relay at {relay}: {why}; does it run there, and is the address right?")]
    Transport {
        /// Its address.
        relay: String,
        /// Why.
        why: String,
    },
    /// Something else than a relay answered.
    #[error("understand {relay}: {why}; is it a relay of this version?")]
    Answer {
        /// Its address.
        relay: String,
        /// What is odd.
        why: String,
    },
}

impl From<TrustError> for CallError {
    fn from(error: TrustError) -> Self {
        match error {
            TrustError::NoCertificates => Self::Ca,
            TrustError::SetUp(why) => Self::SetUp(why),
        }
    }
}

impl Relay {
    /// Gets ready to ask; connects at the first call.
    ///
    /// # Errors
    /// The CA file holds no certificate, or the system's CAs can't be read.
    pub(super) fn new(target: &Target) -> Result<Self, CallError> {
        let anonymous = Self::anonymous(&target.url, target.ca_pem.as_deref())?;
        Ok(anonymous.with_token(&target.token))
    }

    /// As [`Relay::new`], without a credential.
    ///
    /// # Errors
    /// As there.
    pub(super) fn anonymous(url: &RelayUrl, ca_pem: Option<&str>) -> Result<Self, CallError> {
        let set_up = |error: &dyn std::fmt::Display| CallError::SetUp(error.to_string());
        let mut builder = Client::builder()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            .redirect(redirect::Policy::none())
            .no_proxy()
            .https_only(true)
            .user_agent(concat!("relay-cli/", env!("CARGO_PKG_VERSION")));
        builder = match ca_pem {
            Some(pem) => builder.tls_backend_preconfigured(trusting(pem.as_bytes())?),
            None => {
                // reqwest asks the process for its provider when it verifies by the system's CAs. An earlier one is
                // the same one.
                let _ = aws_lc_rs::default_provider().install_default();
                builder.tls_backend_rustls()
            }
        };
        Ok(Self {
            client: builder.build().map_err(|error| set_up(&error))?,
            base: url.to_string(),
            authorization: None,
        })
    }

    /// The same relay, asked with this credential.
    #[must_use]
    pub(super) fn with_token(mut self, token: &Secret) -> Self {
        self.authorization = Some(Secret::new(format!("Bearer {}", token.expose())));
        self
    }

    /// Calls the method at `path`.
    ///
    /// # Errors
    /// The relay refused, or there is no answer that can be understood.
    pub(super) async fn call(&self, path: &str, input: &Value) -> Result<Value, CallError> {
        let mut request = self
            .client
            .post(format!("{}{path}", self.base))
            .header(header::CONTENT_TYPE, "application/json")
            .body(input.to_string());
        if let Some(authorization) = &self.authorization {
            let mut bearer = header::HeaderValue::from_str(authorization.expose())
                .map_err(|error| CallError::SetUp(error.to_string()))?;
            bearer.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, bearer);
        }
        let response = request.send().await.map_err(|error| self.transport(&error))?;
        let (status, problem) = (response.status(), is_problem(&response));
        let body = self.bounded(response).await?;
        let odd = |why: String| CallError::Answer { relay: self.base.clone(), why };
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|_| odd("the answer is no JSON".to_owned()));
        }
        let read = if problem { Problem::read(status.as_u16(), &body) } else { None };
        Err(read.map_or_else(
            || odd(format!("it answered {status} without a problem")),
            |problem| CallError::Problem(Box::new(problem)),
        ))
    }

    async fn bounded(&self, mut response: Response) -> Result<Zeroizing<Vec<u8>>, CallError> {
        // It may hold a secret that is shown this once.
        let mut body = Zeroizing::new(Vec::new());
        while let Some(chunk) = response.chunk().await.map_err(|error| self.transport(&error))? {
            if body.len() + chunk.len() > MAX_ANSWER_BYTES {
                let why = format!("the answer is over {MAX_ANSWER_BYTES} bytes");
                return Err(CallError::Answer { relay: self.base.clone(), why });
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn transport(&self, error: &reqwest::Error) -> CallError {
        let relay = self.base.clone();
        let why = innermost(error);
        let untrusted = sources(error).any(|source| {
            source
                .downcast_ref::<rustls::Error>()
                .is_some_and(|error| matches!(error, rustls::Error::InvalidCertificate(_)))
                || source.to_string().starts_with("invalid peer certificate")
        });
        if untrusted { CallError::Untrusted { relay, why } } else { CallError::Transport { relay, why } }
    }
}

fn is_problem(response: &Response) -> bool {
    let media_type = response.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    media_type.is_some_and(|text| {
        text.split(';').next().is_some_and(|kind| kind.trim() == "application/problem+json")
    })
}

/// The error and what it came from.
fn sources<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// What it came from in the end: the part that a person can use.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    sources(error).last().map(ToString::to_string).unwrap_or_default()
}
