//! The table `join_tokens`: what the join reads and counts. Making, listing and revoking is in `token_views`.

use super::{Row, StoreError, Tx};
use crate::facts::{TokenFacts, TokenPurpose};
use shared::{id::JoinTokenId, time::Timestamp, token::SecretDigest};

const SECRET: &str = "SELECT secret_sha256 FROM join_tokens WHERE id = $1";
const LOCK: &str = "SELECT id, tenant_id, pool_id, max_uses, uses, pending, expect, allow_reclaim, hosted, \
    expires_at, revoked_at, purpose, node_id FROM join_tokens WHERE id = $1";
const CONSUME: &str = "UPDATE join_tokens SET uses = uses + 1, last_used_at = $2 \
    WHERE id = $1 AND uses + pending < max_uses";
const CONSUME_HELD: &str = "UPDATE join_tokens SET uses = uses + 1, pending = pending - 1, last_used_at = $2 \
    WHERE id = $1 AND pending > 0 AND uses < max_uses";
const HOLD: &str = "UPDATE join_tokens SET pending = pending + 1 WHERE id = $1 AND uses + pending < max_uses";
const GIVE_BACK: &str = "UPDATE join_tokens SET pending = pending - $2 WHERE id = $1 AND pending >= $2";

pub(super) const STATEMENTS: &[&str] = &[SECRET, LOCK, CONSUME, CONSUME_HELD, HOLD, GIVE_BACK];

/// The digest of a token's secret; `None` if there is no such token.
///
/// # Errors
/// The store's.
pub async fn secret(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<Option<SecretDigest>, StoreError> {
    let row = tx.fetch_optional(SECRET, &[id.as_str().into()]).await?;
    row.map(|row| row.parse_with("secret_sha256", SecretDigest::from_hex)).transpose()
}

/// The token as it is now, not locked.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<Option<TokenFacts>, StoreError> {
    tx.fetch_optional(LOCK, &[id.as_str().into()]).await?.map(|row| token(&row)).transpose()
}

/// The token, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<Option<TokenFacts>, StoreError> {
    tx.lock_optional(LOCK, &[id.as_str().into()]).await?.map(|row| token(&row)).transpose()
}

/// Counts a use of a token that was judged to have one: a free one, or the one that a join request `held`.
///
/// # Errors
/// The store's; [`StoreError::Race`] if there is none after all.
pub async fn consume(
    tx: &mut Tx<'_>,
    id: &JoinTokenId,
    held: bool,
    now: Timestamp,
) -> Result<(), StoreError> {
    let consume = if held { CONSUME_HELD } else { CONSUME };
    one(tx.execute(consume, &[id.as_str().into(), now.into()]).await?)
}

/// Lets a join request hold a use of a token that was judged to have one.
///
/// # Errors
/// The store's; [`StoreError::Race`] if there is none left after all.
pub async fn hold(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<(), StoreError> {
    one(tx.execute(HOLD, &[id.as_str().into()]).await?)
}

/// Gives back the uses of join requests that were denied or have expired.
///
/// # Errors
/// The store's; [`StoreError::Race`] if fewer are held.
pub async fn give_back(tx: &mut Tx<'_>, id: &JoinTokenId, uses: i64) -> Result<(), StoreError> {
    if uses == 0 { Ok(()) } else { one(tx.execute(GIVE_BACK, &[id.as_str().into(), uses.into()]).await?) }
}

fn one(changed: u64) -> Result<(), StoreError> {
    if changed == 1 { Ok(()) } else { Err(StoreError::Race) }
}

fn token(row: &Row) -> Result<TokenFacts, StoreError> {
    Ok(TokenFacts {
        id: row.parsed("id")?,
        tenant_id: row.text("tenant_id")?,
        pool_id: row.text("pool_id")?,
        max_uses: row.integer("max_uses")?,
        uses: row.integer("uses")?,
        pending: row.integer("pending")?,
        expect: row.maybe_json("expect")?,
        allow_reclaim: row.flag("allow_reclaim")?,
        hosted: row.maybe_word("hosted")?,
        expires_at: row.time("expires_at")?,
        revoked_at: row.maybe_time("revoked_at")?,
        purpose: row.parse_with("purpose", TokenPurpose::parse)?,
        node: row.maybe_text("node_id")?.map(|_| row.parsed("node_id")).transpose()?,
    })
}
