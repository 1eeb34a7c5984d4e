//! Commands that work on a relay's own folder and store, without asking a running one: their settings, and `migrate`.

use super::{World, exit::Exit, terminal, tree::ids};
use crate::{
    access,
    config::{DEFAULT_FILE, KEYS, Settings, Sources},
    fault::{Fault, chain},
    first_start::{self, Installation},
    seal::{KeyRing, MasterKey, MasterKeyError},
    store::{Applied, Store, StoreError},
};
use clap::ArgMatches;
use shared::access::Use;
use std::{
    future::Future,
    io,
    path::{Path, PathBuf},
};

/// The variables that say where settings are, and which relay the verbs of operators ask.
const OF_THE_CLI: [&str; 8] = [
    "RELAY_CONFIG",
    "RELAY_RELAY",
    "RELAY_TOKEN_FILE",
    "RELAY_CA_FILE",
    "RELAY_TENANT",
    "RELAY_PROJECT",
    "RELAY_CONTEXT",
    "RELAY_CONTEXTS",
];

/// The settings that a command was given.
///
/// # Errors
/// They are not right; it has been said why.
pub(super) fn settings(flags: &ArgMatches, world: &World<'_>) -> Result<Settings, Exit> {
    let sources = Sources {
        file: flags.get_one::<String>(ids::CONFIG).map(Into::into),
        default_file: Path::new(DEFAULT_FILE),
        env: world.env,
        flags: &|key| flags.get_one::<String>(key.name).cloned(),
    };
    let settings = Settings::load(&sources).map_err(|error| {
        terminal::say(&error);
        Exit::Usage
    })?;
    for name in unknown_variables(&(world.names)()) {
        terminal::say(&format_args!("warning: the environment has {name}, which is no setting"));
    }
    Ok(settings)
}

/// The file that these settings came from; it may be absent.
pub(super) fn settings_path(flags: &ArgMatches, world: &World<'_>) -> PathBuf {
    let named = flags.get_one::<String>(ids::CONFIG).cloned().or_else(|| (world.env)("RELAY_CONFIG"));
    PathBuf::from(named.unwrap_or_else(|| DEFAULT_FILE.to_owned()))
}

/// Names in the environment that look like settings and are none. A cluster puts names of its own there for a service
/// that is called relay (`RELAY_SERVICE_HOST`, `RELAY_PORT_8443_TCP`).
fn unknown_variables(names: &[String]) -> Vec<&str> {
    let known = |name: &str| OF_THE_CLI.contains(&name) || KEYS.iter().any(|key| key.env() == name);
    let of_a_cluster = |name: &str| name.starts_with("RELAY_PORT") || name.starts_with("RELAY_SERVICE_");
    let odd = |name: &&str| name.starts_with("RELAY_") && !known(name) && !of_a_cluster(name);
    names.iter().map(String::as_str).filter(odd).collect()
}

/// `relay migrate`: brings the schema up to this version.
pub(super) fn migrate(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let settings = match settings(flags, world) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    let applied = match finish(migrated(settings.database_url.expose())) {
        Ok(applied) => applied,
        Err(exit) => return exit,
    };
    match applied {
        Ok(Applied { from, to }) if from == to => {
            terminal::say(&format_args!("the schema is at version {to} already"));
            Exit::Ok
        }
        Ok(Applied { from, to }) => {
            terminal::say(&format_args!("the schema went from version {from} to {to}"));
            Exit::Ok
        }
        Err(error) => {
            terminal::say(&format_args!("migrate {}: {}", settings.database_url.redacted(), chain(&error)));
            exit_of(&error)
        }
    }
}

async fn migrated(url: &str) -> Result<Applied, StoreError> {
    let store = Store::open(url).await?;
    let applied = store.migrate().await;
    store.close().await;
    applied
}

/// A relay's store, opened with its key.
pub(super) struct Opened {
    pub(super) store: Store,
    pub(super) keys: KeyRing,
    pub(super) installation: Installation,
}

/// Why a relay's store can't be worked on.
#[derive(Debug, thiserror::Error)]
pub(super) enum OpenError {
    /// There is none, and it is not made by asking.
    #[error("open the store: there is no {}; `relay serve` makes it at its first start", .0.display())]
    Absent(PathBuf),
    /// It can't be looked for.
    #[error("open the store {}: {source}{}", path.display(), access::remedy(path, Use::Keep, source))]
    Hidden {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The store fails.
    #[error("open the store: {}", chain(.0))]
    Store(#[from] StoreError),
    /// The key can't be had.
    #[error("{}", blind(.0))]
    Key(#[from] MasterKeyError),
    /// What it holds can't be used.
    #[error("open the installation: {}", chain(.0))]
    Installation(#[from] Fault),
}

/// How a command sees what systemd gives to the unit alone.
fn blind(error: &MasterKeyError) -> String {
    let remedy = match error {
        MasterKeyError::Absent { credential: None, .. } => {
            "; where the unit has it as a systemd credential: as root, while the relay runs, put \
             CREDENTIALS_DIRECTORY=/run/credentials/relay.service before this command"
        }
        _ => "",
    };
    format!("{error}{remedy}")
}

impl OpenError {
    /// What it means for a script.
    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Absent(_) => Exit::NotFound,
            Self::Store(error) | Self::Installation(Fault::Store(error)) => exit_of(error),
            Self::Hidden { .. } | Self::Key(_) | Self::Installation(_) => Exit::Refused,
        }
    }
}

/// Opens the store that is there; none is made.
pub(super) async fn store(settings: &Settings) -> Result<Store, OpenError> {
    if let Some(file) = settings.database_url.file() {
        match access::open(file) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(OpenError::Absent(file.to_owned()));
            }
            Err(source) => return Err(OpenError::Hidden { path: file.to_owned(), source }),
        }
    }
    Ok(Store::open(settings.database_url.expose()).await?)
}

/// Opens the installation that is there, and its CAs' keys.
pub(super) async fn open(settings: &Settings) -> Result<Opened, OpenError> {
    loaded(store(settings).await?, settings).await
}

/// The installation of a store that is open, and its CAs' keys.
pub(super) async fn loaded(store: Store, settings: &Settings) -> Result<Opened, OpenError> {
    let key = MasterKey::load(&settings.master_key_file, settings.credentials_dir.as_deref())?;
    let keys = KeyRing::new(key, Vec::new());
    let installation =
        store.read("installation", &keys, |tx, keys| Box::pin(first_start::load(tx, keys))).await?;
    Ok(Opened { store, keys, installation })
}

/// What a failing store means for a script.
pub(super) fn exit_of(error: &StoreError) -> Exit {
    if error.is_transient() { Exit::TryAgain } else { Exit::Refused }
}

/// Runs to the end, on this thread.
///
/// # Errors
/// The system has no resources for it; it has been said so.
pub(super) fn finish<T>(work: impl Future<Output = T>) -> Result<T, Exit> {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => Ok(runtime.block_on(work)),
        Err(error) => {
            terminal::say(&format_args!("start: {error}"));
            Err(Exit::TryAgain)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_variables_are_found() {
        let names = [
            "RELAY_LISTN",
            "RELAY_LISTEN",
            "RELAY_LIMITS_JOIN_IN_FLIGHT",
            "RELAY_CONFIG",
            "RELAY_TOKEN_FILE",
        ];
        let of_a_cluster = ["RELAY_SERVICE_HOST", "RELAY_PORT_8443_TCP_ADDR", "HOME"];
        let names: Vec<String> = names.into_iter().chain(of_a_cluster).map(str::to_owned).collect();
        assert_eq!(unknown_variables(&names), ["RELAY_LISTN"]);
    }
}
