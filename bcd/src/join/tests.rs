//! The join against a relay in this process: what it is sent, what is kept, and what a crash at any write leaves.

use super::*;
use crate::testing::{Call, Fault, Leaf, Machine, Relay, intermediate, root, token};
use serde_json::Value;
use shared::problem::{Code, Problem, Reason};

fn identity() -> Identity {
    Identity { serial: Some("SN-1".into()), ..Identity::default() }
}

async fn fails(node: &mut Node) -> Failure {
    attempt(node, identity()).await.unwrap_err()
}

#[tokio::test]
async fn a_machine_joins_and_keeps_what_it_was_given() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    attempt(&mut node, identity()).await.unwrap();
    let enrolled = node.enrolled().unwrap();
    assert_eq!(node.stored.trust_domain.as_deref(), Some("td.example"));
    assert!(enrolled.certificate.matches("BEGIN CERTIFICATE").count() == 2);
    let state = machine.folder.path().join("state");
    for (name, text) in [("node.crt", &enrolled.certificate), ("ca.crt", &enrolled.ca_bundle)] {
        assert_eq!(&std::fs::read_to_string(state.join(name)).unwrap(), text);
    }
    let call = relay.calls().remove(0);
    assert_eq!(call.bearer.as_deref(), Some(machine.token.expose()));
    assert_eq!(call.body["identity"]["serial"], "SN-1");
    assert_eq!(call.body["agent"]["arch"], std::env::consts::ARCH);
    assert!(call.shown.is_none() && call.body.get("kubernetes").is_none());
    // Nothing on disk has the token's secret.
    let secret = machine.token.expose().split_once('.').unwrap().1;
    for entry in std::fs::read_dir(state).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(secret));
    }
}

#[tokio::test]
async fn without_a_token_nothing_is_made_that_copies_of_an_image_would_share() {
    let (relay, mut machine) = (Relay::start().await, Machine::new());
    let given = std::mem::replace(&mut machine.token, Secret::new("no token".to_owned()));
    let keys = ["node.key", "node.tpm"].map(|name| machine.folder.path().join("state").join(name));
    let mut node = machine.node(&relay);
    assert_eq!(fails(&mut node).await.exit, Exit::Token);
    assert!(!keys.iter().any(|key| key.exists()));
    drop(node);
    machine.token = given;
    attempt(&mut machine.node(&relay), identity()).await.unwrap();
    assert!(keys.iter().any(|key| key.exists()));
}

#[tokio::test]
async fn a_crash_at_any_write_leaves_a_machine_that_ends_with_one_certificate() {
    for writes in 0.. {
        let (relay, machine) = (Relay::start().await, Machine::new());
        let died = {
            let mut node = machine.node(&relay);
            node.dir.writes_left.set(writes);
            attempt(&mut node, identity()).await.is_err()
        };
        let mut node = machine.node(&relay);
        if node.enrolled().is_none() {
            attempt(&mut node, identity()).await.unwrap();
        }
        assert_eq!(relay.issued(), 1, "died before write {writes}");
        assert!(machine.folder.path().join("state/node.crt").exists());
        if !died {
            assert!(writes >= 4, "key, request, state, certificate, CA: {writes}");
            return;
        }
    }
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_with_the_same_request() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    relay.fault(Fault::DropAnswer);
    relay.fault(Fault::Garbage);
    let mut node = machine.node(&relay);
    assert_eq!(fails(&mut node).await.exit, Exit::Transient);
    assert_eq!(fails(&mut node).await.exit, Exit::Transient);
    drop(node);
    let mut node = machine.node(&relay);
    attempt(&mut node, identity()).await.unwrap();
    let requests: Vec<_> = relay.calls().into_iter().map(|call| call.body["csr"].to_string()).collect();
    assert_eq!((requests.len(), relay.issued()), (3, 1));
    assert!(requests.iter().all(|csr| csr == &requests[0]));
}

#[tokio::test]
async fn a_deferred_machine_says_what_to_do_and_keeps_asking_for_the_same() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    relay.fault(Fault::Defer);
    let mut node = machine.node(&relay);
    let failure = fails(&mut node).await;
    assert_eq!((failure.exit, failure.retry_after), (Exit::Waiting, Some(Duration::from_secs(30))));
    for part in ["jr_", "unknownMachine", "tenant-a", "pool-a", "approve"] {
        assert!(failure.message.contains(part), "{failure}");
    }
    drop(node);
    let mut node = machine.node(&relay);
    assert_eq!(node.stored.state.name(), "waiting");
    attempt(&mut node, identity()).await.unwrap();
    let calls = relay.calls();
    assert_eq!(calls[0].body["csr"], calls[1].body["csr"]);
}

#[tokio::test]
async fn what_a_relay_says_at_length_is_kept_in_short() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    for reason in [Reason::TokenExhausted, Reason::RequestDenied] {
        relay.refuse(Problem::refused(reason, "\u{7f}".repeat(200_000)));
        let failure = fails(&mut node).await;
        node.note(&failure);
    }
    let kept = std::fs::metadata(machine.folder.path().join("state/state.json")).unwrap().len();
    assert!(kept < 32_000, "{kept} bytes");
    drop(node);
    assert_eq!(machine.node(&relay).stored.state.name(), "final");
}

#[tokio::test]
async fn a_join_that_waits_keeps_its_token_until_it_is_taken_no_more_or_a_person_gives_another() {
    let (relay, mut machine) = (Relay::start().await, Machine::new());
    let kept = machine.folder.path().join("state").join(TOKEN);
    relay.fault(Fault::Defer);
    let first = machine.token.expose().to_owned();
    fails(&mut machine.node(&relay)).await;
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), first);
    assert_eq!(
        std::os::unix::fs::PermissionsExt::mode(&kept.metadata().unwrap().permissions()) & 0o777,
        0o600
    );
    // The file has another one by now, as a cluster's has every few hours: nobody is asked anew.
    machine.token = token(2);
    relay.fault(Fault::Defer);
    let macs = vec!["00:11:22:33:44:55".into()];
    let with_driver = Identity { gpu_uuids: vec!["GPU-1".into()], macs, ..identity() };
    attempt(&mut machine.node(&relay), with_driver).await.unwrap_err();
    // The relay takes the kept one no more.
    relay.refuse(Problem::new(Code::Unauthenticated, "because"));
    let mut node = machine.node(&relay);
    assert_eq!(fails(&mut node).await.exit, Exit::Token);
    assert_eq!((node.stored.state.name(), kept.exists()), ("joining", false));
    relay.fault(Fault::Defer);
    fails(&mut node).await;
    drop(node);
    // A person joins with another: that is a join of its own. With the same one it is not.
    let mut node = machine.node(&relay);
    begin_anew(&mut node).unwrap();
    assert_eq!(node.stored.state.name(), "waiting");
    drop(node);
    machine.token = token(3);
    let mut node = machine.node(&relay);
    begin_anew(&mut node).unwrap();
    attempt(&mut node, identity()).await.unwrap();
    assert!(!kept.exists());
    let calls = relay.calls();
    let of = |call: &Call| {
        (call.bearer.clone(), [&call.body["csr"], &call.body["identity"]].map(Value::to_string))
    };
    let [one, two, three, four, five] = calls.iter().map(of).collect::<Vec<_>>().try_into().unwrap();
    assert_eq!((&one, &one), (&two, &three), "the same token, the same request, the same claim");
    assert!(four != three && five != four && four.0 != one.0 && five.0 != four.0);
}

#[tokio::test]
async fn every_reason_has_its_exit_code_and_the_final_ones_are_written_down() {
    let reasons = [
        (Reason::TokenExpired, 12, "joining"),
        (Reason::TokenExhausted, 12, "joining"),
        (Reason::TokenRevoked, 12, "joining"),
        (Reason::IdentityMismatch, 13, "final"),
        (Reason::IdentityTaken, 13, "final"),
        (Reason::EndorsementKeyMismatch, 13, "final"),
        (Reason::TpmRequired, 20, "joining"),
        (Reason::BadProof, 20, "joining"),
        (Reason::KeyNotTpm, 20, "joining"),
        (Reason::BadEndorsementKey, 20, "joining"),
        (Reason::RequestDenied, 11, "final"),
        (Reason::RequestExpired, 11, "final"),
        (Reason::NodeBanned, 15, "final"),
        (Reason::TooManyPending, 75, "joining"),
        (Reason::Superseded, 17, "final"),
        (Reason::NodeReleased, 17, "final"),
        (Reason::BadCsr, 1, "final"),
    ];
    let relay = Relay::start().await;
    for (reason, code, state) in reasons {
        let machine = Machine::new();
        let mut node = machine.node(&relay);
        relay.refuse(Problem::refused(reason, "because"));
        let failure = fails(&mut node).await;
        assert_eq!((failure.exit.code(), node.stored.state.name()), (code, state), "{reason:?}");
        assert!(failure.to_string().contains("because"));
    }
    let machine = Machine::new();
    let mut node = machine.node(&relay);
    for (code, exit) in [
        (Code::Unauthenticated, Exit::Token),
        (Code::Unavailable, Exit::Transient),
        (Code::ResourceExhausted, Exit::Transient),
        (Code::Internal, Exit::Transient),
    ] {
        relay.refuse(Problem::new(code, "because").retry_after(7));
        let failure = fails(&mut node).await;
        assert_eq!((failure.exit, failure.retry_after), (exit, Some(Duration::from_secs(7))), "{code:?}");
    }
}

#[tokio::test]
async fn another_token_or_an_end_begins_a_join_of_its_own_with_the_same_key() {
    let (relay, mut machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    relay.fault(Fault::Garbage);
    fails(&mut node).await;
    relay.refuse(Problem::refused(Reason::RequestDenied, "no"));
    fails(&mut node).await;
    relay.fault(Fault::Garbage);
    fails(&mut node).await;
    machine.token = token(2);
    node.tokens = machine.sources();
    attempt(&mut node, identity()).await.unwrap();
    let requests: Vec<_> = relay.calls().into_iter().map(|call| call.body["csr"].to_string()).collect();
    assert_eq!(requests[0], requests[1]);
    assert_ne!(requests[1], requests[2], "denied, so the next one is another");
    assert_ne!(requests[2], requests[3], "another token");
    let keys = requests.iter().map(|pem| {
        let pem: String = serde_json::from_str(pem).unwrap();
        shared::csr::CertificateRequest::parse(&pem).unwrap().key.digest()
    });
    assert!(keys.collect::<Vec<_>>().windows(2).all(|two| two[0] == two[1]));
}

/// Tries to join a relay that is not ours; answers the failure and the bytes that reached it.
async fn bytes_to(relay: &Relay, machine: &Machine) -> (Failure, usize) {
    let mut node = machine.node(relay);
    let failure = fails(&mut node).await;
    // Whatever was under way has arrived by then.
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert_eq!(relay.calls().len(), 0);
    (failure, relay.bytes())
}

#[tokio::test]
async fn no_byte_is_sent_to_a_relay_that_is_not_ours() {
    let (ours, foreign) = (root("root"), root("root"));
    let (relays, foreign_relays) = (intermediate("relay", &ours), intermediate("relay", &foreign));
    let contains_pinned = vec![foreign_relays.der().clone(), foreign.der().clone(), ours.der().clone()];
    let chain = || vec![relays.der().clone(), ours.der().clone()];
    let node = Leaf { hosts: vec!["127.0.0.1"], ..Leaf::node(Leaf::relay().until) };
    let serving_node = Leaf { usage: Leaf::relay().usage, ..node.clone() };
    let elsewhere = Leaf { hosts: vec!["relay.example"], ..Leaf::relay() };
    let wrong: Vec<(&str, &crate::testing::Ca, Leaf, Vec<_>, Exit)> = vec![
        ("contains the pin", &foreign_relays, Leaf::relay(), contains_pinned, Exit::NotTrusted),
        ("wrong pin", &foreign_relays, Leaf::relay(), vec![foreign_relays.der().clone()], Exit::NotTrusted),
        ("a node", &relays, node, chain(), Exit::NotTrusted),
        ("a node that may serve", &relays, serving_node, chain(), Exit::NotTrusted),
        ("another host", &relays, elsewhere, chain(), Exit::NotTrusted),
        ("TLS 1.2", &relays, Leaf::relay(), chain(), Exit::Transient),
    ];
    for (what, issuing, leaf, chain, exit) in wrong {
        let pinned = crate::testing::pin(&ours);
        // The fake relay's own root only issues nodes here; the pin is that of ours.
        let relay = Relay::start_with(root("nodes"), issuing, &leaf, chain, what != "TLS 1.2").await;
        let machine = Machine::new();
        let mut settings = machine.settings(&relay);
        settings.trust = Some(crate::config::TrustSettings::Pins(vec![pinned]));
        let mut opened = Node::open(settings, machine.sources(), machine.host.clone()).unwrap();
        let failure = fails(&mut opened).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!((relay.bytes(), relay.calls().len()), (0, 0), "{what}");
        assert_eq!(failure.exit, exit, "{what}: {failure}");
        assert!(!failure.message.contains(machine.token.expose()));
    }
}

#[tokio::test]
async fn a_clock_in_1970_is_named_and_spends_nothing() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    *machine.host.wall.lock().unwrap() = shared::time::Timestamp::from_seconds(0);
    let (failure, bytes) = bytes_to(&relay, &machine).await;
    assert_eq!((failure.exit, bytes), (Exit::Clock, 0));
    assert!(failure.message.contains("1970-01-01"), "{failure}");
}

#[tokio::test]
async fn a_reason_of_a_newer_relay_is_shown_and_stops_nobody_for_good() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    for (status, code, reason, exit) in [
        (403, "PERMISSION_DENIED", "poolFrozen", Exit::Transient),
        (409, "PRECONDITION_FAILED", "poolFrozen", Exit::Transient),
        (401, "NO_SUCH_WORD", "poolFrozen", Exit::Token),
        // What is known counts, whatever is new beside it.
        (403, "NO_SUCH_WORD", "tokenExpired", Exit::Token),
        (403, "NO_SUCH_WORD", "nodeBanned", Exit::Banned),
    ] {
        let problem = serde_json::json!({"detail": "WHY", "code": code, "reason": reason, "errors": 7});
        relay.fault(Fault::Answer(status, problem));
        let failure = fails(&mut node).await;
        assert_eq!(failure.exit, exit, "{failure}");
        assert!(failure.message.contains("WHY"), "{failure}");
        let is_new = reason == "poolFrozen";
        assert_eq!(failure.message.contains("poolFrozen"), is_new, "{failure}");
        assert_eq!(node.stored.state.name(), if exit.is_final() { "final" } else { "joining" });
    }
}

#[tokio::test]
async fn what_the_relay_says_of_a_deferral_goes_into_no_shell_and_steers_no_terminal() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    relay.fault(Fault::Defer);
    let command = "approve jr_";
    let good = fails(&mut node).await.message;
    assert!(good.contains(command) && good.ends_with("--tenant tenant-a --pool pool-a"), "{good}");
    for (tenant, pool) in [("$(id)", "pool-a"), ("tenant-a", "\u{1b}[2J"), ("a b", "x;y")] {
        let id = shared::id::JoinRequestId::derive(&[9; 32]);
        let deferral = serde_json::json!({
            "status": "deferred", "joinRequestId": id, "tenantId": tenant, "poolId": pool,
            "reasons": ["x\u{1b}[31m\u{202e}\u{2066}"], "retryAfterSeconds": 30,
        });
        relay.fault(Fault::Answer(200, deferral));
        let odd = fails(&mut node).await.message;
        assert!(odd.contains(command) && !odd.contains("--tenant") && !odd.contains("$("), "{odd}");
        assert!(!odd.chars().any(shared::terminal::steers), "{odd:?}");
        let status = crate::status::Status::of(&node.stored).to_text();
        assert!(!status.chars().any(|c| shared::terminal::steers(c) && c != '\n'), "{status:?}");
    }
}

#[tokio::test]
async fn a_relay_whose_clock_stood_behind_is_taken_once_it_is_right() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    // Its certificate begins 5 minutes ago, long after what it said before.
    node.hear(node.now().plus_seconds(-3 * 3600));
    attempt(&mut node, identity()).await.unwrap();
    assert!(node.clock.skew_seconds(&*node.host).unwrap().abs() < 3600);
}

#[tokio::test]
async fn nobody_there_is_transient_and_names_the_address() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut settings = machine.settings(&relay);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    settings.relay.as_mut().unwrap().port = free.port();
    let mut node = Node::open(settings, machine.sources(), machine.host.clone()).unwrap();
    let failure = fails(&mut node).await;
    assert_eq!(failure.exit, Exit::Transient);
    assert!(failure.message.contains(&free.to_string()), "{failure}");
}

#[tokio::test]
async fn a_certificate_for_another_key_is_not_taken() {
    let (relay, machine, other) = (Relay::start().await, Machine::new(), Machine::new());
    let mut first = machine.node(&relay);
    attempt(&mut first, identity()).await.unwrap();
    let certificate = first.enrolled().unwrap().certificate.clone();
    let mut node = other.node(&relay);
    node.make_key().await.unwrap();
    let issued = shared::api::node::Issued {
        node_id: first.enrolled().unwrap().node_id.clone(),
        generation: 1,
        trust: shared::api::node::Trust::Platform,
        certificate,
        chain: String::new(),
        ca_bundle: String::new(),
        renew_after: node.now(),
        expires_at: node.now(),
        server_time: node.now(),
    };
    let failure = node.admit(issued).unwrap_err();
    assert!(failure.message.contains("another key"), "{failure}");
    assert_eq!(node.stored.state.name(), "new");
}

#[tokio::test]
async fn an_answer_without_end_is_cut_off() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = machine.node(&relay);
    relay.refuse(Problem::new(Code::Internal, "x".repeat(300_000)));
    let failure = fails(&mut node).await;
    assert_eq!(failure.exit, Exit::Transient);
    assert!(failure.message.contains("longer than any answer"), "{failure}");
}
