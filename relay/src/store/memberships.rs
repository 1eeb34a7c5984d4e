//! The tables `memberships` and `infra_grants`: who holds which role where. An empty project is the tenant itself.

use super::{Row, StoreError, Tx, value::word};
use shared::api::{
    access::{InfraRole, TenantRole},
    members::Member,
    users::InfraGrant,
};

// One row: it is asked for at every request, and of a thousand rows each crosses from the database's thread for itself. No id
// has a space or a comma.
const HELD: &str = "SELECT COALESCE(string_agg(line, ','), '') AS held FROM (\
    SELECT 'member ' || tenant_id || ' ' || project_id || ' ' || role AS line FROM memberships WHERE user_id = $1 \
    UNION ALL SELECT 'infra ' || site_id || '  ' || role AS line FROM infra_grants WHERE user_id = $1) AS lines";
const COUNT: &str = "SELECT COUNT(*) AS count FROM memberships WHERE user_id = $1";
const FIND: &str = "SELECT tenant_id, project_id, user_id, role, since, added_by FROM memberships \
    WHERE tenant_id = $1 AND project_id = $2 AND user_id = $3";
const FIND_ANY: &str = "SELECT tenant_id, project_id, user_id, role, since, added_by FROM memberships \
    WHERE tenant_id = $1 AND user_id = $2 ORDER BY project_id LIMIT 1";
const COUNT_IN: &str = "SELECT COUNT(*) AS count FROM memberships WHERE tenant_id = $1 AND user_id = $2";
const PAGE: &str = "SELECT tenant_id, project_id, user_id, role, since, added_by FROM memberships \
    WHERE tenant_id = $1 AND project_id = $2 AND user_id > $3 ORDER BY user_id LIMIT $4";
const OTHER_OWNER: &str = "SELECT user_id FROM memberships \
    WHERE tenant_id = $1 AND project_id = '' AND role = 'OWNER' AND user_id <> $2 LIMIT 1";
const INSERT: &str = "INSERT INTO memberships (tenant_id, project_id, user_id, role, since, added_by) \
    VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (tenant_id, project_id, user_id) DO NOTHING";
const SET_ROLE: &str =
    "UPDATE memberships SET role = $4 WHERE tenant_id = $1 AND project_id = $2 AND user_id = $3";
const REMOVE: &str =
    "DELETE FROM memberships WHERE tenant_id = $1 AND user_id = $2 AND ($3 = '' OR project_id = $3)";
const REMOVE_ALL: &str = "DELETE FROM memberships WHERE tenant_id = $1 AND ($2 = '' OR project_id = $2)";
const REMOVE_INVITES: &str = "DELETE FROM invites WHERE tenant_id = $1 AND ($2 = '' OR project_id = $2)";
const GRANT_FIND: &str =
    "SELECT user_id, site_id, role, since, granted_by FROM infra_grants WHERE user_id = $1 AND site_id = $2";
const GRANT_PAGE: &str = "SELECT user_id, site_id, role, since, granted_by FROM infra_grants \
    WHERE user_id = $1 AND site_id > $2 ORDER BY site_id LIMIT $3";
const GRANT_PUT: &str = "INSERT INTO infra_grants (user_id, site_id, role, since, granted_by) \
    VALUES ($1, $2, $3, $4, $5) ON CONFLICT (user_id, site_id) DO UPDATE SET role = excluded.role, \
    since = excluded.since, granted_by = excluded.granted_by";
const GRANT_REMOVE: &str = "DELETE FROM infra_grants WHERE user_id = $1 AND site_id = $2";

pub(super) const STATEMENTS: &[&str] = &[
    HELD,
    COUNT,
    FIND,
    FIND_ANY,
    COUNT_IN,
    PAGE,
    OTHER_OWNER,
    INSERT,
    SET_ROLE,
    REMOVE,
    REMOVE_ALL,
    REMOVE_INVITES,
    GRANT_FIND,
    GRANT_PAGE,
    GRANT_PUT,
    GRANT_REMOVE,
];

/// How many memberships a user may have: all of them are read at each of its requests.
pub const MAX_MEMBERSHIPS: i64 = 1_000;
/// How many of them may be in one tenant, its projects included: nobody else fills them all.
pub const MAX_IN_ONE_TENANT: i64 = 100;

/// A role that a user holds.
pub enum Held {
    /// In a tenant, or in a project alone (`project` is not empty; the role is none of GUEST).
    Member {
        /// The tenant.
        tenant: String,
        /// The project, or empty.
        project: String,
        /// The role.
        role: TenantRole,
    },
    /// On a site.
    Infra {
        /// The site.
        site: String,
        /// The role.
        role: InfraRole,
    },
}

/// Every role that a user holds.
///
/// # Errors
/// The store's.
pub async fn held(tx: &mut Tx<'_>, user: &str) -> Result<Vec<Held>, StoreError> {
    tx.fetch_one(HELD, &[user.into()]).await?.parse_with("held", |text| match text {
        "" => Some(Vec::new()),
        lines => lines.split(',').map(parse_held).collect(),
    })
}

fn parse_held(line: &str) -> Option<Held> {
    let mut parts = line.split(' ');
    let (kind, place, part, role) = (parts.next()?, parts.next()?.to_owned(), parts.next()?, parts.next()?);
    match (kind, parts.next()) {
        ("member", None) => Some(Held::Member { tenant: place, project: part.to_owned(), role: word(role)? }),
        ("infra", None) => Some(Held::Infra { site: place, role: word(role)? }),
        _ => None,
    }
}

/// How many memberships a user has.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, user: &str) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[user.into()]).await?.integer("count")
}

/// How many memberships a user has in a tenant, its projects included.
///
/// # Errors
/// The store's.
pub async fn count_in(tx: &mut Tx<'_>, tenant: &str, user: &str) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT_IN, &[tenant.into(), user.into()]).await?.integer("count")
}

/// A user's membership of a tenant, else the first one of its projects.
///
/// # Errors
/// The store's.
pub async fn find_any(tx: &mut Tx<'_>, tenant: &str, user: &str) -> Result<Option<Member>, StoreError> {
    let found = tx.fetch_optional(FIND_ANY, &[tenant.into(), user.into()]).await?;
    found.map(|row| member(&row)).transpose()
}

/// A user's membership of a tenant, or of a project alone.
///
/// # Errors
/// The store's.
pub async fn find(
    tx: &mut Tx<'_>,
    tenant: &str,
    project: &str,
    user: &str,
) -> Result<Option<Member>, StoreError> {
    let found = tx.fetch_optional(FIND, &[tenant.into(), project.into(), user.into()]).await?;
    found.map(|row| member(&row)).transpose()
}

/// At most `limit` members behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    (tenant, project): (&str, &str),
    after: &str,
    limit: i64,
) -> Result<Vec<Member>, StoreError> {
    let args = [tenant.into(), project.into(), after.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(member).collect()
}

/// Whether a tenant, which is locked, has another OWNER than `user`.
///
/// # Errors
/// The store's.
pub async fn has_other_owner(tx: &mut Tx<'_>, tenant: &str, user: &str) -> Result<bool, StoreError> {
    Ok(tx.fetch_optional(OTHER_OWNER, &[tenant.into(), user.into()]).await?.is_some())
}

/// Writes a new membership; `false` if there is one.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &Member) -> Result<bool, StoreError> {
    let row = [
        (&new.tenant_id).into(),
        new.project_id.as_deref().unwrap_or_default().into(),
        (&new.member_id).into(),
        new.role.as_str().into(),
        new.since.into(),
        (&new.added_by).into(),
    ];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// Changes a member's role.
///
/// # Errors
/// The store's.
pub async fn set_role(tx: &mut Tx<'_>, member: &Member) -> Result<(), StoreError> {
    let project = member.project_id.as_deref().unwrap_or_default();
    let args =
        [(&member.tenant_id).into(), project.into(), (&member.member_id).into(), member.role.as_str().into()];
    tx.execute(SET_ROLE, &args).await.map(drop)
}

/// Removes a membership of a project; with an empty one that of the tenant and of all its projects.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, tenant: &str, project: &str, user: &str) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[tenant.into(), user.into(), project.into()]).await.map(drop)
}

/// A service's role on a site.
///
/// # Errors
/// The store's.
pub async fn find_grant(tx: &mut Tx<'_>, user: &str, site: &str) -> Result<Option<InfraGrant>, StoreError> {
    tx.fetch_optional(GRANT_FIND, &[user.into(), site.into()]).await?.map(|row| grant(&row)).transpose()
}

/// At most `limit` of a service's roles, behind the site `after`, in order of site.
///
/// # Errors
/// The store's.
pub async fn page_grants(
    tx: &mut Tx<'_>,
    user: &str,
    after: &str,
    limit: i64,
) -> Result<Vec<InfraGrant>, StoreError> {
    tx.fetch_all(GRANT_PAGE, &[user.into(), after.into(), limit.into()]).await?.iter().map(grant).collect()
}

/// Gives a service a role on a site, in place of the one that it had.
///
/// # Errors
/// The store's.
pub async fn put_grant(tx: &mut Tx<'_>, new: &InfraGrant) -> Result<(), StoreError> {
    let row = [
        (&new.user_id).into(),
        (&new.site_id).into(),
        new.role.as_str().into(),
        new.since.into(),
        (&new.granted_by).into(),
    ];
    tx.execute(GRANT_PUT, &row).await.map(drop)
}

/// Takes a service's role on a site back.
///
/// # Errors
/// The store's.
pub async fn remove_grant(tx: &mut Tx<'_>, user: &str, site: &str) -> Result<(), StoreError> {
    tx.execute(GRANT_REMOVE, &[user.into(), site.into()]).await.map(drop)
}

/// Ends every membership of a deleted tenant or project (an empty one stands for the tenant and all of its projects),
/// with the invites to it.
///
/// # Errors
/// The store's.
pub async fn remove_all(tx: &mut Tx<'_>, tenant: &str, project: &str) -> Result<(), StoreError> {
    tx.execute(REMOVE_ALL, &[tenant.into(), project.into()]).await?;
    tx.execute(REMOVE_INVITES, &[tenant.into(), project.into()]).await.map(drop)
}

fn member(row: &Row) -> Result<Member, StoreError> {
    let project = row.text("project_id")?;
    Ok(Member {
        tenant_id: row.text("tenant_id")?,
        project_id: (!project.is_empty()).then_some(project),
        member_id: row.text("user_id")?,
        role: row.word("role")?,
        since: row.time("since")?,
        added_by: row.text("added_by")?,
    })
}

fn grant(row: &Row) -> Result<InfraGrant, StoreError> {
    Ok(InfraGrant {
        user_id: row.text("user_id")?,
        site_id: row.text("site_id")?,
        role: row.word("role")?,
        since: row.time("since")?,
        granted_by: row.text("granted_by")?,
    })
}
