//! Deliveries whose worker is killed, late or aimed elsewhere, on both databases, to a receiver that may lie.

use super::*;
use crate::{
    api::tests::{Desk, at_a_desk, root},
    events::{Event, Kind as EventKind, Origin},
    outside::testing::{Answers, Face, Receiver, Taken},
    store::{StoreError, testing::killed_after},
    tasks::runner::Runner,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use shared::api::tasks::TaskState;
use std::{sync::Arc, time::Duration};

const DAY_MILLIS: i64 = 86_400_000;

/// A desk whose way outside leads to this receiver.
async fn with_receiver(story: impl AsyncFn(&Desk, &Receiver)) {
    at_a_desk(async |mut desk| {
        let receiver = Receiver::start(Face::Good).await;
        Arc::get_mut(&mut desk.relay).unwrap().outside = receiver.outside();
        story(&desk, &receiver).await;
    })
    .await;
}

/// Writes an event for a tenant; its subject is this word.
async fn tell(desk: &Desk, tenant: &str, kind: EventKind, subject: &str) {
    let told: Result<(), StoreError> = desk
        .relay
        .store
        .transact("tell", (desk, tenant, kind, subject), |tx, (desk, tenant, kind, subject)| {
            Box::pin(async move {
                let origin =
                    Origin { actor: "ann".to_owned(), request_id: "r".to_owned(), at: desk.clock.now() };
                let event = Event { kind: *kind, tenant, subject, data: json!({"é": "\n"}) };
                events::insert(tx, &desk.relay.random, &origin, &event).await
            })
        })
        .await;
    told.unwrap();
    desk.clock.advance(Duration::from_millis(1));
}

async fn joined(desk: &Desk, subject: &str) {
    tell(desk, "acme", EventKind::NodeJoined, subject).await;
}

/// As the publisher does.
async fn publish(desk: &Desk) -> u64 {
    let store = &desk.relay.store;
    let relay = &desk.relay;
    store.transact("number", relay, |tx, relay| Box::pin(number(tx, &relay.random))).await.unwrap()
}

async fn create(desk: &Desk, url: &str, types: &[&str]) -> Value {
    let input = json!({"tenantId": "acme", "url": url, "types": types});
    desk.good(&root(), "iam.webhooks.create", input).await
}

/// The webhooks of acme.
async fn listed(desk: &Desk) -> Vec<Value> {
    let listed = desk.good(&root(), "iam.webhooks.list", json!({"tenantId": "acme"})).await;
    listed["webhooks"].as_array().unwrap().clone()
}

async fn update(desk: &Desk, id: &Value, mut changes: Value) -> Value {
    changes["tenantId"] = json!("acme");
    changes["webhookId"] = id.clone();
    desk.good(&root(), "iam.webhooks.update", changes).await
}

fn worker(desk: &Desk) -> Runner {
    Runner::new(desk.relay.clone(), Arc::new(handlers(Handlers::default())))
}

/// Does what is due, until nothing is.
async fn work(desk: &Desk) {
    while worker(desk).turn().await.unwrap() > 0 {}
}

async fn execute(desk: &Desk, sql: &'static str) {
    let done: Result<u64, StoreError> =
        desk.relay.store.transact("test", (), |tx, ()| Box::pin(tx.execute(sql, &[]))).await;
    done.unwrap();
}

/// Lets every wait be over, and every lease end.
async fn pass(desk: &Desk) {
    execute(desk, "UPDATE tasks SET due_at = 0 WHERE due_at IS NOT NULL").await;
}

async fn tasks(desk: &Desk, state: TaskState) -> usize {
    let found: Result<_, StoreError> = desk
        .relay
        .store
        .read("test", state, |tx, state| {
            Box::pin(crate::store::tasks::page(tx, QUEUE.name, Some(*state), ("", false), 1_000))
        })
        .await;
    found.unwrap().len()
}

/// The subjects of the events that came, in order.
fn subjects(taken: &[Taken]) -> Vec<String> {
    let subject = |taken: &Taken| {
        let event: Value = serde_json::from_str(&taken.body).unwrap();
        event["subject"].as_str().unwrap().to_owned()
    };
    taken.iter().map(subject).collect()
}

/// HMAC-SHA256 (RFC 2104), by nothing that the relay signs with.
fn hmac_sha256(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0_u8; 64];
    block[..key.len()].copy_from_slice(key);
    let pad = |with: u8| block.map(|byte| byte ^ with).to_vec();
    let inner = Sha256::digest([pad(0x36), message.to_vec()].concat());
    Sha256::digest([pad(0x5c), inner.to_vec()].concat()).to_vec()
}

/// That a delivery is signed by this secret, as the Standard Webhooks specification has it.
fn assert_signed(taken: &Taken, secret: &str) {
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    assert_eq!(key.len(), 32);
    let (id, time) = (taken.header("webhook-id"), taken.header("webhook-timestamp"));
    let tag = hmac_sha256(&key, format!("{id}.{time}.{}", taken.body).as_bytes());
    assert_eq!(taken.header("webhook-signature"), format!("v1,{}", STANDARD.encode(tag)));
}

#[test]
fn a_pattern_is_a_type_or_its_beginning() {
    let one = |pattern: &str, event_type: &str| matches(&[pattern.to_owned()], event_type);
    for (pattern, event_type, yes) in [
        ("*", "security.node.joined", true),
        ("security.*", "security.node.joined", true),
        ("security.node.*", "security.node.joined", true),
        ("security.node.joined", "security.node.joined", true),
        ("security.node.*", "security.node-x.joined", false),
        ("security.node.join", "security.node.joined", false),
        ("security.node.joined.*", "security.node.joined", false),
        ("iam.*", "security.node.joined", false),
    ] {
        assert_eq!(one(pattern, event_type), yes, "{pattern} {event_type}");
    }
    assert!(!matches(&[], "security.node.joined"));
}

#[tokio::test]
async fn events_from_the_creation_on_are_sent_in_order_and_signed() {
    with_receiver(async |desk, receiver| {
        joined(desk, "before").await;
        let made = create(desk, &receiver.url("hook?x=1"), &["security.node.*"]).await;
        let secret = made["secret"].as_str().unwrap();
        for subject in ["one", "two", "three"] {
            joined(desk, subject).await;
        }
        tell(desk, "other", EventKind::NodeJoined, "others").await;
        tell(desk, "acme", EventKind::MemberCreated, "ann").await;
        assert_eq!(publish(desk).await, 5, "the one of before has its number since the creation");
        work(desk).await;
        let taken = receiver.taken();
        assert_eq!(subjects(&taken), ["one", "two", "three"]);
        let events = desk.good(&root(), "compute.events.list", json!({"tenantId": "acme"})).await;
        for (taken, event) in taken.iter().zip(&events["events"].as_array().unwrap()[1..]) {
            assert_eq!(&serde_json::from_str::<Value>(&taken.body).unwrap(), event, "as the API has it");
            assert_eq!(taken.header("webhook-id"), event["id"]);
            let time: i64 = taken.header("webhook-timestamp").parse().unwrap();
            assert_eq!(time, desk.clock.now().seconds());
            assert_eq!(taken.header("content-type"), "application/cloudevents+json");
            assert_eq!(taken.path, "/hook");
            assert_signed(taken, secret);
        }
        let webhook = &listed(desk).await[0];
        assert_eq!(webhook["deliveredAt"], json!(desk.clock.now()));
        assert_eq!(tasks(desk, TaskState::Completed).await, 1);
        // What is none of its types asks for nothing.
        tell(desk, "acme", EventKind::MemberDeleted, "ann").await;
        assert_eq!(publish(desk).await, 1);
        assert_eq!(tasks(desk, TaskState::Pending).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_worker_killed_at_every_step_leaves_each_event_delivered_in_order() {
    with_receiver(async |desk, receiver| {
        create(desk, &receiver.url("hook"), &["*"]).await;
        let mut expected: Vec<String> = Vec::new();
        for polls in 1..5_000 {
            for part in ["a", "b"] {
                expected.push(format!("{polls}{part}"));
                joined(desk, expected.last().unwrap()).await;
            }
            publish(desk).await;
            let first = worker(desk);
            let whole = killed_after(polls, first.turn()).await.is_some();
            drop(first);
            pass(desk).await;
            work(desk).await;
            let mut taken = subjects(&receiver.taken());
            let repeated = taken.len();
            let mut seen = BTreeSet::new();
            taken.retain(|subject| seen.insert(subject.clone()));
            assert_eq!(taken, expected, "{polls}: by the first of each");
            assert!(repeated <= taken.len() + polls, "{polls}: none more than once again");
            assert_eq!(tasks(desk, TaskState::Pending).await, 0, "{polls}");
            if whole {
                assert!(polls > 10, "{polls} steps");
                return;
            }
        }
        panic!("no worker ever came through");
    })
    .await;
}

#[tokio::test]
async fn what_fails_is_sent_again_before_what_follows_it() {
    with_receiver(async |desk, receiver| {
        create(desk, &receiver.url("hook"), &["*"]).await;
        receiver.answer(Answers::Status(500));
        joined(desk, "one").await;
        joined(desk, "two").await;
        publish(desk).await;
        for failures in 1..=3_usize {
            pass(desk).await;
            work(desk).await;
            assert_eq!(subjects(&receiver.taken()), vec!["one"; failures], "the second one waits for the first");
            let webhook = &listed(desk).await[0];
            assert_eq!((&webhook["lastError"], &webhook["enabled"]), (&json!("status 500"), &json!(true)));
            assert!(webhook["failingSince"].is_string() && webhook.get("deliveredAt").is_none());
        }
        let waits = "SELECT MAX(due_at) - MAX(failing_since) AS n FROM tasks, webhooks WHERE type = 'webhook.deliver'";
        let waits: Result<i64, StoreError> = desk
            .relay
            .store
            .read("test", waits, |tx, sql| Box::pin(async move { tx.fetch_one(sql, &[]).await?.integer("n") }))
            .await;
        assert!((40_000..60_000).contains(&waits.unwrap()), "doubled twice");
        let redirect = Answers::Redirect(307, receiver.url("elsewhere"));
        for (answers, word) in [(redirect, "status 307"), (Answers::HangsUp, "notReached")] {
            receiver.answer(answers);
            pass(desk).await;
            work(desk).await;
            assert_eq!(listed(desk).await[0]["lastError"], word);
        }
        receiver.answer(Answers::Endless);
        pass(desk).await;
        work(desk).await;
        let taken = receiver.taken();
        let ids: Vec<&str> = taken.iter().map(|taken| taken.header("webhook-id")).collect();
        assert_eq!(subjects(&taken), ["one", "one", "one", "one", "one", "one", "two"]);
        assert!(ids[..6].iter().all(|id| *id == ids[0]), "the receiver knows it by its id");
        let webhook = &listed(desk).await[0];
        assert!(webhook.get("lastError").is_none() && webhook.get("failingSince").is_none());
        assert_eq!(tasks(desk, TaskState::Completed).await, 1, "one task for all of it");
    })
    .await;
}

#[tokio::test]
async fn three_days_of_failure_disable_it_and_it_goes_on_where_it_stopped() {
    with_receiver(async |desk, receiver| {
        let id = create(desk, &receiver.url("hook"), &["security.*"]).await["webhook"]["id"].clone();
        receiver.answer(Answers::Status(503));
        joined(desk, "one").await;
        publish(desk).await;
        work(desk).await;
        // Eighteen more failed, and almost three days went by.
        execute(desk, "UPDATE webhooks SET failures = 19, failing_since = failing_since - 259000000").await;
        pass(desk).await;
        work(desk).await;
        assert_eq!(listed(desk).await[0]["enabled"], json!(true), "not yet");
        assert!(!desk.events().await.iter().any(|(kind, _)| kind == "infra.webhook.disabled"));
        execute(desk, "UPDATE webhooks SET failing_since = failing_since - 200000").await;
        desk.clock.advance(Duration::from_millis(u64::try_from(3 * DAY_MILLIS).unwrap()));
        pass(desk).await;
        work(desk).await;
        let webhook = &listed(desk).await[0];
        assert_eq!((&webhook["enabled"], &webhook["disabledReason"]), (&json!(false), &json!("failing")));
        assert_eq!(
            desk.events().await.last().unwrap(),
            &("infra.webhook.disabled".to_owned(), id.as_str().unwrap().to_owned())
        );
        let told = desk.last_event().await;
        assert_eq!((&told["reason"], &told["lastError"]), (&json!("failing"), &json!("status 503")));
        assert!(!told.to_string().contains("hook"), "its address is its OWNER's: {told}");
        // It is asked for no more.
        receiver.answer(Answers::Status(200));
        joined(desk, "two").await;
        publish(desk).await;
        pass(desk).await;
        worker(desk).ensure().await.unwrap();
        work(desk).await;
        assert_eq!(subjects(&receiver.taken()), ["one", "one", "one"]);
        let again = update(desk, &id, json!({"enabled": true})).await;
        assert!(
            again["webhook"].get("disabledAt").is_none() && again["webhook"].get("failingSince").is_none()
        );
        work(desk).await;
        assert_eq!(subjects(&receiver.taken()), ["one", "one", "one", "one", "two"]);
    })
    .await;
}

#[tokio::test]
async fn a_change_counts_at_the_next_step() {
    with_receiver(async |desk, receiver| {
        let made = create(desk, &receiver.url("old"), &["*"]).await;
        let id = made["webhook"]["id"].clone();
        receiver.answer(Answers::Status(404));
        joined(desk, "one").await;
        publish(desk).await;
        work(desk).await;
        // Aimed elsewhere it waits no more; what failed there is forgotten; the new secret signs.
        receiver.answer(Answers::Status(200));
        let rotated = update(desk, &id, json!({"url": receiver.url("new"), "rotateSecret": true})).await;
        assert!(rotated["webhook"].get("lastError").is_none());
        assert_ne!(rotated["secret"], made["secret"]);
        work(desk).await;
        let taken = receiver.taken();
        assert_eq!(taken.iter().map(|taken| taken.path.as_str()).collect::<Vec<_>>(), ["/old", "/new"]);
        assert_signed(&taken[0], made["secret"].as_str().unwrap());
        assert_signed(&taken[1], rotated["secret"].as_str().unwrap());
        // Disabled by request: what is asked for already is not done.
        joined(desk, "two").await;
        publish(desk).await;
        let disabled = update(desk, &id, json!({"enabled": false})).await;
        assert_eq!(disabled["webhook"]["disabledReason"], "request");
        work(desk).await;
        assert_eq!(receiver.taken().len(), 2);
        update(desk, &id, json!({"enabled": true, "types": ["iam.*"]})).await;
        joined(desk, "three").await;
        tell(desk, "acme", EventKind::TokenCreated, "four").await;
        publish(desk).await;
        work(desk).await;
        assert_eq!(subjects(&receiver.taken())[2..], ["four"], "by its types of now");
        tell(desk, "acme", EventKind::TokenCreated, "five").await;
        publish(desk).await;
        desk.good(&root(), "iam.webhooks.delete", json!({"tenantId": "acme", "webhookId": id})).await;
        work(desk).await;
        assert_eq!(receiver.taken().len(), 3);
        assert_eq!(tasks(desk, TaskState::Pending).await, 0);
    })
    .await;
}

#[tokio::test]
async fn what_was_taken_while_it_was_changed_is_sent_to_where_it_leads_now() {
    with_receiver(async |desk, receiver| {
        let id = create(desk, &receiver.url("old"), &["*"]).await["webhook"]["id"].clone();
        receiver.answer(Answers::SlowBody);
        joined(desk, "one").await;
        publish(desk).await;
        let change = async {
            while receiver.taken().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            receiver.answer(Answers::Status(200));
            update(desk, &id, json!({"url": receiver.url("new")})).await;
        };
        let late = worker(desk);
        let (turn, ()) = tokio::join!(late.turn(), change);
        turn.unwrap();
        work(desk).await;
        assert_eq!(subjects(&receiver.taken()), ["one", "one"]);
        assert_eq!(receiver.taken()[1].path, "/new");
    })
    .await;
}

#[tokio::test]
async fn the_sweep_asks_for_what_nobody_asked_for_and_passes_over_the_rest() {
    with_receiver(async |desk, receiver| {
        create(desk, &receiver.url("hook"), &["security.*"]).await;
        let unasked = async || {
            let numbered: Result<u64, StoreError> =
                desk.relay.store.transact("number", (), |tx, ()| Box::pin(events::number(tx, 100))).await;
            assert!(numbered.unwrap() > 0);
            pass(desk).await;
            let sweeper = worker(desk);
            sweeper.ensure().await.unwrap();
            work(desk).await;
        };
        tell(desk, "acme", EventKind::MemberCreated, "ann").await;
        unasked().await;
        assert!(receiver.taken().is_empty());
        let behind: Result<_, StoreError> =
            desk.relay.store.read("idle", (), |tx, ()| Box::pin(webhooks::idle(tx, 10))).await;
        assert!(behind.unwrap().is_empty(), "it has passed over what is none of its own");
        joined(desk, "one").await;
        unasked().await;
        assert_eq!(subjects(&receiver.taken()), ["one"]);
    })
    .await;
}

#[tokio::test]
async fn an_address_that_is_not_outside_is_sent_nothing() {
    at_a_desk(async |desk| {
        let receiver = Receiver::start(Face::Good).await;
        // A name: that it leads inside is seen when it is resolved.
        create(&desk, &receiver.url("hook"), &["*"]).await;
        joined(&desk, "one").await;
        publish(&desk).await;
        work(&desk).await;
        assert_eq!(listed(&desk).await[0]["lastError"], "refusedAddress");
        assert!(receiver.taken().is_empty());
    })
    .await;
}

#[tokio::test]
async fn many_events_are_sent_in_order_by_several_workers() {
    with_receiver(async |desk, receiver| {
        for path in ["a", "b"] {
            create(desk, &receiver.url(path), &["*"]).await;
        }
        let expected: Vec<String> = (0..130).map(|at| format!("{at}")).collect();
        for subject in &expected {
            joined(desk, subject).await;
        }
        publish(desk).await;
        let workers = [worker(desk), worker(desk), worker(desk)];
        let done = async {
            while receiver.taken().len() < 2 * expected.len() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = futures_util::future::join_all(workers.iter().map(Runner::run)) => panic!("it never ends"),
            done = tokio::time::timeout(Duration::from_secs(60), done) => done.unwrap(),
        }
        for path in ["/a", "/b"] {
            let of: Vec<Taken> = receiver.taken().into_iter().filter(|taken| taken.path == path).collect();
            assert_eq!(subjects(&of), expected, "{path}");
        }
    })
    .await;
}
