//! The admin credentials in a Kubernetes Secret, by relays in processes of their own: who writes when, whatever fails in
//! between. Time passes by putting the leases of the database back.

use crate::outcome;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use std::{
    path::Path,
    time::{Duration, Instant},
};
use tests::{Cluster, Database, FakeCluster, RelayProcess, on_both_databases};

/// What a relay logs when it looked and another pair is current.
const CURRENT: &str = "no pair is due";
/// What it logs when it wrote one.
const WRITTEN: &str = "the admin credentials in the Secret are new";
/// What it logs when it could not.
const FAILED: &str = "could not be written to the Secret";

on_both_databases!(
    the_pair_is_admins_and_lasts_its_period,
    a_relay_that_is_killed_leaves_no_gap,
    a_refusal_is_tried_again_and_tells_no_secret,
);

/// A relay of this cluster's pod.
fn pod(home: &Path, name: &str, database: &Database, cluster: &FakeCluster) -> RelayProcess {
    let home = home.join(name);
    std::fs::create_dir_all(&home).unwrap();
    let (account, key) = (cluster.account().to_str().unwrap(), home.with_file_name("master.key"));
    let log = "info,relay::auth::bootstrap=debug";
    let arguments = [
        "--metrics-listen=127.0.0.1:0",
        "--bootstrap-secret=relay-admin",
        &format!("--service-account-dir={account}"),
        &format!("--master-key-file={}", key.display()),
        &format!("--log={log}"),
    ];
    RelayProcess::start_in(&home, Some(database), &arguments, &cluster.environment())
}

/// Lets so many seconds pass for the leases.
async fn pass(database: &Database, seconds: i64) {
    let sql = format!("UPDATE leases SET until = until - {} RETURNING until", seconds * 1000);
    database.number(&sql).await;
}

async fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < Duration::from_secs(60), "not within a minute: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn said(relay: &RelayProcess, text: &str) -> usize {
    relay.log().matches(text).count()
}

async fn wait_for_line(relay: &RelayProcess, text: &str, times: usize) {
    wait_until(text, || said(relay, text) >= times).await;
}

/// A credential of the Secret.
fn token(secret: &Value, key: &str) -> String {
    let encoded = secret["data"][key].as_str().unwrap();
    String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap()
}

fn editor(cluster: &FakeCluster) -> String {
    token(&cluster.secret().unwrap(), "admin_editor_token")
}

/// What the relay answers to a bearer who lists tenants.
async fn lists(relay: &RelayProcess, bearer: &str) -> String {
    outcome(&relay.call_as(bearer, "iam/tenants/list", &json!({})).await.unwrap())
}

/// Behaviours 78, 79.
async fn the_pair_is_admins_and_lasts_its_period(database: Database) {
    let (home, cluster) = (tempfile::tempdir().unwrap(), FakeCluster::start());
    let relay = pod(home.path(), "one", &database, &cluster);
    wait_for_line(&relay, WRITTEN, 1).await;
    let asked = &cluster.asked()[0];
    assert_eq!(
        (asked.method.as_str(), asked.path.as_str(), asked.content_type.as_str()),
        (
            "PATCH",
            "/api/v1/namespaces/fleet/secrets/relay-admin?fieldManager=relay&force=true",
            "application/apply-patch+yaml"
        )
    );
    assert_eq!(asked.authorization, "Bearer first");
    let first = editor(&cluster);
    let viewer = token(&asked.body, "admin_viewer_token");
    let expected = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "relay-admin", "namespace": "fleet"},
        "data": {"admin_editor_token": STANDARD.encode(&first), "admin_viewer_token": STANDARD.encode(&viewer)},
    });
    assert_eq!(asked.body, expected);
    for (bearer, answer) in [(&first, "200"), (&viewer, "PERMISSION_DENIED")] {
        let tenant = json!({"tenantId": "made", "idempotencyKey": "made"});
        let made = relay.call_as(bearer, "iam/tenants/create", &tenant).await.unwrap();
        assert_eq!(outcome(&made), answer);
        assert_eq!(lists(&relay, bearer).await, "200");
    }
    // A restart within the period writes nothing; after it, with the token that the pod has by then.
    let relay = relay.restart();
    wait_for_line(&relay, CURRENT, 1).await;
    assert_eq!((cluster.asked().len(), editor(&cluster)), (1, first.clone()));
    cluster.set_token("second");
    pass(&database, 8 * 3600).await;
    let relay = relay.restart();
    wait_for_line(&relay, WRITTEN, 2).await;
    assert_eq!(cluster.asked().len(), 2);
    assert_eq!(cluster.asked()[1].authorization, "Bearer second");
    assert_ne!(editor(&cluster), first);
    for bearer in [&first, &editor(&cluster), &relay.admin_token()] {
        assert_eq!(
            lists(&relay, bearer).await,
            "200",
            "whoever read it before has eight hours to read again"
        );
    }
    let log = relay.log();
    for hidden in [&first, &viewer, &editor(&cluster), "Bearer", &STANDARD.encode(&first)] {
        assert!(!log.contains(hidden), "{log}");
    }
    assert!(!log.contains("already exists"), "the database's word that all is as it was: {log}");
}

async fn a_relay_that_is_killed_leaves_no_gap(database: Database) {
    let home = tempfile::tempdir().unwrap();
    for (name, stalls) in [("one", Cluster::Stalls), ("two", Cluster::WritesAndStalls)] {
        let cluster = FakeCluster::start();
        cluster.set(stalls);
        let relay = pod(home.path(), name, &database, &cluster);
        cluster.wait_for(1).await;
        relay.kill9();
        cluster.set(Cluster::Obeys);
        // Its minute is not over.
        let relay = pod(home.path(), name, &database, &cluster);
        wait_for_line(&relay, CURRENT, 1).await;
        assert_eq!(cluster.asked().len(), 1, "{stalls:?}");
        pass(&database, 60).await;
        let relay = relay.restart();
        wait_for_line(&relay, WRITTEN, 1).await;
        assert_eq!(cluster.asked().len(), 2, "{stalls:?}");
        assert_eq!(lists(&relay, &editor(&cluster)).await, "200");
        let of_the_first = token(&cluster.asked()[0].body, "admin_editor_token");
        assert_eq!(
            lists(&relay, &of_the_first).await,
            "200",
            "{stalls:?}: it would do, if it were in the Secret"
        );
        pass(&database, 8 * 3600).await;
    }
}

async fn a_refusal_is_tried_again_and_tells_no_secret(database: Database) {
    let (home, cluster) = (tempfile::tempdir().unwrap(), FakeCluster::start());
    cluster.set(Cluster::Refuses(403));
    let relay = pod(home.path(), "one", &database, &cluster);
    wait_for_line(&relay, FAILED, 1).await;
    let ready = relay.client(None).get(format!("{}/readyz", relay.url())).send().await.unwrap();
    assert_eq!(ready.status(), 200, "it serves");
    cluster.set(Cluster::Refuses(500));
    wait_for_line(&relay, FAILED, 2).await;
    cluster.set(Cluster::Stalls);
    wait_for_line(&relay, "no answer within 10 seconds", 1).await;
    cluster.set(Cluster::Obeys);
    wait_for_line(&relay, WRITTEN, 1).await;
    assert_eq!(lists(&relay, &editor(&cluster)).await, "200");
    let log = relay.log();
    assert!(log.contains("403 Refused: give the pod's service account a Role"), "{log}");
    assert!(log.contains("500 Refused: it may well do so later"), "{log}");
    for asked in cluster.asked() {
        for (_, encoded) in asked.body["data"].as_object().unwrap() {
            let plain = String::from_utf8(STANDARD.decode(encoded.as_str().unwrap()).unwrap()).unwrap();
            assert!(!log.contains(&plain) && !log.contains(encoded.as_str().unwrap()), "{log}");
        }
    }
}

#[tokio::test]
async fn of_two_relays_one_writes() {
    let (home, cluster, database) =
        (tempfile::tempdir().unwrap(), FakeCluster::start(), Database::postgres());
    let first = pod(home.path(), "one", &database, &cluster);
    let second = pod(home.path(), "two", &database, &cluster);
    let mut relays = [first, second];
    for period in 1..=2 {
        wait_until("both have looked", || {
            relays.iter().all(|relay| said(relay, WRITTEN) + said(relay, CURRENT) >= period)
        })
        .await;
        let written: usize = relays.iter().map(|relay| said(relay, WRITTEN)).sum();
        assert_eq!((cluster.asked().len(), written), (period, period));
        for relay in &relays {
            assert_eq!(lists(relay, &editor(&cluster)).await, "200");
        }
        pass(&database, 8 * 3600).await;
        relays = relays.map(RelayProcess::restart);
    }
}

#[tokio::test]
async fn a_writer_that_was_late_has_the_secret_written_anew() {
    let (home, cluster, database) =
        (tempfile::tempdir().unwrap(), FakeCluster::start(), Database::postgres());
    cluster.set(Cluster::Stalls);
    let late = pod(home.path(), "one", &database, &cluster);
    cluster.wait_for(1).await;
    // Its minute passes, and another relay is quicker.
    pass(&database, 60).await;
    let other = pod(home.path(), "two", &database, &cluster);
    cluster.wait_for(2).await;
    cluster.set(Cluster::Obeys);
    wait_for_line(&late, "another relay wrote it meanwhile", 1).await;
    // Whose pair stayed is not known, so there is a third, by whichever of the two.
    cluster.wait_for(3).await;
    wait_until("a settled pair", || said(&late, WRITTEN) + said(&other, WRITTEN) >= 1).await;
    assert_eq!(lists(&other, &editor(&cluster)).await, "200");
}
