//! The table `tenants`. A deleted tenant keeps its row: its id is never used again, since events name it.

use super::{Row, StoreError, Tx, projects};
use shared::{
    api::{projects::Project, tenants::Tenant},
    time::Timestamp,
};

const FIND: &str = "SELECT id, display_name, created_at FROM tenants WHERE id = $1 AND deleted_at IS NULL";
const PAGE: &str = "SELECT id, display_name, created_at FROM tenants WHERE id > $1 AND deleted_at IS NULL \
    ORDER BY id LIMIT $2";
const INSERT: &str = "INSERT INTO tenants (id, display_name, created_at) VALUES ($1, $2, $3) \
    ON CONFLICT (id) DO NOTHING";
const RENAME: &str = "UPDATE tenants SET display_name = $2 WHERE id = $1";
const DELETE: &str = "UPDATE tenants SET deleted_at = $2 WHERE id = $1";
const DELETE_PROJECTS: &str = "DELETE FROM projects WHERE tenant_id = $1";
const HOLDS: &str = "SELECT CASE \
    WHEN EXISTS (SELECT 1 FROM pools WHERE tenant_id = $1 AND deleted_at IS NULL) THEN 'pools' \
    WHEN EXISTS (SELECT 1 FROM sites WHERE owner_tenant_id = $1 AND deleted_at IS NULL) THEN 'sites' END AS what";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, INSERT, RENAME, DELETE, DELETE_PROJECTS, HOLDS];

/// The tenant, unless it is absent or deleted.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &str) -> Result<Option<Tenant>, StoreError> {
    tx.fetch_optional(FIND, &[id.into()]).await?.map(|row| tenant(&row)).transpose()
}

/// The tenant, locked until the transaction ends: before anything is put into it, and before it is deleted.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &str) -> Result<Option<Tenant>, StoreError> {
    tx.lock_optional(FIND, &[id.into()]).await?.map(|row| tenant(&row)).transpose()
}

/// At most `limit` tenants behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(tx: &mut Tx<'_>, after: &str, limit: i64) -> Result<Vec<Tenant>, StoreError> {
    tx.fetch_all(PAGE, &[after.into(), limit.into()]).await?.iter().map(tenant).collect()
}

/// Writes a new tenant; `false` if the id is taken or was used before.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &Tenant) -> Result<bool, StoreError> {
    let row = [(&new.tenant_id).into(), (&new.display_name).into(), new.created_at.into()];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// Makes a tenant with its project `default`; `None` if the id is taken or was used before.
///
/// # Errors
/// The store's.
pub async fn settle(
    tx: &mut Tx<'_>,
    id: &str,
    display_name: &str,
    now: Timestamp,
) -> Result<Option<Tenant>, StoreError> {
    let tenant = Tenant { tenant_id: id.to_owned(), display_name: display_name.to_owned(), created_at: now };
    if !insert(tx, &tenant).await? {
        return Ok(None);
    }
    let (project_id, display_name) = (projects::DEFAULT.to_owned(), projects::DEFAULT.to_owned());
    let project = Project { tenant_id: id.to_owned(), project_id, display_name, created_at: now };
    if projects::insert(tx, &project).await? { Ok(Some(tenant)) } else { Err(StoreError::Race) }
}

/// Writes a tenant's name for people.
///
/// # Errors
/// The store's.
pub async fn rename(tx: &mut Tx<'_>, id: &str, display_name: &str) -> Result<(), StoreError> {
    tx.execute(RENAME, &[id.into(), display_name.into()]).await.map(drop)
}

/// What a tenant still holds and can't be deleted with: `pools` or `sites`.
///
/// # Errors
/// The store's.
pub async fn holds(tx: &mut Tx<'_>, id: &str) -> Result<Option<String>, StoreError> {
    tx.fetch_one(HOLDS, &[id.into()]).await?.maybe_text("what")
}

/// Deletes a tenant that holds nothing, and its projects.
///
/// # Errors
/// The store's.
pub async fn delete(tx: &mut Tx<'_>, id: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(DELETE_PROJECTS, &[id.into()]).await?;
    tx.execute(DELETE, &[id.into(), now.into()]).await.map(drop)
}

fn tenant(row: &Row) -> Result<Tenant, StoreError> {
    Ok(Tenant {
        tenant_id: row.text("id")?,
        display_name: row.text("display_name")?,
        created_at: row.time("created_at")?,
    })
}
