//! A BMC's password is exchanged for one that the relay draws: nobody sees it, and whenever the relay is killed, one of the two that
//! it knows lets it in.

use super::{
    World, in_pool,
    metal::{access, ask, enroll, get, metal, persona, until_error, until_state},
    outcome,
};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{BMC_PASSWORD, BMC_USER, Database, FakeBmc, Ills, PERSONAS, Stall, on_both_databases};

on_both_databases!(
    a_password_is_exchanged_for_one_that_nobody_knows,
    what_a_bmc_says_of_a_new_password_counts_for_nothing,
    a_password_that_comes_to_hold_later_is_found,
    a_password_is_exchanged_while_nothing_else_is_done,
);

mod slow {
    use super::{a_rotation_that_is_killed_goes_on, on_both_databases};
    on_both_databases!(a_rotation_that_is_killed_goes_on);
}

async fn rotate(world: &World, node: &Value) {
    let answer = ask(world, "setCredentials", node, json!({"rotate": true})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
}

/// The machine, once its password is not exchanged any more. No wait is spent here.
async fn at_rest(world: &World, node: &Value) -> Value {
    let started = Instant::now();
    while rotates(world).await {
        assert!(started.elapsed() < Duration::from_secs(60), "{:#}", get(world, node).await);
        world.database.change("UPDATE tasks SET due_at = 0 WHERE state IN ('pending', 'retry')").await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    get(world, node).await
}

async fn rotates(world: &World) -> bool {
    world.database.number("SELECT COUNT(*) FROM metal WHERE rotates = 1").await > 0
}

async fn rotated(world: &World, node: &Value) -> Value {
    rotate(world, node).await;
    at_rest(world, node).await
}

/// That the relay is let in.
async fn lets_in(world: &World, node: &Value) {
    assert_eq!(ask(world, "inspect", node, json!({})).await.status, 200);
    until_state(world, node, "inspected").await;
}

async fn a_password_is_exchanged_for_one_that_nobody_knows(database: Database) {
    let world = metal(database).await;
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;
        bmc.suffer(Ills { echoes: true, ..Ills::default() });
        let now = rotated(&world, &node).await;
        assert!(now.get("lastError").is_none(), "{}: {now}", persona.name);
        let first = bmc.password();
        assert!(first != BMC_PASSWORD && first.len() == 16, "{}: {now}", persona.name);
        lets_in(&world, &node).await;
        let now = rotated(&world, &node).await;
        let second = bmc.password();
        assert!(second != first && second.len() == 16, "{}: {now}", persona.name);
        lets_in(&world, &node).await;
        assert_eq!((bmc.logins().1, bmc.most_at_once(), bmc.sessions().1), (0, 1, 0), "{}", persona.name);

        let events = world.relay.call("compute/events/list", &json!({"tenantId": "provider"})).await;
        let all = [now.to_string(), events.to_string(), world.database.dump().await];
        for text in &all {
            assert!(!text.contains(&first) && !text.contains(&second), "{}: {text}", persona.name);
        }
        assert_eq!(ask(&world, "retire", &node, json!({})).await.status, 200);
        until_state(&world, &node, "retired").await;
    }
}

async fn what_a_bmc_says_of_a_new_password_counts_for_nothing(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("lenovo"));
    let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;

    // Refused, and done all the same.
    bmc.suffer(Ills { lies_about_changes: true, echoes: true, ..Ills::default() });
    let now = rotated(&world, &node).await;
    let known = bmc.password();
    assert!(now.get("lastError").is_none() && known != BMC_PASSWORD, "{now}");
    lets_in(&world, &node).await;
    assert_eq!(bmc.logins().1, 0);

    // Refused for good: the old one holds, and that the new one does not let in is no refusal of that.
    bmc.suffer(Ills { refuses_password: true, echoes: true, ..Ills::default() });
    let now = rotated(&world, &node).await;
    assert_eq!((&now["lastError"]["code"], &now["lastError"]["bmcStatus"]), (&json!("refused"), &json!(400)));
    assert_eq!((bmc.password(), bmc.logins().1), (known.clone(), 1));
    lets_in(&world, &node).await;
    assert_eq!(bmc.logins().1, 1, "and it is not tried again");
    assert!(!world.database.dump().await.contains(&known));
}

async fn a_password_that_comes_to_hold_later_is_found(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("dell"));
    let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;
    bmc.suffer(Ills { forgets_password: true, ..Ills::default() });
    let now = rotated(&world, &node).await;
    assert_eq!(now["lastError"]["code"], "unsettled", "{now}");
    assert_eq!((bmc.password().as_str(), bmc.logins().1), (BMC_PASSWORD, 3), "it was asked three times");
    lets_in(&world, &node).await;
    assert_eq!(bmc.logins().1, 3);

    bmc.remember_password();
    let late = bmc.password();
    assert_ne!(late, BMC_PASSWORD);
    // Whoever gives another password that is none of the two does not lose it.
    let wrong = json!({"bmc": {"username": BMC_USER, "password": "wrong-17-wrong"}});
    assert_eq!(ask(&world, "setCredentials", &node, wrong).await.status, 200);
    lets_in(&world, &node).await;
    assert_eq!(bmc.logins().1, 4, "it was found by the first refusal");
    lets_in(&world, &node).await;
    assert_eq!(bmc.logins().1, 4, "and is the one that holds from then on");

    // One that was left is tried first, and the next one is set where it does not hold.
    bmc.suffer(Ills { forgets_password: true, ..Ills::default() });
    let now = rotated(&world, &node).await;
    assert_eq!((&now["lastError"]["code"], bmc.logins().1), (&json!("unsettled"), 7), "{now}");
    bmc.suffer(Ills::default());
    let now = rotated(&world, &node).await;
    assert!(now.get("lastError").is_none() && bmc.password() != late, "{now}");
    lets_in(&world, &node).await;
    assert_eq!(bmc.logins().1, 8);
}

async fn a_password_is_exchanged_while_nothing_else_is_done(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("hpe"));
    bmc.suffer(Ills { busy: 100_000, ..Ills::default() });
    let node = until_error(&world, &enroll(&world, access(&bmc)).await, "busy").await;
    let within = ask(&world, "setCredentials", &node, json!({"rotate": true})).await;
    assert_eq!(outcome(&within), "INVALID_STATE", "a workflow is at it: {}", within.body);
    bmc.suffer(Ills::default());
    let node = until_state(&world, &node, "enrolled").await;
    for bmc in [json!({"password": "x", "username": "y"}), json!({"address": "127.0.0.1"})] {
        let both = ask(&world, "setCredentials", &node, json!({"rotate": true, "bmc": bmc})).await;
        assert_eq!(
            (outcome(&both).as_str(), &both.body["errors"][0]["field"]),
            ("INVALID_INPUT", &json!("rotate"))
        );
    }

    bmc.suffer(Ills { busy: 100_000, ..Ills::default() });
    rotate(&world, &node).await;
    let now = until_error(&world, &node, "busy").await;
    assert_eq!((&now["step"], &now["waitingFor"]), (&json!("rotateCredentials"), &json!("bmc")), "{now}");
    for (verb, more) in [
        ("inspect", json!({})),
        ("power", json!({"target": "on"})),
        ("setCredentials", json!({"rotate": true})),
    ] {
        let refused = ask(&world, verb, &node, more).await;
        assert_eq!(outcome(&refused), "INVALID_STATE", "{verb}: {}", refused.body);
    }
    // Nothing comes of it in a quarter of an hour.
    world.pass(901);
    let now = at_rest(&world, &node).await;
    assert_eq!((&now["lastError"]["code"], &now["state"]), (&json!("busy"), &json!("enrolled")));
    bmc.suffer(Ills::default());
    lets_in(&world, &node).await;

    // Credentials that are refused are not tried for this either.
    let wrong = json!({"bmc": {"username": BMC_USER, "password": "wrong-17-wrong"}});
    assert_eq!(ask(&world, "setCredentials", &node, wrong).await.status, 200);
    for _ in 0..2 {
        let now = rotated(&world, &node).await;
        assert_eq!((&now["lastError"]["code"], bmc.logins().1), (&json!("unauthorized"), 1), "{now}");
    }
    assert_eq!(bmc.password(), BMC_PASSWORD);

    // Another BMC is not given what this one was.
    let elsewhere = FakeBmc::start(persona("hpe"));
    let moved = ask(&world, "setCredentials", &node, json!({"bmc": access(&elsewhere)})).await;
    assert_eq!(moved.status, 200, "{}", moved.body);
    lets_in(&world, &node).await;
    assert_eq!(elsewhere.logins().1, 0);
    let input = in_pool(json!({"nodeId": node["nodeId"]}));
    let told = world.relay.call("compute/metal/history", &input).await;
    assert!(!told.to_string().contains("setCredentials"), "it moves nothing: {told}");
}

/// Killed at each request that changes something, before it is done and after, and at some that only read: the relay is let in
/// afterwards, by a password that was never refused more often than once.
async fn a_rotation_that_is_killed_goes_on(database: Database) {
    let mut world = metal(database).await;
    for (name, reads_too, done, each) in [
        ("nvidia", false, true, 1),
        ("nvidia", false, false, 2),
        ("dell", true, true, 6),
        ("dell", false, false, 1),
    ] {
        let bmc = FakeBmc::start(persona(name));
        let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;
        for after in (0..100).step_by(each) {
            let stall = Stall { after, reads_too, done };
            let (before, refused) = (bmc.password(), bmc.logins().1);
            bmc.stall(stall);
            rotate(&world, &node).await;
            let (next, killed) = killed_once(world, &bmc, &node).await;
            world = next;
            let now = at_rest(&world, &node).await;
            assert!(now.get("lastError").is_none(), "{name} {stall:?}: {now}");
            assert_ne!(bmc.password(), before, "{name} {stall:?}");
            assert!(bmc.logins().1 <= refused + 1, "{name} {stall:?}: {:?}", bmc.logins());
            if !killed {
                // There were no more requests than that.
                assert!(after >= if name == "dell" && !reads_too { 1 } else { 4 }, "{name} {stall:?}");
                break;
            }
        }
        lets_in(&world, &node).await;
        assert_eq!(ask(&world, "retire", &node, json!({})).await.status, 200);
        until_state(&world, &node, "retired").await;
    }
}

/// Kills the relay once its BMC does not answer; says whether it came to that before the end.
async fn killed_once(world: World, bmc: &FakeBmc, node: &Value) -> (World, bool) {
    let started = Instant::now();
    loop {
        if bmc.has_stalled() {
            bmc.end_sessions();
            return (world.killed().await, true);
        }
        if !rotates(&world).await {
            return (world, false);
        }
        assert!(started.elapsed() < Duration::from_secs(60), "{:#}", get(&world, node).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
