//! The table `endorsement_keys`: the endorsement keys that a pool admits; and those that were proved in the pool and
//! are not on its list, read from nodes and join requests.

use super::{Row, StoreError, Tx};
use shared::{
    api::endorsement_keys::{EndorsementKeyInfo, UnmatchedKey},
    time::Timestamp,
};

const FIND: &str = "SELECT ek_sha256, note, added_at, added_by FROM endorsement_keys \
    WHERE pool_id = $1 AND ek_sha256 = $2";
const PAGE: &str = "SELECT ek_sha256, note, added_at, added_by FROM endorsement_keys \
    WHERE pool_id = $1 AND ek_sha256 > $2 ORDER BY ek_sha256 LIMIT $3";
const INSERT: &str = "INSERT INTO endorsement_keys (pool_id, ek_sha256, note, added_at, added_by) \
    VALUES ($1, $2, $3, $4, $5)";
const REMOVE: &str = "DELETE FROM endorsement_keys WHERE pool_id = $1 AND ek_sha256 = $2";
const LISTED: &str = "SELECT ek_sha256 FROM endorsement_keys WHERE pool_id = $1 \
    AND ek_sha256 IN ($2, $3, $4, $5, $6, $7, $8, $9)";
const UNMATCHED: &str = "SELECT s.ek_sha256, COALESCE(MAX(CASE WHEN s.ek_vouched = 1 THEN s.ek_manufacturer END), \
    CASE WHEN MAX(s.ek_vouched) = 0 THEN MAX(s.ek_manufacturer) END) AS ek_manufacturer, \
    CAST(MAX(s.ek_vouched) AS BIGINT) AS ek_vouched, MAX(s.node_id) AS node_id, \
    MAX(s.request_id) AS request_id, MIN(s.seen_at) AS first_seen_at FROM ( \
    SELECT ek_sha256, ek_manufacturer, ek_vouched, id AS node_id, CAST(NULL AS TEXT) AS request_id, created_at AS seen_at \
    FROM nodes WHERE pool_id = $1 AND ek_sha256 > $2 AND state <> 'released' \
    UNION ALL \
    SELECT ek_sha256, ek_manufacturer, ek_vouched, CAST(NULL AS TEXT) AS node_id, id AS request_id, created_at AS seen_at \
    FROM join_requests WHERE pool_id = $1 AND ek_sha256 > $2 AND state IN ('pending', 'approved') AND expires_at > $4 \
    ) s WHERE NOT EXISTS (SELECT 1 FROM endorsement_keys k WHERE k.pool_id = $1 AND k.ek_sha256 = s.ek_sha256) \
    GROUP BY s.ek_sha256 ORDER BY s.ek_sha256 LIMIT $3";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, INSERT, REMOVE, LISTED, UNMATCHED];

/// How many keys [`listed`] looks for: as many as a machine offers.
const KEYS_AT_ONCE: usize = shared::api::node::MAX_ENDORSEMENT_KEYS;

/// A key of a pool's list.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    pool_id: &str,
    ek_sha256: &str,
) -> Result<Option<EndorsementKeyInfo>, StoreError> {
    tx.fetch_optional(FIND, &[pool_id.into(), ek_sha256.into()]).await?.map(|row| key(&row)).transpose()
}

/// Those of at most [`shared::api::node::MAX_ENDORSEMENT_KEYS`] keys that are on the pool's list, in no order.
///
/// # Errors
/// The store's.
pub async fn listed(tx: &mut Tx<'_>, pool_id: &str, keys: &[&str]) -> Result<Vec<String>, StoreError> {
    // No digest is empty.
    let mut row = [super::Value::from(""); KEYS_AT_ONCE + 1];
    let values = std::iter::once(pool_id).chain(keys.iter().copied());
    row.iter_mut().zip(values).for_each(|(slot, value)| *slot = value.into());
    tx.fetch_all(LISTED, &row).await?.iter().map(|row| row.text("ek_sha256")).collect()
}

/// At most `limit` keys of a pool's list behind `after`, in order of digest.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<EndorsementKeyInfo>, StoreError> {
    tx.fetch_all(PAGE, &[pool_id.into(), after.into(), limit.into()]).await?.iter().map(key).collect()
}

/// Puts a key on a pool's list.
///
/// # Errors
/// The store's; it is on the list already.
pub async fn insert(tx: &mut Tx<'_>, pool_id: &str, key: &EndorsementKeyInfo) -> Result<(), StoreError> {
    let row = [
        pool_id.into(),
        (&key.ek_sha256).into(),
        (&key.note).into(),
        key.added_at.into(),
        (&key.added_by).into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Takes a key off a pool's list.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, pool_id: &str, ek_sha256: &str) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[pool_id.into(), ek_sha256.into()]).await.map(drop)
}

/// At most `limit` keys behind `after` that were proved in the pool and are not on its list, in order of digest: those
/// of nodes that are not released and of join requests that are open at `now`.
///
/// # Errors
/// The store's.
pub async fn unmatched(
    tx: &mut Tx<'_>,
    pool_id: &str,
    after: &str,
    limit: i64,
    now: Timestamp,
) -> Result<Vec<UnmatchedKey>, StoreError> {
    let args = [pool_id.into(), after.into(), limit.into(), now.into()];
    tx.fetch_all(UNMATCHED, &args).await?.iter().map(unmatched_key).collect()
}

fn key(row: &Row) -> Result<EndorsementKeyInfo, StoreError> {
    Ok(EndorsementKeyInfo {
        ek_sha256: row.text("ek_sha256")?,
        note: row.maybe_text("note")?,
        added_at: row.time("added_at")?,
        added_by: row.text("added_by")?,
    })
}

fn unmatched_key(row: &Row) -> Result<UnmatchedKey, StoreError> {
    let node = row.maybe_text("node_id")?.map(|_| row.parsed("node_id")).transpose()?;
    let request = row.maybe_text("request_id")?.map(|_| row.parsed("request_id")).transpose()?;
    Ok(UnmatchedKey {
        ek_sha256: row.text("ek_sha256")?,
        ek_manufacturer: row.maybe_text("ek_manufacturer")?,
        ek_vouched: row.flag("ek_vouched")?,
        node_id: node,
        join_request_id: request,
        first_seen_at: row.time("first_seen_at")?,
    })
}
