//! The table `endorsement_authorities`: bundles of CAs of TPM manufacturers, PEM as it was judged when it came.

use super::{Row, StoreError, Tx};
use shared::{api::endorsement_authorities::MAX_AUTHORITIES, id::EndorsementAuthorityId, time::Timestamp};

const FIND: &str = "SELECT id, certificates, added_at, added_by FROM endorsement_authorities \
    WHERE pool_id = $1 AND id = $2";
const STANDS: &str = "SELECT id FROM endorsement_authorities WHERE pool_id = $1 AND id = $2";
const PAGE: &str = "SELECT id, certificates, added_at, added_by FROM endorsement_authorities \
    WHERE pool_id = $1 AND id > $2 ORDER BY id LIMIT $3";
const COUNT: &str = "SELECT COUNT(*) AS count FROM endorsement_authorities WHERE pool_id = $1";
const INSERT: &str = "INSERT INTO endorsement_authorities (id, pool_id, certificates, added_at, added_by) \
    VALUES ($1, $2, $3, $4, $5)";
const REMOVE: &str = "DELETE FROM endorsement_authorities WHERE pool_id = $1 AND id = $2";

pub(super) const STATEMENTS: &[&str] = &[FIND, STANDS, PAGE, COUNT, INSERT, REMOVE];

/// A bundle as it is stored.
#[derive(Clone, Debug)]
pub struct StoredAuthority {
    /// Its id.
    pub id: EndorsementAuthorityId,
    /// Its certificates, PEM blocks.
    pub certificates: String,
    /// When it was added.
    pub added_at: Timestamp,
    /// Who added it.
    pub added_by: String,
}

/// A bundle of a pool.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    pool_id: &str,
    id: &EndorsementAuthorityId,
) -> Result<Option<StoredAuthority>, StoreError> {
    tx.fetch_optional(FIND, &[pool_id.into(), id.as_str().into()])
        .await?
        .map(|row| authority(&row))
        .transpose()
}

/// At most `limit` of a pool's bundles behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<StoredAuthority>, StoreError> {
    tx.fetch_all(PAGE, &[pool_id.into(), after.into(), limit.into()]).await?.iter().map(authority).collect()
}

/// All of a pool's bundles, in order of id: at most [`MAX_AUTHORITIES`].
///
/// # Errors
/// The store's.
pub async fn all(tx: &mut Tx<'_>, pool_id: &str) -> Result<Vec<StoredAuthority>, StoreError> {
    page(tx, pool_id, "", MAX_AUTHORITIES).await
}

/// Whether a bundle is the pool's still.
///
/// # Errors
/// The store's.
pub async fn stands(tx: &mut Tx<'_>, pool_id: &str, id: &EndorsementAuthorityId) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(STANDS, &[pool_id.into(), id.as_str().into()]).await?.is_some())
}

/// How many bundles a pool has. Exact as long as the pool is locked.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, pool_id: &str) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[pool_id.into()]).await?.integer("count")
}

/// Adds a bundle.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, pool_id: &str, new: &StoredAuthority) -> Result<(), StoreError> {
    let row = [
        new.id.as_str().into(),
        pool_id.into(),
        (&new.certificates).into(),
        new.added_at.into(),
        (&new.added_by).into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Removes a bundle.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, pool_id: &str, id: &EndorsementAuthorityId) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[pool_id.into(), id.as_str().into()]).await.map(drop)
}

fn authority(row: &Row) -> Result<StoredAuthority, StoreError> {
    Ok(StoredAuthority {
        id: row.parsed("id")?,
        certificates: row.text("certificates")?,
        added_at: row.time("added_at")?,
        added_by: row.text("added_by")?,
    })
}
