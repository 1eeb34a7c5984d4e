//! The relay's settings, in three stages: what each source says (all of it optional), what they say together (file <
//! environment < flags), and [`Settings`], which can't be wrong. Nothing here opens the store or the network, and
//! nothing changes after the start.

mod boot;
mod cluster;
mod database;
mod error;
mod keys;
mod merge;
mod oidc;
#[cfg(test)]
mod tests;
mod values;

pub use boot::BootSettings;
pub use cluster::{ClusterSecret, SERVICE_ACCOUNT};
pub use database::{DatabaseUrl, InvalidDatabaseUrl};
pub use error::{ConfigError, Origin};
pub use keys::{Form, KEYS, Key};
pub use merge::DEFAULT_FILE;
pub use oidc::{LoginKey, Oidc};
pub use values::{InvalidLogFormat, InvalidRelayUrl, LogFormat, NoTrustDomain, RelayUrl};

use crate::{ca::TrustDomain, log, seal};
use ipnet::IpNet;
use merge::Merged;
use shared::bounded::TenantId;
use std::{
    fmt::Display,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    num::NonZeroU32,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    str::FromStr,
};

/// The most that a limit may be set to: a million a minute.
pub const MAX_LIMIT: u32 = 1_000_000;
/// How long anything is kept at most, in days: a hundred years.
const MAX_DAYS: u32 = 36_500;
/// How long the audit is kept unless told otherwise, in days: a year, and a month to look back on it.
const DEFAULT_AUDIT_DAYS: u32 = 400;
/// How long a key signs tokens unless told otherwise, in days.
pub const SIGNING_KEY_DAYS: u32 = 30;
/// How long it may be told to, in days: the fewest leave 53 keys that verify tokens of 365 days.
const SIGNING_KEY_DAYS_RANGE: RangeInclusive<u32> = 7..=365;
/// The most networks of a list.
const MAX_NETWORKS: usize = 64;

/// Where settings come from.
pub struct Sources<'a> {
    /// The file that was named; it must be there.
    pub file: Option<PathBuf>,
    /// The file that is read if none is named; it may be absent.
    pub default_file: &'a Path,
    /// The environment.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The flags.
    pub flags: &'a dyn Fn(&Key) -> Option<String>,
}

/// All settings, right. `Debug` shows no secret.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder that holds all that the relay keeps. It may be absent still.
    pub data_dir: PathBuf,
    /// Where the API is served; port 0 picks one.
    pub listen: SocketAddr,
    /// The relay's public address, if it was told.
    pub url: Option<RelayUrl>,
    /// The store.
    pub database_url: DatabaseUrl,
    /// The file that the store's address and with it a password came from; none if it has no password.
    pub password_file: Option<PathBuf>,
    /// The file of the master key. It may be absent still.
    pub master_key_file: PathBuf,
    /// systemd's folder of credentials, where other file modes count.
    pub credentials_dir: Option<PathBuf>,
    /// The Kubernetes Secret that the bootstrap credentials are written to as well.
    pub bootstrap_secret: Option<ClusterSecret>,
    /// The trust domain, if it was told.
    pub trust_domain: Option<TrustDomain>,
    /// The tenant whose members may be admins, if it was told.
    pub provider_tenant: Option<TenantId>,
    /// Where metrics are served.
    pub metrics_listen: SocketAddr,
    /// How the image of the metal agent is served to BMCs, if it is.
    pub boot: Option<BootSettings>,
    /// The networks of proxies that are believed on who the client is.
    pub trusted_proxies: Vec<IpNet>,
    /// How many days records of the audit are kept.
    pub audit_days: u32,
    /// How long completed tasks are kept, in days.
    pub task_completed_days: u32,
    /// How long archived tasks are kept, in days.
    pub task_archived_days: u32,
    /// How long a key signs tokens, in days.
    pub signing_key_days: u32,
    /// The networks that webhooks may lead into although they are not outside.
    pub webhook_networks: Vec<IpNet>,
    /// The only CA certificates to trust for webhooks; the system's if absent.
    pub webhook_ca_file: Option<PathBuf>,
    /// What is too much.
    pub limits: Limits,
    /// The provider by which people log in.
    pub oidc: Option<Oidc>,
    /// What is logged, and how.
    pub log: LogSettings,
}

/// What is too much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls a minute of one credential.
    pub per_token_per_minute: NonZeroU32,
    /// Calls a minute with a missing or wrong credential from one address.
    pub per_ip_per_minute: NonZeroU32,
    /// Calls a minute of health checks, trust bundles and CRLs from one address.
    pub health_per_minute: NonZeroU32,
    /// Joins a minute from one address.
    pub join_per_ip_per_minute: NonZeroU32,
    /// Joins judged at a time.
    pub join_in_flight: NonZeroU32,
}

/// What is logged, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// Directives, known to parse.
    pub filter: String,
    /// How lines look.
    pub format: LogFormat,
}

impl Settings {
    /// Reads and judges all settings.
    ///
    /// # Errors
    /// The first source or value that is not right.
    pub fn load(sources: &Sources<'_>) -> Result<Self, ConfigError> {
        let merged = Merged::read(sources)?;
        let Some(data_dir) = parsed(&merged, &keys::DATA_DIR, folder)? else {
            return Err(missing(&keys::DATA_DIR));
        };
        let database_url =
            parsed(&merged, &keys::DATABASE_URL, as_is)?.unwrap_or_else(|| DatabaseUrl::in_folder(&data_dir));
        let credentials_dir = (sources.env)("CREDENTIALS_DIRECTORY").map(PathBuf::from);
        let master_key_file = parsed(&merged, &keys::MASTER_KEY_FILE, path)?
            .unwrap_or_else(|| default_master_key(&data_dir, credentials_dir.as_deref()));
        Ok(Self {
            listen: parsed(&merged, &keys::LISTEN, address)?.unwrap_or(loopback(8443)),
            url: parsed(&merged, &keys::URL, as_is)?,
            password_file: password_file(&merged, &database_url),
            database_url,
            master_key_file,
            credentials_dir,
            bootstrap_secret: bootstrap_secret(&merged, sources.env)?,
            trust_domain: parsed(&merged, &keys::TRUST_DOMAIN, as_is)?,
            provider_tenant: parsed(&merged, &keys::PROVIDER_TENANT, as_is)?,
            metrics_listen: parsed(&merged, &keys::METRICS_LISTEN, address)?.unwrap_or(loopback(9464)),
            boot: boot::read(&merged)?,
            trusted_proxies: parsed(&merged, &keys::TRUSTED_PROXIES, networks)?.unwrap_or_default(),
            audit_days: parsed(&merged, &keys::AUDIT_DAYS, days)?.unwrap_or(DEFAULT_AUDIT_DAYS),
            task_completed_days: parsed(&merged, &keys::TASK_COMPLETED_DAYS, days)?.unwrap_or(14),
            task_archived_days: parsed(&merged, &keys::TASK_ARCHIVED_DAYS, days)?.unwrap_or(90),
            signing_key_days: parsed(&merged, &keys::SIGNING_KEY_DAYS, signing_days)?
                .unwrap_or(SIGNING_KEY_DAYS),
            webhook_networks: parsed(&merged, &keys::WEBHOOK_NETWORKS, networks)?.unwrap_or_default(),
            webhook_ca_file: parsed(&merged, &keys::WEBHOOK_CA_FILE, path)?,
            limits: limits(&merged)?,
            oidc: oidc::read(&merged)?,
            log: log_settings(&merged)?,
            data_dir,
        })
    }

    /// The relay's public address, once it is known where it listens.
    #[must_use]
    pub fn url_at(&self, listening: SocketAddr) -> RelayUrl {
        self.url.clone().unwrap_or_else(|| listening.into())
    }

    /// The trust domain of a first start, once it is known where the relay listens.
    ///
    /// # Errors
    /// None was told, and the URL's host is none.
    pub fn trust_domain_at(&self, listening: SocketAddr) -> Result<TrustDomain, NoTrustDomain> {
        match &self.trust_domain {
            Some(told) => Ok(told.clone()),
            None => self.url_at(listening).trust_domain(),
        }
    }
}

fn password_file(merged: &Merged, database_url: &DatabaseUrl) -> Option<PathBuf> {
    match merged.get(&keys::DATABASE_URL) {
        Some((_, Origin::File(path))) if database_url.has_password() => Some(path.clone()),
        _ => None,
    }
}

fn bootstrap_secret(
    merged: &Merged,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<ClusterSecret>, ConfigError> {
    let account =
        parsed(merged, &keys::SERVICE_ACCOUNT_DIR, folder)?.unwrap_or_else(|| PathBuf::from(SERVICE_ACCOUNT));
    parsed(merged, &keys::BOOTSTRAP_SECRET, |name| ClusterSecret::read(name, env, &account))
}

fn log_settings(merged: &Merged) -> Result<LogSettings, ConfigError> {
    Ok(LogSettings {
        filter: parsed(merged, &keys::LOG, log_filter)?.unwrap_or_else(|| "info".to_owned()),
        format: parsed(merged, &keys::LOG_FORMAT, as_is)?.unwrap_or_default(),
    })
}

fn limits(merged: &Merged) -> Result<Limits, ConfigError> {
    let limit = |key, default: NonZeroU32| Ok(parsed(merged, key, limit)?.unwrap_or(default));
    Ok(Limits {
        per_token_per_minute: limit(&keys::LIMIT_TOKEN, nonzero::<1000>())?,
        per_ip_per_minute: limit(&keys::LIMIT_IP, nonzero::<100>())?,
        health_per_minute: limit(&keys::LIMIT_HEALTH, nonzero::<3000>())?,
        join_per_ip_per_minute: limit(&keys::LIMIT_JOIN, nonzero::<6000>())?,
        join_in_flight: limit(&keys::LIMIT_JOIN_IN_FLIGHT, nonzero::<256>())?,
    })
}

/// A setting's value by `parse`, if it has one.
fn parsed<T>(
    merged: &Merged,
    key: &Key,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<T>, ConfigError> {
    let Some((text, origin)) = merged.get(key) else { return Ok(None) };
    let invalid = |rule| ConfigError::Invalid { key: key.name, origin: origin.clone(), rule };
    parse(text).map(Some).map_err(invalid)
}

fn as_is<T: FromStr<Err: Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}

fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse()
        .map_err(|_| "must be an IP address and a port, such as 127.0.0.1:8443 or [::]:8443".to_owned())
}

fn path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() { Err("must name a file".to_owned()) } else { Ok(PathBuf::from(text)) }
}

/// A folder, as an absolute path: the relay may change its working directory, and others read what it logs.
fn folder(text: &str) -> Result<PathBuf, String> {
    std::path::absolute(text).map_err(|_| "must name a folder".to_owned())
}

fn limit(text: &str) -> Result<NonZeroU32, String> {
    let number = text.parse::<NonZeroU32>().ok().filter(|number| number.get() <= MAX_LIMIT);
    number.ok_or_else(|| format!("must be an integer from 1 to {MAX_LIMIT}"))
}

fn days(text: &str) -> Result<u32, String> {
    let days = text.parse().ok().filter(|days| (1..=MAX_DAYS).contains(days));
    days.ok_or_else(|| format!("must be an integer from 1 to {MAX_DAYS}"))
}

fn signing_days(text: &str) -> Result<u32, String> {
    let (from, to) = SIGNING_KEY_DAYS_RANGE.into_inner();
    let days = text.parse().ok().filter(|days| SIGNING_KEY_DAYS_RANGE.contains(days));
    days.ok_or_else(|| format!("must be an integer from {from} to {to}"))
}

/// Networks by commas. A single address is written with its whole prefix: one that is forgotten trusts nobody by mistake.
fn networks(text: &str) -> Result<Vec<IpNet>, String> {
    let rule = || {
        format!(
            "must be at most {MAX_NETWORKS} networks, such as 10.0.0.0/24 or fd00::/64, with no bits behind the prefix"
        )
    };
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    let network = |word: &str| word.parse::<IpNet>().ok().filter(|network| network.trunc() == *network);
    let networks: Option<Vec<IpNet>> = words.map(network).collect();
    networks.filter(|networks| networks.len() <= MAX_NETWORKS).ok_or_else(rule)
}

fn log_filter(text: &str) -> Result<String, String> {
    match log::check_filter(text) {
        Ok(()) => Ok(text.to_owned()),
        Err(rule) => Err(rule.to_string()),
    }
}

fn missing(key: &Key) -> ConfigError {
    ConfigError::Missing { key: key.name, flag: key.flag(), env: key.env() }
}

fn default_master_key(data_dir: &Path, credentials_dir: Option<&Path>) -> PathBuf {
    let credential = credentials_dir.map(|dir| dir.join(seal::CREDENTIAL)).filter(|file| file.exists());
    credential.unwrap_or_else(|| data_dir.join("master.key"))
}

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}

const fn nonzero<const N: u32>() -> NonZeroU32 {
    const { NonZeroU32::new(N).unwrap() }
}
