//! Certificates and a relay for tests: a TLS server that keeps what it was sent and says what a test wants.

use crate::host::System;
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, SanType, SubjectPublicKeyInfo,
};
use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};
use serde_json::{Value, json};
use shared::{
    csr::CertificateRequest,
    id::{JoinRequestId, NodeId},
    problem::{Code, Problem},
    time::Timestamp,
};
use std::{
    collections::{HashMap, VecDeque},
    net::SocketAddr,
    sync::{Arc, Mutex},
};
use tokio::{io::AsyncReadExt as _, net::TcpListener};
use tokio_rustls::TlsAcceptor;

use crate::host::Host as _;

/// A TPM for tests, as the stories have it.
#[path = "../../tests/src/swtpm.rs"]
#[expect(unreachable_pub, reason = "the stories export it")]
mod swtpm;
pub(crate) mod tpm;
pub(crate) use swtpm::{Made, Swtpm};

pub(crate) type Ca = CertifiedIssuer<'static, KeyPair>;

/// A CA certificate's content, good for ten years around now.
fn ca_params(name: &str) -> CertificateParams {
    let now = System.wall();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = now.plus_seconds(-157_000_000).to_offset_date_time();
    params.not_after = now.plus_seconds(157_000_000).to_offset_date_time();
    params
}

pub(crate) fn root(name: &str) -> Ca {
    CertifiedIssuer::self_signed(ca_params(name), KeyPair::generate().unwrap()).unwrap()
}

pub(crate) fn intermediate(name: &str, parent: &Ca) -> Ca {
    CertifiedIssuer::signed_by(ca_params(name), KeyPair::generate().unwrap(), parent).unwrap()
}

/// The pin of a CA.
pub(crate) fn pin(ca: &Ca) -> [u8; 32] {
    use rcgen::PublicKeyData as _;
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &ca.key().subject_public_key_info());
    digest.as_ref().try_into().unwrap()
}

/// What a leaf says.
#[derive(Clone)]
pub(crate) struct Leaf {
    pub(crate) hosts: Vec<&'static str>,
    pub(crate) uri: Option<String>,
    pub(crate) usage: ExtendedKeyUsagePurpose,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Leaf {
    /// A relay's, for this machine.
    pub(crate) fn relay() -> Self {
        let now = System.wall();
        Self {
            hosts: vec!["localhost", "127.0.0.1"],
            uri: Some("spiffe://td.example/relay".into()),
            usage: ExtendedKeyUsagePurpose::ServerAuth,
            from: now.plus_seconds(-300),
            until: now.plus_seconds(86_400),
        }
    }

    /// A node's.
    pub(crate) fn node(until: Timestamp) -> Self {
        Self {
            hosts: Vec::new(),
            uri: Some("spiffe://td.example/node/pl_1/nd_1".into()),
            usage: ExtendedKeyUsagePurpose::ClientAuth,
            from: System.wall().plus_seconds(-300),
            until,
        }
    }

    fn params(&self) -> CertificateParams {
        let hosts: Vec<String> = self.hosts.iter().map(|host| (*host).to_owned()).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params
            .subject_alt_names
            .extend(self.uri.iter().map(|uri| SanType::URI(uri.as_str().try_into().unwrap())));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![self.usage.clone()];
        params.not_before = self.from.to_offset_date_time();
        params.not_after = self.until.to_offset_date_time();
        params
    }

    /// A certificate for a fresh key.
    pub(crate) fn issue(&self, ca: &Ca) -> (CertificateDer<'static>, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (self.params().signed_by(&key, ca).unwrap().der().clone(), key)
    }

    fn issue_for(&self, csr: &CertificateRequest, ca: &Ca) -> String {
        let key = SubjectPublicKeyInfo::from_der(&csr.key.spki_der()).unwrap();
        self.params().signed_by(&key, ca).unwrap().pem()
    }
}

/// What the relay does with the next call, instead of what it should.
#[derive(Clone)]
pub(crate) enum Fault {
    /// Refuses.
    Refuse(Problem),
    /// Judges, and closes the connection instead of answering.
    DropAnswer,
    /// Defers the join.
    Defer,
    /// Answers this, with status 502.
    Garbage,
    /// Challenges the TPM: what the body is made into is the answer.
    Challenge(Arc<dyn Fn(&Value) -> Value + Send + Sync>),
    /// Answers this.
    Answer(u16, Value),
}

/// What came in.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) bearer: Option<String>,
    pub(crate) body: Value,
    /// The certificate that the caller showed.
    pub(crate) shown: Option<Vec<u8>>,
    /// Which connection it came on.
    pub(crate) connection: usize,
}

#[derive(Default)]
struct Book {
    calls: Vec<Call>,
    faults: VecDeque<Fault>,
    joins: HashMap<[u8; 32], Value>,
    issued: usize,
    bytes: usize,
    ttl_seconds: i64,
    wants_renewal: bool,
}

/// A relay in this process.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    pub(crate) root: Ca,
    nodes: Ca,
    book: Mutex<Book>,
}

impl Relay {
    /// A good one.
    pub(crate) async fn start() -> Arc<Self> {
        let root = root("root");
        let issuing = intermediate("relay", &root);
        let chain = vec![issuing.der().clone(), root.der().clone()];
        Self::start_with(root, &issuing, &Leaf::relay(), chain, true).await
    }

    /// One that shows this certificate and this chain behind it.
    pub(crate) async fn start_with(
        root: Ca,
        issuing: &Ca,
        leaf: &Leaf,
        mut chain: Vec<CertificateDer<'static>>,
        tls13: bool,
    ) -> Arc<Self> {
        let nodes = intermediate("node", &root);
        let (certificate, key) = leaf.issue(issuing);
        chain.insert(0, certificate);
        let acceptor = acceptor(&root, chain, &key, tls13);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let book = Mutex::new(Book { ttl_seconds: 3600, ..Book::default() });
        let relay = Arc::new(Self { address, root, nodes, book });
        let accepting = Arc::clone(&relay);
        tokio::spawn(async move {
            for connection in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(Arc::clone(&accepting).serve(stream, acceptor.clone(), connection));
            }
        });
        relay
    }

    pub(crate) fn pin(&self) -> [u8; 32] {
        pin(&self.root)
    }
    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.address.port())
    }
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.book.lock().unwrap().calls.clone()
    }
    /// Bytes that came in behind a handshake.
    pub(crate) fn bytes(&self) -> usize {
        self.book.lock().unwrap().bytes
    }
    pub(crate) fn issued(&self) -> usize {
        self.book.lock().unwrap().issued
    }
    pub(crate) fn fault(&self, fault: Fault) {
        self.book.lock().unwrap().faults.push_back(fault);
    }
    pub(crate) fn refuse(&self, problem: Problem) {
        self.fault(Fault::Refuse(problem));
    }
    pub(crate) fn certificates_live(&self, seconds: i64) {
        self.book.lock().unwrap().ttl_seconds = seconds;
    }
    pub(crate) fn want_renewal(&self) {
        self.book.lock().unwrap().wants_renewal = true;
    }

    async fn serve(self: Arc<Self>, stream: tokio::net::TcpStream, acceptor: TlsAcceptor, connection: usize) {
        let Ok(mut stream) = acceptor.accept(stream).await else { return };
        let shown =
            stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).map(|der| der.to_vec());
        // One byte first: what is sent to a relay that is not ours is counted, whatever it is.
        let mut first = [0; 1];
        let Ok(1) = stream.read(&mut first).await else { return };
        self.book.lock().unwrap().bytes += 1;
        let (read, write) = tokio::io::split(stream);
        let stream = tokio::io::join(std::io::Cursor::new(first).chain(read), write);
        let service = service_fn(move |request: Request<Incoming>| {
            let (relay, shown) = (Arc::clone(&self), shown.clone());
            async move { relay.answer(request, shown, connection).await }
        });
        let _ =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
        shown: Option<Vec<u8>>,
        connection: usize,
    ) -> Result<Response<Full<Bytes>>, std::io::Error> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let call = Call {
            path: parts.uri.path().to_owned(),
            bearer: bearer(&parts.headers),
            body: serde_json::from_slice(&body).unwrap(),
            shown,
            connection,
        };
        let mut book = self.book.lock().unwrap();
        book.bytes += body.len();
        book.calls.push(call.clone());
        match book.faults.pop_front() {
            Some(Fault::Refuse(problem)) => Ok(refusal(&problem)),
            Some(Fault::DropAnswer) => {
                let _ = self.judge(&mut book, &call);
                Err(std::io::Error::other("dropped"))
            }
            Some(Fault::Defer) => Ok(respond(StatusCode::OK, &deferral())),
            Some(Fault::Challenge(make)) => Ok(respond(StatusCode::OK, &make(&call.body))),
            Some(Fault::Answer(status, value)) => Ok(respond(StatusCode::from_u16(status).unwrap(), &value)),
            Some(Fault::Garbage) => Ok(respond(StatusCode::BAD_GATEWAY, &json!("<html>"))),
            None => Ok(match self.judge(&mut book, &call) {
                Ok(value) => respond(StatusCode::OK, &value),
                Err(problem) => refusal(&problem),
            }),
        }
    }

    fn judge(&self, book: &mut Book, call: &Call) -> Result<Value, Box<Problem>> {
        let now = System.wall();
        let who = |wanted: bool| match wanted {
            true => Ok(()),
            false => Err(Box::new(Problem::new(Code::Unauthenticated, "no valid credential"))),
        };
        match call.path.as_str() {
            "/api/node/join" | "/api/node/renew" => {
                who(if call.path.ends_with("join") { call.bearer.is_some() } else { call.shown.is_some() })?;
                let csr = CertificateRequest::parse(call.body["csr"].as_str().unwrap()).unwrap();
                if let Some(answer) = book.joins.get(&csr.digest()) {
                    return Ok(answer.clone());
                }
                book.issued += 1;
                let until = now.plus_seconds(book.ttl_seconds);
                let answer = json!({
                    "status": "issued",
                    "nodeId": NodeId::derive(&[7; 32]),
                    "generation": 1,
                    "trust": "platform",
                    "certificate": Leaf::node(until).issue_for(&csr, &self.nodes),
                    "chain": self.nodes.pem(),
                    "caBundle": self.root.pem(),
                    "renewAfter": now.plus_seconds(book.ttl_seconds / 2),
                    "expiresAt": until,
                    "serverTime": now,
                });
                book.joins.insert(csr.digest(), answer.clone());
                Ok(answer)
            }
            "/api/node/heartbeat" => {
                who(call.shown.is_some())?;
                let renew = std::mem::take(&mut book.wants_renewal);
                Ok(json!({"serverTime": now, "renew": renew}))
            }
            "/api/node/secrets" => {
                who(call.shown.is_some())?;
                Ok(json!({"secrets": {"one": "hush"}}))
            }
            _ => Err(Box::new(Problem::new(Code::NotFound, "no such method"))),
        }
    }
}

fn deferral() -> Value {
    json!({
        "status": "deferred",
        "joinRequestId": JoinRequestId::derive(&[9; 32]),
        "tenantId": "tenant-a",
        "poolId": "pool-a",
        "reasons": ["unknownMachine"],
        "retryAfterSeconds": 30,
    })
}

fn bearer(headers: &HeaderMap) -> Option<String> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()?.strip_prefix("Bearer ").map(str::to_owned)
}

fn refusal(problem: &Problem) -> Response<Full<Bytes>> {
    respond(StatusCode::from_u16(problem.status).unwrap(), &serde_json::to_value(problem).unwrap())
}

fn respond(status: StatusCode, value: &Value) -> Response<Full<Bytes>> {
    Response::builder().status(status).body(Full::new(Bytes::from(value.to_string()))).unwrap()
}

fn acceptor(root: &Ca, chain: Vec<CertificateDer<'static>>, key: &KeyPair, tls13: bool) -> TlsAcceptor {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(root.der().clone()).unwrap();
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
        .allow_unauthenticated()
        .build()
        .unwrap();
    let version = if tls13 { &rustls::version::TLS13 } else { &rustls::version::TLS12 };
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())))
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// A machine with an empty state directory of its own, and a token.
pub(crate) struct Machine {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) token: shared::secret::Secret,
    pub(crate) host: Arc<crate::host::Fake>,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let token = token(1);
        Self {
            folder: tempfile::tempdir().unwrap(),
            token,
            host: Arc::new(crate::host::Fake::at(System.wall())),
        }
    }

    pub(crate) fn settings(&self, relay: &Relay) -> crate::config::Settings {
        use crate::config::fragment::{Fragment, Value};
        let path = |name: &str| Value::Text(self.folder.path().join(name).display().to_string());
        let pin = format!("sha256:{}", shared::hex::encode(&relay.pin()));
        let flags = Fragment::from_flags(vec![
            ("relay", Value::Text(relay.url())),
            ("ca_pins", Value::List(vec![pin])),
            ("state_dir", path("state")),
            ("dmi_dir", path("no-dmi")),
            ("net_dir", path("no-net")),
            // Tests leave the TPM of the machine that they run on alone.
            ("tpm", Value::Text("off".into())),
        ]);
        let merged = crate::config::merge::Merged::of(vec![flags]);
        crate::config::Settings::parse(&merged).unwrap()
    }

    pub(crate) fn sources(&self) -> crate::token::Sources {
        crate::token::Sources { variable: Some(self.token.clone()), ..crate::token::Sources::default() }
    }

    pub(crate) fn node(&self, relay: &Relay) -> crate::node::Node {
        crate::node::Node::open(self.settings(relay), self.sources(), Arc::clone(&self.host) as _).unwrap()
    }
}

/// A token by number.
pub(crate) fn token(number: u8) -> shared::secret::Secret {
    use shared::{id::JoinTokenId, token::JoinToken};
    JoinToken::mint(JoinTokenId::derive(&[number; 32]), &[number ^ 0x5a; 32]).0.bearer()
}
