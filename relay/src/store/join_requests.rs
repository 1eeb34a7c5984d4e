//! The table `join_requests`: the joins that wait for a person.
//!
//! Only a join writes a new row, and it holds its token's lock, so that two of them never write one for the same thing.
//! Every move is a conditional update of the one row, which is locked.

use super::{Row, StoreError, Tx, Value};
use crate::join::requests::{About, Earlier, RequestState};
use shared::{
    api::join_requests::{JoinRequest, JoinRequestState},
    hardware::Identity,
    id::{JoinRequestId, JoinTokenId},
    time::Timestamp,
};
use std::collections::BTreeSet;

const OF_JOIN: &str = "SELECT id, content_sha256, ek_sha256, reasons, incumbents, state, expires_at, decided_at \
    FROM join_requests \
    WHERE token_id = $1 AND csr_sha256 = $2 ORDER BY id LIMIT 1000";
const LOCK_OVERDUE_OF_TOKEN: &str = "SELECT id, tenant_id, pool_id, token_id, csr_sha256, reasons, identity, \
    ek_sha256, ek_manufacturer, ek_vouched, remote_address, state, created_at, expires_at, decided_at, decided_by, note \
    FROM join_requests WHERE token_id = $1 AND state IN ('pending', 'approved') AND expires_at <= $2 \
    ORDER BY id LIMIT 1000";
const LOCK_OPEN_OF_TOKEN: &str = "SELECT id, tenant_id, pool_id, token_id, csr_sha256, reasons, identity, ek_sha256, \
    ek_manufacturer, ek_vouched, remote_address, state, created_at, expires_at, decided_at, decided_by, note \
    FROM join_requests \
    WHERE token_id = $1 AND state IN ('pending', 'approved') ORDER BY id LIMIT 1000";
const FIND: &str = "SELECT id, tenant_id, pool_id, token_id, csr_sha256, reasons, identity, ek_sha256, \
    ek_manufacturer, ek_vouched, remote_address, state, created_at, expires_at, decided_at, decided_by, note \
    FROM join_requests \
    WHERE id = $1 AND pool_id = $2";
const PAGE: &str = "SELECT id, tenant_id, pool_id, token_id, csr_sha256, reasons, identity, ek_sha256, \
    ek_manufacturer, ek_vouched, remote_address, state, created_at, expires_at, decided_at, decided_by, note \
    FROM join_requests \
    WHERE pool_id = $1 AND state IN ($2, $3, $4) AND CASE WHEN state IN ('pending', 'approved') AND expires_at <= $5 \
    THEN 'expired' ELSE state END = $2 AND id > $6 ORDER BY id LIMIT $7";
const INSERT: &str = "INSERT INTO join_requests (id, token_id, csr_sha256, content_sha256, pool_id, tenant_id, \
    reasons, identity, ek_sha256, ek_manufacturer, ek_vouched, remote_address, state, created_at, expires_at, \
    incumbents) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, 'pending', $13, $14, $15)";
const DECIDE: &str = "UPDATE join_requests SET state = $2, expires_at = $3, decided_at = $4, decided_by = $5, \
    note = COALESCE($6, note) WHERE id = $1 AND state IN ('pending', 'approved')";
const END: &str = "UPDATE join_requests SET state = $2 WHERE id = $1 AND state IN ('pending', 'approved')";
const OVERDUE: &str = "SELECT token_id FROM join_requests \
    WHERE state = $1 AND expires_at <= $2 ORDER BY expires_at LIMIT 100";
const FORGET: &str = "DELETE FROM join_requests WHERE id IN \
    (SELECT id FROM join_requests WHERE state IN ('consumed', 'denied', 'expired') AND expires_at < $1 LIMIT $2)";
const ANY_OPEN: &str = "SELECT id FROM join_requests \
    WHERE pool_id = $1 AND state IN ('pending', 'approved') AND expires_at > $2 LIMIT 1";
const COUNT_PENDING: &str =
    "SELECT CAST(COUNT(*) AS BIGINT) AS count FROM join_requests WHERE state = 'pending'";

pub(super) const STATEMENTS: &[&str] = &[
    OF_JOIN,
    LOCK_OVERDUE_OF_TOKEN,
    LOCK_OPEN_OF_TOKEN,
    FIND,
    PAGE,
    INSERT,
    DECIDE,
    END,
    OVERDUE,
    FORGET,
    ANY_OPEN,
    COUNT_PENDING,
];

/// What a person decided.
#[derive(Clone, Copy, Debug)]
pub struct Decided<'a> {
    /// The state that it brings.
    pub state: JoinRequestState,
    /// When the request ends from now on.
    pub expires_at: Timestamp,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub by: &'a str,
    /// What they noted.
    pub note: Option<&'a str>,
}

/// The requests that a join has made so far, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock_of_join(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    csr_sha256: &str,
) -> Result<Vec<Earlier>, StoreError> {
    tx.lock_all(OF_JOIN, &[token.as_str().into(), csr_sha256.into()]).await?.iter().map(earlier).collect()
}

/// The requests that a join has made so far, not locked.
///
/// # Errors
/// The store's.
pub async fn of_join(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    csr_sha256: &str,
) -> Result<Vec<Earlier>, StoreError> {
    tx.fetch_all(OF_JOIN, &[token.as_str().into(), csr_sha256.into()]).await?.iter().map(earlier).collect()
}

/// A token's requests that are pending or approved though their time is over, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock_overdue(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    now: Timestamp,
) -> Result<Vec<JoinRequest>, StoreError> {
    let args = [token.as_str().into(), now.into()];
    tx.lock_all(LOCK_OVERDUE_OF_TOKEN, &args).await?.iter().map(request).collect()
}

/// A token's requests that are pending or approved, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock_open(tx: &mut Tx<'_>, token: &JoinTokenId) -> Result<Vec<JoinRequest>, StoreError> {
    tx.lock_all(LOCK_OPEN_OF_TOKEN, &[token.as_str().into()]).await?.iter().map(request).collect()
}

/// The request, if it is of this pool.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    pool_id: &str,
    id: &JoinRequestId,
) -> Result<Option<JoinRequest>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into(), pool_id.into()]).await?.map(|row| request(&row)).transpose()
}

/// As [`find`], locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(
    tx: &mut Tx<'_>,
    pool_id: &str,
    id: &JoinRequestId,
) -> Result<Option<JoinRequest>, StoreError> {
    tx.lock_optional(FIND, &[id.as_str().into(), pool_id.into()]).await?.map(|row| request(&row)).transpose()
}

/// At most `limit` of a pool's requests that are in a state at that time, behind `after`, in order of id. Their rows may
/// still have the state before.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    (state, now): (JoinRequestState, Timestamp),
    after: &str,
    limit: i64,
) -> Result<Vec<JoinRequest>, StoreError> {
    use JoinRequestState::{Approved, Expired, Pending};
    let rows = if state == Expired { [Expired, Pending, Approved] } else { [state; 3] };
    let [first, second, third] = rows.map(|state| Value::from(state.as_str()));
    let args = [pool_id.into(), first, second, third, now.into(), after.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(request).collect()
}

/// Writes a new pending request.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, request: &JoinRequest, about: About<'_>) -> Result<(), StoreError> {
    let reasons = serde_json::json!(request.reasons).to_string();
    let identity = serde_json::json!(request.identity).to_string();
    let incumbents = serde_json::json!(about.incumbents).to_string();
    let row = [
        request.id.as_str().into(),
        request.token_id.as_str().into(),
        (&request.csr_sha256).into(),
        about.content_sha256.into(),
        (&request.pool_id).into(),
        (&request.tenant_id).into(),
        (&reasons).into(),
        (&identity).into(),
        (&request.ek_sha256).into(),
        (&request.ek_manufacturer).into(),
        request.ek_vouched.unwrap_or_default().into(),
        (&request.remote_address).into(),
        request.created_at.into(),
        request.expires_at.into(),
        (&incumbents).into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Writes a decision; says whether the request was open.
///
/// # Errors
/// The store's.
pub async fn decide(tx: &mut Tx<'_>, id: &JoinRequestId, decided: Decided<'_>) -> Result<bool, StoreError> {
    let row = [
        id.as_str().into(),
        decided.state.as_str().into(),
        decided.expires_at.into(),
        decided.at.into(),
        decided.by.into(),
        decided.note.into(),
    ];
    Ok(tx.execute(DECIDE, &row).await? == 1)
}

/// Ends a request that nobody decided now: consumed or expired. Says whether it was open.
///
/// # Errors
/// The store's.
pub async fn end(tx: &mut Tx<'_>, id: &JoinRequestId, state: JoinRequestState) -> Result<bool, StoreError> {
    Ok(tx.execute(END, &[id.as_str().into(), state.as_str().into()]).await? == 1)
}

/// The tokens of at most 100 requests of a state whose time is over, the oldest first.
///
/// # Errors
/// The store's.
pub async fn overdue(
    tx: &mut Tx<'_>,
    state: JoinRequestState,
    now: Timestamp,
) -> Result<BTreeSet<JoinTokenId>, StoreError> {
    let rows = tx.fetch_all(OVERDUE, &[state.as_str().into(), now.into()]).await?;
    rows.iter().map(|row| row.parsed("token_id")).collect()
}

/// Forgets at most `most` requests that have ended, by themselves or otherwise, and would have ended by themselves before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

/// Whether a request of the pool is pending or approved, and its time not over.
///
/// # Errors
/// The store's.
pub async fn any_open(tx: &mut Tx<'_>, pool_id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(ANY_OPEN, &[pool_id.into(), now.into()]).await?.is_some())
}

/// How many are pending, for the metrics.
///
/// # Errors
/// The store's.
pub async fn count_pending(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT_PENDING, &[]).await?.integer("count")
}

fn earlier(row: &Row) -> Result<Earlier, StoreError> {
    Ok(Earlier {
        id: row.parsed("id")?,
        content_sha256: row.text("content_sha256")?,
        ek_sha256: row.maybe_text("ek_sha256")?,
        reasons: row.json("reasons")?,
        incumbents: row.maybe_json("incumbents")?.unwrap_or_default(),
        state: state(row)?,
    })
}

fn state(row: &Row) -> Result<RequestState, StoreError> {
    Ok(RequestState {
        state: row.word("state")?,
        expires_at: row.time("expires_at")?,
        decided: row.maybe_time("decided_at")?.is_some(),
    })
}

fn request(row: &Row) -> Result<JoinRequest, StoreError> {
    let (ek_sha256, ek_vouched) = (row.maybe_text("ek_sha256")?, row.flag("ek_vouched")?);
    Ok(JoinRequest {
        id: row.parsed("id")?,
        tenant_id: row.text("tenant_id")?,
        pool_id: row.text("pool_id")?,
        token_id: row.parsed("token_id")?,
        csr_sha256: row.text("csr_sha256")?,
        reasons: row.json("reasons")?,
        identity: row.json::<Identity>("identity")?,
        ek_vouched: ek_sha256.is_some().then_some(ek_vouched),
        ek_sha256,
        ek_manufacturer: row.maybe_text("ek_manufacturer")?,
        remote_address: row.text("remote_address")?,
        shared_with: Vec::new(),
        state: row.word("state")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
        decided_at: row.maybe_time("decided_at")?,
        decided_by: row.maybe_text("decided_by")?,
        note: row.maybe_text("note")?,
    })
}
