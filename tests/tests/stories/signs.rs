//! Signs that a node is two machines, or not the one that joined: told, and nothing is held because of them.

use super::{World, outcome};
use serde_json::{Value, json};
use tests::{Database, LocalRelay, Machine, on_both_databases};

on_both_databases!(
    a_boot_id_that_comes_back_is_told_once,
    an_old_certificate_that_renews_late_is_told,
    what_changes_in_a_machine_is_told_until_it_is_as_it_was,
);

async fn conditions(relay: &LocalRelay) -> Vec<Value> {
    let input = json!({"tenantId": "provider", "poolId": "default"});
    let nodes = relay.call("compute/nodes/list", &input).await;
    let named = json!({"tenantId": "provider", "poolId": "default", "nodeId": nodes["nodes"][0]["nodeId"]});
    let node = relay.call("compute/nodes/get", &named).await["node"].clone();
    assert_eq!(node["conditions"], nodes["nodes"][0]["conditions"], "both views say the same");
    node["conditions"].as_array().cloned().unwrap_or_default()
}

async fn events(world: &World, kind: &'static str) -> i64 {
    let counted = world.relay.context.store.read("events", kind, |tx, kind| {
        Box::pin(async move {
            let sql = "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM events WHERE type = $1";
            tx.fetch_one(sql, &[(*kind).into()]).await?.integer("count")
        })
    });
    let counted: Result<i64, relay::store::StoreError> = counted.await;
    counted.unwrap()
}

async fn beat(world: &World, machine: &Machine, more: Value) {
    let answer = machine.call(&world.relay, "node/heartbeat", &more).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

async fn a_boot_id_that_comes_back_is_told_once(database: Database) {
    let world = World::new(database).await;
    let mut machine = Machine::new(1);
    machine.join(&world.relay, &world.relay.mint(json!({})).await).await;
    // Restarts are no sign.
    for boot in ["one", "one", "two", "three"] {
        beat(&world, &machine, json!({"bootId": boot})).await;
    }
    assert_eq!(conditions(&world.relay).await, Vec::<Value>::new());
    // Two machines, turn by turn.
    for boot in ["two", "three", "two", "three"] {
        beat(&world, &machine, json!({"bootId": boot})).await;
    }
    let told = conditions(&world.relay).await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["type"], "cloneSuspected");
    assert_eq!(events(&world, "security.node.clone-suspected").await, 1);
    assert_eq!(machine.renew(&world.relay).await.status, 200, "nothing is held because of it");
}

async fn an_old_certificate_that_renews_late_is_told(database: Database) {
    let world = World::new(database).await;
    let mut machine = Machine::new(1);
    machine.join(&world.relay, &world.relay.mint(json!({})).await).await;
    let old = machine.certificate().map(str::to_owned);
    machine.renew(&world.relay).await;
    beat(&world, &machine, json!({})).await;
    let new = machine.certificate().map(str::to_owned);
    // A request that crossed the answer is none; one that comes minutes later is.
    for (seconds, suspected) in [(0, 0), (119, 0), (1, 1)] {
        world.pass(seconds);
        machine.set_certificate(old.clone());
        assert_eq!(outcome(&machine.renew(&world.relay).await), "superseded");
        assert_eq!(conditions(&world.relay).await.len(), suspected, "after {seconds} s more");
    }
    machine.set_certificate(new);
    beat(&world, &machine, json!({})).await;
    assert_eq!(events(&world, "security.node.clone-suspected").await, 1);
}

async fn what_changes_in_a_machine_is_told_until_it_is_as_it_was(database: Database) {
    let world = World::new(database).await;
    let mut machine = Machine::new(1);
    machine.join(&world.relay, &world.relay.mint(json!({})).await).await;
    let joined = machine.identity.clone();
    let with = |member: &str, value: Value| {
        let mut identity = joined.clone();
        identity[member] = value;
        json!({"identity": identity})
    };
    beat(&world, &machine, json!({"identity": joined})).await;
    beat(&world, &machine, with("hostname", json!("renamed"))).await;
    assert_eq!(conditions(&world.relay).await, Vec::<Value>::new(), "a name is for people");
    let gpu = with("gpuUuids", json!(["GPU-00112233-4455-6677-8899-aabbccddeeff"]));
    for _ in 0..3 {
        beat(&world, &machine, gpu.clone()).await;
    }
    let told = conditions(&world.relay).await;
    assert!(told[0]["message"].as_str().unwrap().contains("gpuUuids"), "{told:?}");
    assert_eq!(events(&world, "security.node.identity-drift").await, 1, "the same news is told once");
    let uuid = joined["productUuid"].as_str().unwrap();
    let swapped = shared::hardware::swapped_uuid(uuid).unwrap();
    beat(&world, &machine, with("productUuid", json!(swapped))).await;
    let told = conditions(&world.relay).await;
    assert!(told[0]["message"].as_str().unwrap().contains("other byte order"), "{told:?}");
    beat(&world, &machine, json!({"identity": joined})).await;
    assert_eq!(conditions(&world.relay).await, Vec::<Value>::new(), "it is as it was");
}
