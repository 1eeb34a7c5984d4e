//! When to try again: full jitter, from a second to five minutes, and never sooner than the relay asks.

use std::time::Duration;

const FIRST_SECONDS: u64 = 1;
const MAX_SECONDS: u64 = 300;
/// What a relay may ask for at most.
pub const MAX_ASKED: Duration = Duration::from_secs(3600);

/// How many attempts in a row have failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Whether the last attempt failed.
    #[must_use]
    pub fn is_failing(self) -> bool {
        self.failures > 0
    }

    /// An attempt succeeded.
    pub fn succeed(&mut self) {
        self.failures = 0;
    }

    /// An attempt failed: how long to wait. `fraction` is a die in `0..1`; `asked` is the relay's Retry-After.
    ///
    /// What the relay asks is stretched by up to a quarter, so that all who were told the same don't return at once.
    pub fn fail(&mut self, fraction: f64, asked: Option<Duration>) -> Duration {
        let ceiling =
            FIRST_SECONDS.checked_shl(self.failures.min(20) + 1).unwrap_or(MAX_SECONDS).min(MAX_SECONDS);
        self.failures = self.failures.saturating_add(1);
        let own = Duration::from_secs(ceiling).mul_f64(fraction).max(Duration::from_secs(FIRST_SECONDS));
        let asked = asked.unwrap_or_default().min(MAX_ASKED);
        own.max(asked.mul_f64(1.0 + fraction / 4.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_minutes_and_are_never_under_a_second() {
        let mut backoff = Backoff::default();
        for ceiling in [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300, 300] {
            let wait = backoff.fail(0.999_999, None);
            assert!(
                wait <= Duration::from_secs(ceiling) && wait > Duration::from_secs(ceiling - 1),
                "{wait:?}"
            );
        }
        for _ in 0..100 {
            assert_eq!(backoff.fail(0.0, None), Duration::from_secs(1));
        }
        assert!(backoff.is_failing());
        backoff.succeed();
        assert!(!backoff.is_failing());
        assert!(backoff.fail(0.5, None) <= Duration::from_secs(1));
    }

    #[test]
    fn the_relay_is_waited_for_and_not_all_return_at_once() {
        let asked = Some(Duration::from_secs(100));
        assert_eq!(Backoff::default().fail(0.0, asked), Duration::from_secs(100));
        assert_eq!(Backoff::default().fail(0.8, asked), Duration::from_secs(120));
        let absurd = Some(Duration::from_secs(u64::MAX));
        assert!(Backoff::default().fail(0.5, absurd) <= MAX_ASKED * 2);
    }
}
