//! compute/endorsementKeys: the site's owner says which TPMs a pool admits, and sees which it could.

use super::*;
use Code::{Conflict, InvalidInput, NotFound};
use TenantRole::Owner;
use shared::id::{JoinRequestId, NodeId};
use std::time::Duration;

fn pool() -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a"})
}

/// A digest of its own for each number.
fn ek(seed: u8) -> String {
    shared::hex::encode(&[seed; 32])
}

fn key(seed: u8) -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "ekSha256": ek(seed)})
}

#[tokio::test]
async fn the_sites_owner_decides() {
    at_a_desk(async |desk| {
        for (caller, read, write) in by_the_sites_owner() {
            let name = &caller.subject;
            for (method, body, expected) in [
                ("add", key(1), write),
                ("list", pool(), read),
                ("listUnmatched", pool(), read),
                ("remove", key(1), write),
            ] {
                let method = format!("compute.endorsementKeys.{method}");
                assert_eq!(desk.code(&caller, &method, body).await, expected, "{name} {method}");
            }
        }
        assert_eq!(desk.events().await.len(), 4, "two added, two removed, nothing refused is told");
        // On acme's own site its owner is acme.
        let cows = json!({"poolId": "cows", "tenantId": "acme", "siteId": "barn"});
        desk.good(&root(), "compute.pools.create", cows).await;
        let mut own = key(1);
        own["poolId"] = json!("cows");
        assert_eq!(desk.code(&member("acme", Owner), "compute.endorsementKeys.add", own.clone()).await, None);
        let provider = member("provider", Owner);
        assert_eq!(desk.code(&provider, "compute.endorsementKeys.remove", own).await, Some(NotFound));
    })
    .await;
}

#[tokio::test]
async fn a_key_is_added_once_and_told() {
    at_a_desk(async |desk| {
        let mut add = key(1);
        add["note"] = json!("rack 7, élan");
        add["idempotencyKey"] = json!("k");
        let added = desk.good(&root(), "compute.endorsementKeys.add", add.clone()).await;
        let record = json!({"ekSha256": ek(1), "note": "rack 7, élan", "addedAt": "2026-01-02T03:04:05.678Z", "addedBy": root().subject});
        assert_eq!(added, json!({"endorsementKey": record}));
        assert_eq!(desk.events().await, [("security.endorsement-key.added".to_owned(), ek(1))]);
        assert_eq!(desk.last_event().await, json!({"poolId": "gpu-a"}));
        desk.clock.advance(Duration::from_secs(5));
        // The same request again is answered the same; the key for another request, or the same key anew, is not.
        assert_eq!(desk.good(&root(), "compute.endorsementKeys.add", add.clone()).await, added);
        let mut other = add.clone();
        other["note"] = json!("another");
        assert_eq!(desk.code(&root(), "compute.endorsementKeys.add", other).await, Some(Conflict));
        assert_eq!(desk.code(&root(), "compute.endorsementKeys.add", key(1)).await, Some(Conflict));
        assert_eq!(desk.events().await.len(), 1);
        assert_eq!(
            desk.good(&root(), "compute.endorsementKeys.list", pool()).await,
            json!({"endorsementKeys": [record]})
        );
        let removed = desk.good(&root(), "compute.endorsementKeys.remove", key(1)).await;
        assert_eq!(removed, added);
        assert_eq!(desk.code(&root(), "compute.endorsementKeys.remove", key(1)).await, Some(NotFound));
        let told = ["security.endorsement-key.added", "security.endorsement-key.removed"];
        assert_eq!(desk.events().await, told.map(|kind| (kind.to_owned(), ek(1))));
        assert_eq!(desk.code(&root(), "compute.endorsementKeys.add", key(1)).await, None);
    })
    .await;
}

#[tokio::test]
async fn of_ten_that_add_one_key_one_succeeds() {
    at_a_desk(async |desk| {
        let root = root();
        let all = (0..10).map(|_| desk.ask(&root, "compute.endorsementKeys.add", key(1)));
        let results = futures_util::future::join_all(all.collect::<Vec<_>>()).await;
        let refused: Vec<Code> =
            results.iter().filter_map(|result| Some(result.as_ref().err()?.code)).collect();
        assert_eq!(refused, [Conflict; 9]);
        assert_eq!(desk.events().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn every_bad_field_is_named() {
    at_a_desk(async |desk| {
        let rows = [
            ("ekSha256", json!("a".repeat(64)), true),
            ("ekSha256", json!("a".repeat(63)), false),
            ("ekSha256", json!("A".repeat(64)), false),
            ("ekSha256", json!(null), false),
            ("note", json!(null), true),
            ("note", json!("é".repeat(128)), true),
            ("note", json!(""), false),
            ("note", json!("a\u{1b}b"), false),
            ("note", json!("n".repeat(257)), false),
            ("idempotencyKey", json!("a b"), false),
            ("idempotencyKey", json!(""), false),
            ("poolId", json!("-a"), false),
            ("tenantId", json!("a/b"), false),
        ];
        for (seed, (field, value, good)) in (0..).zip(rows) {
            let mut add = key(seed);
            add[field] = value.clone();
            let bad = match desk.ask(&root(), "compute.endorsementKeys.add", add).await {
                Ok(_) => None,
                Err(problem) => {
                    assert_eq!(problem.code, InvalidInput, "{field} {value}");
                    Some(problem.errors[0].field.clone())
                }
            };
            assert_eq!(bad.as_deref(), (!good).then_some(field), "{value}");
        }
        let mut odd = pool();
        odd["cursor"] = json!("zz");
        assert_eq!(desk.code(&root(), "compute.endorsementKeys.list", odd).await, Some(InvalidInput));
    })
    .await;
}

/// A join request as a deferred join would have written it.
async fn request(desk: &Desk, seed: u8, pool: &str, ek: &str, state: &str, expires_in: i64) -> JoinRequestId {
    let id = JoinRequestId::derive(&[seed; 32]);
    let now = desk.clock.now();
    let row = (id.clone(), pool.to_owned(), ek.to_owned(), state.to_owned(), now);
    let written = desk.relay.store.transact("request", row, |tx, (id, pool, ek, state, now)| {
        Box::pin(async move {
            let args = [
                id.as_str().into(),
                pool.into(),
                ek.into(),
                state.into(),
                (*now).into(),
                now.plus_seconds(expires_in).into(),
            ];
            let sql = "INSERT INTO join_requests (id, token_id, csr_sha256, content_sha256, pool_id, tenant_id, \
                reasons, identity, ek_sha256, ek_manufacturer, remote_address, state, created_at, expires_at) \
                SELECT $1, id, $1, $1, $2, 'acme', '[]', '{}', $3, 'IFX', '192.0.2.1', $4, $5, $6 FROM join_tokens";
            tx.execute(sql, &args).await
        })
    });
    assert_eq!(written.await.unwrap(), 1);
    id
}

/// Writes that a node has proved a key.
async fn prove(desk: &Desk, node: &NodeId, ek: &str) {
    let written = desk.relay.store.transact("prove", (node, ek), |tx, (node, ek)| {
        Box::pin(async move {
            let sql = "UPDATE nodes SET ek_sha256 = $2 WHERE id = $1";
            tx.execute(sql, &[node.as_str().into(), (*ek).into()]).await
        })
    });
    assert_eq!(written.await.unwrap(), 1);
}

/// Writes that an authority vouches for the key of a node, whose certificate says this of its maker.
async fn vouch(desk: &Desk, ek: &str, manufacturer: Option<&str>) {
    let written = desk.relay.store.transact("vouch", (ek, manufacturer), |tx, (ek, manufacturer)| {
        Box::pin(async move {
            let sql = "UPDATE nodes SET ek_vouched = 1, ek_manufacturer = $2 WHERE ek_sha256 = $1";
            tx.execute(sql, &[(*ek).into(), (*manufacturer).into()]).await
        })
    });
    assert_eq!(written.await.unwrap(), 1);
}

#[tokio::test]
async fn what_was_proved_here_and_is_not_listed() {
    at_a_desk(async |desk| {
        let unmatched = "compute.endorsementKeys.listUnmatched";
        assert_eq!(desk.good(&root(), unmatched, pool()).await, json!({"endorsementKeys": []}));
        let mut mint = pool();
        mint["ttlSeconds"] = json!(3600);
        desk.good(&root(), "compute.joinTokens.create", mint).await;
        let uuid = |last: u8| format!("4c4c4544-0043-3010-8052-b4c04f4e31{last:02x}");
        let (one, two, three) = (
            nodes::admit(&desk, 1, &uuid(1)).await,
            nodes::admit(&desk, 2, &uuid(2)).await,
            nodes::admit(&desk, 3, &uuid(3)).await,
        );
        nodes::admit(&desk, 4, &uuid(4)).await;
        for (node, seed) in [(&one, 1), (&two, 2), (&three, 3)] {
            prove(&desk, node, &ek(seed)).await;
        }
        let named = json!({"tenantId": "acme", "poolId": "gpu-a", "nodeId": two});
        desk.good(&root(), "compute.nodes.ban", named).await;
        let named = json!({"tenantId": "acme", "poolId": "gpu-a", "nodeId": three});
        desk.good(&root(), "compute.nodes.release", named).await;
        let first = desk.clock.now();
        desk.clock.advance(Duration::from_secs(60));
        request(&desk, 10, "gpu-a", &ek(2), "pending", 60).await;
        let latest = request(&desk, 11, "gpu-a", &ek(2), "approved", 60).await;
        let waiting = request(&desk, 12, "gpu-a", &ek(5), "pending", 60).await;
        // Those that are over, those of other pools.
        request(&desk, 13, "gpu-a", &ek(6), "pending", 0).await;
        for (seed, state) in [(14, "denied"), (15, "consumed"), (16, "expired")] {
            request(&desk, seed, "gpu-a", &ek(seed), state, 60).await;
        }
        request(&desk, 17, "own", &ek(17), "pending", 60).await;
        let latest = latest.max(JoinRequestId::derive(&[10; 32]));
        let expected = [
            json!({"ekSha256": ek(1), "ekVouched": false, "nodeId": one, "firstSeenAt": first}),
            json!({"ekSha256": ek(2), "ekManufacturer": "IFX", "ekVouched": false, "nodeId": two, "joinRequestId": latest, "firstSeenAt": first}),
            json!({"ekSha256": ek(5), "ekManufacturer": "IFX", "ekVouched": false, "joinRequestId": waiting, "firstSeenAt": desk.clock.now()}),
        ];
        assert_eq!(desk.good(&root(), unmatched, pool()).await, json!({"endorsementKeys": expected}));
        // What a certificate that somebody vouches for says counts before what anybody says.
        vouch(&desk, &ek(2), None).await;
        let shown = desk.good(&root(), unmatched, pool()).await;
        let of_two = &shown["endorsementKeys"][1];
        assert_eq!((&of_two["ekVouched"], &of_two["ekManufacturer"]), (&json!(true), &Value::Null));
        vouch(&desk, &ek(2), Some("AMD")).await;
        let shown = desk.good(&root(), unmatched, pool()).await;
        let of_two = &shown["endorsementKeys"][1];
        assert_eq!((&of_two["ekVouched"], &of_two["ekManufacturer"]), (&json!(true), &json!("AMD")));
        for limit in [1, 2, 3] {
            let mut list = pool();
            list["limit"] = json!(limit);
            let listed = desk.pages(&root(), unmatched, list, ("endorsementKeys", "ekSha256")).await;
            assert_eq!(listed, [ek(1), ek(2), ek(5)]);
        }
        // What is put on the list is gone from here, for this pool alone.
        desk.good(&root(), "compute.endorsementKeys.add", key(2)).await;
        let elsewhere = json!({"tenantId": "provider", "poolId": "own", "ekSha256": ek(1)});
        desk.good(&root(), "compute.endorsementKeys.add", elsewhere).await;
        let listed = desk.pages(&root(), unmatched, pool(), ("endorsementKeys", "ekSha256")).await;
        assert_eq!(listed, [ek(1), ek(5)]);
    })
    .await;
}

#[tokio::test]
async fn pages_and_what_a_join_asks() {
    at_a_desk(async |desk| {
        for seed in [3, 1, 2] {
            desk.good(&root(), "compute.endorsementKeys.add", key(seed)).await;
        }
        for limit in [1, 3] {
            let mut list = pool();
            list["limit"] = json!(limit);
            let listed = desk
                .pages(&root(), "compute.endorsementKeys.list", list, ("endorsementKeys", "ekSha256"))
                .await;
            assert_eq!(listed, [ek(1), ek(2), ek(3)]);
        }
        let asked = [ek(1), ek(9), ek(3)];
        let found = desk.relay.store.read("listed", &asked, |tx, asked| {
            Box::pin(async move {
                let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
                let mut here = crate::store::endorsement_keys::listed(tx, "gpu-a", &asked).await?;
                here.sort();
                let elsewhere = crate::store::endorsement_keys::listed(tx, "own", &asked).await?;
                Ok::<_, crate::store::StoreError>((here, elsewhere))
            })
        });
        assert_eq!(found.await.unwrap(), (vec![ek(1), ek(3)], vec![]));
    })
    .await;
}
