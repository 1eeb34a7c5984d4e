//! A BMC that speaks Redfish as strictly as it can be read, in the ways of several makers, and misbehaves as its test says. Nothing in
//! it depends on time: a machine changes after so many looks at it. It notes what it was asked, and how many asked at once.

mod acts;
mod answers;
mod host;
mod ills;
mod keys;
mod machine;
mod persona;
mod serve;
mod service;

pub use ills::{Asked, Ills, Stall};
pub use persona::{Auth, Disable, Etags, Insert, Media, Mode, PERSONAS, Persona};
pub use service::{PASSWORD as BMC_PASSWORD, USER as BMC_USER};

use machine::Machine;
use serve::{Identity, serve};
use std::{
    error::Error,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};
use tokio::net::TcpListener;

/// The BMC; it ends with the process.
pub struct FakeBmc {
    address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    machine: Mutex<Machine>,
    at_once: AtomicUsize,
    most_at_once: AtomicUsize,
    connections: AtomicUsize,
    identity: Mutex<Identity>,
}

impl FakeBmc {
    /// One of this maker's kind, on a free port of 127.0.0.1; its machine is off.
    ///
    /// # Panics
    /// It can't be set up.
    #[must_use]
    pub fn start(persona: &'static Persona) -> Self {
        Self::start_at(persona, SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// As [`FakeBmc::start`], at this address.
    ///
    /// # Panics
    /// It can't be set up.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its BMC fails")]
    pub fn start_at(persona: &'static Persona, address: SocketAddr) -> Self {
        start(persona, address).unwrap_or_else(|error| panic!("a BMC: {error}"))
    }

    /// `127.0.0.1:PORT`.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// SHA-256 of its certificate's SubjectPublicKeyInfo.
    #[must_use]
    pub fn pin(&self) -> String {
        self.identity().pin.clone()
    }

    /// Its certificate, which is its own CA and names 127.0.0.1 and localhost, in PEM.
    #[must_use]
    pub fn certificate(&self) -> String {
        self.identity().pem.clone()
    }

    /// Misbehaves from now on like this.
    pub fn suffer(&self, ills: Ills) {
        self.machine().ills = ills;
    }

    /// Does not answer a request that comes.
    pub fn stall(&self, stall: Stall) {
        let mut machine = self.machine();
        (machine.stall, machine.stalled) = (Some(stall), false);
    }

    /// Whether that request has come.
    #[must_use]
    pub fn has_stalled(&self) -> bool {
        self.machine().stalled
    }

    /// Whether its machine is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.machine().host.is_on
    }

    /// Switches its machine, as by its button.
    pub fn switch(&self, on: bool) {
        self.machine().host.is_on = on;
    }

    /// What its machine started from, each time: the URL of its media, or `disk`.
    #[must_use]
    pub fn started(&self) -> Vec<String> {
        self.machine().host.started.clone()
    }

    /// The image that is inserted.
    #[must_use]
    pub fn inserted(&self) -> Option<String> {
        self.machine().host.inserted.clone().map(|(_, image)| image)
    }

    /// What its machine starts from next: how long it holds, and the target.
    #[must_use]
    pub fn boot(&self) -> (String, String) {
        let machine = self.machine();
        let boot = machine.host.pending.as_ref().unwrap_or(&machine.host.boot);
        (boot.enabled.clone(), boot.target.clone())
    }

    /// What it was asked for, in order: methods that change something of its machine.
    #[must_use]
    pub fn asked(&self) -> Vec<Asked> {
        self.machine().asked.clone()
    }

    /// How many requests came with the right credentials, and with wrong ones.
    #[must_use]
    pub fn logins(&self) -> (usize, usize) {
        self.machine().keys.logins
    }

    /// The password of its user.
    #[must_use]
    pub fn password(&self) -> String {
        let machine = self.machine();
        let user = machine.keys.accounts.iter().find(|account| account.user == BMC_USER);
        user.map(|account| account.password.clone()).unwrap_or_default()
    }

    /// Goes by the password that it took and forgot.
    pub fn remember_password(&self) {
        self.machine().keys.take_offered();
    }

    /// How many sessions were begun, and how many of them are open.
    #[must_use]
    pub fn sessions(&self) -> (usize, usize) {
        let machine = self.machine();
        (machine.keys.begun, machine.keys.open_sessions())
    }

    /// Ends all sessions, as their time does.
    pub fn end_sessions(&self) {
        self.machine().keys.forget_sessions();
    }

    /// How many asked at once, at most.
    #[must_use]
    pub fn most_at_once(&self) -> usize {
        self.shared.most_at_once.load(Ordering::SeqCst)
    }

    /// How many connections came.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Gets itself another key and certificate.
    ///
    /// # Panics
    /// None can be made.
    #[expect(clippy::panic, reason = "a test without its certificate fails")]
    pub fn renew_certificate(&self) {
        let made = Identity::new().unwrap_or_else(|error| panic!("a certificate: {error}"));
        *self.identity() = made;
    }

    fn machine(&self) -> MutexGuard<'_, Machine> {
        self.shared.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn identity(&self) -> MutexGuard<'_, Identity> {
        self.shared.identity.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn start(persona: &'static Persona, at: SocketAddr) -> Result<FakeBmc, Box<dyn Error>> {
    let (told, address) = mpsc::channel::<SocketAddr>();
    let shared = Arc::new(Shared {
        machine: Mutex::new(Machine::new(persona)),
        at_once: AtomicUsize::new(0),
        most_at_once: AtomicUsize::new(0),
        connections: AtomicUsize::new(0),
        identity: Mutex::new(Identity::new()?),
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let served = shared.clone();
    thread::spawn(move || {
        runtime.block_on(async move {
            let Ok(listener) = TcpListener::bind(at).await else { return };
            let Ok(address) = listener.local_addr() else { return };
            let _ = told.send(address);
            serve(listener, served).await;
        });
    });
    Ok(FakeBmc { address: address.recv()?, shared })
}
