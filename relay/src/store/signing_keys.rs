//! The table `signing_keys`: the keys that sign tokens, sealed.

use super::{Row, StoreError, Tx};
use shared::{id::SigningKeyId, time::Timestamp};

const FIND: &str = "SELECT id, sealed_key, created_at FROM signing_keys WHERE id = $1";
const NEWEST: &str = "SELECT id, sealed_key, created_at FROM signing_keys ORDER BY id DESC LIMIT 1";
const INSERT: &str = "INSERT INTO signing_keys (id, sealed_key, created_at) VALUES ($1, $2, $3)";
const FORGET: &str = "DELETE FROM signing_keys WHERE id IN \
    (SELECT id FROM signing_keys WHERE created_at < $1 \
    AND NOT EXISTS (SELECT 1 FROM credentials WHERE credentials.key_id = signing_keys.id) LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[FIND, NEWEST, INSERT, FORGET];

/// The table that a key is sealed to.
pub const TABLE: &str = "signing_keys";
/// The column that a key is sealed to.
pub const COLUMN: &str = "sealed_key";

/// A key as it is stored.
pub struct SealedKey {
    /// Its id, a token's `kid`.
    pub id: SigningKeyId,
    /// PKCS#8, sealed.
    pub sealed: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// The key of this id.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &SigningKeyId) -> Result<Option<SealedKey>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| key(&row)).transpose()
}

/// The key that signs. Ids are in order of making.
///
/// # Errors
/// The store's.
pub async fn newest(tx: &mut Tx<'_>) -> Result<Option<SealedKey>, StoreError> {
    tx.fetch_optional(NEWEST, &[]).await?.map(|row| key(&row)).transpose()
}

/// Writes a new key.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &SealedKey) -> Result<(), StoreError> {
    let row = [new.id.as_str().into(), (&new.sealed).into(), new.created_at.into()];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Forgets at most `most` keys made before `before` of which no token is left.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn key(row: &Row) -> Result<SealedKey, StoreError> {
    Ok(SealedKey {
        id: row.parsed("id")?,
        sealed: row.text("sealed_key")?,
        created_at: row.time("created_at")?,
    })
}
