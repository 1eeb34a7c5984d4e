//! Joining exactly once, whoever asks at the same time and however often.

use super::{World, outcome};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use tests::{Database, LocalRelay, Machine, on_both_databases};
use tokio::task::JoinSet;

on_both_databases!(
    forty_machines_share_ten_uses,
    a_retry_is_the_same_join,
    one_identity_is_one_node,
    the_same_key_is_the_same_node,
    a_reclaim_takes_over_and_ends_the_old_certificate,
    an_incumbent_that_is_alive_is_not_taken_over,
    pins_are_judged_and_named,
    what_a_token_is_told_and_when,
    placeholders_are_recorded_and_collide_with_nothing,
    a_thousand_joins_from_one_address,
);

async fn uses(relay: &LocalRelay, token: &str) -> Value {
    let id = token.trim_start_matches("bc").split('.').next().unwrap_or_default().to_owned();
    let input = json!({"tenantId": "provider", "poolId": "default", "includeInactive": true, "limit": 200});
    let list = relay.call("compute/joinTokens/list", &input).await;
    let found =
        list["joinTokens"].as_array().and_then(|all| all.iter().find(|token| token["id"] == id.as_str()));
    found.map(|token| token["uses"].clone()).unwrap_or_default()
}

async fn nodes(relay: &LocalRelay) -> Vec<Value> {
    let input = json!({"tenantId": "provider", "poolId": "default", "includeReleased": true, "limit": 200});
    relay.call("compute/nodes/list", &input).await["nodes"].as_array().cloned().unwrap_or_default()
}

async fn forty_machines_share_ten_uses(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let token = world.relay.mint(json!({"maxUses": 10})).await;
    let clients = [world.relay.client(None), second.as_ref().unwrap_or(&world.relay).client(None)];
    let urls = [world.relay.url(), second.as_ref().unwrap_or(&world.relay).url()];
    let mut joins = JoinSet::new();
    for number in 0..40 {
        let (client, url) = (clients[number % 2].clone(), urls[number % 2].clone());
        let (machine, token) = (Machine::new(u32::try_from(number).unwrap_or(0)), token.clone());
        joins.spawn(async move {
            let answer = tests::post(&client, &url, Some(&token), "node/join", &machine.join_input()).await;
            (machine, answer)
        });
    }
    let (mut winners, mut losers) = (Vec::new(), BTreeMap::<String, u32>::new());
    while let Some(done) = joins.join_next().await {
        let (machine, answer) = done.unwrap();
        if answer.status == 200 {
            winners.push((machine, answer.body));
        } else {
            *losers.entry(outcome(&answer)).or_default() += 1;
        }
    }
    assert_eq!(winners.len(), 10);
    assert_eq!(losers, BTreeMap::from([("tokenExhausted".to_owned(), 30)]));
    assert_eq!(uses(&world.relay, &token).await, 10);
    assert_eq!(nodes(&world.relay).await.len(), 10);
    // Replays of the winners are given the same certificate and cost nothing, on the other relay too.
    for (machine, won) in winners {
        let url = &urls[1];
        let again = tests::post(&clients[1], url, Some(&token), "node/join", &machine.join_input()).await;
        assert_eq!(again.body["certificate"], won["certificate"]);
        assert_eq!(again.body["nodeId"], won["nodeId"]);
    }
    assert_eq!(uses(&world.relay, &token).await, 10);
}

async fn a_retry_is_the_same_join(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let mut machine = Machine::new(1);
    let first = machine.join(&world.relay, &token).await;
    assert_eq!(first.body["status"], "issued", "{}", first.body);
    // The same signed part is the same join, whatever else the body says and however the PEM is wrapped.
    let mut other = machine.join_input();
    other["identity"] = json!({"serial": "another", "macs": [], "gpuUuids": []});
    other["csr"] = json!(format!("a line before\n{}", machine.csr));
    let again = world.relay.call_as(&token, "node/join", &other).await;
    assert_eq!(again.body["certificate"], first.body["certificate"]);
    // Also after the token has expired; not with another secret; not once it is revoked.
    world.pass(4000);
    assert_eq!(machine.join(&world.relay, &token).await.body["certificate"], first.body["certificate"]);
    let wrong = format!("{}{}", &token[..token.len() - 52], "0".repeat(52));
    assert_eq!(
        outcome(&world.relay.call_as(&wrong, "node/join", &machine.join_input()).await),
        "UNAUTHENTICATED"
    );
    // A certificate that has expired is replaced by a fresh one: still the same join.
    world.pass(90_000);
    world.relay.renew_admin().await;
    let fresh = machine.join(&world.relay, &token).await;
    assert_ne!(fresh.body["certificate"], first.body["certificate"]);
    assert_eq!(fresh.body["nodeId"], first.body["nodeId"]);
    assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    assert_eq!(uses(&world.relay, &token).await, 1);
    let id = token[2..].split('.').next().unwrap();
    let revoke = json!({"tenantId": "provider", "poolId": "default", "tokenId": id});
    world.relay.call("compute/joinTokens/revoke", &revoke).await;
    assert_eq!(outcome(&machine.join(&world.relay, &token).await), "tokenRevoked");
}

async fn one_identity_is_one_node(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    for number in 0..8 {
        // Two tokens, one UUID, two relays, at the same instant.
        let (token, token2) = (world.relay.mint(json!({})).await, world.relay.mint(json!({})).await);
        let (mut one, mut two) = (Machine::new(number), Machine::new(number));
        let (first, second) = tokio::join!(one.join(&world.relay, &token), two.join(other, &token2));
        let outcomes: BTreeSet<String> = [outcome(&first), outcome(&second)].into();
        assert_eq!(outcomes, BTreeSet::from(["200".to_owned(), "identityTaken".to_owned()]));
        let winner = if first.status == 200 { &first } else { &second };
        let loser = if first.status == 200 { &second } else { &first };
        let incumbent = winner.body["nodeId"].as_str().unwrap();
        assert!(loser.body["detail"].as_str().unwrap().contains(incumbent), "{}", loser.body);
        let spent = [uses(&world.relay, &token).await, uses(&world.relay, &token2).await];
        assert_eq!(spent.iter().filter_map(Value::as_i64).sum::<i64>(), 1);
    }
    assert_eq!(nodes(&world.relay).await.len(), 8);
}

async fn the_same_key_is_the_same_node(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 5})).await;
    let mut machine = Machine::new(1);
    let first = machine.join(&world.relay, &token).await;
    // Another request with the same key, another claim: the same node, one more use, no reclaim needed.
    machine.identity = Machine::new(2).identity;
    machine.new_request();
    let again = machine.join(&world.relay, &token).await;
    assert_eq!(again.body["nodeId"], first.body["nodeId"]);
    assert_eq!(again.body["generation"], 1);
    assert_eq!(uses(&world.relay, &token).await, 2);
    // Its rows moved: the old UUID is free, the new one is taken.
    assert_eq!(Machine::new(1).join(&world.relay, &token).await.status, 200);
    assert_eq!(outcome(&Machine::new(2).join(&world.relay, &token).await), "identityTaken");
    // What others hold it does not get.
    machine.identity = Machine::new(1).identity;
    machine.new_request();
    assert_eq!(outcome(&machine.join(&world.relay, &token).await), "identityTaken");
}

async fn a_reclaim_takes_over_and_ends_the_old_certificate(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    let reclaiming = world.relay.mint(json!({"maxUses": 3, "allowReclaim": true})).await;
    let mut old = Machine::new(1);
    let first = old.join(&world.relay, &token).await;
    let mut new = old.with_new_key();
    assert_eq!(outcome(&new.join(&world.relay, &token).await), "identityTaken");
    assert_eq!(
        old.call(&world.relay, "node/heartbeat", &json!({})).await.status,
        200,
        "the incumbent is untouched"
    );
    world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
    world.pass(601);
    let taken = new.join(&world.relay, &reclaiming).await;
    assert_eq!(taken.body["nodeId"], first.body["nodeId"], "{}", taken.body);
    assert_eq!(taken.body["generation"], 2);
    assert_eq!(outcome(&old.call(&world.relay, "node/heartbeat", &json!({})).await), "superseded");
    assert_eq!(new.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    // The old request, with the right secret: a join that a later one has overtaken.
    assert_eq!(outcome(&old.join(&world.relay, &token).await), "superseded");
}

async fn an_incumbent_that_is_alive_is_not_taken_over(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let mut old = Machine::new(1);
    old.join(&world.relay, &token).await;
    old.call(&world.relay, "node/heartbeat", &json!({})).await;
    world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
    let reclaiming = world.relay.mint(json!({"allowReclaim": true})).await;
    let mut new = old.with_new_key();
    let waits = new.join(&world.relay, &reclaiming).await;
    assert_eq!(waits.body["reasons"], json!(["incumbentAlive"]), "{}", waits.body);
    assert_eq!(uses(&world.relay, &reclaiming).await, 0);
    let pinned = json!({"allowReclaim": true, "expect": {"serial": "SN-00000001"}});
    let pinned = world.relay.mint(pinned).await;
    assert_eq!(new.join(&world.relay, &pinned).await.status, 200);
}

async fn pins_are_judged_and_named(database: Database) {
    let world = World::new(database).await;
    let expect = json!({"productUuid": "4C4C454400424A108054000000000001", "serial": "SN-00000001", "mac": "00:00:00:00:00:01"});
    let token = world.relay.mint(json!({"expect": expect})).await;
    let wrong = Machine::new(2).join(&world.relay, &token).await;
    assert_eq!(outcome(&wrong), "identityMismatch");
    let fields: Vec<&str> =
        wrong.body["errors"].as_array().unwrap().iter().filter_map(|e| e["field"].as_str()).collect();
    assert_eq!(fields, ["expect.productUuid", "expect.serial", "expect.mac"]);
    assert!(wrong.body["errors"][1]["message"].as_str().unwrap().contains("SN-00000002"), "{}", wrong.body);
    assert_eq!(uses(&world.relay, &token).await, 0);
    let right = Machine::new(1).join(&world.relay, &token).await;
    assert_eq!(right.status, 200, "{}", right.body);
    let ek = world.relay.mint(json!({"expect": {"ekSha256": "0".repeat(64)}})).await;
    assert_eq!(outcome(&Machine::new(3).join(&world.relay, &ek).await), "tpmRequired");
}

async fn what_a_token_is_told_and_when(database: Database) {
    let world = World::new(database).await;
    let machine = || Machine::new(9);
    let spent = world.relay.mint(json!({})).await;
    assert_eq!(Machine::new(8).join(&world.relay, &spent).await.status, 200);
    let expired = world.relay.mint(json!({"ttlSeconds": 60})).await;
    let never = |token: &str| format!("{}{}", &token[..token.len() - 52], "1".repeat(51) + "0");
    world.pass(60);
    for (token, expected) in [(&spent, "tokenExhausted"), (&expired, "tokenExpired")] {
        assert_eq!(outcome(&machine().join(&world.relay, token).await), expected);
        // The exact reason only after the secret matched.
        let answer = machine().join(&world.relay, &never(token)).await;
        assert_eq!((outcome(&answer).as_str(), answer.status), ("UNAUTHENTICATED", 401));
    }
    for nonsense in ["", "bcjt_", "hello", "bcjt_0.0", &spent.to_uppercase()] {
        assert_eq!(outcome(&machine().join(&world.relay, nonsense).await), "UNAUTHENTICATED", "{nonsense}");
    }
}

async fn placeholders_are_recorded_and_collide_with_nothing(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 5})).await;
    let policy =
        json!({"tenantId": "provider", "poolId": "default", "policy": {"placeholders": "allowUnique"}});
    world.relay.call("compute/pools/update", &policy).await;
    let vague = json!({"productUuid": "03000200-0400-0500-0006-000700080009", "serial": "To be filled by O.E.M.",
        "macs": ["not a mac"], "gpuUuids": []});
    for _ in 0..2 {
        let mut machine = Machine::claiming(vague.clone());
        let waits = machine.join(&world.relay, &token).await;
        assert_eq!(waits.body["reasons"], json!(["placeholderIdentifiers"]), "{}", waits.body);
        let request = json!({"tenantId": "provider", "poolId": "default", "joinRequestId": waits.body["joinRequestId"]});
        world.relay.call("compute/joinRequests/approve", &request).await;
        assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    }
    for node in nodes(&world.relay).await {
        assert_eq!(node["placeholders"], json!(["productUuid", "serial"]));
        assert_eq!(node["identity"]["macs"], json!([]));
    }
}

async fn a_thousand_joins_from_one_address(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 1000})).await;
    let (client, url) = (world.relay.client(None), world.relay.url());
    let mut joins = JoinSet::new();
    for lane in 0..20u32 {
        let (client, url, token) = (client.clone(), url.clone(), token.clone());
        joins.spawn(async move {
            let mut joined = 0;
            for number in 0..50 {
                let machine = Machine::new(lane * 50 + number);
                let answer =
                    tests::post(&client, &url, Some(&token), "node/join", &machine.join_input()).await;
                assert_eq!(answer.status, 200, "{}", answer.body);
                joined += 1;
            }
            joined
        });
    }
    assert_eq!(joins.join_all().await.into_iter().sum::<u32>(), 1000);
    assert_eq!(uses(&world.relay, &token).await, 1000);
}
