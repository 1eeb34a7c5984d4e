//! node/steps: what the agent in a metal machine is told to do, and what it says of it. Its certificate is looked at anew at each
//! call: it counts as long as the workflow lasts that started the agent.

use crate::{
    call::Call,
    fault::Fault,
    join::agent,
    metal::in_band,
    store::{
        Tx, metal,
        metal_steps::{self, Outcome},
    },
};
use shared::{
    api::steps::{PollStep, ReportAnswer, ReportStep, Step, StepAnswer},
    problem::Problem,
};

/// When an agent asks again that has nothing to do, in seconds.
const RETRY_SECONDS: u32 = 5;

/// node/steps/poll: the same step until it is reported.
///
/// # Errors
/// UNAUTHENTICATED; nodeBanned, nodeReleased; superseded where the agent does not count any more.
pub async fn poll(call: Call, _: PollStep) -> Result<StepAnswer, Fault> {
    let read = call.relay.store.read(call.method, &call, |tx, call| {
        Box::pin(async move {
            let machine = agent::counts(tx, call.peer()?).await?;
            let row = metal_steps::find(tx, &machine.node_id).await?;
            let row = row.filter(|row| machine.agent_step.as_ref() == Some(&row.id));
            Ok::<_, Fault>((machine.node_id, row.filter(|row| row.outcome == Outcome::Open)))
        })
    });
    let (node, row) = read.await?;
    let step = match row {
        Some(row) => Some(Step { work: in_band::open(&call.relay.keys, &node, &row)?, step_id: row.id }),
        None => None,
    };
    Ok(StepAnswer { step, retry_after_seconds: RETRY_SECONDS })
}

/// node/steps/report: what is said of a step that is not the machine's any more counts for nothing.
///
/// # Errors
/// INVALID_INPUT unless it says one of progress, result and error; as [`poll`].
pub async fn report(call: Call, input: ReportStep) -> Result<ReportAnswer, Fault> {
    let said = [input.progress.is_some(), input.result.is_some(), input.error.is_some()];
    if said.into_iter().filter(|is_said| *is_said).count() != 1 {
        let rule = "must say one of progress, result and error";
        return Err(Problem::invalid_field("", rule).into());
    }
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(keep(tx, call, input))).await
}

async fn keep(tx: &mut Tx<'_>, call: &Call, input: &ReportStep) -> Result<ReportAnswer, Fault> {
    let machine = agent::counts(tx, call.peer()?).await?;
    if machine.agent_step.as_ref() != Some(&input.step_id) {
        return Ok(ReportAnswer { goes_on: false });
    }
    let step = (&machine.node_id, &input.step_id);
    let outcome = match (&input.progress, &input.result, &input.error) {
        (Some(progress), ..) => {
            let goes_on = metal_steps::progress(tx, step, *progress, call.now).await? && !machine.aborted;
            return Ok(ReportAnswer { goes_on });
        }
        (_, Some(result), _) => Outcome::Done(Box::new(result.clone())),
        (.., Some(error)) => Outcome::Failed(error.clone()),
        _ => Outcome::Open,
    };
    metal_steps::settle(tx, step, &outcome, call.now).await?;
    metal::nudge(tx, &machine.node_id).await?;
    Ok(ReportAnswer { goes_on: true })
}
