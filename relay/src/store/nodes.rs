//! The table `nodes`: what joining, renewing and every call of a node read and write. Views for people and the
//! moves that people make are in `node_views`.

use super::{Row, StoreError, Tx, Value};
use crate::facts::NodeFacts;
use shared::{
    api::{join_tokens::Hosted, node::Trust, nodes::NodeState},
    hardware::Identity,
    id::{JoinTokenId, NodeId},
    time::Timestamp,
};

const LOCK: &str = "SELECT id, pool_id, tenant_id, site_id, state, generation, trust, hosted, key_sha256, ek_sha256, \
    current_serial, previous_serial, next_serial, last_heartbeat_at, boot_id FROM nodes WHERE id = $1";
const FIND_ALL: &str = "SELECT id, pool_id, tenant_id, site_id, state, generation, trust, hosted, key_sha256, ek_sha256, \
    current_serial, previous_serial, next_serial, last_heartbeat_at, boot_id FROM nodes WHERE id IN ( \
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, \
    $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32)";
const INSERT: &str = "INSERT INTO nodes (id, pool_id, tenant_id, site_id, state, generation, trust, hosted, identity, \
    key_sha256, token_id, remote_address, kubernetes_node_name, agent_version, current_serial, created_at, joined_at, \
    ek_sha256, ek_manufacturer, ek_vouched) \
    VALUES ($1, $2, $3, $4, 'live', 1, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $14, $15, $16, $17)";
const INSERT_ENROLLED: &str = "INSERT INTO nodes (id, pool_id, tenant_id, site_id, state, generation, trust, identity, key_sha256, \
    token_id, remote_address, agent_version, current_serial, created_at, joined_at) \
    VALUES ($1, $2, $3, $4, 'live', 0, $5, $6, '', '', '', '', '', $7, $7)";
const SET_IDENTITY: &str = "UPDATE nodes SET identity = $2 WHERE id = $1 AND generation = 0";
const END_CERTIFICATE: &str = "UPDATE nodes SET generation = generation + 1, key_sha256 = '', current_serial = '', previous_serial = NULL, \
    next_serial = NULL, boot_id = NULL, earlier_boot_ids = NULL WHERE id = $1";
const REJOIN: &str = "UPDATE nodes SET generation = $2, trust = $3, hosted = $4, identity = $5, seen_identity = NULL, \
    token_id = $6, remote_address = $7, kubernetes_node_name = $8, agent_version = $9, joined_at = $10, \
    ek_sha256 = COALESCE($11, ek_sha256), ek_manufacturer = CASE WHEN $11 IS NULL THEN ek_manufacturer ELSE $12 END, \
    ek_vouched = CASE WHEN $11 IS NULL THEN ek_vouched ELSE $13 END WHERE id = $1";
const REPLACE_CERTIFICATE: &str = "UPDATE nodes SET key_sha256 = $2, current_serial = $3, previous_serial = NULL, \
    next_serial = NULL, boot_id = NULL, earlier_boot_ids = NULL WHERE id = $1";
const OFFER_CERTIFICATE: &str = "UPDATE nodes SET next_serial = $2, trust = $3 WHERE id = $1";
const PROMOTE: &str = "UPDATE nodes SET previous_serial = current_serial, current_serial = next_serial, \
    next_serial = NULL, key_sha256 = $3 WHERE id = $1 AND next_serial = $2";
const HEARTBEAT: &str = "UPDATE nodes SET last_heartbeat_at = $2, agent_version = COALESCE($3, agent_version) \
    WHERE id = $1 AND state = 'live'";
const IDENTITY: &str = "SELECT identity FROM nodes WHERE id = $1";
const LOCK_SIGNS: &str = "SELECT id, pool_id, tenant_id, identity, seen_identity, boot_id, earlier_boot_ids FROM nodes \
    WHERE id = $1 AND state = 'live'";
const SET_BOOT: &str = "UPDATE nodes SET boot_id = $2, earlier_boot_ids = $3 WHERE id = $1";
const SET_SEEN: &str = "UPDATE nodes SET seen_identity = $2 WHERE id = $1";
const COUNT: &str = "SELECT state, COUNT(*) AS count FROM nodes GROUP BY state";

pub(super) const STATEMENTS: &[&str] = &[
    LOCK,
    FIND_ALL,
    INSERT,
    INSERT_ENROLLED,
    SET_IDENTITY,
    END_CERTIFICATE,
    REJOIN,
    REPLACE_CERTIFICATE,
    OFFER_CERTIFICATE,
    PROMOTE,
    HEARTBEAT,
    IDENTITY,
    LOCK_SIGNS,
    SET_BOOT,
    SET_SEEN,
    COUNT,
];

/// The most nodes that [`find_all`] finds.
pub const MOST_AT_ONCE: usize = 32;

/// What a join writes of a node.
#[derive(Clone, Debug)]
pub struct Joined<'a> {
    /// The node.
    pub id: &'a NodeId,
    /// What the relay takes it for.
    pub trust: Trust,
    /// Where its bcd is hosted.
    pub hosted: Option<Hosted>,
    /// What it says it is, in canonical form.
    pub identity: &'a Identity,
    /// The endorsement key that it has proved; what it proved before stays where it is absent.
    pub ek_sha256: Option<&'a str>,
    /// Who made its TPM, as that key's certificate says.
    pub ek_manufacturer: Option<&'a str>,
    /// Whether an authority of the pool vouches for that key.
    pub ek_vouched: bool,
    /// The token.
    pub token: &'a JoinTokenId,
    /// Where the call came from.
    pub remote_address: &'a str,
    /// The cluster node it runs as.
    pub kubernetes_node_name: Option<&'a str>,
    /// bcd's version.
    pub agent_version: &'a str,
    /// When.
    pub at: Timestamp,
}

/// Where a new node belongs, and its first certificate.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    /// The pool.
    pub pool_id: &'a str,
    /// The pool's tenant.
    pub tenant_id: &'a str,
    /// The pool's site.
    pub site_id: &'a str,
    /// The key.
    pub key_sha256: &'a str,
    /// The certificate.
    pub serial: &'a str,
}

/// The node, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &NodeId) -> Result<Option<NodeFacts>, StoreError> {
    tx.lock_optional(LOCK, &[id.as_str().into()]).await?.map(|row| node(&row)).transpose()
}

/// What the node said it was when it joined, in canonical form.
///
/// # Errors
/// The store's.
pub async fn identity(tx: &mut Tx<'_>, id: &NodeId) -> Result<Identity, StoreError> {
    tx.fetch_one(IDENTITY, &[id.as_str().into()]).await?.json("identity")
}

/// The node as it is now, not locked.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &NodeId) -> Result<Option<NodeFacts>, StoreError> {
    tx.fetch_optional(LOCK, &[id.as_str().into()]).await?.map(|row| node(&row)).transpose()
}

/// Those of at most [`MOST_AT_ONCE`] nodes that are there, as they are now, not locked, in no order.
///
/// # Errors
/// The store's.
pub async fn find_all(tx: &mut Tx<'_>, ids: &[NodeId]) -> Result<Vec<NodeFacts>, StoreError> {
    if let [id] = ids {
        return Ok(find(tx, id).await?.into_iter().collect());
    }
    // No node has an empty id.
    let mut row = [Value::from(""); MOST_AT_ONCE];
    row.iter_mut().zip(ids).for_each(|(slot, id)| *slot = id.as_str().into());
    tx.fetch_all(FIND_ALL, &row).await?.iter().map(node).collect()
}

/// Writes a new node.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: NewNode<'_>, joined: &Joined<'_>) -> Result<(), StoreError> {
    let identity = json(joined.identity);
    let row = [
        joined.id.as_str().into(),
        new.pool_id.into(),
        new.tenant_id.into(),
        new.site_id.into(),
        joined.trust.as_str().into(),
        joined.hosted.map(Hosted::as_str).into(),
        identity.as_str().into(),
        new.key_sha256.into(),
        joined.token.as_str().into(),
        joined.remote_address.into(),
        joined.kubernetes_node_name.into(),
        joined.agent_version.into(),
        new.serial.into(),
        joined.at.into(),
        joined.ek_sha256.into(),
        joined.ek_manufacturer.into(),
        joined.ek_vouched.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Writes the node of a machine that is enrolled by its BMC and has not joined: where it belongs, and no key.
///
/// # Errors
/// The store's.
pub async fn insert_enrolled(
    tx: &mut Tx<'_>,
    id: &NodeId,
    (pool_id, tenant_id, site_id): (&str, &str, &str),
    now: Timestamp,
) -> Result<(), StoreError> {
    let identity = json(&Identity::default());
    let row = [
        id.as_str().into(),
        pool_id.into(),
        tenant_id.into(),
        site_id.into(),
        Trust::TenantControlled.as_str().into(),
        identity.as_str().into(),
        now.into(),
    ];
    tx.execute(INSERT_ENROLLED, &row).await.map(drop)
}

/// Writes what a machine that has not joined is by its BMC.
///
/// # Errors
/// The store's.
pub async fn set_identity(tx: &mut Tx<'_>, id: &NodeId, identity: &Identity) -> Result<(), StoreError> {
    tx.execute(SET_IDENTITY, &[id.as_str().into(), json(identity).as_str().into()]).await.map(drop)
}

/// Ends the certificate of a node, which is locked; it stays a node, without a key until it joins again.
///
/// # Errors
/// The store's.
pub async fn end_certificate(tx: &mut Tx<'_>, id: &NodeId) -> Result<(), StoreError> {
    tx.execute(END_CERTIFICATE, &[id.as_str().into()]).await.map(drop)
}

/// Writes that a node joined again.
///
/// # Errors
/// The store's.
pub async fn rejoin(tx: &mut Tx<'_>, generation: i64, joined: &Joined<'_>) -> Result<(), StoreError> {
    let identity = json(joined.identity);
    let row = [
        joined.id.as_str().into(),
        generation.into(),
        joined.trust.as_str().into(),
        joined.hosted.map(Hosted::as_str).into(),
        identity.as_str().into(),
        joined.token.as_str().into(),
        joined.remote_address.into(),
        joined.kubernetes_node_name.into(),
        joined.agent_version.into(),
        joined.at.into(),
        joined.ek_sha256.into(),
        joined.ek_manufacturer.into(),
        joined.ek_vouched.into(),
    ];
    tx.execute(REJOIN, &row).await.map(drop)
}

/// Makes a certificate the only one that counts, at once: a reclaim.
///
/// # Errors
/// The store's.
pub async fn replace_certificate(
    tx: &mut Tx<'_>,
    id: &NodeId,
    key_sha256: &str,
    serial: &str,
) -> Result<(), StoreError> {
    tx.execute(REPLACE_CERTIFICATE, &[id.as_str().into(), key_sha256.into(), serial.into()]).await.map(drop)
}

/// Makes a certificate the next one; the one in use counts until this one is used.
///
/// # Errors
/// The store's.
pub async fn offer_certificate(
    tx: &mut Tx<'_>,
    id: &NodeId,
    serial: &str,
    trust: Trust,
) -> Result<(), StoreError> {
    tx.execute(OFFER_CERTIFICATE, &[id.as_str().into(), serial.into(), trust.as_str().into()]).await.map(drop)
}

/// The next certificate was used: it becomes the one in use. Nothing happens if it is not the next one any more.
///
/// # Errors
/// The store's.
pub async fn promote(
    tx: &mut Tx<'_>,
    id: &NodeId,
    serial: &str,
    key_sha256: &str,
) -> Result<bool, StoreError> {
    Ok(tx.execute(PROMOTE, &[id.as_str().into(), serial.into(), key_sha256.into()]).await? == 1)
}

/// A sign of life to write down; members that are `None` leave what is there.
#[derive(Clone, Debug)]
pub struct Heartbeat {
    /// The node.
    pub node: NodeId,
    /// When.
    pub at: Timestamp,
    /// bcd's version.
    pub agent_version: Option<String>,
}

/// Writes a sign of life down, unless the node is banned or released.
///
/// # Errors
/// The store's.
pub async fn heartbeat(tx: &mut Tx<'_>, beat: &Heartbeat) -> Result<(), StoreError> {
    let row = [beat.node.as_str().into(), beat.at.into(), (&beat.agent_version).into()];
    tx.execute(HEARTBEAT, &row).await.map(drop)
}

/// What is known of a live node by which it is seen to change, or to be two.
#[derive(Clone, Debug)]
pub struct Signs {
    /// The node.
    pub id: NodeId,
    /// Its pool.
    pub pool_id: String,
    /// The pool's tenant.
    pub tenant_id: String,
    /// What it said when it joined.
    pub identity: Identity,
    /// What it said last, where that differs.
    pub seen_identity: Option<Identity>,
    /// The present boot id.
    pub boot_id: Option<String>,
    /// Those before it, the latest first.
    pub earlier_boot_ids: Vec<String>,
}

/// What is known of a live node, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock_signs(tx: &mut Tx<'_>, id: &NodeId) -> Result<Option<Signs>, StoreError> {
    let Some(row) = tx.lock_optional(LOCK_SIGNS, &[id.as_str().into()]).await? else { return Ok(None) };
    Ok(Some(Signs {
        id: row.parsed("id")?,
        pool_id: row.text("pool_id")?,
        tenant_id: row.text("tenant_id")?,
        identity: row.json("identity")?,
        seen_identity: row.maybe_json("seen_identity")?,
        boot_id: row.maybe_text("boot_id")?,
        earlier_boot_ids: row.maybe_json("earlier_boot_ids")?.unwrap_or_default(),
    }))
}

/// Writes a node's boot id, and those before it.
///
/// # Errors
/// The store's.
pub async fn set_boot(
    tx: &mut Tx<'_>,
    id: &NodeId,
    boot_id: &str,
    earlier: &[String],
) -> Result<(), StoreError> {
    let earlier = serde_json::json!(earlier).to_string();
    tx.execute(SET_BOOT, &[id.as_str().into(), boot_id.into(), (&earlier).into()]).await.map(drop)
}

/// Writes what a node says it is now, or that it is what it was.
///
/// # Errors
/// The store's.
pub async fn set_seen(tx: &mut Tx<'_>, id: &NodeId, seen: Option<&Identity>) -> Result<(), StoreError> {
    let seen = seen.map(json);
    tx.execute(SET_SEEN, &[id.as_str().into(), (&seen).into()]).await.map(drop)
}

/// How many nodes are in each state.
///
/// # Errors
/// The store's.
pub async fn count_by_state(tx: &mut Tx<'_>) -> Result<Vec<(NodeState, i64)>, StoreError> {
    let rows = tx.fetch_all(COUNT, &[]).await?;
    rows.iter().map(|row| Ok((row.word("state")?, row.integer("count")?))).collect()
}

/// An identity as it is stored.
#[must_use]
pub fn json(identity: &Identity) -> String {
    serde_json::json!(identity).to_string()
}

fn node(row: &Row) -> Result<NodeFacts, StoreError> {
    Ok(NodeFacts {
        id: row.parsed("id")?,
        pool_id: row.text("pool_id")?,
        tenant_id: row.text("tenant_id")?,
        site_id: row.text("site_id")?,
        state: row.word("state")?,
        generation: row.integer("generation")?,
        trust: row.word("trust")?,
        hosted: row.maybe_word("hosted")?,
        key_sha256: row.text("key_sha256")?,
        ek_sha256: row.maybe_text("ek_sha256")?,
        current_serial: row.text("current_serial")?,
        previous_serial: row.maybe_text("previous_serial")?,
        next_serial: row.maybe_text("next_serial")?,
        last_heartbeat_at: row.maybe_time("last_heartbeat_at")?,
        boot_id: row.maybe_text("boot_id")?,
    })
}
