//! Signs of life on their way to the store: noted in memory, written down together.
//!
//! A heartbeat decides nothing by itself, so losing a second of them to a crash is harmless; a transaction each
//! would cost an fsync each. The map holds one entry a node, so it is bounded by the number of nodes.

use crate::{
    fault::{Fault, chain},
    store::{
        Store,
        nodes::{self, Heartbeat},
    },
};
use shared::id::NodeId;
use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

/// How many are written in one transaction.
const BATCH: usize = 500;

/// What was heard and not yet written.
#[derive(Default)]
pub struct Heartbeats(Mutex<HashMap<NodeId, Heartbeat>>);

impl Heartbeats {
    /// Notes a sign of life. What an older one of the same node said and this one does not is kept.
    pub fn note(&self, mut beat: Heartbeat) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(older) = waiting.remove(&beat.node) {
            beat.agent_version = beat.agent_version.or(older.agent_version);
        }
        waiting.insert(beat.node.clone(), beat);
    }

    /// Writes down all that waits. What could not be written waits on, unless something newer came.
    ///
    /// # Errors
    /// The store's.
    pub async fn write(&self, store: &Store) -> Result<(), Fault> {
        let mut all: Vec<Heartbeat> = {
            let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.drain().map(|(_, beat)| beat).collect()
        };
        // One order for all relays, so that two of them never wait for each other's rows.
        all.sort_by(|one, other| one.node.cmp(&other.node));
        for (at, batch) in all.chunks(BATCH).enumerate() {
            match written(store, batch).await {
                Ok(()) => {}
                Err(Fault::Store(error)) if !error.is_transient() => one_by_one(store, batch).await,
                Err(fault) => {
                    self.put_back(all.split_off(at * BATCH));
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    fn put_back(&self, unwritten: Vec<Heartbeat>) {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for beat in unwritten {
            waiting.entry(beat.node.clone()).or_insert(beat);
        }
    }
}

async fn written(store: &Store, batch: &[Heartbeat]) -> Result<(), Fault> {
    let written = store.transact("heartbeats", batch, |tx, batch| {
        Box::pin(async move {
            for beat in *batch {
                nodes::heartbeat(tx, beat).await?;
            }
            Ok::<_, Fault>(())
        })
    });
    written.await
}

/// Writes a batch that failed as a whole, without what makes it fail: no node keeps others from being written.
async fn one_by_one(store: &Store, batch: &[Heartbeat]) {
    for beat in batch {
        if let Err(fault) = written(store, std::slice::from_ref(beat)).await {
            tracing::warn!(node = %beat.node, error = chain(&fault), "a heartbeat can't be written and is dropped");
        }
    }
}
