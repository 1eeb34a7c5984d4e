//! compute/metal/enroll and setCredentials: who says how a BMC is reached. It vouches for what stands on a site, so the site's owner
//! decides. Neither is ever told back what it was given.

use super::{Verb, beside, moved, shown_to, told_first};
use crate::{
    api::{
        idempotency,
        pools::{DecidedBy, named},
        steps::invalid_state,
    },
    call::Call,
    facts::PoolFacts,
    fault::Fault,
    metal::{
        credentials::{self, Column},
        facts::{Credentials, Machine, Options, Reach},
        machine::With,
        moves::ask,
        reach,
    },
    store::{Tx, metal as rows, nodes, sites},
};
use serde_json::{Value, json};
use shared::{
    api::{
        access::Action,
        metal::{
            BmcAccess, BmcProtocol, EnrollMetal, MachineIdentity, MetalDone, MetalState, MetalVerb,
            PowerState, SetCredentials,
        },
        pools::AgentKind,
    },
    id::NodeId,
    problem::Problem,
};

/// compute/metal/enroll.
///
/// # Errors
/// INVALID_INPUT for a BMC that can't be reached so; NOT_FOUND, PERMISSION_DENIED; CONFLICT if another machine has the BMC;
/// INVALID_STATE where the site has no networks of BMCs, or the machine's state forbids it.
pub async fn enroll(call: Call, input: EnrollMetal) -> Result<MetalDone, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(take_in(tx, call, input))).await
}

/// compute/metal/setCredentials.
///
/// # Errors
/// As [`enroll`]; INVALID_STATE for a password to be changed that can't be.
pub async fn set_credentials(call: Call, input: SetCredentials) -> Result<MetalDone, Fault> {
    if input.rotate == Some(true) && !is_empty(&input.bmc) {
        let rule = "comes alone: a password that is drawn is not given, and goes to the BMC that is known";
        return Err(Problem::invalid_field("rotate", rule).into());
    }
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let rotate = input.rotate == Some(true);
                let verb = Verb {
                    place: (&input.tenant_id, &input.pool_id, &input.node_id),
                    action: Action::MetalSetCredentials,
                    by: DecidedBy::SiteOwner,
                    verb: MetalVerb::SetCredentials,
                    with: if rotate { With::Rotate } else { With::Nothing },
                    version: input.expected_version,
                    key: &input.idempotency_key,
                    content: json!([input.node_id, told_of(&input.bmc), rotate]),
                };
                moved(tx, call, &verb, |call, machine| {
                    if rotate { rotated(machine) } else { reached(call, machine, &input.bmc) }
                })
                .await
            })
        })
        .await
}

async fn take_in(tx: &mut Tx<'_>, call: &Call, input: &EnrollMetal) -> Result<MetalDone, Fault> {
    let content = json!([input.pool_id, input.node_id, told_of(&input.bmc), input.expect_serial]);
    if let Some(node_id) = &input.node_id {
        let verb = Verb {
            place: (&input.tenant_id, &input.pool_id, node_id),
            action: Action::MetalEnroll,
            by: DecidedBy::SiteOwner,
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
    let pool = named(tx, call, place, Action::MetalEnroll, DecidedBy::SiteOwner).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, &content).await? {
        return Ok(answer);
    }
    let mut machine = new_machine(tx, call, &pool, input).await?;
    let owners = (pool.pool_id.as_str(), pool.tenant_id.as_str(), pool.site_id.as_str());
    nodes::insert_enrolled(tx, &machine.node_id, owners, call.now).await?;
    ask(tx, &call.relay.random, &mut machine).await?;
    rows::insert(tx, &machine).await?;
    told_first(tx, call, &machine).await?;
    let answer = MetalDone { task_id: machine.task_id.clone(), node: shown_to(call, &pool, &machine)? };
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
    let node_id = NodeId::draw(call.now, call.relay.random.bytes());
    let sealed = given.flatten().map(|given| sealed(call, &node_id, &given)).transpose()?;
    let machine = blank(call, pool, (node_id, reach), sealed);
    let expect_serial = input.expect_serial.as_ref().map(|serial| serial.as_str().to_owned());
    let machine = Machine { expect_serial, ..machine };
    beside(tx, &machine).await?;
    Ok(machine)
}

/// A machine of which nothing is known but its BMC.
fn blank(
    call: &Call,
    pool: &PoolFacts,
    (node_id, reach): (NodeId, Reach),
    sealed: Option<String>,
) -> Machine {
    Machine {
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
        rotates: false,
        sealed_candidate: None,
        refusals: 0,
        retry_at: None,
        expect_serial: None,
        vendor: None,
        firmware: None,
        virtual_media: false,
        identity: MachineIdentity::default(),
        hardware: None,
        power_state: PowerState::Unknown,
        certificate: None,
        options: Options::Nothing,
        sealed_user_data: None,
        tainted: false,
        boot: None,
        agent_key: None,
        install_token: None,
        has_joined: false,
        agent_step: None,
        progress: None,
        fence: 0,
        version: 1,
        created_at: call.now,
        updated_at: call.now,
    }
}

/// Lays how a BMC is to be reached over how it was.
fn reached(call: &Call, machine: &mut Machine, access: &BmcAccess) -> Result<(), Fault> {
    let (reach, given) = reach::merge(Some(&machine.reach), access)?;
    let moved = (&machine.reach.address, machine.reach.protocol) != (&reach.address, reach.protocol);
    // What one BMC was given is not tried at another. At this one it may be all that lets us in, whatever is given now.
    if moved || matches!(given, Some(None)) {
        machine.sealed_candidate = None;
        machine.rotates = false;
    }
    machine.reach = reach;
    if let Some(given) = given {
        machine.sealed_credentials = given.map(|given| sealed(call, &machine.node_id, &given)).transpose()?;
    }
    // What was refused was refused to others.
    machine.refusals = 0;
    machine.retry_at = None;
    Ok(())
}

/// Has the BMC's password changed.
fn rotated(machine: &mut Machine) -> Result<(), Fault> {
    if machine.reach.protocol == BmcProtocol::Ipmi {
        let detail = "unsupported: the program that speaks IPMI takes a new password as an argument, which everybody on the relay's \
            machine could read; change it at the BMC, then give it by setCredentials.";
        return Err(invalid_state(detail));
    }
    if machine.sealed_credentials.is_none() {
        return Err(invalid_state(
            "credentialsMissing: there is no password to exchange; give one by setCredentials.",
        ));
    }
    machine.rotates = true;
    machine.last_error = None;
    machine.begin(None);
    Ok(())
}

fn sealed(call: &Call, node: &NodeId, given: &Credentials) -> Result<String, Fault> {
    credentials::seal(&call.relay.keys, &call.relay.random, (node, Column::Credentials), given)
}

fn is_empty(access: &BmcAccess) -> bool {
    access.password.is_none() && told_of(access).as_array().is_none_or(|told| told.iter().all(Value::is_null))
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
