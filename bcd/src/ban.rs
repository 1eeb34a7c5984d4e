//! After a ban: one question to the relay, with the certificate that was kept as evidence, whether it still holds.
//!
//! A ban is the relay's to end (`relay nodes unban`), so the stored verdict is asked about at each start of `bcd run` and
//! at each `bcd join`, and spends no token. Until the relay has said otherwise the state on disk stays final.

use crate::{
    failure::{Exit, Failure},
    heartbeat,
    node::Node,
    state::{Enrolled, Final, State},
};

/// Whether the state on disk is a ban, which the relay may have ended since.
#[must_use]
pub fn is_banned(state: &State) -> bool {
    matches!(state, State::Final(over) if over.exit == Exit::Banned.code())
}

/// The node that was banned, with its certificate, where there was one.
#[must_use]
pub fn kept(state: &State) -> Option<&Enrolled> {
    match state {
        State::Final(Final { node: Some(node), .. }) if is_banned(state) => Some(node),
        _ => None,
    }
}

/// Asks once. When it answers, the state is one from which the machine goes on: enrolled, if the relay takes its
/// certificate or that has ended meanwhile and is to be renewed; new, if there is none that the relay knows.
///
/// # Errors
/// Still banned, or another end (both are written down); or the relay was not reached, which changes nothing.
pub async fn ask(node: &mut Node) -> Result<(), Failure> {
    let Some(kept) = kept(&node.stored.state).cloned() else { return node.save(State::New) };
    if kept.expires_at > node.now() {
        match heartbeat::ask(node).await {
            Err(failure) if failure.is_unknown_certificate() => return node.save(State::New),
            result => result?,
        }
        tracing::info!(node = %kept.node_id, "the ban is over: the relay takes this node again");
    }
    node.resume(kept)
}
