//! What people decide about joins that wait: every pair of decisions has one answer, also where two decide at once.

use super::{
    World, in_pool, outcome,
    queue::{ask, counts, decide, get, id_of, request_of, vague},
    set_policy,
};
use serde_json::{Value, json};
use shared::hardware::swapped_uuid;
use tests::{Database, Machine, on_both_databases};

on_both_databases!(
    every_second_decision_has_one_answer,
    revoking_a_token_denies_its_requests,
    a_known_key_that_claims_another_machine_is_looked_at,
    the_answer_to_the_latest_question_counts,
    two_operators_decide_at_once,
    two_operators_approve_at_once,
    a_denied_machine_stays_out_and_its_use_is_given_back,
);

async fn every_second_decision_has_one_answer(database: Database) {
    let world = World::new(database).await;
    for (number, (decisions, expected)) in (1..).zip([
        (["approve", "approve"], ["approved", "approved"]),
        (["approve", "deny"], ["approved", "denied"]),
        (["deny", "deny"], ["denied", "denied"]),
        (["deny", "approve"], ["denied", "INVALID_STATE"]),
        (["approve", "join, approve"], ["approved", "consumed"]),
        (["approve", "join, deny"], ["approved", "INVALID_STATE"]),
    ]) {
        let token = world.relay.mint(json!({})).await;
        let mut machine = vague(number);
        let id = request_of(&machine.join(&world.relay, &token).await);
        for (decision, expected) in decisions.into_iter().zip(expected) {
            let (join, decision) =
                decision.split_once(", ").map_or((false, decision), |(_, last)| (true, last));
            if join {
                assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
            }
            assert_eq!(decide(&world.relay, decision, &id).await, expected, "{decisions:?}");
        }
    }
    let nobody = "jr_00000000000000000000000000";
    assert_eq!(decide(&world.relay, "approve", nobody).await, "NOT_FOUND");
    for input in [json!({}), json!({"joinRequestId": nobody, "tokenId": "jt_00000000000000000000000000"})] {
        assert_eq!(outcome(&ask(&world.relay, "deny", input).await), "INVALID_INPUT");
    }
    let viewer = world.relay.viewer();
    let input = in_pool(json!({"joinRequestId": nobody}));
    let answer = world.relay.call_as(&viewer, "compute/joinRequests/approve", &input).await;
    assert_eq!(outcome(&answer), "PERMISSION_DENIED");
}

async fn revoking_a_token_denies_its_requests(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    let (mut pending, mut approved) = (vague(1), vague(2));
    let first = request_of(&pending.join(&world.relay, &token).await);
    let second = request_of(&approved.join(&world.relay, &token).await);
    assert_eq!(decide(&world.relay, "approve", &second).await, "approved");
    let revoked =
        world.relay.call("compute/joinTokens/revoke", &in_pool(json!({"tokenId": id_of(&token)}))).await;
    assert_eq!(revoked["joinToken"]["pending"], 0);
    assert_eq!(counts(&world.relay, &token).await, (0, 0));
    for id in [&first, &second] {
        assert_eq!(get(&world.relay, id).await["state"], "denied");
    }
    assert_eq!(decide(&world.relay, "approve", &first).await, "INVALID_STATE");
    assert_eq!(outcome(&approved.join(&world.relay, &token).await), "tokenRevoked");
    // All of a token's at once, without revoking it.
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    request_of(&vague(3).join(&world.relay, &token).await);
    request_of(&vague(4).join(&world.relay, &token).await);
    let denied = ask(&world.relay, "deny", json!({"tokenId": id_of(&token)})).await;
    assert_eq!(denied.body["joinRequests"].as_array().unwrap().len(), 2);
    assert_eq!(counts(&world.relay, &token).await, (0, 0));
}

async fn a_known_key_that_claims_another_machine_is_looked_at(database: Database) {
    let world = World::new(database).await;
    set_policy(&world.relay, json!({"attestors": {"discovery": "defer"}})).await;
    let token = world.relay.mint(json!({"maxUses": 5})).await;
    let mut machine = Machine::new(1);
    let id = request_of(&machine.join(&world.relay, &token).await);
    assert_eq!(decide(&world.relay, "approve", &id).await, "approved");
    assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    // It comes back as what it was, whatever interfaces it has now, and in whichever order its firmware gives the UUID.
    machine.new_request();
    machine.identity["macs"] = json!(["00:11:22:33:44:99"]);
    let uuid = machine.identity["productUuid"].as_str().unwrap();
    machine.identity["productUuid"] = json!(swapped_uuid(uuid).unwrap());
    assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    // As another machine, or as none, it is one that nobody has looked at.
    for (member, value, reason) in [
        ("serial", json!("SN-of-another"), json!(["unknownMachine"])),
        ("serial", json!("Default string"), json!(["unknownMachine", "placeholderIdentifiers"])),
    ] {
        machine.new_request();
        machine.identity[member] = value;
        let answer = machine.join(&world.relay, &token).await;
        let mut reasons = answer.body["reasons"].as_array().unwrap().clone();
        let mut expected = reason.as_array().unwrap().clone();
        reasons.sort_by_key(Value::to_string);
        expected.sort_by_key(Value::to_string);
        assert_eq!(reasons, expected, "{}", answer.body);
    }
}

async fn the_answer_to_the_latest_question_counts(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    let mut machine = vague(1);
    let outdated = request_of(&machine.join(&world.relay, &token).await);
    set_policy(&world.relay, json!({"attestors": {"discovery": "defer"}})).await;
    let latest = request_of(&machine.join(&world.relay, &token).await);
    assert_ne!(latest, outdated);
    // A token with all its uses held is there to be revoked still.
    let one = world.relay.mint(json!({})).await;
    request_of(&vague(2).join(&world.relay, &one).await);
    let shown = world.relay.call("compute/joinTokens/list", &in_pool(json!({}))).await;
    assert!(shown["joinTokens"].as_array().unwrap().iter().any(|token| token["id"] == id_of(&one).as_str()));
    assert_eq!(decide(&world.relay, "deny", &outdated).await, "denied");
    assert_eq!(request_of(&machine.join(&world.relay, &token).await), latest, "it waits on");
    assert_eq!(decide(&world.relay, "approve", &latest).await, "approved");
    assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    assert_eq!(counts(&world.relay, &token).await, (1, 0));
}

async fn two_operators_decide_at_once(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    for number in 0..6 {
        let token = world.relay.mint(json!({})).await;
        let mut machine = vague(number);
        let id = request_of(&machine.join(&world.relay, &token).await);
        let (approval, denial, _) = tokio::join!(
            decide(&world.relay, "approve", &id),
            decide(other, "deny", &id),
            machine.join(other, &token)
        );
        let state = get(&world.relay, &id).await["state"].as_str().unwrap().to_owned();
        let (uses, pending) = counts(&world.relay, &token).await;
        match state.as_str() {
            "denied" => {
                assert_eq!((denial.as_str(), uses, pending), ("denied", 0, 0), "approval: {approval}");
            }
            "consumed" => {
                assert_eq!((approval.as_str(), denial.as_str()), ("approved", "INVALID_STATE"));
                assert_eq!((uses, pending), (1, 0));
            }
            other => panic!("{other}: approval {approval}, denial {denial}"),
        }
    }
}

async fn two_operators_approve_at_once(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    let token = world.relay.mint(json!({"maxUses": 2})).await;
    let mut machine = vague(1);
    let id = request_of(&machine.join(&world.relay, &token).await);
    let input = json!({"joinRequestId": id});
    let (one, two) =
        tokio::join!(ask(&world.relay, "approve", input.clone()), ask(other, "approve", input.clone()));
    assert_eq!(one.body, two.body, "one decision, told twice");
    assert_eq!(one.body["joinRequest"]["state"], "approved");
    assert_eq!(machine.join(other, &token).await.body["status"], "issued");
    assert_eq!(counts(&world.relay, &token).await, (1, 0));
}

async fn a_denied_machine_stays_out_and_its_use_is_given_back(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let mut machine = vague(1);
    let id = request_of(&machine.join(&world.relay, &token).await);
    assert_eq!(outcome(&vague(2).join(&world.relay, &token).await), "tokenExhausted", "its one use is held");
    assert_eq!(decide(&world.relay, "deny", &id).await, "denied");
    assert_eq!(counts(&world.relay, &token).await, (0, 0));
    assert_eq!(outcome(&machine.join(&world.relay, &token).await), "requestDenied");
    assert_eq!(Machine::new(3).join(&world.relay, &token).await.status, 200, "the use is free again");
    // An approved request can still be denied, until it is consumed.
    let token = world.relay.mint(json!({})).await;
    let mut machine = vague(4);
    let id = request_of(&machine.join(&world.relay, &token).await);
    assert_eq!(decide(&world.relay, "approve", &id).await, "approved");
    assert_eq!(decide(&world.relay, "deny", &id).await, "denied");
    assert_eq!(outcome(&machine.join(&world.relay, &token).await), "requestDenied");
}
