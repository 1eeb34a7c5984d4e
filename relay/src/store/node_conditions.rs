//! The table `node_conditions`: what is odd about a node, for people.

use super::{Row, StoreError, Tx};
use shared::{api::nodes::NodeCondition, id::NodeId, time::Timestamp};

/// Two machines seem to share the node's key.
pub const CLONE_SUSPECTED: &str = "cloneSuspected";
/// The machine is not what it said when it joined.
pub const IDENTITY_DRIFT: &str = "identityDrift";

const SET: &str = "INSERT INTO node_conditions (node_id, type, message, since) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (node_id, type) DO NOTHING";
const SAY: &str = "UPDATE node_conditions SET message = $3 WHERE node_id = $1 AND type = $2";
const HAS: &str = "SELECT type FROM node_conditions WHERE node_id = $1 AND type = $2";
const CLEAR: &str = "DELETE FROM node_conditions WHERE node_id = $1 AND type = $2";
const CLEAR_ALL: &str = "DELETE FROM node_conditions WHERE node_id = $1";
const OF_PAGE: &str = "SELECT c.node_id, c.type, c.message, c.since FROM node_conditions c \
    JOIN nodes n ON n.id = c.node_id WHERE n.pool_id = $1 AND c.node_id >= $2 AND c.node_id <= $3 \
    ORDER BY c.node_id, c.type";

pub(super) const STATEMENTS: &[&str] = &[SET, SAY, HAS, CLEAR, CLEAR_ALL, OF_PAGE];

/// Sets a condition, or changes what it says; says whether the node did not have it before.
///
/// # Errors
/// The store's.
pub async fn set(
    tx: &mut Tx<'_>,
    node: &NodeId,
    kind: &str,
    message: &str,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let row = [node.as_str().into(), kind.into(), message.into(), now.into()];
    if tx.execute(SET, &row).await? == 1 {
        return Ok(true);
    }
    tx.execute(SAY, &[node.as_str().into(), kind.into(), message.into()]).await?;
    Ok(false)
}

/// Whether a node has a condition.
///
/// # Errors
/// The store's.
pub async fn has(tx: &mut Tx<'_>, node: &NodeId, kind: &str) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(HAS, &[node.as_str().into(), kind.into()]).await?.is_some())
}

/// Ends a condition.
///
/// # Errors
/// The store's.
pub async fn clear(tx: &mut Tx<'_>, node: &NodeId, kind: &str) -> Result<(), StoreError> {
    tx.execute(CLEAR, &[node.as_str().into(), kind.into()]).await.map(drop)
}

/// Ends all conditions of a node: it joined anew, or is gone.
///
/// # Errors
/// The store's.
pub async fn clear_all(tx: &mut Tx<'_>, node: &NodeId) -> Result<(), StoreError> {
    tx.execute(CLEAR_ALL, &[node.as_str().into()]).await.map(drop)
}

/// The conditions of a pool's nodes from one to another id, both included, with their nodes, in order.
///
/// # Errors
/// The store's.
pub async fn of_page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    from: &NodeId,
    to: &NodeId,
) -> Result<Vec<(NodeId, NodeCondition)>, StoreError> {
    let rows = tx.fetch_all(OF_PAGE, &[pool_id.into(), from.as_str().into(), to.as_str().into()]).await?;
    rows.iter().map(|row| Ok((row.parsed("node_id")?, condition(row)?))).collect()
}

fn condition(row: &Row) -> Result<NodeCondition, StoreError> {
    Ok(NodeCondition {
        condition_type: row.text("type")?,
        message: row.text("message")?,
        since: row.time("since")?,
    })
}
