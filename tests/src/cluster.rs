//! A Kubernetes cluster, as far as one pod's relay sees it: an API server with a CA of its own that takes Secrets, and the
//! folder of the pod's service account.
//!
//! It obeys, refuses or stalls as its test says, and keeps what it was asked. What is right is for the test to say. On a
//! thread of its own, so that it answers while a test waits for a program.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header::AUTHORIZATION};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::{ServerConfig, pki_types::PrivateKeyDer};
use serde_json::{Value, json};
use std::{
    convert::Infallible,
    error::Error,
    fs,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::watch};
use tokio_rustls::TlsAcceptor;

/// How long a request may take to come.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// The pod's namespace.
const NAMESPACE: &str = "fleet";

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cluster {
    /// The Secret is written, and the answer shows it.
    Obeys,
    /// An answer of this status, which quotes the request, and nothing else.
    Refuses(u16),
    /// Nothing until it is something else; whatever that is holds for this request too.
    Stalls,
    /// Somebody else puts another key into the Secret, right before a value of it is exchanged.
    Races,
    /// The Secret is written, and no answer comes until it is something else.
    WritesAndStalls,
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// `PATCH`.
    pub method: String,
    /// With the query.
    pub path: String,
    /// The header `content-type`.
    pub content_type: String,
    /// The header `authorization`.
    pub authorization: String,
    /// The body, which is JSON.
    pub body: Value,
}

/// The API server and the pod's service account. It is gone when this value is.
pub struct FakeCluster {
    account: TempDir,
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    mood: watch::Sender<Cluster>,
    asked: Mutex<Vec<Asked>>,
    secret: Mutex<Option<Value>>,
    version: AtomicU64,
}

impl FakeCluster {
    /// A cluster that obeys, on a free port of 127.0.0.1, and a service account.
    ///
    /// # Panics
    /// It can't be set up.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its cluster fails")]
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            mood: watch::Sender::new(Cluster::Obeys),
            asked: Mutex::default(),
            secret: Mutex::default(),
            version: AtomicU64::new(1),
        });
        let started = start(&shared);
        let (account, address) = started.unwrap_or_else(|error| panic!("a cluster: {error}"));
        let this = Self { account, address, shared };
        this.set_token("first");
        this
    }

    /// What becomes of requests from now on, and of those that wait.
    pub fn set(&self, mood: Cluster) {
        self.shared.mood.send_replace(mood);
    }

    /// Exchanges the service account's token, as the kubelet does every hour.
    ///
    /// # Panics
    /// The file can't be written.
    #[expect(clippy::panic, reason = "a test without its files fails")]
    pub fn set_token(&self, token: &str) {
        let written = fs::write(self.account.path().join("token"), format!("{token}\n"));
        written.unwrap_or_else(|error| panic!("a token: {error}"));
    }

    /// The folder of the service account.
    #[must_use]
    pub fn account(&self) -> &Path {
        self.account.path()
    }

    /// What the kubelet puts into every container's environment.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: String| (format!("KUBERNETES_SERVICE_{name}"), value);
        vec![pair("HOST", self.address.ip().to_string()), pair("PORT", self.address.port().to_string())]
    }

    /// All requests so far.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        locked(&self.shared.asked).clone()
    }

    /// The Secret that was written last, as an object of the API.
    #[must_use]
    pub fn secret(&self) -> Option<Value> {
        locked(&self.shared.secret).clone()
    }

    /// Puts this text into a key of the Secret, as somebody else does; its other keys stay.
    pub fn put(&self, key: &str, text: &str) {
        self.shared.change(&json!({key: STANDARD.encode(text)}));
    }

    /// The text of a key of the Secret.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<String> {
        let secret = self.secret()?;
        let encoded = secret.get("data")?.get(key)?.as_str()?;
        String::from_utf8(STANDARD.decode(encoded).ok()?).ok()
    }

    /// Waits for so many requests since the start.
    ///
    /// # Panics
    /// They don't come within a minute.
    pub async fn wait_for(&self, requests: usize) {
        let started = Instant::now();
        while self.asked().len() < requests {
            assert!(started.elapsed() < LONGEST_WAIT, "{} requests, not {requests}", self.asked().len());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Shared {
    /// Puts these keys into the Secret, which is another then.
    fn change(&self, data: &Value) -> Value {
        let mut secret = locked(&self.secret);
        let mut all = secret.as_ref().and_then(|secret| secret.get("data")?.as_object().cloned());
        let all = all.get_or_insert_default();
        all.extend(data.as_object().cloned().unwrap_or_default());
        let version = self.version.fetch_add(1, Ordering::SeqCst).to_string();
        let changed = json!({"kind": "Secret", "metadata": {"resourceVersion": version}, "data": all});
        secret.insert(changed).clone()
    }

    /// What a Secret's reader is shown, and what becomes of a merge patch (RFC 7386) of one state of it.
    fn read_or_merge(
        &self,
        method: &http::Method,
        content_type: &str,
        body: &Value,
    ) -> Option<Response<Full<Bytes>>> {
        let merges = content_type == "application/merge-patch+json";
        if method != http::Method::GET && !merges {
            return None;
        }
        let refuse = |status: StatusCode, reason: &str| {
            json_answer(status, &json!({"kind": "Status", "reason": reason}))
        };
        let Some(known) = locked(&self.secret).clone() else {
            return Some(refuse(StatusCode::NOT_FOUND, "NotFound"));
        };
        if !merges {
            return Some(json_answer(StatusCode::OK, &known));
        }
        let version = |of: &Value| of.pointer("/metadata/resourceVersion").cloned();
        if version(body) != version(&known) {
            return Some(refuse(StatusCode::CONFLICT, "Conflict"));
        }
        let changed = self.change(body.get("data").unwrap_or(&Value::Null));
        Some(json_answer(StatusCode::OK, &changed))
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn start(shared: &Arc<Shared>) -> Result<(TempDir, SocketAddr), Box<dyn Error>> {
    let (ca, config) = certified()?;
    let account = tempfile::tempdir()?;
    fs::write(account.path().join("ca.crt"), ca)?;
    fs::write(account.path().join("namespace"), NAMESPACE)?;
    let (told, address) = mpsc::channel();
    let (shared, runtime) =
        (shared.clone(), tokio::runtime::Builder::new_current_thread().enable_all().build()?);
    thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else { return };
            let Ok(address) = listener.local_addr() else { return };
            let _ = told.send(address);
            serve(listener, TlsAcceptor::from(Arc::new(config)), shared).await;
        });
    });
    Ok((account, address.recv()?))
}

/// The CA's certificate in PEM, and TLS with a certificate of it for 127.0.0.1.
fn certified() -> Result<(String, ServerConfig), Box<dyn Error>> {
    let mut ca = CertificateParams::default();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    ca.distinguished_name.push(rcgen::DnType::CommonName, "kubernetes");
    let key = KeyPair::generate()?;
    let pem = ca.self_signed(&key)?.pem();
    let issuer = Issuer::new(ca, key);
    let key = KeyPair::generate()?;
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()])?.signed_by(&key, &issuer)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(
            vec![leaf.der().clone()],
            PrivateKeyDer::try_from(key.serialize_der()).map_err(str::to_owned)?,
        )?;
    Ok((pem, config))
}

/// Ends with the process; who asks no more costs nothing.
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

async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let header = |name: &str| {
        let value = parts.headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default().to_owned()
    };
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let asked = Asked {
        method: parts.method.to_string(),
        path: parts.uri.to_string(),
        content_type: header("content-type"),
        authorization: header(AUTHORIZATION.as_str()),
        body: body.clone(),
    };
    locked(&shared.asked).push(asked);
    let mut moods = shared.mood.subscribe();
    let mut mood = *moods.borrow_and_update();
    while let Cluster::Stalls | Cluster::WritesAndStalls = mood {
        if mood == Cluster::WritesAndStalls {
            *locked(&shared.secret) = Some(body.clone());
        }
        if moods.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        mood = *moods.borrow_and_update();
    }
    if let Cluster::Refuses(status) = mood {
        let message = format!("can't apply {body}");
        let refusal = json!({"kind": "Status", "code": status, "reason": "Refused", "message": message});
        return Ok(json_answer(StatusCode::from_u16(status).unwrap_or_default(), &refusal));
    }
    if mood == Cluster::Races && parts.method == http::Method::PATCH {
        shared.change(&json!({"other": "eA=="}));
    }
    if let Some(answer) = shared.read_or_merge(&parts.method, &header("content-type"), &body) {
        return Ok(answer);
    }
    *locked(&shared.secret) = Some(body.clone());
    Ok(json_answer(StatusCode::OK, &body))
}

fn json_answer(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = status;
    answer
}
