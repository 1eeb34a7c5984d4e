//! iam/invites: a role for whoever shows a secret, once.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope, TenantRole},
    members::MemberAnswer,
};
use crate::{
    bounded::{IdempotencyKey, Int, Name, TenantId},
    id::InviteId,
    secret::Reveal,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes an invite.
pub const CREATE: Op<CreateInvite, InviteCreated> = Op::mutation(
    "iam.invites.create",
    Access::May(Action::InvitesCreate, Scope::Tenant),
    Phase::V0_2,
    "Invite somebody to a tenant or project; the secret is shown this once.",
);
/// Lists invites.
pub const LIST: Op<ListInvites, InviteList> = Op::read(
    "iam.invites.list",
    Access::May(Action::InvitesRead, Scope::Tenant),
    Phase::V0_2,
    "List the invites to a tenant or project that can still be accepted.",
);
/// Takes an invite back.
pub const DELETE: Op<DeleteInvite, InviteAnswer> = Op::mutation(
    "iam.invites.delete",
    Access::May(Action::InvitesDelete, Scope::Tenant),
    Phase::V0_2,
    "Take an invite back before it is accepted.",
);
/// Accepts an invite.
pub const ACCEPT: Op<AcceptInvite, MemberAnswer> = Op::mutation(
    "iam.invites.accept",
    Access::Own(Action::InvitesAccept),
    Phase::V0_2,
    "Become the member that an invite says; it is good once.",
);

/// How long an invite is good unless told otherwise, in seconds (7 days).
pub const DEFAULT_SECONDS: i64 = 7 * 86_400;

/// An invite to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateInvite {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, for a role in it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The role, at most the caller's own; VIEWER unless given. GUEST is a tenant's only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<TenantRole>,
    /// How long it is good, 7 days unless told otherwise, at most 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_seconds: Option<Int<600, 2_592_000>>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Whose invites to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListInvites {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, for the invites to it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<InviteId>,
}

/// Which invite.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteInvite {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The project, of an invite to it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The invite.
    pub invite_id: InviteId,
}

/// An invite that came.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AcceptInvite {
    /// Its secret, `inv_….…`.
    pub secret: Reveal,
}

/// An invite. Its secret is nowhere.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Invite {
    /// Its id.
    pub id: InviteId,
    /// The tenant.
    pub tenant_id: String,
    /// The project, of an invite to it alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// The role that it gives.
    pub role: TenantRole,
    /// Who invites.
    pub created_by: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// One invite.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteAnswer {
    /// The invite.
    pub invite: Invite,
}

/// A new invite. A retry is answered without the secret.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteCreated {
    /// The invite.
    pub invite: Invite,
    /// What to hand over, this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reveal>,
}

/// A page of invites.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InviteList {
    /// In order of id.
    pub invites: Vec<Invite>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<InviteId>,
}
