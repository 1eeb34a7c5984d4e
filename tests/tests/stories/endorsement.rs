//! TPMs with several endorsement keys: which of them a join is about, and that it is one join whichever that is.

use super::{
    World, in_pool, outcome,
    proof::{input, join, node, send},
    set_policy,
};
use serde_json::{Value, json};
use tests::{Answer, Database, LocalRelay, Machine, SimulatedTpm, TpmMaker, on_both_databases};

on_both_databases!(
    what_waits_is_not_another_join_because_an_authority_vouches_for_another_key,
    another_key_of_a_waiting_machine_is_listed,
    a_key_is_listed_while_its_request_is_approved,
    another_key_is_listed_while_a_request_is_approved,
    a_ban_is_not_passed_by_with_another_key,
    the_key_that_the_inventory_names_is_the_one_to_prove,
    who_made_a_tpm_is_its_own_word_unless_an_authority_vouches,
    a_key_that_is_held_or_banned_is_proved_also_where_no_tpm_is_asked_for,
);

async fn add_authority(relay: &LocalRelay, maker: &TpmMaker) -> Value {
    let bundle = json!({"certificates": maker.pem(), "idempotencyKey": tests::unique("add")});
    let added = relay.call("compute/endorsementAuthorities/add", &in_pool(bundle)).await;
    added["endorsementAuthority"]["id"].clone()
}

async fn remove_authority(relay: &LocalRelay, id: &Value) {
    relay.call("compute/endorsementAuthorities/remove", &in_pool(json!({"authorityId": id}))).await;
}

async fn list_key(relay: &LocalRelay, ek_sha256: &str) {
    let key = json!({"ekSha256": ek_sha256, "idempotencyKey": ek_sha256});
    relay.call("compute/endorsementKeys/add", &in_pool(key)).await;
}

async fn request(relay: &LocalRelay, waiting: &Answer) -> Value {
    let named = in_pool(json!({"joinRequestId": waiting.body["joinRequestId"]}));
    relay.call("compute/joinRequests/get", &named).await["joinRequest"].clone()
}

/// Uses and held uses of the pool's only token.
async fn uses(relay: &LocalRelay) -> (i64, i64) {
    let tokens = relay.call("compute/joinTokens/list", &in_pool(json!({"includeInactive": true}))).await;
    assert_eq!(tokens["joinTokens"].as_array().map(Vec::len), Some(1), "{tokens}");
    let number = |member: &str| tokens["joinTokens"][0][member].as_i64().unwrap();
    (number("uses"), number("pending"))
}

/// A pool where unknown keys wait, its only token (of one use), and a machine that waits with its TPM's first key.
async fn waiting(world: &World, tpm: &SimulatedTpm) -> (String, Machine, Answer) {
    set_policy(&world.relay, json!({"unknownEndorsementKeys": "defer"})).await;
    let token = world.relay.mint(json!({})).await;
    let mut machine = Machine::new(1);
    let waits = join(&world.relay, &token, &mut machine, tpm).await;
    assert_eq!(waits.body["reasons"], json!(["unknownEndorsementKey"]), "{}", waits.body);
    (token, machine, waits)
}

async fn what_waits_is_not_another_join_because_an_authority_vouches_for_another_key(database: Database) {
    let world = World::new(database).await;
    let maker = TpmMaker::new("id:494E5443");
    let tpm = SimulatedTpm::with_keys(2).certified(1, &maker);
    let (token, mut machine, waits) = waiting(&world, &tpm).await;
    assert_eq!(request(&world.relay, &waits).await["ekSha256"], tpm.ek_sha256_of(0).as_str());
    let authority = add_authority(&world.relay, &maker).await;
    let again = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(again.body["joinRequestId"], waits.body["joinRequestId"], "{}", again.body);
    assert_eq!(uses(&world.relay).await, (0, 1));
    // Where that admits, it is the vouched key that counts, and the same request that it ends.
    set_policy(&world.relay, json!({"unknownEndorsementKeys": "defer", "tpm": {"authorityAdmits": true}}))
        .await;
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    assert_eq!(node(&world.relay, &joined).await["ekSha256"], tpm.ek_sha256_of(1).as_str());
    assert_eq!(request(&world.relay, &waits).await["state"], "consumed");
    assert_eq!(uses(&world.relay).await, (1, 0));
    // One that came while the authority was there goes on waiting without it.
    set_policy(&world.relay, json!({"tpm": {"authorityAdmits": false}})).await;
    let token = world.relay.mint(json!({})).await;
    let (tpm, mut machine) = (SimulatedTpm::with_keys(2).certified(1, &maker), Machine::new(2));
    let waits = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(request(&world.relay, &waits).await["ekSha256"], tpm.ek_sha256_of(1).as_str());
    remove_authority(&world.relay, &authority).await;
    let again = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(again.body["joinRequestId"], waits.body["joinRequestId"], "{}", again.body);
}

async fn another_key_of_a_waiting_machine_is_listed(database: Database) {
    let world = World::new(database).await;
    let tpm = SimulatedTpm::with_keys(3);
    let (token, mut machine, waits) = waiting(&world, &tpm).await;
    list_key(&world.relay, &tpm.ek_sha256_of(2)).await;
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    assert_eq!(node(&world.relay, &joined).await["ekSha256"], tpm.ek_sha256_of(2).as_str());
    // It is the machine that waited: its request is consumed, with the use that it held.
    let consumed = request(&world.relay, &waits).await;
    assert_eq!((&consumed["state"], &consumed["ekSha256"]), (&json!("consumed"), &json!(tpm.ek_sha256())));
    assert_eq!(uses(&world.relay).await, (1, 0));
}

async fn a_key_is_listed_while_its_request_is_approved(database: Database) {
    listed_while_approved(database, 0).await;
}

async fn another_key_is_listed_while_a_request_is_approved(database: Database) {
    listed_while_approved(database, 1).await;
}

/// The machine waits with its first key and is approved; then the key at `place` is listed.
async fn listed_while_approved(database: Database, place: usize) {
    let world = World::new(database).await;
    let tpm = SimulatedTpm::with_keys(2);
    let (token, mut machine, waits) = waiting(&world, &tpm).await;
    let named = in_pool(json!({"joinRequestId": waits.body["joinRequestId"]}));
    world.relay.call("compute/joinRequests/approve", &named).await;
    list_key(&world.relay, &tpm.ek_sha256_of(place)).await;
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    // What was approved is what is admitted.
    assert_eq!(node(&world.relay, &joined).await["ekSha256"], tpm.ek_sha256_of(0).as_str());
    assert_eq!(request(&world.relay, &waits).await["state"], "consumed");
    assert_eq!(uses(&world.relay).await, (1, 0));
    // And once: again it is the same, and nobody else comes in by it.
    let again = send(&world.relay, &token, &input(&machine, &tpm.offer(&machine), None)).await;
    assert_eq!(again.body["certificate"], joined.body["certificate"]);
    let mut other = machine.with_new_key();
    assert_eq!(outcome(&join(&world.relay, &token, &mut other, &tpm).await), "tokenExhausted");
    assert_eq!(uses(&world.relay).await, (1, 0));
    let nodes = world.relay.call("compute/nodes/list", &in_pool(json!({}))).await;
    assert_eq!(nodes["nodes"].as_array().map(Vec::len), Some(1), "{nodes}");
}

async fn the_key_that_the_inventory_names_is_the_one_to_prove(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 2})).await;
    for (number, mode) in [(1, "optional"), (2, "off")] {
        set_policy(&world.relay, json!({"attestors": {"discovery": "defer", "tpm": mode}})).await;
        let (tpm, mut machine) = (SimulatedTpm::with_keys(3), Machine::new(number));
        let waits = join(&world.relay, &token, &mut machine, &tpm).await;
        assert_eq!(waits.body["reasons"], json!(["unknownMachine"]), "{}", waits.body);
        let key = tpm.ek_sha256_of(1);
        let entry = in_pool(json!({"entryId": format!("rack-{number}"), "ekSha256": key}));
        world.relay.call("compute/inventory/put", &entry).await;
        let joined = join(&world.relay, &token, &mut machine, &tpm).await;
        assert_eq!(joined.body["status"], "issued", "{mode}: {}", joined.body);
        assert_eq!(node(&world.relay, &joined).await["ekSha256"], key.as_str());
    }
    assert_eq!(uses(&world.relay).await, (2, 0));
}

async fn a_ban_is_not_passed_by_with_another_key(database: Database) {
    let world = World::new(database).await;
    let maker = TpmMaker::new("id:494E5443");
    let tpm = SimulatedTpm::with_keys(3).certified(2, &maker);
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    let mut machine = Machine::new(1);
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(node(&world.relay, &joined).await["ekSha256"], tpm.ek_sha256_of(0).as_str());
    let named = in_pool(json!({"nodeId": joined.body["nodeId"]}));
    world.relay.call("compute/nodes/ban", &named).await;
    // It begins anew, with a key that nobody knows; the TPM is known by another endorsement key than the banned one.
    list_key(&world.relay, &tpm.ek_sha256_of(1)).await;
    add_authority(&world.relay, &maker).await;
    let pinned = world.relay.mint(json!({"expect": {"ekSha256": tpm.ek_sha256_of(1)}})).await;
    let admits = json!({"unknownEndorsementKeys": "defer", "tpm": {"authorityAdmits": true}});
    for policy in [json!({}), admits, json!({"attestors": {"tpm": "required"}})] {
        set_policy(&world.relay, policy).await;
        for token in [&token, &pinned] {
            let again = join(&world.relay, token, &mut machine.with_new_key(), &tpm).await;
            assert_eq!(outcome(&again), "nodeBanned", "{}", again.body);
        }
    }
    world.relay.call("compute/nodes/unban", &named).await;
    let again = join(&world.relay, &token, &mut machine.with_new_key(), &tpm).await;
    assert_eq!(outcome(&again), "identityTaken");
}

async fn a_key_that_is_held_or_banned_is_proved_also_where_no_tpm_is_asked_for(database: Database) {
    let world = World::new(database).await;
    let (tpm, machine) = (SimulatedTpm::with_keys(2), Machine::new(1));
    let token = world.relay.mint(json!({"maxUses": 9, "allowReclaim": true})).await;
    let joined = join(&world.relay, &token, &mut machine.with_new_key(), &tpm).await;
    set_policy(&world.relay, json!({"attestors": {"tpm": "off"}})).await;
    // The node is taken over by the TPM that it proved, as the refusal of others says.
    let refused = machine.with_new_key().join(&world.relay, &token).await;
    assert_eq!(outcome(&refused), "endorsementKeyMismatch");
    let again = join(&world.relay, &token, &mut machine.with_new_key(), &tpm).await;
    assert_eq!(again.body["nodeId"], joined.body["nodeId"], "{}", again.body);
    assert_eq!(again.body["generation"], 2);
    // A TPM that nobody knows is not looked at.
    let stranger = SimulatedTpm::new();
    let plain = Machine::new(2);
    let answer = send(&world.relay, &token, &input(&plain, &stranger.offer(&plain), None)).await;
    assert_eq!(answer.body["status"], "issued", "{}", answer.body);
    assert_eq!(node(&world.relay, &answer).await["ekSha256"], Value::Null);
    let named = in_pool(json!({"nodeId": joined.body["nodeId"]}));
    world.relay.call("compute/nodes/ban", &named).await;
    let banned = join(&world.relay, &token, &mut Machine::new(3), &tpm).await;
    assert_eq!(outcome(&banned), "nodeBanned", "{}", banned.body);
}

async fn who_made_a_tpm_is_its_own_word_unless_an_authority_vouches(database: Database) {
    let world = World::new(database).await;
    let relay = &world.relay;
    let (maker, forger) = (TpmMaker::new("id:414D4400"), TpmMaker::new("id:494E5443"));
    add_authority(relay, &maker).await;
    let shown = |of: &Value| (of["ekManufacturer"].clone(), of["ekVouched"].clone());
    let (claimed, vouched) = ((json!("INTC"), json!(false)), (json!("AMD"), json!(true)));
    set_policy(relay, json!({"unknownEndorsementKeys": "defer"})).await;
    let token = relay.mint(json!({"maxUses": 9, "allowReclaim": true})).await;
    let forged = SimulatedTpm::new().certified(0, &forger);
    let genuine = SimulatedTpm::new().certified(0, &maker);
    let bare = SimulatedTpm::new();
    for (number, tpm, expected) in
        [(1, &forged, &claimed), (2, &genuine, &vouched), (3, &bare, &(Value::Null, json!(false)))]
    {
        let mut machine = Machine::new(number);
        let waits = join(relay, &token, &mut machine, tpm).await;
        assert_eq!(&shown(&request(relay, &waits).await), expected, "{number}");
        let unmatched = relay.call("compute/endorsementKeys/listUnmatched", &in_pool(json!({}))).await;
        let keys = unmatched["endorsementKeys"].as_array().unwrap();
        let key = keys.iter().find(|key| key["ekSha256"] == tpm.ek_sha256().as_str()).unwrap();
        assert_eq!(&shown(key), expected, "{number}");
        let named = in_pool(json!({"joinRequestId": waits.body["joinRequestId"]}));
        relay.call("compute/joinRequests/approve", &named).await;
        let joined = join(relay, &token, &mut machine, tpm).await;
        assert_eq!(&shown(&node(relay, &joined).await), expected, "{number}");
    }
    // A node that joins again is what its last proof shows, and nothing of an earlier one.
    list_key(relay, &genuine.ek_sha256()).await;
    let forged = genuine.certified(0, &forger);
    let joined = join(relay, &token, &mut Machine::new(2), &forged).await;
    assert_eq!(joined.body["generation"], 2, "{}", joined.body);
    assert_eq!(shown(&node(relay, &joined).await), claimed);
    let genuine = forged.certified(0, &maker);
    let joined = join(relay, &token, &mut Machine::new(2), &genuine).await;
    assert_eq!(shown(&node(relay, &joined).await), vouched);
    // A machine without a TPM has nothing to vouch for.
    let plain = Machine::new(4).join(relay, &token).await;
    assert_eq!(shown(&node(relay, &plain).await), (Value::Null, Value::Null));
}
