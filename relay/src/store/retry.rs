//! How often and how soon a transaction is tried again, and the count of it.

use super::error::{RetryReason, StoreFault};
use std::{
    hash::{BuildHasher, Hasher, RandomState},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// Further tries after the first one.
const MAX_RETRIES: u32 = 10;
const FIRST_WAIT_MICROSECONDS: u64 = 2_000;
const LONGEST_WAIT_MICROSECONDS: u64 = 200_000;

/// Retries since the store was opened, by reason.
#[derive(Debug, Default)]
pub struct Retries {
    /// The database was locked.
    pub busy: AtomicU64,
    /// The database chose this transaction to give way.
    pub serialization: AtomicU64,
    /// The change itself saw that it lost a race.
    pub race: AtomicU64,
    /// A shared commit was rolled back (SQLite).
    pub batch_lost: AtomicU64,
}

impl Retries {
    /// Every reason with its count, for the metric `relay_store_retries_total`.
    pub fn by_reason(&self) -> [(&'static str, u64); 4] {
        [
            ("busy", self.busy.load(Ordering::Relaxed)),
            ("serialization", self.serialization.load(Ordering::Relaxed)),
            ("race", self.race.load(Ordering::Relaxed)),
            ("batch_lost", self.batch_lost.load(Ordering::Relaxed)),
        ]
    }

    pub(super) fn count(&self, reason: RetryReason) {
        let counter = match reason {
            RetryReason::Busy => &self.busy,
            RetryReason::Serialization => &self.serialization,
            RetryReason::Race => &self.race,
            RetryReason::BatchLost => &self.batch_lost,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Spreads the waits of those who collided. Not a secret, so std's randomly keyed hasher is random enough.
#[derive(Debug, Default)]
pub(super) struct Jitter {
    keys: RandomState,
    drawn: AtomicU64,
}

impl Jitter {
    /// The wait before retry number `retry` (from 0): between half and all of a doubling span.
    pub(super) fn wait(&self, retry: u32) -> Duration {
        let mut hasher = self.keys.build_hasher();
        hasher.write_u64(self.drawn.fetch_add(1, Ordering::Relaxed));
        wait(retry, hasher.finish())
    }
}

/// The tries of one operation.
pub(super) struct Tries<'s> {
    operation: &'static str,
    retries: &'s Retries,
    jitter: &'s Jitter,
    retry: u32,
}

impl<'s> Tries<'s> {
    pub(super) fn of(operation: &'static str, retries: &'s Retries, jitter: &'s Jitter) -> Self {
        Self { operation, retries, jitter, retry: 0 }
    }

    /// Whether the next try is not the first.
    pub(super) fn again(&self) -> bool {
        self.retry > 0
    }

    /// How long to wait before another try; `None` if `result` is what the operation ends with.
    pub(super) fn wait_after<T, E: StoreFault>(&mut self, result: &Result<T, E>) -> Option<Duration> {
        let error = result.as_ref().err().and_then(E::store_error)?;
        let reason = error.retry_reason()?;
        let (operation, retry) = (self.operation, self.retry);
        if retry >= MAX_RETRIES {
            tracing::warn!(operation, %error, "given up after {MAX_RETRIES} retries");
            return None;
        }
        self.retries.count(reason);
        tracing::debug!(operation, %error, retry, "trying again");
        self.retry += 1;
        Some(self.jitter.wait(retry))
    }
}

fn wait(retry: u32, random: u64) -> Duration {
    let span = FIRST_WAIT_MICROSECONDS.saturating_mul(1 << retry.min(16)).min(LONGEST_WAIT_MICROSECONDS);
    Duration::from_micros(span / 2 + random % (span / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_never_leave_their_span() {
        for (retry, low, high) in
            [(0, 1_000, 2_000), (1, 2_000, 4_000), (6, 64_000, 128_000), (7, 100_000, 200_000)]
        {
            for random in [0, 1, 12_345, u64::MAX] {
                let micros = wait(retry, random).as_micros();
                assert!((low..=high).contains(&micros), "retry {retry}: {micros} µs");
            }
        }
        assert!(wait(u32::MAX, u64::MAX) <= Duration::from_millis(200));
    }

    #[test]
    fn two_that_collided_wait_differently() {
        let jitter = Jitter::default();
        let waits: std::collections::BTreeSet<_> = (0..50).map(|_| jitter.wait(9)).collect();
        assert!(waits.len() > 40, "{} different waits of 50", waits.len());
    }
}
