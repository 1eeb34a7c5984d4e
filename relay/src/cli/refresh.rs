//! Refreshing a credential that lies in a file, lazily: from three quarters of its lifetime on. A context's is refreshed on
//! the way to a call, and a refresh that fails does not fail the call; `relay token refresh-secret` does it for an API token
//! in any file, and in a Secret of a Kubernetes cluster ([`cluster`]).

mod cluster;

use super::{
    World,
    call::{CallError, Relay},
    exit::Exit,
    local, operate,
    target::{self, Target, TargetError},
    terminal,
    tree::{self, ids},
};
use crate::{auth::jwt::Said, files, kubernetes::ClusterError};
use clap::{Arg, ArgMatches, Command, ValueHint};
use serde_json::{Value, json};
use shared::{
    api::{access::Action, tokens::REFRESH, whoami::PERMISSIONS},
    secret::Secret,
    terminal::shown,
};
use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
};

/// Why a token was not refreshed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the relay answered without a token; is it of this version?")]
    NoToken,
    #[error("refresh {}: it holds no token of a relay", .0.display())]
    NoJwt(PathBuf),
    #[error("refresh the Secret {0}: its key {1} holds no token of a relay")]
    NoJwtInSecret(String, String),
    #[error(
        "the token may not be refreshed, and ends for good: it lacks {0}; make one that holds it, as by --permissions \
         self={0}",
        Action::TokensRefresh.as_str()
    )]
    MayNot,
    #[error("{0}")]
    Argument(String),
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    #[error("write {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Target(error) => operate::exit_of_target(error),
            Self::Call(CallError::Problem(problem)) => problem.code.into(),
            Self::Call(CallError::Transport { .. }) => Exit::TryAgain,
            Self::Cluster(error) if error.is_conflict() || error.is_transient() => Exit::TryAgain,
            Self::NoJwt(_) | Self::NoJwtInSecret(..) | Self::Argument(_) => Exit::Usage,
            Self::Call(_) | Self::NoToken | Self::MayNot | Self::Cluster(_) | Self::File { .. } => {
                Exit::Refused
            }
        }
    }
}

/// The relay, asked with a newer credential where the context's is due and the relay gives one.
pub(super) async fn lazily(relay: Relay, target: &Target, world: &World<'_>) -> Relay {
    let Some(path) = &target.kept_in else { return relay };
    if !Said::of(target.token.expose()).is_some_and(|said| said.is_due(world.clock.now())) {
        return relay;
    }
    match renew(&relay, path, world).await {
        Ok(token) => relay.with_token(&token),
        // The one that there is may well do.
        Err(_) => relay,
    }
}

/// Exchanges the token in a file. Of several processes one does so, and the others take what it wrote.
async fn renew(relay: &Relay, path: &Path, world: &World<'_>) -> Result<Secret, Failure> {
    let failed = |source| Failure::File { path: path.to_owned(), source };
    let _lock = lock(path).map_err(failed)?;
    let known = target::token(path)?;
    if !Said::of(known.expose()).is_some_and(|said| said.is_due(world.clock.now())) {
        return Ok(known);
    }
    let secret = successor(relay, &known).await?;
    let line = Secret::new(format!("{}\n", secret.expose()));
    files::write(path, line.expose().as_bytes(), files::SECRET).map_err(failed)?;
    Ok(secret)
}

/// The token that follows another.
async fn successor(relay: &Relay, known: &Secret) -> Result<Secret, Failure> {
    let asking = relay.clone().with_token(known);
    let mut answer = asking.call(&REFRESH.method.path(), &json!({})).await?;
    match answer.get_mut("secret").map(Value::take) {
        Some(Value::String(secret)) => Ok(Secret::new(secret)),
        _ => Err(Failure::NoToken),
    }
}

/// That a token that is not due could be refreshed: else nobody learns of it before it is too late.
///
/// # Errors
/// It lacks the action, or does not count.
async fn prove(relay: &Relay, known: &Secret) -> Result<(), Failure> {
    let asking = relay.clone().with_token(known);
    let held = match asking.call(&PERMISSIONS.method.path(), &json!({})).await {
        // Nothing is due yet: the next run finds out.
        Err(CallError::Transport { .. }) => return Ok(()),
        held => held?,
    };
    let all = held.get("permissions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let may = all.iter().filter(|of| of.get("subject").is_some_and(|subject| subject == "self")).any(|of| {
        let actions = of.get("actions").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        actions.iter().any(|action| action == Action::TokensRefresh.as_str())
    });
    if may { Ok(()) } else { Err(Failure::MayNot) }
}

/// The lock of a token's file, which itself is replaced at each refresh.
fn lock(path: &Path) -> io::Result<File> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let place = path.with_file_name(format!(".{name}.lock"));
    let file = File::options().create(true).truncate(false).write(true).open(place)?;
    file.lock()?;
    Ok(file)
}

const FILE: &str = "file";

/// `relay token`.
#[must_use]
pub(super) fn command() -> Command {
    let file = Arg::new(FILE)
        .long(FILE)
        .value_name("FILE")
        .value_hint(ValueHint::FilePath)
        .required_unless_present(cluster::SECRET)
        .conflicts_with(cluster::SECRET)
        .help("The file that holds the token; it is replaced whole, mode 0600");
    let connection = tree::connection()
        .into_iter()
        .filter(|arg| ![ids::TOKEN_FILE, ids::TEMPLATE, ids::OUTPUT].contains(&arg.get_id().as_str()));
    Command::new("token")
        .about("Keep an API token that lives in a file or a Kubernetes Secret up to date")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(
            Command::new("refresh-secret")
                .about("Refresh the token in a file or a Secret, if three quarters of its lifetime are over")
                .after_help("Run it more often than a quarter of the lifetime, such as every hour for a token of 8 hours. \
                             The token needs the action iam:tokens:refresh. With --secret it runs in a pod whose service account \
                             may get and patch that Secret, and writes nothing where another changed it meanwhile.")
                .arg(file)
                .args(cluster::arguments())
                .args(connection),
        )
}

/// Runs it.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let Some((_, flags)) = flags.subcommand() else { return Exit::Usage };
    match refresh_secret(flags, world) {
        Ok(exit) => exit,
        Err(failure) => {
            terminal::say(&format_args!("token refresh-secret: {}", shown(&failure.to_string())));
            failure.exit()
        }
    }
}

fn refresh_secret(flags: &ArgMatches, world: &World<'_>) -> Result<Exit, Failure> {
    let done = match flags.get_one::<String>(cluster::SECRET) {
        Some(name) => local::finish(cluster::refresh(name, flags, world)),
        None => local::finish(refresh_file(flags, world)),
    };
    let (before, after) = match done {
        Ok(done) => done?,
        Err(exit) => return Ok(exit),
    };
    let ends = super::humane::relative(after.ends(), world.clock.now());
    let ended = if after.ends() <= world.clock.now() { "has ended" } else { "is not due" };
    if after.jti == before.jti {
        terminal::say(&format_args!("the token {} {ended}; it ends {ends}", after.jti));
        return Ok(if after.ends() <= world.clock.now() { Exit::Unauthenticated } else { Exit::Ok });
    }
    terminal::say(&format_args!("the token {} follows {}; it ends {ends}", after.jti, before.jti));
    Ok(Exit::Ok)
}

/// What the token in a file was, and is.
async fn refresh_file(flags: &ArgMatches, world: &World<'_>) -> Result<(Said, Said), Failure> {
    let path = PathBuf::from(flags.get_one::<String>(FILE).map(String::as_str).unwrap_or_default());
    let mut said = operate::said(flags, world)?;
    said.token_file = Some(path.clone());
    let target = Target::find(&said)?;
    let relay = Relay::new(&target)?;
    let of = |token: &Secret| Said::of(token.expose()).ok_or_else(|| Failure::NoJwt(path.clone()));
    let before = of(&target.token)?;
    if !before.is_due(world.clock.now()) {
        prove(&relay, &target.token).await?;
    }
    Ok((before, of(&renew(&relay, &path, world).await?)?))
}
