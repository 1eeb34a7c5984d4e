//! Waiting by CLOCK_BOOTTIME: time that passes in suspension counts, so that a machine that wakes notices at once.
//! The runtime's own timers stand still in suspension.

use crate::host::Host;
use nix::sys::{
    time::TimeSpec,
    timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
};
use std::{io, os::fd::OwnedFd, time::Duration};
use tokio::io::{Interest, unix::AsyncFd};

/// Returns once the machine has been up for this long.
///
/// # Errors
/// The kernel gives no timer.
pub(crate) async fn wait_until(boot: Duration, host: &dyn Host) -> io::Result<()> {
    if boot <= host.boot() {
        return Ok(());
    }
    let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
    timer.set(Expiration::OneShot(TimeSpec::from_duration(boot)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
    readable(timer.into())?.readable().await.map(|_| ())
}

#[expect(
    deprecated,
    reason = "its successor is unsafe for types that might close their descriptor; an OwnedFd doesn't"
)]
fn readable(timer: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(timer, Interest::READABLE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::System;

    #[tokio::test]
    async fn it_waits_and_not_for_what_is_past() {
        wait_until(Duration::from_millis(1), &System).await.unwrap();
        let begin = System.boot();
        let end = begin + Duration::from_millis(50);
        wait_until(end, &System).await.unwrap();
        assert!(System.boot() >= end);
    }
}
