//! The sweep: webhooks that are behind without a task get one, and what is none of theirs they pass over.

use super::{ask, matches};
use crate::{
    context::Context,
    fault::Fault,
    store::{Tx, webhooks},
    tasks::{Attempt, Claim, Ended, Failure},
};
use shared::id::WebhookId;
use std::sync::Arc;

/// How many webhooks one sweep looks at.
const SWEPT_AT_ONCE: i64 = 500;

pub(super) async fn sweep(relay: Arc<Context>, _: Claim) -> Attempt {
    swept(&relay).await.map(|()| Ended::Done).map_err(Failure::from)
}

async fn swept(relay: &Context) -> Result<(), Fault> {
    let idle = relay.store.read("webhooks.idle", (), |tx, ()| {
        Box::pin(async move { Ok::<_, Fault>(webhooks::idle(tx, SWEPT_AT_ONCE).await?) })
    });
    for id in idle.await? {
        relay
            .store
            .transact("webhooks.catchUp", (relay, id), |tx, (relay, id)| Box::pin(catch_up(tx, relay, id)))
            .await?;
    }
    Ok(())
}

async fn catch_up(tx: &mut Tx<'_>, relay: &Context, id: &WebhookId) -> Result<(), Fault> {
    let found = webhooks::lock(tx, id).await?;
    let Some(row) = found.filter(|row| row.webhook.enabled) else { return Ok(()) };
    let behind = webhooks::behind(tx, &row.webhook.tenant_id, row.event_number).await?;
    if behind.iter().any(|(event_type, _)| matches(&row.webhook.types, event_type)) {
        return ask(tx, &relay.random, id).await;
    }
    if let Some(last) = behind.iter().map(|(_, number)| *number).max() {
        webhooks::passed(tx, &row, last).await?;
    }
    Ok(())
}
