//! compute/inventory: the site's owner says which machines a pool knows.

use super::*;
use Code::{InvalidInput, NotFound};
use TenantRole::Owner;

const UUID: &str = "4c4c4544-0043-3010-8052-b4c04f4e3132";

fn pool() -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a"})
}

/// The body with these members more.
fn with(mut body: Value, members: Value) -> Value {
    let Value::Object(members) = members else { panic!("{members} is no object") };
    body.as_object_mut().unwrap().extend(members);
    body
}

fn entry(id: &str, identifiers: Value) -> Value {
    with(with(pool(), json!({"entryId": id})), identifiers)
}

#[tokio::test]
async fn the_sites_owner_decides() {
    at_a_desk(async |desk| {
        for (caller, read, write) in by_the_sites_owner() {
            let name = &caller.subject;
            let put = entry("e", json!({"serial": "SN-1"}));
            let remove = entry("e", json!({}));
            assert_eq!(desk.code(&caller, "compute.inventory.put", put).await, write, "{name}");
            assert_eq!(desk.code(&caller, "compute.inventory.list", pool()).await, read, "{name}");
            assert_eq!(desk.code(&caller, "compute.inventory.remove", remove.clone()).await, write, "{name}");
            if write.is_none() {
                let again = desk.code(&caller, "compute.inventory.remove", remove).await;
                assert_eq!(again, Some(NotFound), "{name}");
            }
        }
        // On acme's own site its owner is acme.
        let cows = json!({"poolId": "cows", "tenantId": "acme", "siteId": "barn"});
        desk.good(&root(), "compute.pools.create", cows).await;
        let own = with(entry("e", json!({"serial": "SN-1"})), json!({"poolId": "cows"}));
        assert_eq!(desk.code(&member("acme", Owner), "compute.inventory.put", own.clone()).await, None);
        let provider = member("provider", Owner);
        assert_eq!(desk.code(&provider, "compute.inventory.put", own.clone()).await, Some(NotFound));
        // A pool is found under its own tenant only.
        let foreign = with(own, json!({"tenantId": "other"}));
        assert_eq!(desk.code(&root(), "compute.inventory.put", foreign).await, Some(NotFound));
        assert_eq!(desk.events().await, []);
    })
    .await;
}

#[tokio::test]
async fn an_entry_is_written_whole_and_in_canonical_form() {
    at_a_desk(async |desk| {
        let odd = json!({
            "productUuid": "4C4C4544004330108052B4C04F4E3132", "serial": "SN-1", "mac": "00:1A:2b:3C:4d:5E",
            "gpuUuid": "GPU-4C4C4544-0043-3010-8052-B4C04F4E3132", "ekSha256": "ab".repeat(32),
        });
        let put = desk.good(&root(), "compute.inventory.put", entry("rack-1", odd)).await;
        let expected = json!({
            "entryId": "rack-1", "productUuid": UUID, "serial": "SN-1", "mac": "00:1a:2b:3c:4d:5e",
            "gpuUuid": format!("GPU-{UUID}"), "ekSha256": "ab".repeat(32),
            "updatedAt": "2026-01-02T03:04:05.678Z", "updatedBy": root().subject,
        });
        assert_eq!(put, json!({"entry": expected}));
        let list = desk.good(&root(), "compute.inventory.list", pool()).await;
        assert_eq!(list, json!({"entries": [expected]}));
        // Put again it is what the last one said, and nothing of the one before.
        desk.clock.advance(std::time::Duration::from_secs(1));
        let owner = member("provider", Owner);
        let again = entry("rack-1", json!({"serial": "SN-2"}));
        let put = desk.good(&owner, "compute.inventory.put", again).await;
        let expected = json!({
            "entryId": "rack-1", "serial": "SN-2", "updatedAt": "2026-01-02T03:04:06.678Z",
            "updatedBy": owner.subject,
        });
        assert_eq!(put, json!({"entry": expected}));
        let removed = desk.good(&root(), "compute.inventory.remove", entry("rack-1", json!({}))).await;
        assert_eq!(removed, json!({"entry": expected}));
        assert_eq!(desk.good(&root(), "compute.inventory.list", pool()).await, json!({"entries": []}));
    })
    .await;
}

/// Identifiers as JSON, and the fields that are named as bad.
#[rustfmt::skip]
const RULES: &[(&str, &[&str])] = &[
    (r#"{"serial": "SN-1"}"#, &[]),
    (r#"{"mac": "00:1a:2b:3c:4d:5e", "serial": null}"#, &[]),
    (r#"{}"#, &[""]),
    (r#"{"serial": null}"#, &[""]),
    (r#"{"productUuid": "1234567", "serial": "a b", "mac": "00-1a-2b-3c-4d-5e", "gpuUuid": "GPU-1", "ekSha256": "AB"}"#,
        &["ekSha256", "gpuUuid", "mac", "productUuid", "serial"]),
    // Of the right letters, but no machine has it.
    (r#"{"productUuid": "12345678"}"#, &["productUuid"]),
    (r#"{"gpuUuid": "GPU-12345678"}"#, &["gpuUuid"]),
    (r#"{"mac": "ff:ff:ff:ff:ff:ff"}"#, &["mac"]),
    // What many machines have.
    (r#"{"productUuid": "00000000-0000-0000-0000-000000000000", "serial": "Default-string"}"#, &["productUuid", "serial"]),
    (r#"{"productUuid": "03000200-0400-0500-0006-000700080009", "mac": "00:1a:2b:3c:4d:5e"}"#, &["productUuid"]),
    (r#"{"serial": "SN-1", "colour": "red"}"#, &["colour"]),
    (r#"{"serial": "SN-1", "idempotencyKey": "k"}"#, &["idempotencyKey"]),
    (r#"{"serial": "SN-1", "entryId": "-e"}"#, &["entryId"]),
    (r#"{"serial": "SN-1", "entryId": null}"#, &["entryId"]),
    (r#"{"serial": "SN-1", "poolId": "a/b", "tenantId": ""}"#, &["poolId", "tenantId"]),
];

#[tokio::test]
async fn every_bad_field_is_named() {
    at_a_desk(async |desk| {
        for (identifiers, expected) in RULES {
            let body = entry("e", serde_json::from_str(identifiers).unwrap());
            let mut fields = match desk.ask(&root(), "compute.inventory.put", body).await {
                Ok(_) => Vec::new(),
                Err(problem) => {
                    assert_eq!(problem.code, InvalidInput, "{identifiers}");
                    problem.errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
                }
            };
            fields.dedup();
            assert_eq!(fields, *expected, "{identifiers}");
        }
        let longest = entry(&"e".repeat(128), json!({"serial": "s".repeat(128)}));
        assert_eq!(desk.code(&root(), "compute.inventory.put", longest).await, None);
        let longer = entry(&"e".repeat(129), json!({"serial": "SN-1"}));
        assert_eq!(desk.code(&root(), "compute.inventory.put", longer).await, Some(InvalidInput));
        // Before it is looked whether the pool is there.
        let nowhere = with(entry("e", json!({"serial": "none"})), json!({"poolId": "nowhere"}));
        assert_eq!(desk.code(&root(), "compute.inventory.put", nowhere).await, Some(InvalidInput));
    })
    .await;
}

#[tokio::test]
async fn pages_are_of_one_pool_and_a_deleted_pool_forgets() {
    at_a_desk(async |desk| {
        let ids = ["b", "a", "c-1", "C", "c.2"];
        for id in ids {
            desk.good(&root(), "compute.inventory.put", entry(id, json!({"serial": format!("SN-{id}")})))
                .await;
        }
        let own = json!({"tenantId": "provider", "poolId": "own"});
        let elsewhere = with(own.clone(), json!({"entryId": "a", "serial": "SN-a"}));
        desk.good(&root(), "compute.inventory.put", elsewhere).await;
        for limit in [1, 2, 5] {
            let list = with(pool(), json!({"limit": limit}));
            let listed = desk.pages(&root(), "compute.inventory.list", list, ("entries", "entryId")).await;
            assert_eq!(listed, ["C", "a", "b", "c-1", "c.2"]);
        }
        desk.good(&root(), "compute.pools.delete", own).await;
        let left = desk.relay.store.read("left", (), |tx, ()| {
            Box::pin(tx.fetch_one("SELECT COUNT(*) AS count FROM inventory WHERE pool_id = 'own'", &[]))
        });
        assert_eq!(left.await.unwrap().integer("count").unwrap(), 0);
    })
    .await;
}
