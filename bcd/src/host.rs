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
