//! What metrics tell of the fleet, counted in one look at the store.

use super::sweeps;
use crate::{
    context::Context,
    crls,
    fault::Fault,
    metal::moves,
    store::{join_requests, metal, nodes, tasks},
    webhooks,
};
use shared::{
    api::{
        metal::MetalState,
        nodes::NodeState,
        tasks::{QueueCount, TaskState},
    },
    time::Timestamp,
};
use std::collections::BTreeSet;

/// Counts what metrics tell of the fleet.
///
/// # Errors
/// The store's.
pub(in crate::server) async fn count(relay: &Context) -> Result<(), Fault> {
    relay.metrics.set_ca_not_after(relay.ca.load().not_after().map_or(0, Timestamp::seconds));
    let counted = relay.store.read("metrics", (), |tx, ()| {
        Box::pin(async move {
            let pending = join_requests::count_pending(tx).await?;
            let machines = metal::count_by_state(tx).await?;
            Ok::<_, Fault>((nodes::count_by_state(tx).await?, machines, pending, tasks::counts(tx).await?))
        })
    });
    let (nodes, machines, pending, queues) = counted.await?;
    relay.metrics.set_pending_requests(pending);
    for state in NodeState::ALL {
        relay.metrics.set_nodes(state.as_str(), of(&nodes, &state));
    }
    for state in MetalState::ALL {
        relay.metrics.set_machines(state.as_str(), of(&machines, &state));
    }
    let names: BTreeSet<&str> = queues
        .iter()
        .map(|counted| counted.queue.as_str())
        .chain([sweeps::UPKEEP.name, crls::QUEUE.name, webhooks::QUEUE.name, moves::QUEUE.name])
        .collect();
    for (queue, state) in names.into_iter().flat_map(|name| TaskState::ALL.map(|state| (name, state))) {
        let of = |counted: &&QueueCount| counted.queue == queue && counted.state == state;
        relay.metrics.set_tasks(
            queue,
            state.as_str(),
            queues.iter().find(of).map_or(0, |counted| counted.count),
        );
    }
    Ok(())
}

fn of<T: PartialEq>(counts: &[(T, i64)], state: &T) -> i64 {
    counts.iter().find(|(counted, _)| counted == state).map_or(0, |(_, count)| *count)
}
