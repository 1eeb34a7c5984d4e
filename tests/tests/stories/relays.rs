//! Two relays on one PostgreSQL: what one decides, the other holds to from its next request on. They share nothing but
//! the database and the master key.

use super::{World, outcome};
use serde_json::{Value, json};
use tests::{Database, LocalRelay, Machine, post};

/// Two relays, and what happens at the first and is asked of the second.
async fn two() -> (World, LocalRelay) {
    let world = World::new(Database::postgres()).await;
    let second = world.second().await.unwrap();
    (world, second)
}

fn token_id(token: &str) -> &str {
    token.trim_start_matches("bc").split('.').next().unwrap_or_default()
}

fn in_the_pool(member: &str, value: &str) -> Value {
    let mut input = json!({"tenantId": "provider", "poolId": "default"});
    input[member] = json!(value);
    input
}

#[tokio::test]
async fn a_ban_and_a_release_by_one_count_at_the_other() {
    let (world, second) = two().await;
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    let mut machine = Machine::new(1);
    let joined = machine.join(&world.relay, &token).await;
    let node = in_the_pool("nodeId", joined.body["nodeId"].as_str().unwrap());
    // One connection to the other relay, kept from before.
    let (kept, url, empty) = (machine.client(&second), second.url(), json!({}));
    let beat = async || outcome(&post(&kept, &url, None, "node/heartbeat", &empty).await);
    assert_eq!(beat().await, "200");
    world.relay.call("compute/nodes/ban", &node).await;
    assert_eq!(beat().await, "nodeBanned");
    assert_eq!(outcome(&machine.renew(&second).await), "nodeBanned");
    assert_eq!(outcome(&machine.join(&second, &token).await), "nodeBanned");
    second.call("compute/nodes/unban", &node).await;
    assert_eq!(beat().await, "200");
    world.relay.call("compute/nodes/release", &node).await;
    assert_eq!(beat().await, "nodeReleased");
    assert_eq!(Machine::new(1).join(&second, &token).await.status, 200, "what it was is free");
}

#[tokio::test]
async fn a_token_revoked_by_one_is_refused_by_the_other() {
    let (world, second) = two().await;
    let token = world.relay.mint(json!({"maxUses": 5})).await;
    let mut joined = Machine::new(1);
    assert_eq!(joined.join(&second, &token).await.status, 200);
    world.relay.call("compute/joinTokens/revoke", &in_the_pool("tokenId", token_id(&token))).await;
    assert_eq!(outcome(&Machine::new(2).join(&second, &token).await), "tokenRevoked");
    assert_eq!(
        outcome(&joined.join(&second, &token).await),
        "tokenRevoked",
        "not the answer of before either"
    );
    // The node is one still.
    assert_eq!(joined.call(&second, "node/heartbeat", &json!({})).await.status, 200);
    assert_eq!(joined.renew(&world.relay).await.status, 200);
}

#[tokio::test]
async fn a_certificate_used_at_one_supersedes_the_old_one_at_the_other() {
    let (world, second) = two().await;
    let token = world.relay.mint(json!({})).await;
    let mut machine = Machine::new(1);
    machine.join(&world.relay, &token).await;
    let (kept, url, empty) = (machine.client(&second), second.url(), json!({}));
    let beat = async || outcome(&post(&kept, &url, None, "node/heartbeat", &empty).await);
    assert_eq!(machine.renew(&world.relay).await.status, 200);
    assert_eq!(beat().await, "200");
    assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    assert_eq!(beat().await, "superseded");
}

#[tokio::test]
async fn a_policy_and_secrets_of_one_are_the_others() {
    let (world, second) = two().await;
    let token = world.relay.mint(json!({})).await;
    let mut machine = Machine::new(1);
    machine.join(&second, &token).await;
    let put =
        json!({"tenantId": "provider", "poolId": "default", "name": "registry", "value": "swordfish-1"});
    world.relay.call("compute/secrets/put", &put).await;
    let told = machine.call(&second, "node/secrets", &json!({})).await;
    assert_eq!(told.body, json!({"secrets": {"registry": "swordfish-1"}}));
    let shorter =
        json!({"tenantId": "provider", "poolId": "default", "policy": {"certificateTtlSeconds": 600}});
    world.relay.call("compute/pools/update", &shorter).await;
    let renewed = machine.renew(&second).await;
    assert_eq!(renewed.status, 200, "{}", renewed.body);
    world.pass(601);
    assert_eq!(outcome(&machine.call(&second, "node/heartbeat", &json!({})).await), "UNAUTHENTICATED");
    assert_eq!(machine.renew(&second).await.status, 200);
}
