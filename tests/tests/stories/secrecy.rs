//! The secrets are nowhere but where they belong: not on the relay's disk or in its tables, not in a log at its most
//! talkative, an event, an answer, or the arguments of a process; and bcd keeps no token.

use relay::clock::Clock;
use serde_json::{Value, json};
use shared::hex;
use std::{
    fs,
    path::{Path, PathBuf},
};
use tests::{Bcd, Database, FakeMachine, Machine, RelayProcess, client, on_both_databases, try_post};

on_both_databases!(secrets_are_only_where_they_belong);

/// A secret: what it is, its bytes, and the only files that may hold it.
pub(super) struct Hidden {
    pub(super) what: &'static str,
    pub(super) secret: String,
    pub(super) allowed: &'static [&'static str],
}

impl Hidden {
    /// As text, as hexadecimal, and as Rust prints bytes.
    fn forms(&self) -> [String; 3] {
        let bytes = self.secret.as_bytes();
        let printed: Vec<String> = bytes.iter().map(u8::to_string).collect();
        [self.secret.clone(), hex::encode(bytes), printed.join(", ")]
    }

    fn is_in(&self, text: &str) -> bool {
        self.forms().iter().any(|form| text.contains(form.as_str()))
    }
}

/// The part of a bearer's form that must stay hidden.
fn secret_of(bearer: &str) -> String {
    bearer.split_once('.').unwrap().1.to_owned()
}

/// A client by HTTP/2, whose implementation is the most talkative.
fn http2(relay: &RelayProcess) -> reqwest::Client {
    let mut tls = client::tls(&relay.ca_bundle(), &Clock::system(), None);
    tls.alpn_protocols = vec![b"h2".to_vec()];
    client::of_tls(tls)
}

/// A token of the same id with another secret.
fn wrong(token: &str) -> String {
    let last = if token.ends_with('0') { "g" } else { "0" };
    format!("{}{last}", &token[..token.len() - 1])
}

/// The longest line of a PEM block: no other key has it.
fn body_of(pem: &str) -> String {
    pem.lines().filter(|line| !line.starts_with("-----")).max_by_key(|line| line.len()).unwrap().to_owned()
}

/// Every file under a folder, with its content as text.
fn files(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&path));
        } else if let Ok(content) = fs::read(&path) {
            found.push((path, String::from_utf8_lossy(&content).into_owned()));
        }
    }
    found
}

/// Everything that is looked through: a place and its text.
#[derive(Default)]
pub(super) struct Places(Vec<(String, String)>);

impl Places {
    pub(super) fn note(&mut self, place: impl Into<String>, text: impl Into<String>) {
        self.0.push((place.into(), text.into()));
    }

    pub(super) fn note_files(&mut self, folder: &Path) {
        for (path, text) in files(folder) {
            self.note(path.display().to_string(), text);
        }
    }

    pub(super) fn arguments_of(&mut self, what: &str, process: u32) {
        self.note(what, fs::read_to_string(format!("/proc/{process}/cmdline")).unwrap());
    }

    /// The places that hold this, but for the files where it belongs.
    pub(super) fn holders(&self, hidden: &Hidden) -> Vec<&str> {
        let belongs = |place: &str| hidden.allowed.iter().any(|file| place.ends_with(file));
        let holds = self.0.iter().filter(|(place, text)| !belongs(place) && hidden.is_in(text));
        holds.map(|(place, _)| place.as_str()).collect()
    }
}

/// Requests that carry secrets where they don't belong, or wrong ones; answers what the relay says to each.
async fn misuse(relay: &RelayProcess, token: &str, admin: &str) -> Vec<Value> {
    let (client, url, node) = (http2(relay), relay.url(), Machine::new(50).join_input());
    let wrong = wrong(token);
    let mut answers = Vec::new();
    for (bearer, method, input) in [
        (wrong.as_str(), "node/join", node.clone()),
        (admin, "node/join", node.clone()),
        (token, "compute/pools/list", json!({"tenantId": "provider"})),
        (token, "node/join", json!({"csr": token})),
        (token, "node/join", json!({"csr": token, "identity": token, "agent": {"version": token}})),
        (
            token,
            "node/join",
            json!({"csr": "x", "identity": {"productUuid": [token]}, "agent": 1, "token": token}),
        ),
        (admin, "compute/pools/get", json!({"tenantId": "provider", "poolId": token})),
        (admin, "compute/pools/get", json!({"tenantId": admin, "poolId": "default"})),
        (admin, "compute/joinTokens/create", json!({"tenantId": "provider", "idempotencyKey": [admin]})),
        (
            admin,
            "compute/secrets/put",
            json!({"tenantId": "provider", "poolId": "default", "value": [token]}),
        ),
    ] {
        let answer = try_post(&client, &url, Some(bearer), method, &input).await.unwrap();
        assert!(answer.status >= 400, "{method}: {answer:?}");
        // Who asks for what is not there is told by the id that they gave; nobody else is.
        if answer.status != 404 {
            answers.push(answer.body);
        }
    }
    for request in [
        client.get(format!("{url}/api/node/join?token={token}")),
        client.post(format!("{url}/api/node/join?token={token}")).header("content-type", "application/json"),
        client.post(format!("{url}/api/node/join")).header("authorization", format!("Basic {token}")),
        client.post(format!("{url}/api/node/join")).header("x-token", token).body(token.to_owned()),
        client
            .post(format!("{url}/api/node/join"))
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(format!("{{\"csr\": \"{token}\"")),
    ] {
        let answer = request.send().await.unwrap();
        assert!(answer.status().as_u16() >= 400, "{answer:?}");
        answers.push(Value::from(answer.text().await.unwrap()));
    }
    answers
}

const PLATFORM_SECRET: &str = "correct-horse-battery-staple-7d1f";

/// A platform secret, set and fetched; joins, a replay, a renewal, one too many; misuse; a revocation. Answers the key
/// of the machine.
async fn everyday_life(relay: &RelayProcess, token: &str, small: &str, places: &mut Places) -> String {
    let (client, url) = (http2(relay), relay.url());
    let pool = json!({"tenantId": "provider", "poolId": "default"});
    let with = |member: &str, value: &str| {
        let mut input = pool.clone();
        input[member] = json!(value);
        input
    };
    let mut put = with("name", "registry");
    put["value"] = json!(PLATFORM_SECRET);
    places.note("the answer to put", relay.call("compute/secrets/put", &put).await.to_string());
    let mut machine = Machine::new(1);
    for _ in 0..2 {
        let joined = try_post(&client, &url, Some(token), "node/join", &machine.join_input()).await.unwrap();
        assert_eq!(joined.status, 200, "{}", joined.body);
        machine.keep(&joined);
        places.note("the answer to a join", joined.body.to_string());
    }
    let key = machine.key_pem();
    let node = relay.client(machine.certificate().map(|chain| (chain, key.as_str())));
    let fetched = try_post(&node, &url, None, "node/secrets", &json!({})).await.unwrap();
    assert_eq!(fetched.body["secrets"]["registry"], PLATFORM_SECRET);
    machine.new_request();
    let renewed = try_post(&node, &url, None, "node/renew", &json!({"csr": machine.csr})).await.unwrap();
    places.note("the answer to a renewal", renewed.body.to_string());
    for number in [2, 3] {
        let input = Machine::new(number).join_input();
        let answer = try_post(&client, &url, Some(small), "node/join", &input).await.unwrap();
        places.note("the answer to one too many", answer.body.to_string());
    }
    for answer in misuse(relay, token, &relay.admin_token()).await {
        places.note("the answer to misuse", answer.to_string());
    }
    places.note("the list of tokens", relay.call("compute/joinTokens/list", &pool).await.to_string());
    let revoked = relay.call("compute/joinTokens/revoke", &with("tokenId", id_of(small))).await;
    places.note("the answer to revoke", revoked.to_string());
    key
}

/// The id of a token, which is no secret.
fn id_of(token: &str) -> &str {
    token.trim_start_matches("bc").split('.').next().unwrap()
}

async fn secrets_are_only_where_they_belong(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &["--log", "trace"]);
    let (token, small) = (relay.join_token(10).await, relay.join_token(1).await);
    let mut places = Places(Vec::new());
    let machine_key = everyday_life(&relay, &token, &small, &mut places).await;
    let bcd_key = of_bcd(home.path(), &relay, &token, &mut places);
    places.arguments_of("the relay's arguments", relay.id());
    let log = relay.log();
    assert!(log.contains("TRACE") && log.contains("node/join"), "the log is not the talkative one");
    let dump = database.dump().await;
    assert!(dump.contains(id_of(&small)) && dump.contains("security.join-token.revoked"), "tables not read");
    places.note("the tables", dump);
    places.note_files(home.path());
    database.folder().into_iter().for_each(|folder| places.note_files(folder));

    let read = |file: &str| fs::read_to_string(relay.data_dir().join(file)).unwrap();
    let admin = secret_of(relay.admin_token().trim());
    let viewer = secret_of(read("bootstrap/admin_viewer_token").trim());
    let hidden = |what, secret, allowed| Hidden { what, secret, allowed };
    for hidden in [
        hidden("a join token", secret_of(&token), &["/join-token"][..]),
        hidden("a spent join token", secret_of(&small), &[]),
        hidden("the admin's credential", admin, &["/admin_editor_token"]),
        hidden("the viewer's credential", viewer, &["/admin_viewer_token"]),
        hidden("a platform secret", PLATFORM_SECRET.to_owned(), &[]),
        hidden("the key of a machine", body_of(&machine_key), &[]),
        hidden("the key of bcd", body_of(&bcd_key), &["/node.key"]),
        hidden("the master key", body_of(&read("master.key")), &["/master.key"]),
    ] {
        assert!(hidden.secret.len() > 20, "{} is too short to be looked for", hidden.what);
        assert_eq!(places.holders(&hidden), [""; 0], "{}", hidden.what);
        // The search itself finds what is there.
        let anywhere = Hidden { allowed: &[], ..hidden };
        assert_eq!(places.holders(&anywhere).is_empty(), hidden.allowed.is_empty(), "{}", anywhere.what);
    }
    let password = database.url().split(['/', ':', '@']).nth(4).filter(|_| database.folder().is_none());
    if let Some(password) = password {
        assert!(!log.contains(password), "the database's password is in the log");
    }
}

/// bcd joins, runs, tells its status and settings; answers its key.
fn of_bcd(home: &Path, relay: &RelayProcess, token: &str, places: &mut Places) -> String {
    let folder = home.join("machine");
    let bcd = Bcd::new(&folder, &FakeMachine::new(&folder, 9), relay, token);
    bcd.give_token(&wrong(token));
    for (what, token) in [("a join that fails", None), ("a join", Some(token))] {
        if let Some(token) = token {
            bcd.give_token(token);
        }
        let joined = bcd.command("join").args(["--log", "trace"]).output().unwrap();
        assert_eq!(joined.status.success(), token.is_some(), "{what}: {joined:?}");
        places.note(format!("what bcd says of {what}"), format!("{joined:?}"));
        places.note(
            format!("what bcd logs of {what}"),
            String::from_utf8_lossy(&joined.stderr).into_owned() + &String::from_utf8_lossy(&joined.stdout),
        );
    }
    let mut running = bcd.run();
    running.wait_for("node", || {
        let status = bcd.command("status").arg("--json").output().ok()?;
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        status["lastSuccess"].is_string().then_some(())
    });
    places.arguments_of("bcd's arguments", running.id());
    let mut show = bcd.command("config");
    show.args(["show", "--origin"]).env("BCD_JOIN_TOKEN", token);
    let mut status = bcd.command("status");
    status.arg("--json");
    for (what, mut command) in [("bcd's settings", show), ("bcd's status", status)] {
        let output = command.output().unwrap();
        assert!(output.status.success() && !output.stdout.is_empty(), "{what}: {output:?}");
        places.note(what, String::from_utf8_lossy(&output.stdout).into_owned());
        places.note(what, String::from_utf8_lossy(&output.stderr).into_owned());
    }
    assert_eq!(running.terminate(), Some(0));
    fs::read_to_string(bcd.state_dir().join("node.key")).unwrap()
}
