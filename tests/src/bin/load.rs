//! `load`: how many machines a relay bears, see [`tests::load`]. It wants optimised programs:
//!
//! ```sh
//! cargo build --release --package relay --package tests
//! target/release/load --database sqlite
//! TEST_POSTGRES_URL=postgres://… target/release/load --database postgres
//! ```

use clap::{Parser, ValueEnum};
use std::{
    io::{self, Write as _},
    process::ExitCode,
    time::Duration,
};
use tests::{
    Kind,
    load::{self, Plan, Report},
};
use tokio::signal::unix::{SignalKind, signal};

/// The figures of a relay under many simulated machines, on an empty database of its own.
///
/// It starts the relay that is built beside it, on 127.0.0.1 and with its rate limits raised, and ends it again.
#[derive(Parser)]
#[command(version)]
struct Flags {
    /// Where the relay keeps its data: a file below TMPDIR (which should be a disk), or a new database at
    /// TEST_POSTGRES_URL
    #[arg(long, value_enum, default_value = "sqlite")]
    database: Database,
    /// Machines that join and then renew, each on a fresh connection
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = within(1, 1_000_000))]
    machines: u32,
    /// The machines' keys live in simulated TPMs, which they prove when they join
    #[arg(long)]
    tpm: bool,
    /// Join tokens that the machines share evenly, at least one for 10,000: PostgreSQL admits one machine at a time of a
    /// token
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = within(1, 1000))]
    tokens: u32,
    /// Machines that join or renew at a time
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = within(1, 4096))]
    connections: u32,
    /// Connections that are kept for heartbeats, each of another node
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = within(1, 4096))]
    kept: u32,
    /// Heartbeats over all kept connections
    #[arg(long, value_name = "N", default_value_t = 400_000, value_parser = within(1, 1_000_000_000))]
    heartbeats: u32,
    /// Nodes to write into the store before the first machine joins
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = within(0, 10_000_000))]
    nodes: u32,
    /// The longest that each phase may take; what was not done by then is left undone
    #[arg(long, value_name = "N", default_value_t = 120, value_parser = within(1, 86_400))]
    seconds: u32,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
}

fn within(least: i64, most: i64) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(least..=most)
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match measured(&flags.plan()).and_then(|report| print(&report, flags.json)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "load: {error}");
            ExitCode::FAILURE
        }
    }
}

impl Flags {
    fn plan(&self) -> Plan {
        let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
        Plan {
            database: match self.database {
                Database::Sqlite => Kind::Sqlite,
                Database::Postgres => Kind::Postgres,
            },
            tpm: self.tpm,
            machines: count(self.machines),
            tokens: count(self.tokens),
            connections: count(self.connections),
            kept: count(self.kept),
            heartbeats: count(self.heartbeats),
            nodes: count(self.nodes),
            longest_phase: Duration::from_secs(self.seconds.into()),
        }
    }
}

/// A signal ends the run as its end does: the relay goes with it.
fn measured(plan: &Plan) -> Result<Report, Box<dyn std::error::Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        tokio::select! {
            report = load::run(plan) => Ok(report?),
            _ = term.recv() => Err("told to end".into()),
            _ = int.recv() => Err("told to end".into()),
        }
    })
}

fn print(report: &Report, json: bool) -> Result<(), Box<dyn std::error::Error>> {
    let text = if json { serde_json::to_string_pretty(report)? } else { report.to_string() };
    Ok(writeln!(io::stdout(), "{text}")?)
}
