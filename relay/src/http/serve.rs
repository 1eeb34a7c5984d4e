//! Connections: accept, TLS, HTTP/1.1 or HTTP/2, and the end of it all.
//!
//! Everything a peer can draw out is bounded: handshakes, headers, answers and silence in time, headers in size,
//! connections in number. Draining stops accepting, lets requests finish and gives up on the rest after
//! [`DRAIN_TIMEOUT`].

use super::{
    App, Arrival,
    answers::{Answers, Endless},
    limits::network,
    problem, router,
    tls::Tls,
};
use crate::fault::{Fault, chain};
use axum::{body::Body, response::Response};
use http::{HeaderMap, HeaderValue, Request};
use hyper::body::Incoming;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use nix::sys::resource::{Resource, getrlimit};
use shared::{base32, problem::Problem};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    future::Future,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{Instant, timeout},
};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::ServiceExt as _;

/// How long a TLS handshake may take.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a request's header may take, and how long a connection may be idle between two.
const HEADER_TIMEOUT: Duration = Duration::from_secs(90);
/// How long a connection may lie silent, in either direction, while something is waited for. HTTP/2's own pings come
/// sooner.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(120);
/// The most bytes of an HTTP/1.1 request's header, and of an answer that is buffered for it.
const MAX_BUFFER: usize = 64 * 1024;
/// The most requests at a time of one HTTP/2 connection.
const MAX_STREAMS: u32 = 64;
/// How long the first request of a connection may take to come.
const FIRST_TIMEOUT: Duration = Duration::from_secs(20);
/// The most connections, if the system gives so many descriptors.
const MAX_CONNECTIONS: usize = 100_000;
/// How many descriptors are left for everything else: the store, files, what the relay asks others.
const OTHER_DESCRIPTORS: u64 = 512;
/// How long requests may take to finish once the relay is told to stop.
pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// The longest request id that is taken over from a client.
const MAX_REQUEST_ID: usize = 64;

/// Serves until `stop` resolves, then drains.
pub async fn serve(app: Arc<App>, listener: TcpListener, tls: Arc<Tls>, stop: impl Future<Output = ()>) {
    let places = Places::new(most_connections());
    let graceful = GracefulShutdown::new();
    let routes = router(&app);
    tokio::pin!(stop);
    loop {
        let accepted = tokio::select! {
            () = &mut stop => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let Some(place) = places.take(remote.ip()) else { continue };
                let (app, tls, routes, watcher) =
                    (app.clone(), tls.clone(), routes.clone(), graceful.watcher());
                tokio::spawn(async move {
                    connection(Connection { app, tls, routes, remote }, stream, watcher).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Out of file descriptors, most likely: those that are open will end.
                tracing::warn!(error = chain(&error), "accepting a connection failed");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    drop(listener);
    if timeout(DRAIN_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!("some requests did not finish in time and are cut off");
    }
}

/// As many connections as descriptors are left for.
fn most_connections() -> usize {
    let (soft, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap_or((1024, 1024));
    let left = usize::try_from(soft.saturating_sub(OTHER_DESCRIPTORS)).unwrap_or(MAX_CONNECTIONS);
    left.clamp(64, MAX_CONNECTIONS)
}

/// The places of connections. One address takes half of them at most: many machines may be behind one, and nobody takes all.
#[derive(Clone)]
struct Places {
    all: Arc<Semaphore>,
    most_of_one: usize,
    of: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// A connection's place; free again when this is dropped.
struct Place {
    address: IpAddr,
    of: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(most)), most_of_one: (most / 2).max(1), of: Arc::default() }
    }

    fn take(&self, address: IpAddr) -> Option<Place> {
        let address = network(address);
        let permit = self.all.clone().try_acquire_owned().ok()?;
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of.entry(address).or_default();
        if *count >= self.most_of_one {
            return None;
        }
        *count = count.saturating_add(1);
        Some(Place { address, of: self.of.clone(), _permit: permit })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = of.get_mut(&self.address) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            of.remove(&self.address);
        }
    }
}

struct Connection {
    app: Arc<App>,
    tls: Arc<Tls>,
    routes: axum::Router,
    remote: SocketAddr,
}

async fn connection(this: Connection, stream: TcpStream, watcher: Watcher) {
    let _ = stream.set_nodelay(true);
    let mut stream = stream;
    let remote = match this.app.proxies.client(&mut stream, this.remote.ip()).await {
        Ok(client) => client,
        Err(error) => return this.app.refusals.proxy(this.remote.ip(), &error, this.app.relay.clock.now()),
    };
    let mut stream = TimeoutStream::new(stream);
    stream.set_read_timeout(Some(SILENCE_TIMEOUT));
    stream.set_write_timeout(Some(SILENCE_TIMEOUT));
    let acceptor = TlsAcceptor::from(this.tls.config());
    // A scanner's failed handshake is no news; what a machine must know it says itself.
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(Box::pin(stream))).await else { return };
    let peer = Arc::new(this.tls.peer(stream.get_ref().1.peer_certificates()));
    let answers = Arc::new(Answers::default());
    let (begun, asked) = (answers.clone(), Arc::new(AtomicBool::new(false)));
    let asks = asked.clone();
    let service = hyper::service::service_fn(move |request: Request<Incoming>| {
        let (app, routes, peer) = (this.app.clone(), this.routes.clone(), peer.clone());
        let begun = begun.begin();
        asks.store(true, Ordering::Relaxed);
        async move {
            let request_id = request_id(&app, request.headers());
            let arrival = Arrival { remote, peer: peer.now(), request_id };
            let answer = respond(&app, routes, arrival, request).await;
            let endless = answer.extensions().get::<Endless>().is_some();
            Ok::<_, Infallible>(answer.map(|body| match endless {
                true => begun.while_taken(body),
                false => begun.until_sent(body),
            }))
        }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).max_buf_size(MAX_BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .keep_alive_interval(HEADER_TIMEOUT);
    let serving = builder.serve_connection(TokioIo::new(stream), service).into_owned();
    tokio::select! {
        _ = watcher.watch(serving) => {}
        () = answers.stuck() => {}
        () = silent(&asked) => {}
    }
}

/// Resolves if nothing was asked in the time that the first request has.
async fn silent(asked: &AtomicBool) {
    tokio::time::sleep(FIRST_TIMEOUT).await;
    if asked.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

async fn respond(app: &App, routes: axum::Router, arrival: Arrival, request: Request<Incoming>) -> Response {
    let started = Instant::now();
    let request_id = arrival.request_id.clone();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let mut request = request.map(Body::new);
    request.extensions_mut().insert(arrival);
    // A task of its own: a client that goes away stops nothing half-way, neither a change nor a transaction.
    let mut response = match tokio::spawn(routes.oneshot(request)).await {
        Ok(Ok(response)) => response,
        Ok(Err(never)) => match never {},
        Err(panicked) => {
            let failed = Fault::internal("answering a request")(panicked).into_problem(&path, &request_id);
            problem::problem(&Problem { request_id: Some(request_id.to_string()), ..failed })
        }
    };
    if let Ok(value) = HeaderValue::from_str(&request_id) {
        response.headers_mut().insert("x-request-id", value);
    }
    let took = started.elapsed();
    app.relay.metrics.took(took);
    let status = response.status().as_u16();
    tracing::debug!(%method, path, status, request_id = &*request_id, took_ms = took.as_secs_f64() * 1e3, "answered");
    response
}

/// The client's own id for the request, where it is a harmless one, else a new one.
fn request_id(app: &App, headers: &HeaderMap) -> Arc<str> {
    let harmless = |id: &&str| {
        (1..=MAX_REQUEST_ID).contains(&id.len())
            && id.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
    };
    let given = headers.get("x-request-id").and_then(|value| value.to_str().ok()).filter(harmless);
    match given {
        Some(id) => id.into(),
        None => base32::encode(&app.relay.random.bytes::<16>()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_half_of_the_places_at_most() {
        let places = Places::new(4);
        let (here, there): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        let taken: Vec<Place> = (0..2).filter_map(|_| places.take(here)).collect();
        assert_eq!(taken.len(), 2);
        assert!(places.take(here).is_none());
        // An IPv6 client has a whole /64.
        let of_net = |host: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]);
        let theirs: Vec<Place> =
            [of_net(1), of_net(2), of_net(3)].into_iter().filter_map(|at| places.take(at)).collect();
        assert_eq!(theirs.len(), 2);
        assert!(places.take(there).is_none(), "all are taken");
        drop(taken);
        assert!(places.take(there).is_some() && places.take(here).is_some());
        drop(theirs);
        assert!(places.of.lock().unwrap().is_empty());
    }
}
