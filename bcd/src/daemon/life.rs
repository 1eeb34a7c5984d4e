//! What the daemon does next, when, and what it makes of the outcome.

use crate::{
    backoff::{Backoff, MAX_ASKED},
    ban,
    config::{Settings, WhenFinal},
    failure::{Exit, Failure},
    heartbeat::{self, Identities},
    host::fraction,
    identity::gpus,
    join,
    node::Node,
    renew,
    secrets::{self, Secrets},
    state::State,
    status::Status,
    token::Sources,
};
use shared::{hardware::Identity, terminal::shown, time::Timestamp};
use std::time::Duration;

mod action;
pub use action::Action;

/// How often a daemon that stays when it is over looks for another token.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Not before when (since boot), and how it has gone so far.
#[derive(Clone, Copy, Debug, Default)]
struct Due {
    at: Duration,
    backoff: Backoff,
}

/// The node, what it does next, and what came of the last attempts.
pub struct Life {
    /// The node.
    pub node: Node,
    join: Due,
    renew: Due,
    heartbeat: Due,
    secrets_due: Due,
    wants_secrets: bool,
    wants_renewal: bool,
    /// The relay takes the certificate no more: join again, with the same key.
    rejoins: bool,
    /// It was banned, and the relay was not asked yet whether it still is.
    asks: bool,
    identities: Identities,
    secrets: Option<Secrets>,
    last_attempt: Option<Timestamp>,
    last_success: Option<Timestamp>,
    last_failure: Option<Failure>,
    is_confirmed: bool,
}

impl Life {
    /// A node whose life begins, or goes on after a restart.
    #[must_use]
    pub fn new(node: Node) -> Self {
        let mut life = Self {
            node,
            join: Due::default(),
            renew: Due::default(),
            heartbeat: Due::default(),
            secrets_due: Due::default(),
            wants_secrets: true,
            wants_renewal: false,
            rejoins: false,
            asks: false,
            identities: Identities::default(),
            secrets: None,
            last_attempt: None,
            last_success: None,
            last_failure: None,
            is_confirmed: false,
        };
        if let State::Waiting(waiting) = &life.node.stored.state {
            // A restart asks for nothing that is not due.
            life.join.at = life.boot_at(waiting.retry_at).min(life.node.host.boot() + MAX_ASKED);
        }
        life.asks = ban::is_banned(&life.node.stored.state);
        if !life.asks {
            life.revive();
        }
        life
    }

    /// What is next and when (since boot); `None` if it is over.
    #[must_use]
    pub fn next(&self) -> Option<(Duration, Action)> {
        let node = match &self.node.stored.state {
            State::Final(_) if self.asks => {
                return Some((self.join.at.max(self.node.host.boot()), Action::Ask));
            }
            State::Final(_) => {
                let waits = self.node.settings.when_final == WhenFinal::Wait;
                return waits.then(|| (self.join.at.max(self.node.host.boot()), Action::Look));
            }
            State::Enrolled(node) if !self.rejoins => node,
            _ => return Some((self.join.at.max(self.node.host.boot()), Action::Join)),
        };
        let renewal = if self.wants_renewal {
            node.issued_at.plus_seconds(renew::MIN_INTERVAL_SECONDS)
        } else {
            renew::due(node)
        };
        let renewal = (self.boot_at(renewal).max(self.renew.at), Action::Renew);
        if !self.node.has_valid_certificate() {
            return Some(renewal);
        }
        let heartbeat = (self.heartbeat.at, Action::Heartbeat);
        let secrets = (self.wants_secrets && secrets::may_have(&self.node))
            .then_some((self.secrets_due.at, Action::Secrets));
        // Of what is overdue, the renewal goes first: the clock is read after it, so that all of that is due at once.
        let now = self.node.host.boot();
        let held = |(at, action): (Duration, Action)| (at.max(now), action);
        [renewal, heartbeat].into_iter().chain(secrets).map(held).min_by_key(|(at, _)| *at)
    }

    /// Does it, and notes what came of it.
    pub async fn act(&mut self, action: Action) {
        if action == Action::Look {
            return self.look();
        }
        self.last_attempt = Some(self.node.now());
        let result = match action {
            Action::Ask => self.ask().await,
            Action::Join => self.join().await,
            Action::Renew => self.renew().await,
            Action::Heartbeat => self.heartbeat().await,
            Action::Secrets => self.fetch_secrets().await,
            Action::Look => Ok(()),
        };
        let now = self.node.host.boot();
        let dice = fraction(&*self.node.host);
        let due = self.due(action);
        match result {
            Ok(()) => {
                due.backoff.succeed();
                self.last_success = Some(self.node.now());
                self.last_failure = None;
                self.node.note_success();
            }
            Err(failure) => {
                // A deferral is an answer: it says itself when to ask again.
                let wait = if failure.exit == Exit::Waiting {
                    due.backoff.succeed();
                    let asked = failure.retry_after.unwrap_or_default().min(MAX_ASKED);
                    asked.mul_f64(1.0 + dice / 10.0).max(Duration::from_secs(1))
                } else {
                    due.backoff.fail(dice, failure.retry_after)
                };
                due.at = now + wait;
                self.fail(action, failure, now);
                self.log_failure(action, wait);
            }
        }
    }

    /// Whether the node can be relied on: its certificate is good, and the relay has just said so.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.is_confirmed && !self.heartbeat.backoff.is_failing() && self.node.has_valid_certificate()
    }

    /// What it says of itself.
    #[must_use]
    pub fn status(&self, next: Option<(Duration, Action)>) -> Status {
        let on_disk = Status::of(&self.node.stored);
        let failure = self.last_failure.as_ref().map(|failure| failure.message.clone());
        let says_itself = matches!(self.node.stored.state, State::Waiting(_) | State::Final(_));
        Status {
            reason: if says_itself { on_disk.reason.or(failure) } else { failure.or(on_disk.reason) },
            next: match next {
                Some((_, Action::Look)) => format!("{}; bcd waits for that", on_disk.next),
                Some((at, action)) => format!("{} at {}", action.describe(), self.relay_at(at)),
                None => on_disk.next,
            },
            last_attempt: self.last_attempt,
            last_success: self.last_success,
            skew_seconds: self.node.clock.skew_seconds(&*self.node.host),
            ..on_disk
        }
    }

    /// Whether it is over, as far as is known; it may wait for what ends that.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.is_final() && !self.asks
    }

    /// Whether the state on disk says so; of a ban the relay may be asked still.
    #[must_use]
    pub fn is_final(&self) -> bool {
        matches!(self.node.stored.state, State::Final(_))
    }

    /// Why it is over.
    #[must_use]
    pub fn verdict(&self) -> Failure {
        match &self.node.stored.state {
            State::Final(over) => Failure::new(Exit::from_final(over.exit), &over.message),
            _ => Failure::new(Exit::Transient, "the daemon has nothing to do"),
        }
    }

    /// Goes on with settings that were read again, and tries at once what is waited for.
    pub fn reload(&mut self, settings: Result<(Settings, Sources), Failure>) {
        match settings.and_then(|(settings, tokens)| self.node.apply(settings, tokens)) {
            Ok(()) => tracing::info!("settings read again"),
            Err(failure) => tracing::error!("the old settings stay in force: {failure}"),
        }
        self.all_now();
    }

    fn all_now(&mut self) {
        for due in [&mut self.join, &mut self.renew, &mut self.heartbeat, &mut self.secrets_due] {
            due.at = Duration::ZERO;
        }
    }

    /// What was over begins anew with another token than the one that it began with.
    fn revive(&mut self) {
        if let State::Final(over) = &self.node.stored.state
            && let Ok(token) = self.node.tokens.read()
            && over.token_id.as_ref() != Some(&token.id)
        {
            tracing::info!(token = %token.id, "another join token: this machine joins anew");
            if let Err(failure) = self.node.save(State::New) {
                tracing::error!("{failure}");
            }
        }
    }

    /// Another token begins anew; of a ban the relay is asked first, as at a start.
    fn look(&mut self) {
        let now = self.node.host.boot();
        self.asks = ban::is_banned(&self.node.stored.state);
        if !self.asks {
            self.revive();
        }
        let is_over = self.is_over();
        self.join.at = if is_over { now + LOOK_EVERY } else { now };
    }

    async fn ask(&mut self) -> Result<(), Failure> {
        ban::ask(&mut self.node).await?;
        self.asks = false;
        self.all_now();
        Ok(())
    }

    async fn join(&mut self) -> Result<(), Failure> {
        self.see_gpus().await;
        let identity: Identity = self.identities.gather(&self.node);
        let told = join::attempt(&mut self.node, identity).await?;
        self.identities.told(told);
        self.rejoins = false;
        self.all_now();
        self.is_confirmed = true;
        self.wants_secrets = true;
        self.log_certificate("joined");
        Ok(())
    }

    async fn renew(&mut self) -> Result<(), Failure> {
        renew::attempt(&mut self.node).await?;
        self.wants_renewal = false;
        self.wants_secrets = true;
        // The old certificate works until the new one was used: use it.
        self.heartbeat.at = Duration::ZERO;
        self.log_certificate("renewed");
        Ok(())
    }

    async fn heartbeat(&mut self) -> Result<(), Failure> {
        if self.identities.want_gpus() {
            self.see_gpus().await;
        }
        let answer = heartbeat::send(&mut self.node, &mut self.identities).await?;
        if !self.is_confirmed {
            self.log_certificate("the relay takes this node's heartbeats; those that go well are not logged");
        }
        let jitter = 0.9 + fraction(&*self.node.host) / 5.0;
        self.heartbeat.at = self.node.host.boot() + heartbeat::INTERVAL.mul_f64(jitter);
        self.is_confirmed = true;
        self.wants_renewal |= answer.renew;
        if let Some(message) = answer.message {
            tracing::info!("the relay says: {}", shown(&message));
        }
        Ok(())
    }

    async fn fetch_secrets(&mut self) -> Result<(), Failure> {
        match secrets::fetch(&mut self.node).await {
            Ok(secrets) => {
                tracing::info!(count = secrets.len(), "platform secrets fetched");
                self.secrets = Some(secrets);
            }
            // Trust has fallen since the certificate was issued.
            Err(failure) if failure.is_denied() => {
                tracing::warn!("{failure}");
                self.secrets = None;
            }
            Err(failure) => return Err(failure),
        }
        self.wants_secrets = false;
        Ok(())
    }

    /// The vendor's library may stall, and must not stall us.
    async fn see_gpus(&mut self) {
        match tokio::task::spawn_blocking(gpus::uuids).await {
            Ok(gpu_uuids) => self.identities.saw_gpus(gpu_uuids),
            Err(error) => tracing::warn!(%error, "the GPUs could not be asked"),
        }
    }

    fn fail(&mut self, action: Action, failure: Failure, now: Duration) {
        if matches!(self.node.stored.state, State::Final(_)) {
            self.secrets = None;
            self.is_confirmed = false;
            if self.asks && failure.is_final() {
                self.asks = false;
                self.revive();
            }
        } else if failure.is_unknown_certificate() {
            self.is_confirmed = false;
            match action {
                Action::Renew => {
                    self.rejoins = true;
                    self.join.at = now;
                }
                _ => self.wants_renewal = true,
            }
        }
        self.last_failure = Some(failure);
    }

    fn due(&mut self, action: Action) -> &mut Due {
        match action {
            Action::Ask | Action::Join | Action::Look => &mut self.join,
            Action::Renew => &mut self.renew,
            Action::Heartbeat => &mut self.heartbeat,
            Action::Secrets => &mut self.secrets_due,
        }
    }

    /// When this point of the relay's time is, since boot.
    fn boot_at(&self, relay: Timestamp) -> Duration {
        self.node.host.boot() + relay.since(self.node.now())
    }

    /// What the relay's time will be then.
    fn relay_at(&self, boot: Duration) -> Timestamp {
        let ahead = boot.saturating_sub(self.node.host.boot());
        self.node.now().plus_seconds(i64::try_from(ahead.as_secs()).unwrap_or(i64::MAX))
    }

    /// What is over is reported once, by who ends the daemon. The first failure of a kind is noted on disk too.
    fn log_failure(&mut self, action: Action, wait: Duration) {
        let Some(failure) = self.last_failure.clone() else { return };
        if !self.is_over() {
            tracing::warn!(?action, again_in_seconds = wait.as_secs(), "{failure}");
        }
        let noted = self.node.stored.last_failure.as_ref().map(|noted| noted.exit);
        if noted != Some(failure.exit.code()) {
            self.node.note(&failure);
        }
    }

    fn log_certificate(&self, what: &str) {
        if let Some(node) = self.node.enrolled() {
            tracing::info!(node = %node.node_id, trust = node.trust.as_str(), until = %node.expires_at, "{what}");
        }
    }
}

#[cfg(test)]
mod tests;
