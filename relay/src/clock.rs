//! The clock as a parameter: the system's in `serve`, one that a test moves by hand everywhere else.
//!
//! Nothing else in relay reads the time; clippy.toml bans the calls.

use shared::time::Timestamp;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// Where "now" comes from. Clones of a manual clock move together.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<AtomicI64>),
}

impl Clock {
    /// The system's clock.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A clock that stands at `start` until it is advanced.
    #[must_use]
    pub fn manual(start: Timestamp) -> Self {
        Self(Source::Manual(Arc::new(AtomicI64::new(start.millis()))))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(millis) => Timestamp::from_millis(millis.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock on; the system's clock is nobody's to move, and stays.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(millis) = &self.0 {
            let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
            let _ = millis.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |at| Some(at.saturating_add(by)));
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the system's clock")]
fn system_now() -> Timestamp {
    let millis = match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |millis| -millis),
    };
    Timestamp::from_millis(millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manual_clock_moves_only_by_hand_and_with_its_clones() {
        let clock = Clock::manual(Timestamp::from_seconds(100));
        let other = clock.clone();
        other.advance(Duration::from_millis(1500));
        assert_eq!(clock.now(), Timestamp::from_millis(101_500));
        assert_eq!(clock.now(), clock.now());
    }

    #[test]
    fn the_system_clock_is_later_than_this_source() {
        assert!(Clock::system().now() > Timestamp::parse("2025-01-01T00:00:00Z").unwrap());
    }
}
