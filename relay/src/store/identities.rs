//! The tables `identities` (which live node holds an identity at a site), `suspended_identities` (what a banned one held)
//! and `bans` (what a ban covers).
//!
//! A product UUID is one identity in both byte orders (SMBIOS before and from 2.6, BMCs, versions of a BIOS). It is written
//! in one of them ([`uuid_in_one_order`]), so that two machines that claim it in either order at once meet at the primary
//! key as those do that claim it alike, and a ban or an unban covers both. It is looked for in both, which also finds what
//! was written before that, and answered as it was asked for. What a machine claimed stands as it is in its node's row.

use super::{Row, StoreError, Tx, Value};
use crate::facts::{Held, Identity, IdentityKind};
use shared::{
    api::node::MAX_ENDORSEMENT_KEYS,
    hardware::{swapped_uuid, uuid_in_one_order},
    id::NodeId,
};
use std::borrow::Cow;

// The two IN are what SQLite finds the rows by: by the pairs alone it would read all identities of the site.
const LOCK: &str = "SELECT i.kind, i.value, i.node_id FROM identities i \
    WHERE i.site_id = $1 AND i.kind IN ($2, $4, $6, $8) AND i.value IN ($3, $5, $7, $9) AND ((i.kind = $2 AND i.value = $3) \
    OR (i.kind = $4 AND i.value = $5) OR (i.kind = $6 AND i.value = $7) OR (i.kind = $8 AND i.value = $9)) \
    ORDER BY i.kind, i.value";
const INSERT: &str = "INSERT INTO identities (site_id, kind, value, node_id) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (site_id, kind, value) DO NOTHING";
const HOLDER: &str = "SELECT node_id FROM identities WHERE site_id = $1 AND kind = $2 AND value = $3";
const LOCK_OF: &str = "SELECT value FROM identities WHERE node_id = $1 ORDER BY kind, value";
const PROVEN: &str = "SELECT kind, value FROM identities WHERE node_id = $1 AND kind IN ('key', 'ekSha256') \
    ORDER BY kind, value LIMIT 64";
const KNOWN_EKS: &str = "SELECT value, CAST(0 AS BIGINT) AS banned FROM identities \
    WHERE site_id = $1 AND kind = 'ekSha256' AND value IN ($2, $3, $4, $5, $6, $7, $8, $9) \
    UNION ALL SELECT value, CAST(1 AS BIGINT) AS banned FROM bans \
    WHERE site_id = $1 AND kind = 'ekSha256' AND value IN ($2, $3, $4, $5, $6, $7, $8, $9)";
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
    AND b.kind IN ('key', 'ekSha256', 'productUuid', 'serial') AND b.value IN ($2, $3, $5, $6, $7) \
    AND ((b.kind = 'key' AND b.value = $2) OR (b.kind = 'ekSha256' AND b.value = $3) OR (n.tenant_id = $4 \
    AND ((b.kind = 'productUuid' AND b.value IN ($5, $7)) OR (b.kind = 'serial' AND b.value = $6)))) LIMIT 1";
const INSERT_BAN: &str = "INSERT INTO bans (site_id, kind, value, node_id) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (site_id, kind, value, node_id) DO NOTHING";
const LIFT_BAN: &str = "DELETE FROM bans WHERE node_id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    LOCK,
    LOCK_OF,
    INSERT,
    HOLDER,
    PROVEN,
    KNOWN_EKS,
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

/// The most values that a machine's identities are looked for by: an endorsement key, a key, and a product UUID in both
/// byte orders or a serial.
const MOST: usize = 4;

/// Who holds a machine's identities, the rows locked until the transaction ends. A product UUID that is held in the other
/// byte order is answered as it is wanted.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, site: &str, wanted: &[Identity]) -> Result<Vec<Held>, StoreError> {
    let mut args = vec![Value::from(site)];
    let swapped: Vec<(&str, String)> = wanted.iter().filter_map(in_other_order).collect();
    let slots = wanted.iter().map(|identity| (identity.kind.as_str(), identity.value.as_str()));
    let slots = slots.chain(swapped.iter().map(|(kind, value)| (*kind, value.as_str())));
    for (kind, value) in slots.chain(std::iter::repeat(("", ""))).take(MOST) {
        args.extend([Value::from(kind), value.into()]);
    }
    let rows = tx.lock_all(LOCK, &args).await?;
    let held = rows.iter().map(|row| {
        let found = identity(row)?;
        let asked = wanted.iter().find(|asked| asked.kind == found.kind && written(asked) == written(&found));
        Ok(Held { identity: asked.cloned().unwrap_or(found), node: row.parsed("node_id")? })
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
    let (kind, value) = (identity.kind.as_str(), written(identity));
    if tx.execute(INSERT, &[site.into(), kind.into(), (&*value).into(), node.as_str().into()]).await? == 1 {
        return Ok(true);
    }
    let holder = tx.fetch_optional(HOLDER, &[site.into(), kind.into(), (&*value).into()]).await?;
    Ok(holder.map(|row| row.text("node_id")).transpose()?.as_deref() == Some(node.as_str()))
}

/// What a node holds that it has proved: its key, the next one where that is another, its endorsement keys.
///
/// # Errors
/// The store's.
pub async fn proven(tx: &mut Tx<'_>, node: &NodeId) -> Result<Vec<Identity>, StoreError> {
    tx.fetch_all(PROVEN, &[node.as_str().into()]).await?.iter().map(identity).collect()
}

/// What a site knows of some endorsement keys, as digests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownKeys {
    /// Those that a live node has proved.
    pub held: Vec<String>,
    /// Those that a ban covers, whichever tenant's it is.
    pub banned: Vec<String>,
}

/// What a site knows of at most [`shared::api::node::MAX_ENDORSEMENT_KEYS`] endorsement keys.
///
/// # Errors
/// The store's.
pub async fn known_endorsement_keys(
    tx: &mut Tx<'_>,
    site: &str,
    keys: &[&str],
) -> Result<KnownKeys, StoreError> {
    let slots = keys.iter().copied().chain(std::iter::repeat("")).take(MAX_ENDORSEMENT_KEYS);
    let args: Vec<Value<'_>> = std::iter::once(site).chain(slots).map(Value::from).collect();
    let mut known = KnownKeys::default();
    for row in tx.fetch_all(KNOWN_EKS, &args).await? {
        let keys = if row.flag("banned")? { &mut known.banned } else { &mut known.held };
        keys.push(row.text("value")?);
    }
    Ok(known)
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
    let swapped = swapped_uuid(product_uuid).unwrap_or_default();
    let args = [site, key_sha256, ek_sha256, tenant_id, product_uuid, serial, &swapped].map(Value::from);
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
    let value = written(identity);
    let row = [site.into(), identity.kind.as_str().into(), (&*value).into(), node.as_str().into()];
    Ok(tx.execute(INSERT_BAN, &row).await? == 1)
}

/// Ends all that a node's ban covers; says whether there was anything.
///
/// # Errors
/// The store's.
pub async fn lift_ban(tx: &mut Tx<'_>, node: &NodeId) -> Result<bool, StoreError> {
    Ok(tx.execute(LIFT_BAN, &[node.as_str().into()]).await? > 0)
}

/// An identity's value as it is written.
fn written(identity: &Identity) -> Cow<'_, str> {
    match identity.kind {
        IdentityKind::ProductUuid => Cow::Owned(uuid_in_one_order(&identity.value)),
        IdentityKind::Key | IdentityKind::Serial | IdentityKind::EndorsementKey => {
            Cow::Borrowed(&identity.value)
        }
    }
}

/// A product UUID in the other byte order.
fn in_other_order(identity: &Identity) -> Option<(&'static str, String)> {
    let swapped = swapped_uuid(&identity.value).filter(|_| identity.kind == IdentityKind::ProductUuid);
    Some((identity.kind.as_str(), swapped?))
}

fn identity(row: &Row) -> Result<Identity, StoreError> {
    Ok(Identity { kind: row.parse_with("kind", IdentityKind::parse)?, value: row.text("value")? })
}
