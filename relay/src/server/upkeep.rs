//! What the relay does by itself while it serves: write heartbeats, renew its certificate and bootstrap
//! credentials, rotate CAs, do tasks, forget what is over (`sweeps`), say that it lives (`presence`), show metrics.
//!
//! What can't be undone (a rotation, a CA dropped, a row forgotten) waits for a wall clock that has held ([`Watch`]): a clock
//! that is wrong for a minute must do no damage that outlasts it.

use crate::{
    audit::sealer,
    auth::bootstrap::{PairOfFiles, secret},
    ca::{self, Authority, CaRecord, Demand, Domain, ServerCertificate},
    clock::{Sight, Watch},
    config::Settings,
    context::Context,
    crls,
    fault::{Fault, chain},
    files,
    http::{
        App, problem,
        tls::{Tls, TlsError},
    },
    metal::reconcile,
    rotation::{self, Rotator},
    store::{StoreError, authorities, events},
    tasks::runner::Runner,
    webhooks,
};
use axum::{extract::State, response::Response};
use http::StatusCode;
use rustls::pki_types::{IpAddr, ServerName};
use shared::time::Timestamp;
use std::{
    future::Future,
    io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::{
    net::TcpListener,
    task::{JoinError, JoinSet},
};

mod counts;
mod presence;
mod sweeps;

pub(super) use counts::count;

/// How often heartbeats are written.
const HEARTBEATS: Duration = Duration::from_secs(1);
/// How often events without a number are looked for.
const NUMBERING: Duration = Duration::from_millis(300);
/// How often a store that was full is looked at for room.
const SPACE: Duration = Duration::from_secs(10);
/// How often certificates, CAs, bootstrap credentials and what is over are looked at.
const HOUSEKEEPING: Duration = Duration::from_secs(60);

/// Starts all of it; it ends when the answer is dropped.
pub(super) fn start(
    settings: &Settings,
    address: SocketAddr,
    app: &Arc<App>,
    tls: &Arc<Tls>,
    dates: Dates,
    pair: PairOfFiles,
) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    let relay = app.relay.clone();
    tasks.spawn(every(HEARTBEATS, "writing heartbeats", move || {
        let relay = relay.clone();
        async move { relay.heartbeats.write(&relay.store).await }
    }));
    let relay = app.relay.clone();
    tasks.spawn(every(SPACE, "looking for space", move || {
        let relay = relay.clone();
        async move {
            match relay.store.seek_space().await {
                // That was said when it became so.
                Err(StoreError::Full(_)) => Ok(()),
                other => Ok(other?),
            }
        }
    }));
    let relay = app.relay.clone();
    tasks.spawn(every(NUMBERING, "numbering events", move || {
        let relay = relay.clone();
        async move { number_events(&relay).await }
    }));
    let house = Arc::new(House::new(settings, address, app, tls, dates));
    let handlers =
        Arc::new(reconcile::handlers(webhooks::handlers(crls::handlers(sweeps::handlers(&house)))));
    let runner = Arc::new(Runner::new(app.relay.clone(), handlers));
    tasks.spawn(presence::show(app.relay.clone(), settings.data_dir.clone(), runner.clone()));
    tasks.spawn(async move { runner.run().await });
    tasks.spawn(every(HOUSEKEEPING, "housekeeping", move || {
        let house = house.clone();
        async move { house.keep().await }
    }));
    // Looked at often, because waits go by a clock that neither steps nor runs while the machine is suspended.
    let pair = Arc::new(pair);
    tasks.spawn(every(HOUSEKEEPING, "renewing the bootstrap credentials", move || {
        let pair = pair.clone();
        async move { pair.keep().await }
    }));
    if let Some(place) = settings.bootstrap_secret.clone() {
        let relay = app.relay.clone();
        tasks.spawn(async move { secret::keep(&relay, &place).await });
    }
    let (relay, directory) = (app.relay.clone(), settings.data_dir.clone());
    tasks.spawn(async move { sealer::keep(&relay, &directory).await });
    tasks.spawn(show_metrics(app.relay.clone(), settings.metrics_listen));
    tasks
}

/// Waits until one of them has died by a panic; those that end by themselves have nothing to do.
pub(super) async fn died(tasks: &mut JoinSet<()>) -> JoinError {
    loop {
        match tasks.join_next().await {
            Some(Ok(())) => {}
            Some(Err(error)) => return error,
            None => std::future::pending().await,
        }
    }
}

/// Does a thing again and again; what fails is logged and tried at the next turn.
async fn every<F, R>(period: Duration, what: &'static str, mut turn: F)
where
    F: FnMut() -> R,
    R: Future<Output = Result<(), Fault>>,
{
    loop {
        tokio::time::sleep(period).await;
        if let Err(fault) = turn().await {
            tracing::warn!(error = chain(&fault), "{what} failed; it is tried again");
        }
    }
}

/// The names of the server certificate: localhost, loopback, the address listened on, the host of the URL.
pub(super) fn server_names(settings: &Settings, address: SocketAddr) -> Vec<ServerName<'static>> {
    let loopback =
        [std::net::IpAddr::from([127, 0, 0, 1]), std::net::Ipv6Addr::LOCALHOST.into(), address.ip()];
    let mut names: Vec<ServerName<'static>> = loopback
        .into_iter()
        .filter(|ip| !ip.is_unspecified())
        .map(|ip| ServerName::from(IpAddr::from(ip)))
        .collect();
    let url = settings.url_at(address);
    let host = url.host().trim_start_matches('[').trim_end_matches(']').to_owned();
    names.extend([ServerName::try_from("localhost"), ServerName::try_from(host)].into_iter().flatten());
    names.dedup();
    names
}

/// What housekeeping remembers between its turns.
struct House {
    relay: Arc<Context>,
    tls: Arc<Tls>,
    names: Vec<ServerName<'static>>,
    directory: PathBuf,
    audit_days: u32,
    kept: sweeps::Kept,
    watch: Mutex<Watch>,
    shown: Mutex<Shown>,
}

/// What the relay shows of itself since the start or the last exchange.
struct Shown {
    /// The CAs by whose state it was made.
    cas: Vec<String>,
    /// The server certificate's dates.
    certificate: Dates,
}

/// The dates of a server certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dates {
    not_before: Timestamp,
    not_after: Timestamp,
}

impl Dates {
    pub(super) fn of(certificate: &ServerCertificate) -> Self {
        Self { not_before: certificate.not_before, not_after: certificate.not_after }
    }

    /// Whether the certificate still does. One that does not hold is exchanged at once, whichever way the clock was
    /// put; one that is only due waits for a clock that is trusted, lest a wrong one exchanges it for one of the future.
    fn serves(self, now: Timestamp, trusted: bool) -> bool {
        let life = self.not_after.since(self.not_before).as_secs();
        let due = self.not_before.plus_seconds(i64::try_from(life / 3 * 2).unwrap_or(0));
        self.not_before <= now && now <= self.not_after && !(trusted && due <= now)
    }
}

impl House {
    /// What a start leaves behind: what `tls` shows has these dates.
    fn new(settings: &Settings, address: SocketAddr, app: &App, tls: &Arc<Tls>, dates: Dates) -> Self {
        let house = Self {
            relay: app.relay.clone(),
            tls: tls.clone(),
            names: server_names(settings, address),
            directory: settings.data_dir.clone(),
            audit_days: settings.audit_days,
            kept: sweeps::Kept {
                completed_days: settings.task_completed_days,
                archived_days: settings.task_archived_days,
            },
            watch: Mutex::new(Watch::default()),
            shown: Mutex::new(Shown { cas: faces(&app.relay.ca.load()), certificate: dates }),
        };
        house.look();
        house
    }

    async fn keep(&self) -> Result<(), Fault> {
        let relay = &self.relay;
        let trusted = self.look().is_trusted();
        if trusted {
            rotate(relay, Demand::Due).await?;
        } else {
            adopt(relay).await?;
        }
        self.show(&relay.ca.load(), trusted)?;
        relay.limits.tidy();
        count(relay).await
    }

    /// Looks at the clocks, and says once what follows from a step.
    fn look(&self) -> Sight {
        let clock = &self.relay.clock;
        let sight =
            self.watch.lock().unwrap_or_else(PoisonError::into_inner).look(clock.now(), clock.since_boot());
        match sight {
            Sight::Stepped(seconds) => tracing::warn!(
                seconds,
                "the wall clock was put ahead (back, if negative) beside the time since boot: until it has held for an \
                 hour, no CA is rotated or dropped, and nothing is forgotten; if it is wrong now, set it, and keep it by NTP"
            ),
            Sight::TrustedAgain => {
                tracing::info!(
                    "the wall clock has held, or is back: CAs are rotated again, and what is over is forgotten"
                );
            }
            Sight::Trusted | Sight::Holding => {}
        }
        sight
    }

    /// Presents a fresh server certificate where the old one has lived two thirds of its life, or does not hold now. Where
    /// a CA is another, also trusts what is there now, and writes the bundles. What failed is tried again at the next turn.
    fn show(&self, ca: &Authority, trusted: bool) -> Result<(), Fault> {
        let now = self.relay.clock.now();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let cas = faces(ca);
        if cas == shown.cas && shown.certificate.serves(now, trusted) {
            return Ok(());
        }
        let certificate = ca
            .issue_relay(&self.names, now)
            .map_err(Fault::internal("issuing the relay's own certificate"))?;
        let dates = Dates::of(&certificate);
        self.tls
            .replace_trust(ca.trust())
            .map_err(Fault::internal::<TlsError>("exchanging the trusted CAs"))?;
        self.tls
            .replace_certificate(certificate)
            .map_err(Fault::internal::<TlsError>("exchanging the certificate"))?;
        write_bundles(ca, &self.directory)
            .map_err(|(_, error)| Fault::internal::<io::Error>("writing the trust bundles")(error))?;
        *shown = Shown { cas, certificate: dates };
        Ok(())
    }
}

/// What is shown of the CAs: which there are, which of them sign, which roots are trusted.
fn faces(ca: &Authority) -> Vec<String> {
    let issuers = ca.issuers().map(|record| format!("{} {:?}", record.id, record.state));
    issuers.chain([Domain::Platform, Domain::Tenant].map(|domain| ca.bundle(domain))).collect()
}

/// Writes the files with the roots that verify this relay, and tenants' nodes. The error says which file.
pub(super) fn write_bundles(ca: &Authority, directory: &Path) -> Result<(), (PathBuf, io::Error)> {
    for (file, domain) in [("trust-bundle.pem", Domain::Platform), ("tenant-bundle.pem", Domain::Tenant)] {
        let path = directory.join(file);
        files::write(&path, ca.bundle(domain).as_bytes(), files::PUBLIC).map_err(|error| (path, error))?;
    }
    Ok(())
}

/// Rotates the CAs in the store as demanded, and takes over what is there then: another relay may have rotated.
pub(super) async fn rotate(relay: &Context, demand: Demand) -> Result<Vec<ca::Change>, Fault> {
    let domain = relay.ca.load().trust_domain().clone();
    let rotator = Rotator {
        trust_domain: &domain,
        provider_tenant: &relay.provider_tenant,
        keys: &relay.keys,
        random: &relay.random,
        actor: "relay",
    };
    let rotation = rotation::rotate(&relay.store, &rotator, demand, relay.clock.now()).await?;
    take_over(relay, rotation.records)?;
    Ok(rotation.changes)
}

/// Takes over the CAs that are in the store, and changes none.
async fn adopt(relay: &Context) -> Result<(), Fault> {
    let records: Result<_, StoreError> =
        relay.store.read("CAs", (), |tx, ()| Box::pin(authorities::all(tx))).await;
    take_over(relay, records?)
}

fn take_over(relay: &Context, records: Vec<CaRecord>) -> Result<(), Fault> {
    let domain = relay.ca.load().trust_domain().clone();
    let authority = Authority::open(&domain, records, &relay.keys, &relay.random)
        .map_err(Fault::internal("opening the CAs"))?;
    relay.ca.store(Arc::new(authority));
    Ok(())
}

/// Gives numbers to the events that have none: only then do streams tell them.
async fn number_events(relay: &Context) -> Result<(), Fault> {
    let looking: Result<bool, StoreError> =
        relay.store.glance("numbering events", (), |tx, ()| Box::pin(events::any_without_number(tx))).await;
    if !looking? {
        return Ok(());
    }
    relay
        .store
        .transact("numbering events", relay, |tx, relay| Box::pin(webhooks::number(tx, &relay.random)))
        .await
        .map(drop)
}

/// Shows the metrics on an address of their own: a loopback port for a scraper.
async fn show_metrics(relay: Arc<Context>, address: SocketAddr) {
    let listener = match TcpListener::bind(address).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(%address, error = chain(&error), "metrics are not shown: the address is taken");
            return;
        }
    };
    let routes = axum::Router::new().route("/metrics", axum::routing::get(metrics)).with_state(relay);
    if let Err(error) = axum::serve(listener, routes).await {
        tracing::warn!(error = chain(&error), "metrics are not shown any more");
    }
}

async fn metrics(State(relay): State<Arc<Context>>) -> Response {
    for (reason, count) in relay.store.retries().by_reason() {
        relay.metrics.set_retries(reason, count);
    }
    let text = relay.metrics.render().into_bytes();
    problem::answer(StatusCode::OK, "application/openmetrics-text; version=1.0.0; charset=utf-8", text)
}

#[cfg(test)]
mod tests;
