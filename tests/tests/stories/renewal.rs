//! Renewal in two phases, and which certificates count at which request.

use super::{World, outcome};
use serde_json::json;
use tests::{Answer, Database, LocalRelay, Machine, on_both_databases, post};

on_both_databases!(
    both_serials_work_until_the_new_one_is_used,
    an_expired_certificate_renews_within_the_grace_and_does_nothing_else,
    a_ban_wins_over_a_renewal_in_flight,
    a_banned_or_released_node_is_refused_at_its_next_request,
    another_key_takes_over_when_it_is_used,
    the_same_request_is_the_same_renewal,
    a_key_that_comes_back_by_a_replay_is_held_and_banned_with_its_node,
    control_characters_are_refused_by_field,
);

async fn joined(world: &World, number: u32) -> (Machine, Answer) {
    let token = world.relay.mint(json!({})).await;
    let mut machine = Machine::new(number);
    let answer = machine.join(&world.relay, &token).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    (machine, answer)
}

async fn beat(machine: &Machine, relay: &LocalRelay) -> String {
    outcome(&machine.call(relay, "node/heartbeat", &json!({})).await)
}

async fn act(world: &World, verb: &str, joined: &Answer) -> Answer {
    let input = json!({"tenantId": "provider", "poolId": "default", "nodeId": joined.body["nodeId"]});
    world.relay.call_as(&world.relay.admin(), &format!("compute/nodes/{verb}"), &input).await
}

async fn both_serials_work_until_the_new_one_is_used(database: Database) {
    let world = World::new(database).await;
    let (mut machine, _) = joined(&world, 1).await;
    let old = machine.certificate().map(str::to_owned);
    machine.renew(&world.relay).await;
    let new = machine.certificate().map(str::to_owned);
    assert_ne!(old, new);
    machine.set_certificate(old.clone());
    assert_eq!(
        beat(&machine, &world.relay).await,
        "200",
        "the answer may have been lost: the old one still works"
    );
    machine.set_certificate(new);
    assert_eq!(beat(&machine, &world.relay).await, "200");
    machine.set_certificate(old);
    assert_eq!(beat(&machine, &world.relay).await, "superseded");
    assert_eq!(outcome(&machine.renew(&world.relay).await), "superseded");
}

async fn an_expired_certificate_renews_within_the_grace_and_does_nothing_else(database: Database) {
    let world = World::new(database).await;
    let (mut machine, first) = joined(&world, 1).await;
    world.pass(86_401);
    assert_eq!(beat(&machine, &world.relay).await, "UNAUTHENTICATED");
    assert_eq!(outcome(&machine.call(&world.relay, "node/secrets", &json!({})).await), "UNAUTHENTICATED");
    let renewed = machine.renew(&world.relay).await;
    assert_eq!(renewed.body["nodeId"], first.body["nodeId"], "{}", renewed.body);
    assert_eq!(beat(&machine, &world.relay).await, "200");
    // Past the grace of seven days nothing helps but a token, with which it is the same node.
    world.pass(86_400 + 604_801);
    world.relay.renew_admin().await;
    assert_eq!(outcome(&machine.renew(&world.relay).await), "UNAUTHENTICATED");
    machine.set_certificate(None);
    machine.new_request();
    let token = world.relay.mint(json!({})).await;
    let again = machine.join(&world.relay, &token).await;
    assert_eq!(again.body["nodeId"], first.body["nodeId"], "{}", again.body);
    assert_eq!(beat(&machine, &world.relay).await, "200");
}

async fn a_ban_wins_over_a_renewal_in_flight(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    for number in 0..6 {
        let (mut machine, first) = joined(&world, number).await;
        let other = second.as_ref().unwrap_or(&world.relay);
        let (renewed, banned) = tokio::join!(machine.renew(other), act(&world, "ban", &first));
        assert_eq!(banned.status, 200, "{}", banned.body);
        // Whichever came first: what the machine has now is of no use.
        assert!(matches!(outcome(&renewed).as_str(), "200" | "nodeBanned"), "{}", renewed.body);
        assert_eq!(beat(&machine, other).await, "nodeBanned");
        assert_eq!(outcome(&machine.renew(other).await), "nodeBanned");
    }
}

async fn a_banned_or_released_node_is_refused_at_its_next_request(database: Database) {
    let world = World::new(database).await;
    let (machine, first) = joined(&world, 1).await;
    // On a connection that is kept: each request is judged, not each handshake.
    let client = machine.client(&world.relay);
    let (url, empty) = (world.relay.url(), json!({}));
    let kept = || async { outcome(&post(&client, &url, None, "node/heartbeat", &empty).await) };
    assert_eq!(kept().await, "200");
    assert_eq!(act(&world, "ban", &first).await.status, 200);
    assert_eq!(kept().await, "nodeBanned");
    // The ban covers its key: a new join is refused too, and costs nothing.
    let token = world.relay.mint(json!({})).await;
    let mut input = Machine::claiming(json!({"macs": [], "gpuUuids": []})).join_input();
    input["csr"] = json!(machine.csr);
    let join = post(&client, &url, Some(&token), "node/join", &input);
    assert_eq!(outcome(&join.await), "nodeBanned");
    assert_eq!(act(&world, "unban", &first).await.status, 200);
    assert_eq!(kept().await, "200");
    assert_eq!(act(&world, "release", &first).await.status, 200);
    assert_eq!(kept().await, "nodeReleased");
    // Its identity is free.
    assert_eq!(Machine::new(1).join(&world.relay, &token).await.status, 200);
}

async fn another_key_takes_over_when_it_is_used(database: Database) {
    let world = World::new(database).await;
    let (machine, first) = joined(&world, 1).await;
    let mut rotated = machine.with_new_key();
    let csr = json!({"csr": rotated.csr});
    let renewed = machine.call(&world.relay, "node/renew", &csr).await;
    assert_eq!(renewed.body["nodeId"], first.body["nodeId"], "{}", renewed.body);
    let chain = format!(
        "{}{}",
        renewed.body["certificate"].as_str().unwrap(),
        renewed.body["chain"].as_str().unwrap()
    );
    rotated.set_certificate(Some(chain));
    assert_eq!(beat(&machine, &world.relay).await, "200", "the old key works until the new one is used");
    assert_eq!(beat(&rotated, &world.relay).await, "200");
    assert_eq!(beat(&machine, &world.relay).await, "superseded");
    // The old key is nobody's now; a key that another node holds is refused.
    let (other, _) = joined(&world, 2).await;
    let taken = rotated.call(&world.relay, "node/renew", &json!({"csr": other.csr})).await;
    assert_eq!(outcome(&taken), "identityTaken");
}

async fn the_same_request_is_the_same_renewal(database: Database) {
    let world = World::new(database).await;
    let (machine, _) = joined(&world, 1).await;
    let input = json!({"csr": machine.csr});
    let one = machine.call(&world.relay, "node/renew", &input).await;
    let two = machine.call(&world.relay, "node/renew", &input).await;
    assert_eq!(one.body["certificate"], two.body["certificate"]);
}

async fn a_key_that_comes_back_by_a_replay_is_held_and_banned_with_its_node(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let mut first = Machine::new(1);
    let answer = first.join(&world.relay, &token).await;
    // Another key takes over, then the join's own certificate ends and the join is asked for again.
    let mut rotated = first.with_new_key();
    let renewed = first.call(&world.relay, "node/renew", &json!({"csr": rotated.csr})).await;
    let part = |name: &str| renewed.body[name].as_str().unwrap().to_owned();
    rotated.set_certificate(Some(part("certificate") + &part("chain")));
    assert_eq!(beat(&rotated, &world.relay).await, "200");
    world.pass(86_401);
    world.relay.renew_admin().await;
    let fresh = first.join(&world.relay, &token).await;
    assert_eq!(fresh.body["nodeId"], answer.body["nodeId"], "{}", fresh.body);
    // Before it is used as after: the ban covers this key too.
    assert_eq!(act(&world, "ban", &answer).await.status, 200);
    let other = world.relay.mint(json!({})).await;
    first.identity = json!({"macs": [], "gpuUuids": []});
    first.new_request();
    assert_eq!(outcome(&first.join(&world.relay, &other).await), "nodeBanned");
    // Back after unban, the key in use is the node's: the same node with it, not with the other.
    assert_eq!(act(&world, "unban", &answer).await.status, 200);
    first.set_certificate(Some(format!(
        "{}{}",
        fresh.body["certificate"].as_str().unwrap(),
        fresh.body["chain"].as_str().unwrap()
    )));
    assert_eq!(beat(&first, &world.relay).await, "200");
    let again = first.join(&world.relay, &other).await;
    assert_eq!(again.body["nodeId"], answer.body["nodeId"], "{}", again.body);
}

async fn control_characters_are_refused_by_field(database: Database) {
    let world = World::new(database).await;
    let (machine, _) = joined(&world, 1).await;
    for field in ["bootId", "agentVersion"] {
        let mut input = json!({});
        input[field] = json!("a\u{0}b");
        let refused = machine.call(&world.relay, "node/heartbeat", &input).await;
        assert_eq!(
            (outcome(&refused).as_str(), &refused.body["errors"][0]["field"]),
            ("INVALID_INPUT", &json!(field))
        );
    }
    // What an odd identity holds is never in the way of the heartbeat of others.
    let odd = json!({"identity": {"productUuid": "\u{0}", "serial": "a\u{0}b", "macs": [], "gpuUuids": [], "hostname": "\u{1}"}});
    assert_eq!(outcome(&machine.call(&world.relay, "node/heartbeat", &odd).await), "200");
    assert!(world.relay.context.heartbeats.write(&world.relay.context.store).await.is_ok());
}
