//! `relay login` and `relay logout`: a browser logs in with the relay's identity provider, and the token goes into a
//! context.
//!
//! The relay hands the token only to the process that began the login: it shows the secret whose S256 went with the browser.
//! So nothing that passes through a URL, a browser's history or a clipboard is a credential.

use super::{
    World,
    call::{CallError, Relay},
    context,
    contexts::{self, Context, ContextError, Contexts},
    device,
    exit::Exit,
    humane, local,
    loopback::{Came, Loopback},
    operate,
    target::{self, Said, Target, TargetError},
    terminal,
    tree::{self, ids},
};
use crate::{
    auth::{jwt, login::s256},
    config::RelayUrl,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::{Arg, ArgAction, ArgMatches, Command, builder::PossibleValuesParser};
use serde_json::{Value, json};
use shared::{
    api::tokens::{REVOKE, TokenCreated},
    problem::{Code, Problem},
    secret::Secret,
    terminal::shown,
};
use std::{
    io::{self, BufRead as _, Read as _},
    process::{self, Stdio},
    time::Duration,
};

/// How long a person may take.
const LONGEST: Duration = Duration::from_secs(600);
/// The longest line that a person may paste, in bytes.
const MAX_LINE_BYTES: u64 = 1024;
/// Where a code is exchanged.
const TOKEN: &str = "/auth/token";

const NO_BROWSER: &str = "no-browser";
const DEVICE: &str = "device";
const ADMIN_ROLE: &str = "admin-role";

/// Why nobody was logged in or out.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Contexts(#[from] ContextError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{1}")]
    Refused(Code, String),
    #[error("nobody logged in within ten minutes; begin again")]
    Late,
    #[error("nobody confirmed the login in time; begin again")]
    Unconfirmed,
    #[error("no code was given; begin again")]
    NoCode,
    #[error("understand the relay's answer: it holds no token; is it a relay of this version?")]
    NoToken,
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Target(error) => operate::exit_of_target(error),
            Self::Contexts(ContextError::Unknown(_) | ContextError::NoneActive) => Exit::NotFound,
            Self::Contexts(ContextError::Name | ContextError::NoHome) => Exit::Usage,
            Self::Call(CallError::Problem(problem)) => problem.code.into(),
            Self::Refused(code, _) => (*code).into(),
            Self::Call(CallError::Transport { .. }) | Self::Late | Self::Unconfirmed => Exit::TryAgain,
            Self::NoCode => Exit::Unauthenticated,
            Self::Contexts(_) | Self::Call(_) | Self::NoToken | Self::Io(_) => Exit::Refused,
        }
    }
}

/// `relay login`.
#[must_use]
pub(super) fn command() -> Command {
    let places = tree::relay().into_iter().filter(|arg| arg.get_id() != ids::TOKEN_FILE);
    Command::new("login")
        .about("Log in by a browser, and keep the token in a context")
        .after_help(
            "The token acts as you, with what you may do at each moment. It lives 8 hours and is refreshed while you work, \
             for a day at most. It is kept in a file of mode 0600 beside ~/.config/relay/config.toml (RELAY_CONTEXTS names \
             another), and never in a URL.",
        )
        .arg(tree::context_name(
            "The context to make or renew [default: the active one of the same relay, else the relay's host]",
        ))
        .arg(
            Arg::new(NO_BROWSER)
                .long(NO_BROWSER)
                .action(ArgAction::SetTrue)
                .help("Print the address to open on any machine, and ask for the code that its page shows"),
        )
        .arg(
            Arg::new(DEVICE)
                .long(DEVICE)
                .action(ArgAction::SetTrue)
                .conflicts_with_all([NO_BROWSER, ADMIN_ROLE])
                .help("Show a code to confirm on any device, where the identity provider offers that"),
        )
        .arg(
            Arg::new(ADMIN_ROLE)
                .long(ADMIN_ROLE)
                .value_name("ROLE")
                .value_parser(PossibleValuesParser::new(["EDITOR", "VIEWER"]))
                .hide(true)
                .help("Ask for an admin role, for members of the provider tenant; the token lives an hour"),
        )
        .args(places)
}

/// `relay logout`.
#[must_use]
pub(super) fn logout_command() -> Command {
    Command::new("logout")
        .about("End a context's token and forget it")
        .arg(tree::context_name("The context [default: the active one]"))
}

/// Runs `relay login`.
pub(super) fn login(flags: &ArgMatches, world: &World<'_>) -> Exit {
    ended("login", local::finish(log_in(flags, world)))
}

/// Runs `relay logout`.
pub(super) fn logout(flags: &ArgMatches, world: &World<'_>) -> Exit {
    ended("logout", local::finish(log_out(flags, world)))
}

fn ended(verb: &str, done: Result<Result<(), Failure>, Exit>) -> Exit {
    match done {
        Ok(Ok(())) => Exit::Ok,
        Ok(Err(failure)) => {
            terminal::say(&format_args!("{verb}: {}", shown(&failure.to_string())));
            failure.exit()
        }
        Err(exit) => exit,
    }
}

async fn log_in(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let contexts = Contexts::load(world.env)?;
    let said = told(flags, &contexts, world)?;
    let (url, ca_pem) = Target::address(&said)?;
    let name = name_for(flags, &contexts, &url)?;
    let relay = Relay::anonymous(&url, ca_pem.as_deref())?;
    offers_logins(&relay).await?;
    let verifier = Secret::new(drawn(world));
    let answer = if flags.get_flag(DEVICE) {
        device::log_in(&relay, &verifier).await?
    } else {
        let code = by_browser(flags, world, (&relay, &url), &verifier).await?;
        let input = json!({"code": code.expose(), "verifier": verifier.expose()});
        serde_json::from_value(relay.call(TOKEN, &input).await?).map_err(|_| Failure::NoToken)?
    };
    keep(&name, (&url, &said), answer, world)
}

/// The code that a browser brings, by itself or by a person.
async fn by_browser(
    flags: &ArgMatches,
    world: &World<'_>,
    (relay, url): (&Relay, &RelayUrl),
    verifier: &Secret,
) -> Result<Secret, Failure> {
    let role =
        flags.get_one::<String>(ADMIN_ROLE).map(|role| format!("&admin_role={role}")).unwrap_or_default();
    let begin = format!("{url}/auth/login?code_challenge={}{role}", s256(verifier.expose()));
    if flags.get_flag(NO_BROWSER) {
        if role.is_empty() && device::is_offered(relay).await {
            terminal::say(&"relay login --device needs no code to be copied here");
        }
        return pasted(&begin).await;
    }
    let (loopback, state) = (Loopback::bind().await?, drawn(world));
    open(&format!("{begin}&redirect_uri={}&state={state}", encoded(&loopback.address())), world);
    let came = tokio::time::timeout(LONGEST, loopback.wait(&state, url)).await;
    match came.map_err(|_| Failure::Late)?? {
        Came::Code(code) => Ok(code),
        Came::Refused(code, detail) => Err(refused(&code, detail)),
    }
}

fn drawn(world: &World<'_>) -> String {
    URL_SAFE_NO_PAD.encode(world.random.bytes::<32>())
}

/// What is said of the relay; a context that is named need not be there yet.
fn told(flags: &ArgMatches, contexts: &Contexts, world: &World<'_>) -> Result<Said, Failure> {
    let text = |id: &str| flags.get_one::<String>(id).cloned();
    let said = Said {
        relay: text(ids::RELAY),
        ca_file: text(ids::CA_FILE).map(Into::into),
        data_dir: text(ids::LOCAL).map(Into::into),
        ..Said::default()
    };
    if said.relay.is_some() || said.data_dir.is_some() {
        return Ok(said.or_env(world.env));
    }
    // A context that is there is renewed, whatever the environment says of another relay.
    let named = text(ids::CONTEXT);
    match &named {
        Some(name) if contexts.all().any(|(known, _)| known == name) => {
            Ok(Said { context: named, ..said }.or_context(world)?)
        }
        _ => Ok(said.or_env(world.env).or_context(world)?),
    }
}

fn name_for(flags: &ArgMatches, contexts: &Contexts, url: &RelayUrl) -> Result<String, ContextError> {
    if let Some(name) = flags.get_one::<String>(ids::CONTEXT) {
        return if contexts::is_name(name) { Ok(name.clone()) } else { Err(ContextError::Name) };
    }
    let active = contexts.named(None).ok().flatten();
    let same = active.filter(|named| named.context.relay == url.to_string());
    Ok(same.map_or_else(|| of_host(url), |named| named.name))
}

/// A relay's host as a context's name.
fn of_host(url: &RelayUrl) -> String {
    let host: String = url.host().replace(':', "-").chars().take(64).collect();
    if contexts::is_name(&host) { host } else { "relay".to_owned() }
}

/// That the relay can be reached, is trusted, and has a provider: before a browser is opened.
async fn offers_logins(relay: &Relay) -> Result<(), Failure> {
    match relay.call(TOKEN, &json!({})).await {
        Err(CallError::Problem(problem)) if problem.code == Code::InvalidInput => Ok(()),
        Err(error) => Err(error.into()),
        Ok(_) => Err(Failure::NoToken),
    }
}

fn refused(code: &str, detail: String) -> Failure {
    let known = Code::ALL.into_iter().find(|known| known.as_str() == code);
    Failure::Refused(known.unwrap_or(Code::Internal), detail)
}

/// Opens a browser, and says where to go if none opens.
fn open(address: &str, world: &World<'_>) {
    terminal::say(&format_args!("log in with your browser; if none opens, go to\n  {address}"));
    let program = (world.env)("BROWSER").unwrap_or_else(|| "xdg-open".to_owned());
    let mut command = process::Command::new(program);
    command.arg(address).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    // Without one, the address was said.
    drop(command.spawn());
}

/// The code that a person pastes.
async fn pasted(address: &str) -> Result<Secret, Failure> {
    terminal::say(&format_args!("go to\n  {address}\nlog in there, and paste the code that the page shows:"));
    let read = tokio::task::spawn_blocking(|| {
        let mut line = String::new();
        io::stdin().lock().take(MAX_LINE_BYTES).read_line(&mut line).map(|_| Secret::new(line))
    });
    let line = read.await.map_err(io::Error::other)??;
    let code = line.expose().trim();
    if code.is_empty() { Err(Failure::NoCode) } else { Ok(Secret::new(code.to_owned())) }
}

/// Keeps the token in its context, which becomes the active one.
fn keep(
    name: &str,
    (url, said): (&RelayUrl, &Said),
    answer: TokenCreated,
    world: &World<'_>,
) -> Result<(), Failure> {
    let secret = answer.secret.ok_or(Failure::NoToken)?.into_secret();
    // As they are now: a person took minutes, and may have changed others meanwhile.
    let mut contexts = Contexts::load(world.env)?;
    let known = contexts.all().find(|(known, _)| *known == name).map(|(_, context)| context.clone());
    let known = known.filter(|known| known.relay == url.to_string());
    let ca_file = target::ca_file(said).map(std::path::absolute).transpose()?;
    // Another person's tenant is not this one's.
    let same = known
        .filter(|known| known.tenant.is_none() || known.tenant.as_deref() == Some(&answer.token.tenant_id));
    let context = Context {
        relay: url.to_string(),
        ca_file,
        tenant: Some(answer.token.tenant_id.clone()),
        project: same.and_then(|known| known.project),
    };
    contexts.put(name, context)?;
    contexts.activate(name)?;
    // A credential goes to the relay that gave it: the old one is gone before the context is another's, and the new one comes after.
    context::forget(&contexts, name)?;
    contexts.save()?;
    contexts.put_token(name, secret.expose())?;
    let ends = humane::relative(answer.token.expires_at, world.clock.now());
    let role =
        answer.token.rights.admin_role.map(|role| format!(" as admin {}", role.as_str())).unwrap_or_default();
    let subject = shown(&answer.token.subject);
    terminal::say(&format_args!(
        "logged in to {url} as {subject}{role}; the token ends {ends}; context {name}"
    ));
    Ok(())
}

async fn log_out(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let contexts = Contexts::load(world.env)?;
    let env = (world.env)("RELAY_CONTEXT");
    let name = flags.get_one::<String>(ids::CONTEXT).or(env.as_ref());
    let named = contexts.named(name.map(String::as_str))?.ok_or(ContextError::NoneActive)?;
    let said = Said { context: Some(named.name.clone()), ..Said::default() }.or_context(world)?;
    let target = Target::find(&said)?;
    let Some(token) = jwt::Said::of(target.token.expose()) else {
        context::forget(&contexts, &named.name)?;
        return Err(Failure::NoToken);
    };
    let input = json!({"tokenId": token.jti});
    match Relay::new(&target)?.call(&REVOKE.method.path(), &input).await {
        Ok(_) => {}
        // It counts no more already.
        Err(CallError::Problem(problem)) if counts_no_more(&problem) => {}
        Err(error) => return Err(error.into()),
    }
    context::forget(&contexts, &named.name)?;
    let answer: Value = json!({"tokenId": token.jti, "context": named.name});
    Ok(terminal::answer(&super::yaml::to_yaml(&answer))?)
}

fn counts_no_more(problem: &Problem) -> bool {
    matches!(problem.code, Code::Unauthenticated | Code::NotFound)
}

/// A loopback's address as a query has it.
fn encoded(address: &str) -> String {
    address.replace(':', "%3A").replace('/', "%2F")
}
