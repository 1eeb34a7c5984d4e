//! A step under way: how far it is, and whether it is still wanted. The thread that does it and the one that reports share it.

use super::fault::{Fault, StepFault, fault};
use shared::api::steps::Progress;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a step is, and whether to go on.
#[derive(Debug, Default)]
pub(crate) struct Work {
    done: AtomicU64,
    total: AtomicU64,
    given_up: AtomicBool,
}

impl Work {
    /// So much is to be done; what was done before counts no more.
    pub(crate) fn begin(&self, total: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.total.store(total, Ordering::Relaxed);
    }

    /// So much more is done.
    ///
    /// # Errors
    /// The step was given up.
    pub(crate) fn add(&self, bytes: u64) -> Result<(), Fault> {
        self.done.fetch_add(bytes, Ordering::Relaxed);
        self.wanted()
    }

    /// Whether to go on.
    ///
    /// # Errors
    /// The step was given up.
    pub(crate) fn wanted(&self) -> Result<(), Fault> {
        match self.given_up.load(Ordering::Relaxed) {
            true => Err(fault(StepFault::Timeout, "the relay wants this step no more")),
            false => Ok(()),
        }
    }

    /// The relay wants it no more.
    pub(crate) fn give_up(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    /// As it is reported.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let total = self.total.load(Ordering::Relaxed);
        let bytes = super::disks::bytes(self.done.load(Ordering::Relaxed))?;
        Some(Progress { bytes, total_bytes: super::disks::bytes(total).filter(|_| total > 0) })
    }
}
