//! The tables `audit` and `audit_batches`: who did what, and the batches that records were sealed in. A record is written
//! once and never changed, but for the batch that it gets.

use super::{Row, StoreError, Tx};
use crate::{audit::chain::mark, seal::ChainKey};
use shared::{api::audit::AuditRecord, id::AuditId, time::Timestamp};

const INSERT: &str = "INSERT INTO audit (id, occurred_at, subject, token_id, created_by, tenant_id, action, method, resource, \
    decision, code, client_address, request_id, left_out, mark) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15) ON CONFLICT (id) DO NOTHING";
const PAGE: &str = "SELECT id, occurred_at, subject, token_id, created_by, tenant_id, action, method, resource, decision, code, \
    client_address, request_id, left_out FROM audit WHERE id > $1 AND id >= $2 AND id < $3 ORDER BY id LIMIT $4";
const PAGE_OF_SUBJECT: &str = "SELECT id, occurred_at, subject, token_id, created_by, tenant_id, action, method, resource, \
    decision, code, client_address, request_id, left_out FROM audit \
    WHERE id > $1 AND id >= $2 AND id < $3 AND subject = $5 ORDER BY id LIMIT $4";
const PAGE_OF_TENANT: &str = "SELECT id, occurred_at, subject, token_id, created_by, tenant_id, action, method, resource, \
    decision, code, client_address, request_id, left_out FROM audit \
    WHERE id > $1 AND id >= $2 AND id < $3 AND tenant_id = $5 AND ($6 = '' OR subject = $6) ORDER BY id LIMIT $4";
const OPEN: &str = "SELECT id FROM audit WHERE batch IS NULL AND id < $1 ORDER BY id LIMIT 1";
const COUNT_OPEN: &str = "SELECT COUNT(*) AS count FROM audit WHERE batch IS NULL";
const PAGE_OPEN: &str = "SELECT id, occurred_at, subject, token_id, created_by, tenant_id, action, method, resource, decision, \
    code, client_address, request_id, left_out, mark FROM audit WHERE batch IS NULL AND id > $1 AND id < $2 ORDER BY id LIMIT $3";
const SEAL: &str = "UPDATE audit SET batch = $1 WHERE batch IS NULL AND id >= $2 AND id <= $3";
const OF_BATCH: &str = "SELECT id, occurred_at, subject, token_id, created_by, tenant_id, action, method, resource, decision, \
    code, client_address, request_id, left_out FROM audit WHERE batch = $1 ORDER BY id LIMIT $2";
const STRAY: &str = "SELECT id FROM audit WHERE batch <= $1 OR batch > $2 ORDER BY id LIMIT 1";
const STRAY_BATCH: &str =
    "SELECT number FROM audit_batches WHERE number <= $1 OR number > $2 ORDER BY number LIMIT 1";
const ADD_BATCH: &str =
    "INSERT INTO audit_batches (number, key_id, entries, sealed_at) VALUES ($1, $2, $3, $4)";
const FIND_BATCH: &str = "SELECT key_id, entries FROM audit_batches WHERE number = $1";
const FORGET: &str = "DELETE FROM audit WHERE batch = $1";
const FORGET_BATCH: &str = "DELETE FROM audit_batches WHERE number = $1";

pub(super) const STATEMENTS: &[&str] = &[
    INSERT,
    PAGE,
    PAGE_OF_SUBJECT,
    PAGE_OF_TENANT,
    OPEN,
    COUNT_OPEN,
    PAGE_OPEN,
    SEAL,
    OF_BATCH,
    STRAY,
    STRAY_BATCH,
    ADD_BATCH,
    FIND_BATCH,
    FORGET,
    FORGET_BATCH,
];

/// The most records of a batch.
pub const BATCH_RECORDS: i64 = 500;

/// Which records a page shows.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// Of this tenant only.
    pub tenant: Option<String>,
    /// Of this subject only.
    pub subject: Option<String>,
    /// None before.
    pub since: Option<Timestamp>,
    /// None from then on.
    pub until: Option<Timestamp>,
    /// Behind this one.
    pub after: Option<AuditId>,
}

/// A batch as it is stored.
#[derive(Clone, Debug)]
pub struct BatchRow {
    /// The master key that the chain's key is derived from.
    pub key_id: String,
    /// Its records, in order, with their links.
    pub entries: String,
}

/// The first id that a record of this time can have: ids are in order of time.
#[must_use]
pub fn first_at(time: Timestamp) -> AuditId {
    AuditId::draw(time, [0; 10])
}

/// Writes a record, marked by this key; one that is there stays as it is.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, key: Option<&ChainKey>, record: &AuditRecord) -> Result<(), StoreError> {
    let mark = key.map(|key| mark(key, record));
    let row = [
        record.id.as_str().into(),
        record.occurred_at.into(),
        (&record.subject).into(),
        (&record.token_id).into(),
        (&record.created_by).into(),
        (&record.tenant_id).into(),
        (&record.action).into(),
        (&record.method).into(),
        (&record.resource).into(),
        record.decision.as_str().into(),
        (&record.code).into(),
        (&record.client_address).into(),
        (&record.request_id).into(),
        record.left_out.into(),
        (&mark).into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// At most `limit` records, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(tx: &mut Tx<'_>, listed: &Listed, limit: i64) -> Result<Vec<AuditRecord>, StoreError> {
    let after = listed.after.as_ref().map_or("", AuditId::as_str);
    let since = listed.since.map(first_at);
    let since = since.as_ref().map_or("", AuditId::as_str);
    let until = first_at(listed.until.unwrap_or(Timestamp::MAX));
    let range = [after.into(), since.into(), until.as_str().into(), limit.into()];
    let rows = match (&listed.tenant, &listed.subject) {
        (None, None) => tx.fetch_all(PAGE, &range).await?,
        (None, Some(subject)) => {
            let args = [range.as_slice(), &[subject.into()]].concat();
            tx.fetch_all(PAGE_OF_SUBJECT, &args).await?
        }
        (Some(tenant), subject) => {
            let subject = subject.as_deref().unwrap_or_default();
            let args = [range.as_slice(), &[tenant.into(), subject.into()]].concat();
            tx.fetch_all(PAGE_OF_TENANT, &args).await?
        }
    };
    rows.iter().map(record).collect()
}

/// Whether a record before `cut` is in no batch yet.
///
/// # Errors
/// The store's.
pub async fn any_open(tx: &mut Tx<'_>, cut: &AuditId) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(OPEN, &[cut.as_str().into()]).await?.is_some())
}

/// How many records are in no batch yet.
///
/// # Errors
/// The store's.
pub async fn count_open(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT_OPEN, &[]).await?.integer("count")
}

/// The oldest records behind `after` and before `cut` that are in no batch yet, each with its mark: as many as a batch has.
///
/// # Errors
/// The store's.
pub async fn open(
    tx: &mut Tx<'_>,
    after: Option<&AuditId>,
    cut: &AuditId,
) -> Result<Vec<(AuditRecord, Option<String>)>, StoreError> {
    let args = [after.map_or("", AuditId::as_str).into(), cut.as_str().into(), BATCH_RECORDS.into()];
    let rows = tx.fetch_all(PAGE_OPEN, &args).await?;
    rows.iter().map(|row| Ok((record(row)?, row.maybe_text("mark")?))).collect()
}

/// Puts the open records from `first` to `last` into a batch; answers how many they are.
///
/// # Errors
/// The store's.
pub async fn seal(tx: &mut Tx<'_>, batch: i64, first: &AuditId, last: &AuditId) -> Result<u64, StoreError> {
    tx.execute(SEAL, &[batch.into(), first.as_str().into(), last.as_str().into()]).await
}

/// Writes a batch.
///
/// # Errors
/// The store's.
pub async fn add_batch(
    tx: &mut Tx<'_>,
    number: i64,
    batch: &BatchRow,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = [number.into(), (&batch.key_id).into(), (&batch.entries).into(), now.into()];
    tx.execute(ADD_BATCH, &row).await.map(drop)
}

/// The batch of this number.
///
/// # Errors
/// The store's.
pub async fn find_batch(tx: &mut Tx<'_>, number: i64) -> Result<Option<BatchRow>, StoreError> {
    let row = tx.fetch_optional(FIND_BATCH, &[number.into()]).await?;
    row.map(|row| Ok(BatchRow { key_id: row.text("key_id")?, entries: row.text("entries")? })).transpose()
}

/// The records of a batch; one more than it can have, if there are.
///
/// # Errors
/// The store's.
pub async fn of_batch(tx: &mut Tx<'_>, number: i64) -> Result<Vec<AuditRecord>, StoreError> {
    let args = [number.into(), (BATCH_RECORDS + 1).into()];
    tx.fetch_all(OF_BATCH, &args).await?.iter().map(record).collect()
}

/// A record of a batch that is not behind `base` and up to `head`.
///
/// # Errors
/// The store's.
pub async fn stray(tx: &mut Tx<'_>, base: i64, head: i64) -> Result<Option<AuditId>, StoreError> {
    let row = tx.fetch_optional(STRAY, &[base.into(), head.into()]).await?;
    row.map(|row| row.parsed("id")).transpose()
}

/// A batch that is not behind `base` and up to `head`.
///
/// # Errors
/// The store's.
pub async fn stray_batch(tx: &mut Tx<'_>, base: i64, head: i64) -> Result<Option<i64>, StoreError> {
    let row = tx.fetch_optional(STRAY_BATCH, &[base.into(), head.into()]).await?;
    row.map(|row| row.integer("number")).transpose()
}

/// Forgets a batch and its records.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, number: i64) -> Result<(), StoreError> {
    tx.execute(FORGET, &[number.into()]).await?;
    tx.execute(FORGET_BATCH, &[number.into()]).await.map(drop)
}

fn record(row: &Row) -> Result<AuditRecord, StoreError> {
    Ok(AuditRecord {
        id: row.parsed("id")?,
        occurred_at: row.time("occurred_at")?,
        subject: row.text("subject")?,
        token_id: row.maybe_text("token_id")?,
        created_by: row.maybe_text("created_by")?,
        tenant_id: row.text("tenant_id")?,
        action: row.text("action")?,
        method: row.text("method")?,
        resource: row.text("resource")?,
        decision: row.word("decision")?,
        code: row.text("code")?,
        client_address: row.text("client_address")?,
        request_id: row.text("request_id")?,
        left_out: row.integer("left_out")?,
    })
}
