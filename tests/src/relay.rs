//! The relay as an operator runs it: the built program in a process of its own, and its API over TLS.

use crate::{
    Database,
    client::{Identity, client, try_post},
    programs::{Finished, Running, finish, program},
};
use ::relay::clock::Clock;
use reqwest::Client;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

/// What the first start makes, and where stories put their machines.
const TENANT: &str = "provider";
const POOL: &str = "default";

/// A running `relay serve`. It is killed when this value goes.
pub struct RelayProcess {
    running: Running,
    data_dir: PathBuf,
    address: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    client: Client,
}

/// An answer of the API.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body, null if it is no JSON.
    pub body: Value,
}

impl RelayProcess {
    /// Starts a relay with its data in `home/relay` and its log in `home/relay.log`, on a free port of 127.0.0.1,
    /// with these arguments beside (`["--master-key-file", …]`). Without a database it takes its own default.
    ///
    /// # Panics
    /// It does not come up; the panic shows its log.
    #[must_use]
    pub fn start(home: &Path, database: Option<&Database>, arguments: &[&str]) -> Self {
        Self::start_in(home, database, arguments, &[])
    }

    /// As [`RelayProcess::start`], with these variables in its environment.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn start_in(
        home: &Path,
        database: Option<&Database>,
        arguments: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let mut all: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        if let Some(database) = database {
            all.extend(["--database-url".to_owned(), database.url().to_owned()]);
        }
        Self::listen(home, "127.0.0.1:0", all, environment.to_vec())
    }

    /// As [`RelayProcess::start`], with its own database, on this address: for who has to know it before.
    ///
    /// # Panics
    /// As there.
    #[must_use]
    pub fn start_at(home: &Path, listen: &str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        Self::listen(home, listen, arguments, Vec::new())
    }

    fn listen(home: &Path, listen: &str, arguments: Vec<String>, environment: Vec<(String, String)>) -> Self {
        let data_dir = home.join("relay");
        let told = data_dir.join("listen");
        // What an earlier process said would be taken for this one's word.
        drop(fs::remove_file(&told));
        let mut command = program("relay");
        command.arg("serve").arg("--data-dir").arg(&data_dir).args(["--listen", listen]).args(&arguments);
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let mut running = Running::start(command, &home.join("relay.log"));
        let address = running.wait_for("address in DIR/listen", || {
            let text = fs::read_to_string(&told).ok()?;
            Some(text.trim().to_owned()).filter(|text| !text.is_empty())
        });
        let client = client(&data_dir.join("trust-bundle.pem"), &Clock::system(), None);
        Self { running, data_dir, address, arguments, environment, client }
    }

    /// Starts it again where it was, on the same port; it may have ended before.
    ///
    /// # Panics
    /// It does not come up.
    #[must_use]
    pub fn restart(self) -> Self {
        let Self { running, data_dir, address, arguments, environment, .. } = self;
        running.kill9();
        Self::listen(data_dir.parent().unwrap_or(&data_dir), &address, arguments, environment)
    }

    /// `https://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// A client that trusts this relay, with a certificate chain and key in PEM where one is given.
    ///
    /// # Panics
    /// They are no PEM.
    #[must_use]
    pub fn client(&self, identity: Option<(&str, &str)>) -> Client {
        let identity = identity.map(|(chain, key)| Identity::from_pem(chain, key));
        client(&self.ca_bundle(), &Clock::system(), identity)
    }

    /// Its data directory.
    #[must_use]
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The file with the CA certificate that the relay's own certificate comes from.
    #[must_use]
    pub fn ca_bundle(&self) -> PathBuf {
        self.data_dir.join("trust-bundle.pem")
    }

    /// The credential of the first admin.
    ///
    /// # Panics
    /// The relay wrote none.
    #[must_use]
    pub fn admin_token(&self) -> String {
        read(&self.data_dir.join("bootstrap/admin_editor_token"))
    }

    /// The CA's pin, as `relay ca pin` prints it: `sha256:…`.
    ///
    /// # Panics
    /// The command fails.
    #[must_use]
    pub fn pin(&self) -> String {
        let printed = self.command(&["ca", "pin"]);
        assert_eq!(printed.code, Some(0), "relay ca pin: {printed}");
        printed.stdout.trim().to_owned()
    }

    /// Runs another command of `relay` on the same data directory to its end.
    ///
    /// # Panics
    /// It can't be started.
    #[must_use]
    pub fn command(&self, arguments: &[&str]) -> Finished {
        let mut command = program("relay");
        command.args(arguments).arg("--data-dir").arg(&self.data_dir).args(&self.arguments);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        finish(command)
    }

    /// Calls a method (`compute/pools/get`) with a bearer's credential.
    ///
    /// # Errors
    /// No answer came.
    pub async fn call_as(&self, bearer: &str, method: &str, input: &Value) -> Result<Answer, reqwest::Error> {
        try_post(&self.client, &self.url(), Some(bearer), method, input).await
    }

    /// Calls a method as the first admin and answers what it gave.
    ///
    /// # Panics
    /// The relay does not answer 200.
    #[expect(clippy::panic, reason = "a story whose setting is refused fails")]
    pub async fn call(&self, method: &str, input: &Value) -> Value {
        match self.call_as(&self.admin_token(), method, input).await {
            Ok(answer) if answer.status == 200 => answer.body,
            other => panic!("{method}: {other:?}\n{}", self.log()),
        }
    }

    /// Mints a join token for the pool of the first start; answers its bearer's form.
    ///
    /// # Panics
    /// The relay refuses.
    pub async fn join_token(&self, max_uses: u32) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let key = format!("story-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let input = json!({
            "tenantId": TENANT, "poolId": POOL, "maxUses": max_uses, "ttlSeconds": 3600, "idempotencyKey": key,
        });
        let answer = self.call("compute/joinTokens/create", &input).await;
        let token = answer.get("token").and_then(Value::as_str);
        assert!(token.is_some(), "no token in a fresh answer");
        token.unwrap_or_default().to_owned()
    }

    /// All that it has logged, over all its starts.
    #[must_use]
    pub fn log(&self) -> String {
        self.running.log()
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// SIGKILL; what it held in memory is gone.
    pub fn kill9(self) {
        self.running.kill9();
    }

    /// SIGTERM; answers the exit code.
    ///
    /// # Panics
    /// It does not end in time.
    #[must_use]
    pub fn terminate(self) -> Option<i32> {
        self.running.terminate()
    }
}

#[expect(clippy::panic, reason = "a test without the relay's files fails")]
fn read(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.trim().to_owned()
}
