//! A web server with disk images, over TLS by a CA of its own.

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

/// A server; it ends with the test's runtime.
pub(crate) struct ImageServer {
    pub(crate) port: u16,
    /// The CA that its certificate comes from, PEM.
    pub(crate) ca: String,
}

impl ImageServer {
    /// Serves these files, by path, as the host of this address.
    pub(crate) async fn start(host: &str, files: BTreeMap<String, Vec<u8>>) -> Self {
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let leaf = leaf.signed_by(&key, &Issuer::new(ca, ca_key)).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![leaf.der().clone()], PrivateKeyDer::Pkcs8(key.serialize_der().into()))
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (files, acceptor) = (Arc::new(files), TlsAcceptor::from(Arc::new(tls)));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (files, acceptor) = (files.clone(), acceptor.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let mut request = vec![0; 4096];
                    let Ok(read) = stream.read(&mut request).await else { return };
                    let request = String::from_utf8_lossy(&request[..read]).into_owned();
                    let path = request.split(' ').nth(1).unwrap_or_default();
                    let _ = match files.get(path) {
                        Some(body) => {
                            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                            let _ = stream.write_all(head.as_bytes()).await;
                            stream.write_all(body).await
                        }
                        None => {
                            stream
                                .write_all(
                                    b"HTTP/1.1 302 Found\r\nLocation: /image\r\nContent-Length: 0\r\n\r\n",
                                )
                                .await
                        }
                    };
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, ca: ca_pem }
    }
}
