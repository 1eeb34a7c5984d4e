//! compute/joinTokens: single-purpose credentials that let machines join one pool.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{
        GpuUuidPin, IdempotencyKey, Int, MacPin, Name, ProductUuidPin, SerialPin, Sha256Hex, TenantId,
    },
    id::JoinTokenId,
    secret::Reveal,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mints a token.
pub const CREATE: Op<CreateJoinToken, JoinTokenCreated> = Op::mutation(
    "compute.joinTokens.create",
    Access::May(Action::JoinTokensCreate, Scope::ComputePool),
    Phase::V0_1,
    "Mint a join token for a pool; the token is shown once.",
);
/// Lists a pool's tokens.
pub const LIST: Op<ListJoinTokens, JoinTokenList> = Op::read(
    "compute.joinTokens.list",
    Access::May(Action::JoinTokensRead, Scope::ComputePool),
    Phase::V0_1,
    "List a pool's join tokens, the live ones unless told otherwise.",
);
/// Revokes a token.
pub const REVOKE: Op<RevokeJoinToken, JoinTokenRevoked> = Op::mutation(
    "compute.joinTokens.revoke",
    Access::May(Action::JoinTokensRevoke, Scope::ComputePool),
    Phase::V0_1,
    "Revoke a join token at once.",
);

/// The lifetime of a token, in seconds.
pub type TokenTtl = Int<60, 86_400>;
/// How many machines one token admits.
pub type MaxUses = Int<1, 10_000>;

/// A token to mint.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateJoinToken {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool that machines join.
    pub pool_id: Name,
    /// How many machines the token admits, 1 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_uses: Option<MaxUses>,
    /// How long the token lives, in seconds.
    pub ttl_seconds: TokenTtl,
    /// Pins the token to one machine: every named member must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Lets a machine take over the node that holds its identity in this pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_reclaim: Option<bool>,
    /// Where bcd runs, if its machine's admins are the tenant's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<Hosted>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// What a machine must be to use the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("minProperties" = 1))]
pub struct Expect {
    /// Its product UUID, in any case, with or without dashes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<ProductUuidPin>,
    /// Its serial number, to the letter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<SerialPin>,
    /// One of its permanent hardware addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<MacPin>,
    /// One of its GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_uuid: Option<GpuUuidPin>,
    /// SHA-256 of its endorsement key's SubjectPublicKeyInfo; forces the TPM challenge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_sha256: Option<Sha256Hex>,
}

/// Where bcd is hosted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Hosted {
    /// As a DaemonSet of a cluster, whose admins are root on its machines.
    Kubernetes,
}

impl Hosted {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// A token's record; never its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinToken {
    /// Derived from tenant, caller and idempotency key.
    pub id: JoinTokenId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// What a machine becomes with it.
    pub role: TokenRole,
    /// How many machines it admits.
    pub max_uses: i64,
    /// How many it has admitted.
    pub uses: i64,
    /// How many uses are held by join requests.
    pub pending: i64,
    /// What a machine must be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<Expect>,
    /// Whether it may take over a node of the pool.
    pub allow_reclaim: bool,
    /// Where its machines' bcd is hosted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<Hosted>,
    /// When it was minted.
    pub created_at: Timestamp,
    /// Who minted it.
    pub created_by: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// When it last admitted a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// What a machine becomes with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TokenRole {
    /// A node of the pool.
    Node,
}

/// A minted token. A retry with the same idempotency key answers it without `token`.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenCreated {
    /// The record.
    pub join_token: JoinToken,
    /// The bearer form, `bcjt_…`, shown this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Reveal>,
}

/// Which tokens to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListJoinTokens {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// Also revoked, expired and used-up ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_inactive: Option<bool>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<JoinTokenId>,
}

/// A page of tokens.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenList {
    /// In order of id.
    pub join_tokens: Vec<JoinToken>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<JoinTokenId>,
}

/// A token to revoke.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RevokeJoinToken {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The token.
    pub token_id: JoinTokenId,
}

/// The record after a revocation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JoinTokenRevoked {
    /// The record, with `revokedAt`.
    pub join_token: JoinToken,
}
