//! SQLite's one writer: a connection whose commits are shared, so that one sync of the disk serves many changes.
//!
//! Whoever wants to change something waits in line for the desk (a fair lock), does its work inside the transaction
//! that is open there, gives the desk to the next in line, and answers only when that transaction is committed. The
//! first one to leave something behind queues the commit in the same line: all who waited by then share it.
//!
//! - **An answer means that it is on disk.** `COMMIT` with synchronous=FULL returns after the log is synced, and no
//!   member of a batch is answered before. That holds for refusals too: what a refusal has read may be another
//!   member's change, and if that is never committed the refusal was wrong. Only a refusal that is alone in its
//!   transaction, so that it has seen nothing but committed rows, is answered at once.
//! - **A member fails alone.** Its part is a savepoint. Its error undoes that part only.
//! - **A member can vanish** in the middle (its caller hung up, or it panicked). The driver runs the statements of a
//!   connection in their order, so whoever comes next to the desk can undo that member's savepoint. If that can't be
//!   done, because SQLite itself has ended the transaction (disk full) or nobody knows how far it got, the whole
//!   transaction is rolled back, and all who wait for it get [`StoreError::BatchLost`], on which they try again.
//! - **A retry shares with nobody**, so what makes a commit fail ends up failing by itself.
//!
//! This file must never leave a transaction open without a commit or a rollback queued behind it.

use super::{
    dialect::{self, Address, Role},
    error::{Fault, StoreError},
};
use sqlx::{AnyConnection, Connection as _};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

/// The way to the writing connection.
pub(super) struct Writer {
    desk: Arc<Mutex<Desk>>,
    commits: Arc<AtomicU64>,
}

/// The result of a member whose batch is not committed yet.
pub(super) struct Pending(Option<oneshot::Receiver<Result<(), StoreError>>>);

/// One member's time at the desk.
pub(super) struct Turn {
    desk: OwnedMutexGuard<Desk>,
    way: Arc<Mutex<Desk>>,
    alone: bool,
}

struct Desk {
    address: Address,
    /// `None` after a failure that only a new connection cures, and after closing.
    connection: Option<AnyConnection>,
    phase: Phase,
    /// Those who wait for the commit of the open transaction. Bounded by those who waited in line for it.
    batch: Vec<oneshot::Sender<Result<(), StoreError>>>,
    closed: bool,
    commits: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No transaction is open.
    Idle,
    /// One is open, and holds what `batch` waits for.
    Open,
    /// A member is at work in it. Found by the next in line only if that member vanished.
    Member,
    /// A BEGIN, COMMIT or ROLLBACK is on its way. Found by the next in line only if it was interrupted.
    Unsure,
}

impl Writer {
    pub(super) async fn open(address: Address) -> Result<Self, StoreError> {
        let connection = address.connect(Role::Writer).await?;
        let commits = Arc::new(AtomicU64::new(0));
        let desk = Desk {
            address,
            connection: Some(connection),
            phase: Phase::Idle,
            batch: Vec::new(),
            closed: false,
            commits: Arc::clone(&commits),
        };
        Ok(Self { desk: Arc::new(Mutex::new(desk)), commits })
    }

    /// Waits in line, and begins a member of the transaction that is open then, or `alone`, of one of its own.
    pub(super) async fn enter(&self, alone: bool) -> Result<Turn, StoreError> {
        let way = Arc::clone(&self.desk);
        let mut turn = Turn { desk: Arc::clone(&way).lock_owned().await, way, alone };
        if alone {
            turn.desk.commit().await;
        }
        turn.desk.begin_member().await?;
        Ok(turn)
    }

    /// Commits what is pending and closes the connection. Whoever comes later is refused.
    pub(super) async fn close(&self) {
        let mut desk = self.desk.lock().await;
        desk.commit().await;
        desk.closed = true;
        if let Some(connection) = desk.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(error = %desk.address.dialect.classify(error), "closing the database");
        }
    }

    /// Commits since the store was opened.
    pub(super) fn commits(&self) -> u64 {
        self.commits.load(Ordering::Relaxed)
    }
}

impl Pending {
    /// Until the batch is committed.
    pub(super) async fn committed(self) -> Result<(), StoreError> {
        let Some(answer) = self.0 else { return Ok(()) };
        let lost = || StoreError::OutcomeUnknown(Fault::new("the commit was interrupted"));
        answer.await.unwrap_or_else(|_| Err(lost()))
    }
}

impl Turn {
    /// The connection to work on.
    pub(super) fn connection(&mut self) -> Result<&mut AnyConnection, StoreError> {
        self.desk.connection.as_mut().ok_or_else(no_connection)
    }

    /// Keeps or undoes what was done, and gives the desk to the next in line.
    pub(super) async fn leave(mut self, keep: bool) -> Result<Pending, StoreError> {
        if !keep && self.desk.batch.is_empty() {
            self.desk.abandon().await;
            return Ok(Pending(None));
        }
        self.desk.end_member(keep).await?;
        let (answer, pending) = oneshot::channel();
        self.desk.batch.push(answer);
        if self.alone {
            self.desk.commit().await;
        } else if self.desk.batch.len() == 1 {
            queue_commit(&self.way);
        }
        Ok(Pending(Some(pending)))
    }
}

impl Drop for Turn {
    /// A member that vanished at work must not leave the file locked until somebody happens to come by.
    fn drop(&mut self) {
        if !matches!(self.desk.phase, Phase::Idle | Phase::Open) {
            queue_commit(&self.way);
        }
    }
}

/// A task, since the member that asks for the commit may be gone before its turn comes.
fn queue_commit(way: &Arc<Mutex<Desk>>) {
    let way = Arc::clone(way);
    // Without a runtime the process ends, and SQLite rolls back.
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move { way.lock_owned().await.commit().await });
    }
}

impl Desk {
    async fn begin_member(&mut self) -> Result<(), StoreError> {
        self.recover().await;
        if self.closed {
            return Err(no_connection());
        }
        if self.phase == Phase::Idle {
            self.begin().await?;
        }
        self.phase = Phase::Member;
        if let Err(error) = self.run(dialect::MEMBER_BEGIN).await {
            self.abandon().await;
            return Err(error);
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), StoreError> {
        self.phase = Phase::Unsure;
        if self.connection.is_none() {
            self.connection = Some(self.address.connect(Role::Writer).await?);
        }
        if let Err(error) = self.run(dialect::WRITER_BEGIN).await {
            self.abandon().await;
            return Err(error);
        }
        Ok(())
    }

    async fn end_member(&mut self, keep: bool) -> Result<(), StoreError> {
        let end = if keep { dialect::MEMBER_KEEP } else { dialect::MEMBER_UNDO };
        if self.run(end).await.is_err() {
            self.abandon().await;
            return Err(StoreError::BatchLost);
        }
        self.phase = Phase::Open;
        Ok(())
    }

    /// Puts right what somebody left behind who vanished.
    async fn recover(&mut self) {
        match self.phase {
            Phase::Idle | Phase::Open => {}
            Phase::Member if !self.batch.is_empty() => match self.run(dialect::MEMBER_UNDO).await {
                Ok(()) => self.phase = Phase::Open,
                Err(_) => self.abandon().await,
            },
            Phase::Member | Phase::Unsure => self.abandon().await,
        }
    }

    /// Commits the open transaction, if there is one, and answers all who wait for it.
    async fn commit(&mut self) {
        self.recover().await;
        if self.phase == Phase::Idle {
            return;
        }
        // Taken first: if this is interrupted, they learn that nobody knows.
        let members = std::mem::take(&mut self.batch);
        self.phase = Phase::Unsure;
        let outcome = match self.run(dialect::WRITER_COMMIT).await {
            Ok(()) => {
                self.phase = Phase::Idle;
                self.commits.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => {
                self.abandon().await;
                Err(verdict(error, members.len()))
            }
        };
        for member in members {
            // Who is gone needs no answer.
            let _ = member.send(outcome.clone());
        }
    }

    /// Rolls everything back. Where there is nothing to roll back, that must be seen; else a new connection is the
    /// only sure way.
    async fn abandon(&mut self) {
        self.phase = Phase::Unsure;
        for member in self.batch.drain(..) {
            let _ = member.send(Err(StoreError::BatchLost));
        }
        if self.run(dialect::WRITER_ROLLBACK).await.is_err()
            && self.run(dialect::WRITER_IS_IDLE).await.is_err()
        {
            self.connection = None;
        }
        self.phase = Phase::Idle;
    }

    async fn run(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let connection = self.connection.as_mut().ok_or_else(no_connection)?;
        let done = sqlx::query(sql).execute(connection).await;
        done.map(drop).map_err(|error| self.address.dialect.classify(error))
    }
}

/// What a failed commit means for its members: with others, try again alone, unless it may have happened.
fn verdict(error: StoreError, members: usize) -> StoreError {
    match error.at_commit() {
        unknown @ StoreError::OutcomeUnknown(_) => unknown,
        _ if members > 1 => StoreError::BatchLost,
        error => error,
    }
}

fn no_connection() -> StoreError {
    StoreError::Unreachable(Fault::new("the store is closed, or its file can no longer be opened"))
}

#[cfg(test)]
mod tests;
