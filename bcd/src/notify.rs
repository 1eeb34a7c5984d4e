//! Words to the service manager (sd_notify(3)), where there is one.

use sd_notify::NotifyState;
use std::{io, time::Duration};

type Tell = dyn Fn(&[NotifyState<'_>]) -> io::Result<()> + Send + Sync;

/// The service manager, if there is one.
pub struct Notifier {
    tell: Box<Tell>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// The one that started this process, as the environment says.
    #[must_use]
    pub fn of_environment() -> Self {
        Self { tell: Box::new(sd_notify::notify), watchdog: sd_notify::watchdog_enabled() }
    }

    /// One that hears by this function and wants word that often.
    #[cfg(test)]
    pub(crate) fn told_by(
        tell: impl Fn(&[NotifyState<'_>]) -> io::Result<()> + Send + Sync + 'static,
        watchdog: Option<Duration>,
    ) -> Self {
        Self { tell: Box::new(tell), watchdog }
    }

    /// How often it wants to hear that we live; we tell it twice as often.
    #[must_use]
    pub fn watchdog(&self) -> Option<Duration> {
        self.watchdog
    }

    /// The service is up.
    pub fn ready(&self) {
        self.send(&[NotifyState::Ready]);
    }

    /// Settings are read again.
    pub fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => self.send(&[NotifyState::Reloading, now]),
            Err(error) => tracing::debug!(%error, "there is no monotonic clock"),
        }
    }

    /// The service goes down.
    pub fn stopping(&self) {
        self.send(&[NotifyState::Stopping]);
    }

    /// We live.
    pub fn alive(&self) {
        self.send(&[NotifyState::Watchdog]);
    }

    /// One line for `systemctl status`.
    pub fn status(&self, text: &str) {
        self.send(&[NotifyState::Status(&text.replace('\n', " "))]);
    }

    fn send(&self, state: &[NotifyState<'_>]) {
        if let Err(error) = (self.tell)(state) {
            tracing::debug!(%error, "the service manager does not listen");
        }
    }
}
