//! The table `identifiers`: what the machines of a tenant say they are, as it was judged when they said it. People ask it
//! who else says the same, and a ban that names an identifier finds the node's there.

use super::{StoreError, Tx, Value};
use crate::facts::IdentityKind;
use shared::{
    api::join_requests::SharedIdentifier,
    hardware::{Machine, swapped_uuid},
    id::NodeId,
};

const NOTE: &str = "INSERT INTO identifiers (tenant_id, kind, value, holder) SELECT $1, column1, column2, $2 \
    FROM (VALUES ($3, $4), ($5, $6), ($7, $8), ($9, $10), ($11, $12), ($13, $14), ($15, $16), ($17, $18)) AS slots \
    WHERE column2 <> '' ON CONFLICT (tenant_id, kind, value, holder) DO NOTHING";
const OF_HOLDER: &str =
    "SELECT value FROM identifiers WHERE holder = $1 AND kind = $2 ORDER BY value LIMIT 1";
const FORGET: &str = "DELETE FROM identifiers WHERE holder = $1";
// What the holder says, and its product UUID in the other byte order.
const SHARED: &str = "SELECT o.holder, o.kind, o.value FROM ( \
    SELECT tenant_id, kind, value FROM identifiers WHERE holder = $1 \
    UNION SELECT tenant_id, kind, $3 FROM identifiers WHERE holder = $1 AND kind = 'productUuid') mine \
    JOIN identifiers o ON o.tenant_id = mine.tenant_id AND o.kind = mine.kind AND o.value = mine.value \
    WHERE o.holder <> $1 AND ($2 = '' OR EXISTS (SELECT 1 FROM nodes n WHERE n.id = o.holder AND n.pool_id = $2) \
    OR EXISTS (SELECT 1 FROM join_requests r WHERE r.id = o.holder AND r.pool_id = $2)) \
    ORDER BY o.holder DESC, o.kind, o.value LIMIT 100";

pub(super) const STATEMENTS: &[&str] = &[NOTE, OF_HOLDER, FORGET, SHARED];

/// How many rows a statement writes.
const SLOTS: usize = 8;

/// Whose identifiers they are.
#[derive(Clone, Copy, Debug)]
pub struct Holder<'a> {
    /// The pool's tenant.
    pub tenant_id: &'a str,
    /// A node (`nd_…`) or a join request (`jr_…`).
    pub id: &'a str,
}

/// Writes what a machine says it is. What the holder said before stays.
///
/// # Errors
/// The store's.
pub async fn note(
    tx: &mut Tx<'_>,
    holder: Holder<'_>,
    machine: &Machine,
    ek_sha256: Option<&str>,
) -> Result<(), StoreError> {
    let single = [
        ("productUuid", machine.product_uuid.usable()),
        ("serial", machine.serial.usable()),
        ("ekSha256", ek_sha256),
    ];
    let single = single.into_iter().filter_map(|(kind, value)| Some((kind, value?)));
    let macs = machine.macs.iter().map(|mac| ("mac", mac.as_str()));
    let gpus = machine.gpu_uuids.iter().map(|gpu| ("gpuUuid", gpu.as_str()));
    let all: Vec<(&str, &str)> = single.chain(macs).chain(gpus).collect();
    for chunk in all.chunks(SLOTS) {
        let mut row = vec![Value::from(holder.tenant_id), holder.id.into()];
        let empty = std::iter::repeat(&("", ""));
        for (kind, value) in chunk.iter().chain(empty).take(SLOTS) {
            row.extend([Value::from(*kind), (*value).into()]);
        }
        tx.execute(NOTE, &row).await?;
    }
    Ok(())
}

/// The product UUID or serial that a node says it has, if it is usable.
///
/// # Errors
/// The store's.
pub async fn of_node(
    tx: &mut Tx<'_>,
    node: &NodeId,
    kind: IdentityKind,
) -> Result<Option<String>, StoreError> {
    let row = tx.fetch_optional(OF_HOLDER, &[node.as_str().into(), kind.as_str().into()]).await?;
    row.map(|row| row.text("value")).transpose()
}

/// Forgets what a holder said.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, holder: &str) -> Result<(), StoreError> {
    tx.execute(FORGET, &[holder.into()]).await.map(drop)
}

/// Who of the same tenant, or of this pool alone, says the same as this holder, a product UUID in either byte order: at most 100, nodes before join requests, of
/// which there may be many.
///
/// # Errors
/// The store's.
pub async fn shared_with(
    tx: &mut Tx<'_>,
    holder: &str,
    pool: Option<&str>,
) -> Result<Vec<SharedIdentifier>, StoreError> {
    let uuid =
        tx.fetch_optional(OF_HOLDER, &[holder.into(), IdentityKind::ProductUuid.as_str().into()]).await?;
    let uuid = uuid.map(|row| row.text("value")).transpose()?;
    // An empty value is nobody's.
    let swapped = uuid.as_deref().and_then(swapped_uuid).unwrap_or_default();
    let args = [holder.into(), pool.unwrap_or("").into(), (&swapped).into()];
    let rows = tx.fetch_all(SHARED, &args).await?;
    let found = rows.iter().map(|row| {
        Ok(SharedIdentifier { id: row.text("holder")?, kind: row.text("kind")?, value: row.text("value")? })
    });
    found.collect()
}
