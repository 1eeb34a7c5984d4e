//! Machines with a TPM (swtpm), as bcd meets them: it joins, restarts and lives by the key in it, and says what is wrong
//! with a TPM that does not do as it should.

use serde_json::{Value, json};
use shared::time::Timestamp;
use std::fs;
use tests::{Bcd, Database, FakeMachine, Finished, Made, RelayProcess, Swtpm, on_both_databases};

on_both_databases!(
    a_machine_lives_by_the_key_in_its_tpm,
    a_machine_renews_by_the_key_in_its_tpm,
    every_endorsement_key_can_be_pinned,
    an_unknown_tpm_waits_and_the_command_that_bcd_prints_approves_it,
    an_authority_admits_where_the_policy_says_so,
    a_tpm_that_is_a_device,
);

/// A relay, and bcd on one machine.
struct Site {
    relay: RelayProcess,
    bcd: Bcd,
    home: tempfile::TempDir,
    database: Database,
}

impl Site {
    async fn new(database: Database) -> Self {
        let home = tempfile::tempdir().unwrap();
        let relay = RelayProcess::start(home.path(), Some(&database), &[]);
        let token = relay.join_token(3).await;
        let bcd = machine(&home, 1, &relay, &token);
        Self { relay, bcd, home, database }
    }

    async fn nodes(&self) -> Vec<Value> {
        let list = self.relay.call("compute/nodes/list", &in_pool(&json!({}))).await;
        list["nodes"].as_array().unwrap().clone()
    }
}

fn machine(home: &tempfile::TempDir, number: u32, relay: &RelayProcess, token: &str) -> Bcd {
    let folder = home.path().join(format!("machine-{number}"));
    Bcd::new(&folder, &FakeMachine::new(&folder, number), relay, token)
}

fn in_pool(more: &Value) -> Value {
    let mut input = json!({"tenantId": "provider", "poolId": "default"});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    input
}

/// `bcd identity --json`'s hashes of the endorsement keys.
fn endorsement_keys(bcd: &Bcd) -> Vec<String> {
    let output = bcd.command("identity").arg("--json").output().unwrap();
    let seen: Value = serde_json::from_slice(&output.stdout).unwrap();
    let keys = seen["tpm"]["endorsementKeys"].as_array().unwrap();
    keys.iter().map(|key| key["ekSha256"].as_str().unwrap().to_owned()).collect()
}

/// `bcd run` until it has sent a heartbeat.
fn beats(bcd: &Bcd) {
    let mut running = bcd.run();
    running.wait_for("word of a heartbeat", || {
        let status = bcd.command("status").arg("--json").output().ok()?;
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        (status["state"] == "enrolled" && status["lastSuccess"].is_string()).then_some(())
    });
    assert_eq!(running.terminate(), Some(0));
}

fn assert_joined(joined: &Finished) {
    assert_eq!(joined.code, Some(0), "{joined}");
    // The C library writes nothing of its own.
    assert!(!joined.stderr.contains("ERROR") && !joined.stderr.contains("tss2"), "{joined}");
}

async fn a_machine_lives_by_the_key_in_its_tpm(database: Database) {
    let site = Site::new(database).await;
    let mut swtpm = Swtpm::start(Made::WithCertificates);
    let bcd = site.bcd.with_tpm("required", &swtpm.tcti());
    assert_joined(&bcd.join());
    let has = |name: &str| bcd.state_dir().join(name).exists();
    assert!(has("node.tpm") && has("node.crt") && !has("node.key"));
    shows_its_tpm(&bcd);
    let nodes = site.nodes().await;
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0]["ekSha256"], endorsement_keys(&bcd)[0], "{}", nodes[0]);
    beats(&bcd);
    // Off and on again, and a restart of bcd: the same node by the same key, without another join.
    swtpm.restart();
    let bcd = site.bcd.with_tpm("auto", &swtpm.tcti());
    beats(&bcd);
    // What the state lost, the key still is.
    let forgotten = bcd.command("reset").arg("--keep-key").status().unwrap();
    assert!(forgotten.success());
    assert_joined(&bcd.join());
    let again = site.nodes().await;
    assert_eq!((again.len(), &again[0]["nodeId"]), (1, &nodes[0]["nodeId"]));
    assert_eq!(again[0]["keySha256"], nodes[0]["keySha256"]);
}

/// `bcd identity` tells what is written on the TPM, for programs and for people.
fn shows_its_tpm(bcd: &Bcd) {
    let shown = tests::finish(bcd.command("identity"));
    let mut json = bcd.command("identity");
    json.arg("--json");
    let json = tests::finish(json);
    let seen: Value = serde_json::from_str(&json.stdout).unwrap();
    let tpm = &seen["tpm"];
    let (manufacturer, firmware) = (tpm["manufacturer"].as_str().unwrap(), tpm["firmware"].as_str().unwrap());
    assert_eq!(manufacturer, "IBM");
    let is_version =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'.');
    assert!(is_version(firmware), "{tpm}");
    assert!(shown.stdout.contains(&format!("{manufacturer}, firmware {firmware}")), "{shown}");
    let subject = |place: usize| tpm["endorsementKeys"][place]["certificateSubject"].as_str();
    // The RSA key's and the P-384 key's certificates; the P-256 key has none.
    assert_eq!((subject(0), subject(1), subject(2)), (Some("CN=unknown"), None, Some("CN=unknown")), "{tpm}");
    for index in ["0x01c00002", "0x01c00016"] {
        assert!(shown.stdout.contains(&format!("CN=unknown (NV {index})")), "{shown}");
    }
}

/// Lets time pass for bcd, as if it had been off: its renewal is due.
fn age(bcd: &Bcd) {
    let mut state = state(bcd);
    for (member, seconds) in [("issuedAt", -80_000), ("renewAfter", -80_000), ("expiresAt", -82_000)] {
        let at = Timestamp::parse(state[member].as_str().unwrap()).unwrap();
        state[member] = json!(at.plus_seconds(seconds).to_string());
    }
    fs::write(bcd.state_dir().join("state.json"), state.to_string()).unwrap();
}

/// What bcd keeps.
fn state(bcd: &Bcd) -> Value {
    serde_json::from_slice(&fs::read(bcd.state_dir().join("state.json")).unwrap_or_default())
        .unwrap_or_default()
}

async fn a_machine_renews_by_the_key_in_its_tpm(database: Database) {
    let site = Site::new(database).await;
    let swtpm = Swtpm::start(Made::Bare);
    let bcd = site.bcd.with_tpm("required", &swtpm.tcti());
    assert_joined(&bcd.join());
    let (joined, first) = (site.nodes().await.remove(0), state(&bcd));
    let key = fs::read(bcd.state_dir().join("node.tpm")).unwrap();
    for certificates in 2..4 {
        age(&bcd);
        let before = state(&bcd);
        let mut running = bcd.run();
        running.wait_for("new certificate", || (state(&bcd)["serial"] != before["serial"]).then_some(()));
        assert_eq!(running.terminate(), Some(0));
        let count = site.database.number("SELECT COUNT(*) FROM certificates").await;
        assert_eq!(count, certificates);
    }
    // The handshake with the new certificate makes it the node's: the same node, by the same key, after one join.
    beats(&bcd);
    let renewed = site.nodes().await.remove(0);
    assert_eq!(renewed["certificate"]["serial"], state(&bcd)["serial"]);
    assert_ne!(renewed["certificate"]["serial"], first["serial"]);
    for member in ["nodeId", "keySha256", "ekSha256", "generation", "joinedAt"] {
        assert_eq!(renewed[member], joined[member], "{member}");
    }
    assert_eq!(fs::read(bcd.state_dir().join("node.tpm")).unwrap(), key);
    assert!(!bcd.state_dir().join("node.key").exists());
    assert_eq!(site.database.number("SELECT COUNT(*) FROM joins").await, 1);
}

async fn every_endorsement_key_can_be_pinned(database: Database) {
    let site = Site::new(database).await;
    for place in 0..3 {
        let swtpm = Swtpm::start(Made::Bare);
        let number = u32::try_from(place).unwrap() + 10;
        let bcd = machine(&site.home, number, &site.relay, "").with_tpm("required", &swtpm.tcti());
        let key = endorsement_keys(&bcd).remove(place);
        let input =
            json!({"ttlSeconds": 600, "maxUses": 2, "expect": {"ekSha256": key}, "idempotencyKey": key});
        let minted = site.relay.call("compute/joinTokens/create", &in_pool(&input)).await;
        bcd.give_token(minted["token"].as_str().unwrap());
        assert_joined(&bcd.join());
        assert!(site.nodes().await.iter().any(|node| node["ekSha256"] == key.as_str()));
        // Another machine can't use it.
        let other = Swtpm::start(Made::Bare);
        let thief = machine(&site.home, number + 10, &site.relay, minted["token"].as_str().unwrap());
        let refused = thief.with_tpm("required", &other.tcti()).join();
        assert_eq!(refused.code, Some(13), "{refused}");
        assert!(refused.stderr.contains("expect.ekSha256"), "{refused}");
        let thief = machine(&site.home, number + 20, &site.relay, minted["token"].as_str().unwrap());
        let refused = thief.join();
        assert_eq!(refused.code, Some(20), "{refused}");
    }
}

async fn an_unknown_tpm_waits_and_the_command_that_bcd_prints_approves_it(database: Database) {
    let site = Site::new(database).await;
    let policy = json!({"policy": {"unknownEndorsementKeys": "defer"}});
    site.relay.call("compute/pools/update", &in_pool(&policy)).await;
    let swtpm = Swtpm::start(Made::Bare);
    let bcd = site.bcd.with_tpm("required", &swtpm.tcti());
    let waiting = bcd.join();
    assert_eq!(waiting.code, Some(10), "{waiting}");
    assert!(waiting.stdout.contains("unknownEndorsementKey"), "{waiting}");
    let status = tests::finish(bcd.command("status"));
    let command = |text: &str| {
        let (_, command) = text.split_once("relay join-requests approve").unwrap_or_else(|| panic!("{text}"));
        let line = command.lines().next().unwrap_or_default();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let told = command(&waiting.stdout);
    assert_eq!(told, command(&status.stdout), "{status}");
    // Just as it stands there, by an operator on the relay.
    let mut approve = tests::program("relay");
    approve.args(["join-requests", "approve"]).args(&told).arg("--data-dir").arg(site.relay.data_dir());
    let approved = tests::finish(approve);
    assert_eq!(approved.code, Some(0), "{approved}");
    assert_joined(&bcd.join());
    assert_eq!(site.nodes().await[0]["ekSha256"].as_str().map(str::len), Some(64));
}

async fn an_authority_admits_where_the_policy_says_so(database: Database) {
    let site = Site::new(database).await;
    let set = async |authority_admits: bool| {
        let policy = json!({"unknownEndorsementKeys": "defer", "tpm": {"authorityAdmits": authority_admits}});
        site.relay.call("compute/pools/update", &in_pool(&json!({"policy": policy}))).await;
    };
    let add = async |file: &std::path::Path, key: &str| {
        let bundle = json!({"certificates": fs::read_to_string(file).unwrap(), "idempotencyKey": key});
        let added = site.relay.call("compute/endorsementAuthorities/add", &in_pool(&bundle)).await;
        added["endorsementAuthority"]["id"].clone()
    };
    set(true).await;
    let swtpm = Swtpm::start(Made::WithCertificates);
    let bcd = site.bcd.with_tpm("required", &swtpm.tcti());
    let waiting = bcd.join();
    assert_eq!(waiting.code, Some(10), "nobody vouches for it yet: {waiting}");
    // What its certificate says is told, and that it is no more than that.
    let waiting = site.relay.call("compute/joinRequests/list", &in_pool(&json!({}))).await;
    assert_is_made_by_ibm(&waiting["joinRequests"][0], false);
    // Another TPM's CAs have the same names and other keys.
    let other = Swtpm::start(Made::WithCertificates);
    for (place, file) in other.authorities().iter().enumerate() {
        add(file, &format!("other-{place}")).await;
    }
    assert_eq!(bcd.join().code, Some(10));
    // The TPM's NV has its own certificate alone: the CA that issues is the one to trust.
    let [_, issuer] = swtpm.authorities();
    let id = add(&issuer, "issuer").await;
    set(false).await;
    assert_eq!(bcd.join().code, Some(10), "that it is a genuine TPM admits nobody by itself");
    set(true).await;
    site.relay.call("compute/endorsementAuthorities/remove", &in_pool(&json!({"authorityId": id}))).await;
    assert_eq!(bcd.join().code, Some(10), "it was removed");
    add(&issuer, "again").await;
    assert_joined(&bcd.join());
    let waiting = site.relay.call("compute/joinRequests/list", &in_pool(&json!({}))).await;
    assert_eq!(waiting["joinRequests"], json!([]), "what waited is settled");
    let node = &site.nodes().await[0];
    assert!(endorsement_keys(&bcd).iter().any(|key| node["ekSha256"] == key.as_str()), "{node}");
    assert_is_made_by_ibm(node, true);
}

/// A request or a node whose endorsement key's certificate is one of `swtpm_localca`: its manufacturer's id is of IBM.
fn assert_is_made_by_ibm(shown: &Value, vouched: bool) {
    assert_eq!(
        (&shown["ekManufacturer"], &shown["ekVouched"]),
        (&json!("id:00001014"), &json!(vouched)),
        "{shown}"
    );
}

async fn a_tpm_that_is_a_device(database: Database) {
    let site = Site::new(database).await;
    let swtpm = Swtpm::start(Made::WithCertificates);
    let device = swtpm.device();
    let bcd = site.bcd.with_tpm("auto", &device.tcti());
    assert_joined(&bcd.join());
    assert!(bcd.state_dir().join("node.tpm").exists());
    beats(&bcd);
    assert_eq!(site.nodes().await[0]["ekSha256"], endorsement_keys(&bcd)[0]);
}

#[tokio::test]
async fn what_is_wrong_with_a_tpm_is_said_by_an_exit_code_and_a_remedy() {
    let site = Site::new(Database::sqlite()).await;
    let mut swtpm = Swtpm::start(Made::Tpm12);
    let old = swtpm.tcti();
    let fails = |mode: &str, tcti: &str, words: &[&str]| {
        let failed = site.bcd.with_tpm(mode, tcti).join();
        assert_eq!(failed.code, Some(20), "{failed}");
        assert!(failed.stderr.contains("(transient, exit code 20)"), "{failed}");
        assert!(words.iter().all(|word| failed.stderr.contains(word)), "{failed}");
        assert!(!site.bcd.state_dir().join("node.key").exists());
    };
    let missing = site.home.path().join("tpmrm0").display().to_string();
    fails("required", &format!("device:{missing}"), &[&missing, "does not exist"]);
    fails("required", &old, &["no TPM 2.0"]);
    fs::write(&missing, "a file").unwrap();
    fails("auto", &format!("device:{missing}"), &[&missing, "no character device"]);
    assert_eq!(fs::read_to_string(&missing).unwrap(), "a file");
    swtpm.stop();
    for mode in ["auto", "required"] {
        fails(mode, &old, &["nobody answers", &old]);
    }
    // Without a TPM at all the key is in a file, and then nothing moves it.
    fs::remove_file(&missing).unwrap();
    assert_joined(&site.bcd.with_tpm("auto", &format!("device:{missing}")).join());
    assert!(site.bcd.state_dir().join("node.key").exists());
    let swtpm = Swtpm::start(Made::Bare);
    let kept = site.bcd.with_tpm("required", &swtpm.tcti()).join();
    assert_eq!(kept.code, Some(64), "no other start puts that right: {kept}");
    assert!(kept.stderr.contains("bcd reset") && kept.stderr.contains("--allow-reclaim"), "{kept}");
    assert_joined(&site.bcd.with_tpm("auto", &swtpm.tcti()).join());
    assert!(!site.bcd.state_dir().join("node.tpm").exists());
}

mod slow {
    use super::*;
    use std::{process::Stdio, thread::sleep, time::Duration};

    /// Nobody tells the TPM that its client is gone: it keeps what was loaded.
    #[tokio::test]
    async fn fifty_kills_leave_a_tpm_that_works() {
        let site = Site::new(Database::sqlite()).await;
        let swtpm = Swtpm::start(Made::Bare);
        let bcd = site.bcd.with_tpm("required", &swtpm.tcti());
        bcd.give_token(&site.relay.join_token(60).await);
        let mut in_the_middle = 0;
        for number in 0..50 {
            // A join from the start now and then, with the key that there is.
            if number % 5 == 0 {
                drop(fs::remove_file(bcd.state_dir().join("state.json")));
            }
            let mut command = bcd.command(if number % 2 == 0 { "join" } else { "run" });
            let mut running = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            sleep(Duration::from_millis(15 + number * 5));
            in_the_middle += u32::from(matches!(running.try_wait(), Ok(None)));
            running.kill().unwrap();
            running.wait().unwrap();
        }
        assert!(in_the_middle > 25, "{in_the_middle} of 50 were at work");
        assert_joined(&bcd.join());
        beats(&bcd);
        assert_eq!(site.nodes().await.len(), 1, "one key, one node");
        assert_eq!(endorsement_keys(&bcd).len(), 3);
    }
}
