//! The clock as a parameter: the system's in `serve`, one that a test moves by hand everywhere else.
//!
//! Nothing else in relay reads the time; clippy.toml bans the calls. The wall clock may be put to any time at any moment;
//! [`Watch`] tells whether it has run as the time since boot has.

mod watch;

pub use watch::{HOLD_SECONDS, Sight, TOLERANCE_SECONDS, Watch};

use nix::time::{ClockId, clock_gettime};
use shared::time::Timestamp;
use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

/// Where "now" comes from. Clones of a manual clock move together.
#[derive(Clone, Debug)]
pub struct Clock(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Manual(Arc<ByHand>),
}

/// Both clocks of a test, in milliseconds.
#[derive(Debug)]
struct ByHand {
    wall: AtomicI64,
    since_boot: AtomicU64,
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
        let by_hand = ByHand { wall: AtomicI64::new(start.millis()), since_boot: AtomicU64::new(0) };
        Self(Source::Manual(Arc::new(by_hand)))
    }

    /// The time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => system_now(),
            Source::Manual(by_hand) => Timestamp::from_millis(by_hand.wall.load(Ordering::SeqCst)),
        }
    }

    /// How long the machine has been up, time in suspension included. It runs on whatever the wall clock is put to.
    #[must_use]
    pub fn since_boot(&self) -> Duration {
        match &self.0 {
            Source::System => system_since_boot(),
            Source::Manual(by_hand) => Duration::from_millis(by_hand.since_boot.load(Ordering::SeqCst)),
        }
    }

    /// Moves a manual clock on, as time does; the system's clock is nobody's to move, and stays.
    pub fn advance(&self, by: Duration) {
        if let Source::Manual(by_hand) = &self.0 {
            let millis = u64::try_from(by.as_millis()).unwrap_or(u64::MAX);
            let on = |at: u64| Some(at.saturating_add(millis));
            let _ = by_hand.since_boot.fetch_update(Ordering::SeqCst, Ordering::SeqCst, on);
            self.step_millis(i64::try_from(millis).unwrap_or(i64::MAX));
        }
    }

    /// Puts a manual clock ahead (back, if negative) without any time passing.
    pub fn step(&self, seconds: i64) {
        self.step_millis(seconds.saturating_mul(1000));
    }

    fn step_millis(&self, by: i64) {
        if let Source::Manual(by_hand) = &self.0 {
            let on = |at: i64| Some(at.saturating_add(by));
            let _ = by_hand.wall.fetch_update(Ordering::SeqCst, Ordering::SeqCst, on);
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

/// Linux always has this clock.
fn system_since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(Duration::ZERO, Duration::from)
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
        assert_eq!(clock.since_boot(), Duration::from_millis(1500));
        other.step(-100);
        assert_eq!(
            (clock.now(), clock.since_boot()),
            (Timestamp::from_millis(1500), Duration::from_millis(1500))
        );
    }

    #[test]
    fn the_system_clock_is_later_than_this_source() {
        assert!(Clock::system().now() > Timestamp::parse("2025-01-01T00:00:00Z").unwrap());
        assert!(Clock::system().since_boot() > Duration::ZERO);
    }
}
