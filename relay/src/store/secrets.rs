//! The table `secrets`: the platform secrets of a pool, sealed.

use super::{Row, StoreError, Tx};
use shared::api::secrets::{MAX_SECRETS, SecretInfo};

const FIND: &str = "SELECT name, updated_at, updated_by FROM secrets WHERE pool_id = $1 AND name = $2";
const PAGE: &str = "SELECT name, updated_at, updated_by FROM secrets WHERE pool_id = $1 AND name > $2 \
    ORDER BY name LIMIT $3";
const COUNT: &str = "SELECT COUNT(*) AS count FROM secrets WHERE pool_id = $1";
const PUT: &str = "INSERT INTO secrets (pool_id, name, sealed, updated_at, updated_by) VALUES ($1, $2, $3, $4, $5) \
    ON CONFLICT (pool_id, name) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at, \
    updated_by = excluded.updated_by";
const REMOVE: &str = "DELETE FROM secrets WHERE pool_id = $1 AND name = $2";
const SEALED: &str = "SELECT name, sealed FROM secrets WHERE pool_id = $1 ORDER BY name LIMIT $2";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, COUNT, PUT, REMOVE, SEALED];

/// The table that a secret is sealed to.
pub const TABLE: &str = "secrets";
/// The column that a secret is sealed to.
pub const COLUMN: &str = "sealed";

/// A secret as it is stored.
#[derive(Clone)]
pub struct SealedSecret {
    /// Its name.
    pub name: String,
    /// The row that it is sealed to.
    pub row: String,
    /// Its value, sealed.
    pub sealed: String,
}

/// The primary key as one text, to seal to. Neither part can hold a slash.
#[must_use]
pub fn row_key(pool_id: &str, name: &str) -> String {
    format!("{pool_id}/{name}")
}

/// What is known of a secret.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, pool_id: &str, name: &str) -> Result<Option<SecretInfo>, StoreError> {
    tx.fetch_optional(FIND, &[pool_id.into(), name.into()]).await?.map(|row| info(&row)).transpose()
}

/// At most `limit` of a pool's secrets behind `after`, in order of name, without their values.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<SecretInfo>, StoreError> {
    tx.fetch_all(PAGE, &[pool_id.into(), after.into(), limit.into()]).await?.iter().map(info).collect()
}

/// How many secrets a pool has. Exact as long as the pool is locked.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, pool_id: &str) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[pool_id.into()]).await?.integer("count")
}

/// Writes a secret, new or again.
///
/// # Errors
/// The store's.
pub async fn put(tx: &mut Tx<'_>, pool_id: &str, info: &SecretInfo, sealed: &str) -> Result<(), StoreError> {
    let row = [
        pool_id.into(),
        (&info.name).into(),
        sealed.into(),
        info.updated_at.into(),
        (&info.updated_by).into(),
    ];
    tx.execute(PUT, &row).await.map(drop)
}

/// Removes a secret.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, pool_id: &str, name: &str) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[pool_id.into(), name.into()]).await.map(drop)
}

/// All of a pool's secrets with their sealed values.
///
/// # Errors
/// The store's.
pub async fn sealed(tx: &mut Tx<'_>, pool_id: &str) -> Result<Vec<SealedSecret>, StoreError> {
    let rows = tx.fetch_all(SEALED, &[pool_id.into(), MAX_SECRETS.into()]).await?;
    let secrets = rows.iter().map(|row| {
        let name = row.text("name")?;
        Ok(SealedSecret { row: row_key(pool_id, &name), name, sealed: row.text("sealed")? })
    });
    secrets.collect()
}

fn info(row: &Row) -> Result<SecretInfo, StoreError> {
    Ok(SecretInfo {
        name: row.text("name")?,
        updated_at: row.time("updated_at")?,
        updated_by: row.text("updated_by")?,
    })
}
