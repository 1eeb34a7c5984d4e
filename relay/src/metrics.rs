//! What is counted, in the Prometheus text format. Labels are of low cardinality: never an id, never an address.

use prometheus_client::{
    encoding::{EncodeLabelSet, text::encode},
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use std::time::Duration;

/// The counters of one relay.
pub struct Metrics {
    registry: Registry,
    requests: Family<RequestLabels, Counter>,
    request_seconds: Histogram,
    joins: Family<OutcomeLabels, Counter>,
    nodes: Family<StateLabels, Gauge>,
    machines: Family<StateLabels, Gauge>,
    tasks: Family<QueueLabels, Gauge>,
    retries: Family<ReasonLabels, Gauge>,
    pending_requests: Gauge,
    ca_not_after: Gauge,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    code: &'static str,
}
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabels {
    outcome: String,
}
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabels {
    state: &'static str,
}
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QueueLabels {
    queue: String,
    state: &'static str,
}
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("relay");
        let buckets = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0];
        let metrics = Self {
            requests: Family::default(),
            request_seconds: Histogram::new(buckets),
            joins: Family::default(),
            nodes: Family::default(),
            machines: Family::default(),
            tasks: Family::default(),
            retries: Family::default(),
            pending_requests: Gauge::default(),
            ca_not_after: Gauge::default(),
            registry: Registry::default(),
        };
        // The counters' names get `_total` from the format.
        registry.register("requests", "Requests answered", metrics.requests.clone());
        registry.register("request_seconds", "Time to answer a request", metrics.request_seconds.clone());
        registry.register("joins", "Joins judged", metrics.joins.clone());
        registry.register("nodes", "Nodes by state", metrics.nodes.clone());
        registry.register("metal_machines", "Metal machines by state", metrics.machines.clone());
        registry.register("tasks", "Tasks by queue and state", metrics.tasks.clone());
        registry.register("store_retries_total", "Transactions tried again", metrics.retries.clone());
        registry.register(
            "join_requests_pending",
            "Joins that wait for a person",
            metrics.pending_requests.clone(),
        );
        registry.register(
            "ca_not_after_seconds",
            "When the first active CA ends",
            metrics.ca_not_after.clone(),
        );
        Self { registry, ..metrics }
    }
}

impl Metrics {
    /// Counts an answer.
    pub fn answered(&self, method: &'static str, code: &'static str) {
        self.requests.get_or_create(&RequestLabels { method, code }).inc();
    }

    /// Notes how long an answer took.
    pub fn took(&self, time: Duration) {
        self.request_seconds.observe(time.as_secs_f64());
    }

    /// Counts a join by what it came to: `issued`, a reason, or a code.
    pub fn joined(&self, outcome: &str) {
        self.joins.get_or_create(&OutcomeLabels { outcome: outcome.to_owned() }).inc();
    }

    /// Sets how many nodes are in a state.
    pub fn set_nodes(&self, state: &'static str, count: i64) {
        self.nodes.get_or_create(&StateLabels { state }).set(count);
    }

    /// Sets how many metal machines are in a state.
    pub fn set_machines(&self, state: &'static str, count: i64) {
        self.machines.get_or_create(&StateLabels { state }).set(count);
    }

    /// Sets how many tasks of a queue are in a state.
    pub fn set_tasks(&self, queue: &str, state: &'static str, count: i64) {
        self.tasks.get_or_create(&QueueLabels { queue: queue.to_owned(), state }).set(count);
    }

    /// Sets how many transactions were tried again for a reason, since the start.
    pub fn set_retries(&self, reason: &'static str, count: u64) {
        self.retries.get_or_create(&ReasonLabels { reason }).set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets how many joins wait for a person.
    pub fn set_pending_requests(&self, count: i64) {
        self.pending_requests.set(count);
    }

    /// Sets when the first active CA ends, in seconds since 1970.
    pub fn set_ca_not_after(&self, seconds: i64) {
        self.ca_not_after.set(seconds);
    }

    /// All of it, as text.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String can't fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
