//! Machines whose agent is started, from the API's side: by a fake BMC, and an agent that joins and reports as a story says. What the
//! image holds and how it is served is told elsewhere; here the token is taken from where the relay has it.

use super::{
    World,
    metal::{access, ask, enroll, get, metal, persona, until, until_state},
    outcome,
};
use relay::metal::boot;
use serde_json::{Value, json};
use std::time::Duration;
use tests::{BMC_PASSWORD, Database, FakeBmc, Machine, Persona, Stall, on_both_databases};

on_both_databases!(
    a_machine_lives_from_its_enrollment_to_its_retirement,
    an_agent_is_its_machines_and_nothing_else,
    what_an_agent_reports_is_judged,
    an_image_is_judged_again_before_it_is_fetched,
);

mod slow {
    use super::{
        a_commissioning_that_is_killed_goes_on, a_deployment_and_a_release_that_are_killed_go_on,
        on_both_databases,
    };
    on_both_databases!(
        a_commissioning_that_is_killed_goes_on,
        a_deployment_and_a_release_that_are_killed_go_on,
    );
}

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJZL me@here";

pub(super) fn image() -> Value {
    json!({"image": {"url": "https://127.0.0.1/disk.raw", "sha256": "ab".repeat(32), "format": "raw"}})
}

pub(super) fn claims(persona: &Persona) -> Value {
    json!({"productUuid": persona.uuid, "serial": persona.serial, "macs": ["00:16:3e:00:00:17"]})
}

/// The token in the image that the machine is started from.
pub(super) async fn token(world: &World, url: &str) -> Option<String> {
    let path = url.split('/').rev().nth(1)?.to_owned();
    let context = world.relay.context.clone();
    let found = context.store.read("boot", (&context, &path), |tx, (context, path)| {
        Box::pin(boot::found(tx, &context.keys, path))
    });
    found.await.unwrap().map(|image| image.token.expose().to_owned())
}

/// The agent of the machine's last start, once it has joined.
pub(super) async fn agent(world: &World, bmc: &FakeBmc, node: &Value, persona: &Persona) -> Machine {
    until(world, node, "started", |node| node["waitingFor"] == "agent").await;
    let url = bmc.started().last().unwrap().clone();
    let token = token(world, &url).await.expect("an image is there");
    let mut agent = Machine::claiming(claims(persona));
    let joined = agent.join(&world.relay, &token).await;
    assert_eq!(joined.body["nodeId"], node["nodeId"], "{}", joined.body);
    agent
}

pub(super) async fn poll(world: &World, agent: &Machine) -> Value {
    let answer = agent.call(&world.relay, "node/steps/poll", &json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

pub(super) async fn report(world: &World, agent: &Machine, step: &Value, more: Value) -> Value {
    let mut input = json!({"stepId": step["stepId"]});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let answer = agent.call(&world.relay, "node/steps/report", &input).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    answer.body
}

/// What an agent says of a step that went well.
pub(super) fn well(step: &Value, persona: &Persona) -> Value {
    match step["work"]["kind"].as_str().unwrap() {
        "hardware" => json!({"result": {"hardware": {
            "identity": claims(persona), "processors": ["2 × AMD EPYC 9654"], "memoryMib": 1024, "disks": ["d, 1 GiB"],
        }}}),
        "wipe" | "erase" => {
            json!({"result": {"disks": [{"name": "nvme0n1", "method": "discard", "done": true}]}})
        }
        _ => json!({"result": {}}),
    }
}

/// Does the agent's steps well until its workflow has ended; answers them.
pub(super) async fn work(world: &World, agent: &Machine, node: &Value, persona: &Persona) -> Vec<Value> {
    let mut done: Vec<Value> = Vec::new();
    for _ in 0..600 {
        let answer = agent.call(&world.relay, "node/steps/poll", &json!({})).await;
        let step = &answer.body["step"];
        if answer.status == 200 && step.is_object() {
            report(world, agent, step, well(step, persona)).await;
            done.push(step["work"].clone());
        }
        let now = get(world, node).await;
        let is_over = now["waitingFor"] != "agent" && !done.is_empty();
        if is_over && (now["waitingFor"] != "bmc" || now["step"] == "shutDown" || now["step"] == "clear") {
            return done;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the agent is not done: {done:?} {:#}", get(world, node).await);
}

pub(super) fn kinds(done: &[Value]) -> Vec<&str> {
    done.iter().map(|work| work["kind"].as_str().unwrap()).collect()
}

pub(super) async fn begun(world: &World, verb: &str, node: &Value, more: Value) {
    let answer = ask(world, verb, node, more).await;
    assert_eq!(answer.status, 200, "{verb}: {}", answer.body);
}

pub(super) async fn inspected(world: &World, bmc: &FakeBmc) -> Value {
    let node = until_state(world, &enroll(world, access(bmc)).await, "enrolled").await;
    begun(world, "inspect", &node, json!({})).await;
    until_state(world, &node, "inspected").await
}

pub(super) async fn available(world: &World, bmc: &FakeBmc, persona: &Persona) -> Value {
    let node = inspected(world, bmc).await;
    begun(world, "commission", &node, json!({})).await;
    let agent = agent(world, bmc, &node, persona).await;
    assert_eq!(kinds(&work(world, &agent, &node, persona).await), ["hardware", "wipe", "burnIn"]);
    until_state(world, &node, "available").await
}

async fn a_machine_lives_from_its_enrollment_to_its_retirement(database: Database) {
    let world = metal(database).await;
    let persona = persona("hpe");
    let bmc = FakeBmc::start(persona);
    let node = available(&world, &bmc, persona).await;
    assert_eq!((bmc.is_on(), &node["hardware"]["memoryMib"]), (false, &json!(1024)));

    let mut more = image();
    more["userData"] = json!("#cloud-config");
    begun(&world, "deploy", &node, more).await;
    let agent_of_deploy = agent(&world, &bmc, &node, persona).await;
    let done = work(&world, &agent_of_deploy, &node, persona).await;
    assert_eq!(kinds(&done), ["write", "credential"]);
    assert_eq!(done[0]["url"], "https://127.0.0.1/disk.raw");
    assert_eq!(done[1]["userData"], "#cloud-config");
    // Its system does not shut itself down at once.
    until(&world, &node, "started", |node| node["waitingFor"] == "daemon").await;
    assert_eq!(bmc.started().last().unwrap(), "disk");
    let token = done[1]["token"].as_str().unwrap();
    let mut stranger = Machine::new(9);
    assert_eq!(outcome(&stranger.join(&world.relay, token).await), "identityMismatch");
    let mut system = Machine::claiming(claims(persona));
    let joined = system.join(&world.relay, token).await;
    assert_eq!((joined.status, &joined.body["nodeId"]), (200, &node["nodeId"]), "{}", joined.body);
    let node = until_state(&world, &node, "deployed").await;
    assert_eq!(node["certificate"]["trust"], "platform", "{node}");
    assert_eq!(outcome(&system.call(&world.relay, "node/heartbeat", &json!({})).await), "200");
    let gone = agent_of_deploy.call(&world.relay, "node/steps/poll", &json!({})).await;
    assert_eq!(outcome(&gone), "superseded");

    begun(&world, "rescue", &node, json!({"sshPublicKey": KEY, "ttlSeconds": 600})).await;
    let agent_of_rescue = agent(&world, &bmc, &node, persona).await;
    let done = work(&world, &agent_of_rescue, &node, persona).await;
    assert_eq!(done, [json!({"kind": "rescue", "sshPublicKey": KEY, "ttlSeconds": 600})]);
    let node = until_state(&world, &node, "rescued").await;
    begun(&world, "rescue", &node, json!({"exit": true})).await;
    let node = until_state(&world, &node, "deployed").await;
    assert_eq!((bmc.is_on(), bmc.started().last().unwrap().as_str()), (true, "disk"));
    assert_eq!(outcome(&system.call(&world.relay, "node/heartbeat", &json!({})).await), "200");

    begun(&world, "release", &node, json!({})).await;
    let last = agent(&world, &bmc, &node, persona).await;
    assert_ne!(
        outcome(&system.call(&world.relay, "node/heartbeat", &json!({})).await),
        "200",
        "its certificate has ended"
    );
    assert_eq!(kinds(&work(&world, &last, &node, persona).await), ["erase"]);
    let node = until_state(&world, &node, "available").await;
    assert!(!bmc.is_on() && node.get("certificate").is_none(), "{node}");
    begun(&world, "retire", &node, json!({})).await;
    until_state(&world, &node, "retired").await;
    let dump = world.database.dump().await;
    assert!(!dump.contains(BMC_PASSWORD) && !dump.contains("#cloud-config") && !dump.contains(token));
}

async fn an_agent_is_its_machines_and_nothing_else(database: Database) {
    let world = metal(database).await;
    let persona = persona("supermicro");
    let bmc = FakeBmc::start(persona);
    let node = inspected(&world, &bmc).await;
    begun(&world, "commission", &node, json!({})).await;
    until(&world, &node, "started", |node| node["waitingFor"] == "agent").await;
    let url = bmc.started().last().unwrap().clone();
    let stolen = token(&world, &url).await.unwrap();

    // Another machine that has the image.
    let mut thief = Machine::new(7);
    assert_eq!(outcome(&thief.join(&world.relay, &stolen).await), "identityMismatch");
    let mut agent = Machine::claiming(claims(persona));
    let joined = agent.join(&world.relay, &stolen).await;
    assert_eq!((joined.status, &joined.body["nodeId"]), (200, &node["nodeId"]), "{}", joined.body);
    assert!(token(&world, &url).await.is_none(), "the image is gone once its agent has joined");
    let again = agent.join(&world.relay, &stolen).await;
    assert_eq!(
        (again.status, &again.body["certificate"]),
        (200, &joined.body["certificate"]),
        "a retry is the same join"
    );

    // Its certificate opens its steps, and nothing that is a node's.
    for method in ["node/heartbeat", "node/secrets"] {
        let refused = agent.call(&world.relay, method, &json!({})).await;
        assert!(matches!(refused.status, 401 | 409), "{method}: {}", refused.body);
    }
    let nodes =
        world.relay.call("compute/nodes/get", &super::in_pool(json!({"nodeId": node["nodeId"]}))).await;
    assert_eq!(
        (&nodes["node"]["generation"], nodes["node"].get("certificate")),
        (&json!(0), None),
        "{nodes}"
    );
    assert_eq!(agent.renew(&world.relay).await.status, 200);
    poll(&world, &agent).await;
    assert_eq!(
        outcome(&agent.with_new_key().call(&world.relay, "node/steps/poll", &json!({})).await),
        "UNAUTHENTICATED"
    );

    begun(&world, "abort", &node, json!({})).await;
    let node = until_state(&world, &node, "commissionFailed").await;
    assert_eq!(node["lastError"]["code"], "aborted");
    assert_eq!(outcome(&agent.call(&world.relay, "node/steps/poll", &json!({})).await), "superseded");
    assert_eq!(outcome(&agent.renew(&world.relay).await), "superseded");
}

async fn what_an_agent_reports_is_judged(database: Database) {
    let world = metal(database).await;
    let persona = persona("dell");
    for (kind, said, code) in [
        ("hardware", json!({"result": {}}), "malformedReport"),
        (
            "hardware",
            json!({"result": {"hardware": {"identity": {"productUuid": "11112222-3333-4444-8555-666677778888"}}}}),
            "identityMismatch",
        ),
        ("wipe", json!({"result": {}}), "notErased"),
        (
            "wipe",
            json!({"result": {"disks": [{"name": "a", "method": "wipe", "done": true}, {"name": "b", "method": "wipe", "done": false}]}}),
            "notErased",
        ),
        ("burnIn", json!({"error": {"code": "tooHot", "message": "93 degrees"}}), "tooHot"),
    ] {
        let bmc = FakeBmc::start(persona);
        let node = inspected(&world, &bmc).await;
        begun(&world, "commission", &node, json!({})).await;
        let agent = agent(&world, &bmc, &node, persona).await;
        loop {
            let step = poll(&world, &agent).await["step"].clone();
            if step.is_object() && step["work"]["kind"] != kind {
                report(&world, &agent, &step, well(&step, persona)).await;
            } else if step.is_object() {
                let progress = json!({"progress": {"bytes": 17, "totalBytes": 34}});
                assert_eq!(report(&world, &agent, &step, progress).await["goesOn"], true);
                assert_eq!(get(&world, &node).await["progress"], json!({"bytes": 17, "totalBytes": 34}));
                assert_eq!(poll(&world, &agent).await["step"], step, "the same step until it is reported");
                report(&world, &agent, &step, said).await;
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let failed = until_state(&world, &node, "commissionFailed").await;
        assert_eq!(failed["lastError"]["code"], code, "{failed}");
        begun(&world, "retire", &node, json!({})).await;
        until_state(&world, &node, "retired").await;
    }
}

/// A name that leads elsewhere by then, as one whose owner lets it resolve to another address, or whose network is listed no more.
async fn an_image_is_judged_again_before_it_is_fetched(database: Database) {
    let world = metal(database).await;
    let persona = persona("dell");
    let bmc = FakeBmc::start(persona);
    let node = available(&world, &bmc, persona).await;
    let deploy = |url: &str| {
        let mut more = image();
        more["image"]["url"] = json!(url);
        more["wipe"] = json!(true);
        more
    };
    // What is an address is judged at once: the relay's own, and the networks around it.
    let port = world.relay.url().rsplit(':').next().unwrap().to_owned();
    let own = std::net::UdpSocket::bind("0.0.0.0:0").and_then(|socket| {
        socket.connect("192.0.2.1:9").map(|()| socket.local_addr().map(|own| own.ip().to_string()))
    });
    let own = own.ok().and_then(Result::ok).filter(|own| own != "127.0.0.1");
    let inside = ["127.0.0.2", "10.0.0.1", "169.254.169.254", "[::1]", "[::ffff:127.0.0.2]", "0.0.0.0"];
    for host in inside.into_iter().map(str::to_owned).chain(own) {
        let refused = ask(&world, "deploy", &node, deploy(&format!("https://{host}:{port}/disk.raw"))).await;
        assert_eq!(outcome(&refused), "INVALID_INPUT", "{host}: {}", refused.body);
        assert_eq!(refused.body["errors"][0]["field"], "image.url");
    }

    begun(&world, "deploy", &node, deploy(&format!("https://localhost:{port}/disk.raw"))).await;
    let agent = agent(&world, &bmc, &node, persona).await;
    let step = loop {
        let step = poll(&world, &agent).await["step"].clone();
        if step.is_object() {
            break step;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert_eq!(step["work"]["kind"], "wipe");
    super::metal::allow(&world, &["10.9.0.0/24"]).await;
    report(&world, &agent, &step, well(&step, persona)).await;
    let node = until_state(&world, &node, "deployFailed").await;
    assert_eq!(node["lastError"]["code"], "imageRefused", "{node}");
    let asked = world.database.number("SELECT COUNT(*) FROM metal_steps WHERE kind = 'write'").await;
    assert_eq!(asked, 0, "the agent was not told of it");
}

/// Killed at each request that changes something, before it is done and after, and at some that only read: the machine is started
/// once and switched off once, whatever is asked again.
async fn a_commissioning_that_is_killed_goes_on(database: Database) {
    let mut world = metal(database).await;
    let persona = persona("lenovo");
    for (reads_too, done, each) in [(false, true, 1), (false, false, 1), (true, true, 7)] {
        for after in (0..200).step_by(each) {
            let stall = Stall { after, reads_too, done };
            let bmc = FakeBmc::start(persona);
            let node = inspected(&world, &bmc).await;
            bmc.stall(stall);
            begun(&world, "commission", &node, json!({})).await;
            let (next, killed) = driven(world, &bmc, &node, persona, ("commissioning", "available")).await;
            world = next;
            assert!(!bmc.is_on(), "{stall:?}");
            assert_eq!(bmc.started().len(), 1, "{stall:?}: {:?}", bmc.asked());
            begun(&world, "retire", &node, json!({})).await;
            until_state(&world, &node, "retired").await;
            if !killed {
                // There were no more requests than that.
                assert!(after >= 4, "{stall:?}");
                break;
            }
        }
    }
}

/// As above: deployed, the machine is started from the image once and from its disk once; released, from the image once.
async fn a_deployment_and_a_release_that_are_killed_go_on(database: Database) {
    let mut world = metal(database).await;
    let persona = persona("dell");
    let bmc = FakeBmc::start(persona);
    let node = available(&world, &bmc, persona).await;
    for done in [true, false] {
        for after in 0..200 {
            let mut killed = false;
            for (verb, through, end, starts) in
                [("deploy", "deploying", "deployed", 2), ("release", "releasing", "available", 1)]
            {
                let (before, asked) = (bmc.started().len(), bmc.asked().len());
                bmc.stall(Stall { after, reads_too: false, done });
                let more = if verb == "deploy" { image() } else { json!({}) };
                begun(&world, verb, &node, more).await;
                let (next, was_killed) = driven(world, &bmc, &node, persona, (through, end)).await;
                (world, killed) = (next, killed || was_killed);
                let what = format!("{verb}, {done}, {after}: {:?}", &bmc.asked()[asked..]);
                assert_eq!(bmc.started().len() - before, starts, "{what}");
                assert_eq!(bmc.is_on(), end == "deployed", "{what}");
            }
            if !killed {
                assert!(after >= 4, "{after}");
                break;
            }
        }
    }
}

/// Goes through a workflow in which the relay is killed once, if it comes to that.
async fn driven(
    mut world: World,
    bmc: &FakeBmc,
    node: &Value,
    persona: &Persona,
    (through, end): (&str, &str),
) -> (World, bool) {
    let mut install = None::<String>;
    let (mut agent, mut killed, mut idle, mut version) = (None::<Machine>, false, 0, Value::Null);
    for _ in 0..1_500 {
        if bmc.has_stalled() && !killed {
            killed = true;
            world = world.killed().await;
        }
        let now = get(&world, node).await;
        if now["state"] == end {
            return (world, killed);
        }
        assert_eq!(now["state"], through, "{now:#}");
        if now["step"] == "awaitAgent" && agent.is_none() {
            let token = token(&world, bmc.started().last().unwrap()).await.expect("an image is there");
            let mut joining = Machine::claiming(claims(persona));
            assert_eq!(joining.join(&world.relay, &token).await.status, 200);
            agent = Some(joining);
        }
        if let Some(agent) = agent.as_ref().filter(|_| now["waitingFor"] == "agent") {
            let step = poll(&world, agent).await["step"].clone();
            if step.is_object() {
                install = step["work"]["token"].as_str().map(str::to_owned).or(install);
                report(&world, agent, &step, well(&step, persona)).await;
            }
        }
        if let Some(token) = install.take_if(|_| now["waitingFor"] == "daemon") {
            let joined = Machine::claiming(claims(persona)).join(&world.relay, &token).await;
            assert_eq!(joined.status, 200, "{}", joined.body);
        }
        idle = if now["version"] == version { idle + 1 } else { 0 };
        version = now["version"].clone();
        if idle > 20 {
            // What was asked before it was killed is waited for; no wait is spent here.
            world.pass(121);
            world.database.change("UPDATE tasks SET due_at = 0 WHERE state IN ('pending', 'retry')").await;
            idle = 0;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("it does not go on: {:#}", get(&world, node).await);
}
