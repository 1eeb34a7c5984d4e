//! The table `invites`. An invite that was accepted or taken back is gone; so that it is good once, whoever accepts
//! removes the row in the transaction that makes the member.

use super::{Row, StoreError, Tx};
use shared::{api::invites::Invite, id::InviteId, time::Timestamp, token::SecretDigest};

const FIND: &str = "SELECT id, tenant_id, project_id, role, secret_sha256, created_by, created_at, expires_at FROM invites \
    WHERE id = $1";
const PAGE: &str = "SELECT id, tenant_id, project_id, role, secret_sha256, created_by, created_at, expires_at FROM invites \
    WHERE tenant_id = $1 AND project_id = $2 AND id > $3 AND expires_at > $4 ORDER BY id LIMIT $5";
const INSERT: &str = "INSERT INTO invites (id, tenant_id, project_id, role, secret_sha256, created_by, created_at, expires_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const REMOVE: &str = "DELETE FROM invites WHERE id = $1";
const FORGET: &str = "DELETE FROM invites WHERE id IN \
    (SELECT id FROM invites WHERE expires_at < $1 LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, INSERT, REMOVE, FORGET];

/// An invite and its secret's digest.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &InviteId) -> Result<Option<(Invite, SecretDigest)>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| both(&row)).transpose()
}

/// An invite and its secret's digest, locked.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &InviteId) -> Result<Option<(Invite, SecretDigest)>, StoreError> {
    tx.lock_optional(FIND, &[id.as_str().into()]).await?.map(|row| both(&row)).transpose()
}

/// At most `limit` invites behind `after` that are good at `now`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    (tenant, project): (&str, &str),
    after: &str,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Invite>, StoreError> {
    let args = [tenant.into(), project.into(), after.into(), now.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(invite).collect()
}

/// Writes a new invite.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &Invite, digest: SecretDigest) -> Result<(), StoreError> {
    let digest = digest.to_hex();
    let row = [
        new.id.as_str().into(),
        (&new.tenant_id).into(),
        new.project_id.as_deref().unwrap_or_default().into(),
        new.role.as_str().into(),
        digest.as_str().into(),
        (&new.created_by).into(),
        new.created_at.into(),
        new.expires_at.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Removes an invite.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, id: &InviteId) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[id.as_str().into()]).await.map(drop)
}

/// Forgets at most `most` invites that ended before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn both(row: &Row) -> Result<(Invite, SecretDigest), StoreError> {
    Ok((invite(row)?, row.parse_with("secret_sha256", SecretDigest::from_hex)?))
}

fn invite(row: &Row) -> Result<Invite, StoreError> {
    let project = row.text("project_id")?;
    Ok(Invite {
        id: row.parsed("id")?,
        tenant_id: row.text("tenant_id")?,
        project_id: (!project.is_empty()).then_some(project),
        role: row.word("role")?,
        created_by: row.text("created_by")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
    })
}
