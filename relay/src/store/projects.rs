//! The table `projects`.

use super::{Row, StoreError, Tx};
use shared::api::projects::Project;

const FIND: &str =
    "SELECT tenant_id, id, display_name, created_at FROM projects WHERE tenant_id = $1 AND id = $2";
const PAGE: &str = "SELECT tenant_id, id, display_name, created_at FROM projects WHERE tenant_id = $1 AND id > $2 \
    ORDER BY id LIMIT $3";
const INSERT: &str = "INSERT INTO projects (tenant_id, id, display_name, created_at) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (tenant_id, id) DO NOTHING";
const RENAME: &str = "UPDATE projects SET display_name = $3 WHERE tenant_id = $1 AND id = $2";
const DELETE: &str = "DELETE FROM projects WHERE tenant_id = $1 AND id = $2";
const HAS_POOLS: &str =
    "SELECT id FROM pools WHERE tenant_id = $1 AND project_id = $2 AND deleted_at IS NULL LIMIT 1";

pub(super) const STATEMENTS: &[&str] = &[FIND, PAGE, INSERT, RENAME, DELETE, HAS_POOLS];

/// The project that every tenant is made with.
pub const DEFAULT: &str = "default";

/// The project.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, tenant: &str, id: &str) -> Result<Option<Project>, StoreError> {
    tx.fetch_optional(FIND, &[tenant.into(), id.into()]).await?.map(|row| project(&row)).transpose()
}

/// The project, locked until the transaction ends: before a pool is put into it, and before it is deleted.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, tenant: &str, id: &str) -> Result<Option<Project>, StoreError> {
    tx.lock_optional(FIND, &[tenant.into(), id.into()]).await?.map(|row| project(&row)).transpose()
}

/// At most `limit` of a tenant's projects behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    tenant: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<Project>, StoreError> {
    tx.fetch_all(PAGE, &[tenant.into(), after.into(), limit.into()]).await?.iter().map(project).collect()
}

/// Writes a new project of a tenant that is locked; `false` if the id is taken.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &Project) -> Result<bool, StoreError> {
    let row = [
        (&new.tenant_id).into(),
        (&new.project_id).into(),
        (&new.display_name).into(),
        new.created_at.into(),
    ];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// Writes a project's name for people.
///
/// # Errors
/// The store's.
pub async fn rename(tx: &mut Tx<'_>, tenant: &str, id: &str, display_name: &str) -> Result<(), StoreError> {
    tx.execute(RENAME, &[tenant.into(), id.into(), display_name.into()]).await.map(drop)
}

/// Whether the project has pools.
///
/// # Errors
/// The store's.
pub async fn has_pools(tx: &mut Tx<'_>, tenant: &str, id: &str) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(HAS_POOLS, &[tenant.into(), id.into()]).await?.is_some())
}

/// Deletes a project that has no pools.
///
/// # Errors
/// The store's.
pub async fn delete(tx: &mut Tx<'_>, tenant: &str, id: &str) -> Result<(), StoreError> {
    tx.execute(DELETE, &[tenant.into(), id.into()]).await.map(drop)
}

fn project(row: &Row) -> Result<Project, StoreError> {
    Ok(Project {
        tenant_id: row.text("tenant_id")?,
        project_id: row.text("id")?,
        display_name: row.text("display_name")?,
        created_at: row.time("created_at")?,
    })
}
