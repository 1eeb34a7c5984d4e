//! iam/tenants: the top scope, a user or an organisation.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{IdempotencyKey, Label, TenantId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a tenant and its project `default`.
pub const CREATE: Op<CreateTenant, TenantAnswer> = Op::mutation(
    "iam.tenants.create",
    Access::May(Action::TenantsCreate, Scope::Platform),
    Phase::V0_1,
    "Make a tenant, with its project default.",
);
/// Shows a tenant.
pub const GET: Op<GetTenant, TenantAnswer> = Op::read(
    "iam.tenants.get",
    Access::May(Action::TenantsRead, Scope::Tenant),
    Phase::V0_1,
    "Show a tenant.",
);
/// Lists the caller's tenants.
pub const LIST: Op<ListTenants, TenantList> =
    Op::read("iam.tenants.list", Access::Any, Phase::V0_1, "List the tenants that the caller belongs to.");
/// Renames a tenant.
pub const UPDATE: Op<UpdateTenant, TenantAnswer> = Op::mutation(
    "iam.tenants.update",
    Access::May(Action::TenantsUpdate, Scope::Tenant),
    Phase::V0_1,
    "Change a tenant's display name.",
);
/// Removes a tenant.
pub const DELETE: Op<GetTenant, TenantAnswer> = Op::mutation(
    "iam.tenants.delete",
    Access::May(Action::TenantsDelete, Scope::Tenant),
    Phase::V0_1,
    "Delete a tenant that has no pools and no sites.",
);

/// A tenant to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateTenant {
    /// Its id, for good.
    pub tenant_id: TenantId,
    /// Its name for people; the id unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Label>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetTenant {
    /// The tenant.
    pub tenant_id: TenantId,
}

/// A tenant's new name.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateTenant {
    /// The tenant.
    pub tenant_id: TenantId,
    /// Its name for people.
    pub display_name: Label,
}

/// Which tenants to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListTenants {
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TenantId>,
}

/// A tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Tenant {
    /// Its id.
    pub tenant_id: String,
    /// Its name for people.
    pub display_name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// One tenant.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantAnswer {
    /// The tenant.
    pub tenant: Tenant,
}

/// A page of tenants.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TenantList {
    /// In order of id.
    pub tenants: Vec<Tenant>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
