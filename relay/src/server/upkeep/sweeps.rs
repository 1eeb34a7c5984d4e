//! What is over is ended and forgotten: as recurring tasks, so that one relay of the store does it, and that it is seen
//! where it fails.
//!
//! Each sweep goes by what is in the store alone, so that one that is cut off or done twice does no harm. It waits for a wall
//! clock that has held: a relay whose clock has not leaves the task to the others. What a relay does for itself (its
//! certificate, its metrics) is no task.

use super::House;
use crate::{
    audit::sealer,
    auth::keys::SIGNS_SECONDS,
    context::Context,
    fault::Fault,
    join::queue,
    store::{
        certificates, components, credentials, device_logins, events, idempotency, invites, join_requests,
        logins, signing_keys, tasks,
    },
    tasks::{Attempt, Ended, Failure, Kind, Manner, Queue, runner::Handlers},
};
use shared::api::{components::SILENT_SECONDS, tasks::TaskState};
use std::{future::Future, sync::Arc};

/// How long an answer is kept for its retry, in seconds (one day).
const ANSWERS_SECONDS: i64 = 86_400;
/// How long an event is kept, in seconds (400 days).
const EVENTS_SECONDS: i64 = 400 * 86_400;
/// How long an expired certificate is kept, in seconds (60 days: the longest grace, twice).
const CERTIFICATES_SECONDS: i64 = 60 * 86_400;
/// How long a join request that has ended is kept, in seconds (90 days).
const REQUESTS_SECONDS: i64 = 90 * 86_400;
/// How often each sweep is done, in seconds.
const PERIOD_SECONDS: u32 = 60;

/// The relay's own work.
pub(super) static UPKEEP: Queue = Queue { name: "upkeep", at_a_time: 3 };

const fn sweep(name: &'static str) -> Kind {
    Kind { name, queue: &UPKEEP, manner: Manner::Every { seconds: PERIOD_SECONDS }, lease_seconds: 120 }
}

/// Ends join requests whose time is over.
static EXPIRE: Kind = sweep("join-requests.expire");
/// Forgets rows that are over.
static FORGET: Kind = sweep("store.forget");
/// Prunes the audit.
static PRUNE: Kind = sweep("audit.prune");

/// How long tasks are kept that have ended, in days.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Completed ones.
    pub(super) completed_days: u32,
    /// Archived ones.
    pub(super) archived_days: u32,
}

/// What does the relay's own tasks.
pub(super) fn handlers(house: &Arc<House>) -> Handlers {
    let on = |handlers: Handlers, kind, what: fn(Arc<House>) -> Sweep| {
        let house = house.clone();
        handlers.on(kind, move |_, _| trusted(house.clone(), what))
    };
    let handlers = on(Handlers::default(), &EXPIRE, |house| Box::pin(async move { house.expire().await }));
    let handlers = on(handlers, &FORGET, |house| Box::pin(async move { house.forget().await }));
    on(handlers, &PRUNE, |house| Box::pin(async move { house.prune().await }))
}

type Sweep = std::pin::Pin<Box<dyn Future<Output = Result<(), Fault>> + Send>>;

/// Does a sweep, if the wall clock has held.
async fn trusted(house: Arc<House>, what: fn(Arc<House>) -> Sweep) -> Attempt {
    if !house.look().is_trusted() {
        return Ok(Ended::Later(PERIOD_SECONDS));
    }
    what(house).await.map(|()| Ended::Done).map_err(Failure::from)
}

impl House {
    pub(super) async fn expire(&self) -> Result<(), Fault> {
        queue::expire(&self.relay).await
    }

    pub(super) async fn prune(&self) -> Result<(), Fault> {
        sealer::prune(&self.relay, self.audit_days).await.map(drop)
    }

    pub(super) async fn forget(&self) -> Result<(), Fault> {
        forget(&self.relay, self.kept).await
    }
}

async fn forget(relay: &Context, kept: Kept) -> Result<(), Fault> {
    relay
        .store
        .transact("forget", (relay.clock.now(), kept), |tx, (now, kept)| {
            Box::pin(async move {
                idempotency::forget(tx, now.plus_seconds(-ANSWERS_SECONDS)).await?;
                credentials::forget(tx, *now).await?;
                invites::forget(tx, *now).await?;
                logins::forget(tx, *now).await?;
                device_logins::forget(tx, *now).await?;
                events::forget(tx, now.plus_seconds(-EVENTS_SECONDS)).await?;
                signing_keys::forget(tx, now.plus_seconds(-2 * SIGNS_SECONDS)).await?;
                certificates::forget(tx, now.plus_seconds(-CERTIFICATES_SECONDS)).await?;
                join_requests::forget(tx, now.plus_seconds(-REQUESTS_SECONDS)).await?;
                components::forget(tx, now.plus_seconds(-SILENT_SECONDS)).await?;
                // A task's times are the database's, whose clock nobody watches: both must say that it is over.
                let now = tx.database_time().await?.min(*now);
                for (state, days) in
                    [(TaskState::Completed, kept.completed_days), (TaskState::Archived, kept.archived_days)]
                {
                    tasks::forget(tx, state, now.plus_seconds(-86_400 * i64::from(days))).await?;
                }
                Ok(())
            })
        })
        .await
}
