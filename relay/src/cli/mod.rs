//! The command line: what `relay` is told, and all that it does but serve. `serve` is handed back to `main`, which
//! alone may start the server. Nothing here holds rules of the API: those are the relay's, asked over HTTPS.

mod audit;
mod backup;
mod begun;
mod ca;
mod call;
mod context;
mod contexts;
mod device;
mod doctor;
mod exit;
mod humane;
mod input;
mod inventory;
mod local;
mod login;
mod loopback;
mod metal;
mod operate;
mod output;
mod own_root;
mod pages;
mod refresh;
mod restore;
mod secret_out;
mod target;
mod template;
mod terminal;
#[cfg(test)]
mod tests;
mod tree;
mod verbs;
mod watch;
mod yaml;

pub use exit::Exit;
pub use terminal::say;

use crate::{clock::Clock, config::Settings, random::Random};
use clap::{ArgMatches, Command};
use clap_complete::Shell;
use shared::{api::Method, token::looks_like_token};
use std::{ffi::OsString, io, path::Path};
use verbs::Verb;

/// What the command line takes from its surroundings.
pub struct World<'a> {
    /// The environment; an empty variable is none.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// The names of all variables.
    pub names: &'a dyn Fn() -> Vec<String>,
    /// The time.
    pub clock: &'a Clock,
    /// Randomness, for idempotency keys and names of files.
    pub random: &'a Random,
}

/// What `relay` was told.
pub enum Start {
    /// Serve with these settings.
    Serve(Box<Settings>),
    /// Something that is done now.
    Ended(Exit),
}

/// Reads the command line and does what it says, but for `serve`.
pub fn start<I>(arguments: I, methods: &[Method], world: &World<'_>) -> Start
where
    I: IntoIterator<Item = OsString>,
{
    let verbs = match verbs_of(methods) {
        Ok(verbs) => verbs,
        Err(fault) => {
            say(&format_args!("build the command line: {fault}"));
            return Start::Ended(Exit::Refused);
        }
    };
    match tree::command(&verbs).try_get_matches_from(context_last(arguments.into_iter().collect())) {
        Ok(matches) => run(&matches, &verbs, methods, world),
        // Help and version are no errors; clap prints them to standard output.
        Err(error) => {
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Ok };
            // A secret that was given as an argument must not end up in a log too.
            let text = error.to_string();
            let printed = if looks_like_token(&text) {
                say(&text);
                Ok(())
            } else {
                error.print()
            };
            Start::Ended(if printed.is_ok() { exit } else { Exit::Refused })
        }
    }
}

/// A context may be named before the command too.
fn context_last(mut arguments: Vec<OsString>) -> Vec<OsString> {
    let words = match arguments.get(1).and_then(|word| word.to_str()) {
        Some("--context") => 2,
        Some(word) if word.starts_with("--context=") => 1,
        _ => return arguments,
    };
    if let Some(said) = arguments.get_mut(1..).filter(|said| said.len() > words) {
        said.rotate_left(words);
    }
    arguments
}

/// The verbs of all methods that people and services call.
fn verbs_of(methods: &[Method]) -> Result<Vec<Verb>, String> {
    methods.iter().filter(|method| method.for_operators()).map(Verb::of).collect()
}

fn run(matches: &ArgMatches, verbs: &[Verb], methods: &[Method], world: &World<'_>) -> Start {
    let Some((name, flags)) = matches.subcommand() else { return Start::Ended(Exit::Usage) };
    let exit = match name {
        "serve" => match local::settings(flags, world) {
            Ok(settings) => return Start::Serve(Box::new(settings)),
            Err(exit) => exit,
        },
        "migrate" => local::migrate(flags, world),
        "backup" => backup::run(flags, world),
        "restore" => restore::run(flags, world),
        "doctor" => doctor::run(flags, world),
        "ca" => ca::run(flags, world),
        "login" => login::login(flags, world),
        "logout" => login::logout(flags, world),
        "context" => context::run(flags, world),
        "token" => refresh::run(flags, world),
        "completion" => completion(flags, verbs),
        "man" => written(pages::man(tree::command(verbs), folder_of(flags))),
        "reference" => written(pages::reference(methods, folder_of(flags))),
        group => operate_group(group, flags, verbs, world),
    };
    Start::Ended(exit)
}

fn operate_group(group: &str, flags: &ArgMatches, verbs: &[Verb], world: &World<'_>) -> Exit {
    let Some((name, flags)) = flags.subcommand() else { return Exit::Usage };
    // A module's groups are one level deeper.
    let deeper = format!("{group} ");
    if verbs.iter().any(|verb| verb.group.starts_with(&deeper)) {
        return operate_group(&format!("{deeper}{name}"), flags, verbs, world);
    }
    if (group, name) == watch::NAME {
        return watch::run(flags, world);
    }
    if (group, name) == inventory::NAME {
        return inventory::run(flags, world);
    }
    if (group, name) == metal::NAME {
        return metal::run(flags, world);
    }
    if (group, name) == metal::ENROLL_NAME && metal::has_file(flags) {
        return metal::enroll(flags, world);
    }
    if (group, name) == audit::NAME {
        return audit::run(flags, world);
    }
    match verbs.iter().find(|verb| verb.group == group && verb.name == name) {
        Some(verb) => operate::run(verb, flags, world),
        None => Exit::Usage,
    }
}

fn completion(flags: &ArgMatches, verbs: &[Verb]) -> Exit {
    let shell = flags.get_one::<String>("shell").and_then(|name| name.parse::<Shell>().ok());
    let Some(shell) = shell else { return Exit::Usage };
    let command: Command = tree::command(verbs);
    written(terminal::answer(&pages::completion(command, shell)))
}

fn folder_of(flags: &ArgMatches) -> &Path {
    flags.get_one::<String>("folder").map_or(Path::new("."), Path::new)
}

fn written(result: io::Result<()>) -> Exit {
    match result {
        Ok(()) => Exit::Ok,
        Err(error) => {
            say(&format_args!("write: {error}"));
            Exit::Refused
        }
    }
}
