//! Signs that a node is two machines, or not the one that joined: told, and nothing is held because of them.

use super::{World, in_pool, outcome};
use serde_json::{Value, json};
use std::net::IpAddr;
use tests::{Database, LocalRelay, Machine, client::Identity, on_both_databases};

on_both_databases!(
    a_boot_id_that_comes_back_is_told_once,
    an_old_certificate_that_renews_late_is_told,
    a_copy_shows_by_any_call_however_old_its_certificate_is,
    a_certificate_of_an_earlier_generation_is_no_copys,
    a_node_that_calls_from_two_addresses_is_no_copy,
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

async fn a_copy_shows_by_any_call_however_old_its_certificate_is(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    let calls = [
        ("node/renew", json!({"csr": Machine::new(9).csr})),
        ("node/heartbeat", json!({})),
        ("node/heartbeat", json!({"bootId": 7})),
        ("node/secrets", json!({})),
    ];
    let (mut nodes, mut number) = (0, 0);
    for renewals in [1, 2, 3] {
        for (method, input) in &calls {
            number += 1;
            world.relay.renew_admin().await;
            let token = world.relay.mint(json!({})).await;
            let mut machine = Machine::new(number);
            let joined = machine.join(&world.relay, &token).await;
            let copied = machine.certificate().map(str::to_owned);
            for _ in 0..renewals {
                world.pass(60);
                assert_eq!(machine.renew(&world.relay).await.status, 200);
                beat(&world, &machine, json!({})).await;
            }
            let current = machine.certificate().map(str::to_owned);
            // Within two minutes of the first successor's first use it is a call that crossed.
            let first = 119_u64.saturating_sub(60 * (renewals - 1));
            for (seconds, told) in [(first, i64::from(renewals == 3)), (1, 1), (600, 1), (0, 1)] {
                world.pass(seconds);
                machine.set_certificate(copied.clone());
                // By turns of the relays, as a copy would come to them; it is told once.
                for relay in [&world.relay, other] {
                    assert_eq!(outcome(&machine.call(relay, method, input).await), "superseded");
                }
                let all = events(&world, "security.node.clone-suspected").await;
                assert_eq!(all, nodes + told, "{method} {input} after {renewals} renewals and {seconds} s");
            }
            nodes += 1;
            let named = in_pool(json!({"nodeId": joined.body["nodeId"]}));
            let node = world.relay.call("compute/nodes/get", &named).await["node"].clone();
            assert_eq!(node["conditions"][0]["type"], "cloneSuspected", "{method}: {node}");
            machine.set_certificate(current);
            beat(&world, &machine, json!({})).await;
        }
    }
}

async fn a_certificate_of_an_earlier_generation_is_no_copys(database: Database) {
    let world = World::new(database).await;
    let mut old = Machine::new(1);
    old.join(&world.relay, &world.relay.mint(json!({})).await).await;
    let mut new = old.with_new_key();
    new.join(&world.relay, &world.relay.mint(json!({"allowReclaim": true})).await).await;
    beat(&world, &new, json!({})).await;
    new.renew(&world.relay).await;
    beat(&world, &new, json!({})).await;
    world.pass(3600);
    for (method, input) in [("node/heartbeat", json!({})), ("node/renew", json!({"csr": old.csr}))] {
        assert_eq!(outcome(&old.call(&world.relay, method, &input).await), "superseded");
    }
    assert_eq!(conditions(&world.relay).await, Vec::<Value>::new(), "it was taken over");
}

/// A machine's client whose calls come from this address.
fn client_from(world: &World, machine: &Machine, address: [u8; 4]) -> reqwest::Client {
    let identity = machine.certificate().map(|chain| Identity::from_pem(chain, &machine.key_pem()));
    let tls = tests::client::tls(&world.relay.ca_bundle(), &world.clock, identity);
    let client = reqwest::Client::builder().tls_backend_preconfigured(tls).no_proxy();
    client.local_address(IpAddr::from(address)).build().unwrap()
}

async fn a_node_that_calls_from_two_addresses_is_no_copy(database: Database) {
    let world = World::new(database).await;
    let (mut machine, url) = (Machine::new(1), world.relay.url());
    let token = world.relay.mint(json!({})).await;
    let elsewhere = client_from(&world, &machine, [127, 0, 0, 2]);
    let joined = tests::post(&elsewhere, &url, Some(&token), "node/join", &machine.join_input()).await;
    machine.keep(&joined);
    let named = in_pool(json!({"nodeId": joined.body["nodeId"]}));
    let node = world.relay.call("compute/nodes/get", &named).await["node"].clone();
    assert_eq!(node["remoteAddress"], "127.0.0.2", "the relay sees where a call comes from");
    for turn in 0..3 {
        for last in [2, 3, 4, 2] {
            let client = client_from(&world, &machine, [127, 0, 0, last]);
            let call = json!({"bootId": format!("boot-{turn}"), "identity": machine.identity});
            assert_eq!(tests::post(&client, &url, None, "node/heartbeat", &call).await.status, 200);
            world.pass(200);
        }
        let client = client_from(&world, &machine, [127, 0, 0, 5]);
        machine.new_request();
        let renewal = json!({"csr": machine.csr});
        let renewed = tests::post(&client, &url, None, "node/renew", &renewal).await;
        assert_eq!(renewed.body["status"], "issued", "{}", renewed.body);
        machine.keep(&renewed);
    }
    assert_eq!(conditions(&world.relay).await, Vec::<Value>::new());
    assert_eq!(events(&world, "security.node.clone-suspected").await, 0);
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
