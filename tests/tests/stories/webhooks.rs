//! Webhooks of relays in processes of their own: one is killed while a receiver has an event and has not said so, and another
//! one, or itself after a restart, sends it again and then what follows it. The secret is nowhere but in its first answer.
//!
//! The receiver is the server that plays a cluster's API elsewhere: it takes what comes, and stalls as long as it is told to.

use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};
use tests::{Cluster, Database, FakeCluster, Kind, RelayProcess, on_both_databases, unique};

on_both_databases!(a_relay_killed_with_a_delivery_in_work_leaves_each_event_delivered_in_order);

/// A relay of this store, in a folder of its own, whose webhooks may lead to this machine.
fn relay(home: &Path, number: usize, database: &Database, receiver: &FakeCluster) -> RelayProcess {
    let (folder, key) = (home.join(format!("relay-{number}")), home.join("master.key"));
    fs::create_dir_all(&folder).unwrap();
    let key = format!("--master-key-file={}", key.display());
    let ca = format!("--webhook-ca-file={}", receiver.account().join("ca.crt").display());
    let arguments = ["--metrics-listen=127.0.0.1:0", "--webhook-networks=127.0.0.0/8", &key, &ca];
    RelayProcess::start(&folder, Some(database), &arguments)
}

/// Makes a project of the provider, which is an event.
async fn happens(relay: &RelayProcess, project: &str) {
    let input = json!({"tenantId": "provider", "projectId": project, "idempotencyKey": unique("key")});
    relay.call("iam/projects/create", &input).await;
}

async fn create(relay: &RelayProcess, receiver: &FakeCluster) -> Value {
    let port = receiver.environment().into_iter().find(|(name, _)| name.ends_with("_PORT")).unwrap().1;
    let input = json!({
        "tenantId": "provider", "url": format!("https://127.0.0.1:{port}/hook"), "types": ["iam.project.*"],
        "idempotencyKey": unique("key"),
    });
    relay.call("iam/webhooks/create", &input).await
}

/// The projects that the receiver was told of, in order.
fn told(receiver: &FakeCluster) -> Vec<String> {
    let asked = receiver.asked();
    assert!(asked.iter().all(|asked| asked.content_type == "application/cloudevents+json"));
    asked.iter().map(|asked| asked.body["subject"].as_str().unwrap().to_owned()).collect()
}

async fn wait_for(receiver: &FakeCluster, project: &str) {
    let started = Instant::now();
    while told(receiver).last().is_none_or(|last| last != project) {
        assert!(started.elapsed() < Duration::from_secs(60), "no {project}: {:?}", told(receiver));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn a_relay_killed_with_a_delivery_in_work_leaves_each_event_delivered_in_order(database: Database) {
    let (home, receiver) = (tempfile::tempdir().unwrap(), FakeCluster::start());
    let first = relay(home.path(), 0, &database, &receiver);
    happens(&first, "before").await;
    let made = create(&first, &receiver).await;
    receiver.set(Cluster::Stalls);
    happens(&first, "one").await;
    wait_for(&receiver, "one").await;
    let second = (database.kind() == Kind::Postgres).then(|| relay(home.path(), 1, &database, &receiver));
    happens(&first, "two").await;
    let log = first.log();
    first.kill9();
    let active = "SELECT COUNT(*) FROM tasks WHERE type = 'webhook.deliver' AND state = 'active'";
    assert_eq!(database.number(active).await, 1, "nobody takes over before the lease ends");
    database.change("UPDATE tasks SET due_at = 0 WHERE type = 'webhook.deliver' AND state = 'active'").await;
    receiver.set(Cluster::Obeys);
    let relay = second.unwrap_or_else(|| relay(home.path(), 0, &database, &receiver));
    wait_for(&receiver, "two").await;
    happens(&relay, "three").await;
    wait_for(&receiver, "three").await;
    assert_eq!(told(&receiver), ["one", "one", "two", "three"]);
    let ids: Vec<Value> = receiver.asked().iter().map(|asked| asked.body["id"].clone()).collect();
    assert_eq!(ids[0], ids[1], "the receiver knows it by its id");

    let listed = relay.call("iam/webhooks/list", &json!({"tenantId": "provider"})).await;
    let webhook = &listed["webhooks"][0];
    assert_eq!((&webhook["id"], &webhook["enabled"]), (&made["webhook"]["id"], &json!(true)));
    let secret = made["secret"].as_str().unwrap().strip_prefix("whsec_").unwrap();
    for (what, text) in [
        ("an answer", listed.to_string()),
        ("the database", database.dump().await),
        ("a log", format!("{log}{}", relay.log())),
    ] {
        assert!(!text.contains(secret), "the secret is in {what}");
    }
}
