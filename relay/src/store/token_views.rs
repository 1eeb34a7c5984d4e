//! The table `join_tokens` as people see it: minting, listing, revoking. What the join counts is in `join_tokens`.

use super::{Row, StoreError, Tx};
use crate::facts::TokenPurpose;
use shared::{
    api::join_tokens::{Hosted, JoinToken, TokenRole},
    id::{JoinTokenId, NodeId},
    time::Timestamp,
    token::SecretDigest,
};

const FIND: &str = "SELECT id, tenant_id, pool_id, max_uses, uses, pending, expect, allow_reclaim, hosted, \
    created_at, created_by, expires_at, revoked_at, last_used_at FROM join_tokens WHERE id = $1";
const PAGE: &str = "SELECT id, tenant_id, pool_id, max_uses, uses, pending, expect, allow_reclaim, hosted, \
    created_at, created_by, expires_at, revoked_at, last_used_at FROM join_tokens \
    WHERE pool_id = $1 AND id > $2 \
    AND ($3 = 1 OR (revoked_at IS NULL AND uses < max_uses AND expires_at > $4)) ORDER BY id LIMIT $5";
const LIVE: &str = "SELECT id FROM join_tokens \
    WHERE pool_id = $1 AND revoked_at IS NULL AND uses < max_uses AND expires_at > $2 LIMIT 1";
const INSERT: &str = "INSERT INTO join_tokens (id, tenant_id, pool_id, secret_sha256, max_uses, uses, pending, \
    expect, allow_reclaim, hosted, created_at, created_by, expires_at, purpose, node_id) \
    VALUES ($1, $2, $3, $4, $5, 0, 0, $6, $7, $8, $9, $10, $11, $12, $13) ON CONFLICT (id) DO NOTHING";
const REVOKE: &str = "UPDATE join_tokens SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
const REVOKE_ALL: &str = "UPDATE join_tokens SET revoked_at = $2 WHERE pool_id = $1 AND revoked_at IS NULL";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, LIVE, INSERT, REVOKE, REVOKE_ALL];

/// Which tokens a page shows.
#[derive(Clone, Copy, Debug)]
pub struct Listed {
    /// Also those that admit nobody any more.
    pub inactive: bool,
    /// The time that expiry is judged at.
    pub now: Timestamp,
}

/// The token's record.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<Option<JoinToken>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| record(&row)).transpose()
}

/// At most `limit` of a pool's tokens behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    pool_id: &str,
    listed: Listed,
    after: &str,
    limit: i64,
) -> Result<Vec<JoinToken>, StoreError> {
    let inactive = i64::from(listed.inactive);
    let args = [pool_id.into(), after.into(), inactive.into(), listed.now.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(record).collect()
}

/// Whether a token of the pool still admits machines.
///
/// # Errors
/// The store's.
pub async fn any_live(tx: &mut Tx<'_>, pool_id: &str, now: Timestamp) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(LIVE, &[pool_id.into(), now.into()]).await?.is_some())
}

/// Revokes every token of a pool; waits for the joins that are on their way with one.
///
/// # Errors
/// The store's.
pub async fn revoke_all(tx: &mut Tx<'_>, pool_id: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(REVOKE_ALL, &[pool_id.into(), now.into()]).await.map(drop)
}

/// Writes a new, unused token.
///
/// # Errors
/// The store's; [`StoreError::Race`] if an equal request was first.
pub async fn insert(tx: &mut Tx<'_>, token: &JoinToken, secret: SecretDigest) -> Result<(), StoreError> {
    write(tx, token, secret, (TokenPurpose::Node, None)).await
}

/// Writes a new, unused token for one machine.
///
/// # Errors
/// The store's.
pub async fn insert_for(
    tx: &mut Tx<'_>,
    token: &JoinToken,
    secret: SecretDigest,
    (purpose, node): (TokenPurpose, &NodeId),
) -> Result<(), StoreError> {
    write(tx, token, secret, (purpose, Some(node))).await
}

async fn write(
    tx: &mut Tx<'_>,
    token: &JoinToken,
    secret: SecretDigest,
    (purpose, node): (TokenPurpose, Option<&NodeId>),
) -> Result<(), StoreError> {
    let secret = secret.to_hex();
    let expect = token.expect.as_ref().map(|expect| serde_json::json!(expect).to_string());
    let row = [
        token.id.as_str().into(),
        (&token.tenant_id).into(),
        (&token.pool_id).into(),
        (&secret).into(),
        token.max_uses.into(),
        (&expect).into(),
        token.allow_reclaim.into(),
        token.hosted.map(Hosted::as_str).into(),
        token.created_at.into(),
        (&token.created_by).into(),
        token.expires_at.into(),
        purpose.as_str().into(),
        node.map(NodeId::as_str).into(),
    ];
    if tx.execute(INSERT, &row).await? == 1 { Ok(()) } else { Err(StoreError::Race) }
}

/// Revokes a token; nothing happens to one that is revoked.
///
/// # Errors
/// The store's.
pub async fn revoke(tx: &mut Tx<'_>, id: &JoinTokenId, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(REVOKE, &[id.as_str().into(), now.into()]).await.map(drop)
}

fn record(row: &Row) -> Result<JoinToken, StoreError> {
    Ok(JoinToken {
        id: row.parsed("id")?,
        tenant_id: row.text("tenant_id")?,
        pool_id: row.text("pool_id")?,
        role: TokenRole::Node,
        max_uses: row.integer("max_uses")?,
        uses: row.integer("uses")?,
        pending: row.integer("pending")?,
        expect: row.maybe_json("expect")?,
        allow_reclaim: row.flag("allow_reclaim")?,
        hosted: row.maybe_word("hosted")?,
        created_at: row.time("created_at")?,
        created_by: row.text("created_by")?,
        expires_at: row.time("expires_at")?,
        revoked_at: row.maybe_time("revoked_at")?,
        last_used_at: row.maybe_time("last_used_at")?,
    })
}
