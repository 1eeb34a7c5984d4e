//! The table `inventory`: the machines that a pool knows. An entry is found by its anchor, the strongest of its
//! identifiers; whether it matches is judged by `join::attest::discovery`.

use super::{Row, StoreError, Tx, Value};
use crate::join::attest::discovery::anchor;
use shared::api::inventory::{Identifiers, InventoryEntry};
use std::borrow::Cow;

const FIND: &str = "SELECT entry_id, product_uuid, serial, mac, gpu_uuid, ek_sha256, updated_at, updated_by \
    FROM inventory WHERE pool_id = $1 AND entry_id = $2";
const PAGE: &str = "SELECT entry_id, product_uuid, serial, mac, gpu_uuid, ek_sha256, updated_at, updated_by \
    FROM inventory WHERE pool_id = $1 AND entry_id > $2 ORDER BY entry_id LIMIT $3";
const PUT: &str = "INSERT INTO inventory (pool_id, entry_id, product_uuid, serial, mac, gpu_uuid, ek_sha256, \
    anchor_kind, anchor_value, updated_at, updated_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) \
    ON CONFLICT (pool_id, entry_id) DO UPDATE SET product_uuid = excluded.product_uuid, serial = excluded.serial, \
    mac = excluded.mac, gpu_uuid = excluded.gpu_uuid, ek_sha256 = excluded.ek_sha256, \
    anchor_kind = excluded.anchor_kind, anchor_value = excluded.anchor_value, updated_at = excluded.updated_at, \
    updated_by = excluded.updated_by";
const REMOVE: &str = "DELETE FROM inventory WHERE pool_id = $1 AND entry_id = $2";
const CANDIDATES: &str = "SELECT entry_id, product_uuid, serial, mac, gpu_uuid, ek_sha256, updated_at, updated_by \
    FROM inventory WHERE pool_id = $1 \
    AND anchor_kind IN ('ekSha256', 'productUuid', 'serial', 'gpuUuid', 'mac') AND anchor_value IN ( \
    $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, \
    $27, $28, $29, $30, $31, $32, $33, $34) ORDER BY entry_id LIMIT $2";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, PUT, REMOVE, CANDIDATES];

/// How many anchors one statement looks for.
const ANCHORS_AT_ONCE: usize = 32;
/// The most entries that one statement finds. Entries share an anchor where vendors share a serial number, or
/// where one machine was entered again and again.
const MAX_CANDIDATES: i64 = 64;

/// An entry of a pool.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    pool_id: &str,
    entry_id: &str,
) -> Result<Option<InventoryEntry>, StoreError> {
    tx.fetch_optional(FIND, &[pool_id.into(), entry_id.into()]).await?.map(|row| entry(&row)).transpose()
}

/// At most `limit` of a pool's entries behind `after`, in order of entry id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<InventoryEntry>, StoreError> {
    tx.fetch_all(PAGE, &[pool_id.into(), after.into(), limit.into()]).await?.iter().map(entry).collect()
}

/// Writes an entry, new or again; it has an identifier.
///
/// # Errors
/// The store's.
pub async fn put(tx: &mut Tx<'_>, pool_id: &str, entry: &InventoryEntry) -> Result<(), StoreError> {
    let of = &entry.identifiers;
    let anchor = anchor(of);
    let row = [
        pool_id.into(),
        (&entry.entry_id).into(),
        (&of.product_uuid).into(),
        (&of.serial).into(),
        (&of.mac).into(),
        (&of.gpu_uuid).into(),
        (&of.ek_sha256).into(),
        // NULL is refused by the table: an entry without an identifier is never written.
        anchor.map(|anchor| anchor.kind).into(),
        anchor.map(|anchor| anchor.value).into(),
        entry.updated_at.into(),
        (&entry.updated_by).into(),
    ];
    tx.execute(PUT, &row).await.map(drop)
}

/// Removes an entry.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, pool_id: &str, entry_id: &str) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[pool_id.into(), entry_id.into()]).await.map(drop)
}

/// The pool's entries that may be the machine with these identifiers (`discovery::lookups`): those whose anchor is one
/// of them, at most 64 for every 32 identifiers. That is one statement for all but the largest machines.
///
/// # Errors
/// The store's.
pub async fn candidates(
    tx: &mut Tx<'_>,
    pool_id: &str,
    identifiers: &[Cow<'_, str>],
) -> Result<Vec<InventoryEntry>, StoreError> {
    let mut found = Vec::new();
    for some in identifiers.chunks(ANCHORS_AT_ONCE) {
        // No anchor is empty.
        let mut row = [Value::from(""); ANCHORS_AT_ONCE + 2];
        let values = [Value::from(pool_id), MAX_CANDIDATES.into()];
        row.iter_mut()
            .zip(values.into_iter().chain(some.iter().map(|value| value.as_ref().into())))
            .for_each(|(slot, value)| *slot = value);
        for row in tx.fetch_all(CANDIDATES, &row).await? {
            found.push(entry(&row)?);
        }
    }
    Ok(found)
}

fn entry(row: &Row) -> Result<InventoryEntry, StoreError> {
    Ok(InventoryEntry {
        entry_id: row.text("entry_id")?,
        identifiers: Identifiers {
            product_uuid: row.maybe_text("product_uuid")?,
            serial: row.maybe_text("serial")?,
            mac: row.maybe_text("mac")?,
            gpu_uuid: row.maybe_text("gpu_uuid")?,
            ek_sha256: row.maybe_text("ek_sha256")?,
        },
        updated_at: row.time("updated_at")?,
        updated_by: row.text("updated_by")?,
    })
}

#[cfg(test)]
mod tests;
