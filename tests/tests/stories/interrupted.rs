//! bcd is killed at every state that it keeps on disk, and at moments between them. Whoever runs it again finds one
//! node, by one use of the token, with a certificate that works.

use relay::random::Random;
use serde_json::{Value, json};
use shared::time::Timestamp;
use std::{fs, process::Stdio, time::Duration};
use tests::{Bcd, Database, FakeMachine, Fault, RelayProcess, Wire, on_both_databases, try_post};

on_both_databases!(
    killed_before_it_asked,
    killed_while_it_asks,
    killed_when_it_is_a_node,
    killed_while_it_renews,
    killed_at_any_moment_of_its_join,
);

/// A relay, a way to it, and bcd on one machine.
struct Site {
    relay: RelayProcess,
    wire: Wire,
    database: Database,
    bcd: Bcd,
    _home: tempfile::TempDir,
}

impl Site {
    async fn new(database: Database) -> Self {
        let home = tempfile::tempdir().unwrap();
        let relay = RelayProcess::start(home.path(), Some(&database), &[]);
        let wire = Wire::to(&relay.url());
        let token = relay.join_token(1).await;
        let bcd = bcd(&home, 1, &relay, &token);
        Self { relay, wire, database, bcd, _home: home }
    }

    /// What bcd keeps.
    fn state(&self) -> Value {
        let text = fs::read(self.bcd.state_dir().join("state.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    async fn uses(&self) -> i64 {
        self.database.number("SELECT CAST(SUM(uses) AS BIGINT) FROM join_tokens").await
    }

    /// After all, there is one node, and its certificate works.
    async fn is_one_node(&self, certificates: i64) {
        let joined = self.bcd.join();
        assert_eq!(joined.code, Some(0), "{joined}");
        assert_eq!(self.state()["state"], "enrolled");
        assert_eq!(self.uses().await, 1);
        for (count, expected) in [
            ("SELECT COUNT(*) FROM nodes", 1),
            ("SELECT COUNT(*) FROM joins", 1),
            ("SELECT COUNT(*) FROM certificates", certificates),
            ("SELECT COUNT(*) FROM identities WHERE kind = 'key'", 1),
        ] {
            assert_eq!(self.database.number(count).await, expected, "{count}");
        }
        works(&self.relay, &self.bcd).await;
    }
}

fn bcd(home: &tempfile::TempDir, number: u32, relay: &RelayProcess, token: &str) -> Bcd {
    let folder = home.path().join(format!("machine-{number}"));
    Bcd::new(&folder, &FakeMachine::new(&folder, number), relay, token)
}

/// The files that bcd leaves for others are a chain and its key, and the relay takes them.
async fn works(relay: &RelayProcess, bcd: &Bcd) {
    let read = |file: &str| fs::read_to_string(bcd.state_dir().join(file)).unwrap();
    let client = relay.client(Some((&read("node.crt"), &read("node.key"))));
    let beat = try_post(&client, &relay.url(), None, "node/heartbeat", &json!({})).await.unwrap();
    assert_eq!(beat.status, 200, "{}", beat.body);
}

async fn killed_before_it_asked(database: Database) {
    let site = Site::new(database).await;
    // It has made its key, and nobody is there to ask.
    let key = site.bcd.state_dir().join("node.key");
    let mut running = site.bcd.over("https://127.0.0.1:9").run();
    running.wait_for("key", || fs::read(&key).ok().filter(|key| !key.is_empty()));
    let first = fs::read(&key).unwrap();
    running.kill9();
    assert!(matches!(site.state()["state"].as_str(), None | Some("new" | "joining")), "{}", site.state());
    assert_eq!(site.uses().await, 0);
    site.is_one_node(1).await;
    assert_eq!(fs::read(&key).unwrap(), first, "the key was made once");
}

async fn killed_while_it_asks(database: Database) {
    let site = Site::new(database).await;
    let over_the_wire = site.bcd.over(&site.wire.url());
    let mut csr = None;
    // Before the relay knows of it, when it is admitted already, and when it hears half of that; again and again.
    let faults =
        [(Fault::HoldRequest, 0), (Fault::HoldAnswer, 1), (Fault::CutAnswer(600), 1), (Fault::HoldAnswer, 1)];
    for (fault, uses) in faults {
        site.wire.set(fault);
        let before = site.wire.happened();
        let running = over_the_wire.run();
        site.wire.wait_for(before + 1).await;
        running.kill9();
        let state = site.state();
        assert_eq!(state["state"], "joining", "{fault:?}: {state}");
        let kept = csr.get_or_insert_with(|| state["csr"].clone());
        assert!(kept.is_string() && *kept == state["csr"], "the request stays the same until the join ends");
        assert_eq!(site.uses().await, uses, "{fault:?}");
    }
    site.is_one_node(1).await;
}

async fn killed_when_it_is_a_node(database: Database) {
    let site = Site::new(database).await;
    for _ in 0..3 {
        let mut running = site.bcd.run();
        running.wait_for("word of a heartbeat", || {
            let status = site.bcd.command("status").arg("--json").output().ok()?;
            let status: Value = serde_json::from_slice(&status.stdout).ok()?;
            (status["state"] == "enrolled" && status["lastSuccess"].is_string()).then_some(())
        });
        running.kill9();
    }
    site.is_one_node(1).await;
}

/// Lets time pass for bcd, as if it had been off: its renewal is due.
fn age(site: &Site) {
    let mut state = site.state();
    for (member, seconds) in [("issuedAt", -80_000), ("renewAfter", -80_000), ("expiresAt", -82_000)] {
        let at = Timestamp::parse(state[member].as_str().unwrap()).unwrap();
        state[member] = json!(at.plus_seconds(seconds).to_string());
    }
    fs::write(site.bcd.state_dir().join("state.json"), state.to_string()).unwrap();
}

async fn killed_while_it_renews(database: Database) {
    let site = Site::new(database).await;
    assert_eq!(site.bcd.join().code, Some(0));
    age(&site);
    let (over_the_wire, first) = (site.bcd.over(&site.wire.url()), site.state());
    let mut csr = None;
    for fault in [Fault::HoldRequest, Fault::HoldAnswer, Fault::CutAnswer(600)] {
        site.wire.set(fault);
        let before = site.wire.happened();
        let running = over_the_wire.run();
        site.wire.wait_for(before + 1).await;
        running.kill9();
        let state = site.state();
        assert_eq!((&state["state"], &state["serial"]), (&json!("enrolled"), &first["serial"]));
        let kept = csr.get_or_insert_with(|| state["renewalCsr"].clone());
        assert!(kept.is_string() && *kept == state["renewalCsr"], "the request stays the same: {state}");
        works(&site.relay, &site.bcd).await;
    }
    let mut running = site.bcd.run();
    running.wait_for("new certificate", || (site.state()["serial"] != first["serial"]).then_some(()));
    assert_eq!(running.terminate(), Some(0));
    assert_eq!(site.state()["renewalCsr"], Value::Null);
    // The join's and the renewal's: three answers to it were lost, and they were one renewal.
    site.is_one_node(2).await;
}

async fn killed_at_any_moment_of_its_join(database: Database) {
    const MACHINES: u32 = 8;
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let token = relay.join_token(MACHINES).await;
    for number in 1..=MACHINES {
        let bcd = bcd(&home, number, &relay, &token);
        for _ in 0..3 {
            let mut command = bcd.command("join");
            let mut joining = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            let [low, high] = Random::system().bytes();
            std::thread::sleep(Duration::from_micros(u64::from(u16::from_le_bytes([low, high])) * 4));
            joining.kill().unwrap();
            joining.wait().unwrap();
        }
        let joined = bcd.join();
        assert_eq!(joined.code, Some(0), "{joined}");
        works(&relay, &bcd).await;
        for count in [
            "SELECT COUNT(*) FROM nodes",
            "SELECT COUNT(*) FROM joins",
            "SELECT COUNT(*) FROM certificates",
            "SELECT CAST(SUM(uses) AS BIGINT) FROM join_tokens",
        ] {
            assert_eq!(database.number(count).await, i64::from(number), "{count}");
        }
    }
}
