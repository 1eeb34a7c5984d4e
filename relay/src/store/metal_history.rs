//! The table `metal_history`: every transition of a machine.

use super::{Row, StoreError, Tx, metal::maybe_id};
use shared::{
    api::metal::{MetalState, MetalVerb, Transition},
    id::{EventId, NodeId, TaskId},
    time::Timestamp,
};

const TELL: &str = "INSERT INTO metal_history (id, node_id, version, at, actor, verb, from_state, to_state, reason, task_id) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
const HISTORY: &str = "SELECT id, at, actor, verb, from_state, to_state, reason, task_id FROM metal_history \
    WHERE node_id = $1 AND ($2 = '' OR version < (SELECT version FROM metal_history WHERE node_id = $1 AND id = $2)) \
    ORDER BY version DESC LIMIT $3";

pub(super) const STATEMENTS: &[&str] = &[TELL, HISTORY];

/// A transition to write down.
#[derive(Clone, Debug)]
pub struct Told<'a> {
    /// The id of its event.
    pub id: &'a EventId,
    /// The version that the machine has now.
    pub version: i64,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: &'a str,
    /// By which verb.
    pub verb: Option<MetalVerb>,
    /// From.
    pub from: Option<MetalState>,
    /// To.
    pub to: MetalState,
    /// Why it failed.
    pub reason: Option<&'a str>,
    /// The verb's task.
    pub task: Option<&'a TaskId>,
}

/// Writes a transition down.
///
/// # Errors
/// The store's.
pub async fn tell(tx: &mut Tx<'_>, node: &NodeId, told: &Told<'_>) -> Result<(), StoreError> {
    let row = [
        told.id.as_str().into(),
        node.as_str().into(),
        told.version.into(),
        told.at.into(),
        told.actor.into(),
        told.verb.map(MetalVerb::as_str).into(),
        told.from.map(MetalState::as_str).into(),
        told.to.as_str().into(),
        told.reason.into(),
        told.task.map(TaskId::as_str).into(),
    ];
    tx.execute(TELL, &row).await.map(drop)
}

/// At most `limit` of a machine's transitions before `before`, the latest first.
///
/// # Errors
/// The store's.
pub async fn history(
    tx: &mut Tx<'_>,
    node: &NodeId,
    before: Option<&EventId>,
    limit: i64,
) -> Result<Vec<Transition>, StoreError> {
    let before = before.map_or("", EventId::as_str);
    let rows = tx.fetch_all(HISTORY, &[node.as_str().into(), before.into(), limit.into()]).await?;
    rows.iter().map(transition).collect()
}

fn transition(row: &Row) -> Result<Transition, StoreError> {
    Ok(Transition {
        id: row.parsed("id")?,
        at: row.time("at")?,
        actor: row.text("actor")?,
        verb: row.maybe_word("verb")?,
        from: row.maybe_word("from_state")?,
        to: row.word("to_state")?,
        reason: row.maybe_text("reason")?,
        task_id: maybe_id(row, "task_id")?,
    })
}
