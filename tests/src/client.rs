//! HTTP clients of a relay, and one call of a method by them.

use crate::Answer;
use relay::clock::Clock;
use reqwest::{Client, header::CONTENT_TYPE};
use rustls::{
    ClientConfig, RootCertStore,
    client::ResolvesClientCert,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject as _},
    sign::{CertifiedKey, SingleCertAndKey},
    time_provider::TimeProvider,
};
use serde_json::Value;
use std::{fs, net::IpAddr, path::Path, sync::Arc, time::Duration};

/// Who a client says it is: certificates, the leaf first, and the key that it signs with. Whether they belong
/// together is for the relay to find out.
pub struct Identity {
    /// What it shows.
    pub chain: Vec<CertificateDer<'static>>,
    /// What it signs with.
    pub key: PrivateKeyDer<'static>,
}

impl Identity {
    /// A chain and a key in PEM.
    ///
    /// # Panics
    /// They are no PEM.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its key fails")]
    pub fn from_pem(chain: &str, key: &str) -> Self {
        let key =
            PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap_or_else(|error| panic!("a key: {error}"));
        Self { chain: certificates(chain.as_bytes()), key }
    }
}

/// A client that trusts the certificates of this file and nothing else, by this clock. It speaks HTTP/1.1.
///
/// # Panics
/// The file or the identity can't be used.
#[must_use]
pub fn client(bundle: &Path, clock: &Clock, identity: Option<Identity>) -> Client {
    of_tls(tls(bundle, clock, identity))
}

/// The TLS of [`client`], for a test that changes more of it.
///
/// # Panics
/// As [`client`].
#[must_use]
#[expect(clippy::panic, reason = "a test without its client fails")]
pub fn tls(bundle: &Path, clock: &Clock, identity: Option<Identity>) -> ClientConfig {
    let pem = fs::read(bundle).unwrap_or_else(|error| panic!("{}: {error}", bundle.display()));
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&pem));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_details(provider.clone(), Arc::new(TestTime(clock.clone())))
        .with_safe_default_protocol_versions()
        .unwrap_or_else(|error| panic!("TLS: {error}"))
        .with_root_certificates(roots);
    let Some(Identity { chain, key }) = identity else { return builder.with_no_client_auth() };
    let key = provider.key_provider.load_private_key(key).unwrap_or_else(|error| panic!("a key: {error}"));
    let shown: Arc<dyn ResolvesClientCert> = Arc::new(SingleCertAndKey::from(CertifiedKey::new(chain, key)));
    builder.with_client_cert_resolver(shown)
}

/// A client with this TLS.
///
/// # Panics
/// It can't be made.
#[must_use]
#[expect(clippy::panic, reason = "a test without its client fails")]
pub fn of_tls(config: ClientConfig) -> Client {
    let built = Client::builder().tls_backend_preconfigured(config).no_proxy().build();
    built.unwrap_or_else(|error| panic!("an HTTP client: {error}"))
}

/// A client for plain HTTP that comes from this address of this host.
///
/// # Panics
/// It can't be made.
#[must_use]
#[expect(clippy::panic, reason = "a test without its client fails")]
pub fn plain(from: IpAddr) -> Client {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let tls = tls.map(|tls| tls.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    let built = tls
        .map(|tls| Client::builder().tls_backend_preconfigured(tls).no_proxy().local_address(from).build());
    match built {
        Ok(Ok(client)) => client,
        odd => panic!("an HTTP client: {odd:?}"),
    }
}

/// Calls a method of a relay.
///
/// # Panics
/// No answer comes.
#[expect(clippy::panic, reason = "a story whose relay does not answer fails")]
pub async fn post(client: &Client, url: &str, bearer: Option<&str>, method: &str, input: &Value) -> Answer {
    let answer = try_post(client, url, bearer, method, input).await;
    answer.unwrap_or_else(|error| panic!("{method}: {}", relay::fault::chain(&error)))
}

/// Calls a method of a relay that may not answer.
///
/// # Errors
/// No answer came, or not the whole of it.
pub async fn try_post(
    client: &Client,
    url: &str,
    bearer: Option<&str>,
    method: &str,
    input: &Value,
) -> Result<Answer, reqwest::Error> {
    let mut request = client.post(format!("{url}/api/{method}")).header(CONTENT_TYPE, "application/json");
    if let Some(bearer) = bearer {
        request = request.bearer_auth(bearer);
    }
    let answer = request.body(input.to_string()).send().await?;
    let status = answer.status().as_u16();
    let body = serde_json::from_slice(&answer.bytes().await?).unwrap_or(Value::Null);
    Ok(Answer { status, body })
}

/// The certificates of a PEM text.
///
/// # Panics
/// It is none.
#[must_use]
#[expect(clippy::panic, reason = "a test without its certificates fails")]
pub fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    read.unwrap_or_else(|error| panic!("certificates in PEM: {error}"))
}

/// A clock of the client's TLS: that of the test.
#[derive(Debug)]
struct TestTime(Clock);

impl TimeProvider for TestTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().seconds()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}
