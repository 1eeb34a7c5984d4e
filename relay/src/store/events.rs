//! The table `events`. An event is written without a number, in the transaction of its change; it gets the next one
//! afterwards, when that is committed. Numbers are given by one transaction at a time, which locks the row of `meta`
//! that holds the last: so they grow in the order in which events can be seen, without a gap, whatever crashes.

use super::{
    Row, StoreError, Tx,
    meta::{self, Name},
};
use crate::{
    events::{Event, Origin},
    random::Random,
};
use shared::{api::events::CloudEvent, id::EventId, time::Timestamp};

const INSERT: &str = "INSERT INTO events (id, type, tenant_id, subject, actor, request_id, data, occurred_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const PAGE: &str = "SELECT id, type, tenant_id, subject, actor, request_id, data, occurred_at, number FROM events \
    WHERE tenant_id = $1 AND id > $2 AND occurred_at >= $3 ORDER BY id LIMIT $4";
const AFTER: &str = "SELECT id, type, tenant_id, subject, actor, request_id, data, occurred_at, number FROM events \
    WHERE number > $1 ORDER BY number LIMIT $2";
const AFTER_OF: &str = "SELECT id, type, tenant_id, subject, actor, request_id, data, occurred_at, number FROM events \
    WHERE tenant_id = $3 AND number > $1 ORDER BY number LIMIT $2";
const ANY_LEFT: &str = "SELECT id FROM events WHERE number IS NULL LIMIT 1";
const NUMBER: &str = "UPDATE events SET number = next.number FROM (SELECT id, \
    CAST($1 AS BIGINT) + ROW_NUMBER() OVER (ORDER BY occurred_at, id) AS number FROM (SELECT id, occurred_at FROM events \
    WHERE number IS NULL ORDER BY occurred_at, id LIMIT $2) AS waiting) AS next WHERE events.id = next.id";
const FORGET: &str = "DELETE FROM events WHERE id IN \
    (SELECT id FROM events WHERE occurred_at < $1 AND number IS NOT NULL LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[INSERT, PAGE, AFTER, AFTER_OF, ANY_LEFT, NUMBER, FORGET];

/// Writes an event beside the change that it tells of.
///
/// # Errors
/// The store's.
pub async fn insert(
    tx: &mut Tx<'_>,
    random: &Random,
    origin: &Origin,
    event: &Event<'_>,
) -> Result<(), StoreError> {
    insert_named(tx, random, origin, event).await.map(drop)
}

/// As [`insert`]; answers the event's id.
///
/// # Errors
/// The store's.
pub async fn insert_named(
    tx: &mut Tx<'_>,
    random: &Random,
    origin: &Origin,
    event: &Event<'_>,
) -> Result<EventId, StoreError> {
    tx.note_about(event.tenant, event.subject);
    let id = EventId::draw(origin.at, random.bytes());
    let data = event.data.to_string();
    let row = [
        id.as_str().into(),
        event.kind.as_str().into(),
        event.tenant.into(),
        event.subject.into(),
        origin.actor.as_str().into(),
        origin.request_id.as_str().into(),
        data.as_str().into(),
        origin.at.into(),
    ];
    tx.execute(INSERT, &row).await?;
    Ok(id)
}

/// An event, and its number if it has one.
pub struct Kept {
    /// The event; its source is for the caller to say.
    pub event: CloudEvent,
    /// Its number.
    pub number: Option<i64>,
}

/// At most `limit` of a tenant's events behind `after` and not before `since`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    tenant: &str,
    after: &str,
    since: Timestamp,
    limit: i64,
) -> Result<Vec<Kept>, StoreError> {
    let args = [tenant.into(), after.into(), since.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(kept).collect()
}

/// At most `limit` events behind the number `after`, in order of number: of a tenant, or of all.
///
/// # Errors
/// The store's.
pub async fn after(
    tx: &mut Tx<'_>,
    tenant: Option<&str>,
    after: i64,
    limit: i64,
) -> Result<Vec<Kept>, StoreError> {
    let rows = match tenant {
        Some(tenant) => tx.fetch_all(AFTER_OF, &[after.into(), limit.into(), tenant.into()]).await?,
        None => tx.fetch_all(AFTER, &[after.into(), limit.into()]).await?,
    };
    rows.iter().map(kept).collect()
}

/// The last number that was given.
///
/// # Errors
/// The store's.
pub async fn last_number(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    let last = meta::find(tx, Name::LastEventNumber).await?;
    Ok(last.and_then(|number| number.parse().ok()).unwrap_or(0))
}

/// Whether an event has no number yet.
///
/// # Errors
/// The store's.
pub async fn any_without_number(tx: &mut Tx<'_>) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(ANY_LEFT, &[]).await?.is_some())
}

/// Gives the next numbers to at most `limit` events that have none; says how many got one.
///
/// # Errors
/// The store's.
pub async fn number(tx: &mut Tx<'_>, limit: i64) -> Result<u64, StoreError> {
    let last = meta::lock(tx, Name::LastEventNumber).await?;
    let last: i64 = last.and_then(|number| number.parse().ok()).unwrap_or(0);
    let numbered = tx.execute(NUMBER, &[last.into(), limit.into()]).await?;
    let next = last.saturating_add(i64::try_from(numbered).unwrap_or(0));
    meta::put(tx, Name::LastEventNumber, &next.to_string()).await?;
    Ok(numbered)
}

/// Forgets at most `most` events of before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn kept(row: &Row) -> Result<Kept, StoreError> {
    let number = row.maybe_integer("number")?;
    let request_id = row.text("request_id")?;
    let event = CloudEvent {
        specversion: "1.0".to_owned(),
        id: row.parsed("id")?,
        source: String::new(),
        event_type: row.text("type")?,
        subject: row.text("subject")?,
        time: row.time("occurred_at")?,
        datacontenttype: "application/json".to_owned(),
        tenantid: row.text("tenant_id")?,
        actor: row.text("actor")?,
        requestid: (!request_id.is_empty()).then_some(request_id),
        sequence: number.map(|number| number.to_string()),
        data: row.json("data")?,
    };
    Ok(Kept { event, number })
}
