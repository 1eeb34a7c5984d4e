//! The trust table, when it is judged, and what goes with it.

use super::{World, outcome};
use serde_json::{Value, json};
use tests::{Database, LocalRelay, Machine, on_both_databases, unique};

on_both_databases!(every_row_of_the_trust_table, an_edit_of_the_policy_counts_at_the_join_and_at_the_renewal);

/// Sites, tenants and a pool for each combination.
async fn pool(relay: &LocalRelay, tenant: &str, site: &str, operated: bool) -> String {
    let pool = unique("pool");
    let input = json!({"tenantId": tenant, "poolId": pool, "siteId": site, "idempotencyKey": pool,
        "policy": {"kubernetes": {"platformOperated": operated}}});
    relay.call("compute/pools/create", &input).await;
    pool
}

async fn mint(relay: &LocalRelay, tenant: &str, pool: &str, hosted: bool) -> String {
    let mut input = json!({"tenantId": tenant, "poolId": pool, "ttlSeconds": 600, "maxUses": 10,
        "idempotencyKey": unique("mint")});
    if hosted {
        input["hosted"] = json!("kubernetes");
    }
    relay.call("compute/joinTokens/create", &input).await["token"].as_str().unwrap().to_owned()
}

fn uri_of(certificate: &str) -> String {
    let (_, pem) = x509_parser::pem::parse_x509_pem(certificate.as_bytes()).unwrap();
    let parsed = pem.parse_x509().unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    names.value.general_names.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

async fn every_row_of_the_trust_table(database: Database) {
    let world = World::new(database).await;
    let relay = &world.relay;
    relay.call("iam/tenants/create", &json!({"tenantId": "acme", "idempotencyKey": "acme"})).await;
    let site = json!({"siteId": "own", "ownerTenantId": "acme", "custom": true, "idempotencyKey": "own"});
    relay.call("compute/sites/create", &site).await;
    let mut number = 0;
    for (tenant, site, hosted, operated, trust) in [
        ("acme", "own", false, false, "tenant-owned"),
        ("acme", "own", true, true, "tenant-owned"),
        ("provider", "default", false, false, "platform"),
        ("acme", "default", false, true, "platform"),
        ("provider", "default", true, false, "tenant-controlled"),
        ("acme", "default", true, true, "tenant-controlled"),
        ("provider", "default", true, true, "platform"),
    ] {
        let what = format!("{tenant} on {site}, hosted {hosted}, operated {operated}");
        let pool = pool(relay, tenant, site, operated).await;
        let view = relay.call("compute/pools/get", &json!({"tenantId": tenant, "poolId": pool})).await;
        assert_eq!(view["pool"]["platformOperatedCounts"], tenant == "provider", "{what}");
        number += 1;
        let mut machine = Machine::new(number);
        if tenant == "acme" && site == "default" {
            // A foreign pool's inventory always judges.
            let entry = json!({"tenantId": tenant, "poolId": pool, "entryId": "e", "serial": machine.identity["serial"]});
            relay.call("compute/inventory/put", &entry).await;
        }
        let answer = machine.join(relay, &mint(relay, tenant, &pool, hosted).await).await;
        assert_eq!(answer.body["trust"], trust, "{what}: {}", answer.body);
        let uri = uri_of(answer.body["certificate"].as_str().unwrap());
        let expected =
            if trust == "platform" { "//127.0.0.1/node/" } else { "//tenant.127.0.0.1/node-tenant/" };
        assert!(uri.contains(expected), "{what}: {uri}");
        let secrets = machine.call(relay, "node/secrets", &json!({})).await;
        let told = if trust == "platform" { "200" } else { "PERMISSION_DENIED" };
        assert_eq!(outcome(&secrets), told, "{what}");
    }
}

async fn set_operated(relay: &LocalRelay, pool: &str, operated: bool) {
    let policy = json!({"kubernetes": {"platformOperated": operated}});
    let input = json!({"tenantId": "provider", "poolId": pool, "policy": policy});
    relay.call("compute/pools/update", &input).await;
}

async fn an_edit_of_the_policy_counts_at_the_join_and_at_the_renewal(database: Database) {
    let world = World::new(database).await;
    let relay = &world.relay;
    let pool = pool(relay, "provider", "default", false).await;
    let put = json!({"tenantId": "provider", "poolId": pool, "name": "registry", "value": "hunter2"});
    relay.call("compute/secrets/put", &put).await;
    let token = mint(relay, "provider", &pool, true).await;
    // Edited after minting: counts at the join.
    set_operated(relay, &pool, true).await;
    let mut machine = Machine::new(1);
    assert_eq!(machine.join(relay, &token).await.body["trust"], "platform");
    let secrets = machine.call(relay, "node/secrets", &json!({})).await;
    assert_eq!(secrets.body, json!({"secrets": {"registry": "hunter2"}}));
    // Edited after the join: counts for secrets at once, and at the renewal.
    set_operated(relay, &pool, false).await;
    assert_eq!(outcome(&machine.call(relay, "node/secrets", &json!({})).await), "PERMISSION_DENIED");
    assert_eq!(machine.renew(relay).await.body["trust"], "tenant-controlled");
    // It only falls: vouching again does not raise what has fallen, not even by another join of the same key.
    set_operated(relay, &pool, true).await;
    assert_eq!(machine.renew(relay).await.body["trust"], "tenant-controlled");
    machine.new_request();
    assert_eq!(machine.join(relay, &token).await.body["trust"], "tenant-controlled");
    assert_eq!(outcome(&machine.call(relay, "node/secrets", &json!({})).await), "PERMISSION_DENIED");
    let listed: Value =
        relay.call("compute/secrets/list", &json!({"tenantId": "provider", "poolId": pool})).await;
    assert_eq!(listed["secrets"][0]["name"], "registry");
    assert!(!listed.to_string().contains("hunter2"));
}
