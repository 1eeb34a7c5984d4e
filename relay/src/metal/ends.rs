//! What a step came to, written down: the next step, a wait, the end of a workflow. Whatever is written here counts only where the
//! machine is still as it was read, by its version and its worker's fence; on a stale one the whole transaction keeps nothing.

use super::{
    bmc::{BmcError, Reason},
    boot,
    facts::{Machine, Options},
    machine,
    moves::{Moved, told},
    settle,
    workflow::{self, Plan},
};
use crate::{
    context::Context,
    fault::Fault,
    store::{StoreError, StoreFault, Tx, metal, token_views},
};
use shared::{
    api::metal::{LastError, MetalState, StatePhase},
    time::Timestamp,
};

/// After how many refusals in a row credentials are not tried any more.
const MAX_REFUSALS: i64 = 2;
/// How long after the first refusal they are tried again, in seconds (15 minutes).
const PROBE_SECONDS: i64 = 900;
/// How often a machine is looked at that nobody can do anything with, in seconds; what changes that wakes it.
pub(super) const IDLE_SECONDS: u32 = 3_600;
/// Who moves a machine at a workflow's end.
const ACTOR: &str = "relay";

/// How a machine goes on.
pub(super) enum On {
    /// At once, as it is now.
    With(Box<Machine>),
    /// In so many seconds, unless it has another version than this by then.
    Later(u32, i64),
    /// It is another worker's, or somebody changed it.
    Lost,
}

/// How long it is waited before refused credentials are tried again; `None` where they may be.
pub(super) fn shut_out(machine: &Machine, now: Timestamp) -> Option<u32> {
    if machine.refusals >= MAX_REFUSALS {
        return Some(IDLE_SECONDS);
    }
    let left = machine.retry_at?.seconds().saturating_sub(now.seconds());
    (left > 0).then(|| u32::try_from(left).unwrap_or(IDLE_SECONDS).min(IDLE_SECONDS))
}

/// A step is done: the next one begins, or the workflow has come to its end.
///
/// # Errors
/// The store's.
pub(super) async fn done(relay: &Context, mut machine: Machine) -> Result<On, Fault> {
    machine.refusals = 0;
    machine.retry_at = None;
    machine.last_error = None;
    next(relay, machine).await
}

/// The next step begins, or the workflow has come to its end.
async fn next(relay: &Context, mut machine: Machine) -> Result<On, Fault> {
    let now = relay.clock.now();
    let next =
        workflow::at(&machine).and_then(|step| workflow::after(machine.state, Plan::of(&machine), step));
    if let Some(next) = next {
        machine.begin(Some((next.as_str(), now.plus_seconds(next.seconds()))));
        machine.waiting_for = next.waits_for();
        return with(save(relay, machine, now).await?);
    }
    machine.begin(None);
    machine.wanted_power = None;
    machine.rotates = false;
    match machine::end(machine.state, machine.began_from) {
        Some(end) => moved(relay, machine, end, None, now).await,
        None => with(save(relay, machine, now).await?),
    }
}

/// A step failed: it is tried again, or waits for other credentials, or nothing comes of it.
///
/// # Errors
/// The store's.
pub(super) async fn failed(relay: &Context, mut machine: Machine, error: BmcError) -> Result<On, Fault> {
    let now = relay.clock.now();
    let (node, attempt) = (machine.node_id.as_str(), machine.attempt);
    tracing::info!(node, error = %error, attempt, "a BMC did not do its step");
    if error.reason == Reason::Unauthorized {
        return refused(relay, machine, error, now).await;
    }
    if !error.may_pass() {
        return over(relay, machine, error.told()).await;
    }
    let [jitter] = relay.random.bytes();
    let wait = workflow::wait_seconds(machine.attempt, jitter);
    machine.last_error = Some(error.told());
    machine.attempt = machine.attempt.saturating_add(1);
    later(save(relay, machine, now).await?, wait)
}

/// The BMC refused the credentials. The step's deadline does not run while nothing is tried.
async fn refused(
    relay: &Context,
    mut machine: Machine,
    error: BmcError,
    now: Timestamp,
) -> Result<On, Fault> {
    machine.refusals = machine.refusals.saturating_add(1);
    machine.retry_at = Some(now.plus_seconds(PROBE_SECONDS));
    machine.last_error = Some(error.told());
    machine.deadline = machine.deadline.map(|deadline| deadline.plus_seconds(PROBE_SECONDS));
    if machine.refusals >= MAX_REFUSALS {
        machine.deadline = None;
    }
    if machine.state.phase() != StatePhase::Transient || machine.forced {
        return over(relay, machine, error.told()).await;
    }
    let wait = shut_out(&machine, now).unwrap_or(1);
    later(save(relay, machine, now).await?, wait)
}

/// Nothing comes of a step any more: a forced retirement goes on without it, everything else has failed.
///
/// # Errors
/// The store's.
pub(super) async fn over(relay: &Context, mut machine: Machine, error: LastError) -> Result<On, Fault> {
    if machine.state == MetalState::Retiring && machine.forced {
        machine.skipped.extend(workflow::at(&machine).map(|step| step.as_str().to_owned()));
        return next(relay, machine).await;
    }
    fail(relay, machine, error).await
}

/// A workflow has failed; a switch or another password outside of one has too, and leaves the state as it is.
///
/// # Errors
/// The store's.
pub(super) async fn fail(relay: &Context, mut machine: Machine, error: LastError) -> Result<On, Fault> {
    let now = relay.clock.now();
    machine.begin(None);
    machine.wanted_power = None;
    machine.rotates = false;
    let code = error.code.clone();
    machine.last_error = Some(error);
    match machine.state.failed() {
        Some(failed) => moved(relay, machine, failed, Some(&code), now).await,
        None => with(save(relay, machine, now).await?),
    }
}

/// Saves a machine; `None` if it is another's by now.
///
/// # Errors
/// The store's.
pub(super) async fn save(
    relay: &Context,
    machine: Machine,
    now: Timestamp,
) -> Result<Option<Machine>, Fault> {
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

/// Goes on at once with what was saved.
///
/// # Errors
/// None.
pub(super) fn with(saved: Option<Machine>) -> Result<On, Fault> {
    Ok(saved.map_or(On::Lost, |machine| On::With(Box::new(machine))))
}

/// Goes on later with what was saved.
///
/// # Errors
/// None.
pub(super) fn later(saved: Option<Machine>, seconds: u32) -> Result<On, Fault> {
    Ok(saved.map_or(On::Lost, |machine| On::Later(seconds, machine.version)))
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
            Box::pin(write_move(tx, relay, machine.clone(), (*to, *reason), now))
        })
        .await;
    with(kept(saved)?)
}

/// Why a transaction of several writes keeps none of them.
pub(super) enum Halt {
    /// The machine is another's by now, or somebody changed it.
    Stale,
    /// A fault.
    Fault(Fault),
}

impl From<StoreError> for Halt {
    fn from(error: StoreError) -> Self {
        Self::Fault(error.into())
    }
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl StoreFault for Halt {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Stale => None,
            Self::Fault(fault) => fault.store_error(),
        }
    }
}

/// Saves a machine as the last of several writes.
///
/// # Errors
/// [`Halt::Stale`] if it is another's by now; the store's.
pub(super) async fn save_last(tx: &mut Tx<'_>, machine: &mut Machine, now: Timestamp) -> Result<(), Halt> {
    if metal::save(tx, machine, now).await? { Ok(()) } else { Err(Halt::Stale) }
}

/// What such a transaction kept; `None` if the machine is another's by now.
///
/// # Errors
/// The transaction's fault.
pub(super) fn kept<T>(result: Result<T, Halt>) -> Result<Option<T>, Fault> {
    match result {
        Ok(kept) => Ok(Some(kept)),
        Err(Halt::Stale) => Ok(None),
        Err(Halt::Fault(fault)) => Err(fault),
    }
}

async fn write_move(
    tx: &mut Tx<'_>,
    relay: &Context,
    mut machine: Machine,
    (to, reason): (MetalState, Option<&str>),
    now: Timestamp,
) -> Result<Machine, Halt> {
    let from = machine.state;
    machine.state = to;
    machine.aborted = false;
    machine.options = Options::Nothing;
    machine.sealed_user_data = None;
    // Tokens before nodes before machines: the order of every change.
    boot::ended(tx, &mut machine, now).await?;
    if to != MetalState::Rescued {
        machine.agent_key = None;
    }
    if to != MetalState::Deployed
        && let Some(token) = machine.install_token.as_ref().filter(|_| from == MetalState::Deploying)
    {
        // A system that was half installed does not join later, and one that has is none.
        token_views::revoke(tx, token, now).await?;
        if machine.has_joined {
            settle::end_certificate(tx, relay, &machine.node_id).await?;
        }
    }
    if to == MetalState::Available && from != MetalState::Inspecting {
        machine.tainted = false;
    }
    if to == MetalState::Retired {
        machine.sealed_credentials = None;
        machine.sealed_candidate = None;
        settle::release(tx, relay, &machine, now).await?;
    }
    save_last(tx, &mut machine, now).await?;
    let moved = Moved { actor: ACTOR, request_id: "", at: now, verb: None, from: Some(from), reason };
    told(tx, &relay.random, &machine, &moved).await?;
    Ok(machine)
}
