//! compute/metal: a verb judges the move by the table, records it and asks for the reconciler, in one transaction; it never
//! touches the machine.

use super::{
    idempotency,
    pools::{DecidedBy, named},
    steps::{conflict, invalid_state, page, page_size},
};
use crate::{
    auth::policy::{Decision, Resource, may, not_found},
    call::Call,
    facts::PoolFacts,
    fault::Fault,
    metal::{
        credentials,
        facts::{Credentials, Machine},
        machine::{self, Move, With},
        moves::{Moved, ask, told},
        reach,
        view::{Viewer, shown},
    },
    store::{StoreError, Tx, metal as rows, nodes, sites},
};
use serde_json::{Value, json};
use shared::{
    api::{
        access::Action,
        metal::{
            BmcAccess, EnrollMetal, GetHistory, GetMetal, ListMetal, MachineIdentity, MetalAnswer, MetalDone,
            MetalHistory, MetalList, MetalState, MetalVerb, MoveMetal, PowerState, RetireMetal,
            SetCredentials, SwitchPower, Version,
        },
        pools::AgentKind,
    },
    bounded::{IdempotencyKey, Name, TenantId},
    id::NodeId,
    problem::{Code, Problem},
};

/// compute/metal/enroll.
///
/// # Errors
/// INVALID_INPUT for a BMC that can't be reached so; NOT_FOUND, PERMISSION_DENIED; CONFLICT if another machine of the tenant has the
/// BMC; INVALID_STATE where the site has no networks of BMCs, or the machine's state forbids it.
pub async fn enroll(call: Call, input: EnrollMetal) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(take_in(tx, call, input))).await
}

/// compute/metal/get.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn get(call: Call, input: GetMetal) -> Result<MetalAnswer, Fault> {
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, place, Action::MetalRead, DecidedBy::PoolTenant).await?;
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
            let pool = named(tx, call, place, Action::MetalRead, DecidedBy::PoolTenant).await?;
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
            let pool = named(tx, call, place, Action::MetalRead, DecidedBy::PoolTenant).await?;
            of_pool(&pool, rows::find(tx, &input.node_id).await?, &input.node_id)?;
            Ok::<_, Fault>(rows::history(tx, &input.node_id, input.cursor.as_ref(), size + 1).await?)
        })
    });
    let (transitions, cursor) = page(read.await?, size, |transition| transition.id.clone());
    Ok(MetalHistory { transitions, cursor })
}

/// compute/metal/setCredentials.
///
/// # Errors
/// As [`enroll`].
pub async fn set_credentials(call: Call, input: SetCredentials) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    let work = (&call, &input);
    store
        .transact(call.method, work, |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalSetCredentials,
                    verb: MetalVerb::SetCredentials,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, told_of(&input.bmc)]),
                };
                moved(tx, call, &verb, |call, machine| reached(call, machine, &input.bmc)).await
            })
        })
        .await
}

/// compute/metal/power.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; CONFLICT for another version; INVALID_STATE.
pub async fn power(call: Call, input: SwitchPower) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalPower,
                    verb: MetalVerb::Power,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, input.target]),
                };
                moved(tx, call, &verb, |_, machine| {
                    machine.wanted_power = Some(input.target);
                    machine.begin(None);
                    Ok(())
                })
                .await
            })
        })
        .await
}

/// compute/metal/inspect.
///
/// # Errors
/// As [`power`].
pub async fn inspect(call: Call, input: MoveMetal) -> Result<MetalDone, Fault> {
    simple(call, input, Action::MetalInspect, MetalVerb::Inspect).await
}

/// compute/metal/abort.
///
/// # Errors
/// As [`power`].
pub async fn abort(call: Call, input: MoveMetal) -> Result<MetalDone, Fault> {
    simple(call, input, Action::MetalAbort, MetalVerb::Abort).await
}

/// compute/metal/retire.
///
/// # Errors
/// As [`power`].
pub async fn retire(call: Call, input: RetireMetal) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalRetire,
                    verb: MetalVerb::Retire,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, input.force]),
                };
                moved(tx, call, &verb, |_, machine| {
                    machine.forced = input.force == Some(true);
                    Ok(())
                })
                .await
            })
        })
        .await
}

async fn simple(call: Call, input: MoveMetal, action: Action, verb: MetalVerb) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action,
                    verb,
                    with: With::Nothing,
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id]),
                };
                moved(tx, call, &verb, |_, _| Ok(())).await
            })
        })
        .await
}

/// A verb on a machine that is there.
struct Verb<'a> {
    place: (&'a TenantId, &'a Name, &'a NodeId),
    action: Action,
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
    let pool = named(tx, call, (tenant, pool), verb.action, DecidedBy::PoolTenant).await?;
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
    let then = machine::judge(before, verb.verb, verb.with).ok_or_else(|| forbidden(&machine, verb.verb))?;
    change(call, &mut machine)?;
    match then {
        Move::Workflow(through, _) => {
            machine.began_from = before;
            machine.state = through;
            machine.aborted = false;
            machine.wanted_power = None;
            machine.last_error = None;
            machine.skipped.clear();
            machine.begin(None);
        }
        Move::Abort => machine.aborted = true,
        Move::Stay => {}
    }
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
    let answer = MetalDone { task_id: machine.task_id.clone(), node: shown(&machine, viewer(call, pool)?) };
    idempotency::keep(tx, call, verb.key, &verb.content, &answer).await?;
    Ok(answer)
}

async fn take_in(tx: &mut Tx<'_>, call: &Call, input: &EnrollMetal) -> Result<MetalDone, Fault> {
    let content = json!([input.pool_id, input.node_id, told_of(&input.bmc), input.expect_serial]);
    if let Some(node_id) = &input.node_id {
        let verb = Verb {
            place: (&input.tenant_id, &input.pool_id, node_id),
            action: Action::MetalEnroll,
            verb: MetalVerb::Enroll,
            with: With::Nothing,
            version: None,
            key: &input.idempotency_key,
            content,
        };
        return moved(tx, call, &verb, |call, machine| {
            if let Some(serial) = &input.expect_serial {
                machine.expect_serial = Some(serial.as_str().to_owned());
            }
            reached(call, machine, &input.bmc)
        })
        .await;
    }
    let place = (&input.tenant_id, &input.pool_id);
    let pool = named(tx, call, place, Action::MetalEnroll, DecidedBy::PoolTenant).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, &content).await? {
        return Ok(answer);
    }
    let mut machine = new_machine(tx, call, &pool, input).await?;
    let owners = (pool.pool_id.as_str(), pool.tenant_id.as_str(), pool.site_id.as_str());
    nodes::insert_enrolled(tx, &machine.node_id, owners, call.now).await?;
    ask(tx, &call.relay.random, &mut machine).await?;
    rows::insert(tx, &machine).await?;
    let moved = Moved {
        actor: &call.actor(),
        request_id: &call.request_id,
        at: call.now,
        verb: Some(MetalVerb::Enroll),
        from: None,
        reason: None,
    };
    told(tx, &call.relay.random, &machine, &moved).await?;
    let answer = MetalDone { task_id: machine.task_id.clone(), node: shown(&machine, viewer(call, &pool)?) };
    idempotency::keep(tx, call, &input.idempotency_key, &content, &answer).await?;
    Ok(answer)
}

/// A machine that is not there yet, judged.
async fn new_machine(
    tx: &mut Tx<'_>,
    call: &Call,
    pool: &PoolFacts,
    input: &EnrollMetal,
) -> Result<Machine, Fault> {
    if pool.agent != AgentKind::Bcd {
        return Err(invalid_state(format!(
            "The pool {} has no agent bcd; machines are enrolled into pools that have.",
            pool.pool_id
        )));
    }
    let (reach, given) = reach::merge(None, &input.bmc)?;
    let networks = sites::find(tx, &pool.site_id).await?.map(|site| site.bmc_networks).unwrap_or_default();
    if networks.is_empty() {
        let detail = format!(
            "The site {} has no bmcNetworks, so none of its machines is enrolled; an admin sets them: relay sites update.",
            pool.site_id
        );
        return Err(invalid_state(detail));
    }
    if let Some((holder, tenant)) = rows::at_bmc(tx, &pool.site_id, &reach.address).await? {
        return Err(taken((tenant == pool.tenant_id).then_some(&holder)));
    }
    let node_id = NodeId::draw(call.now, call.relay.random.bytes());
    let sealed = given.flatten().map(|given| sealed(call, &node_id, &given)).transpose()?;
    Ok(Machine {
        node_id,
        pool_id: pool.pool_id.clone(),
        tenant_id: pool.tenant_id.clone(),
        site_id: pool.site_id.clone(),
        state: MetalState::Enrolling,
        began_from: MetalState::Enrolling,
        task_id: None,
        step: None,
        attempt: 0,
        deadline: None,
        waiting_for: None,
        intent: None,
        last_error: None,
        skipped: Vec::new(),
        aborted: false,
        forced: false,
        wanted_power: None,
        reach,
        sealed_credentials: sealed,
        refusals: 0,
        retry_at: None,
        expect_serial: input.expect_serial.as_ref().map(|serial| serial.as_str().to_owned()),
        vendor: None,
        firmware: None,
        virtual_media: false,
        identity: MachineIdentity::default(),
        hardware: None,
        power_state: PowerState::Unknown,
        certificate: None,
        fence: 0,
        version: 1,
        created_at: call.now,
        updated_at: call.now,
    })
}

/// Lays how a BMC is to be reached over how it was.
fn reached(call: &Call, machine: &mut Machine, access: &BmcAccess) -> Result<(), Fault> {
    let (reach, given) = reach::merge(Some(&machine.reach), access)?;
    machine.reach = reach;
    if let Some(given) = given {
        machine.sealed_credentials = given.map(|given| sealed(call, &machine.node_id, &given)).transpose()?;
    }
    // What was refused was refused to others.
    machine.refusals = 0;
    machine.retry_at = None;
    Ok(())
}

fn sealed(call: &Call, node: &NodeId, given: &Credentials) -> Result<String, Fault> {
    credentials::seal(&call.relay.keys, &call.relay.random, node, given)
}

/// What was asked of a BMC, without its password.
fn told_of(access: &BmcAccess) -> Value {
    json!([
        access.address,
        access.protocol,
        access.username,
        access.tls_pin_sha256,
        access.tls_ca,
        access.tls_trust_first_use,
        access.tls_insecure,
        access.ipmi_cipher_suite
    ])
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

fn forbidden(machine: &Machine, verb: MetalVerb) -> Fault {
    let allowed: Vec<String> =
        machine::allowed(machine.state).into_iter().map(|verb| verb.as_str().to_owned()).collect();
    let detail = format!(
        "The machine {} is {}: {} is no legal move; legal are: {}.",
        machine.node_id,
        machine.state.as_str(),
        verb.as_str(),
        if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") }
    );
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
