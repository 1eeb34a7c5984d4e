//! Signs that a node is not what it was, or is two: told to people by event and condition, never a reason to stop it.
//!
//! A copied disk is two machines with one key. They show by a boot id that comes back after another one was seen, and by
//! a call with a certificate, however old, of which a later one is in use. Addresses say nothing: machines move.

use crate::{
    ca::PeerCertificate,
    call::Call,
    events::{Event, Kind, Origin},
    facts::NodeFacts,
    fault::Fault,
    store::{
        Tx, certificates, events, identities,
        node_conditions::{self, CLONE_SUSPECTED, IDENTITY_DRIFT},
        nodes::{self, Signs},
    },
};
use serde_json::json;
use shared::{hardware::Machine, id::NodeId};

/// How many boot ids before the present one are remembered.
const MAX_EARLIER: usize = 8;
/// How long after a later one was first used an old certificate may still call, in seconds: a retry that crossed the answer.
const CROSSING_SECONDS: i64 = 120;

/// What a boot id says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Boot {
    /// The machine runs on.
    Same,
    /// It was started anew; these were seen before, the latest first.
    New(Vec<String>),
    /// This one was seen before another: two machines, or one that was set back.
    Returned(Vec<String>),
}

/// Judges a boot id by those that were seen. Pure.
#[must_use]
pub fn boot(present: Option<&str>, earlier: &[String], seen: &str) -> Boot {
    let Some(present) = present else { return Boot::New(Vec::new()) };
    if present == seen {
        return Boot::Same;
    }
    let rest = earlier.iter().filter(|id| *id != seen && *id != present).cloned();
    let now: Vec<String> = std::iter::once(present.to_owned()).chain(rest).take(MAX_EARLIER).collect();
    if earlier.iter().any(|id| id == seen) { Boot::Returned(now) } else { Boot::New(now) }
}

/// The members in which a machine differs from what it said when it joined, as the wire spells them. The host's name is for
/// people. Pure.
#[must_use]
pub fn drift(joined: &Machine, seen: &Machine) -> Vec<&'static str> {
    let members = [
        ("productUuid", joined.product_uuid != seen.product_uuid),
        ("serial", joined.serial != seen.serial),
        ("sku", joined.sku != seen.sku),
        ("macs", joined.macs != seen.macs),
        ("gpuUuids", joined.gpu_uuids != seen.gpu_uuids),
    ];
    members.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
}

/// What a heartbeat says beside that the machine lives.
pub struct Seen {
    /// The kernel's boot id.
    pub boot_id: Option<String>,
    /// The machine as it is now.
    pub machine: Option<Machine>,
}

/// Notes what is news in a heartbeat. Most have none, and cost nothing.
///
/// # Errors
/// The store's.
pub async fn note(call: &Call, node: &NodeFacts, seen: Seen) -> Result<(), Fault> {
    let other_boot = seen.boot_id.is_some() && seen.boot_id != node.boot_id;
    if !other_boot && seen.machine.is_none() {
        return Ok(());
    }
    call.relay
        .store
        .transact("node.signs", (call, &node.id, &seen), |tx, (call, id, seen)| {
            Box::pin(note_news(tx, call, id, seen))
        })
        .await
}

async fn note_news(tx: &mut Tx<'_>, call: &Call, id: &NodeId, seen: &Seen) -> Result<(), Fault> {
    identities::lock_of(tx, id).await?;
    let Some(known) = nodes::lock_signs(tx, id).await? else { return Ok(()) };
    if let Some(boot_id) = &seen.boot_id {
        match boot(known.boot_id.as_deref(), &known.earlier_boot_ids, boot_id) {
            Boot::Same => {}
            Boot::New(earlier) => nodes::set_boot(tx, id, boot_id, &earlier).await?,
            Boot::Returned(earlier) => {
                nodes::set_boot(tx, id, boot_id, &earlier).await?;
                let message = "a boot id came back after another one was seen: two machines share this node's key, or \
                    one was set back to an older state";
                suspect_clone(tx, call, &known, message).await?;
            }
        }
    }
    match &seen.machine {
        Some(machine) => note_identity(tx, call, &known, machine).await,
        None => Ok(()),
    }
}

async fn note_identity(tx: &mut Tx<'_>, call: &Call, known: &Signs, machine: &Machine) -> Result<(), Fault> {
    let joined = Machine::judge(&known.identity);
    let differs = *machine != joined;
    let news = differs.then(|| machine.to_identity());
    if news == known.seen_identity {
        return Ok(());
    }
    nodes::set_seen(tx, &known.id, news.as_ref()).await?;
    let members = drift(&joined, machine);
    if members.is_empty() {
        return Ok(node_conditions::clear(tx, &known.id, IDENTITY_DRIFT).await?);
    }
    let mut message = format!("differs from what it said when it joined: {}", members.join(", "));
    if joined.product_uuid.usable().is_some_and(|uuid| machine.product_uuid.is_swapped(uuid)) {
        message.push_str(" (the product UUID is the same in the other byte order)");
    }
    node_conditions::set(tx, &known.id, IDENTITY_DRIFT, &message, call.now).await?;
    let data = json!({"poolId": known.pool_id, "members": members, "seen": news});
    tell(tx, call, known, Kind::NodeIdentityDrift, data).await
}

/// Notes that a node may be two machines; tells it once.
async fn suspect_clone(tx: &mut Tx<'_>, call: &Call, known: &Signs, message: &str) -> Result<(), Fault> {
    if node_conditions::set(tx, &known.id, CLONE_SUSPECTED, message, call.now).await? {
        let data = json!({"poolId": known.pool_id, "why": message, "remoteAddress": call.remote});
        tell(tx, call, known, Kind::NodeCloneSuspected, data).await?;
    }
    Ok(())
}

/// Notes that a certificate called, and was refused as superseded, of which a later one has been in use for a while. In a
/// transaction of its own: that of the call was rolled back.
///
/// # Errors
/// The store's.
pub async fn note_overtaken(call: &Call, peer: &PeerCertificate) -> Result<(), Fault> {
    let store = &call.relay.store;
    // Who calls again and again is told of once, and changes nothing then.
    if !store
        .read("node.overtaken", (call, peer), |tx, (call, peer)| Box::pin(is_news(tx, call, peer)))
        .await?
    {
        return Ok(());
    }
    store.transact("node.signs", (call, peer), |tx, (call, peer)| Box::pin(note_copy(tx, call, peer))).await
}

async fn is_news(tx: &mut Tx<'_>, call: &Call, peer: &PeerCertificate) -> Result<bool, Fault> {
    let used_by = call.now.plus_seconds(-CROSSING_SECONDS);
    Ok(certificates::overtaken(tx, &peer.serial, &peer.node, used_by).await?
        && !node_conditions::has(tx, &peer.node, CLONE_SUSPECTED).await?)
}

async fn note_copy(tx: &mut Tx<'_>, call: &Call, peer: &PeerCertificate) -> Result<(), Fault> {
    identities::lock_of(tx, &peer.node).await?;
    let Some(known) = nodes::lock_signs(tx, &peer.node).await? else { return Ok(()) };
    if !is_news(tx, call, peer).await? {
        return Ok(());
    }
    let message = "a certificate called of which a later one is in use: two machines share this node's key, or one was set \
        back to an older state";
    suspect_clone(tx, call, &known, message).await
}

async fn tell(
    tx: &mut Tx<'_>,
    call: &Call,
    known: &Signs,
    kind: Kind,
    data: serde_json::Value,
) -> Result<(), Fault> {
    let origin = Origin { actor: known.id.to_string(), request_id: call.request_id.clone(), at: call.now };
    let event = Event { kind, tenant: &known.tenant_id, subject: known.id.as_str(), data };
    Ok(events::insert(tx, &call.relay.random, &origin, &event).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::hardware::{Claim, Identity};

    #[test]
    fn a_boot_id_that_comes_back_is_a_sign_and_a_restart_is_none() {
        let ids = |all: &[&str]| all.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
        for (present, earlier, seen, expected) in [
            (None, &[][..], "a", Boot::New(vec![])),
            (Some("a"), &[], "a", Boot::Same),
            (Some("a"), &[], "b", Boot::New(ids(&["a"]))),
            (Some("b"), &["a"], "c", Boot::New(ids(&["b", "a"]))),
            (Some("b"), &["a"], "a", Boot::Returned(ids(&["b"]))),
            (Some("a"), &["b"], "b", Boot::Returned(ids(&["a"]))),
        ] {
            assert_eq!(boot(present, &ids(earlier), seen), expected, "{present:?} {earlier:?} {seen}");
        }
        let many: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        let Boot::New(kept) = boot(Some("x"), &many, "y") else { panic!("it is new") };
        assert_eq!(kept.len(), MAX_EARLIER);
    }

    #[test]
    fn a_swapped_board_and_card_are_drift_and_a_new_name_is_none() {
        let machine = |serial: &str, gpu: &[&str], hostname: &str| {
            Machine::judge(&Identity {
                serial: Some(serial.into()),
                gpu_uuids: gpu.iter().map(|gpu| (*gpu).to_owned()).collect(),
                hostname: Some(hostname.into()),
                ..Identity::default()
            })
        };
        let gpus = ["GPU-00112233-4455-6677-8899-aabbccddeeff"];
        let joined = machine("A", &gpus, "one");
        assert!(drift(&joined, &machine("A", &gpus, "two")).is_empty());
        assert_eq!(drift(&joined, &machine("B", &[], "one")), ["serial", "gpuUuids"]);
        let odd = Machine { serial: Claim::Placeholder("None".into()), ..joined.clone() };
        assert_eq!(drift(&joined, &odd), ["serial"]);
    }
}
