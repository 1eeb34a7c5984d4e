//! iam/self: who the caller is, and what it may do now.

use super::{Access, Op, Phase, access::Action, subject::Subject, tokens::Token};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Says who calls.
pub const WHO_AM_I: Op<WhoAmI, WhoAmIAnswer> =
    Op::read("iam.self.whoAmI", Access::Any, Phase::V0_2, "Say whom this credential acts for.");
/// Says what the caller may do.
pub const PERMISSIONS: Op<ListPermissions, PermissionList> = Op::read(
    "iam.self.permissions",
    Access::Any,
    Phase::V0_2,
    "List what this credential may do now: what it holds and its owner holds, both.",
);

/// Who calls.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WhoAmI {}

/// What the caller may do.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListPermissions {}

/// Who calls.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhoAmIAnswer {
    /// The user or service.
    pub subject: String,
    /// Its own tenant.
    pub tenant_id: String,
    /// The credential.
    pub token: Token,
}

/// What may be done on a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Permitted {
    /// What it is about; what is above it in the tree is said there.
    pub subject: Subject,
    /// In order of name.
    pub actions: Vec<Action>,
}

/// What the caller may do now. On a project or pool that is not named, it may do what its tenant says.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PermissionList {
    /// By subject, in order.
    pub permissions: Vec<Permitted>,
}
