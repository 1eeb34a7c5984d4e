//! The tables `identities` (which live node holds an identity at a site) and `bans` (what a ban covers).

use super::{StoreError, Tx};
use crate::facts::{Held, Identity, IdentityKind};
use shared::id::NodeId;

const LOCK: &str = "SELECT i.kind, i.value, i.node_id FROM identities i \
    WHERE i.site_id = $1 AND ((i.kind = 'key' AND i.value = $2) OR (i.kind = $3 AND i.value = $4)) \
    ORDER BY i.kind, i.value";
const INSERT: &str = "INSERT INTO identities (site_id, kind, value, node_id) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (site_id, kind, value) DO NOTHING";
const HOLDER: &str = "SELECT node_id FROM identities WHERE site_id = $1 AND kind = $2 AND value = $3";
const LOCK_OF: &str = "SELECT value FROM identities WHERE node_id = $1 ORDER BY kind, value";
const KEYS: &str = "SELECT value FROM identities WHERE node_id = $1 AND kind = 'key' ORDER BY value LIMIT 16";
const FREE: &str = "DELETE FROM identities WHERE node_id = $1";
const FREE_CLAIMS: &str = "DELETE FROM identities WHERE node_id = $1 AND kind <> 'key'";
const FREE_OTHER_KEYS: &str = "DELETE FROM identities WHERE node_id = $1 AND kind = 'key' AND value <> $2";
const BANNED: &str = "SELECT node_id FROM bans WHERE site_id = $1 AND ((kind = 'key' AND value = $2) \
    OR (kind = 'productUuid' AND value = $3) OR (kind = 'serial' AND value = $4)) LIMIT 1";
const INSERT_BAN: &str = "INSERT INTO bans (site_id, kind, value, node_id) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (site_id, kind, value, node_id) DO NOTHING";
const LIFT_BAN: &str = "DELETE FROM bans WHERE node_id = $1";

pub(super) const STATEMENTS: &[&str] =
    &[LOCK, LOCK_OF, INSERT, HOLDER, KEYS, FREE, FREE_CLAIMS, FREE_OTHER_KEYS, BANNED, INSERT_BAN, LIFT_BAN];

/// Who holds the key and the other identity, the rows locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(
    tx: &mut Tx<'_>,
    site: &str,
    key_sha256: &str,
    other: Option<&Identity>,
) -> Result<Vec<Held>, StoreError> {
    let (kind, value) = other.map_or(("", ""), |identity| (identity.kind.as_str(), identity.value.as_str()));
    let rows = tx.lock_all(LOCK, &[site.into(), key_sha256.into(), kind.into(), value.into()]).await?;
    let held = rows.iter().map(|row| {
        let identity =
            Identity { kind: row.parse_with("kind", IdentityKind::parse)?, value: row.text("value")? };
        Ok(Held { identity, node: row.parsed("node_id")? })
    });
    held.collect()
}

/// Locks what a node holds until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock_of(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.lock_all(LOCK_OF, &[node.as_str().into()]).await.map(drop)
}

/// Makes a node the holder of an identity; says whether it is (it may have been before).
///
/// # Errors
/// The store's.
pub async fn hold(
    tx: &mut Tx<'_>,
    site: &str,
    identity: &Identity,
    node: &NodeId,
) -> Result<bool, StoreError> {
    let (kind, value) = (identity.kind.as_str(), identity.value.as_str());
    if tx.execute(INSERT, &[site.into(), kind.into(), value.into(), node.as_str().into()]).await? == 1 {
        return Ok(true);
    }
    let holder = tx.fetch_optional(HOLDER, &[site.into(), kind.into(), value.into()]).await?;
    Ok(holder.map(|row| row.text("node_id")).transpose()?.as_deref() == Some(node.as_str()))
}

/// The keys that a node holds: that of the certificate in use, and that of the next one where it is another.
///
/// # Errors
/// The store's.
pub async fn keys(tx: &mut Tx<'_>, node: &NodeId) -> Result<Vec<String>, StoreError> {
    tx.fetch_all(KEYS, &[node.as_str().into()]).await?.iter().map(|row| row.text("value")).collect()
}

/// Frees all identities of a node.
///
/// # Errors
/// The store's.
pub async fn free(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.execute(FREE, &[node.as_str().into()]).await.map(drop)
}

/// Frees what a node claims to be; its keys stay.
///
/// # Errors
/// The store's.
pub async fn free_claims(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.execute(FREE_CLAIMS, &[node.as_str().into()]).await.map(drop)
}

/// Frees the keys of a node that are not this one.
///
/// # Errors
/// The store's.
pub async fn free_other_keys(tx: &mut Tx<'_>, node: &NodeId, key_sha256: &str) -> Result<(), StoreError> {
    tx.execute(FREE_OTHER_KEYS, &[node.as_str().into(), key_sha256.into()]).await.map(drop)
}

/// The banned node that covers the key or one of the claimed identifiers, if there is one.
///
/// # Errors
/// The store's.
pub async fn banned(
    tx: &mut Tx<'_>,
    site: &str,
    key_sha256: &str,
    product_uuid: Option<&str>,
    serial: Option<&str>,
) -> Result<Option<NodeId>, StoreError> {
    let claimed =
        [site.into(), key_sha256.into(), product_uuid.unwrap_or("").into(), serial.unwrap_or("").into()];
    tx.fetch_optional(BANNED, &claimed).await?.map(|row| row.parsed("node_id")).transpose()
}

/// Adds an identity to what a node's ban covers; says whether it was not covered before.
///
/// # Errors
/// The store's.
pub async fn ban(
    tx: &mut Tx<'_>,
    site: &str,
    identity: &Identity,
    node: &NodeId,
) -> Result<bool, StoreError> {
    let row =
        [site.into(), identity.kind.as_str().into(), identity.value.as_str().into(), node.as_str().into()];
    Ok(tx.execute(INSERT_BAN, &row).await? == 1)
}

/// Ends all that a node's ban covers; says whether there was anything.
///
/// # Errors
/// The store's.
pub async fn lift_ban(tx: &mut Tx<'_>, node: &NodeId) -> Result<bool, StoreError> {
    Ok(tx.execute(LIFT_BAN, &[node.as_str().into()]).await? > 0)
}
