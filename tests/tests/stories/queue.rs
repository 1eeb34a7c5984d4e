//! Joins that wait for a person: what a request holds, what each decision makes of it, and that one approval admits one
//! machine once.

use super::{World, in_pool, outcome, set_policy};
use serde_json::{Value, json};
use tests::{Answer, Database, LocalRelay, Machine, on_both_databases};

on_both_databases!(
    a_deferred_machine_is_approved_and_joins_once,
    what_changes_meanwhile_is_another_join,
    a_retry_with_another_serial_is_not_what_was_approved,
    what_the_inventory_learns_admits_at_the_next_retry,
    a_request_ends_with_its_time,
    a_machine_that_would_be_admitted_now_is,
    a_token_holds_no_more_than_thirty_two,
    a_thousand_requests_are_listed_in_pages,
    another_tenants_identity_is_disputed_and_stays_theirs,
    an_incumbent_that_is_alive_is_taken_over_by_approval_only,
    an_approval_counts_against_the_node_that_it_was_given_for,
    a_waiting_machine_whose_incumbent_is_gone_is_admitted,
    who_shares_an_identifier_is_shown,
);

/// A machine whose serial number is a vendor's default: it is deferred where nothing else is said.
pub(super) fn vague(number: u32) -> Machine {
    let mut identity = Machine::new(number).identity;
    identity["serial"] = json!("To Be Filled By O.E.M.");
    Machine::claiming(identity)
}

/// The id of the request that a deferred join waits for.
pub(super) fn request_of(answer: &Answer) -> String {
    assert_eq!(answer.body["status"], "deferred", "{}", answer.body);
    answer.body["joinRequestId"].as_str().unwrap().to_owned()
}

pub(super) async fn ask(relay: &LocalRelay, method: &str, more: Value) -> Answer {
    relay.call_as(&relay.admin(), &format!("compute/joinRequests/{method}"), &in_pool(more)).await
}

pub(super) async fn get(relay: &LocalRelay, id: &str) -> Value {
    relay.call("compute/joinRequests/get", &in_pool(json!({"joinRequestId": id}))).await["joinRequest"]
        .clone()
}

/// What one decision came to: the state, or the refusal.
pub(super) async fn decide(relay: &LocalRelay, method: &str, id: &str) -> String {
    let answer = ask(relay, method, json!({"joinRequestId": id})).await;
    let request = answer.body.get("joinRequest").or_else(|| answer.body["joinRequests"].get(0));
    request
        .and_then(|request| request["state"].as_str().map(str::to_owned))
        .unwrap_or_else(|| outcome(&answer))
}

/// Uses and held uses of a token.
pub(super) async fn counts(relay: &LocalRelay, token: &str) -> (i64, i64) {
    let id = id_of(token);
    let list = relay.call("compute/joinTokens/list", &in_pool(json!({"includeInactive": true}))).await;
    let tokens = list["joinTokens"].as_array().unwrap();
    let found = tokens.iter().find(|token| token["id"] == id.as_str()).unwrap();
    (found["uses"].as_i64().unwrap(), found["pending"].as_i64().unwrap())
}

pub(super) fn id_of(token: &str) -> String {
    token.trim_start_matches("bc").split('.').next().unwrap().to_owned()
}

async fn a_deferred_machine_is_approved_and_joins_once(database: Database) {
    let world = World::new(database).await;
    let second = world.second().await;
    let other = second.as_ref().unwrap_or(&world.relay);
    let token = world.relay.mint(json!({"maxUses": 2})).await;
    let mut machine = vague(1);
    let id = request_of(&machine.join(&world.relay, &token).await);
    assert_eq!(counts(&world.relay, &token).await, (0, 1));
    let request = get(&world.relay, &id).await;
    assert_eq!(request["reasons"], json!(["placeholderIdentifiers"]));
    assert_eq!(request["identity"]["productUuid"], machine.identity["productUuid"]);
    assert_eq!((&request["state"], &request["remoteAddress"]), (&json!("pending"), &json!("127.0.0.1")));
    // An equal retry keeps its id and holds nothing more, whatever its host is called now.
    machine.identity["hostname"] = json!("renamed");
    assert_eq!(request_of(&machine.join(other, &token).await), id);
    assert_eq!(counts(&world.relay, &token).await, (0, 1));
    let approved = ask(other, "approve", json!({"joinRequestId": id, "note": "rack 7"})).await;
    assert_eq!(approved.body["joinRequest"]["note"], "rack 7", "{}", approved.body);
    // Another request of the same machine does not spend it, and waits for a decision of its own.
    let mut stranger = machine.with_new_key();
    assert_ne!(request_of(&stranger.join(&world.relay, &token).await), id);
    // Even after the token's time, and it is admitted once, however many of its retries come at once.
    world.pass(3700);
    let (client, url) = (world.relay.client(None), world.relay.url());
    let input = machine.join_input();
    let retries = (0..8).map(|_| tests::post(&client, &url, Some(&token), "node/join", &input));
    let answers = futures_util::future::join_all(retries).await;
    for answer in &answers {
        assert_eq!(answer.body["status"], "issued", "{}", answer.body);
        assert_eq!(answer.body["certificate"], answers[0].body["certificate"]);
    }
    assert_eq!(counts(&world.relay, &token).await, (1, 1));
    assert_eq!(get(&world.relay, &id).await["state"], "consumed");
    machine.keep(&answers[0]);
    assert_eq!(machine.call(other, "node/heartbeat", &json!({})).await.status, 200);
}

async fn what_changes_meanwhile_is_another_join(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 3})).await;
    let mut machine = vague(1);
    let first = request_of(&machine.join(&world.relay, &token).await);
    // Another serial or address after the approval is not what was approved.
    assert_eq!(decide(&world.relay, "approve", &first).await, "approved");
    machine.identity["macs"] = json!(["00:00:00:00:00:99"]);
    let second = request_of(&machine.join(&world.relay, &token).await);
    assert_ne!(second, first);
    assert_eq!(counts(&world.relay, &token).await, (0, 2));
    assert_eq!(get(&world.relay, &first).await["state"], "approved", "it is left alone");
    // A reason more is another join too; the one that fits is found again.
    set_policy(&world.relay, json!({"attestors": {"discovery": "defer"}})).await;
    let third = request_of(&machine.join(&world.relay, &token).await);
    assert!(third != second && third != first);
    set_policy(&world.relay, json!({"attestors": {"discovery": "off"}})).await;
    assert_eq!(decide(&world.relay, "approve", &second).await, "approved");
    assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    // Its admission expires the other requests, which held uses.
    for (id, state) in [(&first, "expired"), (&second, "consumed"), (&third, "expired")] {
        assert_eq!(get(&world.relay, id).await["state"], state);
    }
    assert_eq!(counts(&world.relay, &token).await, (1, 0));
}

async fn a_retry_with_another_serial_is_not_what_was_approved(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 2})).await;
    let mut machine = vague(1);
    let approved = request_of(&machine.join(&world.relay, &token).await);
    assert_eq!(decide(&world.relay, "approve", &approved).await, "approved");
    let said = std::mem::replace(&mut machine.identity["serial"], json!("Default string"));
    let other = request_of(&machine.join(&world.relay, &token).await);
    assert_ne!(other, approved);
    assert_eq!(get(&world.relay, &approved).await["state"], "approved", "it waits for what it was given for");
    assert_eq!(counts(&world.relay, &token).await, (0, 2));
    machine.identity["serial"] = said;
    assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    assert_eq!(get(&world.relay, &approved).await["state"], "consumed");
    assert_eq!(counts(&world.relay, &token).await, (1, 0));
}

async fn what_the_inventory_learns_admits_at_the_next_retry(database: Database) {
    let world = World::new(database).await;
    set_policy(&world.relay, json!({"attestors": {"discovery": "defer"}})).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    let gpu = "GPU-11111111-2222-3333-4444-555555555555";
    // What each machine says, and what an entry knows of it: the UUID in the other byte order too.
    for (number, member, said, known) in [
        (1, "serial", json!("SN-known"), json!({"serial": "SN-known"})),
        (2, "macs", json!(["02:11:22:33:44:55", "00:11:22:33:44:66"]), json!({"mac": "00:11:22:33:44:66"})),
        (3, "gpuUuids", json!([gpu]), json!({"gpuUuid": gpu})),
        (
            4,
            "productUuid",
            json!("4c4c4544-0043-3010-8052-b4c04f4e3199"),
            json!({"productUuid": "44454c4c-4300-1030-8052-b4c04f4e3199", "serial": "SN-00000004"}),
        ),
    ] {
        let mut identity = Machine::new(number).identity;
        identity[member] = said;
        let mut machine = Machine::claiming(identity);
        let answer = machine.join(&world.relay, &token).await;
        assert_eq!(answer.body["reasons"], json!(["unknownMachine"]), "{member}");
        let id = request_of(&answer);
        let mut entry = in_pool(known);
        entry["entryId"] = json!(format!("rack-{number}"));
        world.relay.call("compute/inventory/put", &entry).await;
        assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued", "{member}");
        assert_eq!(get(&world.relay, &id).await["state"], "consumed");
    }
    assert_eq!(counts(&world.relay, &token).await, (4, 0));
}

async fn a_request_ends_with_its_time(database: Database) {
    let world = World::new(database).await;
    set_policy(&world.relay, json!({"joinRequestTtlSeconds": 60})).await;
    let token = world.relay.mint(json!({"maxUses": 2, "ttlSeconds": 86_400})).await;
    let (mut machine, mut other) = (vague(1), vague(2));
    let id = request_of(&machine.join(&world.relay, &token).await);
    let approved = request_of(&other.join(&world.relay, &token).await);
    assert_eq!(decide(&world.relay, "approve", &approved).await, "approved");
    world.pass(60);
    assert_eq!(decide(&world.relay, "approve", &id).await, "INVALID_STATE");
    assert_eq!(outcome(&machine.join(&world.relay, &token).await), "requestExpired");
    relay::join::queue::expire(&world.relay.context).await.unwrap();
    assert_eq!(get(&world.relay, &id).await["state"], "expired");
    assert_eq!(counts(&world.relay, &token).await, (0, 1), "an approval has a day");
    world.pass(86_400);
    world.relay.renew_admin().await;
    assert_eq!(outcome(&other.join(&world.relay, &token).await), "requestExpired");
    relay::join::queue::expire(&world.relay.context).await.unwrap();
    assert_eq!(counts(&world.relay, &token).await, (0, 0));
}

async fn a_machine_that_would_be_admitted_now_is(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({})).await;
    let mut machine = vague(1);
    let id = request_of(&machine.join(&world.relay, &token).await);
    set_policy(&world.relay, json!({"placeholders": "allowUnique"})).await;
    world.pass(4000);
    assert_eq!(machine.join(&world.relay, &token).await.body["status"], "issued");
    assert_eq!(get(&world.relay, &id).await["state"], "consumed");
    assert_eq!(counts(&world.relay, &token).await, (1, 0));
    assert_eq!(decide(&world.relay, "approve", &id).await, "INVALID_STATE", "nobody approved it");
}

async fn a_token_holds_no_more_than_thirty_two(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 100})).await;
    for number in 0..32 {
        request_of(&vague(number).join(&world.relay, &token).await);
    }
    let answer = vague(99).join(&world.relay, &token).await;
    assert_eq!((outcome(&answer).as_str(), answer.status), ("tooManyPending", 429));
    // Those who need no person still get in.
    assert_eq!(Machine::new(200).join(&world.relay, &token).await.status, 200);
    assert_eq!(counts(&world.relay, &token).await, (1, 32));
}

async fn a_thousand_requests_are_listed_in_pages(database: Database) {
    let world = World::new(database).await;
    let (client, url) = (world.relay.client(None), world.relay.url());
    for batch in 0..32u32 {
        let token = world.relay.mint(json!({"maxUses": 32})).await;
        let machines: Vec<Value> = (0..32).map(|number| vague(batch * 32 + number).join_input()).collect();
        let joins = machines.iter().map(|input| tests::post(&client, &url, Some(&token), "node/join", input));
        for answer in futures_util::future::join_all(joins).await {
            request_of(&answer);
        }
    }
    let (mut seen, mut cursor) = (Vec::new(), Value::Null);
    loop {
        let page = world
            .relay
            .call("compute/joinRequests/list", &in_pool(json!({"limit": 200, "cursor": cursor})))
            .await;
        let requests = page["joinRequests"].as_array().unwrap();
        seen.extend(requests.iter().map(|request| request["id"].as_str().unwrap().to_owned()));
        cursor = page["cursor"].clone();
        if cursor.is_null() {
            break;
        }
        assert_eq!(requests.len(), 200);
    }
    assert_eq!(seen.len(), 1024);
    assert!(seen.is_sorted_by(|one, next| one < next));
    for state in ["approved", "denied", "consumed", "expired"] {
        let list = world.relay.call("compute/joinRequests/list", &in_pool(json!({"state": state}))).await;
        assert_eq!(list["joinRequests"], json!([]));
    }
}

/// A pool of another tenant on the platform's site.
pub(super) async fn foreign_pool(relay: &LocalRelay) -> String {
    relay.call("iam/tenants/create", &json!({"tenantId": "acme", "idempotencyKey": "t"})).await;
    let pool = json!({"tenantId": "acme", "poolId": "acme-a", "siteId": "default", "idempotencyKey": "p"});
    relay.call("compute/pools/create", &pool).await;
    let token = json!({"tenantId": "acme", "poolId": "acme-a", "ttlSeconds": 3600, "maxUses": 9, "idempotencyKey": "j"});
    relay.call("compute/joinTokens/create", &token).await["token"].as_str().unwrap().to_owned()
}

async fn another_tenants_identity_is_disputed_and_stays_theirs(database: Database) {
    let world = World::new(database).await;
    let ours = world.relay.mint(json!({"maxUses": 9, "allowReclaim": true})).await;
    let theirs = foreign_pool(&world.relay).await;
    let mut incumbent = Machine::new(1);
    assert_eq!(incumbent.join(&world.relay, &ours).await.status, 200);
    let mut claimant = Machine::new(1);
    let answer = claimant.join(&world.relay, &theirs).await;
    let id = request_of(&answer);
    assert_eq!(answer.body["reasons"], json!(["unknownMachine", "identityDisputed"]), "{}", answer.body);
    let in_acme = |more: Value| {
        let mut input = json!({"tenantId": "acme", "poolId": "acme-a"});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    };
    let shown = world.relay.call("compute/joinRequests/get", &in_acme(json!({"joinRequestId": id}))).await;
    assert_eq!(shown["joinRequest"].get("sharedWith"), None, "another tenant's node is not shown");
    world.relay.call("compute/joinRequests/approve", &in_acme(json!({"joinRequestId": id}))).await;
    let joined = claimant.join(&world.relay, &theirs).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    // The identity stays the incumbent's: a third machine that claims it meets the incumbent, not the newcomer.
    assert_eq!(incumbent.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    let third = Machine::new(1).join(&world.relay, &world.relay.mint(json!({})).await).await;
    assert_eq!(outcome(&third), "identityTaken");
    let nodes = world.relay.call("compute/nodes/list", &in_pool(json!({}))).await;
    assert!(third.body["detail"].as_str().unwrap().contains(nodes["nodes"][0]["nodeId"].as_str().unwrap()));
}

async fn an_incumbent_that_is_alive_is_taken_over_by_approval_only(database: Database) {
    let world = World::new(database).await;
    let mut old = Machine::new(1);
    let first = old.join(&world.relay, &world.relay.mint(json!({})).await).await;
    old.call(&world.relay, "node/heartbeat", &json!({})).await;
    world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
    let token = world.relay.mint(json!({"allowReclaim": true})).await;
    let mut new = old.with_new_key();
    let answer = new.join(&world.relay, &token).await;
    assert_eq!(answer.body["reasons"], json!(["incumbentAlive"]));
    let id = request_of(&answer);
    assert_eq!(old.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    assert_eq!(decide(&world.relay, "approve", &id).await, "approved");
    let taken = new.join(&world.relay, &token).await;
    assert_eq!((&taken.body["nodeId"], &taken.body["generation"]), (&first.body["nodeId"], &json!(2)));
    assert_eq!(outcome(&old.call(&world.relay, "node/heartbeat", &json!({})).await), "superseded");
}

/// A node that is alive, its id, and another machine that says it is the same and waits, with its request's id.
async fn incumbent_and_claimant(world: &World, token: &str) -> (String, Machine, String) {
    let mut old = Machine::new(1);
    let joined = old.join(&world.relay, &world.relay.mint(json!({})).await).await;
    old.call(&world.relay, "node/heartbeat", &json!({})).await;
    world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
    let mut new = old.with_new_key();
    let answer = new.join(&world.relay, token).await;
    assert_eq!(answer.body["reasons"], json!(["incumbentAlive"]), "{}", answer.body);
    (joined.body["nodeId"].as_str().unwrap().to_owned(), new, request_of(&answer))
}

async fn an_approval_counts_against_the_node_that_it_was_given_for(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"allowReclaim": true, "maxUses": 2})).await;
    let (incumbent, mut claimant, id) = incumbent_and_claimant(&world, &token).await;
    assert_eq!(decide(&world.relay, "approve", &id).await, "approved");
    world.relay.call("compute/nodes/release", &in_pool(json!({"nodeId": incumbent}))).await;
    // Another machine takes the identity before the claimant comes back.
    let mut other = Machine::new(1);
    let joined = other.join(&world.relay, &world.relay.mint(json!({})).await).await;
    other.call(&world.relay, "node/heartbeat", &json!({})).await;
    world.relay.context.heartbeats.write(&world.relay.context.store).await.unwrap();
    let waits = claimant.join(&world.relay, &token).await;
    let second = request_of(&waits);
    assert_ne!(second, id, "nobody was asked about that node");
    assert_eq!(request_of(&claimant.join(&world.relay, &token).await), second);
    assert_eq!(counts(&world.relay, &token).await, (0, 2));
    assert_eq!(other.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    assert_eq!(decide(&world.relay, "approve", &second).await, "approved");
    let taken = claimant.join(&world.relay, &token).await;
    assert_eq!((&taken.body["nodeId"], &taken.body["generation"]), (&joined.body["nodeId"], &json!(2)));
    assert_eq!(get(&world.relay, &id).await["state"], "expired");
    assert_eq!(counts(&world.relay, &token).await, (1, 0));
}

async fn a_waiting_machine_whose_incumbent_is_gone_is_admitted(database: Database) {
    let world = World::new(database).await;
    for (decided, state) in [(false, "pending"), (true, "approved")] {
        let token = world.relay.mint(json!({"allowReclaim": true})).await;
        let (incumbent, mut claimant, id) = incumbent_and_claimant(&world, &token).await;
        if decided {
            decide(&world.relay, "approve", &id).await;
        }
        assert_eq!(get(&world.relay, &id).await["state"], state);
        world.relay.call("compute/nodes/release", &in_pool(json!({"nodeId": incumbent}))).await;
        let joined = claimant.join(&world.relay, &token).await;
        assert_eq!((&joined.body["status"], &joined.body["generation"]), (&json!("issued"), &json!(1)));
        assert_eq!(get(&world.relay, &id).await["state"], "consumed", "by the use that it holds");
        assert_eq!(counts(&world.relay, &token).await, (1, 0));
        let node = in_pool(json!({"nodeId": joined.body["nodeId"]}));
        world.relay.call("compute/nodes/release", &node).await;
    }
}

async fn who_shares_an_identifier_is_shown(database: Database) {
    let world = World::new(database).await;
    let token = world.relay.mint(json!({"maxUses": 9})).await;
    let joined = Machine::new(1).join(&world.relay, &token).await;
    // A blade of the same chassis: one MAC is the node's; another blade waits with the same address.
    let blade = |number: u32| {
        let mut machine = vague(number);
        machine.identity["macs"] = Machine::new(1).identity["macs"].clone();
        machine
    };
    let first = request_of(&blade(2).join(&world.relay, &token).await);
    let second = request_of(&blade(3).join(&world.relay, &token).await);
    let shared = get(&world.relay, &second).await["sharedWith"].clone();
    let ids: Vec<&str> = shared.as_array().unwrap().iter().filter_map(|one| one["id"].as_str()).collect();
    assert_eq!(ids, [joined.body["nodeId"].as_str().unwrap(), first.as_str()], "nodes first");
    assert!(shared.as_array().unwrap().iter().all(|one| one["kind"] == "mac"), "{shared}");
    assert_eq!(decide(&world.relay, "deny", &first).await, "denied");
    let shared = get(&world.relay, &second).await["sharedWith"].clone();
    assert_eq!(shared.as_array().unwrap().len(), 1, "what has ended is not shown: {shared}");
}
