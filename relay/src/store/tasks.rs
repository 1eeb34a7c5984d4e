//! The table `tasks`: what is to be done outside of the transaction that asked for it. What the states mean and why the
//! work is done as if once is said in [`tasks`](crate::tasks); here are the rows.

use super::{Row, StoreError, Tx};
use shared::{
    api::tasks::{QueueCount, Task, TaskState},
    id::TaskId,
    time::Timestamp,
};

const INSERT: &str = "INSERT INTO tasks (id, queue, type, state, once, task_key, payload, attempts, due_at, deadline, holder, \
    fence, created_at) VALUES ($1, $2, $3, 'pending', $4, $5, $6, 0, $7, $8, '', 0, $9) \
    ON CONFLICT (task_key) WHERE due_at IS NOT NULL DO NOTHING";
const FIND: &str = "SELECT id, queue, type, state, once, payload, attempts, last_error, due_at, deadline, fence, created_at, \
    ended_at FROM tasks WHERE id = $1";
const PAGE: &str = "SELECT id, queue, type, state, once, attempts, last_error, due_at, created_at, ended_at FROM tasks \
    WHERE id > $1 AND ($2 = '' OR queue = $2) ORDER BY id LIMIT $3";
const PAGE_OF_STATE: &str = "SELECT id, queue, type, state, once, attempts, last_error, due_at, created_at, ended_at FROM tasks \
    WHERE state = $4 AND id > $1 AND ($2 = '' OR queue = $2) ORDER BY id LIMIT $3";
const PAGE_BACK: &str = "SELECT id, queue, type, state, once, attempts, last_error, due_at, created_at, ended_at FROM tasks \
    WHERE ($1 = '' OR id < $1) AND ($2 = '' OR queue = $2) ORDER BY id DESC LIMIT $3";
const PAGE_OF_STATE_BACK: &str = "SELECT id, queue, type, state, once, attempts, last_error, due_at, created_at, ended_at FROM tasks \
    WHERE state = $4 AND ($1 = '' OR id < $1) AND ($2 = '' OR queue = $2) ORDER BY id DESC LIMIT $3";
const COUNTS: &str = "SELECT queue, state, COUNT(*) AS count, MIN(created_at) AS oldest_created_at FROM tasks \
    GROUP BY queue, state ORDER BY queue, state";
const IS_DUE: &str = "SELECT id FROM tasks WHERE type = $1 AND due_at <= $2 LIMIT 1";
const DUE: &str = "SELECT id, queue, type, state, once, payload, attempts, last_error, due_at, deadline, fence, created_at, \
    ended_at FROM tasks WHERE type = $1 AND due_at <= $2 ORDER BY due_at, id LIMIT $3";
const HASTEN: &str = "UPDATE tasks SET due_at = $2 WHERE type = $1 AND due_at > $3";
const WAKE: &str =
    "UPDATE tasks SET due_at = $2 WHERE task_key = $1 AND due_at > $2 AND state IN ('pending', 'retry')";
const CLAIM: &str = "UPDATE tasks SET state = 'active', attempts = attempts + 1, holder = $2, fence = $3, due_at = $4 \
    WHERE id = $1";
const SETTLE: &str = "UPDATE tasks SET state = $4, attempts = $5, last_error = $6, due_at = $7, \
    ended_at = COALESCE($8, ended_at) WHERE id = $1 AND holder = $2 AND fence = $3 AND state = 'active'";
const HELD: &str = "SELECT id FROM tasks WHERE id = $1 AND holder = $2 AND fence = $3 AND state = 'active'";
const ARCHIVE: &str =
    "UPDATE tasks SET state = 'archived', last_error = $2, due_at = NULL, ended_at = $3 WHERE id = $1";
const WAITING: &str =
    "SELECT id FROM tasks WHERE type = $1 AND state = 'pending' ORDER BY due_at, id LIMIT $2";
const COMPLETE: &str = "UPDATE tasks SET state = 'completed', due_at = NULL, ended_at = $2 WHERE id = $1";
const SUCCESSOR: &str = "SELECT other.id FROM tasks JOIN tasks other ON other.task_key = tasks.task_key \
    AND other.due_at IS NOT NULL AND other.id <> tasks.id WHERE tasks.id = $1";
const REOPEN: &str = "UPDATE tasks SET state = 'pending', attempts = 0, due_at = $2, \
    ended_at = CASE WHEN state = 'archived' THEN NULL ELSE ended_at END WHERE id = $1";
const REMOVE: &str = "DELETE FROM tasks WHERE id = $1";
const FORGET: &str = "DELETE FROM tasks WHERE id IN \
    (SELECT id FROM tasks WHERE state = $1 AND ended_at < $2 LIMIT $3)";

pub(super) const STATEMENTS: &[&str] = &[
    INSERT,
    FIND,
    PAGE,
    PAGE_OF_STATE,
    PAGE_BACK,
    PAGE_OF_STATE_BACK,
    COUNTS,
    IS_DUE,
    DUE,
    HASTEN,
    WAKE,
    CLAIM,
    SETTLE,
    HELD,
    ARCHIVE,
    WAITING,
    COMPLETE,
    SUCCESSOR,
    REOPEN,
    REMOVE,
    FORGET,
];

/// A task to be.
pub struct NewTask<'a> {
    /// Its id.
    pub id: &'a TaskId,
    /// Its queue.
    pub queue: &'a str,
    /// What is to be done.
    pub task_type: &'a str,
    /// Whether it is tried once only.
    pub once: bool,
    /// One task alone that has not ended has this key.
    pub key: Option<&'a str>,
    /// What it is to be done with, JSON.
    pub payload: &'a str,
    /// When a worker may take it.
    pub due_at: Timestamp,
    /// When it is too late to begin.
    pub deadline: Option<Timestamp>,
    /// Now, by the database's clock.
    pub created_at: Timestamp,
}

/// A task, and what its worker needs.
#[derive(Clone, Debug)]
pub struct TaskRow {
    /// What is shown of it.
    pub task: Task,
    /// What it is to be done with, JSON.
    pub payload: serde_json::Value,
    /// When it is too late to begin.
    pub deadline: Option<Timestamp>,
    /// Grows with each that took it.
    pub fence: i64,
}

/// Who is at a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The task.
    pub id: TaskId,
    /// The worker: one process, from its start to its end.
    pub holder: String,
    /// Which of those that took it.
    pub fence: i64,
}

/// What a task is after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Its state.
    pub state: TaskState,
    /// Its attempts.
    pub attempts: i64,
    /// Why the attempt failed.
    pub last_error: Option<String>,
    /// When it is tried next; `None` where it has ended: then another one may have its key.
    pub due_at: Option<Timestamp>,
    /// When it ended or was done; `None` leaves what is there.
    pub ended_at: Option<Timestamp>,
}

/// Writes a new task; `false` if one that has not ended has its key.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &NewTask<'_>) -> Result<bool, StoreError> {
    let row = [
        new.id.as_str().into(),
        new.queue.into(),
        new.task_type.into(),
        new.once.into(),
        new.key.into(),
        new.payload.into(),
        new.due_at.into(),
        new.deadline.into(),
        new.created_at.into(),
    ];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// The task of this id.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<Task>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| task(&row)).transpose()
}

/// The task of this id, locked.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<Task>, StoreError> {
    tx.lock_optional(FIND, &[id.as_str().into()]).await?.map(|row| task(&row)).transpose()
}

/// At most `limit` tasks behind `after`, of one queue unless it is empty and in one state if told so, in order of id, or the
/// other way round.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    queue: &str,
    state: Option<TaskState>,
    (after, newest_first): (&str, bool),
    limit: i64,
) -> Result<Vec<Task>, StoreError> {
    let (all, of_state) = if newest_first { (PAGE_BACK, PAGE_OF_STATE_BACK) } else { (PAGE, PAGE_OF_STATE) };
    let args = [after.into(), queue.into(), limit.into()];
    let rows = match state {
        Some(state) => {
            let [after, queue, limit] = args;
            tx.fetch_all(of_state, &[after, queue, limit, state.as_str().into()]).await?
        }
        None => tx.fetch_all(all, &args).await?,
    };
    rows.iter().map(task).collect()
}

/// How many tasks each queue has in each state.
///
/// # Errors
/// The store's.
pub async fn counts(tx: &mut Tx<'_>) -> Result<Vec<QueueCount>, StoreError> {
    let rows = tx.fetch_all(COUNTS, &[]).await?;
    let counts = rows.iter().map(|row| {
        Ok(QueueCount {
            queue: row.text("queue")?,
            state: row.word("state")?,
            count: row.integer("count")?,
            oldest_created_at: row.time("oldest_created_at")?,
        })
    });
    counts.collect()
}

/// Whether a worker may take a task of this type now.
///
/// # Errors
/// The store's.
pub async fn is_due(tx: &mut Tx<'_>, task_type: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(IS_DUE, &[task_type.into(), now.into()]).await?.is_some())
}

/// At most `limit` tasks of this type that a worker may take now, locked; none that another worker is about to take.
///
/// # Errors
/// The store's.
pub async fn lock_due(
    tx: &mut Tx<'_>,
    task_type: &str,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<TaskRow>, StoreError> {
    let rows = tx.lock_free(DUE, &[task_type.into(), now.into(), limit.into()]).await?;
    let whole = rows.iter().map(|row| {
        Ok(TaskRow {
            task: task(row)?,
            payload: row.json("payload")?,
            deadline: row.maybe_time("deadline")?,
            fence: row.integer("fence")?,
        })
    });
    whole.collect()
}

/// Makes tasks of this type due now that are due later than `latest`.
///
/// # Errors
/// The store's.
pub async fn hasten(
    tx: &mut Tx<'_>,
    task_type: &str,
    now: Timestamp,
    latest: Timestamp,
) -> Result<u64, StoreError> {
    tx.execute(HASTEN, &[task_type.into(), now.into(), latest.into()]).await
}

/// Makes the task that has this key, and waits, due now.
///
/// # Errors
/// The store's.
pub async fn wake(tx: &mut Tx<'_>, key: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(WAKE, &[key.into(), now.into()]).await.map(drop)
}

/// Gives a task, which is locked, to a worker until its lease ends.
///
/// # Errors
/// The store's.
pub async fn claim(tx: &mut Tx<'_>, hold: &Hold, until: Timestamp) -> Result<(), StoreError> {
    let row = [hold.id.as_str().into(), (&hold.holder).into(), hold.fence.into(), until.into()];
    tx.execute(CLAIM, &row).await.map(drop)
}

/// Writes what became of an attempt; `false`, and nothing is written, if the task is another worker's by now, or nobody's.
///
/// # Errors
/// The store's.
pub async fn settle(tx: &mut Tx<'_>, hold: &Hold, to: &Settled) -> Result<bool, StoreError> {
    let row = [
        hold.id.as_str().into(),
        (&hold.holder).into(),
        hold.fence.into(),
        to.state.as_str().into(),
        to.attempts.into(),
        (&to.last_error).into(),
        to.due_at.into(),
        to.ended_at.into(),
    ];
    Ok(tx.execute(SETTLE, &row).await? == 1)
}

/// Whether the task is still this worker's, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn is_held(tx: &mut Tx<'_>, hold: &Hold) -> Result<bool, StoreError> {
    let row = [hold.id.as_str().into(), (&hold.holder).into(), hold.fence.into()];
    Ok(tx.lock_optional(HELD, &row).await?.is_some())
}

/// Gives up a task, which is locked.
///
/// # Errors
/// The store's.
pub async fn archive(tx: &mut Tx<'_>, id: &TaskId, why: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(ARCHIVE, &[id.as_str().into(), why.into(), now.into()]).await.map(drop)
}

/// At most `limit` tasks of this type that wait, and that no worker has failed at or is at.
///
/// # Errors
/// The store's.
pub async fn waiting(tx: &mut Tx<'_>, task_type: &str, limit: i64) -> Result<Vec<TaskId>, StoreError> {
    let rows = tx.fetch_all(WAITING, &[task_type.into(), limit.into()]).await?;
    rows.iter().map(|row| row.parsed("id")).collect()
}

/// As [`waiting`], locked; none that another worker is about to take.
///
/// # Errors
/// The store's.
pub async fn lock_waiting(tx: &mut Tx<'_>, task_type: &str, limit: i64) -> Result<Vec<TaskId>, StoreError> {
    let rows = tx.lock_free(WAITING, &[task_type.into(), limit.into()]).await?;
    rows.iter().map(|row| row.parsed("id")).collect()
}

/// Completes a task, which is locked and which the work of another one has done as well.
///
/// # Errors
/// The store's.
pub async fn complete(tx: &mut Tx<'_>, id: &TaskId, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(COMPLETE, &[id.as_str().into(), now.into()]).await.map(drop)
}

/// The task that has not ended and has the key of this one, which has.
///
/// # Errors
/// The store's.
pub async fn successor(tx: &mut Tx<'_>, id: &TaskId) -> Result<Option<TaskId>, StoreError> {
    let found = tx.fetch_optional(SUCCESSOR, &[id.as_str().into()]).await?;
    found.map(|row| row.parsed("id")).transpose()
}

/// Lets a task, which is locked, begin anew.
///
/// # Errors
/// The store's; [`StoreError::Race`] if one that has not ended has its key by now.
pub async fn reopen(tx: &mut Tx<'_>, id: &TaskId, now: Timestamp) -> Result<(), StoreError> {
    match tx.execute(REOPEN, &[id.as_str().into(), now.into()]).await {
        Err(StoreError::Unique(_)) => Err(StoreError::Race),
        other => other.map(drop),
    }
}

/// Removes a task.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, id: &TaskId) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[id.as_str().into()]).await.map(drop)
}

/// Forgets at most `most` tasks that are in this state since before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(
    tx: &mut Tx<'_>,
    state: TaskState,
    before: Timestamp,
    most: i64,
) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[state.as_str().into(), before.into(), most.into()]).await
}

fn task(row: &Row) -> Result<Task, StoreError> {
    Ok(Task {
        id: row.parsed("id")?,
        queue: row.text("queue")?,
        task_type: row.text("type")?,
        state: row.word("state")?,
        once: row.flag("once")?,
        attempts: row.integer("attempts")?,
        last_error: row.maybe_text("last_error")?,
        created_at: row.time("created_at")?,
        due_at: row.maybe_time("due_at")?,
        ended_at: row.maybe_time("ended_at")?,
    })
}
