//! A life from the join to its end, by hand: what is next, when, and what comes of it.

use super::*;
use crate::testing::{Fault, Machine, Relay, token};
use shared::problem::{Code, Problem, Reason};

/// Does what is next; answers what it was.
async fn live(life: &mut Life) -> Action {
    let (_, action) = life.next().unwrap();
    life.act(action).await;
    action
}

fn wait(life: &Life, machine: &Machine) -> (u64, Action) {
    let (at, action) = life.next().unwrap();
    (at.saturating_sub(*machine.host.boot.lock().unwrap()).as_secs(), action)
}

async fn enrolled(relay: &Relay, machine: &Machine) -> Life {
    let mut life = Life::new(machine.node(relay));
    for action in [Action::Join, Action::Heartbeat, Action::Secrets] {
        assert_eq!(live(&mut life).await, action);
    }
    life
}

#[tokio::test]
async fn it_joins_beats_and_renews_in_time_on_one_connection_each() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = enrolled(&relay, &machine).await;
    assert!(life.is_ready());
    assert_eq!(life.secrets.as_ref().unwrap().len(), 1);
    let (seconds, action) = wait(&life, &machine);
    assert_eq!(action, Action::Heartbeat);
    assert!((54..=66).contains(&seconds), "{seconds}");
    machine.host.pass(66);
    assert_eq!(live(&mut life).await, Action::Heartbeat);
    // Three quarters of an hour later the renewal must be due.
    machine.host.pass(2700);
    assert_eq!(live(&mut life).await, Action::Renew);
    assert_eq!(live(&mut life).await, Action::Heartbeat);
    let calls = relay.calls();
    let connections: Vec<_> =
        calls.iter().map(|call| (call.path.rsplit('/').next().unwrap(), call.connection)).collect();
    assert_eq!(
        connections,
        [("join", 0), ("heartbeat", 1), ("secrets", 1), ("heartbeat", 1), ("renew", 1), ("heartbeat", 2)]
    );
    let shown = |at: usize| calls[at].shown.clone().unwrap();
    assert_eq!(shown(3), shown(4), "the renewal goes by the old certificate");
    assert_ne!(shown(4), shown(5), "the next heartbeat uses the new one");
    assert!(calls[1].bearer.is_none(), "the token goes to the join and nowhere else");
    assert_eq!(relay.issued(), 2);
    // The identity was told by the join; it is no news.
    assert!(calls[1].body.get("identity").is_none());
    assert!(calls[1].body["bootId"].is_string());
}

#[tokio::test]
async fn a_restart_asks_for_nothing_but_a_heartbeat() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    drop(enrolled(&relay, &machine).await);
    let life = Life::new(machine.node(&relay));
    assert_eq!(wait(&life, &machine), (0, Action::Heartbeat));
    assert!(!life.is_ready(), "not before the relay has said so");
    assert_eq!(relay.issued(), 1);
}

#[tokio::test]
async fn a_failing_relay_is_tried_for_ever_and_readiness_goes() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = enrolled(&relay, &machine).await;
    machine.host.pass(70);
    for _ in 0..20 {
        relay.refuse(Problem::new(Code::Unavailable, "later").retry_after(3));
        assert_eq!(live(&mut life).await, Action::Heartbeat);
        assert!(!life.is_ready());
        let (seconds, _) = wait(&life, &machine);
        assert!((2..=300).contains(&seconds), "{seconds}");
        machine.host.pass(seconds + 1);
    }
    assert!(life.status(life.next()).reason.unwrap().contains("later"));
    live(&mut life).await;
    assert!(life.is_ready());
}

#[tokio::test]
async fn a_lost_renewal_is_repeated_with_the_same_request() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = enrolled(&relay, &machine).await;
    machine.host.pass(2700);
    relay.fault(Fault::DropAnswer);
    relay.fault(Fault::DropAnswer);
    assert_eq!(live(&mut life).await, Action::Renew);
    drop(life);
    let mut life = Life::new(machine.node(&relay));
    machine.host.pass(400);
    assert_eq!(live(&mut life).await, Action::Renew);
    assert_eq!(relay.issued(), 2);
    let serial = life.node.enrolled().unwrap().serial.clone();
    assert!(life.node.enrolled().unwrap().renewal_csr.is_none());
    let again = Life::new({
        drop(life);
        machine.node(&relay)
    });
    assert_eq!(again.node.enrolled().unwrap().serial, serial);
}

#[tokio::test]
async fn the_relay_can_ask_for_a_renewal_but_not_for_a_loop() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = enrolled(&relay, &machine).await;
    machine.host.pass(66);
    relay.want_renewal();
    assert_eq!(live(&mut life).await, Action::Heartbeat);
    // A minute after the certificate was issued, by the clock of the relay, which does not run with ours.
    machine.host.pass(66);
    assert_eq!(live(&mut life).await, Action::Renew);
    relay.want_renewal();
    assert_eq!(live(&mut life).await, Action::Heartbeat);
    assert_eq!(live(&mut life).await, Action::Secrets);
    let (seconds, _) = wait(&life, &machine);
    assert!(seconds >= 54, "no renewal within a minute: {seconds}");
}

#[tokio::test]
async fn an_expired_certificate_is_renewed_else_the_machine_joins_again() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    relay.certificates_live(3600);
    let life = enrolled(&relay, &machine).await;
    drop(life);
    machine.host.pass(4000);
    // The clock of the fake relay is the real one, so its TLS still takes the certificate: what it says is up to us.
    let mut life = Life::new(machine.node(&relay));
    assert!(!life.node.has_valid_certificate() && !life.is_ready());
    relay.refuse(Problem::new(Code::Unauthenticated, "beyond the grace"));
    assert_eq!(live(&mut life).await, Action::Renew);
    assert_eq!(life.node.stored.state.name(), "enrolled", "kept until there is something better");
    assert_eq!(live(&mut life).await, Action::Join);
    assert_eq!(life.node.stored.state.name(), "enrolled");
    let join = relay.calls().pop().unwrap();
    assert!(join.path.ends_with("join") && join.shown.is_none() && join.bearer.is_some());
}

#[tokio::test]
async fn without_a_token_an_expired_machine_demands_one_and_goes_on_when_it_comes() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    drop(enrolled(&relay, &machine).await);
    machine.host.pass(4000);
    let mut life = Life::new(machine.node(&relay));
    life.node.tokens = Sources::default();
    relay.refuse(Problem::new(Code::Unauthenticated, "beyond the grace"));
    live(&mut life).await;
    assert_eq!(live(&mut life).await, Action::Join);
    assert!(life.status(life.next()).reason.unwrap().contains("no join token"));
    assert_eq!(life.node.stored.state.name(), "enrolled");
    life.node.tokens = machine.sources();
    machine.host.pass(10);
    live(&mut life).await;
    assert!(life.is_ready());
}

#[tokio::test]
async fn a_ban_ends_it_drops_the_secrets_and_keeps_the_evidence() {
    for (reason, code) in [(Reason::NodeBanned, 15), (Reason::NodeReleased, 17), (Reason::Superseded, 17)] {
        let (relay, mut machine) = (Relay::start().await, Machine::new());
        let mut life = enrolled(&relay, &machine).await;
        machine.host.pass(70);
        relay.refuse(Problem::refused(reason, "by an admin"));
        live(&mut life).await;
        assert_eq!(life.next(), None);
        assert!(life.secrets.is_none() && !life.is_ready());
        assert_eq!(life.verdict().exit.code(), code);
        assert!(machine.folder.path().join("state/node.crt").exists());
        let State::Final(over) = &life.node.stored.state else { panic!() };
        assert!(over.node.is_some());
        drop(life);
        // The same token does not revive it; another one does. A ban is asked about first.
        let over = async |machine: &Machine| {
            let mut life = Life::new(machine.node(&relay));
            if reason == Reason::NodeBanned {
                relay.refuse(Problem::refused(reason, "by an admin"));
                assert_eq!(live(&mut life).await, Action::Ask);
            }
            life
        };
        let life = over(&machine).await;
        assert_eq!(life.next(), None);
        drop(life);
        machine.token = token(2);
        let life = over(&machine).await;
        assert_eq!(life.next().unwrap().1, Action::Join);
    }
}

/// A life whose settings say to wait when it is over, after this refusal of its next heartbeat.
async fn waiting(relay: &Relay, machine: &Machine, reason: Reason) -> Life {
    let mut life = enrolled(relay, machine).await;
    life.node.settings.when_final = WhenFinal::Wait;
    machine.host.pass(70);
    relay.refuse(Problem::refused(reason, "by an admin"));
    live(&mut life).await;
    life
}

#[tokio::test]
async fn one_that_waits_when_it_is_over_goes_on_with_another_token_and_no_other_call() {
    let (relay, mut machine) = (Relay::start().await, Machine::new());
    let mut life = waiting(&relay, &machine, Reason::NodeReleased).await;
    let calls = relay.calls().len();
    for _ in 0..3 {
        assert!(life.is_over() && !life.is_ready());
        assert_eq!(live(&mut life).await, Action::Look);
        let status = life.status(life.next());
        assert!(status.reason.unwrap().contains("by an admin") && status.next.contains("waits"));
        let (seconds, _) = wait(&life, &machine);
        assert_eq!(seconds, LOOK_EVERY.as_secs());
        machine.host.pass(seconds);
    }
    assert_eq!(relay.calls().len(), calls, "the same token asks nobody");
    machine.token = token(2);
    life.node.tokens = machine.sources();
    assert_eq!(live(&mut life).await, Action::Look);
    assert_eq!(live(&mut life).await, Action::Join);
    assert_eq!(live(&mut life).await, Action::Heartbeat);
    assert!(life.is_ready());
}

#[tokio::test]
async fn one_that_waits_after_a_ban_asks_ever_more_rarely_and_sees_its_end() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = waiting(&relay, &machine, Reason::NodeBanned).await;
    for _ in 0..12 {
        assert_eq!(live(&mut life).await, Action::Look);
        relay.refuse(Problem::refused(Reason::NodeBanned, "by an admin"));
        assert_eq!(live(&mut life).await, Action::Ask);
        let (seconds, action) = wait(&life, &machine);
        assert!(seconds <= 300 && action == Action::Look && life.is_over(), "{seconds}");
        machine.host.pass(seconds);
    }
    assert_eq!(live(&mut life).await, Action::Look);
    assert_eq!(live(&mut life).await, Action::Ask);
    machine.host.pass(1);
    while live(&mut life).await != Action::Heartbeat {}
    assert!(life.is_ready());
    assert_eq!(relay.calls().iter().filter(|call| call.path.ends_with("join")).count(), 1);
}

#[tokio::test]
async fn a_ban_is_asked_about_at_each_start_and_its_end_costs_no_token() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = enrolled(&relay, &machine).await;
    machine.host.pass(70);
    let banned = || Problem::refused(Reason::NodeBanned, "by an admin");
    relay.refuse(banned());
    live(&mut life).await;
    assert_eq!(life.next(), None);
    drop(life);
    // Still banned: one question, and it is over again.
    relay.refuse(banned());
    let mut life = Life::new(machine.node(&relay));
    assert!(!life.is_ready());
    assert_eq!(live(&mut life).await, Action::Ask);
    assert_eq!((life.next(), life.verdict().exit.code()), (None, 15));
    drop(life);
    // A relay that is not there has not ended it.
    relay.fault(Fault::Garbage);
    let mut life = Life::new(machine.node(&relay));
    live(&mut life).await;
    assert_eq!(life.node.stored.state.name(), "final");
    assert!(!life.is_ready() && life.next().is_some());
    machine.host.pass(10);
    assert_eq!(live(&mut life).await, Action::Ask);
    assert_eq!(life.node.stored.state.name(), "enrolled");
    assert_eq!(live(&mut life).await, Action::Heartbeat);
    assert!(life.is_ready());
    let joins = relay.calls().iter().filter(|call| call.path.ends_with("join")).count();
    assert_eq!((joins, relay.issued()), (1, 1));
}

#[tokio::test]
async fn a_ban_that_outlived_its_certificate_ends_by_a_renewal_else_by_a_join() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = enrolled(&relay, &machine).await;
    machine.host.pass(70);
    relay.refuse(Problem::refused(Reason::NodeBanned, "by an admin"));
    live(&mut life).await;
    drop(life);
    machine.host.pass(4000);
    let mut life = Life::new(machine.node(&relay));
    assert_eq!(live(&mut life).await, Action::Ask);
    assert!(!life.node.has_valid_certificate(), "nobody takes it for joined");
    assert_eq!(live(&mut life).await, Action::Renew);
    assert_eq!(relay.issued(), 2);
    drop(life);
    // A join that was refused by a ban has no certificate to ask with.
    let machine = Machine::new();
    let mut life = Life::new(machine.node(&relay));
    relay.refuse(Problem::refused(Reason::NodeBanned, "its key"));
    assert_eq!(live(&mut life).await, Action::Join);
    assert_eq!(life.next(), None);
    drop(life);
    let mut life = Life::new(machine.node(&relay));
    assert_eq!(live(&mut life).await, Action::Ask);
    assert_eq!(live(&mut life).await, Action::Join);
    assert_eq!(life.node.stored.state.name(), "enrolled");
}

#[tokio::test]
async fn why_it_failed_is_known_after_the_daemon_and_forgotten_when_it_goes_well() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = Life::new(machine.node(&relay));
    relay.refuse(Problem::refused(Reason::TokenExhausted, "all uses are spent."));
    live(&mut life).await;
    drop(life);
    let on_disk = || Status::of(&crate::state::read(&machine.settings(&relay).state_dir).unwrap());
    let reason = on_disk().reason.unwrap();
    assert!(reason.contains("all uses are spent (tokenExhausted)"), "{reason}");
    let mut life = Life::new(machine.node(&relay));
    live(&mut life).await;
    drop(life);
    assert_eq!((on_disk().state.as_str(), on_disk().reason), ("enrolled", None));
}

#[tokio::test]
async fn a_waiting_machine_asks_when_it_was_told_to_even_after_a_restart() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = Life::new(machine.node(&relay));
    relay.fault(Fault::Defer);
    live(&mut life).await;
    let (seconds, action) = wait(&life, &machine);
    assert!((29..=33).contains(&seconds) && action == Action::Join, "{seconds}");
    assert!(life.status(life.next()).reason.unwrap().contains("jr_"));
    drop(life);
    machine.host.pass(10);
    let life = Life::new(machine.node(&relay));
    let (seconds, _) = wait(&life, &machine);
    assert!((18..=20).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_suspension_is_noticed_and_a_stepped_clock_is_not() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let life = enrolled(&relay, &machine).await;
    let before = life.next();
    *machine.host.wall.lock().unwrap() = Timestamp::from_seconds(0);
    assert_eq!(life.next(), before);
    assert!(life.is_ready());
    machine.host.pass(3000);
    assert_eq!(life.next().unwrap().1, Action::Renew);
    assert_eq!(wait(&life, &machine).0, 0);
}

#[tokio::test]
async fn a_tenants_node_is_denied_secrets_once_and_lives_on() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = Life::new(machine.node(&relay));
    live(&mut life).await;
    live(&mut life).await;
    relay.refuse(Problem::new(Code::PermissionDenied, "not for this node"));
    assert_eq!(live(&mut life).await, Action::Secrets);
    assert!(life.secrets.is_none());
    assert_eq!(life.next().unwrap().1, Action::Heartbeat);
}
