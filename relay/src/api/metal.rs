//! compute/metal: a verb judges the move by the table, records it and asks for the reconciler, in one transaction; it never
//! touches the machine. A verb that comes while the machine is being switched, or its BMC's password changed, waits for the end of
//! that.

mod enroll;
mod verbs;

pub use enroll::{enroll, set_credentials};
pub use verbs::{abort, commission, deploy, inspect, power, release, rescue, retire};

use super::{
    idempotency,
    pools::{DecidedBy, named},
    steps::{conflict, page, page_size},
};
use crate::{
    auth::policy::{Decision, Resource, may, not_found},
    call::Call,
    facts::PoolFacts,
    fault::Fault,
    metal::{
        facts::{Machine, Options},
        machine::{self, Move, With},
        moves::{Moved, ask, told},
        view::{Viewer, shown},
        workflow::{self, Plan},
    },
    store::{StoreError, Tx, metal as rows, metal_history},
};
use serde_json::Value;
use shared::{
    api::{
        access::Action,
        metal::{
            GetHistory, GetMetal, ListMetal, Metal, MetalAnswer, MetalDone, MetalHistory, MetalList,
            MetalState, MetalVerb, Version,
        },
    },
    bounded::{IdempotencyKey, Name, TenantId},
    id::NodeId,
    problem::{Code, Problem},
};

/// compute/metal/get.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn get(call: Call, input: GetMetal) -> Result<MetalAnswer, Fault> {
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, place, Action::MetalRead, DecidedBy::EitherOwner).await?;
            let machine = of_pool(&pool, rows::find(tx, &input.node_id).await?, &input.node_id)?;
            Ok::<_, Fault>(MetalAnswer { node: shown(&machine, viewer(call, &pool)?) })
        })
    });
    read.await
}

/// compute/metal/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListMetal) -> Result<MetalList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, place, Action::MetalRead, DecidedBy::EitherOwner).await?;
            let after = input.cursor.as_ref().map_or("", NodeId::as_str);
            let retired = input.include_retired == Some(true);
            let machines = rows::page(tx, &pool.pool_id, retired, after, size + 1).await?;
            let viewer = viewer(call, &pool)?;
            Ok::<_, Fault>(machines.iter().map(|machine| shown(machine, viewer)).collect::<Vec<_>>())
        })
    });
    let (nodes, cursor) = page(read.await?, size, |node| node.node_id.clone());
    Ok(MetalList { nodes, cursor })
}

/// compute/metal/history.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn history(call: Call, input: GetHistory) -> Result<MetalHistory, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, place, Action::MetalRead, DecidedBy::EitherOwner).await?;
            of_pool(&pool, rows::find(tx, &input.node_id).await?, &input.node_id)?;
            Ok::<_, Fault>(metal_history::history(tx, &input.node_id, input.cursor.as_ref(), size + 1).await?)
        })
    });
    let (transitions, cursor) = page(read.await?, size, |transition| transition.id.clone());
    Ok(MetalHistory { transitions, cursor })
}

/// A verb on a machine that is there.
struct Verb<'a> {
    place: (&'a TenantId, &'a Name, &'a NodeId),
    action: Action,
    by: DecidedBy,
    verb: MetalVerb,
    with: With,
    version: Option<Version>,
    key: &'a IdempotencyKey,
    /// What makes it the same request, without a secret.
    content: Value,
}

/// Judges a move, records it and asks for the reconciler. `change` is what the verb sets beside the move.
async fn moved(
    tx: &mut Tx<'_>,
    call: &Call,
    verb: &Verb<'_>,
    change: impl FnOnce(&Call, &mut Machine) -> Result<(), Fault>,
) -> Result<MetalDone, Fault> {
    let (tenant, pool, id) = verb.place;
    let pool = named(tx, call, (tenant, pool), verb.action, verb.by).await?;
    let mut machine = of_pool(&pool, rows::lock(tx, id).await?, id)?;
    if let Some(answer) = idempotency::replay(tx, call, verb.key, &verb.content).await? {
        return Ok(answer);
    }
    if let Some(expected) = verb.version.filter(|expected| expected.get() != machine.version) {
        let detail = format!(
            "The machine {id} has version {}, not {}: somebody changed it; look at it again.",
            machine.version,
            expected.get()
        );
        return Err(conflict(detail));
    }
    let before = machine.state;
    let then = machine::judge(before, verb.verb, verb.with).ok_or_else(|| forbidden(&machine, verb))?;
    let waits = verb.verb != MetalVerb::SetCredentials || verb.with == With::Rotate;
    if waits && (machine.wanted_power.is_some() || machine.rotates) {
        return Err(switching(&machine));
    }
    if let Move::Workflow(through, _) = then {
        machine.began_from = before;
        machine.state = through;
        machine.aborted = false;
        machine.forced = false;
        machine.last_error = None;
        machine.skipped.clear();
        machine.options = Options::Nothing;
        machine.sealed_user_data = None;
        machine.begin(None);
    }
    machine.aborted |= then == Move::Abort;
    change(call, &mut machine)?;
    if workflow::starts_agent(machine.state, Plan::of(&machine))
        && !machine.virtual_media
        && before != machine.state
    {
        return Err(no_media(&Machine { state: before, ..machine }, verb.verb));
    }
    beside(tx, &machine).await?;
    finish(tx, call, &pool, machine, (verb, (before != machine_state(then, before)).then_some(before))).await
}

/// The state that a move leads to at once.
fn machine_state(then: Move, before: MetalState) -> MetalState {
    match then {
        Move::Workflow(through, _) => through,
        Move::Abort | Move::Stay => before,
    }
}

/// Asks for the reconciler where there is something to do, saves the machine, and keeps the answer.
async fn finish(
    tx: &mut Tx<'_>,
    call: &Call,
    pool: &PoolFacts,
    mut machine: Machine,
    (verb, from): (&Verb<'_>, Option<MetalState>),
) -> Result<MetalDone, Fault> {
    ask(tx, &call.relay.random, &mut machine).await?;
    if !saved(rows::save(tx, &mut machine, call.now).await)? {
        return Err(StoreError::Race.into());
    }
    tx.note_about(&machine.tenant_id, machine.node_id.as_str());
    if let Some(from) = from {
        let moved = Moved {
            actor: &call.actor(),
            request_id: &call.request_id,
            at: call.now,
            verb: Some(verb.verb),
            from: Some(from),
            reason: None,
        };
        told(tx, &call.relay.random, &machine, &moved).await?;
    }
    let answer = MetalDone { task_id: machine.task_id.clone(), node: shown_to(call, pool, &machine)? };
    idempotency::keep(tx, call, verb.key, &verb.content, &answer).await?;
    Ok(answer)
}

/// Writes the first transition of a machine.
async fn told_first(tx: &mut Tx<'_>, call: &Call, machine: &Machine) -> Result<(), Fault> {
    let moved = Moved {
        actor: &call.actor(),
        request_id: &call.request_id,
        at: call.now,
        verb: Some(MetalVerb::Enroll),
        from: None,
        reason: None,
    };
    told(tx, &call.relay.random, machine, &moved).await
}

/// That no other machine has the BMC.
async fn beside(tx: &mut Tx<'_>, machine: &Machine) -> Result<(), Fault> {
    let holder = rows::at_bmc(tx, &machine.site_id, &machine.reach.address).await?;
    match holder.filter(|(holder, _)| *holder != machine.node_id) {
        Some((holder, tenant)) => Err(taken((tenant == machine.tenant_id).then_some(&holder))),
        None => Ok(()),
    }
}

fn shown_to(call: &Call, pool: &PoolFacts, machine: &Machine) -> Result<Metal, Fault> {
    Ok(shown(machine, viewer(call, pool)?))
}

fn of_pool(pool: &PoolFacts, found: Option<Machine>, id: &NodeId) -> Result<Machine, Problem> {
    found.filter(|machine| machine.pool_id == pool.pool_id).ok_or_else(|| not_found(&format!("machine {id}")))
}

/// Whether the caller is one of the site's owner, to whom a BMC's own words are told.
fn viewer(call: &Call, pool: &PoolFacts) -> Result<Viewer, Fault> {
    let decision =
        may(&call.principal()?.powers, Action::MetalRead, Resource::PoolBySiteOwner(pool.owners()));
    Ok(if decision == Decision::Allow { Viewer::SiteOwner } else { Viewer::Tenant })
}

fn forbidden(machine: &Machine, verb: &Verb<'_>) -> Fault {
    let allowed: Vec<String> =
        machine::allowed(machine.state).into_iter().map(|verb| verb.as_str().to_owned()).collect();
    let detail = format!(
        "The machine {} is {}: {}{} is no legal move; legal are: {}.",
        machine.node_id,
        machine.state.as_str(),
        verb.verb.as_str(),
        if verb.with == With::Nothing { String::new() } else { format!(" with {}", verb.with.as_str()) },
        if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }
    );
    Problem::new(Code::InvalidState, detail).in_state(machine.state.as_str(), allowed).into()
}

fn switching(machine: &Machine) -> Fault {
    let detail = format!(
        "The machine {} is being switched on or off, or its BMC's password changed; ask again when that is over (relay metal get).",
        machine.node_id
    );
    Problem::new(Code::InvalidState, detail).in_state(machine.state.as_str(), Vec::new()).into()
}

fn no_media(machine: &Machine, verb: MetalVerb) -> Fault {
    let detail = format!(
        "noVirtualMedia: the BMC of the machine {} takes no image of a CD, so no agent can be started in it, which {} takes; \
         network boot is not built.",
        machine.node_id,
        verb.as_str()
    );
    let allowed = machine::allowed(machine.state).into_iter().map(|verb| verb.as_str().to_owned()).collect();
    Problem::new(Code::InvalidState, detail).in_state(machine.state.as_str(), allowed).into()
}

/// What another machine's BMC means for a save.
fn saved(saved: Result<bool, StoreError>) -> Result<bool, Fault> {
    match saved {
        Err(StoreError::Unique(_)) => Err(taken(None)),
        saved => Ok(saved?),
    }
}

fn taken(by: Option<&NodeId>) -> Fault {
    let by = by.map_or("another machine".to_owned(), |id| format!("the machine {id}"));
    conflict(format!(
        "The BMC at this address is that of {by}; retire that one first, or give the right address."
    ))
}
