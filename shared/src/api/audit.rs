//! iam/audit, admin/audit: who did what, and who was refused what.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{bounded::TenantId, id::AuditId, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lists a tenant's records.
pub const LIST: Op<ListAudit, AuditList> = Op::read(
    "iam.audit.list",
    Access::May(Action::AuditRead, Scope::Tenant),
    Phase::V0_2,
    "List what was done in a tenant, and what was refused.",
);
/// Lists everybody's records.
pub const ADMIN_LIST: Op<ListAllAudit, AuditList> = Op::read(
    "admin.audit.list",
    Access::May(Action::AdminAuditRead, Scope::Platform),
    Phase::V0_2,
    "List what was done anywhere, and what was refused.",
);

/// Which of a tenant's records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListAudit {
    /// The tenant.
    pub tenant_id: TenantId,
    /// None before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// None from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only of this user, service, join token or node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<TenantId>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<AuditId>,
}

/// Which of all records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListAllAudit {
    /// None before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// None from this time on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Only of this user, service, join token or node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<TenantId>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<AuditId>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum AuditDecision {
    /// It was done.
    Allowed,
    /// It was refused.
    Denied,
}

impl AuditDecision {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
        }
    }
}

/// One thing that was done or refused. It never holds a body or a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditRecord {
    /// The record.
    pub id: AuditId,
    /// When the request came.
    pub occurred_at: Timestamp,
    /// Who: the user or service that the token acts for, the join token, or the node.
    pub subject: String,
    /// The token that was shown; absent for machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<String>,
    /// Who made that token: the operator of an automation, the provider tenant of a bootstrap credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_by: Option<String>,
    /// The tenant that it is listed for: the one that it was about, else the subject's own.
    pub tenant_id: String,
    /// The action that the method asks for; a machine's method asks for none and stands here itself.
    pub action: String,
    /// The method.
    pub method: String,
    /// What it was about: names of the input, and the id of what was made.
    pub resource: String,
    /// Whether it was done.
    pub decision: AuditDecision,
    /// `OK`, or the refusal's code.
    pub code: String,
    /// The client's address.
    pub client_address: String,
    /// The request's id, as in `x-request-id`.
    pub request_id: String,
    /// How many refusals of this subject before this one were too many to be recorded.
    pub left_out: i64,
}

/// A page of records.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditList {
    /// In order of id, which is that of time.
    pub records: Vec<AuditRecord>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<AuditId>,
}
