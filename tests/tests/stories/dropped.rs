//! The answer is lost on its way, or part of the request is: a retry is the same join, and the same renewal.

use super::{World, outcome};
use serde_json::json;
use tests::{Answer, Database, Fault, Machine, Wire, on_both_databases, post, try_post};

on_both_databases!(
    a_join_whose_answer_is_lost_is_the_same_join,
    a_join_whose_request_is_cut_costs_one_use_in_the_end,
    a_renewal_whose_answer_is_lost_is_the_same_renewal,
);

async fn counts(world: &World, admitted: usize) {
    let admitted = i64::try_from(admitted).unwrap();
    for count in [
        "SELECT CAST(SUM(uses) AS BIGINT) FROM join_tokens",
        "SELECT COUNT(*) FROM joins",
        "SELECT COUNT(*) FROM nodes",
        "SELECT COUNT(*) FROM certificates",
    ] {
        assert_eq!(world.database.number(count).await, admitted, "{count}");
    }
}

async fn joins_over(world: &World, wire: &Wire, token: &str, machine: &Machine) -> Option<Answer> {
    let (client, input) = (world.relay.client(None), machine.join_input());
    try_post(&client, &wire.url(), Some(token), "node/join", &input).await.ok()
}

async fn a_join_whose_answer_is_lost_is_the_same_join(database: Database) {
    let world = World::new(database).await;
    let wire = Wire::to(&world.relay.url());
    let cuts = [0, 1, 5, 100, 700, 1500];
    let token = world.relay.mint(json!({"maxUses": cuts.len()})).await;
    for (number, bytes) in cuts.into_iter().enumerate() {
        wire.set(Fault::CutAnswer(bytes));
        let mut machine = Machine::new(u32::try_from(number).unwrap());
        let lost = joins_over(&world, &wire, &token, &machine).await;
        assert!(lost.is_none(), "{bytes} bytes are no answer: {lost:?}");
        // What was answered is stored, whoever heard it.
        counts(&world, number + 1).await;
        wire.set(Fault::None);
        let heard = joins_over(&world, &wire, &token, &machine).await.unwrap();
        let again = machine.join(&world.relay, &token).await;
        assert_eq!(heard.status, 200, "{}", heard.body);
        assert_eq!(heard.body["certificate"], again.body["certificate"]);
        counts(&world, number + 1).await;
        assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    }
    assert_eq!(wire.happened(), 6);
    // Lost answers cost nothing: the uses are spent by as many machines, and there is none left.
    assert_eq!(outcome(&Machine::new(99).join(&world.relay, &token).await), "tokenExhausted");
}

async fn a_join_whose_request_is_cut_costs_one_use_in_the_end(database: Database) {
    let world = World::new(database).await;
    let wire = Wire::to(&world.relay.url());
    // The first are cut before the end of the handshake, the last may get through.
    let cuts = [0, 10, 80, 300, 700, 1000, 1200, 1300, 1400, 1500, 2000];
    let token = world.relay.mint(json!({"maxUses": cuts.len()})).await;
    for (number, bytes) in cuts.into_iter().enumerate() {
        wire.set(Fault::CutRequest(bytes));
        let mut machine = Machine::new(u32::try_from(number).unwrap());
        let cut = joins_over(&world, &wire, &token, &machine).await;
        assert!(bytes > 700 || cut.is_none(), "{bytes} bytes are no request: {cut:?}");
        // At once: if the relay has it all, it judges the same join twice at the same time.
        let direct = machine.join(&world.relay, &token).await;
        assert_eq!(direct.status, 200, "{bytes}: {}", direct.body);
        if let Some(got_through) = cut {
            assert_eq!(got_through.body["certificate"], direct.body["certificate"]);
        }
        counts(&world, number + 1).await;
    }
    assert!(wire.happened() >= 5);
}

async fn a_renewal_whose_answer_is_lost_is_the_same_renewal(database: Database) {
    let world = World::new(database).await;
    let wire = Wire::to(&world.relay.url());
    for (number, bytes) in (1..).zip([0, 1, 300, 1500]) {
        let token = world.relay.mint(json!({})).await;
        let mut machine = Machine::new(number);
        machine.join(&world.relay, &token).await;
        machine.new_request();
        let input = json!({"csr": machine.csr});
        wire.set(Fault::CutAnswer(bytes));
        let lost = try_post(&machine.client(&world.relay), &wire.url(), None, "node/renew", &input).await;
        assert!(lost.is_err(), "{bytes} bytes are no answer: {lost:?}");
        assert_eq!(wire.happened(), number);
        // Nothing is known of the new one: the old one still works, and the same request is the same renewal.
        assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
        let old = machine.client(&world.relay);
        let heard = post(&old, &world.relay.url(), None, "node/renew", &input).await;
        let again = post(&old, &world.relay.url(), None, "node/renew", &input).await;
        assert_eq!(heard.status, 200, "{}", heard.body);
        assert_eq!(heard.body["certificate"], again.body["certificate"]);
        let node = heard.body["nodeId"].as_str().unwrap().to_owned();
        let issued = format!("SELECT COUNT(*) FROM certificates WHERE node_id = '{node}'");
        assert_eq!(world.database.number(&issued).await, 2, "one by the join, one by the renewal");
        machine.keep(&heard);
        assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
        let superseded = post(&old, &world.relay.url(), None, "node/heartbeat", &json!({})).await;
        assert_eq!(outcome(&superseded), "superseded");
    }
}
