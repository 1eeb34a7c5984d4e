//! `relay backup`: one consistent copy of SQLite's file, beside a relay that runs. The master key is not in it.

use super::{World, begun::Begun, exit::Exit, local, terminal};
use crate::{
    config::Settings,
    fault::chain,
    random::Random,
    store::{self, StoreError},
};
use clap::ArgMatches;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Why there is no copy.
#[derive(Debug, thiserror::Error)]
enum BackupError {
    /// A server's database, which its own tools copy.
    #[error(
        "{0} is on a database server: use its own tools, such as `pg_dump --format=custom --file=FILE`; operators.md in /usr/share/doc/relay, \"Backup\""
    )]
    Server(String),
    /// There is no store.
    #[error("{0}")]
    Open(#[from] local::OpenError),
    /// The store can't be copied.
    #[error("copy the store: {}", chain(.0))]
    Store(#[from] StoreError),
    /// The file can't be written.
    #[error("write {}: {source}{}", path.display(), remedy(source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl BackupError {
    fn exit(&self) -> Exit {
        match self {
            Self::Open(error) => error.exit(),
            Self::Store(error) => local::exit_of(error),
            Self::Server(_) | Self::File { .. } => Exit::Refused,
        }
    }
}

/// Where the master key is: a credential is there for the relay's unit alone.
fn key(settings: &Settings) -> String {
    let file = &settings.master_key_file;
    if file.exists() {
        file.display().to_string()
    } else {
        "the credential relay.master-key of the relay's unit".to_owned()
    }
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AlreadyExists {
        "; a backup overwrites nothing: name another"
    } else {
        ""
    }
}

/// Writes the copy and says what it lacks.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let settings = match local::settings(flags, world) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    let out = PathBuf::from(flags.get_one::<String>("out").map_or("", String::as_str));
    match local::finish(back_up(&settings, &out, world.random)) {
        Ok(Ok(())) => {
            let (out, key) = (out.display(), key(&settings));
            terminal::say(&format_args!(
                "{out} is complete; it needs the master key ({key}): keep that elsewhere"
            ));
            Exit::Ok
        }
        Ok(Err(error)) => {
            terminal::say(&format_args!("backup: {error}"));
            error.exit()
        }
        Err(exit) => exit,
    }
}

/// The file has its name only once it is whole.
async fn back_up(settings: &Settings, out: &Path, random: &Random) -> Result<(), BackupError> {
    if settings.database_url.file().is_none() {
        return Err(BackupError::Server(settings.database_url.redacted()));
    }
    // Makes none where there is none.
    local::store(settings).await?.close().await;
    let failed = |source| BackupError::File { path: out.to_owned(), source };
    let begun = Begun::new(out, random).map_err(failed)?;
    store::copy(settings.database_url.expose(), begun.path()).await?;
    begun.keep().map_err(failed)
}
