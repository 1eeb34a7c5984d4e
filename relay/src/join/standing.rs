//! Whether a machine's certificate still counts: judged at every request, not at the handshake.

use crate::{
    ca::PeerCertificate,
    call::{Call, unauthenticated},
    facts::{Identity, IdentityKind, NodeFacts},
    fault::Fault,
    store::{
        Tx, certificates,
        identities::{self, Claimed},
        nodes,
    },
};
use shared::{
    api::nodes::NodeState,
    hex,
    problem::{Problem, Reason},
    time::Timestamp,
};

/// What a certificate is to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The one in use.
    Current,
    /// The one that was issued and is used now for the first time.
    Next,
    /// None of them any more, or never.
    Other,
}

/// Judges a certificate by its node's row. Pure.
///
/// # Errors
/// `nodeBanned` or `nodeReleased`.
pub fn judge(serial: &str, node: &NodeFacts) -> Result<Standing, Problem> {
    match node.state {
        NodeState::Banned => return Err(banned()),
        NodeState::Released => return Err(released()),
        NodeState::Live => {}
    }
    if serial == node.current_serial {
        Ok(Standing::Current)
    } else if node.next_serial.as_deref() == Some(serial) {
        Ok(Standing::Next)
    } else {
        Ok(Standing::Other)
    }
}

/// Whether the time of a certificate is not over, `grace_seconds` included. Pure.
#[must_use]
pub fn in_time(peer: &PeerCertificate, now: Timestamp, grace_seconds: i64) -> bool {
    now <= peer.not_after.plus_seconds(grace_seconds)
}

/// The refusal of a banned node.
#[must_use]
pub fn banned() -> Problem {
    let detail = "The node is banned; only an operator can end that (relay nodes unban).";
    Problem::refused(Reason::NodeBanned, detail)
}

/// The refusal of a released node.
#[must_use]
pub fn released() -> Problem {
    let detail = "The node was released; reset bcd and join again with a new token.";
    Problem::refused(Reason::NodeReleased, detail)
}

/// The refusal of a certificate or join that a later one has overtaken.
#[must_use]
pub fn superseded() -> Problem {
    let detail = "A later join or renewal of this node has overtaken this one; reset bcd and join again.";
    Problem::refused(Reason::Superseded, detail)
}

/// The node behind a certificate in time, as it is now. The first use of the next certificate makes it the one in use.
///
/// # Errors
/// nodeBanned, nodeReleased, superseded, else UNAUTHENTICATED.
pub async fn require(call: &Call) -> Result<NodeFacts, Fault> {
    let peer = call.peer()?;
    if !in_time(peer, call.now, 0) {
        return Err(unauthenticated().into());
    }
    let store = &call.relay.store;
    // Nearly all calls come with the certificate in use, which the row alone shows.
    let node = call.relay.lookups.find(store, &peer.node).await?.ok_or_else(unauthenticated)?;
    if judge(&peer.serial, &node)? == Standing::Current {
        return Ok(node);
    }
    let (node, standing) =
        store.read("node.standing", peer, |tx, peer| Box::pin(stand(tx, peer, false))).await?;
    if standing == Standing::Current {
        return Ok(node);
    }
    store
        .transact("node.promote", (peer, call.now), |tx, (peer, now)| {
            Box::pin(async move {
                let (node, standing) = stand(tx, peer, true).await?;
                promote(tx, peer, node, standing, *now).await
            })
        })
        .await
}

/// Whether a certificate is one of a node that may call: what is asked before it is told what is wrong with its input.
///
/// # Errors
/// nodeBanned, nodeReleased, superseded, else UNAUTHENTICATED.
pub async fn known(tx: &mut Tx<'_>, peer: &PeerCertificate) -> Result<(), Fault> {
    let node = nodes::find(tx, &peer.node).await?.ok_or_else(unauthenticated)?;
    if judge(&peer.serial, &node)? == Standing::Other { Err(superseded().into()) } else { Ok(()) }
}

/// The node behind a certificate, and what the certificate is to it.
///
/// # Errors
/// nodeBanned, nodeReleased, superseded, else UNAUTHENTICATED.
pub async fn stand(
    tx: &mut Tx<'_>,
    peer: &PeerCertificate,
    lock: bool,
) -> Result<(NodeFacts, Standing), Fault> {
    let node = if lock {
        // Identities before nodes: the order of every change.
        identities::lock_of(tx, &peer.node).await?;
        nodes::lock(tx, &peer.node).await?
    } else {
        nodes::find(tx, &peer.node).await?
    };
    let node = node.ok_or_else(unauthenticated)?;
    match judge(&peer.serial, &node)? {
        Standing::Other => {
            let issued = certificates::find(tx, &peer.serial).await?;
            let ours = issued.is_some_and(|issued| issued.node == node.id);
            Err(if ours { superseded() } else { unauthenticated() }.into())
        }
        standing => Ok((node, standing)),
    }
}

/// Makes a node the holder of a key. A ban is looked at once the key is held: one that comes later bans this node.
///
/// # Errors
/// `identityTaken` if another node holds it, `nodeBanned` if a ban covers it.
pub async fn hold_key(tx: &mut Tx<'_>, node: &NodeFacts, key_sha256: &str) -> Result<(), Fault> {
    let key = Identity { kind: IdentityKind::Key, value: key_sha256.to_owned() };
    // A node that was admitted with a key that another tenant's node holds goes on with it.
    if !identities::hold(tx, &node.site_id, &key, &node.id).await? && key_sha256 != node.key_sha256 {
        let detail =
            "Another node holds this key; make a new key for this machine (bcd reset) and join again.";
        return Err(Problem::refused(Reason::IdentityTaken, detail).into());
    }
    let claimed = Claimed { key_sha256, ..Claimed::default() };
    match identities::banned(tx, &node.site_id, claimed).await? {
        Some(_) => Err(banned().into()),
        None => Ok(()),
    }
}

/// Makes the next certificate the one in use, once it has been used: its key is then the node's only one. The node's
/// row is locked.
///
/// # Errors
/// The store's; as [`hold_key`].
pub async fn promote(
    tx: &mut Tx<'_>,
    peer: &PeerCertificate,
    mut node: NodeFacts,
    standing: Standing,
    now: Timestamp,
) -> Result<NodeFacts, Fault> {
    if standing != Standing::Next {
        return Ok(node);
    }
    let key = hex::encode(&peer.key_digest);
    nodes::promote(tx, &node.id, &peer.serial, &key).await?;
    certificates::used(tx, &peer.serial, now).await?;
    hold_key(tx, &node, &key).await?;
    identities::free_other_keys(tx, &node.id, &key).await?;
    node.previous_serial = Some(std::mem::replace(&mut node.current_serial, peer.serial.clone()));
    node.next_serial = None;
    node.key_sha256 = key;
    Ok(node)
}
