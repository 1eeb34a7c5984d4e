//! Tasks: work that is not one transaction. A task is written in the transaction that asks for it ([`enqueue`]), so there
//! is never one without the other, and is done later by a worker of any relay of the store ([`runner`]).
//!
//! **The work is done exactly as if once, whenever its worker is killed.** A worker takes a task for the time of a lease, by
//! the database's clock, in a transaction that counts the attempt and gives it a fence; of several workers one gets it. It
//! gives up what it does outside at three quarters of that time, so that whoever takes the task after the lease has ended
//! comes when nobody is at it. What became of an attempt is written only where the fence is still the worker's own.
//!
//! - Killed before the claim is kept: nothing happened, and the next worker takes it.
//! - Killed between the claim and the end of its work: the lease ends, and the next worker does the work again. That is no
//!   second time, because a handler is of one of three manners:
//!   1. Its work is a change of the store: it calls [`Claim::finish`] in that very transaction, and keeps nothing where the
//!      answer is no. Change and completion are one, so it is exactly once.
//!   2. Its work is outside: it is idempotent there, by the task's id or one in its payload, or it reads before it acts.
//!   3. Its work can't be repeated (a power command): its kind is [`Manner::Once`]. It is taken once at most, within its
//!      deadline; if its worker dies, nobody knows what became of it, and it is archived saying so. The task's id is the
//!      command's: a result counts by [`Claim::finish`] alone, so it can't be taken for another's.
//! - Killed after its work and before the completion is kept: the same. The commit's answer lost: the fence is taken, and
//!   the late word of it changes nothing.
//!
//! What comes again and again is one task for good: what fails of it waits with its error, for as long as its period, and is never
//! archived. Of all else what fails is tried again, ten times, after waits that double up to an hour; then it is archived, which writes
//! `infra.task.archived` in the same transaction, and waits for a person (`relay admin tasks retry`). A payload is for the
//! eyes of whoever reads the database: never a secret in it, but the id of the row that has it. A handler must not block
//! nor spawn: what it spawns is not ended with it.

pub mod next;
pub mod runner;
#[cfg(test)]
mod tests;

use crate::{
    context::Context,
    events::{Event, Kind as EventKind, Origin},
    fault::Fault,
    random::Random,
    store::{
        StoreError, Tx, events,
        tasks::{self, Hold, NewTask, Settled},
    },
};
use serde_json::{Value, json};
use shared::{
    api::tasks::{Task, TaskState},
    id::TaskId,
    time::Timestamp,
};

/// The longest payload, in bytes of JSON.
pub const MAX_PAYLOAD_BYTES: usize = 16 << 10;
/// The longest that a task waits, or is leased, in seconds: as a lease. One that is due later than that was written while the
/// database's clock was ahead, and is due now.
pub use crate::store::leases::LONGEST_SECONDS;

/// Where tasks of kindred kinds wait.
#[derive(Debug)]
pub struct Queue {
    /// Its name, `[a-z-]`.
    pub name: &'static str,
    /// How many of it one relay is at.
    pub at_a_time: usize,
}

/// A kind of task.
#[derive(Debug)]
pub struct Kind {
    /// Its name, as `webhook.deliver`; it stays: tasks of it are in the store.
    pub name: &'static str,
    /// Where it waits.
    pub queue: &'static Queue,
    /// How it is tried.
    pub manner: Manner,
    /// How long one attempt may take, in seconds; the worker gives up at three quarters of it.
    pub lease_seconds: u32,
}

/// How a task is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Until it succeeds, ten times more at most.
    Retried,
    /// Once, if a worker takes it within so many seconds; never again, whatever becomes of it.
    Once {
        /// How long it may wait, in seconds.
        within_seconds: u32,
    },
    /// As [`Manner::Retried`], and again so many seconds after it succeeded: one task for all relays, which never completes.
    Every {
        /// The period, in seconds.
        seconds: u32,
    },
}

impl Kind {
    /// Whether it is tried once only.
    #[must_use]
    pub const fn is_once(&self) -> bool {
        matches!(self.manner, Manner::Once { .. })
    }
}

/// Work to ask for.
pub struct Asked<'a> {
    /// What is to be done.
    pub kind: &'static Kind,
    /// With what; at most [`MAX_PAYLOAD_BYTES`], and no secrets.
    pub payload: &'a Value,
    /// As long as a task with this key has not ended, another one with it is none.
    pub key: Option<&'a str>,
    /// How long it waits first, in seconds; at most [`LONGEST_SECONDS`].
    pub after_seconds: u32,
}

impl<'a> Asked<'a> {
    /// Work to be done at once.
    #[must_use]
    pub const fn now(kind: &'static Kind, payload: &'a Value) -> Self {
        Self { kind, payload, key: None, after_seconds: 0 }
    }
}

/// Writes a task into the transaction that asks for it. `None` if one with its key has not ended.
///
/// # Errors
/// The payload is too long; the store's.
pub async fn enqueue(tx: &mut Tx<'_>, random: &Random, asked: &Asked<'_>) -> Result<Option<TaskId>, Fault> {
    let payload = asked.payload.to_string();
    if payload.len() > MAX_PAYLOAD_BYTES {
        let rule = format!("a payload of {} is over {MAX_PAYLOAD_BYTES} bytes", asked.kind.name);
        return Err(Fault::internal("asking for a task")(rule));
    }
    let now = tx.database_time().await?;
    let id = TaskId::draw(now, random.bytes());
    let due_at = now.plus_seconds(asked.after_seconds.min(LONGEST_SECONDS).into());
    let deadline = match asked.kind.manner {
        Manner::Once { within_seconds } => Some(due_at.plus_seconds(within_seconds.into())),
        Manner::Retried | Manner::Every { .. } => None,
    };
    let new = NewTask {
        id: &id,
        queue: asked.kind.queue.name,
        task_type: asked.kind.name,
        once: asked.kind.is_once(),
        key: asked.key,
        payload: &payload,
        due_at,
        deadline,
        created_at: now,
    };
    Ok(tasks::insert(tx, &new).await?.then_some(id))
}

/// A task that a worker took.
#[derive(Clone, Debug)]
pub struct Claim {
    /// What is to be done.
    pub kind: &'static Kind,
    /// With what.
    pub payload: Value,
    /// Which attempt it is, from 1.
    pub attempt: i64,
    /// When it was asked for.
    pub asked_at: Timestamp,
    hold: Hold,
}

impl Claim {
    /// The task's id: the same at every attempt, so it makes an effect outside idempotent.
    #[must_use]
    pub const fn id(&self) -> &TaskId {
        &self.hold.id
    }

    /// Whether the task is still this worker's, locked until the transaction ends.
    ///
    /// # Errors
    /// The store's.
    pub async fn is_held(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        tasks::is_held(tx, &self.hold).await
    }

    /// Lets the task wait for so many seconds, as [`Ended::Later`] does, in the transaction that has seen that there is nothing to
    /// do until then; the handler ends with [`Ended::Finished`]. If the answer is `false`, another worker has it by now.
    ///
    /// # Errors
    /// The store's.
    pub async fn rest(&self, tx: &mut Tx<'_>, seconds: u32) -> Result<bool, StoreError> {
        let waits = next::after(self.kind, self.attempt, &Ok(Ended::Later(seconds)), 0);
        let now = tx.database_time().await?;
        tasks::settle(tx, &self.hold, &settled(waits, now)).await
    }

    /// Completes the task in the transaction of the work itself. If the answer is `false`, another worker has it by now and
    /// the transaction must keep nothing.
    ///
    /// # Errors
    /// The store's.
    pub async fn finish(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let done = next::after(self.kind, self.attempt, &Ok(Ended::Done), 0);
        let now = tx.database_time().await?;
        tasks::settle(tx, &self.hold, &settled(done, now)).await
    }
}

/// How an attempt went well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The work is done.
    Done,
    /// The work is done, and [`Claim::finish`] was kept with it.
    Finished,
    /// Nothing was done, because the time is not right: another worker may try in so many seconds. It counts as no attempt.
    Later(u32),
}

/// How an attempt failed, in words that hold no secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may work later.
    Again(String),
    /// It never will: the task is archived at once.
    Never(String),
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Self {
        Self::Again(crate::fault::chain(&fault))
    }
}

/// What became of an attempt.
pub type Attempt = Result<Ended, Failure>;

/// Takes at most `limit` tasks of a kind that are due. One whose time is over, or whose last worker died at its last attempt,
/// is archived instead.
async fn take(
    tx: &mut Tx<'_>,
    relay: &Context,
    kind: &'static Kind,
    holder: &str,
    limit: i64,
) -> Result<Vec<Claim>, Fault> {
    let now = tx.database_time().await?;
    let mut claims = Vec::new();
    for row in tasks::lock_due(tx, kind.name, now, limit).await? {
        if let Some(why) = next::too_late(kind, &row.task, row.deadline, now) {
            tasks::archive(tx, &row.task.id, why, now).await?;
            tell_archived(tx, relay, &row.task, row.task.attempts, why, now).await?;
            continue;
        }
        let hold =
            Hold { id: row.task.id.clone(), holder: holder.to_owned(), fence: row.fence.saturating_add(1) };
        tasks::claim(tx, &hold, now.plus_seconds(kind.lease_seconds.min(LONGEST_SECONDS).into())).await?;
        let attempt = row.task.attempts.saturating_add(1);
        claims.push(Claim { kind, payload: row.payload, attempt, asked_at: row.task.created_at, hold });
    }
    Ok(claims)
}

/// Writes what became of an attempt; `false` if the task is another worker's by now.
async fn settle(
    tx: &mut Tx<'_>,
    relay: &Context,
    claim: &Claim,
    attempt: &Attempt,
    jitter: u16,
) -> Result<bool, Fault> {
    let next = next::after(claim.kind, claim.attempt, attempt, jitter);
    let now = tx.database_time().await?;
    let to = settled(next, now);
    if !tasks::settle(tx, &claim.hold, &to).await? {
        return Ok(false);
    }
    if to.state == TaskState::Archived
        && let Some(task) = tasks::find(tx, claim.id()).await?
    {
        tell_archived(tx, relay, &task, to.attempts, to.last_error.as_deref().unwrap_or_default(), now)
            .await?;
    }
    Ok(true)
}

fn settled(next: next::Next, now: Timestamp) -> Settled {
    Settled {
        state: next.state,
        attempts: next.attempts,
        last_error: next.error,
        due_at: next.wait_seconds.map(|seconds| now.plus_seconds(seconds.into())),
        ended_at: next.ended.then_some(now),
    }
}

async fn tell_archived(
    tx: &mut Tx<'_>,
    relay: &Context,
    task: &Task,
    attempts: i64,
    why: &str,
    now: Timestamp,
) -> Result<(), StoreError> {
    let data = json!({"queue": task.queue, "type": task.task_type, "attempts": attempts, "lastError": why});
    let event = Event {
        kind: EventKind::TaskArchived,
        tenant: &relay.provider_tenant,
        subject: task.id.as_str(),
        data,
    };
    let origin = Origin { actor: "relay".to_owned(), request_id: String::new(), at: now };
    events::insert(tx, &relay.random, &origin, &event).await
}
