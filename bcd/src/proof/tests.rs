//! Joins and renewals of a machine with a TPM (swtpm), against a relay in this process that challenges it.

use super::*;
use crate::{
    config::TpmMode,
    heartbeat::{self, Identities},
    join, renew,
    testing::{Fault, Machine, Made, Relay, Swtpm, tpm::make_credential},
    tpm::Tcti,
};
use serde_json::{Value, json};
use shared::{
    api::node::Tpm as WireTpm,
    binary::Binary,
    hardware::Identity,
    problem::{Problem, Reason},
    time::Timestamp,
};

/// A machine with a TPM, and a relay that knows nothing of it yet.
struct World {
    swtpm: Arc<Swtpm>,
    relay: Arc<Relay>,
    machine: Machine,
}

impl World {
    async fn new() -> Self {
        let swtpm = Arc::new(Swtpm::start(Made::Bare));
        Self { swtpm, relay: Relay::start().await, machine: Machine::new() }
    }

    fn node(&self) -> Node {
        let mut settings = self.machine.settings(&self.relay);
        settings.tpm = TpmMode::Required;
        settings.tcti = Tcti::parse(&self.swtpm.tcti()).unwrap();
        Node::open(settings, self.machine.sources(), Arc::clone(&self.machine.host) as _).unwrap()
    }

    /// The relay's next answer is a challenge with this secret, for the endorsement key at this place.
    fn challenge(&self, place: u32, secret: [u8; 32]) {
        let swtpm = Arc::clone(&self.swtpm);
        self.relay.fault(Fault::Challenge(Arc::new(move |body| {
            let tpm: Option<WireTpm> = serde_json::from_value(body["tpm"].clone()).unwrap();
            // A relay that was offered nothing has only this to say.
            let (blob, encrypted) = tpm.map_or((vec![0], vec![0]), |tpm| {
                let key = &tpm.endorsement_keys[usize::try_from(place).unwrap()];
                make_credential(&swtpm, key.public.as_bytes(), tpm.key_public.as_bytes(), &secret)
            });
            json!({
                "status": "challenge",
                "challengeId": format!("box-{}", secret[0]),
                "endorsementKey": place,
                "credentialBlob": Binary::<1024>::new(blob).unwrap(),
                "encryptedSecret": Binary::<1024>::new(encrypted).unwrap(),
                "expiresAt": Timestamp::from_seconds(0),
            })
        })));
    }

    fn bodies(&self) -> Vec<Value> {
        self.relay.calls().into_iter().map(|call| call.body).collect()
    }
}

async fn join(node: &mut Node) -> Result<(), Failure> {
    join::attempt(node, Identity { serial: Some("SN-1".into()), ..Identity::default() }).await.map(drop)
}

fn proof(number: u8) -> Value {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    json!({"challengeId": format!("box-{number}"), "secret": STANDARD.encode([number; 32])})
}

#[tokio::test]
async fn a_machine_with_a_tpm_answers_the_challenge_and_lives_by_that_key() {
    let world = World::new().await;
    let mut node = world.node();
    world.challenge(1, [5; 32]);
    join(&mut node).await.unwrap();
    let bodies = world.bodies();
    assert_eq!(bodies.len(), 2);
    assert_eq!(bodies[0]["tpm"]["endorsementKeys"].as_array().unwrap().len(), 3);
    assert!(bodies[0].get("proof").is_none());
    assert_eq!(bodies[1]["proof"], proof(5));
    for member in ["csr", "identity", "tpm"] {
        assert_eq!(bodies[0][member], bodies[1][member], "{member}");
    }
    let state = world.machine.folder.path().join("state");
    assert!(state.join("node.tpm").exists() && !state.join("node.key").exists());
    // By that key alone: nothing is offered again, and the certificate is shown.
    drop(node);
    let mut node = world.node();
    heartbeat::send(&mut node, &mut Identities::default()).await.unwrap();
    renew::attempt(&mut node).await.unwrap();
    heartbeat::send(&mut node, &mut Identities::default()).await.unwrap();
    let calls = world.relay.calls();
    assert_eq!(calls.len(), 5);
    assert!(calls[2..].iter().all(|call| call.shown.is_some() && call.body.get("tpm").is_none()));
    assert_ne!(calls[2].shown, calls[4].shown);
}

#[tokio::test]
async fn a_crash_between_challenge_and_answer_costs_another_challenge_and_no_other_join() {
    let world = World::new().await;
    world.challenge(0, [1; 32]);
    // On the kept connection, and on the fresh one that takes its place.
    world.relay.fault(Fault::DropAnswer);
    world.relay.fault(Fault::DropAnswer);
    assert_eq!(join(&mut world.node()).await.unwrap_err().exit, Exit::Transient);
    let mut node = world.node();
    world.challenge(2, [2; 32]);
    // The first answer came too late.
    world.challenge(2, [3; 32]);
    join(&mut node).await.unwrap();
    let bodies = world.bodies();
    let proofs: Vec<_> = bodies.iter().map(|body| body["proof"].clone()).collect();
    assert_eq!(proofs, [Value::Null, proof(1), proof(1), Value::Null, proof(2), proof(3)]);
    assert!(bodies.iter().all(|body| body["csr"] == bodies[0]["csr"]));
    assert_eq!(world.relay.issued(), 1);
}

#[tokio::test]
async fn challenges_without_end_or_sense_are_given_up() {
    let world = World::new().await;
    let mut node = world.node();
    for number in 0..10 {
        world.challenge(0, [number; 32]);
    }
    let failure = join(&mut node).await.unwrap_err();
    assert_eq!((failure.exit, world.bodies().len()), (Exit::Tpm, MAX_CHALLENGES + 1));
    assert_eq!(node.stored.state.name(), "joining");
    // A machine whose key is in a file cannot answer, and says so.
    let world = World::new().await;
    let mut node = world.machine.node(&world.relay);
    world.challenge(0, [1; 32]);
    let failure = join(&mut node).await.unwrap_err();
    assert_eq!((failure.exit, world.bodies().len()), (Exit::Tpm, 1));
    assert!(world.bodies()[0].get("tpm").is_none());
}

#[tokio::test]
async fn a_renewal_that_is_challenged_proves_the_key_again() {
    for refused in [true, false] {
        let world = World::new().await;
        let mut node = world.node();
        join(&mut node).await.unwrap();
        if refused {
            world.relay.refuse(Problem::refused(Reason::TpmRequired, "prove it"));
        } else {
            world.challenge(0, [4; 32]);
        }
        world.challenge(1, [5; 32]);
        renew::attempt(&mut node).await.unwrap();
        let bodies = world.bodies();
        assert_eq!(bodies.len(), 4);
        assert!(bodies[1].get("tpm").is_none() && bodies[2].get("proof").is_none());
        assert_eq!((&bodies[3]["proof"], &bodies[3]["tpm"]), (&proof(5), &bodies[2]["tpm"]));
        assert!(bodies[1..].iter().all(|body| body["csr"] == bodies[1]["csr"]));
        // One that is refused for good is refused once.
        for _ in 0..5 {
            world.relay.refuse(Problem::refused(Reason::TpmRequired, "prove it"));
        }
        let failure = renew::attempt(&mut node).await.unwrap_err();
        assert_eq!((failure.exit, world.bodies().len()), (Exit::Tpm, 6));
    }
}

#[tokio::test]
async fn a_tpm_that_is_gone_is_named_and_nothing_else_is_tried() {
    let mut world = World::new().await;
    let mut node = world.node();
    join(&mut node).await.unwrap();
    Arc::get_mut(&mut world.swtpm).unwrap().stop();
    // The handshake can't be signed.
    let failure = heartbeat::send(&mut node, &mut Identities::default()).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Tpm);
    assert!(failure.message.contains("nobody answers"), "{failure}");
    let failure = renew::attempt(&mut node).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Tpm);
    assert!(failure.to_string().contains("(transient, exit code 20)"), "{failure}");
    assert_eq!((node.stored.state.name(), world.bodies().len()), ("enrolled", 1));
}

#[tokio::test]
async fn a_corrected_way_to_the_tpm_counts_once_the_settings_are_read_again() {
    let world = World::new().await;
    let mut node = world.node();
    join(&mut node).await.unwrap();
    let right = node.settings.clone();
    let mut settings = right.clone();
    settings.tcti = Tcti::parse("device:/nonexistent/tpmrm0").unwrap();
    node.apply(settings, world.machine.sources()).unwrap();
    let failure = heartbeat::send(&mut node, &mut Identities::default()).await.unwrap_err();
    assert_eq!(failure.exit, Exit::Tpm);
    assert!(failure.message.contains("/nonexistent/tpmrm0"), "{failure}");
    let mut settings = right;
    node.apply(settings.clone(), world.machine.sources()).unwrap();
    heartbeat::send(&mut node, &mut Identities::default()).await.unwrap();
    renew::attempt(&mut node).await.unwrap();
    // What can't be met changes nothing.
    settings.tpm = TpmMode::Off;
    assert!(node.apply(settings, world.machine.sources()).unwrap_err().message.contains("tpm"));
    assert_eq!(node.settings.tpm, TpmMode::Required);
    heartbeat::send(&mut node, &mut Identities::default()).await.unwrap();
}
