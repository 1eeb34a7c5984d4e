//! The daemon: joins if need be, then renews and sends heartbeats, until it is told to stop or it is over.
//!
//! [`Life`] decides what is next and when (pure, by its schedule), does it, and notes what came of it; [`run`] is the loop
//! around it, with signals, the watchdog and the status. Between two points in time nothing wakes up.

use crate::{
    config::Settings,
    failure::{Exit, Failure},
    files,
    host::Host,
    node::Node,
    notify::Notifier,
    status::{Board, Served, Status, serve},
    timer::wait_until,
    token::Sources,
};
use shared::access::Use;
use std::{io, sync::Arc, time::Duration};
use tokio::signal::unix::{Signal, SignalKind, signal};

mod life;
pub use life::{Action, Life};

/// How long an attempt may take at the very most, GPUs and a slow TPM included; after that the daemon counts as stuck.
const LONGEST_ATTEMPT: Duration = Duration::from_secs(300);

/// Reads the settings and the places of the token again.
pub type Reload<'a> = dyn Fn() -> Result<(Settings, Sources), Failure> + 'a;

/// Runs until SIGTERM, or until the state is final and the settings don't say to wait then.
pub async fn run(mut node: Node, notifier: Notifier, reload: &Reload<'_>) -> Exit {
    let host = Arc::clone(&node.host);
    let board =
        Arc::new(Board::new(Arc::clone(&host), Status::of(&node.stored), host.boot() + LONGEST_ATTEMPT));
    let (_served, mut signals) = match (open_status(&node, &board).await, Signals::new()) {
        (Ok(served), Ok(signals)) => (served, signals),
        (Err(failure), _) => {
            node.note(&failure);
            return report(&failure);
        }
        (_, Err(error)) => return report(&Failure::new(Exit::Transient, format!("no signals: {error}"))),
    };
    let notifier = Arc::new(notifier);
    watch(&notifier, &board, &host);
    let relay = node.settings.relay.as_ref().map(crate::config::Endpoint::authority).unwrap_or_default();
    let (version, state) = (env!("CARGO_PKG_VERSION"), node.stored.state.name());
    tracing::info!(version, relay, state, "bcd runs");
    let mut life = Life::new(node);
    notifier.ready();
    let mut told = false;
    loop {
        let next = life.next();
        told = life.is_final() && (told || tell_end(&life));
        let at = next.map_or(Duration::ZERO, |(at, _)| at);
        let status = life.status(next);
        notifier.status(&format!("{}: {}", status.state, status.reason.as_deref().unwrap_or(&status.next)));
        board.tell(status, life.is_ready(), at.max(host.boot()) + LONGEST_ATTEMPT);
        let Some((_, action)) = next else {
            notifier.stopping();
            return life.verdict().exit;
        };
        match step(&mut life, &mut signals, at, action).await {
            Step::Went => {}
            Step::Stop => {
                notifier.stopping();
                tracing::info!("stopping");
                return Exit::Done;
            }
            Step::Reload => {
                notifier.reloading();
                life.reload(reload());
                notifier.ready();
            }
        }
    }
}

/// Says that it is over and what to do, if that is so.
fn tell_end(life: &Life) -> bool {
    if life.is_over() {
        report(&life.verdict());
        tracing::error!("next: {}", life.status(life.next()).next);
    }
    life.is_over()
}

enum Step {
    Went,
    Stop,
    Reload,
}

/// Waits for the next point in time and acts; a signal cuts in at any moment. Whatever an attempt has come to is on disk
/// by then, so that dropping it loses nothing.
async fn step(life: &mut Life, signals: &mut Signals, at: Duration, action: Action) -> Step {
    let host = Arc::clone(&life.node.host);
    let attempt = async {
        if let Err(error) = wait_until(at, &*host).await {
            tracing::warn!(%error, "no timer by CLOCK_BOOTTIME; a suspension will not be noticed");
            tokio::time::sleep(at.saturating_sub(host.boot())).await;
        }
        life.act(action).await;
    };
    tokio::select! {
        biased;
        step = signals.next() => step,
        () = attempt => Step::Went,
    }
}

struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Step {
        tokio::select! {
            _ = self.terminate.recv() => Step::Stop,
            _ = self.interrupt.recv() => Step::Stop,
            _ = self.hangup.recv() => Step::Reload,
        }
    }
}

/// A socket that was asked for must be served; the one in the state directory is worth a warning.
async fn open_status(node: &Node, board: &Arc<Board>) -> Result<Served, Failure> {
    let settings = &node.settings;
    let served = serve(Arc::clone(board), settings.socket.as_deref(), settings.status_listen).await;
    served.map_err(|error| {
        let path = settings.socket.as_deref().map_or("-".into(), |path| path.display().to_string());
        let port = settings.status_listen.map_or("-".into(), |address| address.to_string());
        let remedy = settings.socket.as_deref().map(|path| files::remedy(path, Use::Keep, &error));
        Failure::new(
            // An address that is taken may be free again.
            if files::is_lasting(&error) { Exit::Usage } else { Exit::Transient },
            format!(
                "the status cannot be served (socket {path}, port {port}): {error}{}",
                remedy.unwrap_or_default()
            ),
        )
    })
}

/// Tells the service manager's watchdog that we live, as long as we do.
fn watch(notifier: &Arc<Notifier>, board: &Arc<Board>, host: &Arc<dyn Host>) {
    let Some(interval) = notifier.watchdog() else { return };
    let (notifier, board, host) = (Arc::clone(notifier), Arc::clone(board), Arc::clone(host));
    tokio::spawn(async move {
        loop {
            if board.is_live() {
                notifier.alive();
            }
            if wait_until(host.boot() + interval / 2, &*host).await.is_err() {
                tokio::time::sleep(interval / 2).await;
            }
        }
    });
}

fn report(failure: &Failure) -> Exit {
    tracing::error!("{failure}");
    failure.exit
}

#[cfg(test)]
mod tests;
