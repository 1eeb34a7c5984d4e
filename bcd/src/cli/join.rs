//! `bcd join`: joins once, or until a person has decided; says of a machine that has joined whether that still counts.

use super::{Flags, print};
use crate::{
    backoff::{Backoff, MAX_ASKED},
    ban,
    config::Settings,
    failure::{Exit, Failure},
    heartbeat,
    host::{Host as _, System, fraction},
    identity::Report,
    join,
    node::Node,
    renew,
    state::State,
    status,
    timer::wait_until,
};
use std::time::Duration;

/// How long the relay may take to say whether it still takes a machine that has joined. The workload waits for it at boot.
const ASK_LIMIT: Duration = Duration::from_secs(10);

/// Joins, and prints the node's id or what to do next.
pub(super) async fn run(flags: &Flags, settings: Settings, wait: bool) -> Result<Exit, Failure> {
    let mut node = match flags.node(settings.clone()) {
        Ok(node) => node,
        Err(failure) => return joined_by_daemon(&settings).await.map_or(Err(failure), |id| print(&id)),
    };
    join::begin_anew(&mut node)?;
    let mut backoff = Backoff::default();
    loop {
        let failure = match once(&mut node).await {
            Ok(()) => {
                let id = node.enrolled().map(|node| node.node_id.to_string());
                return print(&id.unwrap_or_default());
            }
            Err(failure) => failure,
        };
        node.note(&failure);
        if failure.exit == Exit::Waiting {
            print(&failure.message)?;
        }
        if !wait || failure.is_final() {
            return if failure.exit == Exit::Waiting { Ok(failure.exit) } else { Err(failure) };
        }
        let dice = fraction(&*node.host);
        let pause = match failure.exit {
            Exit::Waiting => failure.retry_after.unwrap_or_default().clamp(Duration::from_secs(1), MAX_ASKED),
            _ => backoff.fail(dice, failure.retry_after),
        };
        tracing::warn!(again_in_seconds = pause.as_secs(), "{failure}");
        let until = System.boot() + pause;
        wait_until(until, &System).await.map_err(|error| Failure::new(Exit::Transient, error))?;
    }
}

/// The node's id, where a daemon has joined already: it alone may use the state.
async fn joined_by_daemon(settings: &Settings) -> Option<String> {
    let status = status::ask(settings.socket.as_deref()?).await.ok()?;
    let is_good = status.cert_not_after.is_some_and(|end| end > System.wall());
    status.node_id.filter(|_| status.state == "enrolled" && is_good)
}

/// A machine with a good certificate is joined already, unless the relay says otherwise; one whose certificate has ended or
/// is taken no more renews it, or joins again with the same key. One that was banned asks first whether it still is.
async fn once(node: &mut Node) -> Result<(), Failure> {
    let was_banned = ban::is_banned(&node.stored.state);
    if was_banned {
        ban::ask(node).await?;
    }
    if node.has_valid_certificate() && (was_banned || still_counts(node).await?) {
        return Ok(());
    }
    if node.enrolled().is_some() {
        match renew::attempt(node).await {
            Err(failure) if failure.is_unknown_certificate() => {
                tracing::warn!("{failure}; joining again with the same key");
            }
            result => return result,
        }
    }
    let identity = Report::gather(&node.settings.places).to_claim();
    join::attempt(node, identity).await.map(drop)
}

/// Whether the relay takes the certificate of a machine that has joined, by one request. It has joined all the same where
/// the relay can't be asked.
async fn still_counts(node: &mut Node) -> Result<bool, Failure> {
    let why = match tokio::time::timeout(ASK_LIMIT, heartbeat::ask(node)).await {
        Ok(Ok(())) => return Ok(true),
        Ok(Err(failure)) if failure.is_unknown_certificate() => {
            tracing::warn!("{failure}");
            return Ok(false);
        }
        // A key that does not sign is of no use to a node.
        Ok(Err(failure)) if matches!(node.stored.state, State::Final(_)) || failure.exit == Exit::Tpm => {
            return Err(failure);
        }
        Ok(Err(failure)) => failure.message,
        Err(_) => format!("no answer within {} s", ASK_LIMIT.as_secs()),
    };
    tracing::warn!("joined already; whether that still counts the relay could not be asked: {why}");
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Fault, Machine, Relay};
    use shared::{
        hardware::Identity,
        problem::{Code, Problem, Reason},
    };

    async fn joined(relay: &Relay, machine: &Machine) -> Node {
        let mut node = machine.node(relay);
        join::attempt(&mut node, Identity::default()).await.unwrap();
        node
    }

    #[tokio::test]
    async fn a_machine_that_has_joined_asks_once_and_says_nothing_of_what_it_is() {
        let (relay, machine) = (Relay::start().await, Machine::new());
        let mut node = joined(&relay, &machine).await;
        once(&mut node).await.unwrap();
        let calls = relay.calls();
        assert!(calls.len() == 2 && calls[1].path.ends_with("heartbeat") && calls[1].bearer.is_none());
        // Nobody has looked for GPUs: that there are none would be taken for news.
        assert!(calls[1].body.get("identity").is_none());
        assert_eq!(relay.issued(), 1);
    }

    #[tokio::test]
    async fn what_the_relay_has_ended_is_no_join() {
        for (reason, exit) in [(Reason::NodeReleased, Exit::Released), (Reason::NodeBanned, Exit::Banned)] {
            let (relay, machine) = (Relay::start().await, Machine::new());
            let mut node = joined(&relay, &machine).await;
            relay.refuse(Problem::refused(reason, "by an admin"));
            assert_eq!(once(&mut node).await.unwrap_err().exit, exit);
            assert_eq!(node.stored.state.name(), "final", "and that is written down");
            assert_eq!(relay.issued(), 1, "no token was tried");
        }
    }

    #[tokio::test]
    async fn a_relay_that_cannot_be_asked_changes_nothing() {
        let (relay, machine) = (Relay::start().await, Machine::new());
        let mut node = joined(&relay, &machine).await;
        relay.fault(Fault::Garbage);
        once(&mut node).await.unwrap();
        relay.refuse(Problem::new(Code::Unavailable, "later").retry_after(3));
        once(&mut node).await.unwrap();
        assert_eq!((node.stored.state.name(), relay.issued()), ("enrolled", 1));
    }

    #[tokio::test]
    async fn a_certificate_that_the_relay_does_not_know_is_exchanged() {
        let (relay, machine) = (Relay::start().await, Machine::new());
        let mut node = joined(&relay, &machine).await;
        relay.refuse(Problem::new(Code::Unauthenticated, "unknown"));
        once(&mut node).await.unwrap();
        assert!(relay.calls().pop().unwrap().path.ends_with("renew"));
        assert_eq!(relay.issued(), 2);
    }
}
