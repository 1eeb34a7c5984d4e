//! admin/users, admin/grants, admin/tenants: what admins do for people and services.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, InfraRole, Scope, TenantRole},
    members::MemberAnswer,
    tenants::{ListTenants, TenantList},
};
use crate::{
    bounded::{IdempotencyKey, Label, Name, TenantId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a service user.
pub const CREATE: Op<CreateUser, UserAnswer> = Op::mutation(
    "admin.users.create",
    Access::May(Action::AdminUsersCreate, Scope::Platform),
    Phase::V0_2,
    "Make a service user, with a tenant of its own.",
);
/// Lists users.
pub const LIST: Op<ListUsers, UserList> = Op::read(
    "admin.users.list",
    Access::May(Action::AdminUsersRead, Scope::Platform),
    Phase::V0_2,
    "List users and services.",
);
/// Gives a service a role on a site.
pub const GRANTS_PUT: Op<PutGrant, GrantAnswer> = Op::mutation(
    "admin.grants.put",
    Access::May(Action::AdminGrantsPut, Scope::Platform),
    Phase::V0_2,
    "Give a service a role on a site, or another one than it has.",
);
/// Lists grants.
pub const GRANTS_LIST: Op<ListGrants, GrantList> = Op::read(
    "admin.grants.list",
    Access::May(Action::AdminGrantsRead, Scope::Platform),
    Phase::V0_2,
    "List a service's roles on sites.",
);
/// Takes a grant back.
pub const GRANTS_REMOVE: Op<RemoveGrant, GrantAnswer> = Op::mutation(
    "admin.grants.remove",
    Access::May(Action::AdminGrantsRemove, Scope::Platform),
    Phase::V0_2,
    "Take a service's role on a site back; its tokens lose it at their next request.",
);
/// Lists all tenants.
pub const TENANTS_LIST: Op<ListTenants, TenantList> = Op::read(
    "admin.tenants.list",
    Access::May(Action::AdminTenantsRead, Scope::Platform),
    Phase::V0_2,
    "List all tenants.",
);
/// Makes a member of any tenant.
pub const TENANTS_ADD_MEMBER: Op<AddTenantMember, MemberAnswer> = Op::mutation(
    "admin.tenants.addMember",
    Access::May(Action::AdminTenantsAddMember, Scope::Platform),
    Phase::V0_2,
    "Make a user that has logged in before a member of any tenant, also its first OWNER.",
);

/// A service user to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateUser {
    /// Its id, which is its tenant's too, for good.
    pub user_id: TenantId,
    /// Its name for people; the id unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Label>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which users to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListUsers {
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TenantId>,
}

/// A role for a service.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutGrant {
    /// The service.
    pub user_id: TenantId,
    /// The site.
    pub site_id: Name,
    /// The role.
    pub role: InfraRole,
}

/// Whose grants to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListGrants {
    /// The service.
    pub user_id: TenantId,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Name>,
}

/// Which grant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveGrant {
    /// The service.
    pub user_id: TenantId,
    /// The site.
    pub site_id: Name,
}

/// A member to be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddTenantMember {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The user.
    pub member_id: TenantId,
    /// The role.
    pub role: TenantRole,
}

/// A user or service.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// Its id, and its own tenant's.
    pub user_id: String,
    /// Its name for people.
    pub display_name: String,
    /// Whether it is a service rather than a person.
    pub service: bool,
    /// The identity provider that knows a person; absent for a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// When it was made, or first logged in.
    pub created_at: Timestamp,
    /// Who made it; the user, for one that logged in.
    pub created_by: String,
}

/// One user.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserAnswer {
    /// The user.
    pub user: User,
}

/// A page of users.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UserList {
    /// In order of id.
    pub users: Vec<User>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A service's role on a site.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfraGrant {
    /// The service.
    pub user_id: String,
    /// The site.
    pub site_id: String,
    /// The role.
    pub role: InfraRole,
    /// Since when.
    pub since: Timestamp,
    /// Who gave it.
    pub granted_by: String,
}

/// One grant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantAnswer {
    /// The grant.
    pub grant: InfraGrant,
}

/// A page of grants.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantList {
    /// In order of site.
    pub grants: Vec<InfraGrant>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
