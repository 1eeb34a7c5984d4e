//! The table `sites`. A deleted site keeps its row: its id is never used again, since deleted pools name it.

use super::{Row, StoreError, Tx};
use shared::{
    api::sites::{Cidr, Site},
    time::Timestamp,
};

const FIND: &str = "SELECT id, owner_tenant_id, custom, bmc_networks, created_at FROM sites \
    WHERE id = $1 AND deleted_at IS NULL";
const PAGE: &str = "SELECT id, owner_tenant_id, custom, bmc_networks, created_at FROM sites \
    WHERE id > $1 AND deleted_at IS NULL ORDER BY id LIMIT $2";
const INSERT: &str = "INSERT INTO sites (id, owner_tenant_id, custom, bmc_networks, created_at) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (id) DO NOTHING";
const SET_NETWORKS: &str = "UPDATE sites SET bmc_networks = $2 WHERE id = $1";
const DELETE: &str = "UPDATE sites SET deleted_at = $2 WHERE id = $1";
const HAS_POOLS: &str = "SELECT id FROM pools WHERE site_id = $1 AND deleted_at IS NULL LIMIT 1";

const MADE: &str = "SELECT COUNT(*) AS count FROM sites WHERE owner_tenant_id = $1 AND custom = 1";
const POOLS_MADE: &str = "SELECT COUNT(*) AS count FROM sites JOIN pools ON pools.site_id = sites.id \
    WHERE sites.owner_tenant_id = $1 AND sites.custom = 1";

pub(super) const STATEMENTS: &[&str] =
    &[FIND, PAGE, INSERT, SET_NETWORKS, DELETE, HAS_POOLS, MADE, POOLS_MADE];

/// How many custom sites a tenant may make, those that are deleted included: each takes an id for good, from everybody.
pub const MAX_CUSTOM_SITES: i64 = 20;
/// How many pools may be made on a tenant's custom sites, those that are deleted included: so do their ids.
pub const MAX_CUSTOM_POOLS: i64 = 200;

/// The site, unless it is absent or deleted.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &str) -> Result<Option<Site>, StoreError> {
    tx.fetch_optional(FIND, &[id.into()]).await?.map(|row| site(&row)).transpose()
}

/// The site, locked until the transaction ends: before a pool is put on it, and before it is deleted.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &str) -> Result<Option<Site>, StoreError> {
    tx.lock_optional(FIND, &[id.into()]).await?.map(|row| site(&row)).transpose()
}

/// At most `limit` sites behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(tx: &mut Tx<'_>, after: &str, limit: i64) -> Result<Vec<Site>, StoreError> {
    tx.fetch_all(PAGE, &[after.into(), limit.into()]).await?.iter().map(site).collect()
}

/// Writes a new site, whose owner is locked; `false` if the id is taken or was used before.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &Site) -> Result<bool, StoreError> {
    let networks = json(&new.bmc_networks);
    let row = [
        (&new.site_id).into(),
        (&new.owner_tenant_id).into(),
        new.custom.into(),
        (&networks).into(),
        new.created_at.into(),
    ];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// Writes the networks that a site's BMCs are in.
///
/// # Errors
/// The store's.
pub async fn set_networks(tx: &mut Tx<'_>, id: &str, networks: &[Cidr]) -> Result<(), StoreError> {
    tx.execute(SET_NETWORKS, &[id.into(), (&json(networks)).into()]).await.map(drop)
}

/// How many custom sites a tenant has ever made.
///
/// # Errors
/// The store's.
pub async fn made(tx: &mut Tx<'_>, owner: &str) -> Result<i64, StoreError> {
    tx.fetch_one(MADE, &[owner.into()]).await?.integer("count")
}

/// How many pools were ever made on a tenant's custom sites.
///
/// # Errors
/// The store's.
pub async fn pools_made(tx: &mut Tx<'_>, owner: &str) -> Result<i64, StoreError> {
    tx.fetch_one(POOLS_MADE, &[owner.into()]).await?.integer("count")
}

/// Whether pools stand on the site.
///
/// # Errors
/// The store's.
pub async fn has_pools(tx: &mut Tx<'_>, id: &str) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(HAS_POOLS, &[id.into()]).await?.is_some())
}

/// Deletes a site that has no pools.
///
/// # Errors
/// The store's.
pub async fn delete(tx: &mut Tx<'_>, id: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(DELETE, &[id.into(), now.into()]).await.map(drop)
}

fn json(networks: &[Cidr]) -> String {
    serde_json::json!(networks).to_string()
}

fn site(row: &Row) -> Result<Site, StoreError> {
    Ok(Site {
        site_id: row.text("id")?,
        owner_tenant_id: row.text("owner_tenant_id")?,
        custom: row.flag("custom")?,
        bmc_networks: row.json("bmc_networks")?,
        created_at: row.time("created_at")?,
    })
}
