//! The reconciler: it takes a machine that there is something to do with, and takes one step after the other until it has to wait.
//!
//! **No step is lost, and none is taken twice where that matters, whenever a worker is killed.** The task's key is the machine, so
//! one worker of all relays has it: a BMC has one caller. A worker that takes a machine raises its fence; whatever one with an older
//! fence writes counts for nothing, and what anybody else changes raises the machine's version, so that a worker that read it before
//! writes nothing either ([`metal::save`]). What a step asks of a BMC is written down before it is asked, and whoever comes after a
//! crash reads the machine and the hardware, and goes by that:
//!
//! - Killed before the intent is kept: nothing was asked, and it is asked now.
//! - Killed between the intent and the request, or before its answer: nobody knows whether it was asked. The power is read; if it is
//!   as it is to be, the step is done. Else it is waited as if it had been asked, and then On and ForceOff alone are asked again,
//!   which do nothing to a machine that is so already. A shutdown is not asked again but followed by ForceOff, and a power cycle,
//!   the one request that would do its work twice, is never sent a second time. There is no restart among the requests.
//! - Killed after the power has changed: it is as it is to be, and the step is done.
//! - A worker that was paused beyond its lease may still send what it had written down: On, ForceOff, a shutdown, or a cycle that was
//!   never sent. A late ForceOff switches a machine off that somebody waits for; so whoever waits sees that it is on, and asks for On.
//! - Media and the boot source are changed while the machine is off, and read first: inserted twice is inserted.
//!
//! No transaction is open while the network is used. A step that fails is tried again with growing waits until its deadline; nothing
//! fails because a relay ended. Credentials that a BMC refuses are tried once more after 15 minutes and then not until somebody sets
//! others, so that no account is locked out; the step's deadline does not run meanwhile.

use super::{
    at_bmc,
    bmc::{BmcError, Reason},
    causes::Cause,
    ends::{On, done, fail, over, save, shut_out},
    facts::Machine,
    in_band,
    moves::{RECONCILE, SWEEP, ask},
    rotate, settle,
    workflow::{self, Step, power},
};
use crate::{
    context::Context,
    fault::Fault,
    store::metal,
    tasks::{Attempt, Claim, Ended, Failure, runner::Handlers},
};
use shared::{
    api::metal::{LastError, StatePhase, WaitingFor},
    id::NodeId,
    time::Timestamp,
};
use std::{sync::Arc, time::Duration};
use tokio::time::Instant;

/// How long a worker stays with one machine; then others have their turn.
const TURN: Duration = Duration::from_secs(60);
/// How many machines one sweep looks at.
const SWEPT_AT_ONCE: i64 = 500;

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

async fn turn(relay: &Context, claim: &Claim, id: &NodeId) -> Result<Ended, Fault> {
    let end = Instant::now() + TURN;
    loop {
        match taken(relay, claim, id).await? {
            Taken::Machine(machine) => {
                let waits = steps(relay, *machine, end).await?;
                if let Some((seconds, version)) = waits {
                    return rested(relay, claim, (id, version), seconds).await;
                }
            }
            Taken::Over => return Ok(Ended::Finished),
            // What becomes of the task is another's to say.
            Taken::Lost => return Ok(Ended::Later(1)),
        }
    }
}

/// Step after step, until there is nothing to do any more, or it is waited.
async fn steps(relay: &Context, mut machine: Machine, end: Instant) -> Result<Option<(u32, i64)>, Fault> {
    while machine.has_work() {
        let version = machine.version;
        if Instant::now() >= end {
            return Ok(Some((1, version)));
        }
        match step(relay, machine).await? {
            On::With(next) => machine = *next,
            On::Later(seconds, version) => return Ok(Some((seconds, version))),
            On::Lost => return Ok(Some((1, version))),
        }
    }
    Ok(None)
}

/// Waits for so long, unless the machine is another than it was: whoever changed it since it was read, or has news of it, found
/// its task under way and could not wake it. Both hold the machine's row, so one of them sees the other.
async fn rested(
    relay: &Context,
    claim: &Claim,
    (id, version): (&NodeId, i64),
    seconds: u32,
) -> Result<Ended, Fault> {
    let store = &relay.store;
    let rested = store.transact("metal.rest", (claim, id), |tx, (claim, id)| {
        Box::pin(async move {
            let now = metal::lock(tx, id).await?;
            let same = now.is_some_and(|machine| machine.version == version);
            Ok::<_, Fault>(same && claim.rest(tx, seconds).await?)
        })
    });
    Ok(if rested.await? { Ended::Finished } else { Ended::Later(1) })
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
        let contested = Cause::AgentContested.as_str();
        let contested = machine.last_error.clone().filter(|error| error.code == contested);
        return fail(relay, machine, contested.unwrap_or_else(|| Cause::Aborted.told())).await;
    }
    let step = workflow::at(&machine);
    if machine.step.is_some() && step.is_none() && machine.state.phase() == StatePhase::Transient {
        return fail(relay, machine, Cause::NoStep.told()).await;
    }
    let at_bmc = step.is_none_or(|step| step.waits_for() == Some(WaitingFor::Bmc));
    if at_bmc && let Some(seconds) = shut_out(&machine, now) {
        // A workflow waits for other credentials; a switch outside of one, and what is forced, does not.
        let waits = machine.state.phase() == StatePhase::Transient && !machine.forced;
        return if waits {
            Ok(On::Later(seconds, machine.version))
        } else {
            over(relay, machine, refusal()).await
        };
    }
    let Some(begun) = begun(relay, machine, step, now).await? else { return Ok(On::Lost) };
    if begun.deadline.is_some_and(|deadline| deadline < now) {
        let late = || Cause::Deadline.told();
        let error = begun.last_error.clone().unwrap_or_else(late);
        return over(relay, begun, error).await;
    }
    match step {
        Some(Step::Revoke) => match settle::revoked(relay, begun).await? {
            Some(machine) => done(relay, machine).await,
            None => Ok(On::Lost),
        },
        Some(Step::AwaitAgent) => in_band::await_agent(relay, begun).await,
        Some(Step::AwaitDaemon) => in_band::await_daemon(relay, begun).await,
        Some(step) if step.is_agents_work() => in_band::work(relay, begun, step).await,
        step => at_bmc::act(relay, begun, step).await,
    }
}

/// What is told of credentials that are not tried.
fn refusal() -> LastError {
    BmcError::from(Reason::Unauthorized).told()
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
    let (name, seconds, waits_for) = match step {
        Some(step) => (step.as_str(), step.seconds(), step.waits_for()),
        None if machine.rotates => (rotate::NAME, rotate::SECONDS, Some(WaitingFor::Bmc)),
        None => ("power", power::LONGEST_SECONDS, Some(WaitingFor::Bmc)),
    };
    machine.begin(Some((name, now.plus_seconds(seconds))));
    machine.waiting_for = waits_for;
    save(relay, machine, now).await
}
