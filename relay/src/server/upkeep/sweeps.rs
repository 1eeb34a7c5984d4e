//! What is over is ended and forgotten: as recurring tasks, so that one relay of the store does it, and that it is seen
//! where it fails.
//!
//! Each sweep goes by what is in the store alone, so that one that is cut off or done twice does no harm. It waits for a wall
//! clock that has held: a relay whose clock has not leaves the task to the others. What a relay does for itself (its
//! certificate, its metrics) is no task.

use super::House;
use crate::{
    audit::sealer,
    context::Context,
    fault::Fault,
    join::queue,
    store::{
        StoreError, Tx, certificates, components, credentials, device_logins, events, idempotency, invites,
        join_requests, logins, signing_keys, tasks,
    },
    tasks::{Attempt, Ended, Failure, Kind, Manner, Queue, runner::Handlers},
};
use futures_util::future::BoxFuture;
use shared::{
    api::{components::SILENT_SECONDS, tasks::TaskState},
    time::Timestamp,
};
use std::{future::Future, sync::Arc};

/// How long an answer is kept for its retry, in seconds (one day).
const ANSWERS_SECONDS: i64 = 86_400;
/// How long an event is kept, in seconds (400 days).
const EVENTS_SECONDS: i64 = 400 * 86_400;
/// How long an expired certificate is kept, in seconds (60 days: the longest grace, twice).
const CERTIFICATES_SECONDS: i64 = 60 * 86_400;
/// How long a join request that has ended is kept, in seconds (90 days).
const REQUESTS_SECONDS: i64 = 90 * 86_400;
/// How many rows are forgotten in one transaction: nobody's change waits long for it.
const ROWS_AT_ONCE: i64 = 1_000;
/// How many such transactions a sweep makes for a family of rows.
const MAX_ROUNDS: u32 = 100;
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

/// What is over by then, so many rows of it; how many there were.
type Forgets = for<'a, 'c> fn(&'a mut Tx<'c>, Timestamp, i64) -> BoxFuture<'a, Result<u64, StoreError>>;

/// The rows of each family, and how long after their end they are kept, in seconds.
const OVER: &[(i64, Forgets)] = &[
    (ANSWERS_SECONDS, |tx, before, most| Box::pin(idempotency::forget(tx, before, most))),
    (0, |tx, before, most| Box::pin(credentials::forget(tx, before, most))),
    (0, |tx, before, most| Box::pin(invites::forget(tx, before, most))),
    (0, |tx, before, most| Box::pin(logins::forget(tx, before, most))),
    (0, |tx, before, most| Box::pin(device_logins::forget(tx, before, most))),
    (EVENTS_SECONDS, |tx, before, most| Box::pin(events::forget(tx, before, most))),
    (CERTIFICATES_SECONDS, |tx, before, most| Box::pin(certificates::forget(tx, before, most))),
    (REQUESTS_SECONDS, |tx, before, most| Box::pin(join_requests::forget(tx, before, most))),
    (SILENT_SECONDS, |tx, before, most| Box::pin(components::forget(tx, before, most))),
];

/// The keys of tokens, long after they signed the last one.
const KEYS: Forgets = |tx, before, most| Box::pin(signing_keys::forget(tx, before, most));

async fn forget(relay: &Context, kept: Kept) -> Result<(), Fault> {
    let keys = (2 * relay.signing_keys.signs_seconds(), KEYS);
    for (seconds, forgets) in OVER.iter().chain([&keys]) {
        let before = relay.clock.now().plus_seconds(-seconds);
        in_rounds(|| {
            relay.store.transact("forget", (before, forgets), |tx, (before, forgets)| {
                Box::pin(async move { Ok::<_, Fault>(forgets(tx, *before, ROWS_AT_ONCE).await?) })
            })
        })
        .await?;
    }
    for (state, days) in
        [(TaskState::Completed, kept.completed_days), (TaskState::Archived, kept.archived_days)]
    {
        let work = (state, 86_400 * i64::from(days), relay.clock.now());
        in_rounds(|| relay.store.transact("forget", work, |tx, work| Box::pin(forget_tasks(tx, *work))))
            .await?;
    }
    Ok(())
}

async fn forget_tasks(
    tx: &mut Tx<'_>,
    (state, seconds, now): (TaskState, i64, Timestamp),
) -> Result<u64, Fault> {
    // A task's times are the database's, whose clock nobody watches: both must say that it is over.
    let now = tx.database_time().await?.min(now);
    Ok(tasks::forget(tx, state, now.plus_seconds(-seconds), ROWS_AT_ONCE).await?)
}

/// Forgets some rows at a time, a transaction each, until few are left, or it is time for others: the next sweep goes on.
async fn in_rounds<F: Future<Output = Result<u64, Fault>>>(round: impl Fn() -> F) -> Result<(), Fault> {
    for _ in 0..MAX_ROUNDS {
        if round().await? < ROWS_AT_ONCE.unsigned_abs() {
            return Ok(());
        }
    }
    Ok(())
}
