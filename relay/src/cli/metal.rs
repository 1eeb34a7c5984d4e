//! `relay metal watch` and `relay metal enroll --file`: many machines at once.

mod file;
mod watch;

pub(super) use watch::{NAME, command, run};

use super::{
    World,
    call::{CallError, Relay},
    exit::Exit,
    local, operate,
    output::{self, Format},
    refresh,
    target::{Target, TargetError},
    terminal,
    tree::ids,
};
use clap::{Arg, ArgMatches, ValueHint};
use serde_json::{Value, json};
use shared::{
    api::metal::ENROLL,
    problem::{Code, Problem},
    terminal::shown,
};
use std::{
    fs::File,
    io::{self, Read as _},
    time::Duration,
};

/// The group and the verb that take a file.
pub(super) const ENROLL_NAME: (&str, &str) = ("metal", "enroll");
/// The argument of the file.
const FILE: &str = "machines file";
/// How often one machine is sent while the relay says "later".
const MAX_TRIES: u32 = 20;
/// The longest wait before a try.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The columns of the answer.
const COLUMNS: [(&str, bool); 4] =
    [("line", false), ("address", false), ("nodeId", false), ("result", false)];

/// The argument that names the file.
pub(super) fn argument() -> Arg {
    Arg::new(FILE)
        .long("file")
        .value_name("FILE.csv")
        .value_hint(ValueHint::FilePath)
        .help(format!(
            "Enroll a machine for each line of this file instead: the first line holds the heads, address and any of {}. It may \
             be sent again; it holds passwords, so keep it private",
            file::HEADS.get(1..).unwrap_or_default().join(", ")
        ))
}

/// Whether a file is named.
pub(super) fn has_file(flags: &ArgMatches) -> bool {
    flags.contains_id(FILE)
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("read {0}: {1}")]
    Read(String, io::Error),
    #[error("{0} has {1} bad lines; nothing was sent")]
    Lines(String, usize),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Target(error) => operate::exit_of_target(error),
            Self::Read(..) | Self::Lines(..) => Exit::Usage,
            Self::Call(CallError::Problem(problem)) => problem.code.into(),
            Self::Call(CallError::Transport { .. }) => Exit::TryAgain,
            Self::Call(_) | Self::Output(_) => Exit::Refused,
        }
    }
}

/// Enrolls the machines of a file.
pub(super) fn enroll(flags: &ArgMatches, world: &World<'_>) -> Exit {
    attempt(flags, world).unwrap_or_else(|failure| {
        terminal::say(&format_args!("metal enroll: {}", shown(&failure.to_string())));
        failure.exit()
    })
}

fn attempt(flags: &ArgMatches, world: &World<'_>) -> Result<Exit, Failure> {
    let said = operate::said(flags, world)?;
    let text = |id: &str| flags.get_one::<String>(id).cloned();
    let name = text(FILE).unwrap_or_default();
    let tenant = text("tenantId").unwrap_or_else(|| said.tenant(world));
    let place = file::Place { tenant: &tenant, pool: &text("poolId").unwrap_or_default() };
    let bytes = read(&name).map_err(|error| Failure::Read(name.clone(), error))?;
    let machines = file::read(&bytes, place).map_err(|bad| {
        for file::Bad { line, rule } in bad.iter().take(file::MAX_SHOWN) {
            terminal::say(&format_args!("line {line}: {}", shown(rule)));
        }
        Failure::Lines(name.clone(), bad.len())
    })?;
    let target = Target::find(&said)?;
    let relay = Relay::new(&target)?;
    let sent = async {
        let relay = refresh::lazily(relay, &target, world).await;
        send_all(&relay, &machines).await
    };
    let sent = match local::finish(sent) {
        Ok(sent) => sent,
        Err(exit) => return Ok(exit),
    };
    let format = flags.get_one::<Format>(ids::OUTPUT).copied();
    let answer = json!({"machines": sent.results});
    terminal::answer(&output::render_list("machines", &COLUMNS, &answer, format, world.clock.now()))?;
    match sent.stopped {
        Some(error) => Err(error.into()),
        None => Ok(sent.refused.map_or(Exit::Ok, Exit::from)),
    }
}

fn read(name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(name)?.take(file::MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > file::MAX_BYTES {
        let rule = format!("it is over {} bytes", file::MAX_BYTES);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, rule));
    }
    Ok(bytes)
}

/// What became of the machines.
struct Sent {
    results: Vec<Value>,
    refused: Option<Code>,
    stopped: Option<CallError>,
}

/// Sends machine by machine. A refusal of one is noted; what would meet every other one too ends it.
async fn send_all(relay: &Relay, machines: &[file::Machine]) -> Sent {
    let mut sent = Sent { results: Vec::new(), refused: None, stopped: None };
    for machine in machines {
        let (node, result) = match send(relay, &machine.body).await {
            Ok(answer) => {
                let node = answer.pointer("/node/nodeId").cloned().unwrap_or_default();
                (node, "enrolling".to_owned())
            }
            Err(CallError::Problem(problem)) if is_of_one(&problem) => {
                sent.refused.get_or_insert(problem.code);
                (Value::Null, problem.to_string())
            }
            Err(error) => {
                sent.stopped = Some(error);
                break;
            }
        };
        let row = json!({"line": machine.line, "address": machine.address, "nodeId": node, "result": result});
        sent.results.push(row);
    }
    sent
}

/// One call, made again while the relay says when.
async fn send(relay: &Relay, body: &Value) -> Result<Value, CallError> {
    let path = ENROLL.method.path();
    let mut tries = 1;
    loop {
        match relay.call(&path, body).await {
            Err(CallError::Problem(problem)) if tries < MAX_TRIES && is_for_later(&problem) => {
                let seconds = u64::from(problem.retry_after_seconds.unwrap_or(1));
                tokio::time::sleep(Duration::from_secs(seconds).min(MAX_WAIT)).await;
                tries += 1;
            }
            other => return other,
        }
    }
}

fn is_for_later(problem: &Problem) -> bool {
    matches!(problem.code, Code::ResourceExhausted | Code::Unavailable)
}

/// Whether it is this machine that was refused, and not the caller, the pool or everything.
fn is_of_one(problem: &Problem) -> bool {
    matches!(problem.code, Code::InvalidInput | Code::Conflict)
}
