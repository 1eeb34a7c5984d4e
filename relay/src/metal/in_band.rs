//! The steps that the agent does in the machine, and the waits for it and for the installed bcd.
//!
//! A step is opened in the transaction that writes its id into the machine's row, sealed, since there are tokens in some. The agent
//! gets the same one until it has said what became of it; what it says of another one counts for nothing. A worker that comes after
//! a crash finds the step open and waits for it, or finds its outcome, and goes on.

use super::{
    at_bmc,
    causes::{Cause, worded},
    ends::{self, Halt, On, done, fail, later, save, save_last, with},
    facts::{Machine, Options},
    settle,
    tokens::{self, Purpose},
    workflow::Step,
};
use crate::{
    context::Context,
    fault::Fault,
    join::attest::bmc::matches,
    outside::Target,
    seal::{KeyRing, Place},
    store::{
        Tx,
        metal_steps::{self, COLUMN, Outcome, StepRow, TABLE},
        sites,
    },
};
use shared::{
    api::{
        metal::{Hardware, LastError},
        steps::{HardwareReport, StepResult, Work},
    },
    bounded::{Int, Label},
    hardware,
    id::{MetalStepId, NodeId},
    secret::Secret,
    time::Timestamp,
};
use zeroize::Zeroizing;

/// How often it is looked whether an agent or a bcd has come, or how a step goes, in seconds; reports and joins wake the machine.
const LOOK_SECONDS: u32 = 60;
/// How long the installed bcd's token lives, in seconds: writing, starting and waiting for it.
const INSTALL_SECONDS: i64 = 7_200;
/// The longest word and text that is kept of what an agent says of a failure.
const MAX_CODE_CHARS: usize = 64;

/// Waits for the agent, and sees that the machine is on.
///
/// # Errors
/// The store's.
pub(super) async fn await_agent(relay: &Context, machine: Machine) -> Result<On, Fault> {
    if machine.agent_key.is_some() {
        return done(relay, machine).await;
    }
    at_bmc::keep_on(relay, machine, LOOK_SECONDS).await
}

/// Waits for the installed bcd, and sees that the machine is on.
///
/// # Errors
/// The store's.
pub(super) async fn await_daemon(relay: &Context, machine: Machine) -> Result<On, Fault> {
    if machine.has_joined {
        return done(relay, machine).await;
    }
    at_bmc::keep_on(relay, machine, LOOK_SECONDS).await
}

/// A step of the agent: opens it, waits for it, or takes what came of it.
///
/// # Errors
/// The store's.
pub(super) async fn work(relay: &Context, machine: Machine, step: Step) -> Result<On, Fault> {
    let Some(id) = machine.agent_step.clone() else { return opened(relay, machine, step).await };
    let found = relay.store.read("metal.step", &machine.node_id, |tx, node| {
        Box::pin(async move { Ok::<_, Fault>(metal_steps::find(tx, node).await?) })
    });
    match found.await?.filter(|row| row.id == id).map(|row| row.outcome) {
        Some(Outcome::Open) => Ok(On::Later(LOOK_SECONDS, machine.version)),
        Some(Outcome::Done(result)) => match taken(machine.clone(), step, *result) {
            Ok(machine) => done(relay, machine).await,
            Err(error) => fail(relay, machine, error).await,
        },
        Some(Outcome::Failed(error)) => {
            let code: String = error.code.chars().take(MAX_CODE_CHARS).collect();
            fail(relay, machine, worded(&code, error.message.as_str())).await
        }
        None => {
            let machine = Machine { agent_step: None, ..machine };
            with(save(relay, machine, relay.clock.now()).await?)
        }
    }
}

/// What a step is to do, opened; for the agent alone.
///
/// # Errors
/// It was not sealed to this machine, or by another key.
pub fn open(keys: &KeyRing, node: &NodeId, row: &StepRow) -> Result<Work, Fault> {
    let opened = keys.open(place(node), &row.sealed_work);
    let opened = opened.map_err(Fault::internal("opening a step"))?;
    serde_json::from_slice(&opened).map_err(Fault::internal("opening a step"))
}

fn place(node: &NodeId) -> Place<'_> {
    Place { table: TABLE, row: node.as_str(), column: COLUMN }
}

async fn opened(relay: &Context, machine: Machine, step: Step) -> Result<On, Fault> {
    let now = relay.clock.now();
    if let Some(error) = refused_image(relay, &machine, step).await? {
        return fail(relay, machine, error).await;
    }
    let store = &relay.store;
    let opened = store.transact("metal.step", (relay, &machine, step), |tx, (relay, machine, step)| {
        Box::pin(async move {
            let mut machine = (*machine).clone();
            let work = composed(tx, relay, &mut machine, *step, now).await?;
            let plain = serde_json::to_vec(&work).map(Zeroizing::new);
            let plain = plain.map_err(Fault::internal("sealing a step"))?;
            let sealed = relay.keys.seal(place(&machine.node_id), &plain, &relay.random);
            let sealed = sealed.map_err(Fault::internal("sealing a step"))?;
            let id = MetalStepId::draw(now, relay.random.bytes());
            metal_steps::open(tx, &machine.node_id, &id, (work.as_str(), &sealed), now).await?;
            machine.agent_step = Some(id);
            save_last(tx, &mut machine, now).await?;
            Ok::<_, Halt>(machine)
        })
    });
    later(ends::kept(opened.await)?, LOOK_SECONDS)
}

/// What the agent is to do.
async fn composed(
    tx: &mut Tx<'_>,
    relay: &Context,
    machine: &mut Machine,
    step: Step,
    now: Timestamp,
) -> Result<Work, Fault> {
    let none = || Fault::internal("composing a step")("the machine's verb was asked with something else");
    Ok(match (step, &machine.options) {
        (Step::Hardware, _) => Work::Hardware,
        (Step::Wipe, _) => Work::Wipe,
        (Step::Erase, _) => Work::Erase,
        (Step::BurnIn, _) => Work::BurnIn,
        (Step::Write, Options::Deploy { image, disk, .. }) => Work::Write {
            url: image.url.as_str().to_owned(),
            sha256: image.sha256.as_str().to_owned(),
            format: image.format,
            disk: disk.clone(),
            networks: image_networks(tx, machine).await?,
            roots: relay.image_roots.clone(),
        },
        (Step::Rescue, Options::Rescue { ssh_public_key, ttl_seconds }) => {
            Work::Rescue { ssh_public_key: ssh_public_key.clone(), ttl_seconds: *ttl_seconds }
        }
        (Step::Credential, Options::Deploy { hosted, .. }) => {
            let asked = (Purpose::Node, INSTALL_SECONDS, *hosted);
            let (id, token) = tokens::mint(tx, relay, machine, asked, now).await?;
            machine.install_token = Some(id);
            let user_data = settle::user_data(&relay.keys, machine)?;
            let ca_pin = relay.ca.load().pin().unwrap_or_default();
            Work::Credential {
                relay: relay.url.clone(),
                ca_pin,
                token: token.reveal(),
                user_data: user_data.map(Secret::reveal),
            }
        }
        _ => return Err(none()),
    })
}

/// What the agent may fetch an image from beside the public Internet.
async fn image_networks(tx: &mut Tx<'_>, machine: &Machine) -> Result<Vec<String>, Fault> {
    let site = sites::find(tx, &machine.site_id).await?;
    let networks = site.map(|site| site.bmc_networks).unwrap_or_default();
    Ok(networks.into_iter().map(|network| network.0).collect())
}

/// Why the image may not be fetched, if so: its name is looked up once more, since it may lead elsewhere by now.
async fn refused_image(relay: &Context, machine: &Machine, step: Step) -> Result<Option<LastError>, Fault> {
    let (Step::Write, Options::Deploy { image, .. }) = (step, &machine.options) else { return Ok(None) };
    let site = relay.store.read("metal.site", machine, |tx, machine| {
        Box::pin(async move { Ok::<_, Fault>(sites::find(tx, &machine.site_id).await?) })
    });
    let networks = site.await?.map(|site| site.bmc_networks).unwrap_or_default();
    let listed: Vec<_> = networks.iter().filter_map(|network| network.0.parse().ok()).collect();
    let target = image.url.as_str().parse::<Target>();
    let leads = match target {
        Ok(target) => relay.outside.leads(&target, &listed).await,
        Err(_) => Err(crate::outside::Unreached::RefusedAddress),
    };
    Ok(leads.err().map(|why| {
        let message = format!(
            "the image's address leads to where no image may come from ({why}): not to the relay's machine, nor into private \
             networks, unless the site lists them"
        );
        Cause::ImageRefused.told_of(message)
    }))
}

/// The machine by what its agent says of a step that is done.
fn taken(mut machine: Machine, step: Step, result: StepResult) -> Result<Machine, LastError> {
    match step {
        Step::Hardware => {
            let Some(report) = result.hardware else {
                return Err(Cause::MalformedReport.told());
            };
            let judged = matches(&machine.identity, &hardware::Machine::judge(&report.identity));
            judged.map_err(|problem| Cause::IdentityMismatch.told_of(problem.detail))?;
            machine.hardware = Some(seen(report));
        }
        // Fail closed: what no disk was reported of was not erased.
        Step::Wipe | Step::Erase => {
            let left: Vec<&str> =
                result.disks.iter().filter(|disk| !disk.done).map(|disk| disk.name.as_str()).collect();
            if result.disks.is_empty() || !left.is_empty() {
                let which = if left.is_empty() { "none is reported".to_owned() } else { left.join(", ") };
                return Err(Cause::NotErased.told_of(format!("not all disks were erased: {which}")));
            }
        }
        _ => {}
    }
    Ok(machine)
}

fn seen(report: HardwareReport) -> Hardware {
    let texts = |list: Vec<Label>| list.iter().map(ToString::to_string).collect();
    Hardware {
        processors: texts(report.processors),
        memory_mib: report.memory_mib.map(Int::get),
        disks: texts(report.disks),
        accelerators: texts(report.accelerators),
        firmware: report.firmware.map(|firmware| firmware.to_string()),
    }
}
