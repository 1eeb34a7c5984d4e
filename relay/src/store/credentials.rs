//! The table `credentials`: bearer credentials of people and services, their secrets as digests.

use super::{StoreError, Tx};
use crate::auth::principal::Principal;
use shared::{id::TokenId, time::Timestamp, token::SecretDigest};

const FIND: &str = "SELECT id, subject, tenant_id, secret_sha256, grants, expires_at, revoked_at \
    FROM credentials WHERE id = $1";
const INSERT: &str = "INSERT INTO credentials (id, subject, tenant_id, secret_sha256, grants, description, \
    created_by, created_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const FORGET: &str = "DELETE FROM credentials WHERE expires_at < $1";

pub(super) const STATEMENTS: &[&str] = &[FIND, INSERT, FORGET];

/// A credential and what it takes to count.
pub struct CredentialRow {
    /// Who, and what they may do.
    pub principal: Principal,
    /// The secret's digest.
    pub digest: SecretDigest,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A credential to keep.
pub struct NewCredential<'a> {
    /// Who, and what they may do.
    pub principal: &'a Principal,
    /// The secret's digest.
    pub digest: SecretDigest,
    /// What it is for.
    pub description: &'a str,
    /// Who made it.
    pub created_by: &'a str,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// The credential of this id.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &TokenId) -> Result<Option<CredentialRow>, StoreError> {
    let Some(row) = tx.fetch_optional(FIND, &[id.as_str().into()]).await? else { return Ok(None) };
    let principal = Principal {
        subject: row.text("subject")?,
        tenant_id: row.text("tenant_id")?,
        token_id: row.parsed("id")?,
        grants: row.json("grants")?,
    };
    let digest = row.parse_with("secret_sha256", SecretDigest::from_hex)?;
    let (expires_at, revoked_at) = (row.time("expires_at")?, row.maybe_time("revoked_at")?);
    Ok(Some(CredentialRow { principal, digest, expires_at, revoked_at }))
}

/// Keeps a credential.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &NewCredential<'_>) -> Result<(), StoreError> {
    let grants = serde_json::json!(new.principal.grants).to_string();
    let digest = new.digest.to_hex();
    let row = [
        new.principal.token_id.as_str().into(),
        new.principal.subject.as_str().into(),
        new.principal.tenant_id.as_str().into(),
        digest.as_str().into(),
        grants.as_str().into(),
        new.description.into(),
        new.created_by.into(),
        new.created_at.into(),
        new.expires_at.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Forgets credentials that ended before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into()]).await
}
