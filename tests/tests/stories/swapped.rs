//! A product UUID whose first fields stand in the other byte order: the same identity, whoever claims it in which.

use super::{World, in_pool, outcome};
use serde_json::{Value, json};
use shared::hardware::swapped_uuid;
use tests::{Database, Machine, on_both_databases};

on_both_databases!(
    a_live_node_is_met_in_either_byte_order,
    two_that_join_at_once_in_both_byte_orders_are_one,
    a_ban_of_a_uuid_covers_both_byte_orders,
    another_tenants_uuid_is_disputed_in_either_byte_order,
    a_node_whose_uuid_changes_its_order_stays_itself,
    who_says_the_same_in_the_other_byte_order_is_shown,
);

/// A machine with the same UUID in the other byte order, and nothing else in common.
fn swapped(machine: &Machine, number: u32) -> Machine {
    let uuid = machine.identity["productUuid"].as_str().unwrap();
    let mut identity = Machine::new(number).identity;
    identity["productUuid"] = json!(swapped_uuid(uuid).unwrap().to_uppercase());
    Machine::claiming(identity)
}

/// Both ways round: the one that is written as it is claimed comes first, or second.
fn pairs() -> [(Machine, Machine); 2] {
    let (one, other) = (Machine::new(1), Machine::new(2));
    let (of_one, of_other) = (swapped(&one, 11), swapped(&other, 12));
    [(one, of_one), (of_other, other)]
}

async fn a_live_node_is_met_in_either_byte_order(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    for (mut incumbent, mut newcomer) in pairs() {
        let joined = incumbent.join(&world.relay, &token).await;
        let node = joined.body["nodeId"].as_str().unwrap();
        let refused = newcomer.join(&world.relay, &token).await;
        assert_eq!(outcome(&refused), "identityTaken");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains(node) && detail.contains("byte order"), "{detail}");
        // The rules of a takeover are the same: by a person where the node is alive, else by right.
        incumbent.call(&world.relay, "node/heartbeat", &json!({})).await;
        world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
        let reclaiming = world.relay.mint(json!({"allowReclaim": true})).await;
        let waits = newcomer.join(&world.relay, &reclaiming).await;
        assert_eq!(waits.body["reasons"], json!(["incumbentAlive"]), "{}", waits.body);
        world.pass(601);
        let taken = newcomer.join(&world.relay, &reclaiming).await;
        assert_eq!((&taken.body["nodeId"], &taken.body["generation"]), (&json!(node), &json!(2)));
        let shown = world.relay.call("compute/nodes/get", &in_pool(json!({"nodeId": node}))).await;
        let claimed = newcomer.identity["productUuid"].as_str().unwrap().to_lowercase();
        assert_eq!(shown["node"]["identity"]["productUuid"], claimed, "as it is claimed");
        assert_eq!(outcome(&incumbent.with_new_key().join(&world.relay, &token).await), "identityTaken");
    }
}

async fn two_that_join_at_once_in_both_byte_orders_are_one(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    // A token each: nothing but the identity brings them together.
    for number in 0..20 {
        let mut one = Machine::new(100 + number);
        let mut two = swapped(&one, 200 + number);
        let tokens = [world.relay.mint(json!({})).await, world.relay.mint(json!({})).await];
        let (first, second) = tokio::join!(one.join(&world.relay, &tokens[0]), two.join(other, &tokens[1]));
        let mut outcomes = [first, second].map(|answer| match answer.status {
            200 => "issued".to_owned(),
            _ => outcome(&answer),
        });
        outcomes.sort();
        assert_eq!(outcomes, ["identityTaken", "issued"], "machine {number}");
    }
}

async fn a_ban_of_a_uuid_covers_both_byte_orders(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    for (mut banned, mut again) in pairs() {
        let joined = banned.join(&world.relay, &token).await;
        let node = json!({"nodeId": joined.body["nodeId"]});
        let mut ban = in_pool(node.clone());
        ban["identifiers"] = json!(["productUuid"]);
        world.relay.call("compute/nodes/ban", &ban).await;
        assert_eq!(outcome(&again.join(&world.relay, &token).await), "nodeBanned");
        assert_eq!(outcome(&banned.with_new_key().join(&world.relay, &token).await), "nodeBanned");
        // What comes back with an unban is held in both as well.
        world.relay.call("compute/nodes/unban", &in_pool(node)).await;
        assert_eq!(outcome(&again.join(&world.relay, &token).await), "identityTaken");
    }
}

async fn another_tenants_uuid_is_disputed_in_either_byte_order(database: Database) {
    let world = World::new(database).await;
    let ours = world.relay.mint(json!({"maxUses": 9, "allowReclaim": true})).await;
    let theirs = super::queue::foreign_pool(&world.relay).await;
    for (mut incumbent, mut claimant) in pairs() {
        incumbent.join(&world.relay, &ours).await;
        let waits = claimant.join(&world.relay, &theirs).await;
        assert_eq!(waits.body["reasons"], json!(["unknownMachine", "identityDisputed"]), "{}", waits.body);
        let request =
            json!({"tenantId": "acme", "poolId": "acme-a", "joinRequestId": waits.body["joinRequestId"]});
        world.relay.call("compute/joinRequests/approve", &request).await;
        assert_eq!(claimant.join(&world.relay, &theirs).await.body["status"], "issued");
        // It stays the incumbent's in both: whoever claims it meets that node, and no other.
        incumbent.new_request();
        assert_eq!(incumbent.join(&world.relay, &ours).await.body["status"], "issued");
        let third = claimant.with_new_key().join(&world.relay, &world.relay.mint(json!({})).await).await;
        assert_eq!(outcome(&third), "identityTaken");
    }
}

async fn a_node_whose_uuid_changes_its_order_stays_itself(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    let mut machine = Machine::new(1);
    let joined = machine.join(&world.relay, &token).await;
    // A new version of its BIOS, and the same key.
    machine.identity["productUuid"] = swapped(&machine, 1).identity["productUuid"].clone();
    machine.new_request();
    let again = machine.join(&world.relay, &token).await;
    let same = |answer: &Value| (answer["nodeId"].clone(), answer["generation"].clone());
    assert_eq!(same(&again.body), same(&joined.body), "{}", again.body);
    for mut other in [Machine::new(1), swapped(&Machine::new(1), 3)] {
        assert_eq!(outcome(&other.join(&world.relay, &token).await), "identityTaken");
    }
}

async fn who_says_the_same_in_the_other_byte_order_is_shown(database: Database) {
    let world = World::new(database).await;
    for (mut holder, mut claimant) in pairs() {
        let joined = holder.join(&world.relay, &world.relay.mint(json!({})).await).await;
        holder.call(&world.relay, "node/heartbeat", &json!({})).await;
        world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
        let waits = claimant.join(&world.relay, &world.relay.mint(json!({"allowReclaim": true})).await).await;
        let request = in_pool(json!({"joinRequestId": waits.body["joinRequestId"]}));
        let shown = world.relay.call("compute/joinRequests/get", &request).await;
        let value = holder.identity["productUuid"].as_str().unwrap().to_lowercase();
        let expected = json!([{"id": joined.body["nodeId"], "kind": "productUuid", "value": value}]);
        assert_eq!(shown["joinRequest"]["sharedWith"], expected, "as the other one claims it");
    }
}
