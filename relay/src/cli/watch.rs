//! `relay admin tasks watch`: what there is to do, again and again. On a terminal a table that is drawn anew; else a line of
//! JSON for each task that is new or has changed, for programs. Ctrl-C ends it, and so does, at the next
//! line, a reader that went away.

use super::{
    World,
    call::{CallError, Relay},
    exit::Exit,
    humane, local, operate,
    output::{self, Format},
    refresh,
    target::{Target, TargetError},
    terminal, tree,
};
use clap::{Arg, ArgMatches, Command};
use serde_json::{Value, json};
use shared::{
    api::tasks::{LIST, QUEUES, TaskState},
    terminal::{harmless_json, shown},
};
use std::{
    collections::HashMap,
    io::{self, IsTerminal as _},
    time::Duration,
};

/// The group that it stands in, and its name there.
pub(super) const NAME: (&str, &str) = ("admin tasks", "watch");

/// What is shown unless a state is named: all but what is done. Of what waits or is at work the oldest, which is next; of what
/// has ended the newest.
const OPEN: [TaskState; 4] = [TaskState::Active, TaskState::Retry, TaskState::Archived, TaskState::Pending];
/// The most tasks of a state that are shown.
const SHOWN_OF_A_STATE: u64 = 50;
/// How many tasks it remembers, so that a line is written only for what has changed.
const MAX_REMEMBERED: usize = 10_000;
/// Puts the cursor to the top of an empty screen.
const CLEAR: &str = "\x1b[2J\x1b[H";

const QUEUE: &str = "queue";
const STATE: &str = "state";
const INTERVAL: &str = "interval";

/// The command, as clap knows it.
pub(super) fn command() -> Command {
    let states = TaskState::ALL.map(TaskState::as_str);
    Command::new(NAME.1)
        .about("Show what is to be done, as it goes on, until Ctrl-C.")
        .after_help(format!(
            "On a terminal a table, drawn anew; else a line of JSON for each task that is new or has changed. At most \
             {SHOWN_OF_A_STATE} tasks of each state: the oldest of those that wait, the newest of those that have ended. Calls {} and {}.",
            LIST.method.name, QUEUES.method.name
        ))
        .arg(Arg::new(QUEUE).long(QUEUE).value_name("QUEUE").help("Those of this queue alone"))
        .arg(
            Arg::new(STATE)
                .long(STATE)
                .value_name("STATE")
                .value_parser(states)
                .help("Those in this state alone [default: all but completed]"),
        )
        .arg(
            Arg::new(INTERVAL)
                .long(INTERVAL)
                .value_name("DURATION")
                .value_parser(humane::parse_seconds)
                .help("How often to look, from 1s to 1h [default: 2s]"),
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

    /// Whether another credential may do.
    fn is_of_credential(&self) -> bool {
        self.exit() == Exit::Unauthenticated
    }

    /// Whether it may be gone at the next look.
    fn passes(&self) -> bool {
        self.exit() == Exit::TryAgain
    }
}

/// Runs the command.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    let watched = async {
        tokio::select! {
            watched = watch(flags, world) => watched,
            _ = tokio::signal::ctrl_c() => Ok(()),
        }
    };
    match local::finish(watched) {
        Ok(Ok(())) => Exit::Ok,
        Ok(Err(failure)) => {
            terminal::say(&format_args!("{} {}: {}", NAME.0, NAME.1, shown(&failure.to_string())));
            failure.exit()
        }
        Err(exit) => exit,
    }
}

async fn watch(flags: &ArgMatches, world: &World<'_>) -> Result<(), Failure> {
    let mut target = Target::find(&operate::said(flags, world)?)?;
    let mut relay = Relay::new(&target)?;
    let text = |id: &str| flags.get_one::<String>(id).map(String::as_str);
    let seconds = flags.get_one::<i64>(INTERVAL).copied().unwrap_or(2).clamp(1, 3_600);
    let pause = Duration::from_secs(seconds.unsigned_abs());
    let draws = io::stdout().is_terminal();
    let mut known = Known::default();
    let mut failing = false;
    loop {
        relay = refresh::lazily(relay, &target, world).await;
        match look(&relay, text(QUEUE), text(STATE)).await {
            Ok(seen) => {
                failing = false;
                let text = if draws { screen(&seen, world) } else { known.lines(&seen.tasks) };
                if !text.is_empty() && !terminal::follow(&text)? {
                    return Ok(());
                }
            }
            Err(failure) if failure.is_of_credential() => {
                // Its place may have another by now: after a login, or a new pair of bootstrap credentials.
                let newer = Target::find(&operate::said(flags, world)?)?;
                if newer.token.matches(&target.token) {
                    return Err(failure);
                }
                (relay, target) = (Relay::new(&newer)?, newer);
                continue;
            }
            Err(failure) if !failure.passes() => return Err(failure),
            Err(_) if failing => {}
            Err(failure) => {
                failing = true;
                terminal::say(&format_args!("{}; it is tried again", shown(&failure.to_string())));
            }
        }
        tokio::time::sleep(pause).await;
    }
}

/// What one look saw.
struct Seen {
    queues: Value,
    tasks: Vec<Value>,
}

async fn look(relay: &Relay, queue: Option<&str>, state: Option<&str>) -> Result<Seen, Failure> {
    let queues = relay.call(&QUEUES.method.path(), &json!({})).await?;
    let open = OPEN.map(TaskState::as_str);
    let states = state.as_ref().map_or(open.as_slice(), std::slice::from_ref);
    let mut tasks = Vec::new();
    for state in states {
        let ended = [TaskState::Completed, TaskState::Archived].map(TaskState::as_str).contains(state);
        let mut input = json!({"state": state, "newestFirst": ended, "limit": SHOWN_OF_A_STATE});
        if let (Some(queue), Some(members)) = (queue, input.as_object_mut()) {
            members.insert(QUEUE.to_owned(), queue.into());
        }
        let mut page = relay.call(&LIST.method.path(), &input).await?;
        if let Some(Value::Array(some)) = page.get_mut("tasks").map(Value::take) {
            tasks.extend(some);
        }
    }
    Ok(Seen { queues, tasks })
}

fn screen(seen: &Seen, world: &World<'_>) -> String {
    let now = world.clock.now();
    let counts = output::render(&QUEUES.method, &seen.queues, Some(Format::Table), now);
    let tasks = json!({"tasks": seen.tasks});
    let tasks = output::render(&LIST.method, &tasks, Some(Format::Table), now);
    format!("{CLEAR}{counts}\n{tasks}")
}

/// The tasks that were told, as they were.
#[derive(Default)]
struct Known(HashMap<String, Value>);

impl Known {
    /// A line for each task that is new or has changed.
    fn lines(&mut self, tasks: &[Value]) -> String {
        if self.0.len() > MAX_REMEMBERED {
            let ids: Vec<&str> = tasks.iter().filter_map(|task| task.get("id")?.as_str()).collect();
            self.0.retain(|id, _| ids.contains(&id.as_str()));
        }
        let mut lines = String::new();
        for task in tasks {
            let Some(id) = task.get("id").and_then(Value::as_str) else { continue };
            if self.0.insert(id.to_owned(), task.clone()).as_ref() != Some(task) {
                lines.push_str(&harmless_json(&format!("{task}\n")));
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_for_what_is_new_or_has_changed() {
        let task = |id: &str, state: &str| json!({"id": id, "state": state});
        let mut known = Known::default();
        let told = known.lines(&[task("task_1", "pending"), task("task_2", "pending")]);
        assert_eq!(told.lines().count(), 2);
        let told = known.lines(&[task("task_1", "active"), task("task_2", "pending")]);
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(told, task("task_1", "active"));
        assert_eq!(known.lines(&[task("task_2", "pending")]), "");
    }

    #[test]
    fn only_what_may_pass_is_waited_out() {
        let lost = CallError::Transport { relay: String::new(), why: String::new() };
        assert!(Failure::from(lost).passes());
        let problem = shared::problem::Problem::new(shared::problem::Code::PermissionDenied, "x");
        assert!(!Failure::from(CallError::Problem(Box::new(problem))).passes());
    }
}
