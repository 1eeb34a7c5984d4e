//! The table `components`: programs that work for the installation, while they ping.

use super::{Row, StoreError, Tx};
use shared::{api::components::Component, id::TokenId, time::Timestamp};

const FIND: &str = "SELECT type, identifier, version, started_at, interval_seconds, subject, token_id, token_expires_at, \
    created_at, pinged_at FROM components WHERE type = $1 AND identifier = $2";
const PAGE: &str = "SELECT type, identifier, version, started_at, interval_seconds, subject, token_id, token_expires_at, \
    created_at, pinged_at FROM components WHERE (type > $1 OR (type = $1 AND identifier > $2)) AND ($3 = '' OR type = $3) \
    ORDER BY type, identifier LIMIT $4";
const COUNT: &str = "SELECT COUNT(*) AS count FROM components WHERE subject = $1";
const PUT: &str = "INSERT INTO components (type, identifier, version, started_at, interval_seconds, subject, token_id, \
    token_expires_at, created_at, pinged_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, (SELECT expires_at FROM credentials WHERE id = $7), $8, $9) \
    ON CONFLICT (type, identifier) DO UPDATE SET version = excluded.version, started_at = excluded.started_at, \
    interval_seconds = excluded.interval_seconds, token_id = excluded.token_id, token_expires_at = excluded.token_expires_at, \
    pinged_at = excluded.pinged_at WHERE components.subject = excluded.subject";
const REMOVE: &str = "DELETE FROM components WHERE type = $1 AND identifier = $2";
const FORGET: &str = "DELETE FROM components WHERE (type, identifier) IN \
    (SELECT type, identifier FROM components WHERE pinged_at < $1 LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, COUNT, PUT, REMOVE, FORGET];

/// A component.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    (kind, identifier): (&str, &str),
) -> Result<Option<Component>, StoreError> {
    let found = tx.fetch_optional(FIND, &[kind.into(), identifier.into()]).await?;
    found.map(|row| component(&row)).transpose()
}

/// A component, locked.
///
/// # Errors
/// The store's.
pub async fn lock(
    tx: &mut Tx<'_>,
    (kind, identifier): (&str, &str),
) -> Result<Option<Component>, StoreError> {
    let found = tx.lock_optional(FIND, &[kind.into(), identifier.into()]).await?;
    found.map(|row| component(&row)).transpose()
}

/// At most `limit` components behind `after`, of one type unless `of` is empty, in order of type and identifier.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    of: &str,
    after: (&str, &str),
    limit: i64,
) -> Result<Vec<Component>, StoreError> {
    let args = [after.0.into(), after.1.into(), of.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(component).collect()
}

/// How many components ping as `subject`.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, subject: &str) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[subject.into()]).await?.integer("count")
}

/// Keeps what a ping says; when its token ends is looked up here.
///
/// # Errors
/// The store's; [`StoreError::Race`] if another subject pinged it first meanwhile.
pub async fn put(tx: &mut Tx<'_>, said: &Component) -> Result<(), StoreError> {
    let row = [
        (&said.component_type).into(),
        (&said.identifier).into(),
        (&said.version).into(),
        said.started_at.into(),
        said.interval_seconds.into(),
        (&said.subject).into(),
        said.token_id.as_ref().map(TokenId::as_str).into(),
        said.created_at.into(),
        said.pinged_at.into(),
    ];
    if tx.execute(PUT, &row).await? == 1 { Ok(()) } else { Err(StoreError::Race) }
}

/// Removes a component.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, (kind, identifier): (&str, &str)) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[kind.into(), identifier.into()]).await.map(drop)
}

/// Forgets at most `most` components that last pinged before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn component(row: &Row) -> Result<Component, StoreError> {
    Ok(Component {
        component_type: row.text("type")?,
        identifier: row.text("identifier")?,
        version: row.text("version")?,
        started_at: row.time("started_at")?,
        interval_seconds: row.integer("interval_seconds")?,
        created_at: row.time("created_at")?,
        pinged_at: row.time("pinged_at")?,
        subject: row.text("subject")?,
        token_id: row.maybe_text("token_id")?.map(|_| row.parsed("token_id")).transpose()?,
        token_expires_at: row.maybe_time("token_expires_at")?,
    })
}
