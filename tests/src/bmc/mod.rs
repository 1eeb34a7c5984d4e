//! A BMC that speaks Redfish as strictly as it can be read, in the ways of several makers, and misbehaves as its test says. Nothing in
//! it depends on time: a machine changes after so many looks at it. It notes what it was asked, and how many asked at once.

mod answers;
mod ills;
mod machine;
mod persona;

pub use ills::{Asked, Ills, Stall};
pub use persona::{Etags, Media, PERSONAS, Persona};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use machine::{Answered, Machine};
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use std::{
    convert::Infallible,
    error::Error,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509Certificate};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// Its user, and that user's password.
pub const BMC_USER: &str = "root";
/// See [`BMC_USER`].
pub const BMC_PASSWORD: &str = "calvin-17-hunter2";

/// The BMC; it ends with the process.
pub struct FakeBmc {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    machine: Mutex<Machine>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    tls: Mutex<(TlsAcceptor, String)>,
}

impl FakeBmc {
    /// One of this maker's kind, on a free port of 127.0.0.1; its machine is off.
    ///
    /// # Panics
    /// It can't be set up.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its BMC fails")]
    pub fn start(persona: &'static Persona) -> Self {
        start(persona).unwrap_or_else(|error| panic!("a BMC: {error}"))
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// SHA-256 of its certificate's SubjectPublicKeyInfo.
    #[must_use]
    pub fn pin(&self) -> String {
        self.shared.tls.lock().unwrap_or_else(PoisonError::into_inner).1.clone()
    }

    /// Misbehaves from now on like this.
    pub fn suffer(&self, ills: Ills) {
        self.machine().ills = ills;
    }

    /// Does not answer a request that comes.
    pub fn stall(&self, stall: Stall) {
        let mut machine = self.machine();
        (machine.stall, machine.stalled) = (Some(stall), false);
    }

    /// Whether that request has come.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        self.machine().stalled
    }

    /// Whether its machine is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.machine().is_on
    }

    /// Switches its machine, as by its button.
    pub fn switch(&self, on: bool) {
        self.machine().is_on = on;
    }

    /// What its machine started from, each time: the URL of its media, or `disk`.
    #[must_use]
    pub fn started(&self) -> Vec<String> {
        self.machine().started.clone()
    }

    /// What it was asked for, in order: methods that change something.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.machine().asked.clone()
    }

    /// How many requests came with the right credentials, and with wrong ones.
    #[must_use]
    pub fn logins(&self) -> (usize, usize) {
        self.machine().logins
    }

    /// How many asked at once, at most.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.shared.most_at_once.load(Ordering::SeqCst)
    }

    /// Gets itself another key and certificate.
    ///
    /// # Panics
    /// None can be made.
    #[expect(clippy::panic, reason = "a test without its certificate fails")]
    pub fn renew_certificate(&self) {
        let made = certificate().unwrap_or_else(|error| panic!("a certificate: {error}"));
        *self.shared.tls.lock().unwrap_or_else(PoisonError::into_inner) = made;
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn certificate() -> Result<(TlsAcceptor, String), Box<dyn Error>> {
    let key = KeyPair::generate()?;
    let made = CertificateParams::new(vec!["bmc.invalid".to_owned()])?.self_signed(&key)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certificate = CertificateDer::from(made.der().to_vec());
    let (_, parsed) = X509Certificate::from_der(&certificate)?;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parsed.public_key().raw);
    let pin = shared::hex::encode(digest.as_ref());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.serialize_der())?)?;
    Ok((TlsAcceptor::from(Arc::new(config)), pin))
}

fn start(persona: &'static Persona) -> Result<FakeBmc, Box<dyn Error>> {
    let (told, address) = mpsc::channel::<SocketAddr>();
    let shared = Arc::new(Shared {
        machine: Mutex::new(Machine::new(persona)),
        at_once: AtomicUsize::new(0),
        most_at_once: AtomicUsize::new(0),
        tls: Mutex::new(certificate()?),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = shared.clone();
    thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else { return };
            let Ok(address) = listener.local_addr() else { return };
            let _ = told.send(address);
            serve(listener, served).await;
        });
    });
    Ok(FakeBmc { address: address.recv()?, shared })
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        let tls = shared.tls.lock().unwrap_or_else(PoisonError::into_inner).0.clone();
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, shared.clone()));
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let now = shared.at_once.fetch_add(1, Ordering::SeqCst) + 1;
    shared.most_at_once.fetch_max(now, Ordering::SeqCst);
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let answered = {
        let mut machine = shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.answer(&parts, &body)
    };
    let response = match answered {
        Answered::Now(response) => response.map(|body| Full::new(Bytes::from(body)).boxed_unsync()),
        Answered::Never => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Response::new(Full::default().boxed_unsync())
        }
        Answered::Endless => Response::new(endless().boxed_unsync()),
    };
    shared.at_once.fetch_sub(1, Ordering::SeqCst);
    Ok(response)
}

/// JSON that never ends.
fn endless() -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>>> {
    let first = std::iter::once(Bytes::from_static(b"{\"a\": \""));
    let rest = std::iter::repeat_with(|| Bytes::from(vec![b'a'; 64 << 10]));
    StreamBody::new(futures_util::stream::iter(first.chain(rest).map(|chunk| Ok(Frame::data(chunk)))))
}
