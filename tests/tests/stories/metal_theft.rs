//! Somebody has the image that a machine's agent is started from, its address and its token, and tries what can be had by that: before
//! the machine's own agent has joined, after it, and when all is over.

use super::{
    World,
    metal::{get, metal, persona, until, until_state},
    metal_in_band::{available, begun, claims, image, inspected, kinds, poll, report, token, well, work},
    outcome, proof,
};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{Database, FakeBmc, Machine, Persona, SimulatedTpm, on_both_databases, post};

on_both_databases!(
    a_stolen_token_is_nothing_but_a_join_of_its_machine,
    a_thief_who_was_first_does_not_stay_unseen,
    a_thief_who_comes_second_ends_it_for_both,
    a_thief_in_a_deployment_gets_no_system_that_counts,
    a_machine_whose_tpm_is_known_is_robbed_of_nothing,
);

/// Methods that a thief would like to have.
const WANTED: &[&str] = &[
    "node/heartbeat",
    "node/renew",
    "node/secrets",
    "node/steps/poll",
    "node/steps/report",
    "compute/metal/get",
    "compute/metal/list",
    "compute/nodes/list",
    "compute/secrets/list",
    "compute/joinTokens/list",
];

/// A machine that is started, and the address of its image with the token in it.
async fn started(world: &World, bmc: &FakeBmc, node: &Value) -> (String, String) {
    until(world, node, "started", |node| node["waitingFor"] == "agent").await;
    let url = bmc.started().last().unwrap().clone();
    let stolen = token(world, &url).await.expect("an image is there");
    (url, stolen)
}

/// That a certificate, or none, opens nothing of what there is.
async fn opens_nothing(world: &World, thief: &Machine, but: &[&str], what: &str) {
    for method in WANTED.iter().filter(|method| !but.contains(method)) {
        let input = match *method {
            "node/renew" => json!({"csr": thief.csr}),
            "node/steps/report" => json!({"stepId": "ms_01ksr49200pbxedz4g8j0j8pt3", "result": {}}),
            _ => json!({}),
        };
        let answer = thief.call(&world.relay, method, &input).await;
        assert!(matches!(answer.status, 400..=499), "{what}: {method}: {}", answer.body);
        let text = answer.body.to_string();
        assert!(
            !text.contains("BEGIN CERTIFICATE") && !text.contains("secrets\":{"),
            "{what}: {method}: {text}"
        );
    }
}

/// What the node of a machine is, as everybody sees it.
async fn is_no_node(world: &World, node: &Value) {
    let seen =
        world.relay.call("compute/nodes/get", &super::in_pool(json!({"nodeId": node["nodeId"]}))).await;
    assert_eq!((&seen["node"]["generation"], seen["node"].get("certificate")), (&json!(0), None), "{seen}");
}

async fn a_stolen_token_is_nothing_but_a_join_of_its_machine(database: Database) {
    let world = metal(database).await;
    let persona = persona("lenovo");
    let bmc = FakeBmc::start(persona);
    let node = inspected(&world, &bmc).await;
    world
        .relay
        .call("compute/secrets/put", &super::in_pool(json!({"name": "registry", "value": "the-secret"})))
        .await;
    begun(&world, "commission", &node, json!({})).await;
    let (url, stolen) = started(&world, &bmc, &node).await;

    // The token alone opens nothing, and no other machine joins by it.
    let nobody = Machine::new(7);
    for method in WANTED {
        let answer =
            post(&nobody.client(&world.relay), &world.relay.url(), Some(&stolen), method, &json!({})).await;
        assert!(matches!(answer.status, 400..=403), "{method}: {}", answer.body);
    }
    let mut half = claims(persona);
    half["productUuid"] = json!("00112233-4455-6677-8899-aabbccddeeff");
    for claimed in [json!({}), half, Machine::new(7).identity] {
        let mut thief = Machine::claiming(claimed.clone());
        assert_eq!(outcome(&thief.join(&world.relay, &stolen).await), "identityMismatch", "{claimed}");
        assert!(thief.certificate().is_none());
    }

    // With the certificate of an agent, which the machine's own has now, the same.
    let mut agent = Machine::claiming(claims(persona));
    assert_eq!(agent.join(&world.relay, &stolen).await.status, 200);
    assert!(token(&world, &url).await.is_none(), "the image is gone");
    opens_nothing(&world, &agent, &["node/renew", "node/steps/poll", "node/steps/report"], "an agent").await;
    is_no_node(&world, &node).await;
    let other_key = agent.call(&world.relay, "node/renew", &json!({"csr": Machine::new(7).csr})).await;
    assert_eq!(outcome(&other_key), "superseded", "{}", other_key.body);
    assert_eq!(kinds(&work(&world, &agent, &node, persona).await), ["hardware", "wipe", "burnIn"]);
    let node = until_state(&world, &node, "available").await;

    // When it is over, image, token and certificate are nothing.
    assert!(token(&world, &url).await.is_none());
    for claimed in [claims(persona), Machine::new(7).identity] {
        let mut late = Machine::claiming(claimed);
        assert_eq!(outcome(&late.join(&world.relay, &stolen).await), "tokenRevoked");
    }
    opens_nothing(&world, &agent, &[], "an agent that was").await;
    is_no_node(&world, &node).await;
}

async fn a_thief_who_was_first_does_not_stay_unseen(database: Database) {
    let world = metal(database).await;
    let persona = persona("supermicro");
    let bmc = FakeBmc::start(persona);
    let node = inspected(&world, &bmc).await;
    begun(&world, "commission", &node, json!({})).await;
    let (_, stolen) = started(&world, &bmc, &node).await;

    // Whoever knows what the machine calls itself is the machine, where no TPM says otherwise.
    let mut thief = Machine::claiming(claims(persona));
    assert_eq!(thief.join(&world.relay, &stolen).await.status, 200);
    let step = stepped(&world, &thief).await;
    assert_eq!(step["work"]["kind"], "hardware");
    contested(&world, &node, persona, &stolen, &thief, "commissionFailed").await;
    is_no_node(&world, &node).await;

    // And the next start is another one.
    begun(&world, "commission", &node, json!({})).await;
    until(&world, &node, "started again", |_| bmc.started().len() == 2).await;
    let (_, fresh) = started(&world, &bmc, &node).await;
    assert_ne!(fresh, stolen);
    let mut agent = Machine::claiming(claims(persona));
    assert_eq!(agent.join(&world.relay, &fresh).await.status, 200);
    assert_eq!(kinds(&work(&world, &agent, &node, persona).await), ["hardware", "wipe", "burnIn"]);
    until_state(&world, &node, "available").await;
}

/// The machine's own agent comes, and is refused; the workflow ends, everybody is told why, and the thief has nothing more.
async fn contested(
    world: &World,
    node: &Value,
    persona: &Persona,
    stolen: &str,
    thief: &Machine,
    state: &str,
) {
    let mut own = Machine::claiming(claims(persona));
    assert_eq!(outcome(&own.join(&world.relay, stolen).await), "tokenExhausted");
    let polled = thief.call(&world.relay, "node/steps/poll", &json!({})).await;
    assert_eq!(outcome(&polled), "superseded", "at once: {}", polled.body);
    let failed = until_state(world, node, state).await;
    assert_eq!(failed["lastError"]["code"], "agentContested", "{failed}");
    opens_nothing(world, thief, &[], "a thief").await;
    let history =
        world.relay.call("compute/metal/history", &super::in_pool(json!({"nodeId": node["nodeId"]}))).await;
    assert_eq!(history["transitions"][0]["reason"], "agentContested", "{history}");
    let events = world.relay.call("compute/events/list", &json!({"tenantId": "provider"})).await.to_string();
    assert!(events.contains("\"reason\":\"agentContested\""), "{events}");
    assert_eq!(outcome(&own.join(&world.relay, stolen).await), "tokenRevoked");
}

/// The next step of an agent.
async fn stepped(world: &World, agent: &Machine) -> Value {
    for _ in 0..600 {
        let step = poll(world, agent).await["step"].clone();
        if step.is_object() {
            return step;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("there is no step");
}

async fn a_thief_who_comes_second_ends_it_for_both(database: Database) {
    let world = metal(database).await;
    let persona = persona("dell");
    let bmc = FakeBmc::start(persona);
    let node = inspected(&world, &bmc).await;
    begun(&world, "commission", &node, json!({})).await;
    let (_, stolen) = started(&world, &bmc, &node).await;
    let mut agent = Machine::claiming(claims(persona));
    assert_eq!(agent.join(&world.relay, &stolen).await.status, 200);
    // A thief that is another machine ends nothing.
    assert_eq!(outcome(&Machine::new(7).join(&world.relay, &stolen).await), "identityMismatch");
    // Nor does a retry of the agent's own.
    assert_eq!(agent.join(&world.relay, &stolen).await.status, 200);
    stepped(&world, &agent).await;
    assert_eq!(get(&world, &node).await["state"], "commissioning");
    contested(&world, &node, persona, &stolen, &agent, "commissionFailed").await;
}

async fn a_thief_in_a_deployment_gets_no_system_that_counts(database: Database) {
    let world = metal(database).await;
    let persona = persona("hpe");
    let bmc = FakeBmc::start(persona);
    let node = available(&world, &bmc, persona).await;
    let before = bmc.started().len();
    begun(&world, "deploy", &node, image()).await;
    until(&world, &node, "started again", |_| bmc.started().len() > before).await;
    let (_, stolen) = started(&world, &bmc, &node).await;
    let mut thief = Machine::claiming(claims(persona));
    assert_eq!(thief.join(&world.relay, &stolen).await.status, 200);
    let mut install = None;
    while install.is_none() {
        let step = stepped(&world, &thief).await;
        install = step["work"]["token"].as_str().map(str::to_owned);
        if install.is_none() {
            report(&world, &thief, &step, well(&step, persona)).await;
        }
    }
    let install = install.unwrap();
    let mut system = Machine::claiming(claims(persona));
    assert_eq!(
        system.join(&world.relay, &install).await.status,
        200,
        "whoever is the machine gets what is the machine's"
    );
    contested(&world, &node, persona, &stolen, &thief, "deployFailed").await;
    // Neither the token nor what was joined by it counts any more.
    opens_nothing(&world, &system, &[], "a system of a thief").await;
    let again = Machine::claiming(claims(persona)).join(&world.relay, &install).await;
    assert_eq!(outcome(&again), "tokenRevoked", "{}", again.body);
    assert!(get(&world, &node).await.get("certificate").is_none());
}

async fn a_machine_whose_tpm_is_known_is_robbed_of_nothing(database: Database) {
    let world = metal(database).await;
    let persona = persona("nvidia");
    let bmc = FakeBmc::start(persona);
    let node = inspected(&world, &bmc).await;
    let tpm = SimulatedTpm::new();
    begun(&world, "commission", &node, json!({})).await;
    let (_, first) = started(&world, &bmc, &node).await;
    let mut agent = Machine::claiming(claims(persona));
    let joined = proof::join(&world.relay, &first, &mut agent, &tpm).await;
    assert_eq!(joined.body["status"], "issued", "{}", joined.body);
    assert_eq!(get(&world, &node).await["identity"]["ekSha256"], tpm.ek_sha256());
    work(&world, &agent, &node, persona).await;
    let node = until_state(&world, &node, "available").await;

    let mut more = image();
    more["userData"] = json!("#the-user-data");
    begun(&world, "deploy", &node, more).await;
    until(&world, &node, "started again", |_| bmc.started().len() == 2).await;
    let (_, stolen) = started(&world, &bmc, &node).await;
    for after in [false, true] {
        if after {
            let mut agent = Machine::claiming(claims(persona));
            let joined = proof::join(&world.relay, &stolen, &mut agent, &tpm).await;
            assert_eq!(joined.body["status"], "issued", "{}", joined.body);
        }
        let mut without = Machine::claiming(claims(persona));
        let refused = without.join(&world.relay, &stolen).await;
        assert!(refused.status == 403 && without.certificate().is_none(), "{}", refused.body);
        let mut with_another = Machine::claiming(claims(persona));
        let refused = proof::join(&world.relay, &stolen, &mut with_another, &SimulatedTpm::new()).await;
        assert!(refused.status == 403 && with_another.certificate().is_none(), "{}", refused.body);
        let now = get(&world, &node).await;
        assert_eq!(
            (&now["state"], now.get("lastError")),
            (&json!("deploying"), None),
            "it ends nothing: {now}"
        );
    }
}
