//! Lists are published as if once, whoever is killed at it, on both databases.

use super::*;
use crate::{
    api::tests::{Desk, at_a_desk, nodes::admit, root},
    store::{StoreError, certificates::CertificateRow, testing::killed_after},
    tasks::runner::Runner,
};
use serde_json::json;
use shared::{
    api::{node::Trust, tasks::TaskState},
    hex,
    id::NodeId,
};
use x509_parser::{prelude::FromDer as _, revocation_list::CertificateRevocationList};

/// The CA of the machines' certificates.
fn issuer(desk: &Desk) -> String {
    desk.relay.ca.load().issuers().find(|record| record.name.as_str() == "node").unwrap().id.clone()
}

fn serial(seed: u8) -> String {
    hex::encode(&[seed; 16])
}

/// A node with a certificate of this serial number.
async fn machine(desk: &Desk, seed: u8) -> NodeId {
    let uuid = format!("4c4c4544-0035-4d10-8052-b4c04f4a34{seed:02x}");
    let node = admit(desk, seed, &uuid).await;
    let now = desk.clock.now();
    let row = CertificateRow {
        serial: serial(seed),
        node: node.clone(),
        generation: 1,
        issuer: issuer(desk),
        certificate: String::new(),
        chain: String::new(),
        csr_sha256: String::new(),
        key_sha256: String::new(),
        trust: Trust::Platform,
        not_before: now,
        not_after: now.plus_seconds(86_400),
    };
    let written: Result<(), StoreError> =
        desk.relay.store.transact("issue", row, |tx, row| Box::pin(certificates::insert(tx, row))).await;
    written.unwrap();
    node
}

async fn change(desk: &Desk, verb: &str, node: &NodeId) {
    let input = json!({"tenantId": "acme", "poolId": "gpu-a", "nodeId": node});
    desk.good(&root(), &format!("compute.nodes.{verb}"), input).await;
}

fn worker(desk: &Desk) -> Runner {
    Runner::new(desk.relay.clone(), Arc::new(handlers(Handlers::default())))
}

/// The number of the published list and the serial numbers on it.
async fn list(desk: &Desk) -> Option<(i64, Vec<String>)> {
    let found: Result<_, StoreError> =
        desk.relay.store.read("test", issuer(desk), |tx, issuer| Box::pin(crls::find(tx, issuer))).await;
    let found = found.unwrap()?;
    let der = STANDARD.decode(found.der).unwrap();
    let (_, list) = CertificateRevocationList::from_der(&der).unwrap();
    let number = i64::try_from(list.crl_number().unwrap()).unwrap();
    assert_eq!(number, found.number);
    Some((number, list.iter_revoked_certificates().map(|entry| hex::encode(entry.raw_serial())).collect()))
}

async fn count(desk: &Desk, state: TaskState) -> usize {
    let found: Result<_, StoreError> = desk
        .relay
        .store
        .read("test", state, |tx, state| {
            Box::pin(tasks::page(tx, QUEUE.name, Some(*state), ("", false), 1_000))
        })
        .await;
    found.unwrap().len()
}

/// Lets leases end and waits be over.
async fn pass(desk: &Desk) {
    let sql = "UPDATE tasks SET due_at = 0 WHERE due_at IS NOT NULL";
    let done: Result<u64, StoreError> =
        desk.relay.store.transact("test", (), |tx, ()| Box::pin(tx.execute(sql, &[]))).await;
    done.unwrap();
}

#[tokio::test]
async fn what_is_revoked_is_published_and_what_is_taken_back_is_off_the_list() {
    at_a_desk(async |desk| {
        let (banned, released) = (machine(&desk, 0x11).await, machine(&desk, 0x22).await);
        assert_eq!(list(&desk).await, None);
        change(&desk, "ban", &banned).await;
        change(&desk, "ban", &banned).await;
        assert_eq!(count(&desk, TaskState::Pending).await, 1, "the second one changed nothing");
        assert_eq!(worker(&desk).turn().await.unwrap(), 1);
        let (first, on) = list(&desk).await.unwrap();
        assert_eq!(on, [serial(0x11)]);
        // The clock stands: the number grows all the same.
        for (verb, node, expected) in
            [("release", &released, vec![serial(0x11), serial(0x22)]), ("unban", &banned, vec![serial(0x22)])]
        {
            change(&desk, verb, node).await;
            assert_eq!(worker(&desk).turn().await.unwrap(), 1);
            let (number, on) = list(&desk).await.unwrap();
            assert_eq!(on, expected, "{verb}");
            assert!(number > first);
        }
    })
    .await;
}

#[tokio::test]
async fn many_changes_are_answered_by_one_list() {
    at_a_desk(async |desk| {
        for seed in 1..=9 {
            let node = machine(&desk, seed).await;
            change(&desk, "ban", &node).await;
        }
        assert_eq!(count(&desk, TaskState::Pending).await, 9);
        let worker = worker(&desk);
        assert_eq!(worker.turn().await.unwrap(), 1);
        assert_eq!(list(&desk).await.unwrap().1.len(), 9);
        assert_eq!(count(&desk, TaskState::Completed).await, 9);
        assert_eq!(worker.turn().await.unwrap(), 0);
        // And time alone publishes as well.
        let (before, _) = list(&desk).await.unwrap();
        worker.ensure().await.unwrap();
        assert_eq!(worker.turn().await.unwrap(), 1);
        assert!(list(&desk).await.unwrap().0 > before);
    })
    .await;
}

#[tokio::test]
async fn a_list_takes_the_place_only_of_the_one_that_was_read() {
    at_a_desk(async |desk| {
        let put = async |number: i64, before: i64| {
            let list = Published { number, der: String::new(), made_at: desk.clock.now() };
            let put: Result<bool, StoreError> = desk
                .relay
                .store
                .transact("put", (list, before), |tx, (list, before)| {
                    Box::pin(crls::put(tx, "ca", list, *before))
                })
                .await;
            put.unwrap()
        };
        assert!(put(7, 0).await);
        assert!(!put(8, 0).await, "both had read that there is none");
        assert!(put(8, 7).await);
        assert!(!put(9, 7).await);
    })
    .await;
}

#[tokio::test]
async fn a_publisher_killed_at_every_step_leaves_the_list_as_if_once() {
    at_a_desk(async |desk| {
        let node = machine(&desk, 0x11).await;
        for polls in 1..2_000 {
            let verb = if polls % 2 == 1 { "ban" } else { "unban" };
            change(&desk, verb, &node).await;
            let (before, _) = list(&desk).await.unwrap_or_default();
            let first = worker(&desk);
            let whole = killed_after(polls, first.turn()).await.is_some();
            drop(first);
            for _ in 0..3 {
                pass(&desk).await;
                worker(&desk).turn().await.unwrap();
            }
            let (number, on) = list(&desk).await.unwrap();
            assert_eq!(on.len(), polls % 2, "{polls}");
            assert!(number > before, "{polls}");
            assert_eq!(count(&desk, TaskState::Completed).await, polls, "{polls}: all is done");
            if whole {
                assert!(polls > 5, "{polls} steps");
                return;
            }
        }
        panic!("no worker ever came through");
    })
    .await;
}
