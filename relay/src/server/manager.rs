//! Words to the service manager (sd_notify(3)), where there is one.

use sd_notify::NotifyState;
use tokio::time::interval;

/// The relay serves.
pub(super) fn ready() {
    tell(NotifyState::Ready);
}

/// The relay goes down.
pub(super) fn stopping() {
    tell(NotifyState::Stopping);
}

/// Tells it that the runtime makes progress, twice as often as it wants to hear it; never ends.
pub(super) async fn watch() {
    let Some(longest) = sd_notify::watchdog_enabled() else { return std::future::pending().await };
    let mut ticks = interval(longest / 2);
    loop {
        ticks.tick().await;
        tell(NotifyState::Watchdog);
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::debug!(%error, "the service manager does not listen");
    }
}
