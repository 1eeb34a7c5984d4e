//! Tasks of relays in processes of their own: one is killed with a task in work, and another one, or itself after a restart,
//! ends it as if nothing had been. What is given up is told and brought back by the CLI.
//!
//! The task is a CRL's publishing: a ban asks for it. Leases end by putting the database back.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tests::{
    Bcd, Database, FakeMachine, Finished, Hold, Kind, RelayProcess, finish, on_both_databases, program,
    unique,
};
use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

on_both_databases!(
    a_worker_killed_with_a_task_in_work_leaves_it_done_as_if_once,
    what_is_given_up_is_told_and_brought_back,
    a_watch_goes_on_with_the_credential_that_its_place_has_by_then,
);

/// The tasks of this story that have not ended well.
const OPEN: &str = "SELECT COUNT(*) FROM tasks WHERE type = 'crls.publish' AND state <> 'completed'";

/// A relay of this store, in a folder of its own.
fn relay(home: &Path, number: usize, database: &Database) -> RelayProcess {
    let (folder, key) = (home.join(format!("relay-{number}")), home.join("master.key"));
    fs::create_dir_all(&folder).unwrap();
    let key = format!("--master-key-file={}", key.display());
    RelayProcess::start(&folder, Some(database), &["--metrics-listen=127.0.0.1:0", &key])
}

async fn wait_for_number(database: &Database, sql: &str, expected: i64) {
    let started = Instant::now();
    while database.number(sql).await != expected {
        assert!(started.elapsed() < Duration::from_secs(60), "not {expected} within a minute: {sql}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A relay whose own first turn of publishing is over, and a node of it.
async fn site(home: &Path, database: &Database) -> (RelayProcess, Value) {
    let relay = relay(home, 0, database);
    let folder = home.join("machine");
    let bcd = Bcd::new(&folder, &FakeMachine::new(&folder, 1), &relay, &relay.join_token(1).await);
    let joined = bcd.join();
    assert_eq!(joined.code, Some(0), "{joined}");
    let published = "SELECT COUNT(*) FROM tasks WHERE type = 'crls.refresh' AND ended_at IS NOT NULL";
    wait_for_number(database, published, 1).await;
    let pool = json!({"tenantId": "provider", "poolId": "default"});
    let nodes = relay.call("compute/nodes/list", &pool).await;
    let node = json!({"tenantId": "provider", "poolId": "default", "nodeId": nodes["nodes"][0]["nodeId"]});
    (relay, node)
}

/// How many certificates the relay says are revoked, and the list's number. A relay that was asked before may say for seconds
/// what was so then.
async fn crl(relay: &RelayProcess) -> (usize, u64) {
    let answer = relay.client(None).get(format!("{}/crl/node.crl", relay.url())).send().await.unwrap();
    let der = answer.bytes().await.unwrap();
    let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
    (list.iter_revoked_certificates().count(), list.crl_number().unwrap().try_into().unwrap())
}

async fn a_worker_killed_with_a_task_in_work_leaves_it_done_as_if_once(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let (mut first, node) = site(home.path(), &database).await;
    let (_, mut number) = crl(&first).await;
    // In the claim, in the work, and in what ends it: by then all lists are there.
    let steps = [
        ("UPDATE", "tasks", "NEW.type = 'crls.publish' AND NEW.state = 'active'", ("ban", 1, 1)),
        ("INSERT", "crls", "NEW.number > 0", ("unban", 0, 2)),
        ("UPDATE", "tasks", "NEW.type = 'crls.publish' AND NEW.state = 'completed'", ("ban", 1, 2)),
    ];
    for (at, (event, table, when, (verb, revoked, attempts))) in steps.into_iter().enumerate() {
        let mut hold = Hold::on(&database, event, table, when).await;
        first.call(&format!("compute/nodes/{verb}"), &node).await;
        hold.wait().await;
        let second = (database.kind() == Kind::Postgres).then(|| relay(home.path(), at + 1, &database));
        if second.is_some() {
            // It looks every second, and leaves alone what the first one has.
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            assert_eq!(database.number(OPEN).await, 1, "{when}");
        }
        first.kill9();
        hold.lift().await;
        let active = "SELECT COUNT(*) FROM tasks WHERE type = 'crls.publish' AND state = 'active'";
        if attempts > 1 {
            assert_eq!(database.number(active).await, 1, "{when}: nobody takes over before the lease ends");
            let end = "UPDATE tasks SET due_at = 0 WHERE type = 'crls.publish' AND state = 'active' RETURNING due_at";
            database.number(end).await;
        }
        first = second.unwrap_or_else(|| relay(home.path(), 0, &database));
        wait_for_number(&database, OPEN, 0).await;
        let tried = "SELECT attempts FROM tasks WHERE type = 'crls.publish' ORDER BY created_at DESC, id DESC LIMIT 1";
        assert_eq!(database.number(tried).await, attempts, "{when}");
        let (on_it, next) = crl(&first).await;
        assert_eq!(on_it, revoked, "{when}");
        assert!(next > number, "{when}");
        number = next;
    }
    let all = "SELECT COUNT(*) FROM tasks WHERE type = 'crls.publish'";
    assert_eq!(database.number(all).await, 3, "one for each change");
    assert_eq!(database.number("SELECT COUNT(*) FROM events WHERE type = 'infra.task.archived'").await, 0);
}

/// `relay` on this relay's own folder.
fn cli(relay: &RelayProcess, words: &str) -> Finished {
    let mut command = program("relay");
    command.args(words.split(' ')).env("RELAY_DATA_DIR", relay.data_dir());
    finish(command)
}

/// Makes every list's publishing fail, and answers what mends that.
async fn without_ink(database: &Database) -> &'static str {
    let head = "CREATE TRIGGER broken BEFORE INSERT ON crls FOR EACH ROW";
    match database.kind() {
        Kind::Sqlite => {
            database.change(&format!("{head} BEGIN SELECT RAISE(ABORT, 'no ink'); END")).await;
            "DROP TRIGGER broken"
        }
        Kind::Postgres => {
            let function = "CREATE FUNCTION broken() RETURNS trigger LANGUAGE plpgsql AS \
                $$ BEGIN RAISE EXCEPTION 'no ink'; END $$";
            database.change(function).await;
            database.change(&format!("{head} EXECUTE FUNCTION broken()")).await;
            "DROP FUNCTION broken CASCADE"
        }
    }
}

/// `relay admin tasks watch`, which writes to a file.
struct Watching(Child, PathBuf);

impl Watching {
    fn start(relay: &RelayProcess, home: &Path) -> Self {
        Self::with(relay, home, program("relay"))
    }

    fn with(relay: &RelayProcess, home: &Path, mut command: Command) -> Self {
        let told = home.join("told");
        command.args(["admin", "tasks", "watch", "--interval", "1s"]).env("RELAY_DATA_DIR", relay.data_dir());
        let command = command.stdout(fs::File::create(&told).unwrap()).stderr(Stdio::null());
        Self(command.spawn().unwrap(), told)
    }

    /// Waits for a line that tells of a task of this type in this state.
    async fn wait_for(&self, kind: &str, state: &str) {
        let started = Instant::now();
        loop {
            let told = fs::read_to_string(&self.1).unwrap();
            let whole = told.split_inclusive('\n').filter(|line| line.ends_with('\n'));
            let mut lines = whole.map(|line| serde_json::from_str::<Value>(line).unwrap());
            if lines.any(|line| line["type"] == kind && line["state"] == state) {
                return;
            }
            assert!(started.elapsed() < Duration::from_secs(30), "no {kind} {state}: {told}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Ends it as Ctrl-C does.
    fn end(mut self) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGINT).unwrap();
        assert_eq!(self.0.wait().unwrap().code(), Some(0));
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

async fn a_watch_goes_on_with_the_credential_that_its_place_has_by_then(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let (relay, node) = site(home.path(), &database).await;
    let mint = async || {
        let asked = json!({"description": "watch", "adminRole": "VIEWER", "idempotencyKey": unique("key")});
        let made = relay.call("iam/tokens/create", &asked).await;
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&made["token"]["id"]), text(&made["secret"]))
    };
    let (first, second) = (mint().await, mint().await);
    let file = home.path().join("token");
    fs::write(&file, &first.1).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let mut command = program("relay");
    command.env("RELAY_TOKEN_FILE", &file);
    let mut watching = Watching::with(&relay, home.path(), command);
    watching.wait_for("store.forget", "pending").await;
    fs::write(&file, &second.1).unwrap();
    relay.call("iam/tokens/revoke", &json!({"tokenId": first.0})).await;
    let mend = without_ink(&database).await;
    relay.call("compute/nodes/ban", &node).await;
    watching.wait_for("crls.publish", "retry").await;
    database.change(mend).await;
    relay.call("iam/tokens/revoke", &json!({"tokenId": second.0})).await;
    assert_eq!(watching.0.wait().unwrap().code(), Some(3), "there is no other");
}

async fn what_is_given_up_is_told_and_brought_back(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let (relay, node) = site(home.path(), &database).await;
    let watching = Watching::start(&relay, home.path());
    let mend = without_ink(&database).await;
    relay.call("compute/nodes/ban", &node).await;
    let retried =
        "SELECT COUNT(*) FROM tasks WHERE type = 'crls.publish' AND state = 'retry' AND attempts = 1";
    wait_for_number(&database, retried, 1).await;
    // Nine more have failed meanwhile.
    database.change("UPDATE tasks SET attempts = 10, due_at = 0 WHERE type = 'crls.publish'").await;
    let archived = "SELECT COUNT(*) FROM tasks WHERE type = 'crls.publish' AND state = 'archived'";
    wait_for_number(&database, archived, 1).await;
    watching.wait_for("crls.publish", "archived").await;

    let listed = cli(&relay, "admin tasks list --state archived -o json");
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let task = &listed["tasks"][0];
    assert_eq!((&task["type"], &task["attempts"]), (&json!("crls.publish"), &json!(11)));
    let id = task["id"].as_str().unwrap();
    let events = relay.call("compute/events/list", &json!({"tenantId": "provider"})).await;
    let events = events["events"].as_array().unwrap();
    let event = events.iter().find(|event| event["type"] == "infra.task.archived").unwrap();
    assert_eq!((&event["subject"], &event["data"]["queue"]), (&json!(id), &json!("crls")));

    database.change(mend).await;
    let retry = cli(&relay, &format!("admin tasks retry {id}"));
    assert_eq!(retry.code, Some(0), "{retry}");
    wait_for_number(&database, OPEN, 0).await;
    assert_eq!(crl(&relay).await.0, 1);
    for (verb, code) in [("retry", 1), ("delete", 0), ("get", 4)] {
        let done = cli(&relay, &format!("admin tasks {verb} {id}"));
        assert_eq!(done.code, Some(code), "{verb} of what is done: {done}");
    }
    watching.wait_for("store.forget", "pending").await;
    watching.end();
}
