//! The workers of one relay: they look for tasks that are due, as many at a time as each queue says, and do them by the
//! handlers that they were given. A kind without a handler here is left to relays that have one.

use super::{
    Asked, Attempt, Claim, Ended, Failure, Kind, LONGEST_SECONDS, Manner, enqueue, next::bounded, settle,
    take,
};
use crate::{
    context::Context,
    fault::{Fault, chain},
    store::tasks,
};
use futures_util::{FutureExt as _, future::BoxFuture};
use serde_json::Value;
use shared::hex;
use std::{
    collections::BTreeMap,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::JoinSet,
    time::{Instant, timeout_at},
};

/// How often it is looked for tasks that are due.
const LOOK: Duration = Duration::from_secs(1);
/// How often it is seen to that the recurring tasks are there.
const ENSURE: Duration = Duration::from_secs(60);

type Work = Box<dyn Fn(Arc<Context>, Claim) -> BoxFuture<'static, Attempt> + Send + Sync>;

/// What does tasks: a handler for each kind.
#[derive(Default)]
pub struct Handlers(Vec<(&'static Kind, Work)>);

impl Handlers {
    /// With a handler for a kind; see [`tasks`](super) for what it must hold to.
    #[must_use]
    pub fn on<F, R>(mut self, kind: &'static Kind, work: F) -> Self
    where
        F: Fn(Arc<Context>, Claim) -> R + Send + Sync + 'static,
        R: Future<Output = Attempt> + Send + 'static,
    {
        self.0.push((kind, Box::new(move |relay, claim| work(relay, claim).boxed())));
        self
    }

    /// The names of the queues.
    #[must_use]
    pub fn queues(&self) -> Vec<&'static str> {
        let mut names: Vec<&str> = self.0.iter().map(|(kind, _)| kind.queue.name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The workers of one relay.
pub struct Runner {
    relay: Arc<Context>,
    handlers: Arc<Handlers>,
    /// Another one for each start: what a former process held is not this one's.
    holder: String,
    room: BTreeMap<&'static str, Arc<Semaphore>>,
    turns: AtomicUsize,
}

impl Runner {
    /// Workers that do nothing yet.
    #[must_use]
    pub fn new(relay: Arc<Context>, handlers: Arc<Handlers>) -> Self {
        let holder = hex::encode(&relay.random.bytes::<16>());
        let queues = handlers.0.iter().map(|(kind, _)| kind.queue);
        let room = queues.map(|queue| (queue.name, Arc::new(Semaphore::new(queue.at_a_time)))).collect();
        Self { relay, handlers, holder, room, turns: AtomicUsize::new(0) }
    }

    /// How often it has looked for tasks: a number that stands still is that of workers that are no more.
    #[must_use]
    pub fn turns(&self) -> usize {
        self.turns.load(Ordering::Relaxed)
    }

    /// Does tasks; never ends. What is being done when this is dropped is dropped as well, as if its worker were killed.
    pub async fn run(&self) {
        let mut running = JoinSet::new();
        let mut ensured: Option<Instant> = None;
        loop {
            if ensured.is_none_or(|at| at.elapsed() >= ENSURE) {
                match self.ensure().await {
                    Ok(()) => ensured = Some(Instant::now()),
                    Err(fault) => {
                        tracing::warn!(
                            error = chain(&fault),
                            "seeing to recurring tasks failed; it is tried again"
                        );
                    }
                }
            }
            if let Err(fault) = self.begin(&mut running).await {
                tracing::warn!(error = chain(&fault), "taking tasks failed; it is tried again");
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                // There is room for another. What is over must not be kept either.
                _ = running.join_next(), if !running.is_empty() => {}
            }
        }
    }

    /// Sees to it that each recurring task is there once, and that none waits for longer than any can.
    ///
    /// # Errors
    /// The store's.
    pub async fn ensure(&self) -> Result<(), Fault> {
        let store = &self.relay.store;
        store
            .transact("tasks.ensure", self, |tx, this| {
                Box::pin(async move {
                    let now = tx.database_time().await?;
                    for (kind, _) in &this.handlers.0 {
                        tasks::hasten(tx, kind.name, now, now.plus_seconds(LONGEST_SECONDS.into())).await?;
                        if matches!(kind.manner, Manner::Every { .. }) {
                            let asked = Asked { key: Some(kind.name), ..Asked::now(kind, &Value::Null) };
                            enqueue(tx, &this.relay.random, &asked).await?;
                        }
                    }
                    Ok(())
                })
            })
            .await
    }

    /// Begins what is due, as far as there is room.
    async fn begin(&self, running: &mut JoinSet<()>) -> Result<(), Fault> {
        for at in self.due().await? {
            let Some((kind, _)) = self.handlers.0.get(at) else { continue };
            let permits = self.permits(kind);
            if permits.is_empty() {
                continue;
            }
            let began = Instant::now();
            for (claim, permit) in self.claim(kind, permits.len()).await?.into_iter().zip(permits) {
                let (relay, handlers) = (self.relay.clone(), self.handlers.clone());
                running.spawn(async move {
                    let _permit = permit;
                    attempt(&relay, &handlers, at, claim, began).await;
                });
            }
        }
        Ok(())
    }

    /// The handlers' places whose kinds have something to do; another one is first at each turn, so that no kind takes
    /// all of its queue's room for ever.
    async fn due(&self) -> Result<Vec<usize>, Fault> {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        let read = self.relay.store.read("tasks.due", self, |tx, this| {
            Box::pin(async move {
                let now = tx.database_time().await?;
                let mut due = Vec::new();
                for (at, (kind, _)) in this.handlers.0.iter().enumerate() {
                    if tasks::is_due(tx, kind.name, now).await? {
                        due.push(at);
                    }
                }
                Ok::<_, Fault>(due)
            })
        });
        let mut due = read.await?;
        let first = turn.checked_rem(due.len()).unwrap_or(0);
        due.rotate_left(first);
        Ok(due)
    }

    /// The room that a kind's queue has.
    fn permits(&self, kind: &Kind) -> Vec<OwnedSemaphorePermit> {
        let Some(room) = self.room.get(kind.queue.name) else { return Vec::new() };
        std::iter::from_fn(|| room.clone().try_acquire_owned().ok()).collect()
    }

    async fn claim(&self, kind: &'static Kind, most: usize) -> Result<Vec<Claim>, Fault> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let context = (self, kind, most);
        let store = &self.relay.store;
        store
            .transact("tasks.take", context, |tx, (this, kind, most)| {
                Box::pin(take(tx, &this.relay, kind, &this.holder, *most))
            })
            .await
    }

    /// Does one task of each kind that is due, one after the other, in this very future; says how many were begun.
    ///
    /// # Errors
    /// The store's.
    #[cfg(test)]
    pub(crate) async fn turn(&self) -> Result<usize, Fault> {
        let mut begun = 0;
        for at in self.due().await? {
            let (kind, _) = &self.handlers.0[at];
            let began = Instant::now();
            for claim in self.claim(kind, 1).await? {
                begun += 1;
                attempt(&self.relay, &self.handlers, at, claim, began).await;
            }
        }
        Ok(begun)
    }
}

/// Does a task by the handler at that place. `began` is from before the task was taken: the lease ends later than by our
/// clock.
async fn attempt(relay: &Arc<Context>, handlers: &Handlers, at: usize, claim: Claim, began: Instant) {
    let Some((kind, work)) = handlers.0.get(at) else { return };
    let give_up = Duration::from_secs(u64::from(kind.lease_seconds) * 3 / 4);
    let (to_do, context) = (claim.clone(), relay.clone());
    let done = AssertUnwindSafe(async move { work(context, to_do).await }).catch_unwind();
    let became = match timeout_at(began + give_up, done).await {
        Ok(Ok(attempt)) => attempt,
        Ok(Err(_)) => Err(Failure::Again("its worker panicked; the log says where".to_owned())),
        Err(_) => Err(Failure::Again(format!("it was not done within {} seconds", give_up.as_secs()))),
    };
    if became == Ok(Ended::Finished) {
        return;
    }
    let jitter = u16::from_be_bytes(relay.random.bytes());
    let context = (relay.as_ref(), &claim, &became, jitter);
    let settled = relay.store.transact("tasks.settle", context, |tx, (relay, claim, became, jitter)| {
        Box::pin(settle(tx, relay, claim, became, *jitter))
    });
    let (task, kind) = (claim.id().as_str(), kind.name);
    match (settled.await, &became) {
        (Ok(true), Ok(_)) => tracing::debug!(task, kind, "a task's attempt ended well"),
        (Ok(true), Err(Failure::Again(error) | Failure::Never(error))) => {
            let error = bounded(error);
            tracing::warn!(task, kind, attempt = claim.attempt, error, "a task's attempt failed");
        }
        (Ok(false), _) => {
            tracing::warn!(task, kind, "a task's worker was late: another has it, or it was deleted");
        }
        // The lease ends, and the next worker tries.
        (Err(fault), _) => {
            tracing::warn!(task, kind, error = chain(&fault), "what became of a task was not kept");
        }
    }
}
