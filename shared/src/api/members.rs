//! iam/members: who belongs to a tenant or a project, and in which role.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope, TenantRole},
};
use crate::{
    bounded::{IdempotencyKey, Name, TenantId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a member.
pub const ADD: Op<AddMember, MemberAnswer> = Op::mutation(
    "iam.members.add",
    Access::May(Action::MembersAdd, Scope::Tenant),
    Phase::V0_2,
    "Make a user that has logged in before a member of a tenant or project.",
);
/// Lists members.
pub const LIST: Op<ListMembers, MemberList> = Op::read(
    "iam.members.list",
    Access::May(Action::MembersRead, Scope::Tenant),
    Phase::V0_2,
    "List the members of a tenant or project.",
);
/// Changes a member's role.
pub const UPDATE: Op<UpdateMember, MemberAnswer> = Op::mutation(
    "iam.members.update",
    Access::May(Action::MembersUpdate, Scope::Tenant),
    Phase::V0_2,
    "Change a member's role.",
);
/// Removes a member.
pub const REMOVE: Op<RemoveMember, MemberAnswer> = Op::mutation(
    "iam.members.remove",
    Access::May(Action::MembersRemove, Scope::Tenant),
    Phase::V0_2,
    "Remove a member; from a tenant also from its projects.",
);
/// Ends the caller's own membership.
pub const LEAVE: Op<LeaveMembership, MemberAnswer> = Op::mutation(
    "iam.members.leave",
    Access::Own(Action::MembersLeave),
    Phase::V0_2,
    "Leave a tenant (with its projects) or a project.",
);

/// A member to be.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddMember {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, for a role in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The user; one that has logged in before, or a service.
    pub member_id: TenantId,
    /// The role, at most the caller's own. GUEST is a tenant's only.
    pub role: TenantRole,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Whose members to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListMembers {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, for those who have a role in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<TenantId>,
}

/// A member's new role.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateMember {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, for the role in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The member.
    pub member_id: TenantId,
    /// The role, at most the caller's own. GUEST is a tenant's only.
    pub role: TenantRole,
}

/// Which member.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveMember {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, for the role in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The member.
    pub member_id: TenantId,
}

/// What the caller leaves.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaveMembership {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, to keep what else there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
}

/// A member.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Member {
    /// The tenant.
    pub tenant_id: String,
    /// The project, of a role in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// The user.
    pub member_id: String,
    /// The role. One who has a role in a project alone is a GUEST of the tenant, and not listed there.
    pub role: TenantRole,
    /// Since when.
    pub since: Timestamp,
    /// Who made them a member.
    pub added_by: String,
}

/// One member.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberAnswer {
    /// The member.
    pub member: Member,
}

/// A page of members.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MemberList {
    /// In order of id.
    pub members: Vec<Member>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
