//! The table `nodes` as people see it, and the moves that people make: ban, unban, release. What joining and every
//! call of a node read and write is in `nodes`.

use super::{Row, StoreError, Tx, node_conditions};
use shared::{
    api::nodes::{CertificateInfo, Node, NodeState},
    hardware::{Identity, Machine},
    id::NodeId,
    time::Timestamp,
};

const FIND: &str = "SELECT n.id, n.pool_id, n.tenant_id, n.state, n.generation, n.trust, n.hosted, n.identity, \
    n.seen_identity, n.key_sha256, n.ek_sha256, n.ek_manufacturer, n.ek_vouched, n.token_id, n.remote_address, \
    n.kubernetes_node_name, n.agent_version, n.current_serial, n.created_at, n.joined_at, n.last_heartbeat_at, n.ban_reason, c.not_after \
    FROM nodes n LEFT JOIN certificates c ON c.serial = n.current_serial WHERE n.id = $1 AND n.pool_id = $2";
const PAGE: &str = "SELECT n.id, n.pool_id, n.tenant_id, n.state, n.generation, n.trust, n.hosted, n.identity, \
    n.seen_identity, n.key_sha256, n.ek_sha256, n.ek_manufacturer, n.ek_vouched, n.token_id, n.remote_address, \
    n.kubernetes_node_name, n.agent_version, n.current_serial, n.created_at, n.joined_at, n.last_heartbeat_at, n.ban_reason, c.not_after \
    FROM nodes n LEFT JOIN certificates c ON c.serial = n.current_serial \
    WHERE n.pool_id = $1 AND n.id > $2 AND ($3 = 1 OR n.state <> 'released') ORDER BY n.id LIMIT $4";
const UNRELEASED: &str = "SELECT id FROM nodes WHERE pool_id = $1 AND state <> 'released' LIMIT 1";
const BAN: &str = "UPDATE nodes SET state = 'banned', ban_reason = COALESCE($2, ban_reason), \
    ended_at = COALESCE(ended_at, $3) WHERE id = $1";
const UNBAN: &str = "UPDATE nodes SET state = 'live', ban_reason = NULL, ended_at = NULL WHERE id = $1";
const RELEASE: &str = "UPDATE nodes SET state = 'released', ended_at = $2 WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, UNRELEASED, BAN, UNBAN, RELEASE];

/// The node, if it is of this pool.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, pool_id: &str, id: &NodeId) -> Result<Option<Node>, StoreError> {
    let found = tx.fetch_optional(FIND, &[id.as_str().into(), pool_id.into()]).await?;
    let mut nodes: Vec<Node> = found.iter().map(node).collect::<Result<_, _>>()?;
    add_conditions(tx, pool_id, &mut nodes).await?;
    Ok(nodes.pop())
}

/// At most `limit` of a pool's nodes behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    released_too: bool,
    after: &str,
    limit: i64,
) -> Result<Vec<Node>, StoreError> {
    let args = [pool_id.into(), after.into(), i64::from(released_too).into(), limit.into()];
    let mut nodes: Vec<Node> = tx.fetch_all(PAGE, &args).await?.iter().map(node).collect::<Result<_, _>>()?;
    add_conditions(tx, pool_id, &mut nodes).await?;
    Ok(nodes)
}

/// Adds what is odd about nodes that are in order of id.
async fn add_conditions(tx: &mut Tx<'_>, pool_id: &str, nodes: &mut [Node]) -> Result<(), StoreError> {
    let (Some(first), Some(last)) = (nodes.first(), nodes.last()) else { return Ok(()) };
    for (id, condition) in node_conditions::of_page(tx, pool_id, &first.node_id, &last.node_id).await? {
        if let Some(node) = nodes.iter_mut().find(|node| node.node_id == id) {
            node.conditions.push(condition);
        }
    }
    Ok(())
}

/// Whether a node of the pool is live or banned.
///
/// # Errors
/// The store's.
pub async fn any_unreleased(tx: &mut Tx<'_>, pool_id: &str) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(UNRELEASED, &[pool_id.into()]).await?.is_some())
}

/// Writes that a node, which is locked, is banned; an earlier reason stays where no other is given.
///
/// # Errors
/// The store's.
pub async fn ban(
    tx: &mut Tx<'_>,
    id: &NodeId,
    reason: Option<&str>,
    now: Timestamp,
) -> Result<(), StoreError> {
    tx.execute(BAN, &[id.as_str().into(), reason.into(), now.into()]).await.map(drop)
}

/// Writes that a node, which is locked, is live again.
///
/// # Errors
/// The store's.
pub async fn unban(tx: &mut Tx<'_>, id: &NodeId) -> Result<(), StoreError> {
    tx.execute(UNBAN, &[id.as_str().into()]).await.map(drop)
}

/// Writes that a node, which is locked, is released.
///
/// # Errors
/// The store's.
pub async fn release(tx: &mut Tx<'_>, id: &NodeId, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(RELEASE, &[id.as_str().into(), now.into()]).await.map(drop)
}

/// What a join brings; empty before the first.
fn said(row: &Row, column: &str) -> Result<Option<String>, StoreError> {
    Ok(Some(row.text(column)?).filter(|text| !text.is_empty()))
}

fn node(row: &Row) -> Result<Node, StoreError> {
    let identity: Identity = row.json("identity")?;
    let placeholders = Machine::judge(&identity).placeholders();
    let expires_at = row.maybe_time("not_after")?;
    let serial = row.text("current_serial")?;
    let (ek_sha256, ek_vouched) = (row.maybe_text("ek_sha256")?, row.flag("ek_vouched")?);
    Ok(Node {
        node_id: row.parsed("id")?,
        tenant_id: row.text("tenant_id")?,
        pool_id: row.text("pool_id")?,
        state: row.word::<NodeState>("state")?,
        generation: row.integer("generation")?,
        trust: row.word("trust")?,
        hosted: row.maybe_word("hosted")?,
        identity,
        placeholders: placeholders.into_iter().map(str::to_owned).collect(),
        seen_identity: row.maybe_json("seen_identity")?,
        conditions: Vec::new(),
        key_sha256: said(row, "key_sha256")?,
        ek_vouched: ek_sha256.is_some().then_some(ek_vouched),
        ek_sha256,
        ek_manufacturer: row.maybe_text("ek_manufacturer")?,
        token_id: said(row, "token_id")?.and_then(|id| id.parse().ok()),
        remote_address: said(row, "remote_address")?,
        kubernetes_node_name: row.maybe_text("kubernetes_node_name")?,
        agent_version: said(row, "agent_version")?,
        certificate: expires_at.map(|expires_at| CertificateInfo { serial, expires_at }),
        created_at: row.time("created_at")?,
        joined_at: (row.integer("generation")? > 0).then(|| row.time("joined_at")).transpose()?,
        last_heartbeat_at: row.maybe_time("last_heartbeat_at")?,
        ban_reason: row.maybe_text("ban_reason")?,
    })
}
