//! `relay restore`: what was taken back since a backup stays so, whatever the backup says, and nothing is half restored.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{fs, path::Path};
use tests::{Bcd, Database, FakeMachine, Finished, RelayProcess, finish, program};

/// The files of a data directory that are a database's, or are on the way to be.
fn database_files(data: &Path) -> Vec<String> {
    let names = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.contains("relay.db")).collect();
    names.sort();
    names
}

/// Ends a relay that is to be started again where it was.
fn end(relay: &RelayProcess) {
    kill(Pid::from_raw(relay.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let lock = fs::File::open(relay.data_dir().join("lock")).unwrap();
    lock.lock_shared().unwrap();
}

fn restore(data: &Path, words: &[&str]) -> Finished {
    let mut command = program("relay");
    command.arg("restore").args(words).arg("--data-dir").arg(data);
    finish(command)
}

/// What a relay that was restored knows: nothing that was in somebody's hands, and every node.
async fn is_as_it_must_be(relay: &RelayProcess, home: &Path, node: &Bcd, revived: &str, old_admin: &str) {
    let refused = relay.call_as(old_admin, "iam/tenants/list", &json!({})).await.unwrap();
    assert_eq!(refused.status, 401, "{refused:?}");
    let told = relay.call("compute/events/list", &json!({"tenantId": "provider", "limit": 200})).await;
    let told =
        told["events"].as_array().unwrap().iter().find(|event| event["type"] == "security.store.restored");
    let told = told.map_or(Value::Null, |event| event["data"].clone());
    assert!(told["joinTokens"] == 1 && told["credentials"].as_u64() >= Some(2), "{told}");

    let machine = FakeMachine::new(&home.join("stranger/machine"), 2);
    let stranger = Bcd::new(&home.join("stranger"), &machine, relay, revived).join();
    assert_eq!(stranger.code, Some(12), "{stranger}");
    let known = node.join();
    assert!(known.code == Some(0) && known.stdout.starts_with("nd_"), "{known}");
    let beats = relay.call("compute/nodes/list", &json!({"tenantId": "provider", "poolId": "default"})).await;
    assert_eq!(beats["nodes"].as_array().unwrap().len(), 1, "{beats}");
}

async fn revoke_all(relay: &RelayProcess) {
    let pool = json!({"tenantId": "provider", "poolId": "default"});
    let listed = relay.call("compute/joinTokens/list", &pool).await;
    for token in listed["joinTokens"].as_array().unwrap() {
        let mut input = pool.clone();
        input["tokenId"] = token["id"].clone();
        relay.call("compute/joinTokens/revoke", &input).await;
    }
}

#[tokio::test]
async fn what_was_revoked_since_a_backup_stays_revoked_when_it_is_restored() {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), None, &["--metrics-listen", "127.0.0.1:0"]);
    let data = relay.data_dir().to_owned();
    let old_admin = relay.admin_token();
    let token = relay.join_token(5).await;
    let machine = FakeMachine::new(&home.path().join("node/machine"), 1);
    let node = Bcd::new(&home.path().join("node"), &machine, &relay, &token);
    assert_eq!(node.join().code, Some(0));
    let backup = home.path().join("backup.db");
    let backup = backup.to_str().unwrap();
    assert_eq!(relay.command(&["backup", "--out", backup]).code, Some(0));
    revoke_all(&relay).await;

    let running = restore(&data, &["--from", backup]);
    assert!(running.code == Some(75) && running.stderr.contains("another relay"), "{running}");
    end(&relay);
    let there = restore(&data, &["--from", backup]);
    assert!(there.code == Some(1) && there.stderr.contains("overwrites nothing"), "{there}");
    for name in database_files(&data) {
        fs::remove_file(data.join(name)).unwrap();
    }
    let done = restore(&data, &["--from", backup]);
    assert!(done.code == Some(0) && done.stderr.contains("1 join tokens"), "{done}");
    assert_eq!(database_files(&data), ["relay.db"], "and nothing beside it");
    is_as_it_must_be(&relay.restart(), home.path(), &node, &token, &old_admin).await;
}

#[tokio::test]
async fn what_is_no_backup_of_this_relay_leaves_nothing_behind() {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), None, &["--metrics-listen", "127.0.0.1:0"]);
    let data = relay.data_dir().to_owned();
    let backup = home.path().join("backup.db");
    assert_eq!(relay.command(&["backup", "--out", backup.to_str().unwrap()]).code, Some(0));
    assert_eq!(relay.terminate(), Some(0));
    for name in database_files(&data) {
        fs::remove_file(data.join(name)).unwrap();
    }
    let refused = |from: &Path, code: i32, word: &str| {
        let answer = restore(&data, &["--from", from.to_str().unwrap()]);
        assert!(answer.code == Some(code) && answer.stderr.contains(word), "{}: {answer}", from.display());
        assert_eq!(database_files(&data), [""; 0], "{}", from.display());
    };
    let odd = home.path().join("odd.db");
    refused(&odd, 4, "odd.db");
    fs::write(&odd, "no database at all").unwrap();
    refused(&odd, 1, "database");
    fs::write(&odd, &fs::read(&backup).unwrap()[..8192]).unwrap();
    refused(&odd, 1, "");
    fs::write(&odd, "").unwrap();
    refused(&odd, 1, "");
    refused(home.path(), 1, "");
    fs::copy(&backup, &odd).unwrap();
    fs::write(home.path().join("odd.db-wal"), "x").unwrap();
    refused(&odd, 1, "no backup");
    let key = data.join("master.key");
    let kept = fs::read(&key).unwrap();
    fs::write(&key, "11".repeat(32)).unwrap();
    refused(&backup, 1, "master key");
    fs::write(&key, kept).unwrap();
    let unnamed = restore(&data, &[]);
    assert!(unnamed.code == Some(2) && unnamed.stderr.contains("--from FILE"), "{unnamed}");
    let done = restore(&data, &["--from", backup.to_str().unwrap()]);
    assert_eq!(done.code, Some(0), "{done}");
}

#[tokio::test]
async fn a_servers_database_is_made_safe_where_that_is_confirmed() {
    let home = tempfile::tempdir().unwrap();
    let database = Database::postgres();
    let relay = RelayProcess::start(home.path(), Some(&database), &["--metrics-listen", "127.0.0.1:0"]);
    let data = relay.data_dir().to_owned();
    let old_admin = relay.admin_token();
    let token = relay.join_token(5).await;
    let machine = FakeMachine::new(&home.path().join("node/machine"), 1);
    let node = Bcd::new(&home.path().join("node"), &machine, &relay, &token);
    assert_eq!(node.join().code, Some(0));
    end(&relay);

    let all = |words: &[&str]| restore(&data, &[words, &["--database-url", database.url()]].concat());
    let open = "SELECT CAST(COUNT(*) AS BIGINT) FROM join_tokens WHERE revoked_at IS NULL";
    for (words, said) in [(&[][..], "--yes"), (&["--from", "x", "--yes"], "pg_restore")] {
        let refused = all(words);
        assert!(refused.code == Some(2) && refused.stderr.contains(said), "{refused}");
        assert_eq!(database.number(open).await, 1);
    }
    let done = all(&["--yes"]);
    assert_eq!(done.code, Some(0), "{done}");
    is_as_it_must_be(&relay.restart(), home.path(), &node, &token, &old_admin).await;
}
