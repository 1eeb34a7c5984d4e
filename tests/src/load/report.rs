//! The figures: as a table for people, as JSON for programs.

use super::{
    Ceiling, Plan,
    drive::Driven,
    usage::{Memory, Usage},
};
use crate::Kind;
use serde::Serialize;
use std::{fmt, time::Duration};

/// All figures of a run.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// `sqlite` or `postgres`.
    pub database: &'static str,
    /// Join tokens that the machines share.
    pub tokens: usize,
    /// Machines that join or renew at a time.
    pub connections: usize,
    /// Whether the machines prove TPMs when they join.
    pub tpm: bool,
    /// Nodes that the store held before.
    pub filled_nodes: usize,
    /// The limits that the relay was told to raise.
    pub raised_limits: String,
    /// What cryptography alone would allow.
    pub ceiling: Ceiling,
    /// Joins, renewals, heartbeats.
    pub phases: Vec<PhaseReport>,
    /// The relay's memory after each step.
    pub memory: Vec<MemoryAt>,
}

/// The figures of one phase.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PhaseReport {
    /// What was done.
    pub name: &'static str,
    /// How often.
    pub operations: usize,
    /// In how many seconds.
    pub seconds: f64,
    /// Operations a second.
    pub per_second: f64,
    /// The median of their times, in milliseconds, connection and handshake included where there are any.
    pub p50_millis: f64,
    /// What 99 of 100 stay below, in milliseconds.
    pub p99_millis: f64,
    /// The relay's CPU time for 1,000 operations, in seconds.
    pub relay_cpu_seconds_per_1000: f64,
    /// The machines' CPU time for 1,000 operations, in seconds.
    pub client_cpu_seconds_per_1000: f64,
    /// What all else on the machine used meanwhile, in cores: a database server, other programs, the kernel's own.
    pub other_cores: f64,
    /// What cryptography alone would allow of it each second, the cores all to the relay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ceiling_per_second: Option<f64>,
    /// Which part of that was reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of_ceiling: Option<f64>,
}

/// The relay's memory at one time, in bytes.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MemoryAt {
    /// After what.
    pub after: &'static str,
    /// All that is resident (VmRSS).
    pub resident_bytes: u64,
    /// What of it is no file's (RssAnon).
    pub anonymous_bytes: u64,
}

/// What was used before and after a phase.
pub(super) struct Costs {
    pub(super) before: Usage,
    pub(super) after: Usage,
}

impl MemoryAt {
    pub(super) fn now(after: &'static str, process: u32) -> Self {
        let Memory { resident, anonymous } = Memory::of(process);
        Self { after, resident_bytes: resident, anonymous_bytes: anonymous }
    }
}

impl PhaseReport {
    pub(super) fn new<T>(
        name: &'static str,
        driven: &Driven<T>,
        costs: &Costs,
        ceiling: Option<f64>,
    ) -> Self {
        let mut latencies = driven.latencies.clone();
        latencies.sort_unstable();
        let used = costs.after.since(costs.before);
        let operations = latencies.len();
        let seconds = driven.took.as_secs_f64().max(f64::MIN_POSITIVE);
        let thousands = as_float(operations).max(1.0) / 1000.0;
        let per_second = as_float(operations) / seconds;
        let others = used.machine.saturating_sub(used.relay).saturating_sub(used.client);
        Self {
            name,
            operations,
            seconds,
            per_second,
            p50_millis: percentile(&latencies, 50),
            p99_millis: percentile(&latencies, 99),
            relay_cpu_seconds_per_1000: used.relay.as_secs_f64() / thousands,
            client_cpu_seconds_per_1000: used.client.as_secs_f64() / thousands,
            other_cores: others.as_secs_f64() / seconds,
            ceiling_per_second: ceiling,
            of_ceiling: ceiling.map(|ceiling| per_second / ceiling),
        }
    }
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        ceiling: Ceiling,
        memory: Vec<MemoryAt>,
        phases: Vec<PhaseReport>,
    ) -> Self {
        let database = match plan.database {
            Kind::Sqlite => "sqlite",
            Kind::Postgres => "postgres",
        };
        Self {
            database,
            tokens: plan.machines.div_ceil(super::USES_OF_A_TOKEN).max(plan.tokens),
            connections: plan.connections,
            tpm: plan.tpm,
            filled_nodes: plan.nodes,
            raised_limits: super::RAISED_LIMITS.join(" "),
            ceiling,
            phases,
            memory,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { database, tokens, connections, filled_nodes, .. } = self;
        let keys = if self.tpm { "keys in simulated TPMs" } else { "keys in software" };
        let cores = self.ceiling.cores;
        writeln!(
            out,
            "relay on {database}, {cores} cores shared with the machines, {connections} machines at a time of {tokens} \
             tokens, {keys}, {filled_nodes} nodes before\nlimits raised: {}\n",
            self.raised_limits
        )?;
        writeln!(
            out,
            "{:<12}{:>9}{:>11}{:>10}{:>10}{:>16}{:>16}{:>13}{:>12}",
            "",
            "count",
            "a second",
            "p50 ms",
            "p99 ms",
            "relay s/1000",
            "client s/1000",
            "other cores",
            "of ceiling"
        )?;
        for phase in &self.phases {
            let part =
                phase.of_ceiling.map_or_else(|| "-".to_owned(), |part| format!("{:.0} %", part * 100.0));
            writeln!(
                out,
                "{:<12}{:>9}{:>11.0}{:>10.2}{:>10.2}{:>16.3}{:>16.3}{:>13.2}{:>12}",
                phase.name,
                phase.operations,
                phase.per_second,
                phase.p50_millis,
                phase.p99_millis,
                phase.relay_cpu_seconds_per_1000,
                phase.client_cpu_seconds_per_1000,
                phase.other_cores,
                part
            )?;
        }
        writeln!(out, "\n{:<32}{:>12}{:>16}", "relay's memory after", "RSS MB", "RssAnon MB")?;
        for at in &self.memory {
            let (resident, anonymous) = (megabytes(at.resident_bytes), megabytes(at.anonymous_bytes));
            writeln!(out, "{:<32}{resident:>12.1}{anonymous:>16.1}", at.after)?;
        }
        write!(out, "\n{}", self.ceiling)
    }
}

impl fmt::Display for Ceiling {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "crypto ceiling, the relay alone on all cores: {:.0} joins/s, {:.0} renewals/s; with the machines' handshakes on \
             the same cores: {:.0} and {:.0}",
            self.joins_per_second(),
            self.renewals_per_second(),
            self.shared_joins_per_second(),
            self.shared_renewals_per_second()
        )?;
        write!(
            out,
            "CPU time in µs: TLS handshake {:.0} (the machine's side {:.0}), mutual {:.0} ({:.0}), certificate request \
             {:.0}, issue {:.0}",
            self.handshake_micros,
            self.client_handshake_micros,
            self.mutual_handshake_micros,
            self.client_mutual_handshake_micros,
            self.request_micros,
            self.issue_micros
        )
    }
}

/// In milliseconds; the smallest value that `percent` of 100 do not exceed. Zero of nothing.
fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.saturating_sub(1)).map_or(0.0, |time| time.as_secs_f64() * 1e3)
}

fn as_float(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// Of 1,000,000 bytes.
fn megabytes(bytes: u64) -> f64 {
    as_float(usize::try_from(bytes / 1000).unwrap_or(usize::MAX)) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let hundred: Vec<Duration> = (1..=100).map(Duration::from_millis).collect();
        assert!((percentile(&hundred, 50) - 50.0).abs() < 1e-9);
        assert!((percentile(&hundred, 99) - 99.0).abs() < 1e-9);
        assert!((percentile(&hundred[..1], 99) - 1.0).abs() < 1e-9);
        assert!(percentile(&[], 99).abs() < 1e-9);
    }
}
