//! What a machine proves by its TPM, and what one that lies can't. The TPMs are simulated, so that they may be of any
//! honesty.

use super::{World, in_pool, outcome, set_policy};
use serde_json::{Value, json};
use shared::tpm::NODE_KEY_ATTRIBUTES;
use tests::{Answer, Database, LocalRelay, Machine, SimulatedTpm, key_public, on_both_databases};

on_both_databases!(
    a_proven_key_is_bound_to_the_node,
    one_relay_challenges_and_another_takes_the_proof,
    a_proof_counts_for_its_join_only,
    who_only_claims_an_endorsement_key_can_not_answer,
    a_node_key_must_be_exactly_as_demanded,
    an_unknown_endorsement_key_waits_until_it_is_listed,
    a_demanded_tpm_is_demanded,
    only_the_same_endorsement_key_takes_a_node_over,
    a_ban_covers_the_endorsement_key,
    another_node_key_must_be_proved_at_a_renewal,
    a_certificate_that_is_new_renews_by_its_own_key,
    any_endorsement_key_of_a_tpm_takes_its_node_over,
    a_proven_key_is_an_identifier,
    an_approved_machine_proves_its_key_again,
);

/// What a machine sends to join with what it offers, and with a proof where there is one.
pub(super) fn input(machine: &Machine, offer: &Value, proof: Option<&Value>) -> Value {
    let mut input = machine.join_input();
    input["tpm"] = offer.clone();
    if let Some(proof) = proof {
        input["proof"] = proof.clone();
    }
    input
}

pub(super) async fn send(relay: &LocalRelay, token: &str, input: &Value) -> Answer {
    relay.call_as(token, "node/join", input).await
}

/// The whole join of an honest machine: the answer to its proof, or to its first call if that was no challenge.
pub(super) async fn join(
    relay: &LocalRelay,
    token: &str,
    machine: &mut Machine,
    tpm: &SimulatedTpm,
) -> Answer {
    let offer = tpm.offer(machine);
    let first = send(relay, token, &input(machine, &offer, None)).await;
    if first.body["status"] != "challenge" {
        return first;
    }
    let proof = tpm.answer(machine, &first.body).unwrap();
    let answer = send(relay, token, &input(machine, &offer, Some(&proof))).await;
    machine.keep(&answer);
    answer
}

/// A challenge that a machine was given.
async fn challenge(relay: &LocalRelay, token: &str, machine: &Machine, tpm: &SimulatedTpm) -> Value {
    let answer = send(relay, token, &input(machine, &tpm.offer(machine), None)).await;
    assert_eq!(answer.body["status"], "challenge", "{}", answer.body);
    answer.body
}

pub(super) async fn node(relay: &LocalRelay, answer: &Answer) -> Value {
    let named = in_pool(json!({"nodeId": answer.body["nodeId"]}));
    relay.call("compute/nodes/get", &named).await["node"].clone()
}

async fn a_proven_key_is_bound_to_the_node(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let (tpm, mut machine) = (SimulatedTpm::new(), Machine::new(1));
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    assert_eq!(node(&world.relay, &joined).await["ekSha256"], tpm.ek_sha256().as_str());
    assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    // The same join again needs no proof any more and is the same; a renewal with the same key needs none either.
    let again = send(&world.relay, &token, &input(&machine, &tpm.offer(&machine), None)).await;
    assert_eq!(again.body["certificate"], joined.body["certificate"]);
    assert_eq!(machine.renew(&world.relay).await.body["status"], "issued");
    // It is known now, and on no list.
    let unmatched = world.relay.call("compute/endorsementKeys/listUnmatched", &in_pool(json!({}))).await;
    assert!(unmatched.to_string().contains(&tpm.ek_sha256()), "{unmatched}");
}

async fn one_relay_challenges_and_another_takes_the_proof(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    let token = world.relay.mint(json!({})).await;
    let (tpm, machine) = (SimulatedTpm::new(), Machine::new(1));
    let asked = challenge(&world.relay, &token, &machine, &tpm).await;
    let proof = tpm.answer(&machine, &asked).unwrap();
    let answered = input(&machine, &tpm.offer(&machine), Some(&proof));
    let joined = send(other, &token, &answered).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    // The same proof again: the same answer, on either.
    for relay in [&world.relay, other] {
        assert_eq!(send(relay, &token, &answered).await.body["certificate"], joined.body["certificate"]);
    }
}

async fn a_proof_counts_for_its_join_only(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    let other_token = world.relay.mint(json!({"maxUses": 3})).await;
    let (tpm, other_tpm) = (SimulatedTpm::new(), SimulatedTpm::new());
    let mut machine = Machine::new(1);
    let asked = challenge(&world.relay, &token, &machine, &tpm).await;
    let proof = tpm.answer(&machine, &asked).unwrap();
    let offer = tpm.offer(&machine);
    let refused = async |token: &str, input: &Value, why: &str| {
        let answer = send(&world.relay, token, input).await;
        assert_eq!(outcome(&answer), "badProof", "{why}: {}", answer.body);
    };
    refused(&other_token, &input(&machine, &offer, Some(&proof)), "another token").await;
    refused(&token, &input(&machine, &other_tpm.offer(&machine), Some(&proof)), "another TPM").await;
    let challenge_id = proof["challengeId"].as_str().unwrap();
    for at in [0, challenge_id.len() / 2, challenge_id.len() - 1] {
        let mut altered = challenge_id.as_bytes().to_vec();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        let altered = json!({"challengeId": String::from_utf8(altered).unwrap(), "secret": proof["secret"]});
        refused(&token, &input(&machine, &offer, Some(&altered)), "an altered box").await;
    }
    let guessed =
        json!({"challengeId": challenge_id, "secret": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="});
    refused(&token, &input(&machine, &offer, Some(&guessed)), "a guess").await;
    let mut without = input(&machine, &offer, Some(&proof));
    without.as_object_mut().unwrap().remove("tpm");
    refused(&token, &without, "no TPM").await;
    let first = machine.csr.clone();
    machine.new_request();
    refused(&token, &input(&machine, &offer, Some(&proof)), "another certificate request").await;
    machine.csr = first;
    world.pass(300);
    refused(&token, &input(&machine, &offer, Some(&proof)), "too late").await;
    // None of that cost a use, and it still joins.
    assert_eq!(join(&world.relay, &token, &mut machine, &tpm).await.body["status"], "issued");
}

async fn who_only_claims_an_endorsement_key_can_not_answer(database: Database) {
    let world = World::new(database).await;
    let victim = SimulatedTpm::new();
    let token = world.relay.mint(json!({"expect": {"ekSha256": victim.ek_sha256()}})).await;
    let (impostor, machine) = (SimulatedTpm::new(), Machine::new(1));
    // It offers the victim's key as its own.
    let asked = challenge(&world.relay, &token, &machine, &victim).await;
    assert!(impostor.answer(&machine, &asked).is_none(), "the credential is for another TPM");
    // Nor does a key elsewhere pass for one beside the victim's: the credential names the key of the request.
    let elsewhere = Machine::new(2);
    assert!(victim.answer(&elsewhere, &asked).is_none(), "the credential is for another key");
    // Its own key, well proved, is not the pinned one.
    let mut machine = machine;
    let own = join(&world.relay, &token, &mut machine, &impostor).await;
    assert_eq!(outcome(&own), "identityMismatch");
    assert!(own.body["errors"].to_string().contains("expect.ekSha256"), "{}", own.body);
    assert_eq!(join(&world.relay, &token, &mut Machine::new(3), &victim).await.body["status"], "issued");
}

async fn a_node_key_must_be_exactly_as_demanded(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let (tpm, machine) = (SimulatedTpm::new(), Machine::new(1));
    let good = key_public(&machine, NODE_KEY_ATTRIBUTES);
    let mut bad: Vec<Vec<u8>> =
        (0..32).map(|bit| key_public(&machine, NODE_KEY_ATTRIBUTES ^ (1 << bit))).collect();
    bad.push(key_public(&Machine::new(2), NODE_KEY_ATTRIBUTES));
    bad.extend([good[..good.len() - 1].to_vec(), [good.as_slice(), &[0]].concat(), Vec::new()]);
    for key in bad {
        let answer = send(&world.relay, &token, &input(&machine, &tpm.offer_with(&key), None)).await;
        assert_eq!(outcome(&answer), "keyNotTpm", "{key:?}: {}", answer.body);
    }
    // An endorsement key that is no template's, and a body that is no base64.
    let mut offer = tpm.offer(&machine);
    offer["endorsementKeys"][0]["public"] = json!("AAAA");
    let answer = send(&world.relay, &token, &input(&machine, &offer, None)).await;
    assert_eq!(outcome(&answer), "badEndorsementKey");
    offer["endorsementKeys"][0]["public"] = json!("no base64");
    let answer = send(&world.relay, &token, &input(&machine, &offer, None)).await;
    assert_eq!(outcome(&answer), "INVALID_INPUT");
    offer["endorsementKeys"] = json!([]);
    let answer = send(&world.relay, &token, &input(&machine, &offer, None)).await;
    assert_eq!(outcome(&answer), "INVALID_INPUT");
}

async fn an_unknown_endorsement_key_waits_until_it_is_listed(database: Database) {
    let world = World::new(database).await;
    set_policy(&world.relay, json!({"unknownEndorsementKeys": "defer"})).await;
    let token = world.relay.mint(json!({})).await;
    let (tpm, mut machine) = (SimulatedTpm::new(), Machine::new(1));
    let waits = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(waits.body["reasons"], json!(["unknownEndorsementKey"]), "{}", waits.body);
    let request = in_pool(json!({"joinRequestId": waits.body["joinRequestId"]}));
    let shown = world.relay.call("compute/joinRequests/get", &request).await;
    assert_eq!(shown["joinRequest"]["ekSha256"], tpm.ek_sha256().as_str());
    let listed = in_pool(json!({"ekSha256": tpm.ek_sha256(), "idempotencyKey": "k"}));
    world.relay.call("compute/endorsementKeys/add", &listed).await;
    assert_eq!(join(&world.relay, &token, &mut machine, &tpm).await.body["status"], "issued");
    let shown = world.relay.call("compute/joinRequests/get", &request).await;
    assert_eq!(shown["joinRequest"]["state"], "consumed");
    // Off means that nobody looks at a TPM that nobody knows, unless a token is pinned.
    set_policy(&world.relay, json!({"attestors": {"tpm": "off"}})).await;
    let token = world.relay.mint(json!({})).await;
    let offer = SimulatedTpm::new().offer(&Machine::new(3));
    let answer = send(&world.relay, &token, &input(&Machine::new(2), &offer, None)).await;
    assert_eq!(answer.body["status"], "issued", "{}", answer.body);
}

async fn a_demanded_tpm_is_demanded(database: Database) {
    let world = World::new(database).await;
    set_policy(&world.relay, json!({"attestors": {"tpm": "required"}})).await;
    let token = world.relay.mint(json!({})).await;
    assert_eq!(outcome(&Machine::new(1).join(&world.relay, &token).await), "tpmRequired");
    let mut machine = Machine::new(1);
    assert_eq!(join(&world.relay, &token, &mut machine, &SimulatedTpm::new()).await.body["status"], "issued");
}

async fn only_the_same_endorsement_key_takes_a_node_over(database: Database) {
    let world = World::new(database).await;
    let (tpm, mut old) = (SimulatedTpm::new(), Machine::new(1));
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    let first = join(&world.relay, &token, &mut old, &tpm).await;
    old.call(&world.relay, "node/heartbeat", &json!({})).await;
    world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
    // The TPM in another board: its endorsement key is the identity that is held.
    let mut moved = Machine::new(2);
    let taken = join(&world.relay, &token, &mut moved, &tpm).await;
    assert_eq!(outcome(&taken), "identityTaken");
    assert!(taken.body["detail"].as_str().unwrap().contains("ekSha256"), "{}", taken.body);
    let reclaiming = world.relay.mint(json!({"maxUses": 9, "allowReclaim": true})).await;
    let pinned = json!({"maxUses": 9, "allowReclaim": true, "expect": {"serial": "SN-00000001"}});
    let pinned = world.relay.mint(pinned).await;
    // The same UUID without that TPM, or with another one: not even with a pin.
    for token in [&reclaiming, &pinned] {
        assert_eq!(outcome(&old.with_new_key().join(&world.relay, token).await), "endorsementKeyMismatch");
        let mut other = old.with_new_key();
        let answer = join(&world.relay, token, &mut other, &SimulatedTpm::new()).await;
        assert_eq!(outcome(&answer), "endorsementKeyMismatch");
    }
    // The same TPM, though the incumbent is alive.
    let mut new = old.with_new_key();
    let again = join(&world.relay, &reclaiming, &mut new, &tpm).await;
    assert_eq!((&again.body["nodeId"], &again.body["generation"]), (&first.body["nodeId"], &json!(2)));
}

async fn a_ban_covers_the_endorsement_key(database: Database) {
    let world = World::new(database).await;
    let (tpm, mut machine) = (SimulatedTpm::new(), Machine::new(1));
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    let named = in_pool(json!({"nodeId": joined.body["nodeId"]}));
    world.relay.call("compute/nodes/ban", &named).await;
    // Another board, another key, another request: the same TPM.
    assert_eq!(outcome(&join(&world.relay, &token, &mut Machine::new(2), &tpm).await), "nodeBanned");
    assert_eq!(join(&world.relay, &token, &mut Machine::new(3), &SimulatedTpm::new()).await.status, 200);
    world.relay.call("compute/nodes/unban", &named).await;
    assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    assert_eq!(outcome(&join(&world.relay, &token, &mut Machine::new(2), &tpm).await), "identityTaken");
}

async fn another_node_key_must_be_proved_at_a_renewal(database: Database) {
    let world = World::new(database).await;
    let (tpm, mut machine) = (SimulatedTpm::new(), Machine::new(1));
    join(&world.relay, &world.relay.mint(json!({})).await, &mut machine, &tpm).await;
    let new = machine.with_new_key();
    let renew = async |more: Value| {
        let mut input = json!({"csr": new.csr});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        machine.call(&world.relay, "node/renew", &input).await
    };
    assert_eq!(outcome(&renew(json!({})).await), "tpmRequired");
    let other = SimulatedTpm::new();
    assert_eq!(outcome(&renew(json!({"tpm": other.offer(&new)})).await), "endorsementKeyMismatch");
    let asked = renew(json!({"tpm": tpm.offer(&new)})).await;
    assert_eq!(asked.body["status"], "challenge", "{}", asked.body);
    let proof = tpm.answer(&new, &asked.body).unwrap();
    // A join's box is no renewal's.
    let token = world.relay.mint(json!({})).await;
    let joining = challenge(&world.relay, &token, &new, &tpm).await;
    let crossed = tpm.answer(&new, &joining).unwrap();
    assert_eq!(outcome(&renew(json!({"tpm": tpm.offer(&new), "proof": crossed})).await), "badProof");
    let renewed = renew(json!({"tpm": tpm.offer(&new), "proof": proof})).await;
    assert_eq!(renewed.body["status"], "issued", "{}", renewed.body);
    let mut new = new;
    new.keep(&renewed);
    assert_eq!(new.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
}

async fn a_certificate_that_is_new_renews_by_its_own_key(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    for number in 1..=2 {
        let (tpm, mut first) = (SimulatedTpm::new(), Machine::new(number));
        join(&world.relay, &token, &mut first, &tpm).await;
        let mut second = first.with_new_key();
        let offer = tpm.offer(&second);
        let mut renewal = json!({"csr": second.csr, "tpm": offer});
        let asked = first.call(&world.relay, "node/renew", &renewal).await;
        renewal["proof"] = tpm.answer(&second, &asked.body).unwrap();
        let renewed = first.call(&world.relay, "node/renew", &renewal).await;
        second.keep(&renewed);
        // Its first use is a renewal: with the same key nothing is to be proved, with the one before everything is.
        if number == 1 {
            let again = second.renew(&world.relay).await;
            assert_eq!(again.body["status"], "issued", "{}", again.body);
            continue;
        }
        first.new_request();
        let mut back = json!({"csr": first.csr});
        assert_eq!(outcome(&second.call(&world.relay, "node/renew", &back).await), "tpmRequired");
        back["tpm"] = tpm.offer(&first);
        let asked = second.call(&world.relay, "node/renew", &back).await;
        back["proof"] = tpm.answer(&first, &asked.body).unwrap();
        let renewed = second.call(&world.relay, "node/renew", &back).await;
        assert_eq!(renewed.body["status"], "issued", "{}", renewed.body);
        first.keep(&renewed);
        assert_eq!(first.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    }
}

async fn any_endorsement_key_of_a_tpm_takes_its_node_over(database: Database) {
    let world = World::new(database).await;
    let tpm = SimulatedTpm::with_keys(2);
    let (one, two) = (tpm.ek_sha256_of(0), tpm.ek_sha256_of(1));
    let join = async |machine: &mut Machine, more: Value| {
        let token = world.relay.mint(more).await;
        let answer = join(&world.relay, &token, machine, &tpm).await;
        assert_eq!(answer.body["status"], "issued", "{}", answer.body);
        answer
    };
    let mut machine = Machine::new(1);
    let first = join(&mut machine, json!({})).await;
    assert_eq!(node(&world.relay, &first).await["ekSha256"], one.as_str());
    machine.new_request();
    let second = join(&mut machine, json!({"expect": {"ekSha256": two}})).await;
    assert_eq!(node(&world.relay, &second).await["ekSha256"], two.as_str());
    // Its disk is lost, again and again: each of the keys is the node's, whichever was proved last.
    let pinned = json!({"allowReclaim": true, "expect": {"ekSha256": two}});
    for (generation, more) in
        (2..).zip([json!({"allowReclaim": true}), pinned, json!({"allowReclaim": true})])
    {
        machine = machine.with_new_key();
        let again = join(&mut machine, more).await;
        assert_eq!(
            (&again.body["nodeId"], &again.body["generation"]),
            (&first.body["nodeId"], &json!(generation))
        );
        assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    }
    let token = world.relay.mint(json!({"allowReclaim": true})).await;
    let mut stranger = machine.with_new_key();
    let refused = self::join(&world.relay, &token, &mut stranger, &SimulatedTpm::new()).await;
    assert_eq!(outcome(&refused), "endorsementKeyMismatch");
}

async fn a_proven_key_is_an_identifier(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    // It says nothing of itself, and needs nobody's approval; with a vendor's default it does.
    let mut silent = Machine::claiming(json!({"macs": [], "gpuUuids": []}));
    let joined = join(&world.relay, &token, &mut silent, &SimulatedTpm::new()).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    let mut vague = Machine::claiming(json!({"serial": "None", "macs": [], "gpuUuids": []}));
    let waits = join(&world.relay, &token, &mut vague, &SimulatedTpm::new()).await;
    assert_eq!(waits.body["reasons"], json!(["placeholderIdentifiers"]));
    let mut nobody = Machine::claiming(json!({"macs": [], "gpuUuids": []}));
    assert_eq!(nobody.join(&world.relay, &token).await.body["reasons"], json!(["placeholderIdentifiers"]));
}

async fn an_approved_machine_proves_its_key_again(database: Database) {
    let world = World::new(database).await;
    set_policy(&world.relay, json!({"unknownEndorsementKeys": "defer"})).await;
    let token = world.relay.mint(json!({})).await;
    let (tpm, mut machine) = (SimulatedTpm::new(), Machine::new(1));
    let waits = join(&world.relay, &token, &mut machine, &tpm).await;
    let request = in_pool(json!({"joinRequestId": waits.body["joinRequestId"]}));
    world.relay.call("compute/joinRequests/approve", &request).await;
    // Without its TPM, or with another one, it is not the machine that was approved.
    assert_eq!(outcome(&machine.join(&world.relay, &token).await), "tokenExhausted");
    let other = SimulatedTpm::new();
    assert_eq!(outcome(&join(&world.relay, &token, &mut machine, &other).await), "tokenExhausted");
    let joined = join(&world.relay, &token, &mut machine, &tpm).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    let shown = world.relay.call("compute/joinRequests/get", &request).await;
    assert_eq!(shown["joinRequest"]["state"], "consumed");
}
