//! What the ends of workflows do beside the machine's row: its identity, its node.

use super::{
    causes::Cause,
    ends::{self, Halt, save_last},
    facts::Machine,
};
use crate::{
    context::Context,
    crls,
    events::{Event, Kind, Origin},
    facts::{Identity as Anchor, IdentityKind},
    fault::Fault,
    seal::{KeyRing, Place},
    store::{StoreError, Tx, events, identifiers, identities, inventory, metal, node_views, nodes},
};
use serde_json::json;
use shared::{
    api::{
        inventory::{Identifiers, InventoryEntry},
        metal::LastError,
    },
    hardware::{Identity, Machine as Claims},
    id::NodeId,
    secret::Secret,
    time::Timestamp,
};

/// Who enters machines and releases nodes.
const ACTOR: &str = "relay";

/// Judges what a machine says that it is, and holds its identity for its node; why it may not be that, if so.
///
/// # Errors
/// The store's.
pub(super) async fn identity(
    tx: &mut Tx<'_>,
    machine: &Machine,
    now: Timestamp,
) -> Result<Option<LastError>, Fault> {
    if let Some(expected) = &machine.expect_serial {
        // Dell's service tag stands in the SKU as well.
        let said = [machine.identity.serial.as_ref(), machine.identity.sku.as_ref()];
        if !said.into_iter().flatten().any(|said| said == expected) {
            let message =
                "the machine's serial and SKU are both other ones than expectSerial; is it the right BMC?";
            return Ok(Some(Cause::IdentityMismatch.told_of(message)));
        }
    }
    let claimed = Identity {
        product_uuid: machine.identity.product_uuid.clone(),
        serial: machine.identity.serial.clone(),
        sku: machine.identity.sku.clone(),
        macs: machine.identity.macs.clone(),
        ..Identity::default()
    };
    let judged = Claims::judge(&claimed);
    // As a join has it: a serial number only where there is no usable UUID.
    let uuid = judged.product_uuid.usable().map(str::to_owned);
    let serial = judged.serial.usable().map(str::to_owned).filter(|_| uuid.is_none());
    let wanted: Vec<Anchor> = [(IdentityKind::ProductUuid, uuid), (IdentityKind::Serial, serial)]
        .into_iter()
        .filter_map(|(kind, value)| Some(Anchor { kind, value: value? }))
        .collect();
    for held in identities::lock(tx, &machine.site_id, &wanted).await? {
        if held.node == machine.node_id {
            continue;
        }
        let of = nodes::find(tx, &held.node).await?;
        let ours = of.is_some_and(|node| node.tenant_id == machine.tenant_id);
        let by = if ours { format!("the node {}", held.node) } else { "another node".to_owned() };
        let message = format!(
            "the machine's {} is held by {by} of the site; retire or release that one first",
            held.identity.kind.as_str()
        );
        return Ok(Some(Cause::IdentityTaken.told_of(message)));
    }
    for anchor in &wanted {
        // Another one enrolls at this moment: look again, and find it.
        if !identities::hold(tx, &machine.site_id, anchor, &machine.node_id).await? {
            return Err(StoreError::Race.into());
        }
    }
    nodes::set_identity(tx, &machine.node_id, &claimed).await?;
    enter(tx, machine, &wanted, now).await?;
    Ok(None)
}

/// Whether this machine was retired before with somebody's data on its disks: as another node, whose row is all that knows.
///
/// # Errors
/// The store's.
pub(super) async fn was_somebodys(tx: &mut Tx<'_>, machine: &Machine) -> Result<bool, Fault> {
    let retired = metal::tainted_and_retired(tx, &machine.site_id).await?;
    let same = |left: &Option<String>, right: &Option<String>| {
        left.as_ref().zip(right.as_ref()).is_some_and(|(left, right)| left.eq_ignore_ascii_case(right))
    };
    let own = &machine.identity;
    Ok(retired.iter().any(|before| {
        same(&before.product_uuid, &own.product_uuid)
            || same(&before.serial, &own.serial)
            || before.macs.iter().any(|mac| own.macs.contains(mac))
    }))
}

/// Enters the machine in its pool's inventory, so that discovery knows it; one without identifiers is not entered.
async fn enter(tx: &mut Tx<'_>, machine: &Machine, by: &[Anchor], now: Timestamp) -> Result<(), Fault> {
    let value = |kind| by.iter().find(|anchor| anchor.kind == kind).map(|anchor| anchor.value.clone());
    let mut identifiers = Identifiers {
        product_uuid: value(IdentityKind::ProductUuid),
        serial: value(IdentityKind::Serial),
        ..Identifiers::default()
    };
    if by.is_empty() {
        identifiers.mac = machine.identity.macs.first().cloned();
    }
    if identifiers == Identifiers::default() {
        return Ok(());
    }
    let entry = InventoryEntry {
        entry_id: machine.node_id.to_string(),
        identifiers,
        updated_at: now,
        updated_by: ACTOR.to_owned(),
    };
    Ok(inventory::put(tx, &machine.pool_id, &entry).await?)
}

/// Ends the certificate of a machine's node, whose key and serial it has no more, if it has one; bans nobody. `None` if the
/// machine is another worker's by now.
///
/// # Errors
/// The store's.
pub(super) async fn revoked(relay: &Context, machine: Machine) -> Result<Option<Machine>, Fault> {
    let store = &relay.store;
    let ended = store.transact("metal.revoke", (relay, &machine), |tx, (relay, machine)| {
        Box::pin(async move {
            let mut machine = (*machine).clone();
            end_certificate(tx, relay, &machine.node_id).await?;
            save_last(tx, &mut machine, relay.clock.now()).await?;
            Ok::<_, Halt>(machine)
        })
    });
    ends::kept(ended.await)
}

/// Ends the certificate of a node, if it has one.
///
/// # Errors
/// The store's.
pub(super) async fn end_certificate(tx: &mut Tx<'_>, relay: &Context, id: &NodeId) -> Result<(), Fault> {
    identities::lock_of(tx, id).await?;
    let node = nodes::lock(tx, id).await?.ok_or(StoreError::Race)?;
    if !node.current_serial.is_empty() {
        nodes::end_certificate(tx, id).await?;
        identities::free_other_keys(tx, id, "").await?;
        crls::changed(tx, &relay.random).await?;
    }
    Ok(())
}

/// What a system is to find, opened.
///
/// # Errors
/// It was not sealed to this row, or by another key.
pub(super) fn user_data(keys: &KeyRing, machine: &Machine) -> Result<Option<Secret>, Fault> {
    let Some(sealed) = &machine.sealed_user_data else { return Ok(None) };
    let opened = keys.open(user_data_of(&machine.node_id), sealed);
    let opened = opened.map_err(Fault::internal("opening user data"))?;
    let text = std::str::from_utf8(&opened).map_err(|_| Fault::internal("opening user data")("not UTF-8"))?;
    Ok(Some(Secret::new(text.to_owned())))
}

/// What a system is to find, sealed to its machine's row.
///
/// # Errors
/// It can't be sealed.
pub fn sealed_user_data(relay: &Context, node: &NodeId, data: &Secret) -> Result<String, Fault> {
    let sealed = relay.keys.seal(user_data_of(node), data.expose().as_bytes(), &relay.random);
    sealed.map_err(Fault::internal("sealing user data"))
}

fn user_data_of(node: &NodeId) -> Place<'_> {
    Place { table: metal::TABLE, row: node.as_str(), column: "sealed_user_data" }
}

/// Releases the node of a machine that is retired.
///
/// # Errors
/// The store's.
pub(super) async fn release(
    tx: &mut Tx<'_>,
    relay: &Context,
    machine: &Machine,
    now: Timestamp,
) -> Result<(), Fault> {
    let id = &machine.node_id;
    inventory::remove(tx, &machine.pool_id, id.as_str()).await?;
    identities::lock_of(tx, id).await?;
    nodes::lock(tx, id).await?;
    identities::free(tx, id).await?;
    identities::drop_suspended(tx, id).await?;
    identifiers::forget(tx, id.as_str()).await?;
    node_views::release(tx, id, now).await?;
    crls::changed(tx, &relay.random).await?;
    let origin = Origin { actor: ACTOR.to_owned(), request_id: String::new(), at: now };
    let event = Event {
        kind: Kind::NodeReleased,
        tenant: &machine.tenant_id,
        subject: id.as_str(),
        data: json!({"poolId": machine.pool_id}),
    };
    Ok(events::insert(tx, &relay.random, &origin, &event).await?)
}
