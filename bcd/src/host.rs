//! What bcd asks of the machine beside files: the time and dice. One trait, so that a test can turn the clock.

use nix::time::{ClockId, clock_gettime};
use shared::time::Timestamp;
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Clocks and randomness.
pub trait Host: Send + Sync + std::fmt::Debug {
    /// The machine's idea of the date. It may be years off, and may jump.
    fn wall(&self) -> Timestamp;
    /// Time since boot, suspended time included (CLOCK_BOOTTIME). It never jumps.
    fn boot(&self) -> Duration;
    /// Fills the buffer with random bytes fit for keys.
    ///
    /// # Errors
    /// The system has none.
    fn random(&self, buffer: &mut [u8]) -> Result<(), NoRandomness>;
}

/// The system gives no random bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes")]
pub struct NoRandomness;

/// The real machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct System;

impl Host for System {
    fn wall(&self) -> Timestamp {
        let since_1970 = clock(ClockId::CLOCK_REALTIME);
        Timestamp::from_millis(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
    }
    fn boot(&self) -> Duration {
        clock(ClockId::CLOCK_BOOTTIME)
    }
    fn random(&self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        aws_lc_rs::rand::fill(buffer).map_err(|_| NoRandomness)
    }
}

/// A clock before 1970 reads as 1970. Linux always has both clocks.
fn clock(id: ClockId) -> Duration {
    clock_gettime(id).map_or(Duration::ZERO, |time| {
        let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
        Duration::new(seconds, u32::try_from(time.tv_nsec()).unwrap_or(0))
    })
}

/// A random number in `0..1`, for jitter only; without randomness it is a half.
#[must_use]
pub fn fraction(host: &dyn Host) -> f64 {
    let mut bytes = [0; 4];
    match host.random(&mut bytes) {
        Ok(()) => f64::from(u32::from_be_bytes(bytes)) / (f64::from(u32::MAX) + 1.0),
        Err(NoRandomness) => 0.5,
    }
}

/// How long the relay's time counts against the machine's own after it was last heard, in seconds (one day).
const HEARD_SECONDS: u64 = 86_400;

/// What this machine knows of the time, for judging the relay by it.
///
/// Two clocks, and either may be wrong: the wall clock, which whoever answers for a time server can put anywhere, and the
/// relay's, which only the relay can, and which is as wrong as the relay's was. A certificate is good if it holds at some
/// point between [`Clocks::earliest`] and [`Clocks::latest`]:
///
/// - It may begin as late as the **later** of both. A relay whose clock was behind is right again with its next certificate,
///   and must not be refused by what it said before. Nobody gains: certificates of the future are made by nobody but the CA.
/// - It must not have ended by the **relay's** time. Else whoever holds the key of an old server certificate would need no
///   more than to turn the wall clock back. A relay that stood ahead, by more than its certificates live, is refused for
///   that until it was not heard for a day; then the wall clock is as good as what the relay once said, as it is after a
///   restart. (Whoever can keep a machine from its relay for a day, and turn its clock back, and has such a key, could
///   as well wait for a restart.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// The machine's own time.
    pub wall: Timestamp,
    /// The relay's time, if it was heard.
    pub relay: Option<Timestamp>,
    /// Whether that counts against the machine's own.
    pub is_fresh: bool,
}

impl Clocks {
    /// No certificate may have ended by then.
    #[must_use]
    pub fn earliest(self) -> Timestamp {
        match self.relay {
            Some(relay) if self.is_fresh => relay,
            Some(relay) => relay.min(self.wall),
            None => self.wall,
        }
    }

    /// Every certificate must have begun by then.
    #[must_use]
    pub fn latest(self) -> Timestamp {
        self.relay.map_or(self.wall, |relay| relay.max(self.wall))
    }
}

impl std::fmt::Display for Clocks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "this machine's clock says {}", self.wall)?;
        match self.relay {
            Some(relay) => write!(out, ", the relay's, as it was last heard, {relay}"),
            None => Ok(()),
        }
    }
}

/// The relay's time, carried on by the time since boot: a stepped wall clock does not matter, a suspension is noticed.
#[derive(Debug, Default)]
pub struct RelayClock {
    heard: Mutex<Option<(Timestamp, Duration)>>,
}

impl RelayClock {
    /// Notes the relay's time, as it was in an answer that has just come.
    pub fn hear(&self, relay: Timestamp, host: &dyn Host) {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Some((relay, host.boot()));
    }

    /// The relay's time now; the machine's own before the relay was heard.
    #[must_use]
    pub fn now(&self, host: &dyn Host) -> Timestamp {
        match *self.heard.lock().unwrap_or_else(PoisonError::into_inner) {
            Some((relay, at)) => {
                let passed = host.boot().saturating_sub(at).as_millis();
                Timestamp::from_millis(
                    relay.millis().saturating_add(i64::try_from(passed).unwrap_or(i64::MAX)),
                )
            }
            None => host.wall(),
        }
    }

    /// All that is known of the time.
    #[must_use]
    pub fn clocks(&self, host: &dyn Host) -> Clocks {
        let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = |(_, at): (_, Duration)| host.boot().saturating_sub(at).as_secs() < HEARD_SECONDS;
        Clocks { wall: host.wall(), relay: heard.map(|_| self.now(host)), is_fresh: heard.is_some_and(fresh) }
    }

    /// How far the machine's clock is ahead of the relay's, in whole seconds; `None` before the relay was heard.
    #[must_use]
    pub fn skew_seconds(&self, host: &dyn Host) -> Option<i64> {
        let heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        heard.then(|| (host.wall().millis() - self.now(host).millis()) / 1000)
    }
}

/// A clock that a test turns, and dice that always fall alike.
#[cfg(test)]
#[derive(Debug)]
pub(crate) struct Fake {
    pub(crate) wall: Mutex<Timestamp>,
    pub(crate) boot: Mutex<Duration>,
    pub(crate) dice: Mutex<u8>,
}

#[cfg(test)]
impl Fake {
    pub(crate) fn at(wall: Timestamp) -> Self {
        Self { wall: Mutex::new(wall), boot: Mutex::new(Duration::from_secs(100)), dice: Mutex::new(0) }
    }
    pub(crate) fn pass(&self, seconds: u64) {
        *self.boot.lock().unwrap() += Duration::from_secs(seconds);
        let mut wall = self.wall.lock().unwrap();
        *wall = wall.plus_seconds(i64::try_from(seconds).unwrap());
    }
}

#[cfg(test)]
impl Host for Fake {
    fn wall(&self) -> Timestamp {
        *self.wall.lock().unwrap()
    }
    fn boot(&self) -> Duration {
        *self.boot.lock().unwrap()
    }
    fn random(&self, buffer: &mut [u8]) -> Result<(), NoRandomness> {
        let mut dice = self.dice.lock().unwrap();
        *dice = dice.wrapping_add(1);
        buffer.fill(*dice);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_has_both_clocks_and_dice() {
        assert!(System.wall() > Timestamp::from_seconds(1_000_000_000));
        assert!(System.boot() > Duration::ZERO);
        let (mut one, mut two) = ([0; 16], [0; 16]);
        System.random(&mut one).unwrap();
        System.random(&mut two).unwrap();
        assert_ne!(one, two);
        assert!((0.0..1.0).contains(&fraction(&System)));
    }

    #[test]
    fn what_counts_of_the_time_lies_between_both_clocks() {
        let at = Timestamp::from_seconds;
        for (relay, is_fresh, expected) in [
            (None, false, (1000, 1000)),
            (Some(900), true, (900, 1000)),
            (Some(1100), true, (1100, 1100)),
            (Some(900), false, (900, 1000)),
            (Some(1100), false, (1000, 1100)),
        ] {
            let clocks = Clocks { wall: at(1000), relay: relay.map(at), is_fresh };
            assert_eq!((clocks.earliest().seconds(), clocks.latest().seconds()), expected, "{clocks:?}");
        }
        let host = Fake::at(at(1000));
        let clock = RelayClock::default();
        assert_eq!(clock.clocks(&host).relay, None);
        clock.hear(at(5000), &host);
        host.pass(HEARD_SECONDS - 1);
        assert!(clock.clocks(&host).is_fresh);
        host.pass(1);
        let clocks = clock.clocks(&host);
        assert_eq!((clocks.relay, clocks.is_fresh), (Some(at(91_400)), false));
    }

    #[test]
    fn a_stepped_wall_clock_does_not_move_the_relays_time_and_a_suspension_does() {
        let host = Fake::at(Timestamp::from_seconds(1000));
        let clock = RelayClock::default();
        assert_eq!(clock.now(&host), Timestamp::from_seconds(1000));
        assert_eq!(clock.skew_seconds(&host), None);
        clock.hear(Timestamp::from_seconds(5000), &host);
        *host.wall.lock().unwrap() = Timestamp::from_seconds(9000);
        assert_eq!(clock.now(&host), Timestamp::from_seconds(5000));
        assert_eq!(clock.skew_seconds(&host), Some(4000));
        *host.boot.lock().unwrap() += Duration::from_secs(60);
        assert_eq!(clock.now(&host), Timestamp::from_seconds(5060));
    }
}
