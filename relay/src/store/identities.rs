//! The tables `identities` (which live node holds an identity at a site), `suspended_identities` (what a banned one held)
//! and `bans` (what a ban covers).

use super::{Row, StoreError, Tx, Value};
use crate::facts::{Held, Identity, IdentityKind};
use shared::{api::node::MAX_ENDORSEMENT_KEYS, id::NodeId};

// The two IN are what SQLite finds the rows by: by the pairs alone it would read all identities of the site.
const LOCK: &str = "SELECT i.kind, i.value, i.node_id FROM identities i \
    WHERE i.site_id = $1 AND i.kind IN ($2, $4, $6) AND i.value IN ($3, $5, $7) AND ((i.kind = $2 AND i.value = $3) \
    OR (i.kind = $4 AND i.value = $5) OR (i.kind = $6 AND i.value = $7)) ORDER BY i.kind, i.value";
const INSERT: &str = "INSERT INTO identities (site_id, kind, value, node_id) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (site_id, kind, value) DO NOTHING";
const HOLDER: &str = "SELECT node_id FROM identities WHERE site_id = $1 AND kind = $2 AND value = $3";
const LOCK_OF: &str = "SELECT value FROM identities WHERE node_id = $1 ORDER BY kind, value";
const PROVEN: &str = "SELECT kind, value FROM identities WHERE node_id = $1 AND kind IN ('key', 'ekSha256') \
    ORDER BY kind, value LIMIT 64";
const HELD_EKS: &str = "SELECT value FROM identities WHERE site_id = $1 AND kind = 'ekSha256' \
    AND value IN ($2, $3, $4, $5, $6, $7, $8, $9)";
const FREE: &str = "DELETE FROM identities WHERE node_id = $1";
const SUSPEND: &str = "INSERT INTO suspended_identities (node_id, kind, value) \
    SELECT node_id, kind, value FROM identities WHERE node_id = $1";
const SUSPENDED: &str =
    "SELECT kind, value FROM suspended_identities WHERE node_id = $1 ORDER BY kind, value";
const DROP_SUSPENDED: &str = "DELETE FROM suspended_identities WHERE node_id = $1";
const FREE_CLAIMS: &str = "DELETE FROM identities WHERE node_id = $1 AND kind NOT IN ('key', 'ekSha256')";
const FREE_OTHER_KEYS: &str = "DELETE FROM identities WHERE node_id = $1 AND kind = 'key' AND value <> $2";
// What a machine only claims is banned for the tenant whose node it was: nobody bans another's machines by claiming to be
// one of them.
const BANNED: &str = "SELECT b.node_id FROM bans b JOIN nodes n ON n.id = b.node_id WHERE b.site_id = $1 \
    AND b.kind IN ('key', 'ekSha256', 'productUuid', 'serial') AND b.value IN ($2, $3, $5, $6) \
    AND ((b.kind = 'key' AND b.value = $2) OR (b.kind = 'ekSha256' AND b.value = $3) OR (n.tenant_id = $4 \
    AND ((b.kind = 'productUuid' AND b.value = $5) OR (b.kind = 'serial' AND b.value = $6)))) LIMIT 1";
const INSERT_BAN: &str = "INSERT INTO bans (site_id, kind, value, node_id) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (site_id, kind, value, node_id) DO NOTHING";
const LIFT_BAN: &str = "DELETE FROM bans WHERE node_id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    LOCK,
    LOCK_OF,
    INSERT,
    HOLDER,
    PROVEN,
    HELD_EKS,
    FREE,
    SUSPEND,
    SUSPENDED,
    DROP_SUSPENDED,
    FREE_CLAIMS,
    FREE_OTHER_KEYS,
    BANNED,
    INSERT_BAN,
    LIFT_BAN,
];

/// The most identities that a machine has: an endorsement key, a key, and a product UUID or serial.
const MOST: usize = 3;

/// Who holds a machine's identities, the rows locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, site: &str, wanted: &[Identity]) -> Result<Vec<Held>, StoreError> {
    let mut args = vec![Value::from(site)];
    let slots = wanted.iter().map(|identity| (identity.kind.as_str(), identity.value.as_str()));
    for (kind, value) in slots.chain(std::iter::repeat(("", ""))).take(MOST) {
        args.extend([Value::from(kind), value.into()]);
    }
    let rows = tx.lock_all(LOCK, &args).await?;
    rows.iter().map(|row| Ok(Held { identity: identity(row)?, node: row.parsed("node_id")? })).collect()
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

/// What a node holds that it has proved: its key, the next one where that is another, its endorsement keys.
///
/// # Errors
/// The store's.
pub async fn proven(tx: &mut Tx<'_>, node: &NodeId) -> Result<Vec<Identity>, StoreError> {
    tx.fetch_all(PROVEN, &[node.as_str().into()]).await?.iter().map(identity).collect()
}

/// Those of at most [`shared::api::node::MAX_ENDORSEMENT_KEYS`] endorsement keys that a node at the site has proved.
///
/// # Errors
/// The store's.
pub async fn held_endorsement_keys(
    tx: &mut Tx<'_>,
    site: &str,
    keys: &[&str],
) -> Result<Vec<String>, StoreError> {
    let slots = keys.iter().copied().chain(std::iter::repeat("")).take(MAX_ENDORSEMENT_KEYS);
    let args: Vec<Value<'_>> = std::iter::once(site).chain(slots).map(Value::from).collect();
    tx.fetch_all(HELD_EKS, &args).await?.iter().map(|row| row.text("value")).collect()
}

/// Frees all identities of a node.
///
/// # Errors
/// The store's.
pub async fn free(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.execute(FREE, &[node.as_str().into()]).await.map(drop)
}

/// Frees all identities of a node that is banned, and keeps in mind which they were.
///
/// # Errors
/// The store's.
pub async fn suspend(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.execute(SUSPEND, &[node.as_str().into()]).await?;
    free(tx, node).await
}

/// What a banned node held, in the order in which identities are locked.
///
/// # Errors
/// The store's.
pub async fn suspended(tx: &mut Tx<'_>, node: &NodeId) -> Result<Vec<Identity>, StoreError> {
    tx.fetch_all(SUSPENDED, &[node.as_str().into()]).await?.iter().map(identity).collect()
}

/// Forgets what a banned node held.
///
/// # Errors
/// The store's.
pub async fn drop_suspended(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.execute(DROP_SUSPENDED, &[node.as_str().into()]).await.map(drop)
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

/// What a ban is looked for by; an empty text matches none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Claimed<'a> {
    /// The key.
    pub key_sha256: &'a str,
    /// The tenant of the pool that it joins: bans of claimed identifiers are a tenant's own.
    pub tenant_id: &'a str,
    /// The product UUID, if it is usable.
    pub product_uuid: &'a str,
    /// The serial, if it is usable.
    pub serial: &'a str,
    /// The endorsement key, if it was proved.
    pub ek_sha256: &'a str,
}

/// The banned node that covers the key or one of the claimed identifiers, if there is one.
///
/// # Errors
/// The store's.
pub async fn banned(tx: &mut Tx<'_>, site: &str, claimed: Claimed<'_>) -> Result<Option<NodeId>, StoreError> {
    let Claimed { key_sha256, tenant_id, product_uuid, serial, ek_sha256 } = claimed;
    let args = [site, key_sha256, ek_sha256, tenant_id, product_uuid, serial].map(Value::from);
    tx.fetch_optional(BANNED, &args).await?.map(|row| row.parsed("node_id")).transpose()
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

fn identity(row: &Row) -> Result<Identity, StoreError> {
    Ok(Identity { kind: row.parse_with("kind", IdentityKind::parse)?, value: row.text("value")? })
}
