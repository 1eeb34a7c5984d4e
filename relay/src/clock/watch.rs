//! Whether the wall clock is to be trusted with what can't be undone: rotating and dropping CAs, forgetting what is over.
//!
//! A time server with a wrong answer, or a host that wakes its guest with a wrong clock, puts the time years off for a
//! minute. What is done by it in that minute stays: CAs that begin in the future, credentials that are gone. So a wall clock
//! that has not run as the time since boot has is not believed before its new time has held for an hour; nothing of
//! what waits for it is urgent by the hour. The same goes for the first hour after a start, where there is nothing to
//! compare with: a machine's clock is wrongest while it comes up. A clock that goes back to where it was is believed at once.
//! Pure: whoever looks passes both clocks.

use shared::time::Timestamp;
use std::time::Duration;

/// How far the wall clock may run beside the time since boot between two looks, in seconds (5 minutes, by which
/// certificates are back-dated).
pub const TOLERANCE_SECONDS: i64 = 300;
/// How long a time has to hold before it is trusted, in seconds (one hour).
pub const HOLD_SECONDS: u64 = 3600;

/// What a look at both clocks came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sight {
    /// The wall clock has run as it should.
    Trusted,
    /// It has held for long enough since the start or a step, or has come back to where it was; said once.
    TrustedAgain,
    /// It was just put ahead by so many seconds (back, if negative); said once for each step.
    Stepped(i64),
    /// It has not held for long enough yet.
    Holding,
}

impl Sight {
    /// Whether what can't be undone may be done.
    #[must_use]
    pub const fn is_trusted(self) -> bool {
        matches!(self, Self::Trusted | Self::TrustedAgain)
    }
}

/// Both clocks at one moment.
#[derive(Clone, Copy, Debug)]
struct Moment {
    wall: Timestamp,
    since_boot: Duration,
}

impl Moment {
    /// By how many seconds the wall clock is ahead of where it would be had it run as it should since `earlier`.
    fn ahead_of(self, earlier: Self) -> i64 {
        let passed = self.since_boot.saturating_sub(earlier.since_boot).as_millis();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        let wall = self.wall.millis().saturating_sub(earlier.wall.millis());
        wall.saturating_sub(passed) / 1000
    }

    fn fits(self, earlier: Self) -> bool {
        self.ahead_of(earlier).abs() <= TOLERANCE_SECONDS
    }
}

/// Remembers the clocks between two looks.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    /// The last moment at which the wall clock was trusted.
    trusted: Option<Moment>,
    /// Since when a time holds that is not trusted yet, and the last look at it.
    held: Option<(Duration, Moment)>,
}

impl Watch {
    /// Looks at both clocks.
    pub fn look(&mut self, wall: Timestamp, since_boot: Duration) -> Sight {
        let now = Moment { wall, since_boot };
        if self.trusted.is_some_and(|trusted| now.fits(trusted)) {
            let was_held = self.held.take().is_some();
            self.trusted = Some(now);
            return if was_held { Sight::TrustedAgain } else { Sight::Trusted };
        }
        match (self.held, self.trusted) {
            (Some((since, last)), _) if now.fits(last) => {
                if since_boot.saturating_sub(since) < Duration::from_secs(HOLD_SECONDS) {
                    self.held = Some((since, now));
                    return Sight::Holding;
                }
                (self.held, self.trusted) = (None, Some(now));
                Sight::TrustedAgain
            }
            (Some((_, last)), _) | (None, Some(last)) => {
                self.held = Some((since_boot, now));
                Sight::Stepped(now.ahead_of(last))
            }
            (None, None) => {
                self.held = Some((since_boot, now));
                Sight::Holding
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 86_400;
    const HOUR: i64 = 3600;

    /// Looks once a minute at a wall clock that is off by these many seconds.
    struct Hand {
        watch: Watch,
        minutes: i64,
    }

    impl Hand {
        fn new() -> Self {
            Self { watch: Watch::default(), minutes: 0 }
        }

        fn look(&mut self, off: i64) -> Sight {
            self.minutes += 1;
            let passed = self.minutes * 60;
            let wall = Timestamp::from_seconds(1_780_000_000 + passed + off);
            self.watch.look(wall, Duration::from_secs(u64::try_from(passed).unwrap()))
        }

        fn looks(&mut self, count: i64, off: i64) -> Vec<Sight> {
            (0..count).map(|_| self.look(off)).collect()
        }

        /// One whose first hour is over.
        fn trusting() -> Self {
            let mut hand = Self::new();
            hand.looks(61, 0);
            hand
        }
    }

    #[test]
    fn nothing_is_trusted_in_the_first_hour() {
        let mut hand = Hand::new();
        assert_eq!(hand.looks(60, 0), [Sight::Holding; 60]);
        assert_eq!(hand.looks(3, 0), [Sight::TrustedAgain, Sight::Trusted, Sight::Trusted]);
    }

    #[test]
    fn a_step_at_the_start_begins_the_hour_anew() {
        let mut hand = Hand::new();
        hand.looks(30, 0);
        assert_eq!(hand.look(-3 * HOUR), Sight::Stepped(-3 * HOUR));
        assert_eq!(hand.looks(59, -3 * HOUR), [Sight::Holding; 59]);
        assert_eq!(hand.look(-3 * HOUR), Sight::TrustedAgain);
    }

    #[test]
    fn a_step_is_told_once_and_believed_after_an_hour() {
        for step in [TOLERANCE_SECONDS + 1, 400 * DAY, -(TOLERANCE_SECONDS + 1), -5 * DAY] {
            let mut hand = Hand::trusting();
            assert_eq!(hand.look(step), Sight::Stepped(step));
            assert_eq!(hand.looks(59, step), [Sight::Holding; 59], "{step}");
            assert_eq!(hand.looks(2, step), [Sight::TrustedAgain, Sight::Trusted], "{step}");
        }
    }

    #[test]
    fn a_clock_that_comes_back_is_believed_at_once() {
        let mut hand = Hand::trusting();
        assert_eq!(hand.looks(2, 25 * DAY), [Sight::Stepped(25 * DAY), Sight::Holding]);
        assert_eq!(hand.looks(2, 0), [Sight::TrustedAgain, Sight::Trusted]);
    }

    #[test]
    fn one_that_steps_again_is_told_again_and_waits_again() {
        let mut hand = Hand::trusting();
        hand.looks(40, 5 * DAY);
        assert_eq!(hand.look(6 * DAY), Sight::Stepped(DAY));
        assert_eq!(hand.looks(59, 6 * DAY), [Sight::Holding; 59]);
        assert_eq!(hand.look(6 * DAY), Sight::TrustedAgain);
    }

    #[test]
    fn small_steps_and_time_in_suspension_are_nothing() {
        let mut hand = Hand::trusting();
        for off in [0, TOLERANCE_SECONDS, 0, -TOLERANCE_SECONDS] {
            assert_eq!(hand.look(off), Sight::Trusted, "{off}");
        }
        hand.minutes += 7 * 24 * 60;
        assert_eq!(hand.look(-TOLERANCE_SECONDS), Sight::Trusted);
    }
}
