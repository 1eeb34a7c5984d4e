//! A receiver over TLS in the test's own process: it takes what comes and answers as its test says, honestly or not.

use super::Outside;
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderMap, Request, Response, StatusCode, header::LOCATION};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::PrivateKeyDer,
    version::{TLS12, TLS13},
};
use std::{
    convert::Infallible,
    fs,
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, task::JoinHandle};
use tokio_rustls::TlsAcceptor;

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How a receiver answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answers {
    /// With this status.
    Status(u16),
    /// With this status, and to where else.
    Redirect(u16, String),
    /// With 200 and a body that never ends.
    Endless,
    /// With 200 and a body that never comes.
    SlowBody,
    /// Never.
    Never,
    /// By hanging up.
    HangsUp,
}

/// Who a receiver says that it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Face {
    /// Itself.
    Good,
    /// Another name.
    WrongName,
    /// Itself, by a CA that nobody trusts.
    WrongCa,
    /// Itself, by TLS 1.2.
    Old,
}

/// What came.
#[derive(Clone, Debug)]
pub(crate) struct Taken {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Taken {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap().to_str().unwrap()
    }
}

/// The receiver; it ends with this value.
pub(crate) struct Receiver {
    address: SocketAddr,
    ca: tempfile::TempDir,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

struct Shared {
    answers: Mutex<Answers>,
    taken: Mutex<Vec<Taken>>,
}

impl Receiver {
    /// One that answers 204 on a free port of 127.0.0.1.
    pub(crate) async fn start(face: Face) -> Self {
        let ca = tempfile::tempdir().unwrap();
        let (pem, config) = certified(face);
        fs::write(ca.path().join("ca.pem"), pem).unwrap();
        let shared = Arc::new(Shared { answers: Mutex::new(Answers::Status(204)), taken: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, TlsAcceptor::from(Arc::new(config)), shared.clone()));
        Self { address, ca, shared, serving }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://localhost:{}/{path}", self.address.port())
    }

    /// The way to it, which is inside.
    pub(crate) fn outside(&self) -> Outside {
        let listed = ["127.0.0.0/8", "::1/128"].map(|network| network.parse().unwrap());
        Outside::new(listed.to_vec(), Some(&self.ca.path().join("ca.pem"))).unwrap()
    }

    pub(crate) fn answer(&self, answers: Answers) {
        *self.shared.answers.lock().unwrap() = answers;
    }

    pub(crate) fn taken(&self) -> Vec<Taken> {
        self.shared.taken.lock().unwrap().clone()
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The CA's certificate in PEM, and TLS with a certificate for localhost.
fn certified(face: Face) -> (String, ServerConfig) {
    let root = || {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        (ca, KeyPair::generate().unwrap())
    };
    let (ca, key) = root();
    let pem = ca.self_signed(&key).unwrap().pem();
    let (ca, key) = if face == Face::WrongCa { root() } else { (ca, key) };
    let issuer = Issuer::new(ca, key);
    let name = if face == Face::WrongName { "other.example" } else { "localhost" };
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![name.to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let versions: &[&SupportedProtocolVersion] = if face == Face::Old { &[&TLS12] } else { &[&TLS13] };
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
        .unwrap();
    (pem, config)
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, shared) = (tls.clone(), shared.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, shared.clone()));
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, &'static str> {
    let (parts, body) = request.into_parts();
    // One that was cut off was not taken.
    let body = body.collect().await.map_err(|_| "cut off")?.to_bytes();
    let body = String::from_utf8(body.to_vec()).unwrap();
    let taken = Taken { path: parts.uri.path().to_owned(), headers: parts.headers, body };
    shared.taken.lock().unwrap().push(taken);
    let answers = shared.answers.lock().unwrap().clone();
    let empty = || Full::new(Bytes::new()).boxed_unsync();
    let mut response = Response::new(empty());
    match answers {
        Answers::Status(status) => *response.status_mut() = StatusCode::from_u16(status).unwrap(),
        Answers::Redirect(status, to) => {
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            response.headers_mut().insert(LOCATION, to.parse().unwrap());
        }
        Answers::Endless => {
            let chunks = stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&[b'x'; 8192]))));
            *response.body_mut() = StreamBody::new(chunks).boxed_unsync();
        }
        Answers::SlowBody => *response.body_mut() = StreamBody::new(stream::pending().fuse()).boxed_unsync(),
        Answers::Never => std::future::pending().await,
        Answers::HangsUp => return Err("no"),
    }
    Ok(response)
}
