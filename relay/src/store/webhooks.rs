//! The table `webhooks`. What an attempt came to is written only where the webhook is still the one that it was made by
//! (`revision`) and no other attempt came first (`event_number`): so the number of the last event only grows, by one
//! worker's steps, and whoever was late changes nothing.

use super::{Row, StoreError, Tx};
use shared::{
    api::webhooks::{DisabledReason, Webhook},
    id::WebhookId,
    time::Timestamp,
};

const FIND: &str = "SELECT id, tenant_id, url, types, sealed_secret, created_at, created_by, revision, event_number, \
    delivered_at, failures, failing_since, last_error, disabled_at, disabled_reason FROM webhooks WHERE id = $1";
const PAGE: &str = "SELECT id, tenant_id, url, types, sealed_secret, created_at, created_by, revision, event_number, \
    delivered_at, failures, failing_since, last_error, disabled_at, disabled_reason FROM webhooks \
    WHERE tenant_id = $1 AND id > $2 ORDER BY id LIMIT $3";
const COUNT: &str = "SELECT COUNT(*) AS count FROM webhooks WHERE tenant_id = $1";
const INSERT: &str = "INSERT INTO webhooks (id, tenant_id, url, types, sealed_secret, created_at, created_by, revision, \
    event_number, failures) VALUES ($1, $2, $3, $4, $5, $6, $7, 0, $8, 0)";
const CHANGE: &str = "UPDATE webhooks SET url = $2, types = $3, sealed_secret = $4, revision = revision + 1, failures = $5, \
    failing_since = $6, last_error = $7, disabled_at = $8, disabled_reason = $9 WHERE id = $1";
const REMOVE: &str = "DELETE FROM webhooks WHERE id = $1";
const REMOVE_ALL: &str = "DELETE FROM webhooks WHERE tenant_id = $1";
const DELIVERED: &str = "UPDATE webhooks SET event_number = $4, delivered_at = $5, failures = 0, failing_since = NULL, \
    last_error = NULL WHERE id = $1 AND revision = $2 AND event_number = $3 AND disabled_at IS NULL";
const PASSED: &str = "UPDATE webhooks SET event_number = $4 \
    WHERE id = $1 AND revision = $2 AND event_number = $3 AND disabled_at IS NULL";
const FAILED: &str = "UPDATE webhooks SET failures = $4, failing_since = $5, last_error = $6, disabled_at = $7, \
    disabled_reason = $8 WHERE id = $1 AND revision = $2 AND event_number = $3";
const TOLD: &str = "SELECT DISTINCT webhooks.id, webhooks.types, events.type FROM events \
    JOIN webhooks ON webhooks.tenant_id = events.tenant_id AND webhooks.disabled_at IS NULL \
    AND webhooks.event_number < events.number \
    WHERE events.number > $1 AND events.number <= $2 ORDER BY webhooks.id LIMIT $3";
const IDLE: &str = "SELECT id FROM webhooks WHERE disabled_at IS NULL \
    AND event_number < (SELECT MAX(number) FROM events WHERE events.tenant_id = webhooks.tenant_id) \
    AND NOT EXISTS (SELECT 1 FROM tasks WHERE task_key = webhooks.id AND due_at IS NOT NULL) \
    ORDER BY event_number, id LIMIT $1";
const BEHIND: &str =
    "SELECT type, MAX(number) AS number FROM events WHERE tenant_id = $1 AND number > $2 GROUP BY type";

pub(super) const STATEMENTS: &[&str] =
    &[FIND, PAGE, COUNT, INSERT, CHANGE, REMOVE, REMOVE_ALL, DELIVERED, PASSED, FAILED, TOLD, IDLE, BEHIND];

/// The table that a secret is sealed to.
pub const TABLE: &str = "webhooks";
/// The column that a secret is sealed to.
pub const COLUMN: &str = "sealed_secret";

/// A webhook, and what its deliveries need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookRow {
    /// What is shown of it.
    pub webhook: Webhook,
    /// Its secret, sealed.
    pub sealed_secret: String,
    /// Grows with each change.
    pub revision: i64,
    /// The number of the last event that was delivered or passed over.
    pub event_number: i64,
    /// How many attempts failed since the last success.
    pub failures: i64,
}

/// What a failed attempt makes of a webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed<'a> {
    /// How many attempts failed since the last success.
    pub failures: i64,
    /// Since when.
    pub failing_since: Timestamp,
    /// The word for the last one.
    pub last_error: &'a str,
    /// When it is disabled because of them, if it is.
    pub disabled_at: Option<Timestamp>,
}

/// The webhook of this id.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &WebhookId) -> Result<Option<WebhookRow>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| whole(&row)).transpose()
}

/// The webhook of this id, locked.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &WebhookId) -> Result<Option<WebhookRow>, StoreError> {
    tx.lock_optional(FIND, &[id.as_str().into()]).await?.map(|row| whole(&row)).transpose()
}

/// At most `limit` webhooks of a tenant behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    tenant: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<Webhook>, StoreError> {
    tx.fetch_all(PAGE, &[tenant.into(), after.into(), limit.into()]).await?.iter().map(webhook).collect()
}

/// How many webhooks a tenant has. Exact as long as the tenant is locked.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, tenant: &str) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[tenant.into()]).await?.integer("count")
}

/// Writes a new webhook, whose events begin behind this number.
///
/// # Errors
/// The store's.
pub async fn insert(
    tx: &mut Tx<'_>,
    new: &Webhook,
    sealed_secret: &str,
    event_number: i64,
) -> Result<(), StoreError> {
    let types = words(&new.types);
    let row = [
        new.id.as_str().into(),
        (&new.tenant_id).into(),
        (&new.url).into(),
        types.as_str().into(),
        sealed_secret.into(),
        new.created_at.into(),
        (&new.created_by).into(),
        event_number.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Writes a webhook, which is locked, as it is now. Attempts by what it was count no more.
///
/// # Errors
/// The store's.
pub async fn change(tx: &mut Tx<'_>, now: &WebhookRow) -> Result<(), StoreError> {
    let (webhook, types) = (&now.webhook, words(&now.webhook.types));
    let row = [
        webhook.id.as_str().into(),
        (&webhook.url).into(),
        types.as_str().into(),
        (&now.sealed_secret).into(),
        now.failures.into(),
        webhook.failing_since.into(),
        (&webhook.last_error).into(),
        webhook.disabled_at.into(),
        webhook.disabled_reason.map(DisabledReason::as_str).into(),
    ];
    tx.execute(CHANGE, &row).await.map(drop)
}

/// Removes a webhook.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, id: &WebhookId) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[id.as_str().into()]).await.map(drop)
}

/// Removes all webhooks of a tenant.
///
/// # Errors
/// The store's.
pub async fn remove_all(tx: &mut Tx<'_>, tenant: &str) -> Result<(), StoreError> {
    tx.execute(REMOVE_ALL, &[tenant.into()]).await.map(drop)
}

/// Keeps that the event of this number was delivered; `false`, and nothing is written, if the webhook is another by now.
///
/// # Errors
/// The store's.
pub async fn delivered(
    tx: &mut Tx<'_>,
    by: &WebhookRow,
    number: i64,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let row = [
        by.webhook.id.as_str().into(),
        by.revision.into(),
        by.event_number.into(),
        number.into(),
        now.into(),
    ];
    Ok(tx.execute(DELIVERED, &row).await? == 1)
}

/// Keeps that the events up to this number are none of the webhook's; `false`, and nothing is written, if it is another by
/// now.
///
/// # Errors
/// The store's.
pub async fn passed(tx: &mut Tx<'_>, by: &WebhookRow, number: i64) -> Result<bool, StoreError> {
    let row = [by.webhook.id.as_str().into(), by.revision.into(), by.event_number.into(), number.into()];
    Ok(tx.execute(PASSED, &row).await? == 1)
}

/// Writes what a failed attempt makes of a webhook, which is locked.
///
/// # Errors
/// The store's.
pub async fn failed(tx: &mut Tx<'_>, by: &WebhookRow, failed: &Failed<'_>) -> Result<(), StoreError> {
    let reason = failed.disabled_at.map(|_| DisabledReason::Failing.as_str());
    let row = [
        by.webhook.id.as_str().into(),
        by.revision.into(),
        by.event_number.into(),
        failed.failures.into(),
        failed.failing_since.into(),
        failed.last_error.into(),
        failed.disabled_at.into(),
        reason.into(),
    ];
    tx.execute(FAILED, &row).await.map(drop)
}

/// At most `limit` pairs of an enabled webhook and a type of its tenant's events with a number over `after`, up to `last`:
/// the webhook's id, its types, the event's type.
///
/// # Errors
/// The store's.
pub async fn told(
    tx: &mut Tx<'_>,
    (after, last): (i64, i64),
    limit: i64,
) -> Result<Vec<(WebhookId, Vec<String>, String)>, StoreError> {
    let rows = tx.fetch_all(TOLD, &[after.into(), last.into(), limit.into()]).await?;
    rows.iter().map(|row| Ok((row.parsed("id")?, row.json("types")?, row.text("type")?))).collect()
}

/// At most `limit` enabled webhooks that are behind their tenant's events without a task that has not ended, those first
/// that are farthest behind.
///
/// # Errors
/// The store's.
pub async fn idle(tx: &mut Tx<'_>, limit: i64) -> Result<Vec<WebhookId>, StoreError> {
    tx.fetch_all(IDLE, &[limit.into()]).await?.iter().map(|row| row.parsed("id")).collect()
}

/// The types of a tenant's events with a number over `after`, each with its greatest number. Types are few.
///
/// # Errors
/// The store's.
pub async fn behind(tx: &mut Tx<'_>, tenant: &str, after: i64) -> Result<Vec<(String, i64)>, StoreError> {
    let rows = tx.fetch_all(BEHIND, &[tenant.into(), after.into()]).await?;
    rows.iter().map(|row| Ok((row.text("type")?, row.integer("number")?))).collect()
}

fn words(types: &[String]) -> String {
    serde_json::Value::from(types).to_string()
}

fn whole(row: &Row) -> Result<WebhookRow, StoreError> {
    Ok(WebhookRow {
        webhook: webhook(row)?,
        sealed_secret: row.text("sealed_secret")?,
        revision: row.integer("revision")?,
        event_number: row.integer("event_number")?,
        failures: row.integer("failures")?,
    })
}

fn webhook(row: &Row) -> Result<Webhook, StoreError> {
    let disabled_at = row.maybe_time("disabled_at")?;
    Ok(Webhook {
        id: row.parsed("id")?,
        tenant_id: row.text("tenant_id")?,
        url: row.text("url")?,
        types: row.json("types")?,
        enabled: disabled_at.is_none(),
        created_at: row.time("created_at")?,
        created_by: row.text("created_by")?,
        delivered_at: row.maybe_time("delivered_at")?,
        failing_since: row.maybe_time("failing_since")?,
        last_error: row.maybe_text("last_error")?,
        disabled_at,
        disabled_reason: row.maybe_word("disabled_reason")?,
    })
}
