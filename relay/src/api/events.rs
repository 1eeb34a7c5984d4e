//! compute/events: what happened, to those who may know.

use super::steps::{page, page_size};
use crate::{
    auth::policy::{Resource, may},
    call::Call,
    fault::Fault,
    store::events,
};
use shared::{
    api::{
        access::Action,
        events::{EventList, ListEvents},
    },
    time::Timestamp,
};

/// compute/events/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListEvents) -> Result<EventList, Fault> {
    let tenant = input.tenant_id.as_str();
    may(&call.principal()?.powers, Action::EventsRead, Resource::Tenant { tenant })
        .require(Action::EventsRead, &format!("tenant {tenant}"))?;
    let size = page_size(input.limit);
    let after = input.cursor.as_ref().map_or("", |id| id.as_str());
    let since = input.since.unwrap_or(Timestamp::from_millis(0));
    let work = (tenant, after, since);
    let read = call.relay.store.read(call.method, work, |tx, (tenant, after, since)| {
        Box::pin(async move { Ok::<_, Fault>(events::page(tx, tenant, after, *since, size + 1).await?) })
    });
    let (kept, cursor) = page(read.await?, size, |kept| kept.event.id.clone());
    Ok(EventList { events: kept.into_iter().map(|kept| call.relay.sourced(kept)).collect(), cursor })
}
