//! Actions, roles and scopes: who may do what, as one table.
//!
//! Roles of a scope are ordered and each holds all that the lower ones hold, so a row names the least role that
//! may do its action in each scope. `relay`'s policy decides with this table and nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A role in a tenant, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum TenantRole {
    /// Sees the tenant's name.
    Guest,
    /// Reads.
    Viewer,
    /// Also mints and revokes join tokens, decides requests, runs metal verbs.
    Editor,
    /// Also sets policy, bans nodes, manages members.
    Owner,
}

/// A role in a project, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ProjectRole {
    /// Reads.
    Viewer,
    /// As a tenant's EDITOR, in this project.
    Editor,
    /// As a tenant's OWNER, in this project.
    Owner,
}

/// A role over all tenants, from the least up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum AdminRole {
    /// Reads everything but secrets.
    Viewer,
    /// Holds OWNER's actions everywhere.
    Editor,
}

/// What an action is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The whole installation.
    Platform,
    /// A tenant.
    Tenant,
    /// A project of a tenant.
    Project,
    /// A pool, resolved upwards to its project and tenant.
    ComputePool,
    /// The tenant that owns a site (also a pool's site).
    Site,
}

impl Scope {
    /// As the reference says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Tenant => "tenant",
            Self::Project => "project",
            Self::ComputePool => "compute-pool",
            Self::Site => "site",
        }
    }
}

/// One thing that a role may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is its own name in ACTIONS, spelled module:group:verb")]
pub enum Action {
    EndorsementAuthoritiesAdd,
    EndorsementAuthoritiesRead,
    EndorsementAuthoritiesRemove,
    EndorsementKeysAdd,
    EndorsementKeysRead,
    EndorsementKeysRemove,
    InventoryPut,
    InventoryRead,
    InventoryRemove,
    JoinTokensCreate,
    JoinTokensRead,
    JoinTokensRevoke,
    NodesBan,
    NodesRead,
    NodesRelease,
    PoolsCreate,
    PoolsDelete,
    PoolsRead,
    PoolsUpdate,
    ProjectsCreate,
    ProjectsDelete,
    ProjectsRead,
    ProjectsUpdate,
    SecretsPut,
    SecretsRead,
    SecretsRemove,
    SitesCreate,
    SitesDelete,
    SitesUpdate,
    TenantsCreate,
    TenantsDelete,
    TenantsRead,
    TenantsUpdate,
}

/// A row: the least role that may do an action, in each scope; `None` where no role of that scope may.
#[derive(Clone, Copy, Debug)]
pub struct ActionRow {
    /// The action.
    pub action: Action,
    /// Its name, `module:group:verb`.
    pub name: &'static str,
    /// The least tenant role.
    pub tenant: Option<TenantRole>,
    /// The least project role.
    pub project: Option<ProjectRole>,
    /// The least admin role.
    pub admin: AdminRole,
}

const fn row(
    action: Action,
    name: &'static str,
    tenant: Option<TenantRole>,
    project: Option<ProjectRole>,
    admin: AdminRole,
) -> ActionRow {
    ActionRow { action, name, tenant, project, admin }
}

/// Every action.
#[rustfmt::skip]
pub const ACTIONS: &[ActionRow] = {
    use Action as A;
    use AdminRole as M;
    const OWNER: Option<TenantRole> = Some(TenantRole::Owner);
    const EDITOR: Option<TenantRole> = Some(TenantRole::Editor);
    const VIEWER: Option<TenantRole> = Some(TenantRole::Viewer);
    const GUEST: Option<TenantRole> = Some(TenantRole::Guest);
    const P_OWNER: Option<ProjectRole> = Some(ProjectRole::Owner);
    const P_EDITOR: Option<ProjectRole> = Some(ProjectRole::Editor);
    const P_VIEWER: Option<ProjectRole> = Some(ProjectRole::Viewer);
    &[
        row(A::EndorsementAuthoritiesAdd, "compute:endorsement-authorities:add", OWNER, None, M::Editor),
        row(A::EndorsementAuthoritiesRead, "compute:endorsement-authorities:read", VIEWER, None, M::Viewer),
        row(A::EndorsementAuthoritiesRemove, "compute:endorsement-authorities:remove", OWNER, None, M::Editor),
        row(A::EndorsementKeysAdd, "compute:endorsement-keys:add", OWNER, None, M::Editor),
        row(A::EndorsementKeysRead, "compute:endorsement-keys:read", VIEWER, None, M::Viewer),
        row(A::EndorsementKeysRemove, "compute:endorsement-keys:remove", OWNER, None, M::Editor),
        row(A::InventoryPut, "compute:inventory:put", OWNER, None, M::Editor),
        row(A::InventoryRead, "compute:inventory:read", VIEWER, None, M::Viewer),
        row(A::InventoryRemove, "compute:inventory:remove", OWNER, None, M::Editor),
        row(A::JoinTokensCreate, "compute:join-tokens:create", EDITOR, P_EDITOR, M::Editor),
        row(A::JoinTokensRead, "compute:join-tokens:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::JoinTokensRevoke, "compute:join-tokens:revoke", EDITOR, P_EDITOR, M::Editor),
        row(A::NodesBan, "compute:nodes:ban", OWNER, P_OWNER, M::Editor),
        row(A::NodesRead, "compute:nodes:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::NodesRelease, "compute:nodes:release", EDITOR, P_EDITOR, M::Editor),
        row(A::PoolsCreate, "compute:pools:create", OWNER, None, M::Editor),
        row(A::PoolsDelete, "compute:pools:delete", OWNER, None, M::Editor),
        row(A::PoolsRead, "compute:pools:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::PoolsUpdate, "compute:pools:update", OWNER, None, M::Editor),
        row(A::ProjectsCreate, "iam:projects:create", OWNER, None, M::Editor),
        row(A::ProjectsDelete, "iam:projects:delete", OWNER, P_OWNER, M::Editor),
        row(A::ProjectsRead, "iam:projects:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::ProjectsUpdate, "iam:projects:update", OWNER, P_OWNER, M::Editor),
        row(A::SecretsPut, "compute:secrets:put", OWNER, None, M::Editor),
        row(A::SecretsRead, "compute:secrets:read", VIEWER, None, M::Viewer),
        row(A::SecretsRemove, "compute:secrets:remove", OWNER, None, M::Editor),
        row(A::SitesCreate, "compute:sites:create", OWNER, None, M::Editor),
        row(A::SitesDelete, "compute:sites:delete", OWNER, None, M::Editor),
        row(A::SitesUpdate, "compute:sites:update", OWNER, None, M::Editor),
        row(A::TenantsCreate, "iam:tenants:create", None, None, M::Editor),
        row(A::TenantsDelete, "iam:tenants:delete", OWNER, None, M::Editor),
        row(A::TenantsRead, "iam:tenants:read", GUEST, None, M::Viewer),
        row(A::TenantsUpdate, "iam:tenants:update", OWNER, None, M::Editor),
    ]
};

impl Action {
    /// The action's row.
    #[must_use]
    pub const fn row(self) -> &'static ActionRow {
        // The table is in the order of the enum; a test holds that.
        #[expect(clippy::indexing_slicing, reason = "a test walks every action")]
        &ACTIONS[self as usize]
    }

    /// `module:group:verb`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.row().name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_stands_at_its_action_and_names_are_sorted_within_modules() {
        for (at, row) in ACTIONS.iter().enumerate() {
            assert_eq!(row.action as usize, at, "{row:?}");
            assert_eq!(row.action.row().name, row.name);
            assert_eq!(row.name.split(':').count(), 3, "{row:?}");
        }
        assert_eq!(ACTIONS.len(), Action::TenantsUpdate as usize + 1);
    }

    #[test]
    fn reading_needs_less_than_changing() {
        for row in ACTIONS.iter().filter(|row| !row.name.ends_with(":read")) {
            assert_eq!(row.admin, AdminRole::Editor, "{row:?}");
            assert!(row.tenant.is_none_or(|role| role >= TenantRole::Editor), "{row:?}");
            assert!(row.project.is_none_or(|role| role >= ProjectRole::Editor), "{row:?}");
        }
    }
}
