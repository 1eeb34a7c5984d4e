//! What every move of a machine writes: its transition with its event, and the task that goes on with it.

use super::facts::Machine;
use crate::{
    events::{Event, Kind as EventKind, Origin},
    fault::Fault,
    random::Random,
    store::{
        Tx, events,
        metal_history::{self, Told},
        tasks,
    },
    tasks::{Asked, Kind, Manner, Queue, enqueue},
};
use serde_json::json;
use shared::{
    api::metal::{MetalState, MetalVerb},
    time::Timestamp,
};

/// Where machines wait to be worked on: so many of one relay at a time.
pub static QUEUE: Queue = Queue { name: "metal", at_a_time: 64 };
/// A machine has to be worked on. Its key is the machine's id: a BMC takes one caller, whichever relay that is.
pub static RECONCILE: Kind =
    Kind { name: "metal.reconcile", queue: &QUEUE, manner: Manner::Retried, lease_seconds: 240 };

/// Some may wait without a task: one that failed too often was archived.
pub static SWEEP: Kind =
    Kind { name: "metal.sweep", queue: &QUEUE, manner: Manner::Every { seconds: 60 }, lease_seconds: 60 };

/// Asks for the reconciler, if there is something to do with the machine; a task that is open goes on at once.
///
/// # Errors
/// The store's.
pub async fn ask(tx: &mut Tx<'_>, random: &Random, machine: &mut Machine) -> Result<(), Fault> {
    if !machine.has_work() {
        return Ok(());
    }
    let payload = json!({"nodeId": machine.node_id});
    let key = machine.node_id.as_str();
    match enqueue(tx, random, &Asked { key: Some(key), ..Asked::now(&RECONCILE, &payload) }).await? {
        Some(id) => machine.task_id = Some(id),
        None => {
            let now = tx.database_time().await?;
            tasks::wake(tx, key, now).await?;
        }
    }
    Ok(())
}

/// Who moved a machine, and from where.
#[derive(Clone, Debug)]
pub struct Moved<'a> {
    /// Who.
    pub actor: &'a str,
    /// By which request; empty where the relay did by itself.
    pub request_id: &'a str,
    /// When.
    pub at: Timestamp,
    /// By which verb; `None` where a workflow came to its end.
    pub verb: Option<MetalVerb>,
    /// From; `None` at the first.
    pub from: Option<MetalState>,
    /// Why it failed.
    pub reason: Option<&'a str>,
}

/// Writes a transition to the state that the machine has now, and its event.
///
/// # Errors
/// The store's.
pub async fn told(
    tx: &mut Tx<'_>,
    random: &Random,
    machine: &Machine,
    moved: &Moved<'_>,
) -> Result<(), Fault> {
    let origin =
        Origin { actor: moved.actor.to_owned(), request_id: moved.request_id.to_owned(), at: moved.at };
    let data = json!({
        "poolId": machine.pool_id, "verb": moved.verb, "from": moved.from, "to": machine.state, "reason": moved.reason,
        "skipped": machine.skipped, "taskId": machine.task_id,
    });
    let event = Event {
        kind: EventKind::MetalTransitioned,
        tenant: &machine.tenant_id,
        subject: machine.node_id.as_str(),
        data,
    };
    let id = events::insert_named(tx, random, &origin, &event).await?;
    let told = Told {
        id: &id,
        version: machine.version,
        at: moved.at,
        actor: moved.actor,
        verb: moved.verb,
        from: moved.from,
        to: machine.state,
        reason: moved.reason,
        task: machine.task_id.as_ref(),
    };
    Ok(metal_history::tell(tx, &machine.node_id, &told).await?)
}
