//! What is written beside every change of a call: the audit's record of it, in the change's own transaction.
//!
//! A handler's transactions do not know of the record. Whoever runs the handler puts it [`around`](Beside::around) it, and
//! [`Store::transact`](super::Store::transact) writes it at the end of each that succeeds: so no handler can forget it, and
//! there is no change without its record. The record's id is the same in each, and a second one is none.

use super::{StoreError, Tx, audit};
use crate::seal::ChainKey;
use shared::api::audit::AuditRecord;
use std::{future::Future, sync::Arc};

tokio::task_local! {
    /// Of the task that does the call. What it spawns is not the call's.
    static BESIDE: Arc<Beside>;
}

/// A record, and when it is written.
pub struct Beside {
    record: AuditRecord,
    when: When,
    key: Option<ChainKey>,
}

/// Which transactions a record is written beside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// All.
    Always {
        /// Whether the id of what was made stands in the record: the relay drew it.
        drawn: bool,
    },
    /// Those that write an event.
    News,
}

/// What a transaction was about, by the first event that it wrote or by what it said of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// To whom it is told.
    pub tenant: String,
    /// The id of the thing.
    pub subject: String,
}

impl Beside {
    /// A record to be written, marked by this key.
    #[must_use]
    pub fn new(record: AuditRecord, when: When, key: Option<ChainKey>) -> Self {
        Self { record, when, key }
    }

    /// Runs `work`, and writes the record beside what it changes.
    pub async fn around<T>(self, work: impl Future<Output = T>) -> T {
        BESIDE.scope(Arc::new(self), work).await
    }

    /// The record, with what the transaction was about; `None` if it is none.
    fn of(&self, about: Option<&About>) -> Option<AuditRecord> {
        let mut record = self.record.clone();
        let Some(about) = about else { return (self.when != When::News).then_some(record) };
        record.tenant_id.clone_from(&about.tenant);
        let named = record.resource.split(' ').any(|word| word.ends_with(&format!("={}", about.subject)));
        if self.when != (When::Always { drawn: false }) && !named {
            let gap = if record.resource.is_empty() { "" } else { " " };
            record.resource = format!("{}{gap}id={}", record.resource, about.subject);
        }
        Some(record)
    }
}

/// Writes the record of the call that runs, if there is one, at the end of its transaction.
pub(super) async fn write(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let Ok(beside) = BESIDE.try_with(Arc::clone) else { return Ok(()) };
    match beside.of(tx.about()) {
        Some(record) => audit::insert(tx, beside.key.as_ref(), &record).await,
        None => Ok(()),
    }
}
