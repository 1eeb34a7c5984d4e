//! This machine as the relay knows it: its state, its key, and the client that shows its certificate.
//!
//! Whatever the relay says is written down before it is acted on, so that a crash at any point loses nothing.

use crate::{
    ban,
    client::{Client, certificates},
    config::Settings,
    failure::{Exit, Failure},
    host::{Host, RelayClock},
    key::{self, NodeKey},
    modes, proof,
    state::{CA_BUNDLE, Enrolled, Final, KEY, Noted, State, StateDir, Stored},
    token::Sources,
    tpm::Found,
};
use shared::{api::node::Issued, hex, time::Timestamp};
use std::sync::Arc;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

mod fit;
pub use fit::check;

/// A skew over this many seconds is reported.
const MAX_SKEW_SECONDS: i64 = 60;

/// The machine, its state locked for this process.
pub struct Node {
    /// The settings in force.
    pub settings: Settings,
    /// Where the state is.
    pub dir: StateDir,
    /// What is remembered.
    pub stored: Stored,
    /// The node's key, if it has one yet.
    key: Option<Arc<dyn NodeKey>>,
    /// What was found in its TPM, once somebody has looked.
    pub found: Option<Arc<Found>>,
    /// The way to the relay.
    pub client: Client,
    /// The relay's time.
    pub clock: Arc<RelayClock>,
    /// The machine's clocks and dice.
    pub host: Arc<dyn Host>,
    /// Where a join token may be.
    pub tokens: Sources,
    warned_of_skew: bool,
}

impl Node {
    /// Opens the state. A machine that is new has no key yet ([`Node::make_key`]).
    ///
    /// # Errors
    /// The state, the key or the settings can't be used.
    pub fn open(settings: Settings, tokens: Sources, host: Arc<dyn Host>) -> Result<Self, Failure> {
        let dir = StateDir::open(&settings.state_dir)?;
        let stored = dir.load()?;
        if let Some(kind) = crate::state::volatile_filesystem(dir.path()) {
            let path = dir.path().display();
            tracing::warn!(%path, "the state is on {kind}: this machine will be a new one after its restart");
        }
        let key = open_key(&settings, &dir, &stored)?;
        modes::warn_if_open(modes::Kind::Folder, dir.path());
        modes::warn_if_open(modes::Kind::Key, &dir.path().join(KEY));
        dir.export(&stored)?;
        let clock = Arc::new(RelayClock::default());
        let client = make_client(&settings, &dir, &stored, &clock, &host)?;
        let mut node = Self {
            settings,
            dir,
            stored,
            key,
            found: None,
            client,
            clock,
            host,
            tokens,
            warned_of_skew: false,
        };
        node.present()?;
        Ok(node)
    }

    /// Goes on with other settings; the state and the key stay where they are.
    ///
    /// # Errors
    /// The relay can't be recognised by them, or the key can't be where it is; the old ones stay in force.
    pub fn apply(&mut self, settings: Settings, tokens: Sources) -> Result<(), Failure> {
        let client = make_client(&settings, &self.dir, &self.stored, &self.clock, &self.host)?;
        if (settings.tpm, &settings.tcti) != (self.settings.tpm, &self.settings.tcti) {
            // The same key, by another way to its TPM.
            self.key = open_key(&settings, &self.dir, &self.stored)?;
            self.found = None;
        }
        self.client = client;
        self.settings = Settings { state_dir: self.settings.state_dir.clone(), ..settings };
        self.tokens = tokens;
        self.present()
    }

    /// The relay's time, as far as it is known.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now(&*self.host)
    }

    /// Takes the relay's time out of an answer that has just come, and says so if this machine's clock is far off.
    pub fn hear(&mut self, relay: Timestamp) {
        self.clock.hear(relay, &*self.host);
        let skew = self.clock.skew_seconds(&*self.host).unwrap_or_default();
        let is_skewed = skew.abs() > MAX_SKEW_SECONDS;
        if is_skewed && !self.warned_of_skew {
            tracing::warn!(
                seconds = skew,
                "this machine's clock is ahead of the relay's (behind, if negative)"
            );
        }
        self.warned_of_skew = is_skewed;
    }

    /// The node, if it is one.
    #[must_use]
    pub fn enrolled(&self) -> Option<&Enrolled> {
        match &self.stored.state {
            State::Enrolled(node) => Some(node),
            _ => None,
        }
    }

    /// Whether it has a certificate that has not ended.
    #[must_use]
    pub fn has_valid_certificate(&self) -> bool {
        self.enrolled().is_some_and(|node| node.expires_at > self.now())
    }

    /// Remembers this state.
    ///
    /// # Errors
    /// It can't be written.
    pub fn save(&mut self, state: State) -> Result<(), Failure> {
        let stored = Stored { state, ..self.stored.clone() };
        self.dir.save(&stored)?;
        self.stored = stored;
        Ok(())
    }

    /// Remembers why an attempt failed, for `bcd status` after this process. What the state says itself is not noted.
    pub fn note(&mut self, failure: &Failure) {
        if failure.exit == Exit::Waiting || matches!(self.stored.state, State::Final(_)) {
            return;
        }
        let noted = Noted { message: failure.message.clone(), exit: failure.exit.code(), at: self.now() };
        self.save_note(Some(noted));
    }

    /// Forgets it: an attempt went well.
    pub fn note_success(&mut self) {
        if self.stored.last_failure.is_some() {
            self.save_note(None);
        }
    }

    fn save_note(&mut self, last_failure: Option<Noted>) {
        let stored = Stored { last_failure, ..self.stored.clone() };
        match self.dir.save(&stored) {
            Ok(()) => self.stored = stored,
            // Nothing depends on it.
            Err(error) => tracing::debug!(%error, "the last failure is not written down"),
        }
    }

    /// Takes a certificate over: checks that it is for our key, remembers it, shows it from now on.
    ///
    /// # Errors
    /// It is not ours, or can't be written.
    pub fn admit(&mut self, issued: Issued) -> Result<(), Failure> {
        self.hear(issued.server_time);
        let serial = self.serial_of(&issued.certificate)?;
        let mut certificate = issued.certificate.trim_end().to_owned();
        for part in [issued.chain.trim_end(), ""] {
            certificate.push('\n');
            certificate.push_str(part);
        }
        let node = Enrolled {
            node_id: issued.node_id,
            generation: issued.generation,
            trust: issued.trust,
            serial,
            certificate,
            ca_bundle: issued.ca_bundle,
            issued_at: issued.server_time,
            renew_after: issued.renew_after,
            expires_at: issued.expires_at,
            token_id: self.stored.state.token_id().cloned(),
            renewal_csr: None,
        };
        let trust_domain = self.client.trust_domain().or_else(|| self.stored.trust_domain.clone());
        self.client
            .remember(trust_domain.clone(), &node.ca_bundle)
            .map_err(|e| Failure::of_call(&e, true))?;
        let stored = Stored { state: State::Enrolled(node), trust_domain, ..Stored::default() };
        self.dir.save(&stored)?;
        self.stored = stored;
        self.present()
    }

    /// Writes down that it is over, if the failure says so; what the machine was stays as evidence.
    ///
    /// # Errors
    /// It can't be written.
    pub fn finish(&mut self, failure: &Failure) -> Result<(), Failure> {
        if !failure.is_final() || failure.exit == Exit::Usage {
            return Ok(());
        }
        let token_id = self.stored.state.token_id().cloned();
        let node = match &self.stored.state {
            State::Enrolled(node) => Some(Box::new(node.clone())),
            State::Final(over) => over.node.clone(),
            State::New | State::Joining(_) | State::Waiting(_) => None,
        };
        let since = self.now();
        let message = failure.message.clone();
        self.save(State::Final(Final { exit: failure.exit.code(), message, token_id, node, since }))
    }

    /// Goes on as this node, and shows its certificate.
    ///
    /// # Errors
    /// It can't be written.
    pub fn resume(&mut self, node: Enrolled) -> Result<(), Failure> {
        self.save(State::Enrolled(node))?;
        self.present()
    }

    /// The node's key.
    ///
    /// # Errors
    /// There is none yet.
    pub fn key(&self) -> Result<Arc<dyn NodeKey>, Failure> {
        let none = || Failure::new(Exit::Broken, "there is no node key yet; `bcd join` makes one");
        self.key.clone().ok_or_else(none)
    }

    /// Makes the node's key and keeps it, if there is none. That is for who has a token to join with: where bcd only starts, as in
    /// an image that is being made, nothing is to be left that its copies would share, since the key is the node.
    ///
    /// # Errors
    /// The TPM fails, or the key can't be kept.
    pub async fn make_key(&mut self) -> Result<(), Failure> {
        if self.key.is_none() {
            let (mode, tcti) = (self.settings.tpm, self.settings.tcti.clone());
            let fresh = proof::off_thread(move || key::make(mode, &tcti)).await??;
            self.key = Some(fresh.keep(&self.dir)?);
        }
        Ok(())
    }

    fn present(&mut self) -> Result<(), Failure> {
        let shown = match &self.stored.state {
            State::Enrolled(node) => Some(node),
            // To ask whether it is banned still.
            state => ban::kept(state),
        };
        let result = match (shown, &self.key) {
            (Some(node), Some(key)) => self.client.present(&node.certificate, Arc::clone(key)),
            _ => self.client.present_none(),
        };
        result.map_err(|error| Failure::of_call(&error, true))
    }

    fn serial_of(&self, certificate: &str) -> Result<String, Failure> {
        let odd =
            |what: &str| Failure::new(Exit::Transient, format!("the relay's answer is not usable: {what}"));
        let list = certificates(certificate.as_bytes()).map_err(|_| odd("its certificate is no PEM"))?;
        let leaf = list.first().ok_or_else(|| odd("it has no certificate"))?;
        let (_, leaf) = X509Certificate::from_der(leaf).map_err(|_| odd("its certificate cannot be read"))?;
        if leaf.tbs_certificate.subject_pki.raw != self.key()?.public_key().spki_der() {
            return Err(odd("its certificate is for another key"));
        }
        Ok(hex::encode(leaf.tbs_certificate.raw_serial()))
    }
}

/// The key of this folder, if there is one; it is the one that the state goes with.
fn open_key(
    settings: &Settings,
    dir: &StateDir,
    stored: &Stored,
) -> Result<Option<Arc<dyn NodeKey>>, Failure> {
    fit::check_kept(dir.path(), stored)?;
    let key = key::load(dir.path(), settings.tpm, &settings.tcti)?;
    if let Some(key) = &key {
        fit::check_same(dir.path(), stored, &**key)?;
    }
    Ok(key)
}

fn make_client(
    settings: &Settings,
    dir: &StateDir,
    stored: &Stored,
    clock: &Arc<RelayClock>,
    host: &Arc<dyn Host>,
) -> Result<Client, Failure> {
    let known = dir.read(CA_BUNDLE)?;
    Client::new(
        settings.relay.as_ref(),
        settings.trust.as_ref(),
        known.as_deref(),
        stored.trust_domain.clone(),
        Arc::clone(clock),
        Arc::clone(host),
    )
    .map_err(|error| Failure::of_call(&error, false))
}
