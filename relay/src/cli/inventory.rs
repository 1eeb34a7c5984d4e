//! `relay inventory import`: many entries from one file. The whole file is judged before anything is sent; then each
//! entry is one call, which may be made again: whoever is interrupted imports the file once more.

pub(super) mod file;

use super::{
    World,
    call::{CallError, Relay},
    exit::Exit,
    local, operate,
    output::{self, Format},
    refresh,
    target::{Target, TargetError},
    template::InvalidTemplate,
    terminal,
    tree::{connection, ids},
};
use crate::api::validate::InputSchema;
use clap::{Arg, ArgMatches, Command, ValueHint};
use file::{Bad, Entry, HEADS, MAX_BYTES, Place};
use serde_json::{Value, json};
use shared::{
    api::inventory::PUT,
    problem::{Code, Problem},
    terminal::shown,
};
use std::{
    fs::File,
    io::{self, IsTerminal as _, Read as _, Write as _},
    time::Duration,
};

/// The group that it stands in, and its name there.
pub(super) const NAME: (&str, &str) = ("inventory", "import");

/// The most bad lines that are shown.
const MAX_SHOWN: usize = 50;
/// How often one entry is sent while the relay says "later".
const MAX_TRIES: u32 = 20;
/// The longest wait before a try.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The columns of the answer.
const COLUMNS: [(&str, bool); 3] = [("line", false), ("entryId", false), ("result", false)];

const FILE: &str = "file";
const POOL: &str = "pool";
const TENANT: &str = "tenant";

/// The command, as clap knows it.
pub(super) fn command() -> Command {
    let text = |id: &'static str, value: &'static str| Arg::new(id).long(id).value_name(value);
    Command::new(NAME.1)
        .about("Write entries of a pool's inventory from a CSV file.")
        .after_help(format!(
            "The first line holds the heads: entryId and any of {}. An empty cell is no value. Nothing is sent \
             unless every line is good; a file may be imported again. Calls {} for each entry.",
            HEADS.get(1..).unwrap_or_default().join(", "),
            PUT.method.name,
        ))
        .arg(Arg::new(FILE).value_name("FILE.csv").value_hint(ValueHint::FilePath).required(true).help("The file"))
        .arg(text(POOL, "POOL").visible_alias("pool-id").required(true).help("The pool"))
        .arg(
            text(TENANT, "TENANT")
                .visible_alias("tenant-id")
                .help("The pool's tenant [default: RELAY_TENANT, else the context's, else provider]"),
        )
        .args(connection())
}

/// Why nothing, or not everything, was imported.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Target(#[from] TargetError),
    #[error("read --template: {0}")]
    Template(#[from] InvalidTemplate),
    #[error("read {0}: {1}")]
    Read(String, io::Error),
    #[error("{0} has {1} bad lines; nothing was sent")]
    Lines(String, usize),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("build the command line: {0}")]
    Table(String),
    #[error("{0}")]
    Output(#[from] io::Error),
}

impl Failure {
    fn exit(&self) -> Exit {
        match self {
            Self::Target(error) => operate::exit_of_target(error),
            Self::Template(_) | Self::Read(..) | Self::Lines(..) => Exit::Usage,
            Self::Call(CallError::Problem(problem)) => problem.code.into(),
            Self::Call(CallError::Transport { .. }) => Exit::TryAgain,
            Self::Call(_) | Self::Table(_) | Self::Output(_) => Exit::Refused,
        }
    }
}

/// Runs the command.
pub(super) fn run(flags: &ArgMatches, world: &World<'_>) -> Exit {
    match attempt(flags, world) {
        Ok(exit) => exit,
        Err(failure) => {
            terminal::say(&format_args!("{} {}: {}", NAME.0, NAME.1, shown(&failure.to_string())));
            failure.exit()
        }
    }
}

fn attempt(flags: &ArgMatches, world: &World<'_>) -> Result<Exit, Failure> {
    let said = operate::said(flags, world)?;
    let template = operate::template(flags)?;
    let entries = entries(flags, said.tenant(world))?;
    let target = Target::find(&said)?;
    let relay = Relay::new(&target)?;
    let sent = async {
        let relay = refresh::lazily(relay, &target, world).await;
        send_all(&relay, &entries).await
    };
    let imported = match local::finish(sent) {
        Ok(imported) => imported,
        Err(exit) => return Ok(exit),
    };
    let format = flags.get_one::<Format>(ids::OUTPUT).copied();
    let answer = json!({"entries": imported.results});
    terminal::answer(&match template {
        Some(template) => {
            template.render(answer.get("entries").and_then(Value::as_array).map(Vec::as_slice), &answer)
        }
        None => output::render_list("entries", &COLUMNS, &answer, format, world.clock.now()),
    })?;
    match imported.stopped {
        Some(error) => Err(error.into()),
        None => Ok(imported.refused.map_or(Exit::Ok, Exit::from)),
    }
}

/// The file's entries, all of them good.
fn entries(flags: &ArgMatches, default_tenant: String) -> Result<Vec<Entry>, Failure> {
    let text = |id: &str| flags.get_one::<String>(id).map(String::as_str);
    let name = text(FILE).unwrap_or_default();
    let tenant = text(TENANT).map_or(default_tenant, str::to_owned);
    let place = Place { tenant: &tenant, pool: text(POOL).unwrap_or_default() };
    let bytes = read(name).map_err(|error| Failure::Read(name.to_owned(), error))?;
    let schema = InputSchema::compile(&PUT.method).map_err(Failure::Table)?;
    file::read(&bytes, place, &schema).map_err(|bad| {
        say_bad(&bad);
        Failure::Lines(name.to_owned(), bad.len())
    })
}

fn read(name: &str) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(name)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is over {MAX_BYTES} bytes")));
    }
    Ok(bytes)
}

fn say_bad(bad: &[Bad]) {
    for Bad { line, rule } in bad.iter().take(MAX_SHOWN) {
        terminal::say(&format_args!("line {line}: {}", shown(rule)));
    }
    if bad.len() > MAX_SHOWN {
        terminal::say(&format_args!("and {} lines more", bad.len() - MAX_SHOWN));
    }
}

/// What became of the entries.
struct Imported {
    /// A row for each entry that was sent.
    results: Vec<Value>,
    /// Why the first that was refused was.
    refused: Option<Code>,
    /// Why the rest was not sent.
    stopped: Option<CallError>,
}

/// Sends entry by entry. A refusal of one entry is noted; what would meet every other one too ends it.
async fn send_all(relay: &Relay, entries: &[Entry]) -> Imported {
    let mut imported = Imported { results: Vec::new(), refused: None, stopped: None };
    let progress = Progress::new(entries.len());
    for (at, Entry { line, id, body }) in entries.iter().enumerate() {
        progress.show(at);
        let result = match send(relay, body).await {
            Ok(_) => "written".to_owned(),
            Err(CallError::Problem(problem)) if is_of_one(&problem) => {
                imported.refused.get_or_insert(problem.code);
                problem.to_string()
            }
            Err(error) => {
                imported.stopped = Some(error);
                break;
            }
        };
        imported.results.push(json!({"line": line, "entryId": id, "result": result}));
    }
    progress.end();
    imported
}

/// One call, made again while the relay says when.
async fn send(relay: &Relay, body: &Value) -> Result<Value, CallError> {
    let path = PUT.method.path();
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

/// Whether it is this entry that was refused, and not the caller, the pool or everything.
fn is_of_one(problem: &Problem) -> bool {
    matches!(problem.code, Code::InvalidInput | Code::Conflict | Code::InvalidState)
}

/// How far it is, on a terminal.
struct Progress {
    total: usize,
    is_shown: bool,
}

impl Progress {
    fn new(total: usize) -> Self {
        Self { total, is_shown: io::stderr().is_terminal() }
    }

    fn show(&self, done: usize) {
        if self.is_shown {
            // Where nobody looks there is nobody to tell.
            let _ = write!(io::stderr().lock(), "\r{done} of {}", self.total);
        }
    }

    fn end(&self) {
        if self.is_shown {
            // Wipes the line: the answer says it all.
            let _ = write!(io::stderr().lock(), "\r\u{1b}[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_meets_one_entry_does_not_stop_the_others() {
        for code in Code::ALL {
            let problem = Problem::new(code, "x");
            let one = matches!(code, Code::InvalidInput | Code::Conflict | Code::InvalidState);
            assert_eq!(is_of_one(&problem), one, "{code:?}");
            assert!(!(is_of_one(&problem) && is_for_later(&problem)), "{code:?}");
            assert_eq!(is_for_later(&problem), problem.retry_after_seconds.is_some(), "{code:?}");
        }
    }

    #[test]
    fn a_file_over_the_bound_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("big.csv");
        File::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
        let error = read(path.to_str().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
    }
}
