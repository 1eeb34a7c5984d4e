//! Whether there is room for what is written: noted where a change fails for lack of it, and unnoted by a write as large as
//! anything that comes. In between the relay says that it is not ready, so that clients are sent elsewhere; a small change that
//! still fits between others says nothing of room, so success alone clears nothing.

use super::{
    Store,
    error::{Fault, StoreError, StoreFault},
    meta::{self, Name},
};
use std::sync::atomic::Ordering;

/// Bytes of the row that is written to see whether there is room again: more than a join writes.
const PROBE_BYTES: usize = 64 * 1024;

impl Store {
    /// Whether the database answers, and the last changes found room, for `/readyz`. Writes nothing.
    ///
    /// # Errors
    /// It does not, or there was none.
    pub async fn ready(&self) -> Result<(), StoreError> {
        self.ping().await?;
        if self.is_full() {
            return Err(StoreError::Full(Fault::new("a change found no room, and none has come since")));
        }
        Ok(())
    }

    /// Whether a change failed for lack of space, and [`Store::seek_space`] has found none since.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.inner.full.load(Ordering::Relaxed)
    }

    /// Looks whether there is room again, by writing a row and removing it; where nothing was full, it writes nothing.
    ///
    /// # Errors
    /// There is no room yet, or the database fails otherwise.
    pub async fn seek_space(&self) -> Result<(), StoreError> {
        if !self.is_full() {
            return Ok(());
        }
        let text = "0".repeat(PROBE_BYTES);
        self.transact("probe space", &*text, |tx, text| Box::pin(meta::put(tx, Name::SpaceProbe, text)))
            .await?;
        self.inner.full.store(false, Ordering::Relaxed);
        tracing::info!("the store has room again");
        self.transact("probe space", (), |tx, ()| Box::pin(meta::remove(tx, Name::SpaceProbe))).await
    }

    /// Notes what became of a change.
    pub(super) fn note_space<T, E: StoreFault>(&self, result: &Result<T, E>) {
        let error = result.as_ref().err().and_then(E::store_error);
        if matches!(error, Some(StoreError::Full(_))) && !self.inner.full.swap(true, Ordering::Relaxed) {
            tracing::error!(
                "a change found no room in the store: the relay is not ready until there is; free some on its disk"
            );
        }
    }
}
