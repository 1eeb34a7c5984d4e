//! The one place where everything is wired: open the store, find or make the installation, serve, drain.

use crate::{
    access, api,
    audit::denials::Denials,
    auth::{bootstrap::PairOfFiles, keys::SigningKeys, oidc::Provider},
    boot::{Boot, Image},
    ca::Authority,
    claim::claim,
    clock::Clock,
    config::Settings,
    context::Context,
    fault::{Fault, chain},
    files,
    first_start::{self, Beginning, Installation, PROVIDER},
    http::{App, crls::Crls, limits::Limits, proxy::Trusted, record::Refusals, serve, tls::Tls},
    join::{heartbeats::Heartbeats, lookups::Lookups},
    metrics::Metrics,
    outside::Outside,
    random::Random,
    seal::KeyRing,
    store::Store,
};
use arc_swap::ArcSwap;
use nix::{
    sys::resource::{Resource, getrlimit, setrlimit},
    unistd::geteuid,
};
use shared::{bounded::TenantId, time::Timestamp};
use std::{
    fs::File,
    future::Future,
    io::{self, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::net::TcpListener;

mod error;
mod manager;
mod upkeep;

pub use error::ServeError;

/// Serves until SIGTERM or SIGINT, then drains. Removes nothing of the data directory but `listen`.
///
/// # Errors
/// Something of the start fails; the store is unchanged or whole.
pub async fn serve(settings: Settings) -> Result<(), ServeError> {
    let stop = stop_signal().map_err(ServeError::start("watching for signals"))?;
    raise_file_limit();
    forbid_cores();
    let relay = Relay::start(settings, Clock::system(), Random::system()).await?;
    relay.run(stop).await
}

/// A relay that listens and does not answer yet.
pub struct Relay {
    settings: Settings,
    trust_domain: String,
    app: Arc<App>,
    tls: Arc<Tls>,
    listener: TcpListener,
    address: SocketAddr,
    boot: Option<Boot>,
    /// Of the server certificate that it began with.
    dates: upkeep::Dates,
    _lock: File,
}

impl Relay {
    /// Does all of a start: directory, store, installation, listener, and the files that say where it is.
    ///
    /// # Errors
    /// As [`serve`].
    pub async fn start(settings: Settings, clock: Clock, random: Random) -> Result<Self, ServeError> {
        let lock = claimed(&settings)?;
        let store = Store::open(settings.database_url.expose())
            .await
            .map_err(ServeError::start("opening the store"))?;
        store.migrate().await.map_err(ServeError::start("migrating the store"))?;
        let keys = first_start::master_key(&settings, &store, &random)
            .await
            .map_err(ServeError::start("opening the store's secrets"))?;
        let listener = TcpListener::bind(settings.listen)
            .await
            .map_err(|source| ServeError::Listen { address: settings.listen, source })?;
        let address = listener
            .local_addr()
            .map_err(|source| ServeError::Listen { address: settings.listen, source })?;
        let told = Told { settings: &settings, address };
        let installation = installation(&store, told, &keys, &random, clock.now())
            .await
            .map_err(ServeError::start("opening the installation"))?;
        let trust_domain = installation.trust_domain.to_string();
        let authority = Authority::open(&installation.trust_domain, installation.authorities, &keys, &random)
            .map_err(ServeError::start("opening the CA"))?;
        let names = upkeep::server_names(&settings, address);
        let certificate = authority
            .issue_relay(&names, clock.now())
            .map_err(ServeError::start("issuing the relay's own certificate"))?;
        let dates = upkeep::Dates::of(&certificate);
        let tls =
            Tls::new(certificate, authority.trust(), &clock).map_err(ServeError::start("setting up TLS"))?;
        let (oidc, outside) = ways_out(&settings)?;
        let bound = bound(&settings, address).await?;
        let relay = Context {
            store,
            clock,
            random,
            ca: ArcSwap::from_pointee(authority),
            keys,
            signing_keys: SigningKeys::new(settings.signing_key_days),
            oidc,
            outside,
            limits: Limits::new(&settings.limits),
            metrics: Metrics::default(),
            heartbeats: Heartbeats::default(),
            lookups: Lookups::default(),
            url: settings.url_at(address).to_string(),
            boot_url: bound.as_ref().map(|bound| bound.url.clone()),
            image_roots: bound.as_ref().and_then(|bound| bound.image_roots.clone()),
            provider_tenant: installation.provider_tenant,
        };
        let registry = api::registry().map_err(ServeError::start("building the method table"))?;
        let url = settings.url_at(address).to_string();
        let (relay, crls, refusals) = (Arc::new(relay), Crls::default(), Refusals::default());
        let tls = Arc::new(tls);
        let boot = bound.map(|bound| bound.serving(&relay, &tls));
        let proxies = Trusted::new(settings.trusted_proxies.clone());
        let app =
            Arc::new(App { relay, registry, url, crls, refusals, denials: Denials::default(), proxies });
        Ok(Self { settings, trust_domain, app, tls, listener, address, boot, dates, _lock: lock })
    }

    /// What the relay's calls reach; for tests that look behind the API.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.app.relay
    }

    /// The address that it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` resolves, then drains: requests finish, heartbeats are written, the store is closed.
    ///
    /// # Errors
    /// The files that say where it is can't be written.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), ServeError> {
        let Self { settings, trust_domain, app, tls, listener, address, boot, dates, _lock } = self;
        let relay = app.relay.clone();
        let directory = settings.data_dir.clone();
        let pair = PairOfFiles::new(relay.clone(), directory.join("bootstrap"));
        publish(&relay, &directory, &pair).await?;
        // Before anybody can ask: a gauge that is 0 at first would be an alarm.
        upkeep::count(&relay).await.map_err(ServeError::start("counting the fleet"))?;
        let mut upkeep = upkeep::start(&settings, address, &app, &tls, dates, pair);
        if let Some(boot) = boot {
            upkeep.spawn(boot.serve());
        }
        let listen = directory.join("listen");
        files::write(&listen, format!("{address}\n").as_bytes(), files::PUBLIC)
            .map_err(ServeError::file("writing", &listen))?;
        announce(&relay, &app.url, &trust_domain);
        manager::ready();
        tokio::select! {
            () = serve::serve(app, listener, tls, stop) => {}
            () = manager::watch() => {}
            // What is not kept up any more shows nowhere else: streams stand still, credentials end.
            died = upkeep::died(&mut upkeep) => {
                return Err(ServeError::start("keeping the relay up")(died));
            }
        }
        manager::stopping();
        tracing::info!("draining");
        drop(upkeep);
        let _ = std::fs::remove_file(&listen);
        if let Err(fault) = relay.heartbeats.write(&relay.store).await {
            tracing::warn!(error = chain(&fault), "the last heartbeats were not written");
        }
        relay.store.close().await;
        Ok(())
    }
}

/// The data directory, and the lock that says that this relay has it.
fn claimed(settings: &Settings) -> Result<File, ServeError> {
    if settings.database_url.file().is_some_and(|file| !file.exists()) {
        first_start::may_begin(settings).map_err(ServeError::start("opening the installation"))?;
    }
    let directory = &settings.data_dir;
    let lock = claim(directory)?;
    warn_of_root(directory);
    let stale = directory.join("listen");
    match std::fs::remove_file(&stale) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(ServeError::file("removing", &stale)(error))
        }
        _ => Ok(lock),
    }
}

/// Root can write anywhere, and leaves behind what the relay's own user then can't use.
fn warn_of_root(directory: &Path) {
    let Some(stat) = access::stat(directory).filter(|stat| stat.uid != 0 && geteuid().is_root()) else {
        return;
    };
    let owner = access::names(stat.uid, stat.gid);
    tracing::warn!(
        data_dir = %directory.display(),
        "root serves on a folder of {owner}: the files that it makes are root's, and {owner} can't use them; run it as that \
         user, or chown -R {owner} the folder afterwards"
    );
}

/// What the relay asks others by: the identity provider, if there is one, and the way to webhooks.
fn ways_out(settings: &Settings) -> Result<(Option<Provider>, Outside), ServeError> {
    let oidc = settings.oidc.clone().map(Provider::new).transpose();
    let outside = Outside::new(settings.webhook_networks.clone(), settings.webhook_ca_file.as_deref());
    Ok((
        oidc.map_err(ServeError::start("setting up the identity provider"))?,
        outside.map_err(ServeError::start("setting up the way to webhooks"))?,
    ))
}

/// What a start knows of the trust domain: the settings, and the address that was bound.
struct Told<'a> {
    settings: &'a Settings,
    address: SocketAddr,
}

/// What serves the agent's image, before there is a relay to serve it.
struct Bound {
    served: (Arc<Image>, TcpListener),
    /// Where BMCs fetch it.
    url: String,
    is_tls: bool,
    image_roots: Option<String>,
}

/// The listener for BMCs, where one is wanted.
async fn bound(settings: &Settings, address: SocketAddr) -> Result<Option<Bound>, ServeError> {
    let Some(boot) = &settings.boot else { return Ok(None) };
    let served = Boot::bind(boot).await.map_err(ServeError::start("serving the agent's image"))?;
    let listening = served.1.local_addr().map_err(ServeError::start("serving the agent's image"))?;
    let url = boot.url_at(listening, settings.url_at(address).host());
    let read = |path: &PathBuf| std::fs::read_to_string(path).map_err(ServeError::file("reading", path));
    let image_roots = boot.image_ca_file.as_ref().map(read).transpose()?;
    Ok(Some(Bound { served, url, is_tls: boot.is_tls(), image_roots }))
}

impl Bound {
    fn serving(self, relay: &Arc<Context>, tls: &Arc<Tls>) -> Boot {
        tracing::info!(url = self.url, "BMCs are served the agent's image");
        Boot::new(relay.clone(), self.is_tls.then(|| tls.clone()), self.served)
    }
}

/// The installation of the store, made now if it has none.
async fn installation(
    store: &Store,
    told: Told<'_>,
    keys: &KeyRing,
    random: &Random,
    now: Timestamp,
) -> Result<Installation, Fault> {
    let named = told.settings.trust_domain.as_ref();
    let installation = if first_start::is_empty(store).await? {
        let trust_domain =
            told.settings.trust_domain_at(told.address).map_err(Fault::internal("taking a trust domain"))?;
        let provider_tenant = told.settings.provider_tenant.as_ref().map_or(PROVIDER, TenantId::as_str);
        let authorities = first_start::drawn(store, &trust_domain, keys, random, now).await?;
        let beginning = Beginning {
            trust_domain: &trust_domain,
            provider_tenant,
            authorities: &authorities,
            keys,
            random,
            now,
        };
        first_start::ensure(store, &beginning).await?
    } else {
        store.read("installation", keys, |tx, keys| Box::pin(first_start::load(tx, keys))).await?
    };
    first_start::same_trust_domain(named, &installation.trust_domain)
        .map_err(Fault::internal("taking a trust domain"))?;
    first_start::same_provider_tenant(told.settings.provider_tenant.as_ref(), &installation.provider_tenant)
        .map_err(Fault::internal("finding the provider tenant"))?;
    first_start::keep_url(store, told.settings.url.as_ref()).await?;
    Ok(installation)
}

/// Writes what machines and operators need to reach this relay: bundles and bootstrap credentials.
async fn publish(relay: &Context, directory: &Path, pair: &PairOfFiles) -> Result<(), ServeError> {
    upkeep::write_bundles(&relay.ca.load(), directory)
        .map_err(|(path, error)| ServeError::file("writing", &path)(error))?;
    pair.keep().await.map_err(ServeError::start("writing the bootstrap credentials"))
}

/// The line is part of the contract, whatever the log's format and level. Nobody need be there to read it.
fn announce(relay: &Context, url: &str, trust_domain: &str) {
    let pin = relay.ca.load().pin().unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    tracing::info!(url, trust_domain, pin, version, "the relay serves; machines pin this CA");
    let _ = writeln!(io::stderr(), "listening on {url}");
}

/// Lets this process have as many connections as the system allows it: the default of 1,024 is for programs that use
/// `select`.
fn raise_file_limit() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(_, most)| setrlimit(Resource::RLIMIT_NOFILE, most, most));
    if let Err(error) = raised {
        tracing::warn!(error = chain(&error), "the limit of open files stays as it is");
    }
}

/// Lets neither this process nor what it starts leave a core: keys and passwords would be in it.
fn forbid_cores() {
    if let Err(error) = setrlimit(Resource::RLIMIT_CORE, 0, 0) {
        tracing::warn!(error = chain(&error), "a crash may leave a core with secrets in it");
    }
}

/// Resolves at SIGTERM or SIGINT.
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
    })
}
