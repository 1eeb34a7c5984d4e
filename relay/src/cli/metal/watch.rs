//! `relay metal watch`: the machines of a pool as their workflows go on. On a terminal a table that is drawn anew; else a line of JSON
//! for each machine that is new or has changed, for programs. It ends by Ctrl-C, at the next line by a reader that went away, and
//! with `--until-done` once no machine is in a workflow: then with exit code 1 where one has failed.

use crate::cli::{
    World,
    call::{CallError, Relay},
    exit::Exit,
    humane, local, operate,
    output::{self, Format},
    refresh,
    target::{Target, TargetError},
    terminal, tree,
};
use clap::{Arg, ArgAction, ArgMatches, Command};
use serde_json::{Value, json};
use shared::{
    api::metal::{LIST, MetalState, StatePhase},
    terminal::{harmless_json, shown},
};
use std::{
    collections::HashMap,
    io::{self, IsTerminal as _},
    time::Duration,
};

/// The group that it stands in, and its name there.
pub(in crate::cli) const NAME: (&str, &str) = ("metal", "watch");

/// The most machines that are shown.
const MAX_SHOWN: usize = 2_000;
/// The most machines of a page.
const PAGE: u64 = 200;
/// How often it is looked unless told otherwise.
const DEFAULT_INTERVAL: Duration = Duration::from_secs(2);
/// Puts the cursor to the top of an empty screen.
const CLEAR: &str = "\x1b[2J\x1b[H";

const POOL: &str = "pool";
const TENANT: &str = "tenant";
const INTERVAL: &str = "interval";
const UNTIL_DONE: &str = "until done";

/// The command, as clap knows it.
pub(in crate::cli) fn command() -> Command {
    Command::new(NAME.1)
        .about("Show a pool's machines as their workflows go on, until Ctrl-C.")
        .after_help(format!(
            "On a terminal a table, drawn anew; else a line of JSON for each machine that is new or has changed. At most \
             {MAX_SHOWN} machines. Calls {}.",
            LIST.method.name
        ))
        .arg(Arg::new(POOL).long(POOL).visible_alias("pool-id").value_name("POOL").required(true).help("The pool"))
        .arg(
            Arg::new(TENANT)
                .long(TENANT)
                .visible_alias("tenant-id")
                .value_name("TENANT")
                .help("The pool's tenant [default: RELAY_TENANT, else the context's, else provider]"),
        )
        .arg(
            Arg::new(INTERVAL)
                .long(INTERVAL)
                .value_name("DURATION")
                .value_parser(humane::parse_seconds)
                .help("How often to look, from 1s to 1h [default: 2s]"),
        )
        .arg(
            Arg::new(UNTIL_DONE)
                .long("until-done")
                .action(ArgAction::SetTrue)
                .help("End once no machine is in a workflow: with exit code 1 where one has failed"),
        )
        .args(tree::relay())
        .arg(tree::context_name("The context to use (RELAY_CONTEXT) [default: the active one]"))
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Target(error) => operate::exit_of_target(error),
            Self::Call(CallError::Problem(problem)) => problem.code.into(),
            Self::Call(CallError::Transport { .. }) => Exit::TryAgain,
            Self::Call(_) | Self::Output(_) => Exit::Refused,
        }
    }
}

/// Runs the command.
pub(in crate::cli) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    attempt(flags, world).unwrap_or_else(|failure| {
        terminal::say(&format_args!("{} {}: {}", NAME.0, NAME.1, shown(&failure.to_string())));
        failure.exit()
    })
}

fn attempt(flags: &ArgMatches, world: &World<'_>) -> Result<Exit, Failure> {
    let said = operate::said(flags, world)?;
    let target = Target::find(&said)?;
    let relay = Relay::new(&target)?;
    let text = |id: &str| flags.get_one::<String>(id).cloned();
    let input = json!({
        "tenantId": text(TENANT).unwrap_or_else(|| said.tenant(world)), "poolId": text(POOL), "limit": PAGE,
    });
    let watched = async {
        let relay = refresh::lazily(relay, &target, world).await;
        watch(&relay, &input, flags, world).await
    };
    match local::finish(watched) {
        Ok(ended) => ended,
        Err(exit) => Ok(exit),
    }
}

async fn watch(relay: &Relay, input: &Value, flags: &ArgMatches, world: &World<'_>) -> Result<Exit, Failure> {
    let draws = io::stdout().is_terminal();
    let asked = flags.get_one::<i64>(INTERVAL).and_then(|seconds| u64::try_from(*seconds).ok());
    let pause = asked.map_or(DEFAULT_INTERVAL, |seconds| Duration::from_secs(seconds.clamp(1, 3_600)));
    let mut known = HashMap::new();
    loop {
        match look(relay, input).await {
            Ok(machines) => {
                let text = if draws { screen(&machines, world) } else { lines(&mut known, &machines) };
                if !text.is_empty() && !terminal::follow(&text)? {
                    return Ok(Exit::Ok);
                }
                if let Some(exit) = ended(&machines).filter(|_| flags.get_flag(UNTIL_DONE)) {
                    return Ok(exit);
                }
            }
            Err(failure) if failure.exit() == Exit::TryAgain => {
                terminal::say(&format_args!("{}; it is tried again", shown(&failure.to_string())));
            }
            Err(failure) => return Err(failure),
        }
        tokio::time::sleep(pause).await;
    }
}

/// The pool's machines, page by page.
async fn look(relay: &Relay, input: &Value) -> Result<Vec<Value>, Failure> {
    let (mut machines, mut input) = (Vec::new(), input.clone());
    while machines.len() < MAX_SHOWN {
        let mut page = relay.call(&LIST.method.path(), &input).await?;
        if let Some(Value::Array(some)) = page.get_mut("nodes").map(Value::take) {
            machines.extend(some);
        }
        match (page.get_mut("cursor").map(Value::take), input.as_object_mut()) {
            (Some(cursor), Some(members)) if !cursor.is_null() => {
                members.insert("cursor".to_owned(), cursor);
            }
            _ => break,
        }
    }
    machines.truncate(MAX_SHOWN);
    Ok(machines)
}

/// What it comes to once no machine is in a workflow; `None` while one is.
fn ended(machines: &[Value]) -> Option<Exit> {
    let phases: Vec<StatePhase> = machines
        .iter()
        .filter_map(|machine| serde_json::from_value::<MetalState>(machine.get("state")?.clone()).ok())
        .map(MetalState::phase)
        .collect();
    if phases.contains(&StatePhase::Transient) {
        None
    } else if phases.contains(&StatePhase::Failed) {
        Some(Exit::Refused)
    } else {
        Some(Exit::Ok)
    }
}

fn screen(machines: &[Value], world: &World<'_>) -> String {
    let answer = json!({"nodes": machines});
    format!("{CLEAR}{}", output::render(&LIST.method, &answer, Some(Format::Table), world.clock.now()))
}

/// A line for each machine that is new or has changed.
fn lines(known: &mut HashMap<String, Value>, machines: &[Value]) -> String {
    let mut lines = String::new();
    for machine in machines {
        let Some(id) = machine.get("nodeId").and_then(Value::as_str) else { continue };
        if known.insert(id.to_owned(), machine.clone()).as_ref() != Some(machine) {
            lines.push_str(&harmless_json(&format!("{machine}\n")));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends_when_no_machine_is_in_a_workflow() {
        let of =
            |states: &[&str]| ended(&states.iter().map(|state| json!({"state": state})).collect::<Vec<_>>());
        assert_eq!(of(&["enrolled", "deploying"]), None);
        assert_eq!(of(&["enrolled", "deployFailed", "releasing"]), None);
        assert_eq!(of(&["enrolled", "deployFailed"]), Some(Exit::Refused));
        assert_eq!(of(&["enrolled", "deployed"]), Some(Exit::Ok));
        assert_eq!(of(&[]), Some(Exit::Ok));
    }

    #[test]
    fn a_line_comes_for_what_is_new_or_has_changed() {
        let machine = |id: &str, state: &str| json!({"nodeId": id, "state": state});
        let mut known = HashMap::new();
        assert_eq!(
            lines(&mut known, &[machine("a", "enrolling"), machine("b", "enrolled")]).lines().count(),
            2
        );
        let told = lines(&mut known, &[machine("a", "enrolled"), machine("b", "enrolled")]);
        assert_eq!(serde_json::from_str::<Value>(&told).unwrap(), machine("a", "enrolled"));
        assert_eq!(lines(&mut known, &[machine("a", "enrolled")]), "");
    }
}
