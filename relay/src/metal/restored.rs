//! What a backup says of machines is not how they are now. A workflow that it revives would go on with a machine that somebody
//! has had since, and what it calls available may be in a tenant's hands: so no machine is at work after a restore, none is
//! available, and each is erased in full before it is.

use super::{
    causes::Cause,
    facts::Options,
    moves::{Moved, told},
};
use crate::{
    events::Origin,
    fault::Fault,
    random::Random,
    store::{StoreError, Tx, metal},
};
use shared::{api::metal::MetalState, id::NodeId};

/// How many machines are read at a time.
const PAGE: i64 = 500;

/// Ends each workflow, each switch and each change of a password as failed, makes `available` a `commissionFailed`, and has every machine erased by the commission
/// or the release that comes next. Answers how many machines have another state than the backup says.
///
/// # Errors
/// The store's.
pub async fn halt(tx: &mut Tx<'_>, random: &Random, origin: &Origin) -> Result<u64, Fault> {
    metal::taint_all(tx).await?;
    let (mut halted, mut after) = (0_u64, String::new());
    loop {
        let page = metal::unsettled(tx, &after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(halted) };
        last.as_str().clone_into(&mut after);
        for id in &page {
            halt_one(tx, random, origin, id).await?;
            halted = halted.saturating_add(1);
        }
    }
}

async fn halt_one(tx: &mut Tx<'_>, random: &Random, origin: &Origin, id: &NodeId) -> Result<(), Fault> {
    let mut machine = metal::lock(tx, id).await?.ok_or(StoreError::Race)?;
    let from = machine.state;
    machine.state = match from {
        MetalState::Available => MetalState::CommissionFailed,
        other => other.failed().unwrap_or(other),
    };
    machine.begin(None);
    machine.wanted_power = None;
    machine.rotates = false;
    machine.aborted = false;
    machine.options = Options::Nothing;
    machine.sealed_user_data = None;
    machine.boot = None;
    machine.agent_key = None;
    machine.last_error = Some(Cause::Restored.told());
    if !metal::save(tx, &mut machine, origin.at).await? {
        return Err(StoreError::Race.into());
    }
    if machine.state == from {
        return Ok(());
    }
    let moved = Moved {
        actor: &origin.actor,
        request_id: &origin.request_id,
        at: origin.at,
        verb: None,
        from: Some(from),
        reason: Some(Cause::Restored.as_str()),
    };
    told(tx, random, &machine, &moved).await
}
