//! `relay context add|list|remove|use|set-project|show`: the relays that somebody works with. Asks no relay.

use super::{
    World,
    contexts::{Context, ContextError, Contexts},
    exit::Exit,
    output::{self, Format},
    terminal,
    tree::{self, ids},
};
use crate::config::{InvalidRelayUrl, RelayUrl};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};
use std::io;

const NAME: &str = "context";
const TENANT: &str = "tenant";
const PROJECT: &str = "project";

/// The columns of the list.
const COLUMNS: [(&str, bool); 5] =
    [("name", false), ("active", false), ("relay", false), ("tenant", false), ("project", false)];

/// Why a command on contexts failed.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Contexts(#[from] ContextError),
    #[error("give --relay URL: its address {0}")]
    Url(#[from] InvalidRelayUrl),
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Contexts(ContextError::Unknown(_) | ContextError::NoneActive) => Exit::NotFound,
            Self::Contexts(ContextError::Name | ContextError::NoHome) | Self::Url(_) => Exit::Usage,
            Self::Contexts(_) | Self::Io(_) => Exit::Refused,
        }
    }
}

/// The commands.
#[must_use]
pub(super) fn command() -> Command {
    let name = || Arg::new(NAME).value_name("NAME").help("The context's name");
    let option =
        |id: &'static str, help: &'static str| Arg::new(id).long(id).value_name(id.to_uppercase()).help(help);
    let add = Command::new("add")
        .about(
            "Add a context without logging in; of one that there is, change what is given and keep the rest",
        )
        .arg(name().required(true))
        .args(
            tree::relay()
                .into_iter()
                .filter(|arg| [ids::RELAY, ids::CA_FILE].contains(&arg.get_id().as_str())),
        )
        .arg(option(TENANT, "The tenant where none is given"))
        .arg(option(PROJECT, "The project where none is given"));
    let project = Arg::new(PROJECT)
        .value_name("PROJECT")
        .help("The project, one of the context's tenant; '' for none")
        .required(true);
    Command::new("context")
        .about("Show and choose the relays that you work with")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(add)
        .subcommand(Command::new("list").about("List the contexts").arg(tree::output()))
        .subcommand(
            Command::new("remove")
                .about("Remove a context and its credential from this machine; relay logout also ends the credential")
                .arg(name().required(true)),
        )
        .subcommand(Command::new("use").about("Make a context the active one").arg(name().required(true)))
        .subcommand(
            Command::new("set-project")
                .about("Set the project that is used where --project is not given")
                .arg(project)
                .arg(tree::context_name("The context [default: the active one]")),
        )
        .subcommand(
            Command::new("show")
                .about("Show a context [default: the active one]")
                .arg(name())
                .arg(tree::output()),
        )
}

/// Runs one of them.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let Some((verb, flags)) = flags.subcommand() else { return Exit::Usage };
    let done = match verb {
        "add" => add(flags, world),
        "list" => list(flags, world),
        "remove" => remove(flags, world),
        "use" => activate(flags, world),
        "set-project" => set_project(flags, world),
        _ => show(flags, world),
    };
    match done {
        Ok(()) => Exit::Ok,
        Err(failure) => {
            terminal::say(&format_args!("context {verb}: {failure}"));
            failure.exit()
        }
    }
}

fn text<'a>(flags: &'a ArgMatches, id: &str) -> Option<&'a str> {
    flags.get_one::<String>(id).map(String::as_str)
}

fn add(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let name = text(flags, NAME).unwrap_or_default();
    let mut contexts = Contexts::load(world.env)?;
    let known = contexts.all().find(|(known, _)| *known == name).map(|(_, context)| context.clone());
    let relay = text(flags, ids::RELAY).map(str::to_owned).or_else(|| Some(known.as_ref()?.relay.clone()));
    let relay: RelayUrl = relay.unwrap_or_default().parse()?;
    let of = |id: &str, known: Option<String>| text(flags, id).map(str::to_owned).or(known);
    let ca_file = text(flags, ids::CA_FILE).map(std::path::absolute).transpose()?;
    let context = Context {
        relay: relay.to_string(),
        ca_file: ca_file.or_else(|| known.as_ref()?.ca_file.clone()),
        tenant: of(TENANT, known.as_ref().and_then(|known| known.tenant.clone())),
        project: of(PROJECT, known.as_ref().and_then(|known| known.project.clone())),
    };
    // A credential goes to the relay that gave it, and to no other.
    let moves = known.as_ref().is_some_and(|known| known.relay != context.relay);
    if moves {
        forget(&contexts, name)?;
    }
    contexts.put(name, context)?;
    if contexts.active().is_none() {
        contexts.activate(name)?;
    }
    contexts.save()?;
    let done = match (known, moves) {
        (None, _) => "was added",
        (Some(_), false) => "was there and is changed; what was not given stays",
        (Some(_), true) => "was there and leads to another relay now; its credential is removed, log in anew",
    };
    terminal::say(&format_args!("the context {name} {done}"));
    Ok(())
}

fn remove(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let name = text(flags, NAME).unwrap_or_default();
    let mut contexts = Contexts::load(world.env)?;
    contexts.named(Some(name))?.ok_or(ContextError::NoneActive)?;
    forget(&contexts, name)?;
    let was_active = contexts.remove(name);
    contexts.save()?;
    let none = if was_active { "; none is active now" } else { "" };
    terminal::say(&format_args!(
        "the context {name} and its credential are removed here{none}; what the credential may, it may until it ends"
    ));
    Ok(())
}

/// Removes a context's credential from this machine; it is not ended by that.
///
/// # Errors
/// The file is there and can't be removed.
pub(super) fn forget(contexts: &Contexts, name: &str) -> Result<(), ContextError> {
    let path = contexts.token_file(name)?;
    match std::fs::remove_file(&path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ContextError::File { doing: "remove", path, source })
        }
        _ => Ok(()),
    }
}

fn list(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let contexts = Contexts::load(world.env)?;
    let rows = contexts.all().map(|(name, context)| shown(&contexts, name, context));
    let answer = json!({"contexts": rows.collect::<Vec<_>>()});
    let format = flags.get_one::<Format>(ids::OUTPUT).copied();
    Ok(terminal::answer(&output::render_list("contexts", &COLUMNS, &answer, format, world.clock.now()))?)
}

fn show(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let contexts = Contexts::load(world.env)?;
    let named = contexts.named(text(flags, NAME))?.ok_or(ContextError::NoneActive)?;
    let answer = shown(&contexts, &named.name, &named.context);
    let json = flags.get_one::<Format>(ids::OUTPUT) == Some(&Format::Json);
    Ok(terminal::answer(&if json { output::json(&answer) } else { super::yaml::to_yaml(&answer) })?)
}

fn shown(contexts: &Contexts, name: &str, context: &Context) -> Value {
    let logged_in = contexts.token_file(name).is_ok_and(|path| path.exists());
    json!({
        "name": name, "active": contexts.active() == Some(name), "relay": context.relay,
        "caFile": context.ca_file, "tenant": context.tenant, "project": context.project, "loggedIn": logged_in,
    })
}

fn activate(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let mut contexts = Contexts::load(world.env)?;
    contexts.activate(text(flags, NAME).unwrap_or_default())?;
    Ok(contexts.save()?)
}

fn set_project(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let mut contexts = Contexts::load(world.env)?;
    let named = (world.env)("RELAY_CONTEXT");
    let name = text(flags, ids::CONTEXT).or(named.as_deref());
    let mut named = contexts.named(name)?.ok_or(ContextError::NoneActive)?;
    named.context.project = text(flags, PROJECT).filter(|project| !project.is_empty()).map(str::to_owned);
    let of = match &named.context.tenant {
        Some(tenant) => format!(" of the tenant {tenant}"),
        None => String::new(),
    };
    let said = match &named.context.project {
        Some(project) => {
            format!("the context {} uses the project {project}{of} where --project is not given", named.name)
        }
        None => format!("the context {} uses no project where --project is not given", named.name),
    };
    contexts.put(&named.name, named.context)?;
    contexts.save()?;
    terminal::say(&said);
    Ok(())
}
