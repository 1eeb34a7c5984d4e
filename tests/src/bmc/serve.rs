//! How a fake BMC is served: over TLS, on a thread of its own.

use super::{Shared, machine::Answered};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    body::{Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer},
};
use std::{
    convert::Infallible,
    error::Error,
    iter,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use x509_parser::prelude::{FromDer as _, X509Certificate};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// How long an answer of 100 MB is, in pieces of 64 KiB.
const BIG_PIECES: usize = 1600;

/// What a BMC shows of itself.
pub(super) struct Identity {
    acceptor: TlsAcceptor,
    /// SHA-256 of the SubjectPublicKeyInfo.
    pub(super) pin: String,
    /// The certificate, which is its own CA.
    pub(super) pem: String,
}

impl Identity {
    pub(super) fn new() -> Result<Self, Box<dyn Error>> {
        let key = KeyPair::generate()?;
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = CertificateParams::new(names)?.self_signed(&key)?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let certificate = CertificateDer::from(made.der().to_vec());
        let (_, parsed) = X509Certificate::from_der(&certificate)?;
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, parsed.public_key().raw);
        let pin = shared::hex::encode(digest.as_ref());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], PrivateKeyDer::try_from(key.serialize_der())?)?;
        Ok(Self { acceptor: TlsAcceptor::from(Arc::new(config)), pin, pem: made.pem() })
    }
}

pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = shared.clone();
        shared.connections.fetch_add(1, Ordering::SeqCst);
        let tls = shared.identity.lock().unwrap_or_else(PoisonError::into_inner).acceptor.clone();
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(move |request| answer(request, shared.clone()));
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
    }
}

/// One request that is being answered.
struct Caller(Arc<Shared>);

impl Caller {
    fn of(shared: Arc<Shared>) -> Self {
        let now = shared.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        shared.most_at_once.fetch_max(now, Ordering::SeqCst);
        Self(shared)
    }
}

impl Drop for Caller {
    /// Also where whoever asked has gone.
    fn drop(&mut self) {
        self.0.at_once.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(request: Request<Incoming>, shared: Arc<Shared>) -> Result<Response<Body>, Infallible> {
    let _caller = Caller::of(shared.clone());
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let answered = {
        let mut machine = shared.machine.lock().unwrap_or_else(PoisonError::into_inner);
        machine.answer(&parts, &body)
    };
    Ok(match answered {
        Answered::Now(response) => response.map(|body| Full::new(Bytes::from(body)).boxed_unsync()),
        Answered::Never => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Response::new(Full::default().boxed_unsync())
        }
        Answered::Endless => Response::new(pieces(usize::MAX).boxed_unsync()),
        Answered::Big => Response::new(pieces(BIG_PIECES).boxed_unsync()),
        Answered::Slow => Response::new(slow().boxed_unsync()),
    })
}

/// JSON that is too long, or never ends.
fn pieces(most: usize) -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>>> {
    let first = iter::once(Bytes::from_static(b"{\"a\": \""));
    let rest = iter::repeat_with(|| Bytes::from(vec![b'a'; 64 << 10])).take(most);
    StreamBody::new(futures_util::stream::iter(first.chain(rest).map(|chunk| Ok(Frame::data(chunk)))))
}

/// A byte a second, for ever.
fn slow() -> StreamBody<impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>>> {
    StreamBody::new(futures_util::stream::unfold((), |()| async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        Some((Ok(Frame::data(Bytes::from_static(b" "))), ()))
    }))
}
