//! Serves the agent's image to BMCs: on a listener of its own, at a path that nobody can guess, for one boot of one machine.
//!
//! Who may have it is judged by [`metal::boot`](crate::metal::boot) at each request: the machine's own BMC, until the agent has joined or
//! the start has come to nothing. Everybody else is told that there is nothing, whatever the reason. BMCs ask as they like, with HEAD, in
//! ranges, over days: connections are bounded in number, headers in size, silence in time. Path and token are in no log.

mod answer;
mod image;

pub use image::{Image, ImageError};

use crate::{
    config::BootSettings,
    context::Context,
    fault::{Fault, chain},
    http::tls::Tls,
    metal::{
        boot,
        reach::{self, Host},
    },
    outside,
    store::metal,
};
use answer::{Body, Wanted, answer, nothing};
use http::{Request, Response, StatusCode};
use hyper::{body::Incoming, server::conn::http1};
use hyper_util::rt::{TokioIo, TokioTimer};
use shared::{secret::Secret, time::Timestamp};
use std::{
    convert::Infallible,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;

/// What an image's path begins with, and its last part: some BMCs look at the name.
const LEAD: &str = "/boot/";
/// See [`LEAD`].
const NAME: &str = "/agent.iso";
/// How long a TLS handshake may take: BMCs are slow.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request's header may take, and how long a connection may be idle between two.
const HEADER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection may lie silent while something is waited for.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// The most bytes of a request's header.
const MAX_HEADER: usize = 16 * 1024;
/// The most connections.
const MAX_CONNECTIONS: usize = 1024;

/// What serves the image.
pub struct Boot {
    relay: Arc<Context>,
    tls: Option<Arc<Tls>>,
    image: Arc<Image>,
    listener: TcpListener,
}

impl Boot {
    /// Opens the image and listens.
    ///
    /// # Errors
    /// The image is none, or the address can't be had.
    pub async fn bind(settings: &BootSettings) -> Result<(Arc<Image>, TcpListener), ImageError> {
        let image = Image::open(&settings.image)?;
        let listener = TcpListener::bind(settings.listen)
            .await
            .map_err(|source| ImageError::Listen { address: settings.listen, source })?;
        Ok((Arc::new(image), listener))
    }

    /// Serves what was bound.
    #[must_use]
    pub fn new(
        relay: Arc<Context>,
        tls: Option<Arc<Tls>>,
        (image, listener): (Arc<Image>, TcpListener),
    ) -> Self {
        Self { relay, tls, image, listener }
    }

    /// Serves until it is dropped.
    pub async fn serve(self) {
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let this = Arc::new(self);
        loop {
            match this.listener.accept().await {
                Ok((stream, remote)) => {
                    let Ok(permit) = connections.clone().try_acquire_owned() else { continue };
                    let this = this.clone();
                    tokio::spawn(async move {
                        this.connection(stream, remote).await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "accepting a BMC's connection failed");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    async fn connection(self: Arc<Self>, stream: TcpStream, remote: SocketAddr) {
        let mut stream = TimeoutStream::new(stream);
        stream.set_read_timeout(Some(SILENCE_TIMEOUT));
        stream.set_write_timeout(Some(SILENCE_TIMEOUT));
        let stream = Box::pin(stream);
        match &self.tls {
            None => self.requests(stream, remote).await,
            Some(tls) => {
                let accepted = TlsAcceptor::from(tls.for_old_clients()).accept(stream);
                let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, accepted).await else { return };
                self.requests(stream, remote).await;
            }
        }
    }

    async fn requests(
        self: &Arc<Self>,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        remote: SocketAddr,
    ) {
        let service = hyper::service::service_fn(|request: Request<Incoming>| {
            let this = self.clone();
            // A task of its own: a client that goes away stops no transaction half-way.
            let answered = tokio::spawn(async move { this.respond(&request, remote).await });
            async move {
                Ok::<_, Infallible>(
                    answered.await.unwrap_or_else(|_| nothing(StatusCode::INTERNAL_SERVER_ERROR)),
                )
            }
        });
        let mut builder = http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_HEADER);
        if let Err(error) = builder.serve_connection(TokioIo::new(stream), service).await {
            tracing::debug!(%remote, error = chain(&error), "a BMC's connection ended");
        }
    }

    async fn respond(&self, request: &Request<Incoming>, remote: SocketAddr) -> Response<Body> {
        let Some(wanted) = Wanted::of(request) else { return nothing(StatusCode::METHOD_NOT_ALLOWED) };
        let region = match self.region(request.uri().path(), remote).await {
            Ok(Some(region)) => region,
            Ok(None) => {
                return match self.relay.limits.charge_open(remote.ip()) {
                    Ok(()) => nothing(StatusCode::NOT_FOUND),
                    Err(_) => nothing(StatusCode::TOO_MANY_REQUESTS),
                };
            }
            Err(fault) => {
                tracing::error!(error = chain(&fault), "an image can't be served");
                return nothing(StatusCode::SERVICE_UNAVAILABLE);
            }
        };
        answer(&wanted, &self.image, region)
    }

    /// What is written into the image for whoever asks; `None` where there is no image for them.
    async fn region(&self, path: &str, remote: SocketAddr) -> Result<Option<Vec<u8>>, Fault> {
        let Some(word) = path.strip_prefix(LEAD).and_then(|rest| rest.strip_suffix(NAME)) else {
            return Ok(None);
        };
        let found = self.relay.store.read("boot.image", (&self.relay, word), |tx, (relay, word)| {
            Box::pin(async move {
                let Some(image) = boot::found(tx, &relay.keys, word).await? else { return Ok(None) };
                let machine = metal::find(tx, &image.node).await?;
                Ok::<_, Fault>(machine.map(|machine| (image, machine.reach.address)))
            })
        });
        let Some((image, bmc)) = found.await? else { return Ok(None) };
        if !is_at(&bmc, remote.ip()).await {
            tracing::warn!(node = %image.node, %remote, "an image was asked for, and not by its machine's BMC");
            return Ok(None);
        }
        tracing::debug!(node = %image.node, %remote, "the agent's image is fetched");
        self.written(image.token).map(Some)
    }

    fn written(&self, token: Secret) -> Result<Vec<u8>, Fault> {
        let relay = &self.relay;
        // The same at each request of a minute: an image is fetched in parts.
        let at = Timestamp::from_seconds(relay.clock.now().seconds().div_euclid(60).saturating_mul(60));
        let said =
            shared::boot::Boot { relay: relay.url.clone(), ca_pins: relay.ca.load().pins(), token, at };
        said.to_region().ok_or_else(|| {
            Fault::internal("writing what an agent is told")(
                "the relay's address and its pins are too long for the image",
            )
        })
    }
}

/// Whether a machine's BMC is at this address.
async fn is_at(bmc: &str, remote: IpAddr) -> bool {
    let remote = remote.to_canonical();
    match reach::location(bmc).map(|location| location.host) {
        Some(Host::Address(address)) => address.to_canonical() == remote,
        Some(Host::Name(name)) => {
            let found = outside::resolved(&name, 0).await.unwrap_or_default();
            found.iter().any(|address| address.to_canonical() == remote)
        }
        None => false,
    }
}
