//! Calls to the relay: HTTP/1.1 over TLS 1.3, one connection that is kept between heartbeats.
//!
//! The relay is judged ([`crate::trust`]) before anything of a request leaves. Every step has a time-out, every answer a
//! bound. It retries nothing but a kept connection that turned out to be closed.

mod tls;

use self::tls::{anchors, cause, connector};
pub(crate) use self::tls::{certificates, check_trust};
use crate::{
    config::{Endpoint, TrustSettings},
    host::{Host, RelayClock},
    key::{HandshakeKey, NodeKey},
    tpm::TpmError,
    trust::{Anchors, Policy, RelayVerifier, TrustError},
};
use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use serde::{Serialize, de::DeserializeOwned};
use shared::{
    api::{Op, node::SECRETS},
    problem::Problem,
    secret::Secret,
};
use std::{future::Future, io, path::PathBuf, sync::Arc, time::Duration};
use tokio::{net::TcpStream, runtime::Handle};
use tokio_rustls::{TlsConnector, client::TlsStream};

/// The first step of a call.
const CONNECTING: &str = "connecting to";
/// How long each step may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(15);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// The most bytes of an answer; that of the secrets has up to 100 of 16 KiB, escaped.
const MAX_ANSWER_BYTES: usize = 256 * 1024;
const MAX_SECRETS_BYTES: usize = 10 * 1024 * 1024;

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// No relay in the settings.
    #[error("which relay? set relay = \"https://HOST:PORT\" in /etc/bcd/bcd.toml, or give --relay")]
    NoRelay,
    /// Nothing to recognise it by.
    #[error(
        "bcd talks to no relay that it cannot recognise: set ca_pins = [\"sha256:…\"] (see `relay ca pin`), ca_file or system_roots \
         in /etc/bcd/bcd.toml, or give --ca-pin, --ca-file or --system-roots"
    )]
    NoTrust,
    /// The file of CA certificates is no help.
    #[error(
        "the CA certificates in {0} cannot be used: {1}; name the relay's trust-bundle.pem by ca_file in /etc/bcd/bcd.toml, or --ca-file"
    )]
    CaFile(PathBuf, String),
    /// The other end is not our relay.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The TLS settings contradict each other; a mistake of ours.
    #[error("TLS cannot be set up: {0}")]
    Tls(#[from] rustls::Error),
    /// The node's key did not sign the handshake.
    #[error(transparent)]
    Tpm(#[from] TpmError),
    /// No connection.
    #[error("{step} {authority} failed: {source}{}", reach_remedy(step, source))]
    Io {
        /// What was tried.
        step: &'static str,
        /// With whom.
        authority: String,
        /// Why not.
        source: io::Error,
    },
    /// No end of it.
    #[error("{step} {authority} took longer than {} s", .limit.as_secs())]
    Timeout {
        /// What was tried.
        step: &'static str,
        /// With whom.
        authority: String,
        /// How long it may take.
        limit: Duration,
    },
    /// The connection broke in the middle.
    #[error("the connection to the relay broke: {0}")]
    Http(#[from] hyper::Error),
    /// An answer outside the contract, perhaps of a proxy.
    #[error("the answer is not one of a relay: HTTP status {status}, {what}")]
    Odd {
        /// HTTP status.
        status: u16,
        /// What is odd about it.
        what: &'static str,
        /// Its Retry-After.
        retry_after: Option<Duration>,
    },
    /// The relay says no.
    #[error("{problem}")]
    Refused {
        /// Its word.
        problem: Box<Problem>,
        /// When to try again.
        retry_after: Option<Duration>,
    },
}

/// What helps where there is no connection at all.
fn reach_remedy(step: &str, source: &io::Error) -> &'static str {
    match source.kind() {
        _ if step != CONNECTING => "",
        io::ErrorKind::ConnectionRefused => ". Does the relay run there, and is this the port of its `url`?",
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => {
            ". Is there a route, and does a firewall let bcd through?"
        }
        _ => ". Is the relay's name right, and does this machine's DNS know it?",
    }
}

/// The relay, as this node reaches it.
pub struct Client {
    endpoint: Endpoint,
    policy: Policy,
    certificate: Option<Arc<SingleCertAndKey>>,
    /// The key that is shown is in a TPM.
    signs_slowly: bool,
    clock: Arc<RelayClock>,
    host: Arc<dyn Host>,
    verifier: Arc<RelayVerifier>,
    connector: TlsConnector,
    kept: Option<http1::SendRequest<Full<Bytes>>>,
}

impl Client {
    /// A client of this relay. `known` is the text of `ca.crt`, where the pinned certificate is looked for beside the
    /// chain that the relay sends.
    ///
    /// # Errors
    /// There is nothing to recognise the relay by.
    pub fn new(
        endpoint: Option<&Endpoint>,
        trust: Option<&TrustSettings>,
        known: Option<&[u8]>,
        trust_domain: Option<String>,
        clock: Arc<RelayClock>,
        host: Arc<dyn Host>,
    ) -> Result<Self, CallError> {
        let endpoint = endpoint.ok_or(CallError::NoRelay)?.clone();
        let anchors = anchors(trust.ok_or(CallError::NoTrust)?, known)?;
        let policy = Policy { anchors, trust_domain };
        let (verifier, connector) = connector(&policy, None, &clock, &host)?;
        Ok(Self {
            endpoint,
            policy,
            certificate: None,
            signs_slowly: false,
            clock,
            host,
            verifier,
            connector,
            kept: None,
        })
    }

    /// Shows this certificate from the next connection on, which is made at the next call.
    ///
    /// # Errors
    /// The PEM holds no certificate.
    pub fn present(&mut self, chain_pem: &str, key: Arc<dyn NodeKey>) -> Result<(), CallError> {
        let chain = certificates(chain_pem.as_bytes()).unwrap_or_default();
        if chain.is_empty() {
            return Err(rustls::Error::General("the node's certificate cannot be read".into()).into());
        }
        self.signs_slowly = key.in_tpm().is_some();
        let certified = CertifiedKey::new(chain, Arc::new(HandshakeKey(key)));
        self.certificate = Some(Arc::new(SingleCertAndKey::from(certified)));
        self.renew_tls()
    }

    /// Shows no certificate from the next connection on.
    ///
    /// # Errors
    /// A mistake of ours.
    pub fn present_none(&mut self) -> Result<(), CallError> {
        self.certificate = None;
        self.signs_slowly = false;
        self.renew_tls()
    }

    /// Remembers the relay's trust domain, and looks for the pinned certificate among these too.
    ///
    /// # Errors
    /// A mistake of ours.
    pub fn remember(&mut self, trust_domain: Option<String>, ca_bundle: &str) -> Result<(), CallError> {
        self.policy.trust_domain = trust_domain;
        if let Anchors::Pinned { known, .. } = &mut self.policy.anchors {
            *known = certificates(ca_bundle.as_bytes()).unwrap_or_default();
        }
        self.renew_tls()
    }

    /// The trust domain of the relay that was last talked to.
    #[must_use]
    pub fn trust_domain(&self) -> Option<String> {
        self.verifier.trust_domain()
    }

    /// Calls a method. The token goes along only if one is given, and only to the relay.
    ///
    /// # Errors
    /// The relay was not reached, is not ours, or refuses.
    pub async fn call<I: Serialize, O: DeserializeOwned>(
        &mut self,
        op: &Op<I, O>,
        input: &I,
        token: Option<&Secret>,
    ) -> Result<O, CallError> {
        let body = serde_json::to_vec(input).map(Bytes::from).unwrap_or_default();
        let path = op.method.path();
        let limit = if op.method.name == SECRETS.method.name { MAX_SECRETS_BYTES } else { MAX_ANSWER_BYTES };
        if let Some(kept) = self.kept.take().filter(|kept| !kept.is_closed()) {
            match self.exchange(kept, &path, body.clone(), token, limit).await {
                // Nobody has read the request, or the relay closed the connection while it was under way; every call
                // of the node plane is safe to send again.
                Err(CallError::Http(error)) if !error.is_timeout() => {
                    tracing::debug!(%error, "the kept connection is gone");
                }
                result => return result,
            }
        }
        let fresh = self.connect().await?;
        self.exchange(fresh, &path, body, token, limit).await
    }

    async fn exchange<O: DeserializeOwned>(
        &mut self,
        mut sender: http1::SendRequest<Full<Bytes>>,
        path: &str,
        body: Bytes,
        token: Option<&Secret>,
        limit: usize,
    ) -> Result<O, CallError> {
        let request = self.request(path, body, token)?;
        let (status, retry_after, body) = self
            .in_time("the answer of", ANSWER_TIMEOUT, async {
                sender.ready().await?;
                collect(sender.send_request(request).await?, limit).await
            })
            .await?;
        self.kept = Some(sender);
        read_answer(status, retry_after, &body)
    }

    fn request(
        &self,
        path: &str,
        body: Bytes,
        token: Option<&Secret>,
    ) -> Result<Request<Full<Bytes>>, CallError> {
        let odd = |what| CallError::Odd { status: 0, what, retry_after: None };
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::HOST, self.endpoint.authority())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("bcd/", env!("CARGO_PKG_VERSION")))
            .body(Full::new(body))
            .map_err(|_| odd("the request cannot be made"))?;
        if let Some(token) = token {
            let text = Secret::new(format!("Bearer {}", token.expose()));
            let mut value =
                HeaderValue::from_str(text.expose()).map_err(|_| odd("the token cannot be sent"))?;
            value.set_sensitive(true);
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        Ok(request)
    }

    async fn connect(&self) -> Result<http1::SendRequest<Full<Bytes>>, CallError> {
        let address = (self.endpoint.host.as_str(), self.endpoint.port);
        let failed = |step| {
            let authority = self.endpoint.authority();
            move |source| CallError::Io { step, authority, source }
        };
        let stream = self
            .in_time(CONNECTING, CONNECT_TIMEOUT, async {
                TcpStream::connect(address).await.map_err(failed(CONNECTING))
            })
            .await?;
        let _ = stream.set_nodelay(true);
        let stream = self
            .in_time("the TLS handshake with", HANDSHAKE_TIMEOUT, async {
                self.handshake(stream).await.map_err(|error| {
                    let trust = cause::<TrustError>(&error).map(CallError::Trust);
                    trust
                        .or_else(|| cause::<TpmError>(&error).map(CallError::Tpm))
                        .unwrap_or_else(|| failed("the TLS handshake with")(error))
                })
            })
            .await?;
        let (sender, connection) =
            http1::Builder::new().max_buf_size(16 * 1024).handshake(TokioIo::new(stream)).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "the connection to the relay ended");
            }
        });
        Ok(sender)
    }

    /// rustls signs within the handshake and waits for it. A TPM takes a second, so that then the whole handshake is
    /// done on another thread; this one goes on driving the connection and the clock.
    async fn handshake(&self, stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
        let handshake = self.connector.connect(self.endpoint.server_name.clone(), stream);
        if !self.signs_slowly {
            return handshake.await;
        }
        let runtime = Handle::current();
        let bounded = async { tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await? };
        tokio::task::spawn_blocking(move || runtime.block_on(bounded)).await.map_err(io::Error::other)?
    }

    async fn in_time<T>(
        &self,
        step: &'static str,
        limit: Duration,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, CallError> {
        let timeout = || CallError::Timeout { step, authority: self.endpoint.authority(), limit };
        tokio::time::timeout(limit, work).await.map_err(|_| timeout())?
    }

    fn renew_tls(&mut self) -> Result<(), CallError> {
        let (verifier, connector) =
            connector(&self.policy, self.certificate.clone(), &self.clock, &self.host)?;
        self.verifier = verifier;
        self.connector = connector;
        self.kept = None;
        Ok(())
    }
}

type RawAnswer = (StatusCode, Option<Duration>, Bytes);

async fn collect(response: Response<Incoming>, limit: usize) -> Result<RawAnswer, CallError> {
    let status = response.status();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.trim().parse().ok())
        .map(Duration::from_secs);
    let odd = |what| CallError::Odd { status: status.as_u16(), what, retry_after };
    let body = Limited::new(response.into_body(), limit).collect().await.map_err(|error| match error
        .downcast::<hyper::Error>(
    ) {
        Ok(error) => CallError::Http(*error),
        Err(_) => odd("longer than any answer"),
    })?;
    Ok((status, retry_after, body.to_bytes()))
}

/// A 200 with the method's output, or a problem; anything else is no answer of a relay.
///
/// # Errors
/// It is a refusal or outside the contract.
pub fn read_answer<O: DeserializeOwned>(
    status: StatusCode,
    retry_after: Option<Duration>,
    body: &[u8],
) -> Result<O, CallError> {
    let odd = |what| CallError::Odd { status: status.as_u16(), what, retry_after };
    if status == StatusCode::OK {
        return serde_json::from_slice(body).map_err(|_| odd("with a body that is none of this method"));
    }
    let problem = Problem::read(status.as_u16(), body)
        .ok_or_else(|| odd("with a body that is no problem of the contract"))?;
    let retry_after =
        retry_after.or(problem.retry_after_seconds.map(|seconds| Duration::from_secs(u64::from(seconds))));
    Err(CallError::Refused { problem: Box::new(problem), retry_after })
}
