//! A relay in the test's own process: real TLS on a free port, a clock that the test moves, and simulated machines
//! that speak to it. For what needs no second process: most of the API's behaviour.

use crate::{
    Answer, Database,
    client::{Identity, client, post},
};
use rcgen::{CertificateParams, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use relay::{
    clock::Clock,
    config::{Settings, Sources},
    context::Context,
    random::Random,
    server::Relay,
};
use reqwest::Client;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinHandle};

/// A relay in this process. Dropping it stops it.
pub struct LocalRelay {
    /// What its calls reach.
    pub context: Arc<Context>,
    /// The clock that it and the machines go by.
    pub clock: Clock,
    address: std::net::SocketAddr,
    data_dir: PathBuf,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
}

impl LocalRelay {
    /// Starts a relay with its data in `home/NAME` on this database. Relays that share a database share the master
    /// key `home/master.key`.
    ///
    /// # Panics
    /// It does not start.
    pub async fn start(home: &Path, name: &str, database: &Database, clock: &Clock) -> Self {
        Self::start_with(home, name, database, clock, &[]).await
    }

    /// As [`LocalRelay::start`], with more settings.
    ///
    /// # Panics
    /// It does not start.
    #[expect(clippy::panic, reason = "a test without its relay fails")]
    pub async fn start_with(
        home: &Path,
        name: &str,
        database: &Database,
        clock: &Clock,
        more: &[(&str, &str)],
    ) -> Self {
        let data_dir = home.join(name);
        let settings = settings(&data_dir, &home.join("master.key"), database, more);
        let relay = Relay::start(settings, clock.clone(), Random::system())
            .await
            .unwrap_or_else(|error| panic!("a relay does not start: {}", relay::fault::chain(&error)));
        let (context, address) = (relay.context().clone(), relay.address());
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(async move {
            let ended = relay.run(async move { drop(stopped.await) }).await;
            assert!(ended.is_ok(), "a relay ends with {ended:?}");
        });
        let this = Self {
            context,
            clock: clock.clone(),
            address,
            data_dir,
            stop: Some(stop),
            running: Some(running),
        };
        while !this.data_dir.join("listen").exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        this
    }

    /// Drains it and waits for its end.
    ///
    /// # Panics
    /// It does not end well.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(running) = self.running.take() {
            assert!(running.await.is_ok(), "a relay's end");
        }
    }

    /// Ends it as if it were killed: what it does is not done any further.
    pub async fn kill(mut self) {
        if let Some(running) = self.running.take() {
            running.abort();
            let _ = running.await;
        }
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The credential of the first admin.
    #[must_use]
    pub fn admin(&self) -> String {
        read(&self.data_dir.join("bootstrap/admin_editor_token"))
    }

    /// Renews the admins' credentials: a moved clock ends them, and the relay itself looks at them once a minute.
    ///
    /// # Panics
    /// They can't be renewed.
    pub async fn renew_admin(&self) {
        let directory = self.data_dir.join("bootstrap");
        let pair = relay::auth::bootstrap::PairOfFiles::new(self.context.clone(), directory);
        let renewed = pair.keep().await;
        assert!(renewed.is_ok(), "renewing the bootstrap credentials: {renewed:?}");
    }

    /// The credential of the admin that only reads.
    #[must_use]
    pub fn viewer(&self) -> String {
        read(&self.data_dir.join("bootstrap/admin_viewer_token"))
    }

    /// A client that trusts this relay, with a certificate chain and key in PEM where one is given.
    ///
    /// # Panics
    /// They are no PEM.
    #[must_use]
    pub fn client(&self, identity: Option<(&str, &str)>) -> Client {
        let identity = identity.map(|(chain, key)| Identity::from_pem(chain, key));
        client(&self.ca_bundle(), &self.clock, identity)
    }

    /// The file with the CA certificate that the relay's own certificate comes from.
    #[must_use]
    pub fn ca_bundle(&self) -> PathBuf {
        self.data_dir.join("trust-bundle.pem")
    }

    /// Calls a method (`compute/pools/get`) with a bearer's credential.
    ///
    /// # Panics
    /// No answer comes.
    pub async fn call_as(&self, bearer: &str, method: &str, input: &Value) -> Answer {
        post(&self.client(None), &self.url(), Some(bearer), method, input).await
    }

    /// Calls a method as the first admin and answers what it gave.
    ///
    /// # Panics
    /// The relay does not answer 200.
    pub async fn call(&self, method: &str, input: &Value) -> Value {
        let answer = self.call_as(&self.admin(), method, input).await;
        assert_eq!(answer.status, 200, "{method}: {}", answer.body);
        answer.body
    }

    /// Mints a join token for `default`, the members of `more` beside; answers its bearer's form.
    ///
    /// # Panics
    /// The relay refuses.
    pub async fn mint(&self, more: Value) -> String {
        let mut input = json!({
            "tenantId": "provider", "poolId": "default", "ttlSeconds": 3600, "idempotencyKey": unique("mint"),
        });
        if let (Some(input), Value::Object(more)) = (input.as_object_mut(), more) {
            input.extend(more);
        }
        let answer = self.call("compute/joinTokens/create", &input).await;
        answer.get("token").and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl Drop for LocalRelay {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

/// A text that no other call of this process or another is given.
#[must_use]
pub fn unique(what: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{what}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// A simulated machine: a key, the request for it, and what it claims.
pub struct Machine {
    /// What it says it is.
    pub identity: Value,
    /// The certificate request that it sends until its join ends.
    pub csr: String,
    key: KeyPair,
    certificate: Option<String>,
}

impl Machine {
    /// Machine number `number`: another number is another machine in every identifier. Each call draws a new key.
    ///
    /// # Panics
    /// No key can be drawn.
    #[must_use]
    pub fn new(number: u32) -> Self {
        let digits = format!("{number:012x}");
        let mac: Vec<&str> = [0, 2, 4, 6, 8, 10].iter().filter_map(|at| digits.get(*at..at + 2)).collect();
        Self::claiming(json!({
            "productUuid": format!("4c4c4544-0042-4a10-8054-{digits}"),
            "serial": format!("SN-{number:08}"),
            "macs": [mac.join(":")],
            "hostname": format!("machine-{number}"),
        }))
    }

    /// A machine that claims this, with a new key.
    ///
    /// # Panics
    /// No key can be drawn.
    #[expect(clippy::panic, reason = "a test without its key fails")]
    #[must_use]
    pub fn claiming(identity: Value) -> Self {
        let key =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap_or_else(|error| panic!("a key: {error}"));
        let csr = request(&key);
        Self { identity, csr, key, certificate: None }
    }

    /// Draws another request for the same key, as a new join would.
    pub fn new_request(&mut self) {
        self.csr = request(&self.key);
    }

    /// Draws a new key and its request.
    #[must_use]
    pub fn with_new_key(&self) -> Self {
        Self::claiming(self.identity.clone())
    }

    /// The key in PEM.
    #[must_use]
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// The public key as an uncompressed point.
    #[must_use]
    pub fn point(&self) -> Vec<u8> {
        self.key.public_key_raw().to_vec()
    }

    /// What it sends to join.
    #[must_use]
    pub fn join_input(&self) -> Value {
        json!({
            "csr": self.csr, "identity": self.identity,
            "agent": {"version": "0.1.0", "os": "Debian GNU/Linux 12", "arch": "x86_64"},
        })
    }

    /// Joins, and keeps the certificate it is given.
    pub async fn join(&mut self, relay: &LocalRelay, token: &str) -> Answer {
        let answer = relay.call_as(token, "node/join", &self.join_input()).await;
        self.keep(&answer);
        answer
    }

    /// Renews with the same key and a new request, and keeps the certificate it is given.
    pub async fn renew(&mut self, relay: &LocalRelay) -> Answer {
        let answer = self.call(relay, "node/renew", &json!({"csr": request(&self.key)})).await;
        self.keep(&answer);
        answer
    }

    /// Calls a method with the certificate it has, on a connection of its own.
    ///
    /// # Panics
    /// No answer comes.
    pub async fn call(&self, relay: &LocalRelay, method: &str, input: &Value) -> Answer {
        post(&self.client(relay), &relay.url(), None, method, input).await
    }

    /// A client with the certificate it has, for calls on a kept connection.
    #[must_use]
    pub fn client(&self, relay: &LocalRelay) -> Client {
        let key = self.key_pem();
        relay.client(self.certificate.as_deref().map(|chain| (chain, key.as_str())))
    }

    /// The certificate chain that it has.
    #[must_use]
    pub fn certificate(&self) -> Option<&str> {
        self.certificate.as_deref()
    }

    /// Takes another chain for its own.
    pub fn set_certificate(&mut self, chain: Option<String>) {
        self.certificate = chain;
    }

    /// Keeps the certificate that an answer gave, if it gave one.
    pub fn keep(&mut self, answer: &Answer) {
        if let (Some(leaf), Some(chain)) = (text(&answer.body, "certificate"), text(&answer.body, "chain")) {
            self.certificate = Some(format!("{leaf}{chain}"));
        }
    }
}

fn text<'a>(body: &'a Value, member: &str) -> Option<&'a str> {
    body.get(member).and_then(Value::as_str)
}

#[expect(clippy::panic, reason = "a test without its request fails")]
fn request(key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, unique("machine"));
    let request = params.serialize_request(key).and_then(|request| request.pem());
    request.unwrap_or_else(|error| panic!("a certificate request: {error}"))
}

#[expect(clippy::panic, reason = "a test without its settings fails")]
fn settings(data_dir: &Path, master_key: &Path, database: &Database, more: &[(&str, &str)]) -> Settings {
    let text = |path: &Path| path.display().to_string();
    let told = |name: &str| more.iter().find(|(of, _)| *of == name).map(|(_, value)| (*value).to_owned());
    let flags = |key: &relay::config::Key| match key.name {
        "data_dir" => Some(text(data_dir)),
        "master_key_file" => Some(text(master_key)),
        "listen" | "metrics_listen" => told(key.name).or_else(|| Some("127.0.0.1:0".to_owned())),
        "agent_image" => told("boot_listen").map(|_| told(key.name).unwrap_or_else(|| image(data_dir))),
        "database_url" => Some(database.url().to_owned()),
        name => told(name),
    };
    let nowhere = data_dir.join("no-relay.toml");
    let sources = Sources { file: None, default_file: &nowhere, env: &|_| None, flags: &flags };
    Settings::load(&sources).unwrap_or_else(|error| panic!("settings: {error}"))
}

/// Where the region of [`image`] begins.
pub const IMAGE_REGION: usize = 300_000;

/// An image of the agent that boots nothing, beside the relay's data.
#[expect(clippy::panic, reason = "a test without its image fails")]
fn image(data_dir: &Path) -> String {
    let region = shared::boot::template();
    let image = [vec![0x11; IMAGE_REGION], region, vec![0x11; 400_000]].concat();
    let path = data_dir.with_extension("iso");
    if let Err(error) = fs::write(&path, image) {
        panic!("{}: {error}", path.display());
    }
    path.display().to_string()
}

#[expect(clippy::panic, reason = "a test without the relay's files fails")]
fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().to_owned()
}
