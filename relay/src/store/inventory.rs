//! The table `inventory`: the machines that a pool knows. An entry is found by its anchor, the strongest of its
//! identifiers, and matches by all of them; what that means is said in `join::attest::discovery`, which judges what is
//! found once more.

use super::{Row, StoreError, Tx, Value};
use crate::join::attest::discovery::{Lookups, anchor};
use shared::{
    api::{
        inventory::{Identifiers, InventoryEntry},
        node::MAX_ENDORSEMENT_KEYS,
    },
    hardware::MAX_LISTED,
};

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
// $3 to $6 are the endorsement key, the product UUID in both byte orders and the serial number, $7 to $70 are GPUs, $71 to
// $134 are MACs: each may be the anchor. One parameter for each, since the two databases have no way in common to take a list
// as one. With a list of values instead of the join, SQLite would read all entries of the pool.
const MATCHING: &str = "SELECT i.entry_id, i.product_uuid, i.serial, i.mac, i.gpu_uuid, i.ek_sha256, i.updated_at, \
    i.updated_by FROM (VALUES \
    ('ekSha256', $3), ('productUuid', $4), ('productUuid', $5), ('serial', $6), ('gpuUuid', $7), \
    ('gpuUuid', $8), ('gpuUuid', $9), ('gpuUuid', $10), ('gpuUuid', $11), ('gpuUuid', $12), ('gpuUuid', $13), \
    ('gpuUuid', $14), ('gpuUuid', $15), ('gpuUuid', $16), ('gpuUuid', $17), ('gpuUuid', $18), ('gpuUuid', $19), \
    ('gpuUuid', $20), ('gpuUuid', $21), ('gpuUuid', $22), ('gpuUuid', $23), ('gpuUuid', $24), ('gpuUuid', $25), \
    ('gpuUuid', $26), ('gpuUuid', $27), ('gpuUuid', $28), ('gpuUuid', $29), ('gpuUuid', $30), ('gpuUuid', $31), \
    ('gpuUuid', $32), ('gpuUuid', $33), ('gpuUuid', $34), ('gpuUuid', $35), ('gpuUuid', $36), ('gpuUuid', $37), \
    ('gpuUuid', $38), ('gpuUuid', $39), ('gpuUuid', $40), ('gpuUuid', $41), ('gpuUuid', $42), ('gpuUuid', $43), \
    ('gpuUuid', $44), ('gpuUuid', $45), ('gpuUuid', $46), ('gpuUuid', $47), ('gpuUuid', $48), ('gpuUuid', $49), \
    ('gpuUuid', $50), ('gpuUuid', $51), ('gpuUuid', $52), ('gpuUuid', $53), ('gpuUuid', $54), ('gpuUuid', $55), \
    ('gpuUuid', $56), ('gpuUuid', $57), ('gpuUuid', $58), ('gpuUuid', $59), ('gpuUuid', $60), ('gpuUuid', $61), \
    ('gpuUuid', $62), ('gpuUuid', $63), ('gpuUuid', $64), ('gpuUuid', $65), ('gpuUuid', $66), ('gpuUuid', $67), \
    ('gpuUuid', $68), ('gpuUuid', $69), ('gpuUuid', $70), ('mac', $71), ('mac', $72), ('mac', $73), \
    ('mac', $74), ('mac', $75), ('mac', $76), ('mac', $77), ('mac', $78), ('mac', $79), ('mac', $80), \
    ('mac', $81), ('mac', $82), ('mac', $83), ('mac', $84), ('mac', $85), ('mac', $86), ('mac', $87), \
    ('mac', $88), ('mac', $89), ('mac', $90), ('mac', $91), ('mac', $92), ('mac', $93), ('mac', $94), \
    ('mac', $95), ('mac', $96), ('mac', $97), ('mac', $98), ('mac', $99), ('mac', $100), ('mac', $101), \
    ('mac', $102), ('mac', $103), ('mac', $104), ('mac', $105), ('mac', $106), ('mac', $107), ('mac', $108), \
    ('mac', $109), ('mac', $110), ('mac', $111), ('mac', $112), ('mac', $113), ('mac', $114), ('mac', $115), \
    ('mac', $116), ('mac', $117), ('mac', $118), ('mac', $119), ('mac', $120), ('mac', $121), ('mac', $122), \
    ('mac', $123), ('mac', $124), ('mac', $125), ('mac', $126), ('mac', $127), ('mac', $128), ('mac', $129), \
    ('mac', $130), ('mac', $131), ('mac', $132), ('mac', $133), ('mac', $134)) AS a \
    CROSS JOIN inventory i WHERE i.pool_id = $1 AND i.anchor_kind = a.column1 AND i.anchor_value = a.column2 \
    AND (i.ek_sha256 IS NULL OR i.ek_sha256 = $3) \
    AND (i.product_uuid IS NULL OR i.product_uuid = $4 OR (i.product_uuid = $5 AND (i.ek_sha256 IS NOT NULL \
    OR i.serial IS NOT NULL OR i.gpu_uuid IS NOT NULL OR i.mac IS NOT NULL))) \
    AND (i.serial IS NULL OR i.serial = $6) \
    AND (i.gpu_uuid IS NULL OR i.gpu_uuid IN ( \
    $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, \
    $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, \
    $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64, $65, $66, $67, $68, $69, $70)) \
    AND (i.mac IS NULL OR i.mac IN ( \
    $71, $72, $73, $74, $75, $76, $77, $78, $79, $80, $81, $82, $83, $84, $85, $86, $87, $88, $89, $90, $91, \
    $92, $93, $94, $95, $96, $97, $98, $99, $100, $101, $102, $103, $104, $105, $106, $107, $108, $109, $110, \
    $111, $112, $113, $114, $115, $116, $117, $118, $119, $120, $121, $122, $123, $124, $125, $126, $127, $128, \
    $129, $130, $131, $132, $133, $134)) \
    ORDER BY i.entry_id LIMIT $2";

// An endorsement key is always the anchor of its entry.
const NAMED_KEYS: &str = "SELECT DISTINCT anchor_value FROM inventory WHERE pool_id = $1 \
    AND anchor_kind = 'ekSha256' AND anchor_value IN ($2, $3, $4, $5, $6, $7, $8, $9)";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, PUT, REMOVE, MATCHING, NAMED_KEYS];

/// The most entries that are found for a machine: one is enough to know it, and it may have been entered more than once.
const MAX_MATCHES: i64 = 16;
/// Where a machine's GPUs and MACs begin among the parameters, and how many parameters there are.
const GPUS: usize = 6;
const MACS: usize = GPUS + MAX_LISTED;
const PARAMETERS: usize = MACS + MAX_LISTED;

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

/// Those of at most [`MAX_ENDORSEMENT_KEYS`] endorsement keys that entries of the pool name.
///
/// # Errors
/// The store's.
pub async fn named_keys(tx: &mut Tx<'_>, pool_id: &str, keys: &[&str]) -> Result<Vec<String>, StoreError> {
    // No digest is empty.
    let slots = keys.iter().copied().chain(std::iter::repeat("")).take(MAX_ENDORSEMENT_KEYS);
    let args: Vec<Value<'_>> = std::iter::once(pool_id).chain(slots).map(Value::from).collect();
    tx.fetch_all(NAMED_KEYS, &args).await?.iter().map(|row| row.text("anchor_value")).collect()
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

/// The pool's entries that are the machine with these identifiers, at most 16, in one statement.
///
/// # Errors
/// The store's.
pub async fn matching(
    tx: &mut Tx<'_>,
    pool_id: &str,
    lookups: &Lookups<'_>,
) -> Result<Vec<InventoryEntry>, StoreError> {
    if lookups.is_empty() {
        return Ok(Vec::new());
    }
    // No identifier is empty.
    let mut row = [Value::from(""); PARAMETERS];
    let single = [lookups.ek_sha256, lookups.product_uuid, lookups.swapped_uuid.as_deref(), lookups.serial];
    let single = single.map(|value| Value::from(value.unwrap_or("")));
    let values = [Value::from(pool_id), MAX_MATCHES.into()].into_iter().chain(single);
    row.iter_mut().zip(values).for_each(|(slot, value)| *slot = value);
    for (first, list) in [(GPUS, lookups.gpu_uuids), (MACS, lookups.macs)] {
        let slots = row.iter_mut().skip(first).take(MAX_LISTED);
        slots.zip(list).for_each(|(slot, value)| *slot = value.into());
    }
    tx.fetch_all(MATCHING, &row).await?.iter().map(entry).collect()
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
