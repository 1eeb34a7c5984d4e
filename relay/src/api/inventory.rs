//! compute/inventory: the machines that a pool knows, written by whoever vouches for its site.

use super::{
    pools::{DecidedBy, held, named},
    steps::{page, page_size},
};
use crate::{
    auth::policy::not_found,
    call::Call,
    fault::Fault,
    store::{Tx, inventory},
};
use shared::{
    api::{
        access::Action,
        inventory::{
            Identifiers, InventoryEntry, InventoryEntryAnswer, InventoryList, ListInventory,
            PutInventoryEntry, RemoveInventoryEntry,
        },
    },
    problem::Problem,
};

/// compute/inventory/put: the entry is as the input says, whatever it was before.
///
/// # Errors
/// INVALID_INPUT for an entry without identifiers, or with one that no machine or many machines have; NOT_FOUND,
/// PERMISSION_DENIED.
pub async fn put(call: Call, input: PutInventoryEntry) -> Result<InventoryEntryAnswer, Fault> {
    let identifiers = input.identifiers().map_err(Problem::invalid)?;
    let store = &call.relay.store;
    let write =
        store.transact(call.method, (&call, &input, &identifiers), |tx, (call, input, identifiers)| {
            Box::pin(write(tx, call, input, identifiers))
        });
    write.await
}

/// compute/inventory/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListInventory) -> Result<InventoryList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::InventoryRead, DecidedBy::SiteOwner).await?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            Ok::<_, Fault>(inventory::page(tx, &pool.pool_id, after, size + 1).await?)
        })
    });
    let (entries, cursor) = page(read.await?, size, |entry| entry.entry_id.clone());
    Ok(InventoryList { entries, cursor })
}

/// compute/inventory/remove: machines that joined by it stay nodes.
///
/// # Errors
/// NOT_FOUND (also for the entry), PERMISSION_DENIED.
pub async fn remove(call: Call, input: RemoveInventoryEntry) -> Result<InventoryEntryAnswer, Fault> {
    let store = &call.relay.store;
    let forget = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            named(tx, call, name, Action::InventoryRemove, DecidedBy::SiteOwner).await?;
            let pool = held(tx, &input.pool_id).await?;
            let found = inventory::find(tx, &pool.pool_id, input.entry_id.as_str()).await?;
            let entry = found.ok_or_else(|| not_found(&format!("inventory entry {}", input.entry_id)))?;
            inventory::remove(tx, &pool.pool_id, input.entry_id.as_str()).await?;
            Ok::<_, Fault>(InventoryEntryAnswer { entry })
        })
    });
    forget.await
}

async fn write(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &PutInventoryEntry,
    identifiers: &Identifiers,
) -> Result<InventoryEntryAnswer, Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    named(tx, call, name, Action::InventoryPut, DecidedBy::SiteOwner).await?;
    // The lock keeps the pool from being deleted under its new entry.
    let pool = held(tx, &input.pool_id).await?;
    let entry = InventoryEntry {
        entry_id: input.entry_id.as_str().to_owned(),
        identifiers: identifiers.clone(),
        updated_at: call.now,
        updated_by: call.actor(),
    };
    inventory::put(tx, &pool.pool_id, &entry).await?;
    Ok(InventoryEntryAnswer { entry })
}
