//! The reconciler: it takes a machine that there is something to do with, and takes one step after the other until it has to wait.
//!
//! **No step is lost, and none is taken twice where that matters, whenever a worker is killed.** The task's key is the machine, so
//! one worker of all relays has it: a BMC has one caller. A worker that takes a machine raises its fence; whatever one with an older
//! fence writes counts for nothing ([`metal::save`]). What a step asks of a BMC is written down before it is asked, and whoever
//! comes after a crash reads the machine and the hardware, and goes by that: what is as it is to be is skipped, what was asked
//! is waited for, On and ForceOff alone are asked again, and a power cycle never. What a worker asks late, after its lease, is
//! therefore On, ForceOff, a shutdown or a cycle that was written down once. No transaction is open while the network is used.
//!
//! A step that fails is tried again with growing waits until its deadline; nothing fails because a relay ended. Credentials that a BMC
//! refuses are tried once more after 15 minutes and then not until somebody sets others, so that no account is locked out; the
//! step's deadline does not run meanwhile.

use super::{
    bmc::{Bmc, BmcError, Networks, Reason, Said},
    credentials,
    facts::{Asked, Machine, TlsTrust},
    machine,
    moves::{Moved, RECONCILE, SWEEP, ask, told},
    settle,
    workflow::{self, Step, power},
};
use crate::{
    context::Context,
    fault::Fault,
    store::{Tx, metal, sites},
    tasks::{Attempt, Claim, Ended, Failure, runner::Handlers},
};
use shared::{
    api::metal::{LastError, MetalState, PowerState, PowerTarget, StatePhase, WaitingFor},
    id::NodeId,
    time::Timestamp,
};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout};

/// How long a worker stays with one machine; then others have their turn.
const TURN: Duration = Duration::from_secs(60);
/// How long all exchanges of one step may take. With a turn's time it ends before the worker gives up.
const STEP_TIME: Duration = Duration::from_secs(100);
/// After how many refusals in a row credentials are not tried any more.
const MAX_REFUSALS: i64 = 2;
/// How long after the first refusal they are tried again, in seconds (15 minutes).
const PROBE_SECONDS: i64 = 900;
/// How often a machine is looked at whose credentials are not tried, in seconds; setting others wakes it.
const IDLE_SECONDS: u32 = 3_600;
/// How long switching a machine may take that is in no workflow, in seconds.
const SWITCH_SECONDS: i64 = power::SHUTDOWN_SECONDS + 5 * power::SETTLE_SECONDS;
/// How many machines one sweep looks at.
const SWEPT_AT_ONCE: i64 = 500;
/// Who moves a machine at a workflow's end.
const ACTOR: &str = "relay";

/// With the handler that reconciles.
#[must_use]
pub fn handlers(others: Handlers) -> Handlers {
    others.on(&RECONCILE, reconcile).on(&SWEEP, sweep)
}

/// Asks for the machines that there is something to do with, and no task that does it.
async fn sweep(relay: Arc<Context>, _: Claim) -> Attempt {
    let idle = relay.store.read("metal.idle", (), |tx, ()| {
        Box::pin(async move { Ok::<_, Fault>(metal::idle(tx, SWEPT_AT_ONCE).await?) })
    });
    for id in idle.await.map_err(Failure::from)? {
        let asked = relay.store.transact("metal.ask", (&relay, &id), |tx, (relay, id)| {
            Box::pin(async move {
                let Some(mut machine) = metal::lock(tx, id).await? else { return Ok(()) };
                ask(tx, &relay.random, &mut machine).await?;
                let now = machine.updated_at;
                metal::save(tx, &mut machine, now).await?;
                Ok::<_, Fault>(())
            })
        });
        asked.await.map_err(Failure::from)?;
    }
    Ok(Ended::Done)
}

async fn reconcile(relay: Arc<Context>, claim: Claim) -> Attempt {
    let id = claim.payload.get("nodeId").and_then(|id| id.as_str()?.parse().ok());
    let id: NodeId = id.ok_or_else(|| Failure::Never("its payload names no machine".to_owned()))?;
    turn(&relay, &claim, &id).await.map_err(Failure::from)
}

/// How a machine goes on.
enum On {
    /// At once, as it is now.
    With(Box<Machine>),
    /// In so many seconds.
    Later(u32),
    /// It is another worker's.
    Lost,
}

async fn turn(relay: &Context, claim: &Claim, id: &NodeId) -> Result<Ended, Fault> {
    let end = Instant::now() + TURN;
    loop {
        match taken(relay, claim, id).await? {
            Taken::Machine(machine) => match steps(relay, *machine, end).await? {
                Some(ended) => return Ok(ended),
                None => {}
            },
            Taken::Over => return Ok(Ended::Finished),
            // What becomes of the task is another's to say.
            Taken::Lost => return Ok(Ended::Later(1)),
        }
    }
}

/// Step after step, until there is nothing to do any more, or it is waited.
async fn steps(relay: &Context, mut machine: Machine, end: Instant) -> Result<Option<Ended>, Fault> {
    while machine.has_work() {
        if Instant::now() >= end {
            return Ok(Some(Ended::Later(1)));
        }
        match step(relay, machine).await? {
            On::With(next) => machine = *next,
            On::Later(seconds) => return Ok(Some(Ended::Later(seconds))),
            On::Lost => return Ok(Some(Ended::Later(1))),
        }
    }
    Ok(None)
}

/// What became of taking a machine.
enum Taken {
    /// It is this worker's from now on, and there is something to do with it.
    Machine(Box<Machine>),
    /// There is nothing to do with it, and the task has ended with that.
    Over,
    /// The task is another worker's.
    Lost,
}

/// Takes the machine, if the task is still this worker's; ends the task where there is nothing to do. A verb that comes meanwhile
/// waits for the machine's lock, and finds no task that is open.
async fn taken(relay: &Context, claim: &Claim, id: &NodeId) -> Result<Taken, Fault> {
    let store = &relay.store;
    store
        .transact("metal.take", (claim, id), |tx, (claim, id)| {
            Box::pin(async move {
                let found = metal::lock(tx, id).await?;
                if !claim.is_held(tx).await? {
                    return Ok(Taken::Lost);
                }
                match found {
                    Some(machine) if machine.has_work() => {
                        let taken = metal::take(tx, id).await?;
                        Ok::<_, Fault>(taken.map_or(Taken::Lost, |machine| Taken::Machine(Box::new(machine))))
                    }
                    _ => Ok(if claim.finish(tx).await? { Taken::Over } else { Taken::Lost }),
                }
            })
        })
        .await
}

/// One step of what there is to do.
async fn step(relay: &Context, machine: Machine) -> Result<On, Fault> {
    let now = relay.clock.now();
    if machine.aborted && machine.state.phase() == StatePhase::Transient {
        let error = settle::plain("aborted", "somebody ended the workflow");
        return fail(relay, machine, error, now).await;
    }
    if let Some(seconds) = shut_out(&machine, now) {
        return Ok(On::Later(seconds));
    }
    let step = workflow::at(machine.state, machine.step.as_deref());
    let Some(begun) = begun(relay, machine, step, now).await? else { return Ok(On::Lost) };
    if begun.deadline.is_some_and(|deadline| deadline < now) {
        let error =
            begun.last_error.clone().unwrap_or_else(|| settle::plain("deadline", "the step took too long"));
        return over(relay, begun, error, now).await;
    }
    let networks = networks(relay, &begun).await?;
    let work = async {
        if begun.reach.tls == TlsTrust::FirstUse {
            return pinned(relay, begun.clone(), &networks, now).await;
        }
        at_bmc(relay, begun.clone(), step, &networks).await
    };
    match timeout(STEP_TIME, work).await {
        Ok(on) => on,
        Err(_) => failed(relay, begun, Reason::Timeout.into(), now).await,
    }
}

/// What a step does at the BMC.
async fn at_bmc(
    relay: &Context,
    begun: Machine,
    step: Option<Step>,
    networks: &Networks,
) -> Result<On, Fault> {
    let now = relay.clock.now();
    let target = match (step, begun.wanted_power) {
        (Some(Step::PowerOff), _) => Some(PowerTarget::Off),
        (None, target) => target,
        _ => None,
    };
    let opened = opened(relay, &begun, networks).await?;
    match (opened, step, target) {
        (Err(error), ..) => failed(relay, begun, error, now).await,
        (Ok(bmc), _, Some(target)) => switch(relay, begun, &bmc, target).await,
        (Ok(bmc), Some(Step::Identify), _) => match bmc.identity().await {
            Ok(said) => identified(relay, begun, bmc.power(), said).await,
            Err(error) => failed(relay, begun, error, now).await,
        },
        (Ok(bmc), Some(Step::Inspect), _) => match bmc.inspect().await {
            Ok(hardware) => {
                let machine = Machine { hardware: Some(hardware), power_state: bmc.power(), ..begun };
                done(relay, machine).await
            }
            Err(error) => failed(relay, begun, error, now).await,
        },
        (Ok(bmc), Some(Step::Clear), _) => match bmc.clear().await {
            Ok(()) => done(relay, begun).await,
            Err(error) => failed(relay, begun, error, now).await,
        },
        // Nothing leads here: a transient state has steps, and others have work only by a wanted power.
        (Ok(_), _, None) => {
            fail(relay, begun, settle::plain("noStep", "this release does not know the machine's step"), now)
                .await
        }
    }
}

/// How long it is waited before refused credentials are tried again; `None` where they may be.
fn shut_out(machine: &Machine, now: Timestamp) -> Option<u32> {
    if machine.refusals >= MAX_REFUSALS {
        return Some(IDLE_SECONDS);
    }
    let left = machine.retry_at?.seconds().saturating_sub(now.seconds());
    (left > 0).then(|| u32::try_from(left).unwrap_or(IDLE_SECONDS).min(IDLE_SECONDS))
}

/// The machine at its step, with a deadline that is written down.
async fn begun(
    relay: &Context,
    mut machine: Machine,
    step: Option<Step>,
    now: Timestamp,
) -> Result<Option<Machine>, Fault> {
    if machine.deadline.is_some() {
        return Ok(Some(machine));
    }
    let (name, seconds) = step.map_or(("power", SWITCH_SECONDS), |step| (step.as_str(), step.seconds()));
    machine.begin(Some((name, now.plus_seconds(seconds))));
    machine.waiting_for = Some(WaitingFor::Bmc);
    save(relay, machine, now).await
}

/// The networks that a machine's BMC may be in.
async fn networks(relay: &Context, machine: &Machine) -> Result<Networks, Fault> {
    let site = relay.store.read("metal.site", machine, |tx, machine| {
        Box::pin(async move { Ok::<_, Fault>(sites::find(tx, &machine.site_id).await?) })
    });
    Ok(Networks::of(&site.await?.map(|site| site.bmc_networks).unwrap_or_default()))
}

/// The BMC, if it lets us in.
async fn opened(
    relay: &Context,
    machine: &Machine,
    networks: &Networks,
) -> Result<Result<Bmc, BmcError>, Fault> {
    let Some(sealed) = &machine.sealed_credentials else { return Ok(Err(Reason::CredentialsMissing.into())) };
    let credentials = credentials::open(&relay.keys, &machine.node_id, sealed)?;
    Ok(Bmc::open(&machine.reach, credentials, networks).await)
}

/// Writes down the key that a BMC shows first, before it is sent a credential.
async fn pinned(
    relay: &Context,
    mut machine: Machine,
    networks: &Networks,
    now: Timestamp,
) -> Result<On, Fault> {
    match Bmc::shown_key(&machine.reach, networks).await {
        Ok(Some(pin)) => machine.reach.tls = TlsTrust::Pin(pin),
        Ok(None) => machine.reach.tls = TlsTrust::Insecure,
        Err(error) => return failed(relay, machine, error, now).await,
    }
    let saved = save(relay, machine, now).await?;
    Ok(saved.map_or(On::Lost, |machine| On::With(Box::new(machine))))
}

/// Switches a machine, or sees that it is switched.
async fn switch(relay: &Context, mut machine: Machine, bmc: &Bmc, target: PowerTarget) -> Result<On, Fault> {
    let now = relay.clock.now();
    machine.power_state = bmc.power();
    let graceful = machine.last_error.as_ref().is_none_or(|error| error.code != Reason::Unsupported.as_str());
    match power::next(target, machine.power_state, machine.intent, graceful, now) {
        power::Next::Done => done(relay, machine).await,
        power::Next::Look(seconds) => {
            let saved = save(relay, machine, now).await?;
            Ok(saved.map_or(On::Lost, |_| On::Later(seconds)))
        }
        power::Next::Failed => {
            let error = settle::plain(
                "powerUnchanged",
                "the BMC takes the request, and nothing comes of it; look at the machine",
            );
            over(relay, machine, error, now).await
        }
        power::Next::Ask(intent) => {
            machine.intent = Some(intent);
            let Some(machine) = save(relay, machine, now).await? else { return Ok(On::Lost) };
            match bmc.ask(intent.asked).await {
                Ok(()) => Ok(On::Later(1)),
                Err(error) => unasked(relay, machine, error, intent.asked).await,
            }
        }
    }
}

/// The BMC refused to switch: it may be as it is to be already, or not be able to shut down, so the machine is looked at again.
async fn unasked(relay: &Context, mut machine: Machine, error: BmcError, asked: Asked) -> Result<On, Fault> {
    let now = relay.clock.now();
    if error.reason == Reason::Unauthorized {
        return failed(relay, machine, error, now).await;
    }
    tracing::info!(node = machine.node_id.as_str(), error = %error, "a BMC refused to switch its machine");
    if error.reason == Reason::Unsupported {
        machine.intent = None;
    }
    machine.last_error = Some(error.told());
    let wait = if asked == Asked::GracefulShutdown { 1 } else { workflow::wait_seconds(machine.attempt) };
    machine.attempt = machine.attempt.saturating_add(1);
    let saved = save(relay, machine, now).await?;
    Ok(saved.map_or(On::Lost, |_| On::Later(wait)))
}

/// Keeps what a BMC says that it is, and judges whether the machine may be that.
async fn identified(
    relay: &Context,
    mut machine: Machine,
    power_state: PowerState,
    said: Said,
) -> Result<On, Fault> {
    let now = relay.clock.now();
    machine.power_state = power_state;
    machine.vendor = said.vendor;
    machine.firmware = said.firmware;
    machine.virtual_media = said.virtual_media;
    machine.identity = said.identity;
    let store = &relay.store;
    let judged = store
        .transact("metal.identify", machine, |tx, machine| {
            Box::pin(async move {
                let mut machine = machine.clone();
                let refused = settle::identity(tx, &machine).await?;
                if refused.is_none() && !metal::save(tx, &mut machine, now).await? {
                    return Ok(None);
                }
                Ok::<_, Fault>(Some((machine, refused)))
            })
        })
        .await?;
    match judged {
        None => Ok(On::Lost),
        Some((machine, None)) => done(relay, machine).await,
        Some((machine, Some(error))) => fail(relay, machine, error, now).await,
    }
}

/// A step is done: the next one begins, or the workflow has come to its end.
async fn done(relay: &Context, mut machine: Machine) -> Result<On, Fault> {
    let now = relay.clock.now();
    machine.refusals = 0;
    machine.retry_at = None;
    machine.last_error = None;
    let next = workflow::at(machine.state, machine.step.as_deref())
        .and_then(|step| workflow::after(machine.state, step));
    if let Some(next) = next {
        machine.begin(Some((next.as_str(), now.plus_seconds(next.seconds()))));
        machine.waiting_for = Some(WaitingFor::Bmc);
        let saved = save(relay, machine, now).await?;
        return Ok(saved.map_or(On::Lost, |machine| On::With(Box::new(machine))));
    }
    machine.begin(None);
    machine.wanted_power = None;
    match machine::end(machine.state, machine.began_from) {
        Some(end) => moved(relay, machine, end, None, now).await,
        None => {
            let saved = save(relay, machine, now).await?;
            Ok(saved.map_or(On::Lost, |machine| On::With(Box::new(machine))))
        }
    }
}

/// A step failed: it is tried again, or waits for other credentials, or the workflow has failed.
async fn failed(relay: &Context, mut machine: Machine, error: BmcError, now: Timestamp) -> Result<On, Fault> {
    tracing::info!(node = machine.node_id.as_str(), error = %error, attempt = machine.attempt, "a BMC did not do its step");
    if error.reason == Reason::Unauthorized {
        machine.refusals = machine.refusals.saturating_add(1);
        machine.retry_at = Some(now.plus_seconds(PROBE_SECONDS));
        machine.last_error = Some(error.told());
        // The deadline does not run while nothing is tried.
        machine.deadline = machine.deadline.map(|deadline| deadline.plus_seconds(PROBE_SECONDS));
        let wait = shut_out(&machine, now).unwrap_or(1);
        if machine.refusals >= MAX_REFUSALS {
            machine.deadline = None;
        }
        let saved = save(relay, machine, now).await?;
        return Ok(saved.map_or(On::Lost, |_| On::Later(wait)));
    }
    if !error.may_pass() {
        return over(relay, machine, error.told(), now).await;
    }
    let wait = workflow::wait_seconds(machine.attempt);
    machine.last_error = Some(error.told());
    machine.attempt = machine.attempt.saturating_add(1);
    let saved = save(relay, machine, now).await?;
    Ok(saved.map_or(On::Lost, |_| On::Later(wait)))
}

/// Nothing comes of a step any more: a forced retirement goes on without it, everything else has failed.
async fn over(relay: &Context, mut machine: Machine, error: LastError, now: Timestamp) -> Result<On, Fault> {
    if machine.state == MetalState::Retiring && machine.forced {
        machine.skipped.extend(machine.step.clone());
        return done(relay, machine).await;
    }
    fail(relay, machine, error, now).await
}

/// A workflow has failed; a switch outside of one has too, and leaves the state as it is.
async fn fail(relay: &Context, mut machine: Machine, error: LastError, now: Timestamp) -> Result<On, Fault> {
    machine.begin(None);
    machine.aborted = false;
    machine.wanted_power = None;
    let code = error.code.clone();
    machine.last_error = Some(error);
    match machine.state.failed() {
        Some(failed) => moved(relay, machine, failed, Some(&code), now).await,
        None => {
            let saved = save(relay, machine, now).await?;
            Ok(saved.map_or(On::Lost, |machine| On::With(Box::new(machine))))
        }
    }
}

/// Writes the end of a workflow, its transition and what follows from it, in one transaction.
async fn moved(
    relay: &Context,
    machine: Machine,
    to: MetalState,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<On, Fault> {
    let context = (relay, machine, to, reason);
    let store = &relay.store;
    let saved = store
        .transact("metal.move", context, |tx, (relay, machine, to, reason)| {
            Box::pin(write_move(tx, relay, machine.clone(), *to, *reason, now))
        })
        .await?;
    Ok(saved.map_or(On::Lost, |machine| On::With(Box::new(machine))))
}

async fn write_move(
    tx: &mut Tx<'_>,
    relay: &Context,
    mut machine: Machine,
    to: MetalState,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<Option<Machine>, Fault> {
    let from = machine.state;
    machine.state = to;
    machine.aborted = false;
    if to == MetalState::Retired {
        machine.sealed_credentials = None;
        settle::release(tx, relay, &machine, now).await?;
    }
    if !metal::save(tx, &mut machine, now).await? {
        // What was written beside it is not kept either.
        return Err(crate::store::StoreError::Race.into());
    }
    let moved = Moved { actor: ACTOR, request_id: "", at: now, verb: None, from: Some(from), reason };
    told(tx, &relay.random, &machine, &moved).await?;
    Ok(Some(machine))
}

/// Saves a machine; `None` if it is another's by now.
async fn save(relay: &Context, machine: Machine, now: Timestamp) -> Result<Option<Machine>, Fault> {
    let store = &relay.store;
    store
        .transact("metal.save", machine, |tx, machine| {
            Box::pin(async move {
                let mut machine = machine.clone();
                Ok::<_, Fault>(metal::save(tx, &mut machine, now).await?.then_some(machine))
            })
        })
        .await
}
