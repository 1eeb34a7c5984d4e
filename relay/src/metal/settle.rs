//! What the ends of workflows do beside the machine's row: its identity, its node.

use super::facts::Machine;
use crate::{
    context::Context,
    crls,
    events::{Event, Kind, Origin},
    facts::{Identity as Anchor, IdentityKind},
    fault::Fault,
    store::{Tx, events, identifiers, identities, node_views, nodes},
};
use serde_json::json;
use shared::{
    api::metal::LastError,
    hardware::{Identity, Machine as Claims, uuid_in_one_order},
    time::Timestamp,
};

/// An error that is none of a BMC's.
#[must_use]
pub(super) fn plain(code: &str, message: &str) -> LastError {
    LastError { code: code.to_owned(), message: message.to_owned(), bmc_status: None, bmc_message_id: None }
}

/// Judges what a machine says that it is, and holds its identity for its node; why it may not be that, if so.
///
/// # Errors
/// The store's.
pub(super) async fn identity(tx: &mut Tx<'_>, machine: &Machine) -> Result<Option<LastError>, Fault> {
    if let Some(expected) = &machine.expect_serial {
        // Dell's service tag stands in the SKU as well.
        let said = [machine.identity.serial.as_ref(), machine.identity.sku.as_ref()];
        if !said.into_iter().flatten().any(|said| said == expected) {
            let message =
                "the machine's serial and SKU are both other ones than expectSerial; is it the right BMC?";
            return Ok(Some(plain("identityMismatch", message)));
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
    let wanted: Vec<Anchor> = [
        (
            IdentityKind::ProductUuid,
            judged.product_uuid.usable().map(uuid_in_one_order).map(|it| it.to_string()),
        ),
        (IdentityKind::Serial, judged.serial.usable().map(str::to_owned)),
    ]
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
        return Ok(Some(plain("identityTaken", &message)));
    }
    for anchor in &wanted {
        identities::hold(tx, &machine.site_id, anchor, &machine.node_id).await?;
    }
    nodes::set_identity(tx, &machine.node_id, &claimed).await?;
    Ok(None)
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
    identities::lock_of(tx, id).await?;
    nodes::lock(tx, id).await?;
    identities::free(tx, id).await?;
    identities::drop_suspended(tx, id).await?;
    identifiers::forget(tx, id.as_str()).await?;
    node_views::release(tx, id, now).await?;
    crls::changed(tx, &relay.random).await?;
    let origin = Origin { actor: "relay".to_owned(), request_id: String::new(), at: now };
    let event = Event {
        kind: Kind::NodeReleased,
        tenant: &machine.tenant_id,
        subject: id.as_str(),
        data: json!({"poolId": machine.pool_id}),
    };
    Ok(events::insert(tx, &relay.random, &origin, &event).await?)
}
