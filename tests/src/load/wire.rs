//! A simulated machine's side of a connection: TLS 1.3 as bcd speaks it, and one HTTP/1.1 request after the other.
//!
//! A real machine has a processor of its own; here they share the relay's. So the path of the relay's certificate is
//! verified once and then only compared; everything else of the handshake is done each time.

use super::LoadError;
use crate::RelayProcess;
use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST},
};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        Resumption, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    pki_types::{CertificateDer, IpAddr, ServerName, UnixTime, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
};
use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{net::TcpStream, time::timeout};
use tokio_rustls::TlsConnector;

/// The longest that an operation may take.
const LONGEST: Duration = Duration::from_secs(30);

/// Why an operation failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    /// No answer in time.
    #[error("no answer within {} s", LONGEST.as_secs())]
    Late,
    /// No connection, or no handshake.
    #[error("connecting: {0}")]
    Connect(#[from] std::io::Error),
    /// No answer.
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    /// No request.
    #[error("writing a request: {0}")]
    Request(#[from] http::Error),
    /// Another answer than 200.
    #[error("{0}: {1}")]
    Status(StatusCode, String),
    /// A worker is gone.
    #[error("{0}")]
    Worker(String),
}

/// How the relay is reached.
pub(super) struct Wire {
    address: SocketAddr,
    name: ServerName<'static>,
    host: HeaderValue,
    base: ClientConfig,
}

impl Wire {
    /// The way to this relay, trusting its CA alone.
    pub(super) fn new(relay: &RelayProcess) -> Result<Self, LoadError> {
        let host = relay.url().trim_start_matches("https://").to_owned();
        let address: SocketAddr = host.parse().map_err(LoadError::prepare("reading the relay's address"))?;
        let mut roots = RootCertStore::empty();
        let bundle: Result<Vec<_>, _> =
            CertificateDer::pem_file_iter(relay.ca_bundle()).and_then(Iterator::collect);
        roots.add_parsable_certificates(bundle.map_err(LoadError::prepare("reading the relay's CA"))?);
        Ok(Self {
            address,
            name: ServerName::IpAddress(IpAddr::from(address.ip())),
            host: HeaderValue::try_from(host).map_err(LoadError::prepare("writing a header"))?,
            base: base(roots)?,
        })
    }

    /// The TLS of a machine that shows this certificate.
    pub(super) fn showing(&self, certified: Option<&Arc<CertifiedKey>>) -> Arc<ClientConfig> {
        showing(&self.base, certified)
    }

    /// A new connection, after its handshake.
    pub(super) async fn connect(&self, config: Arc<ClientConfig>) -> Result<Line, Trouble> {
        let connecting = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let stream = TlsConnector::from(config).connect(self.name.clone(), stream).await?;
            let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
            // It ends when its line is dropped.
            tokio::spawn(connection);
            Ok(Line { sender, host: self.host.clone() })
        };
        timeout(LONGEST, connecting).await.unwrap_or(Err(Trouble::Late))
    }
}

/// An open connection.
pub(super) struct Line {
    sender: SendRequest<Full<Bytes>>,
    host: HeaderValue,
}

impl Line {
    /// Sends a JSON body and answers the body that comes with 200.
    pub(super) async fn post(
        &mut self,
        path: &'static str,
        bearer: Option<&HeaderValue>,
        body: Bytes,
    ) -> Result<Bytes, Trouble> {
        timeout(LONGEST, self.exchange(path, bearer, body)).await.unwrap_or(Err(Trouble::Late))
    }

    async fn exchange(
        &mut self,
        path: &'static str,
        bearer: Option<&HeaderValue>,
        body: Bytes,
    ) -> Result<Bytes, Trouble> {
        let mut request = Request::post(path)
            .header(HOST, self.host.clone())
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(bearer) = bearer {
            request = request.header(AUTHORIZATION, bearer.clone());
        }
        let request = request.body(Full::new(body))?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if status == StatusCode::OK {
            Ok(body)
        } else {
            Err(Trouble::Status(status, String::from_utf8_lossy(&body).chars().take(500).collect()))
        }
    }
}

/// The TLS of a machine that shows this certificate.
pub(super) fn showing(base: &ClientConfig, certified: Option<&Arc<CertifiedKey>>) -> Arc<ClientConfig> {
    let mut config = base.clone();
    if let Some(certified) = certified {
        config.client_auth_cert_resolver = Arc::new(SingleCertAndKey::from(certified.clone()));
    }
    Arc::new(config)
}

/// The TLS of a machine that trusts these roots and shows no certificate.
pub(super) fn base(roots: RootCertStore) -> Result<ClientConfig, LoadError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
    let inner = inner.map_err(LoadError::prepare("trusting the relay's CA"))?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(LoadError::prepare("setting up TLS"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(VerifiedOnce { inner, known: OnceLock::new() }))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Verifies the path of the first certificate that it sees; later it only compares with that one.
#[derive(Debug)]
struct VerifiedOnce {
    inner: Arc<WebPkiServerVerifier>,
    known: OnceLock<CertificateDer<'static>>,
}

impl ServerCertVerifier for VerifiedOnce {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.known.get().is_some_and(|known| known == leaf) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.inner.verify_server_cert(leaf, intermediates, name, ocsp, now)?;
        let _ = self.known.set(leaf.clone().into_owned());
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
