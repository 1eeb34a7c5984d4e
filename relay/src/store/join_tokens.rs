//! The table `join_tokens`: what the join reads and counts. Making, listing and revoking is in `token_views`.

use super::{Row, StoreError, Tx};
use crate::facts::TokenFacts;
use shared::{id::JoinTokenId, time::Timestamp, token::SecretDigest};

const SECRET: &str = "SELECT secret_sha256 FROM join_tokens WHERE id = $1";
const LOCK: &str = "SELECT id, tenant_id, pool_id, max_uses, uses, pending, expect, allow_reclaim, hosted, \
    expires_at, revoked_at FROM join_tokens WHERE id = $1";
const CONSUME: &str = "UPDATE join_tokens SET uses = uses + 1, last_used_at = $2 \
    WHERE id = $1 AND uses + pending < max_uses";

pub(super) const STATEMENTS: &[&str] = &[SECRET, LOCK, CONSUME];

/// The digest of a token's secret; `None` if there is no such token.
///
/// # Errors
/// The store's.
pub async fn secret(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<Option<SecretDigest>, StoreError> {
    let row = tx.fetch_optional(SECRET, &[id.as_str().into()]).await?;
    row.map(|row| row.parse_with("secret_sha256", SecretDigest::from_hex)).transpose()
}

/// The token, locked until the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &JoinTokenId) -> Result<Option<TokenFacts>, StoreError> {
    tx.lock_optional(LOCK, &[id.as_str().into()]).await?.map(|row| token(&row)).transpose()
}

/// Counts a use of a token that was judged to have one.
///
/// # Errors
/// The store's; [`StoreError::Race`] if there is none left after all.
pub async fn consume(tx: &mut Tx<'_>, id: &JoinTokenId, now: Timestamp) -> Result<(), StoreError> {
    match tx.execute(CONSUME, &[id.as_str().into(), now.into()]).await? {
        1 => Ok(()),
        _ => Err(StoreError::Race),
    }
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
    })
}
