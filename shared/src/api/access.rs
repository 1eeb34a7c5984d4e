//! Actions, roles and scopes: who may do what, as one table.
//!
//! Roles of a scope are ordered and each holds all that the lower ones hold, so a row names the least role that
//! may do its action in each scope. `relay`'s policy decides with this table and nothing else.

pub use super::roles::{AdminRole, InfraRole, NotOfProject, ProjectRole, TenantRole};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::borrow::Cow;

/// What an action is decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The caller's own things.
    #[serde(rename = "self")]
    Own,
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
            Self::Own => "self",
            Self::Platform => "platform",
            Self::Tenant => "tenant",
            Self::Project => "project",
            Self::ComputePool => "compute-pool",
            Self::Site => "site",
        }
    }
}

/// One thing that a role may allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is its own name in ACTIONS, spelled module:group:verb")]
pub enum Action {
    AdminAuditRead,
    AdminComponentsDelete,
    AdminComponentsRead,
    AdminGrantsPut,
    AdminGrantsRead,
    AdminGrantsRemove,
    AdminTasksDelete,
    AdminTasksRead,
    AdminTasksRetry,
    AdminTenantsAddMember,
    AdminTenantsRead,
    AdminTokensCreate,
    AdminTokensRead,
    AdminTokensRevoke,
    AdminUsersCreate,
    AdminUsersRead,
    EndorsementAuthoritiesAdd,
    EndorsementAuthoritiesRead,
    EndorsementAuthoritiesRemove,
    EndorsementKeysAdd,
    EndorsementKeysRead,
    EndorsementKeysRemove,
    EventsRead,
    InventoryPut,
    InventoryRead,
    InventoryRemove,
    JoinTokensCreate,
    JoinTokensRead,
    JoinTokensRevoke,
    MetalAbort,
    MetalCommission,
    MetalDeploy,
    MetalEnroll,
    MetalInspect,
    MetalPower,
    MetalRead,
    MetalRelease,
    MetalRescue,
    MetalRetire,
    MetalSetCredentials,
    NodesBan,
    NodesRead,
    NodesRelease,
    PoolsCreate,
    PoolsDelete,
    PoolsRead,
    PoolsUpdate,
    SecretsPut,
    SecretsRead,
    SecretsRemove,
    SitesCreate,
    SitesDelete,
    SitesRead,
    SitesUpdate,
    AuditRead,
    InvitesAccept,
    InvitesCreate,
    InvitesDelete,
    InvitesRead,
    MembersAdd,
    MembersLeave,
    MembersRead,
    MembersRemove,
    MembersUpdate,
    ProjectsCreate,
    ProjectsDelete,
    ProjectsRead,
    ProjectsUpdate,
    TenantsCreate,
    TenantsDelete,
    TenantsRead,
    TenantsUpdate,
    TokensCreate,
    TokensRead,
    TokensRefresh,
    TokensRevoke,
    TokensUpdate,
    WebhooksCreate,
    WebhooksDelete,
    WebhooksRead,
    WebhooksUpdate,
    ComponentsPing,
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
    pub admin: Option<AdminRole>,
    /// The least role of a service on a site.
    pub infra: Option<InfraRole>,
    /// Whether every user may do it to what is their own (an API token needs the action or a role that holds it).
    pub own: bool,
}

const fn row(
    action: Action,
    name: &'static str,
    tenant: Option<TenantRole>,
    project: Option<ProjectRole>,
    admin: AdminRole,
) -> ActionRow {
    ActionRow { action, name, tenant, project, admin: Some(admin), infra: None, own: false }
}

const fn own(action: Action, name: &'static str) -> ActionRow {
    ActionRow { action, name, tenant: None, project: None, admin: None, infra: None, own: true }
}

impl ActionRow {
    const fn and(
        self,
        tenant: Option<TenantRole>,
        project: Option<ProjectRole>,
        admin: Option<AdminRole>,
    ) -> Self {
        Self { tenant, project, admin, ..self }
    }

    const fn infra(self, least: InfraRole) -> Self {
        Self { infra: Some(least), ..self }
    }
}

/// Every action.
#[rustfmt::skip]
pub const ACTIONS: &[ActionRow] = {
    use Action as A;
    use AdminRole as M;
    use InfraRole as I;
    const OWNER: Option<TenantRole> = Some(TenantRole::Owner);
    const EDITOR: Option<TenantRole> = Some(TenantRole::Editor);
    const VIEWER: Option<TenantRole> = Some(TenantRole::Viewer);
    const GUEST: Option<TenantRole> = Some(TenantRole::Guest);
    const P_OWNER: Option<ProjectRole> = Some(ProjectRole::Owner);
    const P_EDITOR: Option<ProjectRole> = Some(ProjectRole::Editor);
    const P_VIEWER: Option<ProjectRole> = Some(ProjectRole::Viewer);
    &[
        row(A::AdminAuditRead, "admin:audit:read", None, None, M::Viewer),
        row(A::AdminComponentsDelete, "admin:components:delete", None, None, M::Editor),
        row(A::AdminComponentsRead, "admin:components:read", None, None, M::Viewer),
        row(A::AdminGrantsPut, "admin:grants:put", None, None, M::Editor),
        row(A::AdminGrantsRead, "admin:grants:read", None, None, M::Viewer),
        row(A::AdminGrantsRemove, "admin:grants:remove", None, None, M::Editor),
        row(A::AdminTasksDelete, "admin:tasks:delete", None, None, M::Editor),
        row(A::AdminTasksRead, "admin:tasks:read", None, None, M::Viewer),
        row(A::AdminTasksRetry, "admin:tasks:retry", None, None, M::Editor),
        row(A::AdminTenantsAddMember, "admin:tenants:add-member", None, None, M::Editor),
        row(A::AdminTenantsRead, "admin:tenants:read", None, None, M::Viewer),
        row(A::AdminTokensCreate, "admin:tokens:create", None, None, M::Editor),
        row(A::AdminTokensRead, "admin:tokens:read", None, None, M::Viewer),
        row(A::AdminTokensRevoke, "admin:tokens:revoke", None, None, M::Editor),
        row(A::AdminUsersCreate, "admin:users:create", None, None, M::Editor),
        row(A::AdminUsersRead, "admin:users:read", None, None, M::Viewer),
        row(A::EndorsementAuthoritiesAdd, "compute:endorsement-authorities:add", OWNER, None, M::Editor),
        row(A::EndorsementAuthoritiesRead, "compute:endorsement-authorities:read", VIEWER, None, M::Viewer),
        row(A::EndorsementAuthoritiesRemove, "compute:endorsement-authorities:remove", OWNER, None, M::Editor),
        row(A::EndorsementKeysAdd, "compute:endorsement-keys:add", OWNER, None, M::Editor),
        row(A::EndorsementKeysRead, "compute:endorsement-keys:read", VIEWER, None, M::Viewer),
        row(A::EndorsementKeysRemove, "compute:endorsement-keys:remove", OWNER, None, M::Editor),
        row(A::EventsRead, "compute:events:read", VIEWER, None, M::Viewer),
        row(A::InventoryPut, "compute:inventory:put", OWNER, None, M::Editor),
        row(A::InventoryRead, "compute:inventory:read", VIEWER, None, M::Viewer),
        row(A::InventoryRemove, "compute:inventory:remove", OWNER, None, M::Editor),
        row(A::JoinTokensCreate, "compute:join-tokens:create", EDITOR, P_EDITOR, M::Editor),
        row(A::JoinTokensRead, "compute:join-tokens:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::JoinTokensRevoke, "compute:join-tokens:revoke", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalAbort, "compute:metal:abort", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalCommission, "compute:metal:commission", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalDeploy, "compute:metal:deploy", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalEnroll, "compute:metal:enroll", OWNER, P_OWNER, M::Editor),
        row(A::MetalInspect, "compute:metal:inspect", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalPower, "compute:metal:power", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalRead, "compute:metal:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::MetalRelease, "compute:metal:release", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalRescue, "compute:metal:rescue", EDITOR, P_EDITOR, M::Editor),
        row(A::MetalRetire, "compute:metal:retire", OWNER, P_OWNER, M::Editor),
        row(A::MetalSetCredentials, "compute:metal:set-credentials", OWNER, P_OWNER, M::Editor),
        row(A::NodesBan, "compute:nodes:ban", OWNER, P_OWNER, M::Editor),
        row(A::NodesRead, "compute:nodes:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::NodesRelease, "compute:nodes:release", EDITOR, P_EDITOR, M::Editor),
        row(A::PoolsCreate, "compute:pools:create", OWNER, None, M::Editor),
        row(A::PoolsDelete, "compute:pools:delete", OWNER, None, M::Editor),
        row(A::PoolsRead, "compute:pools:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::PoolsUpdate, "compute:pools:update", OWNER, None, M::Editor),
        row(A::SecretsPut, "compute:secrets:put", OWNER, None, M::Editor),
        row(A::SecretsRead, "compute:secrets:read", VIEWER, None, M::Viewer),
        row(A::SecretsRemove, "compute:secrets:remove", OWNER, None, M::Editor),
        row(A::SitesCreate, "compute:sites:create", OWNER, None, M::Editor),
        row(A::SitesDelete, "compute:sites:delete", OWNER, None, M::Editor),
        own(A::SitesRead, "compute:sites:read").and(GUEST, P_VIEWER, Some(M::Viewer)).infra(I::Viewer),
        row(A::SitesUpdate, "compute:sites:update", None, None, M::Editor),
        row(A::AuditRead, "iam:audit:read", OWNER, None, M::Viewer),
        own(A::InvitesAccept, "iam:invites:accept"),
        row(A::InvitesCreate, "iam:invites:create", OWNER, P_OWNER, M::Editor),
        row(A::InvitesDelete, "iam:invites:delete", OWNER, P_OWNER, M::Editor),
        row(A::InvitesRead, "iam:invites:read", OWNER, P_OWNER, M::Viewer),
        row(A::MembersAdd, "iam:members:add", OWNER, P_OWNER, M::Editor),
        own(A::MembersLeave, "iam:members:leave"),
        row(A::MembersRead, "iam:members:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::MembersRemove, "iam:members:remove", OWNER, P_OWNER, M::Editor),
        row(A::MembersUpdate, "iam:members:update", OWNER, P_OWNER, M::Editor),
        row(A::ProjectsCreate, "iam:projects:create", OWNER, None, M::Editor),
        row(A::ProjectsDelete, "iam:projects:delete", OWNER, P_OWNER, M::Editor),
        row(A::ProjectsRead, "iam:projects:read", VIEWER, P_VIEWER, M::Viewer),
        row(A::ProjectsUpdate, "iam:projects:update", OWNER, P_OWNER, M::Editor),
        row(A::TenantsCreate, "iam:tenants:create", None, None, M::Editor),
        row(A::TenantsDelete, "iam:tenants:delete", OWNER, None, M::Editor),
        row(A::TenantsRead, "iam:tenants:read", GUEST, None, M::Viewer),
        row(A::TenantsUpdate, "iam:tenants:update", OWNER, None, M::Editor),
        own(A::TokensCreate, "iam:tokens:create"),
        own(A::TokensRead, "iam:tokens:read"),
        own(A::TokensRefresh, "iam:tokens:refresh"),
        own(A::TokensRevoke, "iam:tokens:revoke"),
        own(A::TokensUpdate, "iam:tokens:update"),
        row(A::WebhooksCreate, "iam:webhooks:create", OWNER, None, M::Editor),
        row(A::WebhooksDelete, "iam:webhooks:delete", OWNER, None, M::Editor),
        row(A::WebhooksRead, "iam:webhooks:read", OWNER, None, M::Viewer),
        row(A::WebhooksUpdate, "iam:webhooks:update", OWNER, None, M::Editor),
        row(A::ComponentsPing, "infra:components:ping", None, None, M::Editor).infra(I::Editor),
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

    /// Every action, in order of the table.
    #[must_use]
    pub fn all() -> Vec<Self> {
        ACTIONS.iter().map(|row| row.action).collect()
    }

    /// The action of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        ACTIONS.iter().find(|row| row.name == name).map(|row| row.action)
    }
}

impl Serialize for Action {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Action {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Cow::<'de, str>::deserialize(deserializer)?;
        Self::named(&name).ok_or_else(|| D::Error::custom("must be the name of an action"))
    }
}

impl JsonSchema for Action {
    fn schema_name() -> Cow<'static, str> {
        "Action".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let names: Vec<&str> = ACTIONS.iter().map(|row| row.name).collect();
        json_schema!({"type": "string", "enum": names})
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
            assert_eq!(Action::named(row.name), Some(row.action));
            assert_eq!(row.name.split(':').count(), 3, "{row:?}");
        }
        assert_eq!(ACTIONS.len(), Action::ComponentsPing as usize + 1);
    }

    #[test]
    fn reading_needs_less_than_changing() {
        for row in ACTIONS.iter().filter(|row| !row.name.ends_with(":read")) {
            assert!(row.admin.is_none_or(|role| role == AdminRole::Editor), "{row:?}");
            assert!(row.infra.is_none_or(|role| role == InfraRole::Editor), "{row:?}");
            assert!(row.own || row.admin.is_some(), "{row:?}");
            assert!(row.tenant.is_none_or(|role| role >= TenantRole::Editor), "{row:?}");
            assert!(row.project.is_none_or(|role| role >= ProjectRole::Editor), "{row:?}");
        }
    }
}
