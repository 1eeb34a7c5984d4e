//! The load tool: many simulated machines against one relay, and what that cost.
//!
//! It starts the relay that is built beside it as a process of its own, on an empty database, and drives it over
//! 127.0.0.1: joins, then renewals (both on a fresh TLS 1.3 connection each), then heartbeats on kept connections.
//! Keys and certificate requests are made before anything is measured. The machines and the relay share the cores,
//! so every figure is of both together; the CPU time of each is given beside it. It decides nothing: what is fast
//! enough is for the reader.

mod ceiling;
mod drive;
mod fill;
mod machines;
mod progress;
mod report;
mod usage;
mod wire;

pub use self::{
    ceiling::Ceiling,
    report::{MemoryAt, PhaseReport, Report},
};

use self::{
    drive::{Driven, Work},
    machines::{Enrolled, Machine},
    report::Costs,
    usage::Usage,
    wire::{Line, Wire},
};
use crate::{Database, Kind, RelayProcess};
use bytes::Bytes;
use http::HeaderValue;
use std::{path::Path, sync::Arc, time::Duration};

/// The most machines of one token.
const USES_OF_A_TOKEN: usize = 10_000;
/// What the relay is told: machines that share an address would be slowed down by design.
const RAISED_LIMITS: [&str; 6] = [
    "--limits.join-per-ip-per-minute",
    "1000000",
    "--limits.per-token-per-minute",
    "1000000",
    "--limits.join-in-flight",
    "4096",
];

/// What is to be simulated.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where the relay keeps its data.
    pub database: Kind,
    /// Machines that join, then renew; at most a million.
    pub machines: usize,
    /// Whether their keys live in TPMs: a join is then two calls on one connection, a challenge and its proof.
    pub tpm: bool,
    /// Join tokens that the machines share evenly; more where these have too few uses.
    pub tokens: usize,
    /// Machines that join or renew at a time.
    pub connections: usize,
    /// Connections that are kept for heartbeats, each of a node of its own.
    pub kept: usize,
    /// Heartbeats in all.
    pub heartbeats: usize,
    /// Nodes that the store holds before the first machine joins.
    pub nodes: usize,
    /// The longest that one phase may take.
    pub longest_phase: Duration,
}

/// Why there are no figures.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// Something of a machine or the crypto ceiling can't be made.
    #[error("{what}: {source}")]
    Prepare {
        /// What was being made.
        what: &'static str,
        /// Why not.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The relay does not do what the plan needs.
    #[error("{what}; the relay's log ends with:\n{log}")]
    Relay {
        /// What failed.
        what: String,
        /// The last lines.
        log: String,
    },
}

impl LoadError {
    fn prepare<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        what: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Prepare { what, source: source.into() }
    }
}

/// Carries out the plan. Progress goes to standard error. The relay ends with the answer, or when this is dropped.
///
/// # Errors
/// The relay refuses what it should grant, or a machine can't be made.
///
/// # Panics
/// The relay does not start; the panic shows its log.
pub async fn run(plan: &Plan) -> Result<Report, LoadError> {
    progress::say(&format!("making {} keys and {} certificate requests", plan.machines, 2 * plan.machines));
    let machines = machines::make(plan.machines, plan.tpm)?;
    progress::say("measuring the crypto ceiling");
    let ceiling = ceiling::measure()?;
    let home = tempfile::tempdir().map_err(LoadError::prepare("making a folder"))?;
    let database = match plan.database {
        Kind::Sqlite => Database::sqlite(),
        Kind::Postgres => Database::postgres(),
    };
    let mut memory = Vec::new();
    let mut relay = RelayProcess::start(home.path(), Some(&database), &RAISED_LIMITS);
    memory.push(MemoryAt::now("an empty store", relay.id()));
    if plan.nodes > 0 {
        relay = filled(relay, plan.nodes, home.path(), &database).await?;
        memory.push(MemoryAt::now("a start on the filled store", relay.id()));
    }
    let mut load = Load { plan, relay, ceiling, memory, phases: Vec::new() };
    load.phases(machines).await?;
    let Load { relay, ceiling, memory, phases, .. } = load;
    let code = relay.terminate();
    if code != Some(0) {
        return Err(LoadError::Relay { what: format!("the relay ended with {code:?}"), log: String::new() });
    }
    Ok(Report::new(plan, ceiling, memory, phases))
}

/// Stops the relay, fills its store and starts it again.
async fn filled(
    relay: RelayProcess,
    nodes: usize,
    home: &Path,
    database: &Database,
) -> Result<RelayProcess, LoadError> {
    progress::say(&format!("filling the store with {nodes} nodes"));
    let token = relay.join_token(1).await;
    let _ = relay.terminate();
    fill::fill(database.url(), &token, nodes).await?;
    Ok(RelayProcess::start(home, Some(database), &RAISED_LIMITS))
}

/// A run in its course.
struct Load<'a> {
    plan: &'a Plan,
    relay: RelayProcess,
    ceiling: Ceiling,
    memory: Vec<MemoryAt>,
    phases: Vec<PhaseReport>,
}

impl Load<'_> {
    async fn phases(&mut self, machines: Vec<Machine>) -> Result<(), LoadError> {
        let wire = Arc::new(Wire::new(&self.relay)?);
        let joined = self.joins(&wire, machines).await?;
        let renewed = self.renewals(&wire, joined).await?;
        self.heartbeats(&wire, &renewed).await
    }

    async fn joins(&mut self, wire: &Arc<Wire>, machines: Vec<Machine>) -> Result<Vec<Enrolled>, LoadError> {
        let mut bearers = Vec::new();
        for _ in 0..machines.len().div_ceil(USES_OF_A_TOKEN).max(self.plan.tokens) {
            let token = self.relay.join_token(u32::try_from(USES_OF_A_TOKEN).unwrap_or(u32::MAX)).await;
            let bearer = HeaderValue::try_from(format!("Bearer {token}"));
            bearers.push(bearer.map_err(LoadError::prepare("writing a header"))?);
        }
        let config = wire.showing(None);
        let machines = Arc::new(machines);
        let work = self.work("joins", machines.len(), self.plan.longest_phase);
        let before = Usage::now(self.relay.id());
        let (wire, shared) = (wire.clone(), machines.clone());
        let idle = vec![(); self.plan.connections.min(machines.len())];
        let driven = drive::drive(work, idle, move |(), at| {
            let (wire, config, machines) = (wire.clone(), config.clone(), shared.clone());
            let bearer = bearers.get(at % bearers.len()).cloned();
            Box::pin(async move {
                let Some(machine) = machines.get(at) else { return Ok(Bytes::new()) };
                let mut line = wire.connect(config).await?;
                let answer = line.post("/api/node/join", bearer.as_ref(), machine.join.clone()).await?;
                match machine.proof(&answer) {
                    Some(proved) => line.post("/api/node/join", bearer.as_ref(), proved).await,
                    None => Ok(answer),
                }
            })
        })
        .await;
        let ceiling = self.ceiling.joins_per_second();
        let answers = self.note("joins", before, driven, Some(ceiling))?;
        machines::enroll(&Arc::try_unwrap(machines).unwrap_or_default(), answers)
    }

    async fn renewals(
        &mut self,
        wire: &Arc<Wire>,
        joined: Vec<Enrolled>,
    ) -> Result<Vec<Enrolled>, LoadError> {
        let nodes: Arc<Vec<_>> = Arc::new(
            joined.iter().map(|node| (wire.showing(Some(&node.certified)), node.renew.clone())).collect(),
        );
        let work = self.work("renewals", joined.len(), self.plan.longest_phase);
        let before = Usage::now(self.relay.id());
        let wire = wire.clone();
        let idle = vec![(); self.plan.connections.min(joined.len())];
        let driven = drive::drive(work, idle, move |(), at| {
            let (wire, nodes) = (wire.clone(), nodes.clone());
            Box::pin(async move {
                let Some((config, body)) = nodes.get(at) else { return Ok(Bytes::new()) };
                wire.connect(config.clone()).await?.post("/api/node/renew", None, body.clone()).await
            })
        })
        .await;
        let ceiling = self.ceiling.renewals_per_second();
        let answers = self.note("renewals", before, driven, Some(ceiling))?;
        machines::renewed(&joined, answers)
    }

    async fn heartbeats(&mut self, wire: &Arc<Wire>, nodes: &[Enrolled]) -> Result<(), LoadError> {
        let mut lines: Vec<Line> = Vec::new();
        for node in nodes.iter().take(self.plan.kept) {
            let line = wire.connect(wire.showing(Some(&node.certified))).await;
            let mut line = line.map_err(|trouble| self.failed(&format!("connecting a node: {trouble}")))?;
            // The first use of a renewed certificate is a change in the store: it is not a heartbeat like the others.
            let first = line.post("/api/node/heartbeat", None, machines::heartbeat()).await;
            first.map_err(|trouble| self.failed(&format!("a first heartbeat: {trouble}")))?;
            lines.push(line);
        }
        let work = self.work("heartbeats", self.plan.heartbeats, self.plan.longest_phase);
        let before = Usage::now(self.relay.id());
        let driven = drive::drive(work, lines, |line, _| {
            Box::pin(
                async move { line.post("/api/node/heartbeat", None, machines::heartbeat()).await.map(drop) },
            )
        })
        .await;
        self.note("heartbeats", before, driven, None).map(drop)
    }

    fn work(&self, name: &'static str, count: usize, longest: Duration) -> Work {
        progress::say(&format!("{name}: {count}"));
        Work { name, count, longest }
    }

    /// Adds a phase to the report; answers what its operations gave, or that it failed.
    fn note<T>(
        &mut self,
        name: &'static str,
        before: Usage,
        driven: Driven<T>,
        ceiling: Option<f64>,
    ) -> Result<Vec<(usize, T)>, LoadError> {
        let costs = Costs { before, after: Usage::now(self.relay.id()) };
        if let Some(failure) = &driven.first_failure {
            return Err(self.failed(&format!("{} of the {name} failed, first: {failure}", driven.failed)));
        }
        self.phases.push(PhaseReport::new(name, &driven, &costs, ceiling));
        self.memory.push(MemoryAt::now(name, self.relay.id()));
        Ok(driven.answers)
    }

    fn failed(&self, what: &str) -> LoadError {
        let log = self.relay.log();
        let mut last: Vec<&str> = log.lines().rev().take(20).collect();
        last.reverse();
        LoadError::Relay { what: what.to_owned(), log: last.join("\n") }
    }
}
