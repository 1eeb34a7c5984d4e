//! Where an image may come from, and what an answer may be.

use super::*;
use rcgen::{CertificateParams, KeyPair};
use rustls::{
    ServerConfig,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// A server of this machine, which names itself by its loopback address and as localhost.
struct Server {
    port: u16,
    roots: String,
    asked: Arc<AtomicUsize>,
}

impl Server {
    /// Answers everybody so.
    async fn start(answer: String) -> Self {
        let key = KeyPair::generate().unwrap();
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let certificate = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], private)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked = Arc::new(AtomicUsize::new(0));
        let (acceptor, count) = (TlsAcceptor::from(Arc::new(tls)), asked.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let Ok(mut stream) = acceptor.accept(stream).await else { continue };
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { port, roots: certificate.pem(), asked }
    }

    async fn fetched(&self, host: &str, networks: &[&str]) -> Result<Download, Fault> {
        begin(&Source {
            url: format!("https://{host}:{}/disk.raw", self.port),
            networks: networks.iter().map(|network| (*network).to_owned()).collect(),
            roots: Some(self.roots.clone()),
        })
        .await
    }
}

#[tokio::test]
async fn an_image_comes_from_a_listed_address_and_is_what_was_sent() {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\ndisk";
    let server = Server::start(answer.to_owned()).await;
    let download = server.fetched("127.0.0.1", &["127.0.0.1/32"]).await.ok().unwrap();
    assert_eq!(download.length, Some(4));
    let mut stream = download.stream;
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    });
    assert_eq!(read.await.unwrap().unwrap(), "disk");
}

#[tokio::test]
async fn an_address_that_is_not_public_must_be_listed_whatever_its_name_is() {
    let server = Server::start("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    let refused = |fault: Result<Download, Fault>| fault.err().map(|fault| fault.code);
    for host in
        ["127.0.0.1", "localhost", "[::1]", "0.0.0.0", "[::ffff:127.0.0.1]", "169.254.169.254", "10.0.0.1"]
    {
        for networks in [&[][..], &["192.0.2.0/24"]] {
            let fault = refused(server.fetched(host, networks).await);
            assert_eq!(fault, Some(StepFault::AddressRefused), "{host} {networks:?}");
        }
    }
    assert_eq!(server.asked.load(Ordering::SeqCst), 0, "nobody was connected to");
    // One that is listed does not let in another.
    assert_eq!(refused(server.fetched("10.0.0.1", &["127.0.0.1/32"]).await), Some(StepFault::AddressRefused));
    let odd = refused(server.fetched("127.0.0.1", &["everything"]).await);
    assert_eq!((odd, server.asked.load(Ordering::SeqCst)), (Some(StepFault::Fetch), 0));
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_nothing_of_a_refusal_is_told_but_its_status() {
    for (status, body) in [
        ("302 Found", ""),
        ("307 Temporary Redirect", ""),
        ("403 Forbidden", "the inside"),
        ("206 Partial Content", "di"),
    ] {
        let other = Server::start("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndisk".to_owned()).await;
        let answer = format!(
            "HTTP/1.1 {status}\r\nLocation: https://127.0.0.1:{}/disk.raw\r\nContent-Length: {}\r\n\r\n{body}",
            other.port,
            body.len()
        );
        let server = Server::start(answer).await;
        let fault = server.fetched("127.0.0.1", &["127.0.0.1/32"]).await.err().unwrap();
        assert_eq!(fault.code, StepFault::Fetch, "{status}: {fault}");
        let told = fault.to_string();
        assert!(
            told.contains(&status[..3]) && !told.contains("inside") && !told.contains("Location"),
            "{told}"
        );
        assert_eq!(
            (server.asked.load(Ordering::SeqCst), other.asked.load(Ordering::SeqCst)),
            (1, 0),
            "{status}"
        );
    }
}

#[tokio::test]
async fn a_server_is_the_one_that_it_is_called() {
    let server = Server::start("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n".to_owned()).await;
    let stranger = Server::start(String::new()).await;
    let asked = Server { port: server.port, roots: stranger.roots.clone(), asked: server.asked.clone() };
    assert_eq!(asked.fetched("127.0.0.1", &["127.0.0.1/32"]).await.err().unwrap().code, StepFault::Fetch);
    for url in
        [format!("http://127.0.0.1:{}/", server.port), "ftp://example.org/".to_owned(), "disk".to_owned()]
    {
        let source = Source { url: url.clone(), networks: vec!["127.0.0.1/32".to_owned()], roots: None };
        assert_eq!(begin(&source).await.err().unwrap().code, StepFault::Fetch, "{url}");
    }
}
