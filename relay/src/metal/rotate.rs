//! A BMC's user gets another password, which is drawn here and shown to nobody.
//!
//! **One of two passwords lets us in, whenever a worker is killed, and both are known.** The new one is sealed beside the one that holds
//! before the BMC hears of it; what the BMC then says counts for nothing: the new one takes the other's place once it has let
//! somebody in, and not before. Whoever comes after a crash tries the new one first:
//!
//! - Killed before it is kept: nothing was asked, and another one is drawn.
//! - Killed before the BMC has taken it: it is refused, the old one lets in, and it is set again.
//! - Killed after that: it lets in, and is kept as the one that holds.
//!
//! That a new password is refused is no refusal of the machine's credentials: only the old one's counts towards not trying them any
//! more. A rotation that ends with neither seen to hold leaves the new one where it is: whoever is refused by the old one
//! later tries it once ([`opened`]).

use super::{
    bmc::{Bmc, BmcError, Networks, Reason},
    credentials::{self, Column},
    ends::{On, done, failed, later, over, save},
    facts::{Credentials, Machine},
    workflow,
};
use crate::{context::Context, fault::Fault};
use shared::api::metal::LastError;

/// The name of what is done, as of a step.
pub(super) const NAME: &str = "rotateCredentials";
/// How long it may take, in seconds.
pub(super) const SECONDS: i64 = 900;
/// How often a BMC is given the password at most. Each time that it turns out not to hold is a refused login there.
const MAX_ASKS: i64 = 3;

/// Goes on with a rotation.
///
/// # Errors
/// The store's; what is sealed can't be opened.
pub(super) async fn act(relay: &Context, mut machine: Machine, networks: &Networks) -> Result<On, Fault> {
    let Some(current) = current(relay, &machine)? else {
        return failed(relay, machine, Reason::CredentialsMissing.into()).await;
    };
    if let Some(candidate) = candidate(relay, &machine, &current)? {
        match Bmc::open(&machine.reach, candidate.clone(), networks).await {
            Ok(bmc) => {
                bmc.close().await;
                promote(relay, &mut machine, &candidate)?;
                return done(relay, machine).await;
            }
            Err(error) if error.reason == Reason::Unauthorized => {}
            Err(error) => return failed(relay, machine, error).await,
        }
    }
    match Bmc::open(&machine.reach, current.clone(), networks).await {
        Ok(bmc) => {
            let on = asked(relay, machine, &bmc, &current).await;
            bmc.close().await;
            on
        }
        Err(error) => failed(relay, machine, error).await,
    }
}

/// The BMC, if it lets us in: by its credentials or, where it refuses those, by a password that it was given once. The machine is as it
/// is then; `None` if it is another worker's by now.
///
/// # Errors
/// The store's; what is sealed can't be opened.
pub(super) async fn opened(
    relay: &Context,
    mut machine: Machine,
    networks: &Networks,
) -> Result<Option<(Machine, Result<Bmc, BmcError>)>, Fault> {
    let Some(current) = current(relay, &machine)? else {
        return Ok(Some((machine, Err(Reason::CredentialsMissing.into()))));
    };
    let by_current = Bmc::open(&machine.reach, current.clone(), networks).await;
    let refused = matches!(&by_current, Err(error) if error.reason == Reason::Unauthorized);
    let Some(candidate) = candidate(relay, &machine, &current)?.filter(|_| refused) else {
        return Ok(Some((machine, by_current)));
    };
    let Ok(bmc) = Bmc::open(&machine.reach, candidate.clone(), networks).await else {
        return Ok(Some((machine, by_current)));
    };
    promote(relay, &mut machine, &candidate)?;
    match save(relay, machine, relay.clock.now()).await? {
        Some(machine) => Ok(Some((machine, Ok(bmc)))),
        None => {
            bmc.close().await;
            Ok(None)
        }
    }
}

/// Writes the new password down, then gives it to the BMC, which was let in by the old one.
async fn asked(relay: &Context, mut machine: Machine, bmc: &Bmc, current: &Credentials) -> Result<On, Fault> {
    let candidate = match candidate(relay, &machine, current)? {
        Some(candidate) => {
            if let Some(error) = hopeless(&machine) {
                if is_refusal(&error) {
                    machine.sealed_candidate = None;
                }
                return over(relay, machine, error).await;
            }
            machine.attempt = machine.attempt.saturating_add(1);
            candidate
        }
        None => {
            let password = credentials::drawn(&relay.random);
            Credentials { username: current.username.clone(), password }
        }
    };
    machine.sealed_candidate = Some(sealed(relay, &machine, Column::Candidate, &candidate)?);
    let now = relay.clock.now();
    let Some(mut machine) = save(relay, machine, now).await? else { return Ok(On::Lost) };
    let said = bmc.set_password(&candidate.username, &candidate.password).await;
    machine.last_error = said.as_ref().err().map(BmcError::told);
    if let Err(error) = &said {
        let node = machine.node_id.as_str();
        tracing::info!(node, error = %error, "a BMC did not take another password, as it says");
    }
    let [jitter] = relay.random.bytes();
    // The first time it is looked at once whether it holds.
    let wait = if machine.attempt > 1 { workflow::wait_seconds(machine.attempt, jitter) } else { 1 };
    later(save(relay, machine, now).await?, wait)
}

/// Why it is not asked again, now that the new password does not hold and the old one does.
fn hopeless(machine: &Machine) -> Option<LastError> {
    let said = machine.last_error.clone();
    if said.as_ref().is_some_and(is_refusal) {
        return said;
    }
    let unsettled = || BmcError::from(Reason::Unsettled).told();
    (machine.attempt >= MAX_ASKS).then(|| said.unwrap_or_else(unsettled))
}

/// Whether a BMC said for good that it does not take the password: then it does not come to hold later.
fn is_refusal(error: &LastError) -> bool {
    error.code == Reason::Unsupported.as_str()
        || error.bmc_status.is_some_and(|status| (400..500).contains(&status))
            && error.code == Reason::Refused.as_str()
}

/// The password that a BMC was given once takes the place of the one that held.
fn promote(relay: &Context, machine: &mut Machine, candidate: &Credentials) -> Result<(), Fault> {
    machine.sealed_credentials = Some(sealed(relay, machine, Column::Credentials, candidate)?);
    machine.sealed_candidate = None;
    machine.refusals = 0;
    machine.retry_at = None;
    Ok(())
}

fn current(relay: &Context, machine: &Machine) -> Result<Option<Credentials>, Fault> {
    let sealed = machine.sealed_credentials.as_ref();
    sealed
        .map(|sealed| credentials::open(&relay.keys, &machine.node_id, Column::Credentials, sealed))
        .transpose()
}

/// The password that the BMC was given once, if it was for the user that it lets in now.
fn candidate(
    relay: &Context,
    machine: &Machine,
    current: &Credentials,
) -> Result<Option<Credentials>, Fault> {
    let Some(sealed) = &machine.sealed_candidate else { return Ok(None) };
    let opened = credentials::open(&relay.keys, &machine.node_id, Column::Candidate, sealed)?;
    Ok(Some(opened).filter(|opened| opened.username == current.username))
}

fn sealed(
    relay: &Context,
    machine: &Machine,
    column: Column,
    credentials: &Credentials,
) -> Result<String, Fault> {
    credentials::seal(&relay.keys, &relay.random, (&machine.node_id, column), credentials)
}
