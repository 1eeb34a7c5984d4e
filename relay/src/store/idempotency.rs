//! The table `idempotent_answers`.

use super::{StoreError, Tx};
use shared::time::Timestamp;

const FIND: &str = "SELECT content_sha256, answer FROM idempotent_answers \
    WHERE subject = $1 AND method = $2 AND idempotency_key = $3";
const INSERT: &str = "INSERT INTO idempotent_answers \
    (subject, method, idempotency_key, content_sha256, answer, created_at) VALUES ($1, $2, $3, $4, $5, $6) \
    ON CONFLICT (subject, method, idempotency_key) DO NOTHING";
const FORGET: &str = "DELETE FROM idempotent_answers WHERE (subject, method, idempotency_key) IN \
    (SELECT subject, method, idempotency_key FROM idempotent_answers WHERE created_at < $1 LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[FIND, INSERT, FORGET];

/// What was answered before.
pub struct StoredAnswer {
    /// SHA-256 of the input.
    pub content_sha256: String,
    /// The answer, JSON.
    pub answer: String,
}

/// The answer kept for this caller, method and key.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    subject: &str,
    method: &str,
    key: &str,
) -> Result<Option<StoredAnswer>, StoreError> {
    let row = tx.fetch_optional(FIND, &[subject.into(), method.into(), key.into()]).await?;
    row.map(|row| {
        Ok(StoredAnswer { content_sha256: row.text("content_sha256")?, answer: row.text("answer")? })
    })
    .transpose()
}

/// Keeps an answer.
///
/// # Errors
/// The store's; [`StoreError::Race`] if an equal request was first.
pub async fn insert(
    tx: &mut Tx<'_>,
    subject: &str,
    method: &str,
    key: &str,
    content_sha256: &str,
    answer: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = [subject.into(), method.into(), key.into(), content_sha256.into(), answer.into(), now.into()];
    if tx.execute(INSERT, &row).await? == 1 { Ok(()) } else { Err(StoreError::Race) }
}

/// Forgets at most `most` answers older than `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}
