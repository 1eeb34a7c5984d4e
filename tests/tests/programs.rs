//! The built programs together, as an operator starts them: a relay, and bcd on machines that do not exist.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a story that stumbles fails"
)]

use serde_json::{Value, json};
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, time::Duration};
use tests::{Bcd, Database, FakeMachine, RelayProcess, finish};

tests::on_both_databases!(
    a_first_start_leaves_what_outside_checks_read,
    a_machine_joins_once_and_is_a_node,
    a_relay_that_was_killed_goes_on_where_it_was,
    the_daemon_joins_tells_that_it_lives_and_ends_when_told,
    the_secret_of_a_token_is_nowhere,
    a_banned_machine_comes_back_after_unban_and_spends_no_token,
    what_a_person_is_told_leads_to_a_line_of_the_log,
);

/// A machine with bcd, in a folder of its own.
fn machine(home: &Path, number: u32, relay: &RelayProcess, token: &str) -> (FakeMachine, Bcd) {
    let folder = home.join(format!("machine-{number}"));
    let machine = FakeMachine::new(&folder, number);
    let bcd = Bcd::new(&folder, &machine, relay, token);
    (machine, bcd)
}

async fn nodes(relay: &RelayProcess) -> Vec<Value> {
    let list = relay.call("compute/nodes/list", &json!({"tenantId": "provider", "poolId": "default"})).await;
    list["nodes"].as_array().cloned().unwrap_or_default()
}

/// Waits for what comes soon.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{what} did not come within 10 s");
}

async fn a_first_start_leaves_what_outside_checks_read(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let dir = relay.data_dir().to_owned();
    for (file, mode) in [
        ("bootstrap/admin_editor_token", 0o600),
        ("bootstrap/admin_viewer_token", 0o600),
        ("master.key", 0o600),
        ("trust-bundle.pem", 0o644),
        ("tenant-bundle.pem", 0o644),
    ] {
        let found = fs::metadata(dir.join(file)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{file}");
    }
    let (pin, url) = (relay.pin(), relay.url());
    assert!(pin.starts_with("sha256:"), "{pin}");
    let said = |line: &str| relay.log().lines().any(|said| said.contains(line));
    eventually("the address and the pin in the log", || said(&format!("listening on {url}")) && said(&pin))
        .await;

    // It is the same relay when it starts again, after a kill or when it was told to end.
    let relay = relay.restart();
    assert_eq!((relay.pin(), relay.url()), (pin.clone(), url));
    assert_eq!(relay.terminate(), Some(0));
    assert!(!dir.join("listen").exists(), "nobody listens any more");
    assert_eq!(RelayProcess::start(home.path(), Some(&database), &[]).pin(), pin);
}

async fn a_machine_joins_once_and_is_a_node(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let token = relay.join_token(1).await;
    let (made, bcd) = machine(home.path(), 1, &relay, &token);

    let joined = bcd.join();
    assert_eq!(joined.code, Some(0), "{joined}");
    for file in ["node.crt", "node.key", "ca.crt"] {
        assert!(bcd.state_dir().join(file).is_file(), "no {file}");
    }
    let again = bcd.join();
    assert_eq!((again.code, &again.stdout), (Some(0), &joined.stdout), "{again}");

    let nodes = nodes(&relay).await;
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0]["identity"]["productUuid"], made.product_uuid);
    assert_eq!(nodes[0]["identity"]["serial"], made.serial);
    assert!(joined.stdout.contains(nodes[0]["nodeId"].as_str().unwrap()), "{joined}");

    // The token is spent, and says so only to its bearer.
    let (_, late) = machine(home.path(), 2, &relay, &token);
    let refused = late.join();
    assert_eq!(refused.code, Some(12), "{refused}");
    let (id, secret) = token.split_once('.').unwrap();
    let other = if secret.starts_with('0') { '1' } else { '0' };
    late.give_token(&format!("{id}.{other}{}", &secret[1..]));
    let refused = late.join();
    assert_eq!(refused.code, Some(12), "{refused}");
    assert_eq!(relay.terminate(), Some(0));
}

/// Behaviour 73.
async fn a_relay_that_was_killed_goes_on_where_it_was(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let admin = relay.admin_token();
    let token = relay.join_token(2).await;
    let (_, first) = machine(home.path(), 1, &relay, &token);
    assert_eq!(first.join().code, Some(0));

    // A credential that was read before still works: a start makes new ones and ends none.
    let relay = relay.restart();
    let answer = relay.call_as(&admin, "compute/pools/list", &json!({"tenantId": "provider"})).await.unwrap();
    assert_eq!(answer.status, 200, "{answer:?}");
    let (_, second) = machine(home.path(), 2, &relay, &token);
    assert_eq!(second.join().code, Some(0));
    assert_eq!(nodes(&relay).await.len(), 2);
}

async fn the_daemon_joins_tells_that_it_lives_and_ends_when_told(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let token = relay.join_token(1).await;
    let (_, bcd) = machine(home.path(), 1, &relay, &token);
    let mut running = bcd.run();
    running.wait_for("word of a heartbeat", || {
        let status = bcd.command("status").arg("--json").output().ok()?;
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        (status["state"] == "enrolled" && status["lastSuccess"].is_string()).then_some(())
    });
    assert_eq!(running.terminate(), Some(0));
    // The relay writes heartbeats down together, and what waits when it is told to end.
    assert_eq!(nodes(&relay).await.len(), 1);
    let relay = relay.restart();
    let nodes = nodes(&relay).await;
    assert_eq!(nodes[0]["state"], "live");
}

async fn the_secret_of_a_token_is_nowhere(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &["--log", "trace"]);
    let token = relay.join_token(1).await;
    let (_, bcd) = machine(home.path(), 1, &relay, &token);
    let joined = bcd.join();
    assert_eq!(joined.code, Some(0), "{joined}");
    let secret = token.split_once('.').map(|(_, secret)| secret.to_owned()).unwrap();
    assert!(!joined.to_string().contains(&secret));
    // The one place is the file that the operator gave to bcd.
    assert_eq!(holders(home.path(), secret.as_bytes()), ["join-token"]);
    let admin = relay.admin_token();
    assert_eq!(holders(home.path(), admin.as_bytes()), ["admin_editor_token"]);
}

async fn a_banned_machine_comes_back_after_unban_and_spends_no_token(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let (_, bcd) = machine(home.path(), 1, &relay, &relay.join_token(1).await);
    let joined = bcd.join();
    let id = joined.stdout.trim().to_owned();
    // Neither is a token left in reach.
    bcd.give_token("");
    let node = json!({"tenantId": "provider", "poolId": "default", "nodeId": id});
    relay.call("compute/nodes/ban", &node).await;
    // The daemon hears of it, and stays down as its unit would leave it.
    let ended = finish(bcd.command("run"));
    assert_eq!(ended.code, Some(15), "{ended}");
    assert!(ended.stderr.contains("unban"), "{ended}");
    let refused = bcd.join();
    assert_eq!(refused.code, Some(15), "still banned: {refused}");

    relay.call("compute/nodes/unban", &node).await;
    let back = bcd.join();
    assert_eq!((back.code, back.stdout.trim()), (Some(0), id.as_str()), "{back}");
    let mut running = bcd.run();
    running.wait_for("word of a heartbeat", || {
        let status = bcd.command("status").arg("--json").output().ok()?;
        let status: Value = serde_json::from_slice(&status.stdout).ok()?;
        (status["state"] == "enrolled" && status["lastSuccess"].is_string()).then_some(())
    });
    // A join beside the daemon has nothing to do.
    let beside = bcd.join();
    assert_eq!((beside.code, beside.stdout.trim()), (Some(0), id.as_str()), "{beside}");
    assert_eq!(running.terminate(), Some(0));
    assert_eq!(nodes(&relay).await.len(), 1);
}

/// The id of the request, in what a program has said.
fn request_of(text: &str) -> &str {
    let (_, rest) = text.split_once(", request ").unwrap_or_else(|| panic!("no request id: {text}"));
    rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

async fn what_a_person_is_told_leads_to_a_line_of_the_log(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let token = relay.join_token(1).await;
    let (_, first) = machine(home.path(), 1, &relay, &token);
    assert_eq!(first.join().code, Some(0));
    let (_, late) = machine(home.path(), 2, &relay, &token);
    let exhausted = late.join();
    assert!(exhausted.stderr.contains("(tokenExhausted, request "), "{exhausted}");
    let (id, secret) = token.split_once('.').unwrap();
    let other = if secret.starts_with('0') { '1' } else { '0' };
    late.give_token(&format!("{id}.{other}{}", &secret[1..]));
    let wrong = late.join();
    assert!(wrong.stderr.contains("join token"), "{wrong}");
    // `bcd status` still says why.
    let status = finish(late.command("status"));
    assert!(status.stdout.contains(request_of(&wrong.stderr)), "{status}");
    let lines: Vec<Value> = relay.log().lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let line = |request: &str| lines.iter().find(|line| line["request_id"] == request);
    for (told, word) in [(&exhausted.stderr, "tokenExhausted"), (&wrong.stderr, "UNAUTHENTICATED")] {
        let line = line(request_of(told)).unwrap_or_else(|| panic!("{told}\n{}", relay.log()));
        assert!(line["level"] == "INFO" && line.to_string().contains(word), "{line}");
    }
    let changed = lines.iter().find(|line| line["message"] == "changed").unwrap();
    assert_eq!(changed["method"], "compute.joinTokens.create");
    assert_eq!(changed["actor"], "bootstrap-admin-editor");
    assert!(lines.iter().any(|line| line["trust_domain"] == "127.0.0.1"), "{}", relay.log());
    assert!(!relay.log().contains(secret));
}

/// The names of the files under a folder that hold these bytes.
fn holders(folder: &Path, bytes: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holders(&path, bytes));
        } else if fs::read(&path)
            .is_ok_and(|content| content.windows(bytes.len()).any(|window| window == bytes))
        {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found
}
