//! The steps that are done at a BMC: one exchange, or a few that read first. What is asked of a machine is written down before it is
//! asked, and what came of it is read, never believed.

use super::{
    bmc::{Bmc, BmcError, Networks, Reason, Said},
    boot,
    causes::Cause,
    ends::{self, Halt, On, done, failed, later, over, save, save_last, shut_out, with},
    facts::{Asked, Machine, TlsTrust},
    rotate, settle,
    workflow::{self, Step, power},
};
use crate::{context::Context, fault::Fault, store::sites};
use shared::api::metal::{PowerState, PowerTarget};
use std::time::Duration;
use tokio::time::timeout;

/// How long all exchanges of one step may take. With a turn's time it ends before the worker gives up.
const STEP_TIME: Duration = Duration::from_secs(100);

/// Does a step; where there is none, switches the machine or gives its BMC another password.
///
/// # Errors
/// The store's.
pub(super) async fn act(relay: &Context, machine: Machine, step: Option<Step>) -> Result<On, Fault> {
    let networks = networks(relay, &machine).await?;
    let work = async {
        if machine.reach.tls == TlsTrust::FirstUse {
            return pinned(relay, machine.clone(), &networks).await;
        }
        // The start is written down before its image is inserted.
        if step == Some(Step::Insert) && machine.boot.is_none() {
            return boot::prepared(relay, machine.clone()).await;
        }
        if step.is_none() && machine.rotates {
            return rotate::act(relay, machine.clone(), &networks).await;
        }
        match rotate::opened(relay, machine.clone(), &networks).await? {
            Some((machine, Ok(bmc))) => {
                let on = at(relay, machine, &bmc, step).await;
                bmc.close().await;
                on
            }
            Some((machine, Err(error))) => failed(relay, machine, error).await,
            None => Ok(On::Lost),
        }
    };
    match timeout(STEP_TIME, work).await {
        Ok(on) => on,
        Err(_) => failed(relay, machine, Reason::Timeout.into()).await,
    }
}

/// Sees to it that a machine that is waited for is on: a late word of a worker before may have switched it off.
///
/// # Errors
/// The store's.
pub(super) async fn keep_on(relay: &Context, machine: Machine, look_seconds: u32) -> Result<On, Fault> {
    let networks = networks(relay, &machine).await?;
    if machine.reach.tls == TlsTrust::FirstUse {
        return pinned(relay, machine, &networks).await;
    }
    if shut_out(&machine, relay.clock.now()).is_some() {
        return Ok(On::Later(look_seconds, machine.version));
    }
    let looked = timeout(STEP_TIME, async {
        match rotate::opened(relay, machine.clone(), &networks).await? {
            Some((machine, Ok(bmc))) => {
                let on = turned_on(relay, machine, &bmc).await;
                bmc.close().await;
                on
            }
            // Whoever waits for the machine itself goes on waiting, but refused credentials are refused.
            Some((machine, Err(error))) if error.reason == Reason::Unauthorized => {
                Ok(Some(failed(relay, machine, error).await?))
            }
            Some((_, Err(_))) => Ok::<_, Fault>(None),
            None => Ok(Some(On::Lost)),
        }
    });
    match looked.await {
        Ok(Ok(Some(on))) => Ok(on),
        Ok(Err(fault)) => Err(fault),
        Ok(Ok(None)) | Err(_) => Ok(On::Later(look_seconds, machine.version)),
    }
}

/// Asks for On where a machine is off and may be asked.
async fn turned_on(relay: &Context, machine: Machine, bmc: &Bmc) -> Result<Option<On>, Fault> {
    if bmc.power() != PowerState::Off {
        return Ok(None);
    }
    match power::next(PowerTarget::On, bmc.power(), machine.intent, true, relay.clock.now()) {
        power::Next::Ask(intent) if intent.asked == Asked::On => {
            Ok(Some(asked(relay, machine, bmc, intent).await?))
        }
        _ => Ok(None),
    }
}

async fn at(relay: &Context, machine: Machine, bmc: &Bmc, step: Option<Step>) -> Result<On, Fault> {
    let target = step.map_or(machine.wanted_power, |step| step.target(machine.state));
    if let Some(target) = target {
        return switch(relay, machine, bmc, target).await;
    }
    let did = match step {
        Some(Step::Identify) => {
            return match bmc.identity().await {
                Ok(said) => identified(relay, machine, bmc.power(), said).await,
                Err(error) => failed(relay, machine, error).await,
            };
        }
        Some(Step::Inspect) => match bmc.inspect().await {
            Ok(hardware) => {
                let hardware = Some(hardware);
                return done(relay, Machine { hardware, power_state: bmc.power(), ..machine }).await;
            }
            Err(error) => Err(error),
        },
        Some(Step::Eject | Step::Clear) => bmc.clear().await,
        Some(Step::Insert) => {
            let url = boot::url(relay, &machine)?;
            match url {
                Some(url) => bmc.insert(&url).await,
                None => return over(relay, machine, Cause::NoBootListener.told()).await,
            }
        }
        Some(Step::BootMedia) => bmc.boot_media_once().await,
        // Nothing leads here: others have work only by a wanted power.
        _ => return over(relay, machine, Cause::NoStep.told()).await,
    };
    match did {
        Ok(()) => done(relay, machine).await,
        Err(error) => failed(relay, machine, error).await,
    }
}

/// The networks that a machine's BMC may be in.
async fn networks(relay: &Context, machine: &Machine) -> Result<Networks, Fault> {
    let site = relay.store.read("metal.site", machine, |tx, machine| {
        Box::pin(async move { Ok::<_, Fault>(sites::find(tx, &machine.site_id).await?) })
    });
    Ok(Networks::of(&site.await?.map(|site| site.bmc_networks).unwrap_or_default()))
}

/// Writes down the key that a BMC shows first, before it is sent a credential.
async fn pinned(relay: &Context, mut machine: Machine, networks: &Networks) -> Result<On, Fault> {
    match Bmc::shown_key(&machine.reach, networks).await {
        Ok(Some(pin)) => machine.reach.tls = TlsTrust::Pin(pin),
        Ok(None) => machine.reach.tls = TlsTrust::Insecure,
        Err(error) => return failed(relay, machine, error).await,
    }
    with(save(relay, machine, relay.clock.now()).await?)
}

/// Switches a machine, or sees that it is switched.
async fn switch(relay: &Context, mut machine: Machine, bmc: &Bmc, target: PowerTarget) -> Result<On, Fault> {
    let now = relay.clock.now();
    machine.power_state = bmc.power();
    let unsupported = Reason::Unsupported.as_str();
    let graceful = machine.last_error.as_ref().is_none_or(|error| error.code != unsupported);
    match power::next(target, machine.power_state, machine.intent, graceful, now) {
        power::Next::Done => done(relay, machine).await,
        power::Next::Look(seconds) => later(save(relay, machine, now).await?, seconds),
        power::Next::Failed => over(relay, machine, Cause::PowerUnchanged.told()).await,
        power::Next::Ask(intent) => asked(relay, machine, bmc, intent).await,
    }
}

/// Writes down what is asked, then asks for it.
async fn asked(
    relay: &Context,
    mut machine: Machine,
    bmc: &Bmc,
    intent: super::facts::Intent,
) -> Result<On, Fault> {
    machine.intent = Some(intent);
    let Some(machine) = save(relay, machine, relay.clock.now()).await? else { return Ok(On::Lost) };
    match bmc.ask(intent.asked).await {
        Ok(()) => Ok(On::Later(1, machine.version)),
        Err(error) => unasked(relay, machine, error, intent.asked).await,
    }
}

/// The BMC refused to switch: it may be as it is to be already, or not be able to shut down, so the machine is looked at again.
async fn unasked(relay: &Context, mut machine: Machine, error: BmcError, asked: Asked) -> Result<On, Fault> {
    if error.reason == Reason::Unauthorized {
        return failed(relay, machine, error).await;
    }
    tracing::info!(node = machine.node_id.as_str(), error = %error, "a BMC refused to switch its machine");
    if error.reason == Reason::Unsupported {
        machine.intent = None;
    }
    machine.last_error = Some(error.told());
    let [jitter] = relay.random.bytes();
    let graceful = asked == Asked::GracefulShutdown;
    let wait = if graceful { 1 } else { workflow::wait_seconds(machine.attempt, jitter) };
    machine.attempt = machine.attempt.saturating_add(1);
    later(save(relay, machine, relay.clock.now()).await?, wait)
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
    // What an agent or a bcd has proved stays.
    let ek_sha256 = machine.identity.ek_sha256.take();
    machine.identity = said.identity;
    machine.identity.ek_sha256 = ek_sha256;
    let store = &relay.store;
    let judged = store.transact("metal.identify", machine, |tx, machine| {
        Box::pin(async move {
            let mut machine = machine.clone();
            let refused = settle::identity(tx, &machine, now).await?;
            if refused.is_none() {
                machine.tainted |= settle::was_somebodys(tx, &machine).await?;
                save_last(tx, &mut machine, now).await?;
            }
            Ok::<_, Halt>((machine, refused))
        })
    });
    match ends::kept(judged.await)? {
        None => Ok(On::Lost),
        Some((machine, None)) => done(relay, machine).await,
        Some((machine, Some(error))) => ends::fail(relay, machine, error).await,
    }
}
