//! compute/joinRequests: the joins that an attestor deferred, for a person to decide.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{Label, Name, TenantId},
    hardware::Identity,
    id::{JoinRequestId, JoinTokenId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lists a pool's requests.
pub const LIST: Op<ListJoinRequests, JoinRequestList> = Op::read(
    "compute.joinRequests.list",
    Access::May(Action::JoinTokensRead, Scope::ComputePool),
    Phase::V0_1,
    "List a pool's join requests, the pending ones unless told otherwise.",
);
/// Shows one.
pub const GET: Op<GetJoinRequest, JoinRequestAnswer> = Op::read(
    "compute.joinRequests.get",
    Access::May(Action::JoinTokensRead, Scope::ComputePool),
    Phase::V0_1,
    "Show a join request, and who else says to be the same machine.",
);
/// Admits the machine at its next retry.
pub const APPROVE: Op<ApproveJoinRequest, JoinRequestAnswer> = Op::mutation(
    "compute.joinRequests.approve",
    Access::May(Action::JoinTokensCreate, Scope::ComputePool),
    Phase::V0_1,
    "Approve a join request: its machine is admitted at its next retry; decided by the site's owner.",
);
/// Refuses the machine.
pub const DENY: Op<DenyJoinRequests, JoinRequestsDenied> = Op::mutation(
    "compute.joinRequests.deny",
    Access::May(Action::JoinTokensRevoke, Scope::ComputePool),
    Phase::V0_1,
    "Deny a join request, or all of a token's; decided by the pool's tenant or the site's owner.",
);

/// Which requests to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListJoinRequests {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// Those in this state, `pending` unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JoinRequestState>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<JoinRequestId>,
}

/// A page of requests.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequestList {
    /// In order of id.
    pub join_requests: Vec<JoinRequest>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<JoinRequestId>,
}

/// Which request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetJoinRequest {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The request.
    pub join_request_id: JoinRequestId,
}

/// An approval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApproveJoinRequest {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The request.
    pub join_request_id: JoinRequestId,
    /// Why, for those who read it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Label>,
}

/// A denial: of one request, or of all of a token's that are pending or approved.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DenyJoinRequests {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The request; or a token instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_request_id: Option<JoinRequestId>,
    /// The token; or a request instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<JoinTokenId>,
    /// Why, for those who read it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Label>,
}

/// One request.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequestAnswer {
    /// The request.
    pub join_request: JoinRequest,
}

/// What was denied.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequestsDenied {
    /// The requests, in order of id: at most 32, as many as a token holds.
    pub join_requests: Vec<JoinRequest>,
}

/// A join that was deferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinRequest {
    /// Its id.
    pub id: JoinRequestId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// The token that the machine shows.
    pub token_id: JoinTokenId,
    /// SHA-256 of the certificate request's signed part.
    pub csr_sha256: String,
    /// Why a person is asked.
    pub reasons: Vec<DeferReason>,
    /// What the machine says it is.
    pub identity: Identity,
    /// The endorsement key that it has proved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_sha256: Option<String>,
    /// Who made its TPM, as the certificate says that came with the endorsement key: the machine's claim, unless ekVouched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_manufacturer: Option<String>,
    /// Whether one of the pool's authorities vouched for that key when the machine first asked. Absent without such a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_vouched: Option<bool>,
    /// Where the first call came from.
    pub remote_address: String,
    /// Nodes and open requests of the same tenant that share an identifier with it, at most 100. Only `get` looks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shared_with: Vec<SharedIdentifier>,
    /// Where it stands.
    pub state: JoinRequestState,
    /// When the machine first asked.
    pub created_at: Timestamp,
    /// When it ends if nothing happens.
    pub expires_at: Timestamp,
    /// When a person decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<Timestamp>,
    /// Who.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_by: Option<String>,
    /// What they noted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Another machine that says the same of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SharedIdentifier {
    /// The node (`nd_…`) or join request (`jr_…`).
    pub id: String,
    /// Which identifier.
    pub kind: String,
    /// Its value.
    pub value: String,
}

/// Why a person is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DeferReason {
    /// A vendor's default where the product UUID or serial should be, or neither of them and no proven endorsement key.
    PlaceholderIdentifiers,
    /// The pool's inventory has no such machine.
    UnknownMachine,
    /// The TPM has proved its endorsement key, and that is on no list.
    UnknownEndorsementKey,
    /// Another tenant's node holds an identity that the machine claims.
    IdentityDisputed,
    /// The node to be taken over sent a heartbeat within 10 minutes.
    IncumbentAlive,
}

impl DeferReason {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::PlaceholderIdentifiers => "placeholderIdentifiers",
            Self::UnknownMachine => "unknownMachine",
            Self::UnknownEndorsementKey => "unknownEndorsementKey",
            Self::IdentityDisputed => "identityDisputed",
            Self::IncumbentAlive => "incumbentAlive",
        }
    }
}

/// Where a request stands. Denied, expired and consumed are final.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum JoinRequestState {
    /// A person is asked.
    Pending,
    /// The machine is admitted at its next retry.
    Approved,
    /// The machine was admitted.
    Consumed,
    /// A person refused it, or its token was revoked.
    Denied,
    /// Its time is over.
    Expired,
}

impl JoinRequestState {
    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Consumed => "consumed",
            Self::Denied => "denied",
            Self::Expired => "expired",
        }
    }

    /// Whether it still holds one of the token's uses.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_spelled_as_on_the_wire() {
        use DeferReason as R;
        for reason in [
            R::PlaceholderIdentifiers,
            R::UnknownMachine,
            R::UnknownEndorsementKey,
            R::IdentityDisputed,
            R::IncumbentAlive,
        ] {
            assert_eq!(serde_json::json!(reason), reason.as_str());
        }
        use JoinRequestState as S;
        for state in [S::Pending, S::Approved, S::Consumed, S::Denied, S::Expired] {
            assert_eq!(serde_json::json!(state), state.as_str());
        }
    }
}
