//! The table `events`.

use super::{StoreError, Tx};
use crate::{
    events::{Event, Origin},
    random::Random,
};
use shared::id::EventId;

const INSERT: &str = "INSERT INTO events (id, type, tenant_id, subject, actor, request_id, data, occurred_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

pub(super) const STATEMENTS: &[&str] = &[INSERT];

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
    tx.execute(INSERT, &row).await.map(drop)
}
