//! A provider that does as the real ones do, but for one lie that its test chooses. It checks what a relay sends it: PKCE,
//! the client's secret, the redirect address, and that a code is used once. On a thread of its own, so that it answers while
//! a test waits for a program.

mod device;

use super::{
    Lie, certified,
    key::{Key, draw, signed},
};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use bytes::Bytes;
use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{AUTHORIZATION, LOCATION},
};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use relay::clock::Clock;
use reqwest::Url;
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    error::Error,
    fs,
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread,
    time::Duration,
};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Its one client's secret.
const SECRET: &str = "hush";
/// The client.
const CLIENT: &str = "relay";

/// The provider.
pub struct FakeProvider {
    folder: TempDir,
    shared: Arc<Shared>,
}

struct Shared {
    issuer: String,
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    lie: Lie,
    user: Value,
    key: Key,
    codes: BTreeMap<String, Granted>,
    devices: BTreeMap<String, device::Device>,
    asked: BTreeMap<String, usize>,
}

#[derive(Clone)]
struct Granted {
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

impl FakeProvider {
    /// An honest one, on a free port of 127.0.0.1, by this clock. `alice` logs in.
    ///
    /// # Panics
    /// It can't be set up.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its provider fails")]
    pub fn start(clock: &Clock) -> Self {
        start(clock).unwrap_or_else(|error| panic!("a provider: {error}"))
    }

    /// Lies from now on like this.
    pub fn set(&self, lie: Lie) {
        self.shared.state().lie = lie;
    }

    /// Who logs in from now on: claims beside those of every token.
    pub fn set_user(&self, claims: Value) {
        self.shared.state().user = claims;
    }

    /// Signs with another key from now on, which it publishes in place of the old one.
    ///
    /// # Panics
    /// No key can be drawn.
    #[expect(clippy::panic, reason = "a test without its key fails")]
    pub fn rotate(&self) {
        let mut state = self.shared.state();
        let next = format!("{}x", state.key.id);
        state.key = draw(&next).unwrap_or_else(|error| panic!("a key: {error}"));
    }

    /// How often a path was asked for.
    #[must_use]
    pub fn asked(&self, path: &str) -> usize {
        self.shared.state().asked.get(path).copied().unwrap_or_default()
    }

    /// The settings of a relay that goes by it.
    #[must_use]
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        vec![
            ("oidc.issuer", self.shared.issuer.clone()),
            ("oidc.client_id", CLIENT.to_owned()),
            ("oidc.client_secret_file", file("secret")),
            ("oidc.ca_file", file("ca.pem")),
        ]
    }

    /// The file with its CA.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Its address.
    #[must_use]
    pub fn issuer(&self) -> &str {
        &self.shared.issuer
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(clock: &Clock) -> Result<FakeProvider, Box<dyn Error>> {
    let made = certified()?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("ca.pem"), &made.ca)?;
    fs::write(folder.path().join("secret"), format!("{SECRET}\n"))?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let certificate = CertificateDer::from_pem_slice(made.certificate.as_bytes())?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from_pem_slice(made.key.as_bytes())?)?;
    let state = State {
        lie: Lie::Nothing,
        user: json!({"sub": "alice", "preferred_username": "alice"}),
        key: draw("k1")?,
        codes: BTreeMap::new(),
        devices: BTreeMap::new(),
        asked: BTreeMap::new(),
    };
    let (told, address) = mpsc::channel::<SocketAddr>();
    let (hand, shared) = mpsc::channel::<Arc<Shared>>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::bind("127.0.0.1:0").await else { return };
            let Ok(address) = listener.local_addr() else { return };
            let _ = told.send(address);
            let Ok(shared) = shared.recv() else { return };
            serve(listener, TlsAcceptor::from(Arc::new(config)), shared).await;
        });
    });
    let issuer = format!("https://{}", address.recv()?);
    let shared = Arc::new(Shared { issuer, clock: clock.clone(), state: Mutex::new(state) });
    hand.send(shared.clone())?;
    Ok(FakeProvider { folder, shared })
}

/// Ends with the process.
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
    let path = parts.uri.path().to_owned();
    let lie = {
        let mut state = shared.state();
        *state.asked.entry(path.clone()).or_default() += 1;
        state.lie
    };
    if lie == Lie::Stalls && path != "/authorize" {
        tokio::time::sleep(Duration::from_secs(3600)).await;
    }
    let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    Ok(match path.as_str() {
        "/.well-known/openid-configuration" => discovery(&shared, lie),
        "/moved" => json_answer(&document(&shared, lie)),
        "/keys" => keys(&shared, lie),
        "/authorize" => authorize(&shared, lie, &pairs(parts.uri.query().unwrap_or_default())),
        "/device" => device::begin(&shared, lie, header, &pairs(&String::from_utf8_lossy(&bytes))),
        "/token" => token(&shared, lie, header, &pairs(&String::from_utf8_lossy(&bytes))),
        _ => plain(StatusCode::NOT_FOUND, ""),
    })
}

fn document(shared: &Shared, lie: Lie) -> Value {
    let issuer = &shared.issuer;
    let mut document = json!({
        "issuer": issuer, "authorization_endpoint": format!("{issuer}/authorize?tenant=x"),
        "token_endpoint": format!("{issuer}/token"), "jwks_uri": format!("{issuer}/keys"),
        "end_session_endpoint": format!("{issuer}/end"), "response_types_supported": ["code"],
        "authorization_response_iss_parameter_supported": true,
        "device_authorization_endpoint": format!("{issuer}/device"),
    });
    let mut put = |name: &str, value: Value| {
        if let Some(member) = document.get_mut(name) {
            *member = value;
        }
    };
    match lie {
        Lie::DiscoversAnother => put("issuer", "https://other.example".into()),
        Lie::NoDevices => put("device_authorization_endpoint", Value::Null),
        Lie::DiscoversPlainHttp => put("token_endpoint", issuer.replace("https", "http").into()),
        _ => {}
    }
    document
}

fn discovery(shared: &Shared, lie: Lie) -> Response<Full<Bytes>> {
    match lie {
        Lie::RedirectsDiscovery => redirect(&format!("{}/moved", shared.issuer)),
        Lie::LongDiscovery => {
            let mut document = document(shared, lie);
            if let Some(members) = document.as_object_mut() {
                members.insert("padding".to_owned(), "x".repeat(70 << 10).into());
            }
            json_answer(&document)
        }
        _ => json_answer(&document(shared, lie)),
    }
}

fn keys(shared: &Shared, lie: Lie) -> Response<Full<Bytes>> {
    let jwk = shared.state().key.jwk.clone();
    match lie {
        Lie::NoKeys => json_answer(&json!({"keys": "none"})),
        Lie::LongKeys => json_answer(&json!({"keys": [jwk], "padding": "x".repeat(300 << 10)})),
        // Keys of a kind that nobody knows are no reason to refuse the others.
        _ => json_answer(&json!({"keys": [{"kty": "quantum"}, jwk]})),
    }
}

fn authorize(shared: &Shared, lie: Lie, asked: &BTreeMap<String, String>) -> Response<Full<Bytes>> {
    let of = |name: &str| asked.get(name).cloned().unwrap_or_default();
    let right = of("response_type") == "code"
        && of("client_id") == CLIENT
        && of("code_challenge_method") == "S256"
        && of("scope").split(' ').any(|scope| scope == "openid")
        && of("tenant") == "x";
    if !right {
        return plain(StatusCode::BAD_REQUEST, "not what a relay asks");
    }
    let mut state = shared.state();
    let code = format!("code-{}", state.codes.len());
    let granted =
        Granted { nonce: of("nonce"), challenge: of("code_challenge"), redirect_uri: of("redirect_uri") };
    state.codes.insert(code.clone(), granted);
    let issuer = if lie == Lie::AnswersForAnother { "https://other.example" } else { &shared.issuer };
    let Ok(mut url) = Url::parse(&of("redirect_uri")) else {
        return plain(StatusCode::BAD_REQUEST, "no address");
    };
    url.query_pairs_mut().extend_pairs([("code", code.as_str()), ("state", &of("state")), ("iss", issuer)]);
    redirect(url.as_str())
}

fn token(shared: &Shared, lie: Lie, header: &str, form: &BTreeMap<String, String>) -> Response<Full<Bytes>> {
    match lie {
        Lie::Fails => return plain(StatusCode::INTERNAL_SERVER_ERROR, "down"),
        Lie::RedirectsToken => return redirect(&format!("{}/token", shared.issuer)),
        Lie::RefusesCode => return refused("invalid_grant"),
        Lie::NoJson => return plain(StatusCode::OK, "<html>"),
        Lie::NoToken => return json_answer(&json!({"access_token": "x", "token_type": "Bearer"})),
        Lie::LongAnswer => return json_answer(&json!({"id_token": "x".repeat(70 << 10)})),
        _ => {}
    }
    let of = |name: &str| form.get(name).map(String::as_str).unwrap_or_default();
    if header != authorization() {
        return refused("invalid_client");
    }
    let mut state = shared.state();
    if of("grant_type") == device::GRANT {
        return device::token(shared, &mut state, lie, of("device_code"));
    }
    let Some(granted) = state.codes.remove(of("code")) else { return refused("invalid_grant") };
    let proved = URL_SAFE_NO_PAD.encode(digest(&SHA256, of("code_verifier").as_bytes()));
    if of("grant_type") != "authorization_code"
        || proved != granted.challenge
        || of("redirect_uri") != granted.redirect_uri
    {
        return refused("invalid_grant");
    }
    answer_token(shared, &state, lie, &granted.nonce)
}

fn answer_token(shared: &Shared, state: &State, lie: Lie, nonce: &str) -> Response<Full<Bytes>> {
    let claims = claims(shared, state, lie, nonce);
    match signed(&state.key, lie, &claims) {
        Ok(token) => json_answer(&json!({"access_token": "x", "token_type": "Bearer", "id_token": token})),
        Err(error) => plain(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// What its client shows.
fn authorization() -> String {
    format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{SECRET}")))
}

fn claims(shared: &Shared, state: &State, lie: Lie, nonce: &str) -> Value {
    let now = shared.clock.now().seconds();
    let mut claims =
        json!({"iss": shared.issuer, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": nonce});
    if let (Some(claims), Some(user)) = (claims.as_object_mut(), state.user.as_object()) {
        claims.extend(user.clone());
        let mut put = |name: &str, value: Value| claims.insert(name.to_owned(), value);
        match lie {
            Lie::WrongNonce => put("nonce", "other".into()),
            Lie::NoNonce => put("nonce", Value::Null),
            Lie::OtherAudience => put("aud", "other".into()),
            Lie::SeveralAudiences => put("aud", json!([CLIENT, "other"])),
            Lie::OtherParty => put("azp", "other".into()),
            Lie::OtherIssuer => put("iss", "https://other.example".into()),
            Lie::Expired => put("exp", (now - 61).into()),
            Lie::FromTheFuture => put("iat", (now + 3600).into()),
            Lie::FromThePast => put("iat", (now - 3600).into()),
            Lie::NotYet => put("nbf", (now + 3600).into()),
            Lie::EmptySubject => put("sub", "".into()),
            Lie::LongSubject => put("sub", "x".repeat(256).into()),
            Lie::LongToken => put("padding", "x".repeat(16 << 10).into()),
            _ => None,
        };
    }
    claims
}

fn pairs(text: &str) -> BTreeMap<String, String> {
    let url = Url::parse(&format!("https://form/?{text}"));
    url.map(|url| url.query_pairs().into_owned().collect()).unwrap_or_default()
}

fn refused(word: &str) -> Response<Full<Bytes>> {
    plain(
        StatusCode::BAD_REQUEST,
        &json!({"error": word, "error_description": "told-by-the-provider"}).to_string(),
    )
}

fn redirect(location: &str) -> Response<Full<Bytes>> {
    let mut answer = plain(StatusCode::FOUND, "");
    if let Ok(value) = HeaderValue::from_str(location) {
        answer.headers_mut().insert(LOCATION, value);
    }
    answer
}

fn json_answer(body: &Value) -> Response<Full<Bytes>> {
    plain(StatusCode::OK, &body.to_string())
}

fn plain(status: StatusCode, body: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(body.to_owned()));
    *answer.status_mut() = status;
    answer
}
