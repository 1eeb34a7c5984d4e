//! Machines that are enrolled by their BMC, from the API's side: by fake BMCs of several makers' kinds, which misbehave as a story
//! says. What a BMC was asked is counted there.

use super::{World, in_pool, outcome};
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tests::{
    BMC_PASSWORD, BMC_USER, Database, FakeBmc, Ills, Media, PERSONAS, Persona, on_both_databases, unique,
};

on_both_databases!(
    a_machine_of_each_maker_is_enrolled_inspected_switched_and_retired,
    a_bmc_that_misbehaves_is_named_by_its_reason,
    a_bmc_is_believed_by_its_pin_alone,
    refused_credentials_are_not_tried_until_there_are_others,
    what_a_bmc_can_be_asked_twice_is_asked_and_nothing_else,
    a_verb_is_judged_by_the_state_and_asked_once,
    two_machines_of_one_identity_are_one_and_a_failure,
    a_password_is_nowhere,
);

pub(super) fn persona(name: &str) -> &'static Persona {
    PERSONAS.iter().find(|persona| persona.name == name).unwrap()
}

/// A world whose site has the networks of BMCs that are on this machine.
pub(super) async fn metal(database: Database) -> World {
    let world = World::serving_images(database).await;
    allow(&world, &["127.0.0.1/32"]).await;
    world
}

pub(super) async fn allow(world: &World, networks: &[&str]) {
    world.relay.call("compute/sites/update", &json!({"siteId": "default", "bmcNetworks": networks})).await;
}

pub(super) fn access(bmc: &FakeBmc) -> Value {
    json!({"address": bmc.address(), "username": BMC_USER, "password": BMC_PASSWORD, "tlsPinSha256": bmc.pin()})
}

pub(super) async fn enroll(world: &World, access: Value) -> Value {
    let input = in_pool(json!({"bmc": access, "idempotencyKey": unique("key")}));
    world.relay.call("compute/metal/enroll", &input).await["node"].clone()
}

pub(super) async fn ask(world: &World, verb: &str, node: &Value, more: Value) -> tests::Answer {
    let mut input = in_pool(json!({"nodeId": node["nodeId"], "idempotencyKey": unique("key")}));
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    world.relay.call_as(&world.relay.admin(), &format!("compute/metal/{verb}"), &input).await
}

pub(super) async fn get(world: &World, node: &Value) -> Value {
    let input = in_pool(json!({"nodeId": node["nodeId"]}));
    world.relay.call("compute/metal/get", &input).await["node"].clone()
}

/// The machine, once it is as a story waits for.
pub(super) async fn until(world: &World, node: &Value, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    loop {
        let now = get(world, node).await;
        if is(&now) {
            return now;
        }
        assert!(started.elapsed() < Duration::from_secs(120), "not {what}: {now:#}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(super) async fn until_state(world: &World, node: &Value, state: &str) -> Value {
    until(world, node, state, |node| node["state"] == state).await
}

pub(super) async fn until_error(world: &World, node: &Value, code: &str) -> Value {
    until(world, node, code, |node| node["lastError"]["code"] == code).await
}

async fn a_machine_of_each_maker_is_enrolled_inspected_switched_and_retired(database: Database) {
    let world = metal(database).await;
    for persona in PERSONAS {
        let bmc = FakeBmc::start(persona);
        let begun = enroll(&world, access(&bmc)).await;
        assert_eq!(
            (&begun["state"], &begun["version"]),
            (&json!("enrolling"), &json!(1)),
            "{}",
            persona.name
        );
        let node = until_state(&world, &begun, "enrolled").await;
        assert_eq!(node["identity"]["productUuid"], persona.uuid.to_lowercase(), "{}", persona.name);
        assert_eq!(node["identity"]["serial"], persona.serial);
        assert_eq!(node["identity"]["macs"], json!(["00:16:3e:00:00:17", "00:16:3e:00:00:18"]));
        assert_eq!(node["bmc"]["vendor"], persona.vendor.unwrap_or("Maker"));
        assert_eq!(node["bmc"]["virtualMedia"], persona.media != Media::None, "{}", persona.name);
        assert_eq!((&node["powerState"], &node["bmc"]["credentialsSet"]), (&json!("off"), &json!(true)));
        assert!(node.get("lastError").is_none() && node.get("step").is_none(), "{node}");

        assert_eq!(ask(&world, "inspect", &node, json!({})).await.status, 200);
        let node = until_state(&world, &node, "inspected").await;
        assert_eq!(node["hardware"]["processors"], json!(["2 × AMD EPYC 9654 96-Core Processor"]));
        assert_eq!(
            (&node["hardware"]["memoryMib"], &node["hardware"]["firmware"]),
            (&json!(1_572_864), &json!("2.4.8"))
        );
        assert_eq!(node["hardware"]["disks"], json!(["SAMSUNG MZQL21T9HCJR-00A07, 1788 GiB"]));

        assert_eq!(ask(&world, "power", &node, json!({"target": "on"})).await.status, 200);
        let node =
            until(&world, &node, "on", |node| node["powerState"] == "on" && node.get("step").is_none()).await;
        assert!(bmc.is_on() && node["state"] == "inspected", "{}", persona.name);

        assert_eq!(ask(&world, "retire", &node, json!({})).await.status, 200);
        let node = until_state(&world, &node, "retired").await;
        assert_eq!((&node["bmc"]["credentialsSet"], &node["allowedVerbs"]), (&json!(false), &json!([])));
        assert!(!bmc.is_on() && bmc.most_at_once() == 1, "{}: {}", persona.name, bmc.most_at_once());
        let nodes = world.relay.call("compute/nodes/get", &in_pool(json!({"nodeId": node["nodeId"]}))).await;
        assert_eq!(nodes["node"]["state"], "released", "{nodes}");
        let resets = bmc.asked().iter().filter(|asked| asked.what == "POST ComputerSystem.Reset").count();
        assert_eq!(resets, 2, "{}: on and off, once each: {:?}", persona.name, bmc.asked());
        history_is(&world, &node).await;
    }
}

async fn history_is(world: &World, node: &Value) {
    let input = in_pool(json!({"nodeId": node["nodeId"]}));
    let told = world.relay.call("compute/metal/history", &input).await;
    let told = told["transitions"].as_array().unwrap().iter().rev();
    let moves: Vec<String> = told
        .map(|it| format!("{} {}", it["verb"].as_str().unwrap_or("-"), it["to"].as_str().unwrap()))
        .collect();
    let expected = [
        "enroll enrolling",
        "- enrolled",
        "inspect inspecting",
        "- inspected",
        "retire retiring",
        "- retired",
    ];
    assert_eq!(moves, expected);
}

async fn a_bmc_that_misbehaves_is_named_by_its_reason(database: Database) {
    let world = metal(database).await;
    let ills = Ills::default;
    // What stays so fails at once, what may pass is tried again.
    for (ills, code, state) in [
        (Ills { password_change: true, ..ills() }, "passwordChangeRequired", "enrollFailed"),
        (Ills { no_reset: true, ..ills() }, "noSystem", "enrollFailed"),
        (
            Ills { reset_target: Some("https://evil.example/redfish/v1/x"), ..ills() },
            "noSystem",
            "enrollFailed",
        ),
        (Ills { reset_target: Some("//evil.example/redfish/v1/x"), ..ills() }, "noSystem", "enrollFailed"),
        (
            Ills { systems: Some("https://evil.example/redfish/v1/Systems"), ..ills() },
            "malformed",
            "enrolling",
        ),
        (Ills { systems: Some("/etc/passwd"), ..ills() }, "malformed", "enrolling"),
        (Ills { redirects: Some("https://127.0.0.1:1/".to_owned()), ..ills() }, "malformed", "enrolling"),
        (Ills { garbage: true, ..ills() }, "malformed", "enrolling"),
        (Ills { busy: 1000, ..ills() }, "busy", "enrolling"),
        (Ills { endless: true, ..ills() }, "tooLarge", "enrollFailed"),
    ] {
        let bmc = FakeBmc::start(persona("generic"));
        bmc.suffer(Ills { echoes: true, ..ills.clone() });
        let begun = enroll(&world, access(&bmc)).await;
        let node = until_error(&world, &begun, code).await;
        assert_eq!(node["state"], state, "{ills:?}: {node}");
        // Whatever answers there, nothing of it is told, nor where it would have led.
        for inside in [BMC_PASSWORD, "not what you think", "evil.example", "127.0.0.1:1/", "/etc/passwd"] {
            assert!(!node.to_string().contains(inside), "{inside}: {node}");
        }
        if state == "enrolling" {
            // It gets well by itself.
            bmc.suffer(Ills::default());
            until_state(&world, &node, "enrolled").await;
        } else {
            bmc.suffer(Ills::default());
            let again = ask(&world, "enroll", &node, json!({})).await;
            assert_eq!(again.status, 200, "{:?}", again.body);
            until_state(&world, &node, "enrolled").await;
        }
        assert_eq!(ask(&world, "retire", &node, json!({})).await.status, 200);
        until_state(&world, &node, "retired").await;
        assert_eq!(bmc.most_at_once(), 1, "{ills:?}");
    }
}

async fn a_bmc_is_believed_by_its_pin_alone(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("dell"));
    let mut wrong = access(&bmc);
    wrong["tlsPinSha256"] = json!("ab".repeat(32));
    let node = until_state(&world, &enroll(&world, wrong).await, "enrollFailed").await;
    assert_eq!((node["lastError"]["code"].as_str(), bmc.logins()), (Some("pinChanged"), (0, 0)), "{node}");

    // Whoever has the CA of another is nobody.
    let mut first = json!({"tlsTrustFirstUse": true, "username": BMC_USER, "password": BMC_PASSWORD});
    let again = ask(&world, "enroll", &node, json!({"bmc": first})).await;
    assert_eq!(again.status, 200, "{:?}", again.body);
    let node = until_state(&world, &node, "enrolled").await;
    assert_eq!(node["bmc"]["tlsPinSha256"], bmc.pin());

    bmc.renew_certificate();
    let logins = bmc.logins();
    assert_eq!(ask(&world, "inspect", &node, json!({})).await.status, 200);
    let node = until_state(&world, &node, "inspectFailed").await;
    assert_eq!((node["lastError"]["code"].as_str(), bmc.logins()), (Some("pinChanged"), logins), "{node}");
    first["tlsTrustFirstUse"] = Value::Null;
    first["tlsPinSha256"] = json!(bmc.pin());
    let set = ask(&world, "setCredentials", &node, json!({"bmc": first})).await;
    assert_eq!(
        (set.status, &set.body["node"]["bmc"]["credentialsSet"]),
        (200, &json!(true)),
        "{:?}",
        set.body
    );
    assert_eq!(ask(&world, "inspect", &node, json!({})).await.status, 200);
    until_state(&world, &node, "inspected").await;

    // Another address drops what was given for the one before.
    let elsewhere = FakeBmc::start(persona("dell"));
    let moved = ask(&world, "setCredentials", &node, json!({"bmc": {"address": elsewhere.address()}})).await;
    assert_eq!(moved.body["node"]["bmc"]["credentialsSet"], false, "{:?}", moved.body);
    assert!(moved.body["node"]["bmc"].get("tlsPinSha256").is_none());
    assert_eq!(ask(&world, "inspect", &node, json!({})).await.status, 200);
    let node = until_state(&world, &node, "inspectFailed").await;
    assert_eq!(
        (node["lastError"]["code"].as_str(), elsewhere.logins()),
        (Some("credentialsMissing"), (0, 0))
    );

    for networks in [&["10.0.0.0/8"][..], &["127.0.0.0/8"]] {
        allow(&world, networks).await;
        let outside = FakeBmc::start(persona("generic"));
        let node = until_state(&world, &enroll(&world, access(&outside)).await, "enrollFailed").await;
        assert_eq!((node["lastError"]["code"].as_str(), outside.logins()), (Some("addressRefused"), (0, 0)));
    }
    allow(&world, &[]).await;
    let none =
        in_pool(json!({"bmc": access(&FakeBmc::start(persona("generic"))), "idempotencyKey": unique("key")}));
    let refused = world.relay.call_as(&world.relay.admin(), "compute/metal/enroll", &none).await;
    assert_eq!(outcome(&refused), "INVALID_STATE", "{:?}", refused.body);
}

async fn refused_credentials_are_not_tried_until_there_are_others(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("hpe"));
    let mut wrong = access(&bmc);
    wrong["password"] = json!("wrong");
    let node = until_error(&world, &enroll(&world, wrong).await, "unauthorized").await;
    assert_eq!((node["state"].as_str(), bmc.logins()), (Some("enrolling"), (0, 1)));
    // Nothing is tried before a quarter of an hour is over, whatever wakes the machine.
    let set = |password: &str| json!({"bmc": {"username": BMC_USER, "password": password}});
    world.pass(899);
    assert_eq!(bmc.logins(), (0, 1));
    assert_eq!(ask(&world, "setCredentials", &node, set("wrong too")).await.status, 200);
    until(&world, &node, "tried", |_| bmc.logins() == (0, 2)).await;
    // The tenth right one after nine wrong ones still counts.
    assert_eq!(ask(&world, "setCredentials", &node, set(BMC_PASSWORD)).await.status, 200);
    until_state(&world, &node, "enrolled").await;
    assert_eq!(bmc.logins().1, 2, "and no more than that was refused");

    // A switch does not wait for other credentials: the machine would be nobody's to move until they come.
    assert_eq!(ask(&world, "setCredentials", &node, set("wrong")).await.status, 200);
    for _ in 0..2 {
        assert_eq!(ask(&world, "power", &node, json!({"target": "on"})).await.status, 200);
        until(&world, &node, "refused", |node| {
            node["lastError"]["code"] == "unauthorized" && node.get("step").is_none()
        })
        .await;
    }
    assert_eq!(bmc.logins().1, 3, "the second switch was not tried");
    // Nor does what is forced.
    assert_eq!(ask(&world, "retire", &node, json!({"force": true})).await.status, 200);
    let node = until_state(&world, &node, "retired").await;
    assert_eq!((&node["skipped"], bmc.logins().1), (&json!(["clear", "powerOff"]), 3), "{node}");
}

async fn what_a_bmc_can_be_asked_twice_is_asked_and_nothing_else(database: Database) {
    let world = metal(database).await;
    let resets = |bmc: &FakeBmc| {
        let all = bmc.asked().into_iter().filter(|asked| asked.what == "POST ComputerSystem.Reset");
        all.map(|asked| asked.body).collect::<Vec<_>>()
    };
    let body = |kind: &str| format!("{{\"ResetType\":\"{kind}\"}}");

    // Refused, and done all the same; or done by somebody else meanwhile.
    let bmc = FakeBmc::start(persona("dell"));
    let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;
    bmc.suffer(Ills { lies_about_reset: true, echoes: true, ..Ills::default() });
    assert_eq!(ask(&world, "power", &node, json!({"target": "on"})).await.status, 200);
    until(&world, &node, "on", |node| node["powerState"] == "on" && node.get("step").is_none()).await;
    assert_eq!(resets(&bmc), [body("On")]);
    bmc.suffer(Ills::default());

    // A system that does not shut itself down is asked once, and switched off after five minutes.
    bmc.suffer(Ills { hangs_at_shutdown: true, ..Ills::default() });
    assert_eq!(ask(&world, "power", &node, json!({"target": "off"})).await.status, 200);
    until(&world, &node, "asked", |_| resets(&bmc).len() == 2).await;
    world.pass(300);
    until(&world, &node, "off", |node| node["powerState"] == "off" && node.get("step").is_none()).await;
    assert_eq!(resets(&bmc), [body("On"), body("GracefulShutdown"), body("ForceOff")]);

    // On is taken and nothing comes of it: asked three times, then one cycle, then it has failed, and stays on record.
    bmc.suffer(Ills { ignores: vec!["On", "PowerCycle"], ..Ills::default() });
    assert_eq!(ask(&world, "power", &node, json!({"target": "on"})).await.status, 200);
    for times in 4..=7 {
        until(&world, &node, "asked again", |_| resets(&bmc).len() == times).await;
        world.pass(120);
    }
    let node = until_error(&world, &node, "powerUnchanged").await;
    assert_eq!(resets(&bmc)[3..], [body("On"), body("On"), body("On"), body("PowerCycle")]);
    assert_eq!((&node["state"], &node["powerState"]), (&json!("enrolled"), &json!("off")));
}

async fn a_verb_is_judged_by_the_state_and_asked_once(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("lenovo"));
    let input = in_pool(json!({"bmc": access(&bmc), "idempotencyKey": "one"}));
    let first = world.relay.call("compute/metal/enroll", &input).await;
    let again = world.relay.call("compute/metal/enroll", &input).await;
    assert_eq!(first, again, "the same request is answered the same");
    let mut other = input.clone();
    other["idempotencyKey"] = json!("two");
    let taken = world.relay.call_as(&world.relay.admin(), "compute/metal/enroll", &other).await;
    assert_eq!(outcome(&taken), "CONFLICT", "a BMC is one machine's: {:?}", taken.body);
    let node = until_state(&world, &first["node"], "enrolled").await;

    let illegal = ask(&world, "abort", &node, json!({})).await;
    assert_eq!(
        (illegal.status, illegal.body["state"].as_str()),
        (409, Some("enrolled")),
        "{:?}",
        illegal.body
    );
    assert_eq!(illegal.body["allowedVerbs"], json!(["inspect", "retire", "setCredentials", "power"]));
    let stale = ask(&world, "inspect", &node, json!({"expectedVersion": 1})).await;
    assert_eq!(outcome(&stale), "CONFLICT", "{:?}", stale.body);

    bmc.suffer(Ills { busy: 100_000, ..Ills::default() });
    assert_eq!(ask(&world, "inspect", &node, json!({})).await.status, 200);
    until_error(&world, &node, "busy").await;
    let power = ask(&world, "power", &node, json!({"target": "on"})).await;
    assert_eq!(outcome(&power), "INVALID_STATE", "not within a workflow");
    assert_eq!(ask(&world, "abort", &node, json!({})).await.status, 200);
    let node = until_state(&world, &node, "inspectFailed").await;
    assert_eq!(node["lastError"]["code"], "aborted");
    // Its BMC is dead: a forced retirement goes on without it, and says what it left out.
    let retired = ask(&world, "retire", &node, json!({"force": true})).await;
    assert_eq!(retired.status, 200);
    for _ in 0..2 {
        until_error(&world, &node, "busy").await;
        world.pass(1_000);
        tokio::time::sleep(Duration::from_secs(6)).await;
    }
    let node = until_state(&world, &node, "retired").await;
    assert_eq!(node["skipped"], json!(["clear", "powerOff"]), "{node}");
}

async fn two_machines_of_one_identity_are_one_and_a_failure(database: Database) {
    let world = metal(database).await;
    let first = FakeBmc::start(persona("nvidia"));
    let known = until_state(&world, &enroll(&world, access(&first)).await, "enrolled").await;
    // The same UUID in the other byte order.
    let second = FakeBmc::start(persona("generic"));
    second.suffer(Ills { uuid: Some("d3c2b1a0-f5e4-1746-8899-aabbccddeeff"), ..Ills::default() });
    let node = until_state(&world, &enroll(&world, access(&second)).await, "enrollFailed").await;
    assert_eq!(node["lastError"]["code"], "identityTaken");
    let message = node["lastError"]["message"].as_str().unwrap();
    assert!(message.contains(known["nodeId"].as_str().unwrap()), "one's own is named: {message}");

    let third = FakeBmc::start(persona("dell"));
    let mut input =
        in_pool(json!({"bmc": access(&third), "expectSerial": "OTHER", "idempotencyKey": unique("key")}));
    let begun = world.relay.call("compute/metal/enroll", &input).await["node"].clone();
    let node = until_state(&world, &begun, "enrollFailed").await;
    assert_eq!(node["lastError"]["code"], "identityMismatch");
    // Dell's service tag is its SKU.
    input["nodeId"] = node["nodeId"].clone();
    input["expectSerial"] = json!("7CXK2J3");
    input["idempotencyKey"] = json!(unique("key"));
    input["bmc"] = json!({});
    world.relay.call("compute/metal/enroll", &input).await;
    until_state(&world, &node, "enrolled").await;
}

async fn a_password_is_nowhere(database: Database) {
    let world = metal(database).await;
    let bmc = FakeBmc::start(persona("supermicro"));
    bmc.suffer(Ills { echoes: true, ..Ills::default() });
    let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;
    bmc.suffer(Ills { echoes: true, ignores: vec!["On"], lies_about_reset: true, ..Ills::default() });
    assert_eq!(ask(&world, "power", &node, json!({"target": "on"})).await.status, 200);
    let shown = until_error(&world, &node, "refused").await;
    assert_eq!(shown["lastError"]["bmcMessageId"], "Base.1.8.GeneralError", "{shown}");
    let events = world.relay.call("compute/events/list", &json!({"tenantId": "provider"})).await;
    let all = [shown.to_string(), events.to_string(), world.database.dump().await];
    assert!(all.iter().all(|text| !text.contains(BMC_PASSWORD)), "{all:?}");
}
