//! What can go wrong in the store, in the few kinds that callers treat differently.
//!
//! Owns the error type; `dialect` decides which kind a driver's error is. No text here, neither `Display` nor
//! `Debug`, may hold a bound or a stored value: errors are logged, and rows hold secrets.

use crate::access::FileError;
use std::sync::Arc;

/// A failed operation on the store. `Busy`, `Serialization`, `Race` and `BatchLost` are worth another try, which
/// [`Store::transact`](super::Store::transact) makes by itself.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// Somebody else holds a lock for too long.
    #[error("the database is locked by another change")]
    Busy(#[source] Fault),
    /// The database gave up this transaction to save others (deadlock, serialization).
    #[error("the database could not put this change in order with others")]
    Serialization(#[source] Fault),
    /// A change of our own saw that it lost a race: what it had read is no longer so.
    #[error("another change got there first")]
    Race,
    /// SQLite: the commit that this change shared with others was rolled back; nothing of it is stored.
    #[error("the commit that this change shared with others was rolled back")]
    BatchLost,
    /// A unique or primary key exists already. Inside a transaction prefer `ON CONFLICT`: a failed statement ends it.
    #[error("a row with this key exists already")]
    Unique(#[source] Fault),
    /// No space is left.
    #[error("the database has no space left: free some on its disk")]
    Full(#[source] Fault),
    /// No connection, or the database stopped answering. Nothing was changed.
    #[error("the database can't be reached: check that it runs, its address and its disk")]
    Unreachable(#[source] Fault),
    /// SQLite's file, or one beside it, can't be used, and stays so until somebody changes its owner, its mode or its place.
    #[error(transparent)]
    File(#[from] Arc<FileError>),
    /// The connection failed during the commit: the change may or may not be stored.
    #[error("the database failed during a commit, so whether the change is stored isn't known")]
    OutcomeUnknown(#[source] Fault),
    /// A stored row is not what this relay writes.
    #[error("column `{column}` of a stored row {problem}")]
    Corrupt {
        /// The column's name in the statement's result.
        column: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The database was migrated by a newer relay.
    #[error(
        "the database has schema version {found}, this relay knows versions up to {known}: \
         run a relay at least as new as the one that migrated it"
    )]
    NewerSchema {
        /// The version found in the database.
        found: i64,
        /// The last version in this binary.
        known: i64,
    },
    /// The address of the database is no good.
    #[error("the database URL {0}")]
    Url(String),
    /// Anything else: a fault of the statement, or of the database.
    #[error("the database refused the operation")]
    Other(#[source] Fault),
}

/// What the driver said, stripped of values.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{text}")]
pub struct Fault {
    text: String,
    #[source]
    source: Option<Arc<sqlx::Error>>,
}

impl Fault {
    /// A fault in our own words.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), source: None }
    }

    /// A fault of the connection, whose errors (I/O, TLS) know no values and are kept as the source.
    pub(super) fn of_connection(text: impl Into<String>, source: sqlx::Error) -> Self {
        Self { text: text.into(), source: Some(Arc::new(source)) }
    }
}

impl StoreError {
    /// The retry counter that this error belongs to; `None` if another try would not help.
    #[must_use]
    pub fn retry_reason(&self) -> Option<RetryReason> {
        match self {
            Self::Busy(_) => Some(RetryReason::Busy),
            Self::Serialization(_) => Some(RetryReason::Serialization),
            Self::Race => Some(RetryReason::Race),
            Self::BatchLost => Some(RetryReason::BatchLost),
            _ => None,
        }
    }

    /// Whether the store may well work again soon: the caller is told to try again.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        let passing = matches!(self, Self::Full(_) | Self::Unreachable(_) | Self::OutcomeUnknown(_));
        passing || self.retry_reason().is_some()
    }

    /// The same failure, met while committing: where the connection broke, nobody knows what became of the change.
    pub(super) fn at_commit(self) -> Self {
        match self {
            Self::Unreachable(fault) => Self::OutcomeUnknown(fault),
            other => other,
        }
    }
}

/// Why a transaction was tried again; the label of `relay_store_retries_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryReason {
    /// [`StoreError::Busy`].
    Busy,
    /// [`StoreError::Serialization`].
    Serialization,
    /// [`StoreError::Race`].
    Race,
    /// [`StoreError::BatchLost`].
    BatchLost,
}

/// An error that may have a store error inside: how [`Store::transact`](super::Store::transact) sees whether to retry.
pub trait StoreFault {
    /// The store error that this error stands for, if it does.
    fn store_error(&self) -> Option<&StoreError>;
}

impl StoreFault for StoreError {
    fn store_error(&self) -> Option<&StoreError> {
        Some(self)
    }
}
