//! The table `metal_steps`: what a machine's agent is to do now, or did last. One row of a machine: a new step takes the place of
//! the one before, whose reports count for nothing any more.

use super::{Row, StoreError, Tx};
use serde_json::json;
use shared::{
    api::steps::{Progress, StepError, StepResult},
    id::{MetalStepId, NodeId},
    time::Timestamp,
};

const OPEN: &str = "INSERT INTO metal_steps (node_id, id, kind, sealed_work, state, created_at, updated_at) \
    VALUES ($1, $2, $3, $4, 'open', $5, $5) ON CONFLICT (node_id) DO UPDATE SET id = excluded.id, kind = excluded.kind, \
    sealed_work = excluded.sealed_work, state = excluded.state, progress = NULL, result = NULL, error = NULL, \
    created_at = excluded.created_at, updated_at = excluded.updated_at";
const FIND: &str =
    "SELECT id, kind, sealed_work, state, progress, result, error FROM metal_steps WHERE node_id = $1";
const PROGRESS: &str =
    "UPDATE metal_steps SET progress = $3, updated_at = $4 WHERE node_id = $1 AND id = $2 AND state = 'open'";
const SETTLE: &str = "UPDATE metal_steps SET state = $3, result = $4, error = $5, updated_at = $6 \
    WHERE node_id = $1 AND id = $2 AND state = 'open'";

pub(super) const STATEMENTS: &[&str] = &[OPEN, FIND, PROGRESS, SETTLE];

/// The table that a step is sealed to.
pub const TABLE: &str = "metal_steps";
/// The column that a step is sealed to.
pub const COLUMN: &str = "sealed_work";

/// A machine's step.
#[derive(Clone, Debug)]
pub struct StepRow {
    /// Its id.
    pub id: MetalStepId,
    /// What kind of work it is.
    pub kind: String,
    /// What to do, sealed to the machine.
    pub sealed_work: String,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing yet.
    Open,
    /// It is done.
    Done(Box<StepResult>),
    /// It has failed.
    Failed(StepError),
}

/// Makes this the machine's step.
///
/// # Errors
/// The store's.
pub async fn open(
    tx: &mut Tx<'_>,
    node: &NodeId,
    id: &MetalStepId,
    (kind, sealed_work): (&str, &str),
    now: Timestamp,
) -> Result<(), StoreError> {
    let row = [node.as_str().into(), id.as_str().into(), kind.into(), sealed_work.into(), now.into()];
    tx.execute(OPEN, &row).await.map(drop)
}

/// The machine's step.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, node: &NodeId) -> Result<Option<StepRow>, StoreError> {
    tx.fetch_optional(FIND, &[node.as_str().into()]).await?.map(|row| step(&row)).transpose()
}

/// Writes how far a step is; `false` if it is not the machine's open one any more.
///
/// # Errors
/// The store's.
pub async fn progress(
    tx: &mut Tx<'_>,
    (node, id): (&NodeId, &MetalStepId),
    progress: Progress,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let progress = json!(progress).to_string();
    let row = [node.as_str().into(), id.as_str().into(), progress.as_str().into(), now.into()];
    Ok(tx.execute(PROGRESS, &row).await? == 1)
}

/// Writes what became of a step; `false` if it is not the machine's open one any more.
///
/// # Errors
/// The store's.
pub async fn settle(
    tx: &mut Tx<'_>,
    (node, id): (&NodeId, &MetalStepId),
    outcome: &Outcome,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let (state, result, error) = match outcome {
        Outcome::Open => return Ok(false),
        Outcome::Done(result) => ("done", Some(json!(result).to_string()), None),
        Outcome::Failed(error) => ("failed", None, Some(json!(error).to_string())),
    };
    let row = [
        node.as_str().into(),
        id.as_str().into(),
        state.into(),
        (&result).into(),
        (&error).into(),
        now.into(),
    ];
    Ok(tx.execute(SETTLE, &row).await? == 1)
}

fn step(row: &Row) -> Result<StepRow, StoreError> {
    let outcome = match row.text("state")?.as_str() {
        "done" => Outcome::Done(row.json("result")?),
        "failed" => Outcome::Failed(row.json("error")?),
        _ => Outcome::Open,
    };
    Ok(StepRow {
        id: row.parsed("id")?,
        kind: row.text("kind")?,
        sealed_work: row.text("sealed_work")?,
        outcome,
    })
}
