//! compute/metal, without a BMC: who may, what a state allows, what is kept of a request. What a BMC is asked is told elsewhere.

use super::*;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Owner, Viewer};
use shared::api::metal::{MetalState, MetalVerb};

/// Which state each verb of the walk is asked in.
const STANDS: &[(&str, MetalState)] = &[
    ("compute.metal.abort", MetalState::Enrolling),
    ("compute.metal.power", MetalState::Enrolled),
    ("compute.metal.inspect", MetalState::Enrolled),
    ("compute.metal.commission", MetalState::Inspected),
    ("compute.metal.deploy", MetalState::Available),
    ("compute.metal.rescue", MetalState::Deployed),
    ("compute.metal.release", MetalState::Rescued),
    ("compute.metal.retire", MetalState::Available),
];

/// Lets the platform's site have BMCs in these networks.
pub(super) async fn allow(desk: &Desk, networks: &[&str]) {
    let update = json!({"siteId": "default", "bmcNetworks": networks});
    desk.good(&root(), "compute.sites.update", update).await;
}

/// Puts a machine where the walk's next verb is legal, as if a workflow had ended there.
pub(super) async fn stand(desk: &Desk, node: &str, method: &str) {
    if let Some((_, state)) = STANDS.iter().find(|(name, _)| *name == method) {
        put(desk, node, *state).await;
    }
}

async fn put(desk: &Desk, node: &str, state: MetalState) {
    const PUT: &str = "UPDATE metal SET state = $2, virtual_media = 1, wanted_power = NULL, rotates = 0, aborted = 0, step = NULL, \
        version = version + 1 WHERE node_id = $1";
    let put = desk.relay.store.transact("put", (node, state), |tx, (node, state)| {
        Box::pin(async move { tx.execute(PUT, &[(*node).into(), state.as_str().into()]).await })
    });
    assert_eq!(put.await.unwrap(), 1);
}

fn bmc(address: &str) -> Value {
    json!({"address": address, "username": "u", "password": "correct-horse", "tlsInsecure": true})
}

fn in_gpu_a(mut more: Value) -> Value {
    more["tenantId"] = json!("acme");
    more["poolId"] = json!("gpu-a");
    more
}

async fn enrolled(desk: &Desk, address: &str) -> String {
    let made = desk.good(&root(), "compute.metal.enroll", in_gpu_a(json!({"bmc": bmc(address)}))).await;
    made["node"]["nodeId"].as_str().unwrap().to_owned()
}

fn verb_of(verb: MetalVerb, node: &str) -> (String, Value) {
    let mut body = in_gpu_a(json!({"nodeId": node}));
    let more = match verb {
        MetalVerb::Deploy => json!({"image": {
            "url": "https://images.example.org/x", "sha256": "ab".repeat(32), "format": "raw",
        }}),
        MetalVerb::Rescue => json!({"sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA me"}),
        MetalVerb::Power => json!({"target": "on"}),
        MetalVerb::SetCredentials => json!({"bmc": {"username": "u", "password": "p"}}),
        _ => json!({}),
    };
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    (format!("compute.metal.{}", verb.as_str()), body)
}

#[tokio::test]
async fn every_verb_in_every_state_is_judged_by_the_table() {
    use crate::metal::machine::{With, allowed, judge};
    at_a_desk(async |desk| {
        allow(&desk, &["192.0.2.0/24"]).await;
        let node = enrolled(&desk, "192.0.2.7").await;
        for state in MetalState::ALL {
            for verb in MetalVerb::ALL {
                put(&desk, &node, state).await;
                let (method, body) = verb_of(verb, &node);
                let answer = desk.ask(&root(), &method, body).await;
                let what = format!("{} in {}", verb.as_str(), state.as_str());
                match judge(state, verb, With::Nothing) {
                    Some(_) => {
                        let answer = answer.unwrap_or_else(|problem| panic!("{what}: {problem}"));
                        assert_eq!(answer["node"]["nodeId"], json!(node), "{what}");
                    }
                    None => {
                        let problem = answer.expect_err(&what);
                        let stood = problem.in_state.as_deref();
                        assert_eq!(
                            (problem.code, stood.map(|it| it.state.as_str())),
                            (InvalidState, Some(state.as_str())),
                            "{what}"
                        );
                        let legal: Vec<&str> = allowed(state).into_iter().map(MetalVerb::as_str).collect();
                        assert_eq!(stood.unwrap().allowed_verbs, legal, "{what}");
                    }
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_password_is_exchanged_by_redfish_alone_and_in_no_workflow() {
    use crate::metal::machine::{With, judge};
    at_a_desk(async |desk| {
        allow(&desk, &["192.0.2.0/24"]).await;
        let method = "compute.metal.setCredentials";
        let node = enrolled(&desk, "192.0.2.7").await;
        let body = |node: &str| in_gpu_a(json!({"nodeId": node, "rotate": true}));
        for state in MetalState::ALL {
            put(&desk, &node, state).await;
            let refused = judge(state, MetalVerb::SetCredentials, With::Rotate).is_none();
            let expected = refused.then_some(InvalidState);
            assert_eq!(desk.code(&root(), method, body(&node)).await, expected, "{}", state.as_str());
        }
        put(&desk, &node, MetalState::Inspected).await;
        assert_eq!(desk.code(&member("acme", Owner), method, body(&node)).await, Some(PermissionDenied));
        desk.good(&root(), method, body(&node)).await;
        for (method, body) in [(method.to_owned(), body(&node)), verb_of(MetalVerb::Inspect, &node)] {
            assert_eq!(
                desk.code(&root(), &method, body).await,
                Some(InvalidState),
                "{method}: it is under way"
            );
        }
        // Other credentials are taken all the same: those that hold may be wrong.
        let (method, other) = verb_of(MetalVerb::SetCredentials, &node);
        desk.good(&root(), &method, other).await;

        let mut by_ipmi = bmc("192.0.2.8");
        by_ipmi["protocol"] = json!("ipmi");
        let made = desk.good(&root(), "compute.metal.enroll", in_gpu_a(json!({"bmc": by_ipmi}))).await;
        let node = made["node"]["nodeId"].as_str().unwrap();
        put(&desk, node, MetalState::Enrolled).await;
        let problem = desk.ask(&root(), &method, body(node)).await.unwrap_err();
        assert!(problem.code == InvalidState && problem.detail.starts_with("unsupported: "), "{problem}");
    })
    .await;
}

#[tokio::test]
async fn what_a_bmc_said_is_told_to_the_sites_owner_alone() {
    at_a_desk(async |desk| {
        allow(&desk, &["192.0.2.0/24"]).await;
        let node = enrolled(&desk, "192.0.2.7").await;
        let said = json!({
            "code": "refused", "message": "the BMC refused", "bmcStatus": 418, "bmcMessageId": "Inside.1.0.Teapot",
        });
        put(&desk, &node, MetalState::EnrollFailed).await;
        let context = (&node, said.to_string());
        let set = desk.relay.store.transact("put", context, |tx, (node, said)| {
            const PUT: &str = "UPDATE metal SET last_error = $2 WHERE node_id = $1";
            Box::pin(async move { tx.execute(PUT, &[node.as_str().into(), said.as_str().into()]).await })
        });
        assert_eq!(set.await.unwrap(), 1);
        for (caller, told) in [
            (root(), true),
            (member("provider", Viewer), true),
            (member("acme", Owner), false),
            (member("acme", Viewer), false),
            (project_member("ml", ProjectRole::Owner), false),
        ] {
            for (method, body) in [
                ("compute.metal.get", json!({"nodeId": node})),
                ("compute.metal.list", json!({})),
                ("compute.metal.history", json!({"nodeId": node})),
            ] {
                let answer = desk.good(&caller, method, in_gpu_a(body)).await.to_string();
                let who = &caller.subject;
                let seen = (answer.contains("418"), answer.contains("Teapot"));
                let told = told && method != "compute.metal.history";
                assert_eq!(seen, (told, told), "{who} by {method}: {answer}");
                assert!(method == "compute.metal.history" || answer.contains("\"refused\""), "{who}: {answer}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn whoever_vouches_for_the_site_says_how_a_bmc_is_reached() {
    at_a_desk(async |desk| {
        allow(&desk, &["192.0.2.0/24"]).await;
        let node = enrolled(&desk, "192.0.2.7").await;
        let (denied, hidden) = (Some(PermissionDenied), Some(NotFound));
        for (at, (caller, enroll, read, inspect, deploy)) in [
            (root(), None, None, None, None),
            (auditor(), denied, None, denied, denied),
            (member("provider", Owner), None, None, None, denied),
            (member("provider", Editor), denied, None, None, denied),
            (member("acme", Owner), denied, None, None, None),
            (member("acme", Editor), denied, None, None, None),
            (member("acme", Viewer), denied, None, denied, denied),
            (project_member("ml", ProjectRole::Owner), denied, None, None, None),
            (project_member("web", ProjectRole::Owner), hidden, hidden, hidden, hidden),
            (member("other", Owner), hidden, hidden, hidden, hidden),
        ]
        .into_iter()
        .enumerate()
        {
            let who = caller.subject.clone();
            let input = in_gpu_a(json!({"bmc": bmc(&format!("192.0.2.{}", 20 + at))}));
            assert_eq!(desk.code(&caller, "compute.metal.enroll", input).await, enroll, "{who} enrolls");
            let one = in_gpu_a(json!({"nodeId": node}));
            assert_eq!(desk.code(&caller, "compute.metal.get", one.clone()).await, read, "{who} reads");
            put(&desk, &node, MetalState::Enrolled).await;
            assert_eq!(desk.code(&caller, "compute.metal.inspect", one).await, inspect, "{who} inspects");
            put(&desk, &node, MetalState::Available).await;
            let (method, body) = verb_of(MetalVerb::Deploy, &node);
            assert_eq!(desk.code(&caller, &method, body).await, deploy, "{who} deploys");
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_is_one_request_and_what_it_was_given_is_nowhere() {
    at_a_desk(async |desk| {
        let input = in_gpu_a(json!({"bmc": bmc("192.0.2.7"), "idempotencyKey": "one"}));
        assert_eq!(
            desk.code(&root(), "compute.metal.enroll", input.clone()).await,
            Some(InvalidState),
            "no networks"
        );
        allow(&desk, &["192.0.2.0/24"]).await;
        let made = desk.good(&root(), "compute.metal.enroll", input.clone()).await;
        assert_eq!(desk.good(&root(), "compute.metal.enroll", input.clone()).await, made);
        let mut other = input.clone();
        other["bmc"]["address"] = json!("192.0.2.8");
        assert_eq!(desk.code(&root(), "compute.metal.enroll", other).await, Some(Conflict));
        let mut taken = input;
        taken["idempotencyKey"] = json!("two");
        assert_eq!(
            desk.code(&root(), "compute.metal.enroll", taken).await,
            Some(Conflict),
            "the BMC is one machine's"
        );
        let node = made["node"]["nodeId"].as_str().unwrap();
        let released = desk.code(&root(), "compute.nodes.release", in_gpu_a(json!({"nodeId": node}))).await;
        assert_eq!(released, Some(InvalidState));

        put(&desk, node, MetalState::Available).await;
        let shown = desk.good(&root(), "compute.metal.get", in_gpu_a(json!({"nodeId": node}))).await;
        let version = shown["node"]["version"].as_i64().unwrap();
        let (method, mut body) = verb_of(MetalVerb::Deploy, node);
        body["userData"] = json!("the-user-data");
        body["expectedVersion"] = json!(version - 1);
        assert_eq!(desk.code(&root(), &method, body.clone()).await, Some(Conflict));
        body["expectedVersion"] = json!(version);
        body["idempotencyKey"] = json!("deploy");
        for url in
            ["https://127.0.0.1/x", "https://10.0.0.1/x", "https://[::1]/x", "https://169.254.169.254/"]
        {
            let mut inside = body.clone();
            inside["image"]["url"] = json!(url);
            assert_eq!(desk.code(&root(), &method, inside).await, Some(InvalidInput), "{url}");
        }
        let deploying = desk.good(&root(), &method, body.clone()).await;
        assert_eq!(deploying["node"]["state"], "deploying");
        assert_eq!(desk.good(&root(), &method, body.clone()).await, deploying);
        body["userData"] = json!("other-user-data");
        assert_eq!(desk.code(&root(), &method, body).await, Some(Conflict));

        for secret in ["correct-horse", "the-user-data"] {
            for text in texts(&desk).await {
                assert!(!text.contains(secret), "{secret} in {text}");
            }
        }
    })
    .await;
}

/// Whatever may hold a text that a secret could be in.
async fn texts(desk: &Desk) -> Vec<String> {
    const TEXTS: &str = "SELECT sealed_credentials AS text FROM metal UNION ALL SELECT sealed_candidate FROM metal \
        UNION ALL SELECT sealed_user_data FROM metal \
        UNION ALL SELECT options FROM metal UNION ALL SELECT tls FROM metal UNION ALL SELECT answer FROM idempotent_answers \
        UNION ALL SELECT data FROM events UNION ALL SELECT payload FROM tasks UNION ALL SELECT resource FROM audit";
    let rows = desk.relay.store.read("texts", (), |tx, ()| Box::pin(tx.fetch_all(TEXTS, &[]))).await.unwrap();
    let texts: Vec<String> = rows.iter().filter_map(|row| row.maybe_text("text").unwrap()).collect();
    assert!(texts.len() > 8, "{}", texts.len());
    texts
}

#[tokio::test]
async fn no_machine_is_at_work_or_available_after_a_restore() {
    at_a_desk(async |desk| {
        allow(&desk, &["192.0.2.0/24"]).await;
        let node = enrolled(&desk, "192.0.2.7").await;
        for state in MetalState::ALL {
            put(&desk, &node, state).await;
            let origin = crate::events::Origin {
                actor: "relay restore".to_owned(),
                request_id: String::new(),
                at: desk.clock.now(),
            };
            let halted =
                desk.relay.store.transact("restore", (&desk.relay, origin), |tx, (relay, origin)| {
                    Box::pin(async move { crate::metal::restored::halt(tx, &relay.random, origin).await })
                });
            let halted = halted.await.unwrap();
            let expected = match state {
                MetalState::Available => MetalState::CommissionFailed,
                other => other.failed().unwrap_or(other),
            };
            assert_eq!(halted, u64::from(expected != state), "{}", state.as_str());
            let get = desk.good(&root(), "compute.metal.get", in_gpu_a(json!({"nodeId": node}))).await;
            assert_eq!(get["node"]["state"], expected.as_str(), "{}", state.as_str());
            if expected != state {
                assert_eq!(get["node"]["lastError"]["code"], "restored", "{get}");
                let told =
                    desk.good(&root(), "compute.metal.history", in_gpu_a(json!({"nodeId": node}))).await;
                let last = &told["transitions"][0];
                assert_eq!((&last["to"], &last["reason"]), (&json!(expected.as_str()), &json!("restored")));
            }
        }
        // What stood on its disks is not known: a commission erases in full.
        put(&desk, &node, MetalState::Inspected).await;
        let id = node.parse().unwrap();
        let machine = desk
            .relay
            .store
            .read("find", &id, |tx, id| Box::pin(async move { crate::store::metal::find(tx, id).await }));
        let mut machine = machine.await.unwrap().unwrap();
        machine.state = MetalState::Commissioning;
        let steps = crate::metal::workflow::steps(machine.state, crate::metal::workflow::Plan::of(&machine));
        assert!(steps.contains(&crate::metal::workflow::Step::Erase), "{steps:?}");
    })
    .await;
}
