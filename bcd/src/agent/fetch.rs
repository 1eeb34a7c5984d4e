//! An image, fetched over https: from an address that it may come from, without redirects, as a stream that a thread reads.
//!
//! The name is resolved once, every address of it is judged, and the connection goes to one of those. Its bytes are judged by
//! their hash, not by whom they come from; TLS keeps others from reading along.

use super::fault::{Fault, StepFault, fault};
use crate::{client::certificates, files};
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use shared::outside::is_allowed;
use std::{
    io::{self, Read},
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::{TcpStream, lookup_host},
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// How long resolving, connecting and the handshake may take each.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);
/// How long the server may be silent.
const SILENCE: Duration = Duration::from_secs(60);
/// How many pieces wait to be written.
const PIECES: usize = 32;
/// The roots in the agent's image.
const ROOTS: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The most bytes of a file of roots.
const MAX_ROOTS_BYTES: u64 = 4 * 1024 * 1024;

/// Where an image is, and whom it may come from.
pub(crate) struct Source {
    /// Its address, https.
    pub(crate) url: String,
    /// Networks that it may come from though they are not public.
    pub(crate) networks: Vec<String>,
    /// CA certificates in PEM, beside the public ones.
    pub(crate) roots: Option<String>,
}

/// What is being fetched.
pub(crate) struct Download {
    /// How long it is, if the server says so.
    pub(crate) length: Option<u64>,
    /// The bytes as they come.
    pub(crate) stream: Stream,
}

/// Begins to fetch an image.
///
/// # Errors
/// Its address may not be fetched from; the server does not answer, or with anything but the image.
pub(crate) async fn begin(image: &Source) -> Result<Download, Fault> {
    let uri: Uri = image.url.parse().map_err(|_| failed("its address is no URL"))?;
    if uri.scheme_str() != Some("https") {
        return Err(failed("its address is not https"));
    }
    let host = uri.host().ok_or_else(|| failed("its address has no host"))?;
    let port = uri.port_u16().unwrap_or(443);
    let listed: Option<Vec<IpNet>> = image.networks.iter().map(|network| network.parse().ok()).collect();
    let listed = listed.ok_or_else(|| failed("the networks of the site are none"))?;
    let address = resolve(host.trim_matches(['[', ']']), port, &listed).await?;
    let tls = TlsConnector::from(Arc::new(config(image.roots.as_deref())?));
    let connection = async {
        let stream = TcpStream::connect(address).await?;
        let name =
            ServerName::try_from(host.trim_matches(['[', ']']).to_owned()).map_err(io::Error::other)?;
        tls.connect(name, stream).await
    };
    let stream = in_time("connecting to its server", STEP_TIMEOUT, connection).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
    tokio::spawn(connection);
    let request = Request::get(uri.path_and_query().map_or("/", |path| path.as_str()))
        .header(header::HOST, uri.authority().map_or(host, |authority| authority.as_str()))
        .header(header::USER_AGENT, concat!("bcd/", env!("CARGO_PKG_VERSION")))
        .body(Empty::<Bytes>::new())
        .map_err(failed)?;
    let answer = in_time("the answer of its server", SILENCE, sender.send_request(request)).await?;
    if answer.status() != StatusCode::OK {
        let status = answer.status();
        return Err(failed(format!(
            "its server answers with HTTP status {status} (no redirect is followed)"
        )));
    }
    let length =
        answer.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    Ok(Download { length, stream: forward(answer.into_body()) })
}

/// The first of a name's addresses; all of them must be ones that may be fetched from.
async fn resolve(host: &str, port: u16, listed: &[IpNet]) -> Result<SocketAddr, Fault> {
    let found = in_time("resolving the name of its server", STEP_TIMEOUT, lookup_host((host, port))).await?;
    let found: Vec<SocketAddr> = found.collect();
    let first = *found.first().ok_or_else(|| failed("its server's name has no address"))?;
    match found.iter().find(|address| !is_allowed(address.ip(), listed, &[])) {
        None => Ok(first),
        Some(_) => Err(fault(
            StepFault::AddressRefused,
            "the image's server has an address that is not public, and in no network that the site lists for images",
        )),
    }
}

fn config(given: Option<&str>) -> Result<ClientConfig, Fault> {
    let mut roots = RootCertStore::empty();
    let system = files::read(Path::new(ROOTS), MAX_ROOTS_BYTES).unwrap_or_default();
    for pem in [system.as_slice(), given.unwrap_or_default().as_bytes()] {
        roots.add_parsable_certificates(certificates(pem).unwrap_or_default());
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Hands the pieces of a body to a thread, which takes them as it can write them.
fn forward(mut body: Incoming) -> Stream {
    let (sender, pieces) = mpsc::channel(PIECES);
    tokio::spawn(async move {
        loop {
            let piece = match timeout(SILENCE, body.frame()).await {
                Ok(None) => return,
                Ok(Some(Ok(frame))) => Ok(frame.into_data().unwrap_or_default()),
                Ok(Some(Err(error))) => Err(io::Error::other(error)),
                Err(_) => Err(io::Error::other(format!("its server was silent for {} s", SILENCE.as_secs()))),
            };
            let is_last = piece.is_err();
            if sender.send(piece).await.is_err() || is_last {
                return;
            }
        }
    });
    Stream { pieces, piece: Bytes::new() }
}

/// The bytes as they come, for a thread that may block.
pub(crate) struct Stream {
    pieces: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                None => return Ok(0),
                Some(piece) => self.piece = piece?,
            }
        }
        let more = buffer.len().min(self.piece.len());
        let part = self.piece.split_to(more);
        buffer.get_mut(..more).unwrap_or_default().copy_from_slice(&part);
        Ok(more)
    }
}

fn failed(why: impl std::fmt::Display) -> Fault {
    fault(StepFault::Fetch, format!("fetching the image: {why}"))
}

async fn in_time<T, E: std::fmt::Display>(
    what: &str,
    limit: Duration,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, Fault> {
    match timeout(limit, work).await {
        Ok(done) => done.map_err(|error| failed(format!("{what}: {error}"))),
        Err(_) => Err(failed(format!("{what} took longer than {} s", limit.as_secs()))),
    }
}

#[cfg(test)]
mod tests;
