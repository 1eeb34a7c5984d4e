//! The commands, their flags, and what each prints: what is for programs to standard output, all else to standard error.

mod agent;
mod join;
mod pages;
mod reset;
mod settings;

use crate::{
    config::{
        self, InvalidSettings, Settings, TpmMode,
        fragment::{Fragment, Value},
        merge::Merged,
    },
    daemon,
    failure::{Exit, Failure},
    host::{Host as _, System},
    identity::Report,
    node::{self, Node},
    notify::Notifier,
    state::{self, Noted, State},
    status::{self, Status},
    token::{CREDENTIALS, Sources},
    tpm::{self, Tpm},
};
use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use shared::terminal::{harmless_json, shown_lines};
use std::{
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// The daemon on the node: says what the machine is, joins a pool, renews, sends heartbeats.
#[derive(Debug, Parser)]
#[command(name = "bcd", version, after_help = pages::after_help())]
pub struct Cli {
    /// Settings.
    #[command(flatten)]
    flags: Flags,
    /// What to do.
    #[command(subcommand)]
    command: Command,
}

/// Every setting as a flag; they go before files and BCD_* variables.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
struct Flags {
    /// The relay, https://HOST:PORT.
    #[arg(long, global = true, value_name = "URL")]
    relay: Option<String>,
    /// SHA-256 of the relay's CA key, as `relay ca pin` prints it (again for another one, to rotate).
    #[arg(long = "ca-pin", global = true, value_name = "sha256:HEX")]
    ca_pins: Vec<String>,
    /// A PEM file with the relay's CA.
    #[arg(long, global = true, value_name = "FILE")]
    ca_file: Option<String>,
    /// Trust the CAs that this system trusts.
    #[arg(long, global = true)]
    system_roots: bool,
    /// A file with the join token; - for standard input.
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<String>,
    /// Where state, key and certificate are kept [default: /var/lib/bcd].
    #[arg(long, global = true, value_name = "DIR")]
    state_dir: Option<String>,
    /// A folder with smbios_entry_point and DMI, instead of /sys/firmware/dmi/tables.
    #[arg(long, global = true, value_name = "DIR")]
    dmi_dir: Option<String>,
    /// A folder like /sys/class/net, instead of it.
    #[arg(long, global = true, value_name = "DIR")]
    net_dir: Option<String>,
    /// Whether the key is in a TPM: auto, required or off.
    #[arg(long, global = true, value_name = "MODE")]
    tpm: Option<String>,
    /// How to reach the TPM [default: device:/dev/tpmrm0].
    #[arg(long, global = true, value_name = "CONF")]
    tcti: Option<String>,
    /// The status socket [default: bcd.sock in the state directory; installed from a package, /run/bcd/bcd.sock].
    #[arg(long, global = true, value_name = "PATH")]
    socket: Option<String>,
    /// Serve the status on this loopback address too.
    #[arg(long, global = true, value_name = "ADDRESS")]
    status_listen: Option<String>,
    /// off, error, warn, info, debug or trace.
    #[arg(long, global = true, value_name = "LEVEL")]
    log: Option<String>,
    /// What `bcd run` does once the relay has refused for good: exit (with the code that says why), or wait, for another
    /// token or the end of a ban [default: exit].
    #[arg(long, global = true, value_name = "WHAT")]
    when_final: Option<String>,
    /// The node's name in its Kubernetes cluster.
    #[arg(long, global = true, value_name = "NAME")]
    node_name: Option<String>,
    /// Where the files of settings are looked for.
    #[arg(long, global = true, hide = true, default_value = "/")]
    config_root: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print what this machine is; needs no relay.
    Identity {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
    /// Join once and exit; a machine that has joined asks the relay whether that still counts.
    Join {
        /// Stay until a person has decided.
        #[arg(long)]
        wait: bool,
    },
    /// The daemon: join if need be, then renew, send heartbeats, serve the status.
    Run,
    /// Print the state, its reason and what is next.
    Status {
        /// As JSON.
        #[arg(long)]
        json: bool,
        /// Exit with 0 only if this machine is ready: a node whose certificate is good, as the relay has just said. Else
        /// say why in a line, and exit with 75.
        #[arg(long, conflicts_with = "json")]
        ready: bool,
    },
    /// Forget the node; bcd must be stopped before.
    Reset {
        /// Keep the key: the next join is the same node.
        #[arg(long)]
        keep_key: bool,
    },
    /// The agent in a metal machine, in the image that its BMC boots: do what the relay says, one step at a time.
    Agent {
        /// What the relay wrote into the image.
        #[arg(long, value_name = "FILE", default_value = "/bcd-agent-boot")]
        boot: PathBuf,
    },
    /// The settings.
    Config {
        /// What about them.
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print the completion script of a shell.
    Completion {
        /// The shell.
        shell: Shell,
    },
    /// Write the man pages into a folder.
    Man {
        /// The folder, made if absent.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Print the settings as they are merged.
    Show {
        /// And where each comes from.
        #[arg(long)]
        origin: bool,
    },
    /// Say everything that is wrong with them, and what a join still needs.
    Check,
}

impl Flags {
    fn to_fragment(&self) -> Fragment {
        let texts = [
            ("relay", &self.relay),
            ("ca_file", &self.ca_file),
            ("token_file", &self.token_file),
            ("state_dir", &self.state_dir),
            ("dmi_dir", &self.dmi_dir),
            ("net_dir", &self.net_dir),
            ("tpm", &self.tpm),
            ("tcti", &self.tcti),
            ("socket", &self.socket),
            ("status_listen", &self.status_listen),
            ("log", &self.log),
            ("node_name", &self.node_name),
            ("when_final", &self.when_final),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, Value::Text(text.clone()?))));
        let pins = (!self.ca_pins.is_empty()).then(|| ("ca_pins", Value::List(self.ca_pins.clone())));
        let roots = self.system_roots.then_some(("system_roots", Value::Flag(true)));
        Fragment::from_flags(texts.chain(pins).chain(roots).collect())
    }

    fn merged(&self) -> Result<Merged, InvalidSettings> {
        config::read(&self.config_root, variable, self.to_fragment())
    }

    fn settings(&self) -> Result<Settings, Failure> {
        let parsed = self.merged().and_then(|merged| Settings::parse(&merged));
        let mut settings = parsed.map_err(|error| Failure::new(Exit::Usage, error))?;
        settings.places.credentials = variable(CREDENTIALS).map(PathBuf::from);
        Ok(settings)
    }

    fn tokens(&self, settings: &Settings) -> Result<Sources, Failure> {
        Ok(Sources::new(settings.token_file.as_ref(), variable, io::stdin().lock())?)
    }

    fn node(&self, settings: Settings) -> Result<Node, Failure> {
        let tokens = self.tokens(&settings)?;
        Node::open(settings, tokens, Arc::new(System))
    }
}

/// Does what the command line says.
#[must_use]
pub fn main(cli: &Cli) -> Exit {
    let result = match &cli.command {
        Command::Config { command: ConfigCommand::Show { origin } } => settings::show(&cli.flags, *origin),
        Command::Config { command: ConfigCommand::Check } => settings::check(&cli.flags),
        Command::Agent { boot } => agent::run(boot),
        Command::Completion { shell } => pages::completion(*shell),
        Command::Man { folder } => pages::man(folder),
        command => cli.flags.settings().and_then(|settings| {
            start_log(&settings);
            if matches!(command, Command::Identity { .. } | Command::Join { .. } | Command::Run)
                && settings.tpm != TpmMode::Off
                && let Err(error) = tpm::quiet(&settings.tcti)
            {
                tracing::debug!(%error, "the TPM's library may write to standard error");
            }
            let state_dir = settings.state_dir.clone();
            let done = with_settings(&cli.flags, command, settings);
            if let (Command::Join { .. } | Command::Run, Err(failure)) = (command, &done) {
                note(&state_dir, failure);
            }
            done
        }),
    };
    result.unwrap_or_else(|failure| {
        let _ = writeln!(io::stderr(), "bcd: {}", shown_lines(&failure.to_string()));
        failure.exit
    })
}

fn with_settings(flags: &Flags, command: &Command, settings: Settings) -> Result<Exit, Failure> {
    match command {
        Command::Identity { json } => identity(&settings, *json),
        Command::Join { wait } => on_runtime(join::run(flags, settings, *wait))?,
        Command::Run => on_runtime(run(flags, settings))?,
        Command::Status { ready: true, .. } => on_runtime(ready(&settings))?,
        Command::Status { json, .. } => on_runtime(status(&settings, *json))?,
        Command::Reset { keep_key } => reset::run(&settings, *keep_key),
        Command::Agent { .. } | Command::Config { .. } | Command::Completion { .. } | Command::Man { .. } => {
            Ok(Exit::Done)
        }
    }
}

/// Writes down what ended this process, for `bcd status` after it.
fn note(state_dir: &Path, failure: &Failure) {
    let noted = Noted { message: failure.message.clone(), exit: failure.exit.code(), at: System.wall() };
    if let Err(error) = state::note(state_dir, noted) {
        // Most likely this is what it is about.
        tracing::debug!(%error, "the failure is not written down");
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn print(text: &str) -> Result<Exit, Failure> {
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(io::stdout(), "{}{end}", shown_lines(text)) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(Exit::Transient, format!("cannot print: {error}")))
        }
        _ => Ok(Exit::Done),
    }
}

fn print_json(value: &impl serde::Serialize) -> Result<Exit, Failure> {
    let json = serde_json::to_string_pretty(value);
    print(&harmless_json(&json.map_err(|error| Failure::new(Exit::Transient, error))?))
}

/// To standard error; the journal has its own clock.
fn start_log(settings: &Settings) {
    let log = tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .log_internal_errors(false)
        .with_max_level(settings.log)
        .with_target(false)
        .with_ansi(false);
    let _ = if variable("JOURNAL_STREAM").is_some() { log.without_time().try_init() } else { log.try_init() };
}

/// How long work on other threads may go on when all else has ended.
const LAST_WORK: Duration = Duration::from_secs(5);

/// One thread; the odd blocking call (name look-up, GPUs) gets another one that ends at once when it is done.
fn on_runtime<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_keep_alive(Duration::from_millis(100))
        .build()
        .map(|runtime| {
            let result = runtime.block_on(work);
            // What the TPM is at must end before the process does: the C library's own end pulls the ground from under it. A
            // stalled GPU library must not keep the process for long.
            runtime.shutdown_timeout(LAST_WORK);
            result
        })
        .map_err(|error| Failure::new(Exit::Transient, format!("the runtime does not start: {error}")))
}

fn identity(settings: &Settings, json: bool) -> Result<Exit, Failure> {
    let mut report = Report::gather(&settings.places);
    if settings.tpm != TpmMode::Off {
        match Tpm::new(settings.tcti.clone()).look() {
            Ok(found) => report.tpm = Some(found.report()),
            Err(error) if error.is_absent() => tracing::debug!("{error}"),
            // What the machine is otherwise is still worth knowing.
            Err(error) => tracing::warn!("the TPM is left out: {error}"),
        }
    }
    if json { print_json(&report) } else { print(&report.to_string()) }
}

async fn run(flags: &Flags, settings: Settings) -> Result<Exit, Failure> {
    let node = flags.node(settings)?;
    // Standard input can be read only once.
    let input = node.tokens.input.clone();
    let reload = || {
        let settings = flags.settings()?;
        let tokens = Sources::new(settings.token_file.as_ref(), variable, io::empty())?;
        Ok((settings, Sources { input: tokens.input.and_then(|_| input.clone()), ..tokens }))
    };
    Ok(daemon::run(node, Notifier::of_environment(), &reload).await)
}

async fn status(settings: &Settings, json: bool) -> Result<Exit, Failure> {
    let running = match &settings.socket {
        Some(socket) => status::ask(socket).await.ok(),
        None => None,
    };
    let status = match running {
        Some(status) => status,
        None => {
            let stored = state::read(&settings.state_dir)?;
            match node::check(settings, &stored) {
                Ok(()) => Status::of(&stored).or_reason(|| hindrance(settings)),
                Err(failure) => Status::of(&stored).without_key(failure),
            }
        }
    };
    if json { print_json(&status) } else { print(&status.to_text()) }
}

/// What keeps bcd from starting, as far as it shows without a start. What could not be written down is among it.
fn hindrance(settings: &Settings) -> Option<String> {
    state::locked(&settings.state_dir).or_else(|| settings::missing(settings).into_iter().next())
}

/// For probes, whose failures show what is printed.
async fn ready(settings: &Settings) -> Result<Exit, Failure> {
    let none = |why: &str| Failure::new(Exit::Transient, format!("not ready: {why}"));
    let socket = settings.socket.as_deref().ok_or_else(|| none("there is no socket to ask bcd at"))?;
    let asked = async { Ok::<_, io::Error>((status::is_ready(socket).await?, status::ask(socket).await?)) };
    match asked.await {
        Ok((true, status)) => print(&status.state),
        Ok((false, status)) => print(&status.to_line()).map(|_| Exit::Transient),
        Err(error) => Err(none(&match over(settings) {
            Some(line) => line,
            None => format!("no bcd answers at {}: {error}", socket.display()),
        })),
    }
}

/// What ended bcd for good, if that did.
fn over(settings: &Settings) -> Option<String> {
    let stored = state::read(&settings.state_dir).ok()?;
    matches!(stored.state, State::Final(_)).then(|| Status::of(&stored).to_line())
}
