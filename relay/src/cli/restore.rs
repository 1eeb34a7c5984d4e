//! `relay restore`: a store that came from a backup, made safe to serve.
//!
//! A backup revives what was taken back since: join tokens, the requests that hold them, credentials, invites. So none of
//! them outlives a restore. Of an embedded database the copy is made safe under another name and gets its own at the end, so a
//! relay never finds one that is not; a server's database was put back by its own tools, and is made safe in one
//! transaction. What a person decided since (bans, releases, inventory, policies) is in no backup: they decide it again.

use super::{World, begun::Begun, exit::Exit, local, terminal};
use crate::{
    access,
    audit::sealer::HEAD_FILE,
    claim::{ClaimError, claim},
    config::{DatabaseUrl, Settings},
    events::{Event, Kind, Origin},
    fault::{Fault, chain},
    metal,
    store::{Store, StoreError, events, restored, restored::Forgotten},
};
use clap::{Arg, ArgAction, ArgMatches, Command, ValueHint};
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Who did it, for events and requests.
const ACTOR: &str = "relay restore";

/// Why nothing was restored.
#[derive(Debug, thiserror::Error)]
enum RestoreError {
    /// The embedded database comes from a file.
    #[error("name the backup: relay restore --from FILE")]
    NoFile,
    /// A server's database is put back by its own tools.
    #[error(
        "{0} is on a database server: put the dump back by its own tools, such as pg_restore, and then run relay restore without \
         --from"
    )]
    Server(String),
    /// It ends what people and machines have in their hands.
    #[error(
        "this ends every join token, waiting join request, API token, login and invite in {0}. Stop every relay that serves it, then \
         run it with --yes"
    )]
    Unconfirmed(String),
    /// A relay has the folder, or it can't be had.
    #[error("{0}")]
    Folder(#[from] ClaimError),
    /// Root's files would be of no use to the relay.
    #[error("{} is of {owner}: run it as that user, such as by runuser -u relay --", folder.display())]
    OfAnother {
        /// The folder.
        folder: PathBuf,
        /// Its owner.
        owner: String,
    },
    /// It is part of a database that is, or was, in use.
    #[error("{} has a log beside it: it is no backup but the file of a relay; make one by relay backup", .0.display())]
    InUse(PathBuf),
    /// The backup can't be read.
    #[error("read {}: {source}", path.display())]
    From {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The database can't be written.
    #[error("write {}: {source}{}", path.display(), remedy(source))]
    Into {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The store can't be opened.
    #[error("{0}")]
    Open(#[from] local::OpenError),
    /// The store fails.
    #[error("restore the store: {}", chain(.0))]
    Store(#[from] Fault),
}

impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(error.into())
    }
}

impl RestoreError {
    fn exit(&self) -> Exit {
        match self {
            Self::NoFile | Self::Server(_) | Self::Unconfirmed(_) => Exit::Usage,
            Self::Open(error) => error.exit(),
            Self::Store(Fault::Store(error)) => local::exit_of(error),
            Self::From { source, .. } if source.kind() == io::ErrorKind::NotFound => Exit::NotFound,
            Self::Folder(ClaimError::Locked(_)) => Exit::TryAgain,
            _ => Exit::Refused,
        }
    }
}

fn remedy(error: &io::Error) -> &'static str {
    if error.kind() == io::ErrorKind::AlreadyExists {
        "; a restore overwrites nothing: move the old database away, with its -wal and -shm"
    } else {
        ""
    }
}

/// The command, but for the settings.
pub(super) fn command() -> Command {
    Command::new("restore")
        .about("Put a backup in the store's place, and end what it revives")
        .after_help(
            "Every join token, waiting join request, API token, login and invite of the backup ends: they may have been taken \
             back since it was made. The embedded database: --from names the backup, and the store must not be there yet. A database server: put \
             the dump back by its own tools first, then run this with --yes and without --from. No relay may run.",
        )
        .arg(
            Arg::new("from")
                .long("from")
                .value_name("FILE")
                .value_hint(ValueHint::FilePath)
                .help("The backup, of the embedded database"),
        )
        .arg(
            Arg::new("yes")
                .long("yes")
                .action(ArgAction::SetTrue)
                .help("Do it on a database server: every relay that serves it is stopped"),
        )
}

/// Restores, and says what has ended.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let settings = match local::settings(flags, world) {
        Ok(settings) => settings,
        Err(exit) => return exit,
    };
    let from = flags.get_one::<String>("from").map(PathBuf::from);
    match local::finish(restore(&settings, from.as_deref(), flags.get_flag("yes"), world)) {
        Ok(Ok(ended)) => {
            terminal::say(&told(&settings, &ended));
            Exit::Ok
        }
        Ok(Err(error)) => {
            terminal::say(&format_args!("restore: {error}"));
            error.exit()
        }
        Err(exit) => exit,
    }
}

/// What has ended, and how many machines are in another state than the backup says.
type Ended = (Forgotten, u64);

fn told(settings: &Settings, (forgotten, machines): &Ended) -> String {
    let Forgotten { join_tokens, join_requests, credentials, invites } = forgotten;
    let halted = match machines {
        0 => String::new(),
        some => format!("; {some} metal machines are failed or to be commissioned again"),
    };
    format!(
        "{} is restored; {join_tokens} join tokens, {join_requests} join requests, {credentials} API tokens and logins and {invites} \
         invites have ended{halted}\nnext: operators.md in /usr/share/doc/relay, \"Restore\": ban and release again what was since the \
         backup, before machines \
         reach the relay",
        settings.database_url.redacted()
    )
}

async fn restore(
    settings: &Settings,
    from: Option<&Path>,
    confirmed: bool,
    world: &World<'_>,
) -> Result<Ended, RestoreError> {
    let ended = restored(settings, from, confirmed, world).await?;
    // It is of the chain that went on after the backup. What it says is for people now.
    let head = settings.data_dir.join(HEAD_FILE);
    match fs::rename(&head, settings.data_dir.join(format!("{HEAD_FILE}.before-restore"))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(into(&head)(error)),
        _ => Ok(ended),
    }
}

async fn restored(
    settings: &Settings,
    from: Option<&Path>,
    confirmed: bool,
    world: &World<'_>,
) -> Result<Ended, RestoreError> {
    let Some(file) = settings.database_url.file() else {
        let shown = || settings.database_url.redacted();
        return match (from, confirmed) {
            (Some(_), _) => Err(RestoreError::Server(shown())),
            (None, false) => Err(RestoreError::Unconfirmed(shown())),
            (None, true) => made_safe(local::store(settings).await?, settings, world).await,
        };
    };
    let from = from.ok_or(RestoreError::NoFile)?;
    of_this_user(&settings.data_dir)?;
    let _lock = claim(&settings.data_dir)?;
    let mut begun = begin(from, file, world)?;
    let beside = Beside(begun.path().to_owned());
    let url = DatabaseUrl::of_file(begun.path());
    let ended = made_safe(Store::open(url.expose()).await?, settings, world).await?;
    drop(beside);
    begun.file().sync_all().map_err(into(file))?;
    begun.keep().map_err(into(file))?;
    Ok(ended)
}

/// Root can write anywhere, and the relay could not use what it leaves.
fn of_this_user(folder: &Path) -> Result<(), RestoreError> {
    match access::stat(folder) {
        Some(stat) if stat.uid != nix::unistd::geteuid().as_raw() => Err(RestoreError::OfAnother {
            folder: folder.to_owned(),
            owner: access::names(stat.uid, stat.gid),
        }),
        _ => Ok(()),
    }
}

/// The backup's bytes, under a name that no relay looks for.
fn begin<'a>(from: &Path, file: &'a Path, world: &World<'_>) -> Result<Begun<'a>, RestoreError> {
    let failed = |source| RestoreError::From { path: from.to_owned(), source };
    let log = PathBuf::from(format!("{}-wal", from.display()));
    if fs::metadata(&log).is_ok_and(|log| log.len() > 0) {
        return Err(RestoreError::InUse(from.to_owned()));
    }
    let mut backup = access::open(from).map_err(failed)?;
    let mut begun = Begun::new(file, world.random).map_err(into(file))?;
    io::copy(&mut backup, begun.file()).map_err(into(file))?;
    Ok(begun)
}

fn into(file: &Path) -> impl FnOnce(io::Error) -> RestoreError {
    let path = file.to_owned();
    |source| RestoreError::Into { path, source }
}

/// What SQLite makes beside a file while it is open; gone when this is dropped.
struct Beside(PathBuf);

impl Drop for Beside {
    fn drop(&mut self) {
        for end in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{end}", self.0.display()));
        }
    }
}

/// Brings the schema up, sees whether the key is the right one, and ends what a backup revives.
async fn made_safe(store: Store, settings: &Settings, world: &World<'_>) -> Result<Ended, RestoreError> {
    let done = async {
        store.migrate().await?;
        let opened = local::loaded(store.clone(), settings).await?;
        let now = world.clock.now();
        let origin = Origin { actor: ACTOR.to_owned(), request_id: String::new(), at: now };
        let context = (opened.installation, origin, world.random);
        let ended = store.transact("restore", context, |tx, (installation, origin, random)| {
            Box::pin(async move {
                let forgotten = restored::forget(tx, ACTOR, origin.at).await?;
                let machines = metal::restored::halt(tx, random, origin).await?;
                let event = Event {
                    kind: Kind::StoreRestored,
                    tenant: &installation.provider_tenant,
                    subject: installation.trust_domain.as_str(),
                    data: json!({
                        "joinTokens": forgotten.join_tokens, "joinRequests": forgotten.join_requests,
                        "credentials": forgotten.credentials, "invites": forgotten.invites, "machines": machines,
                    }),
                };
                events::insert(tx, random, origin, &event).await?;
                Ok::<_, Fault>((forgotten, machines))
            })
        });
        Ok::<_, RestoreError>(ended.await?)
    };
    let done = done.await;
    store.close().await;
    done
}
