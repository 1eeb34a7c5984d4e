//! compute/endorsementKeys: the TPM endorsement keys that a pool admits, once a machine has proved that it has one.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{IdempotencyKey, Label, Name, Sha256Hex, TenantId},
    id::{JoinRequestId, NodeId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Puts a key on the list.
pub const ADD: Op<AddEndorsementKey, EndorsementKeyAnswer> = Op::mutation(
    "compute.endorsementKeys.add",
    Access::May(Action::EndorsementKeysAdd, Scope::Site),
    Phase::V0_1,
    "Let a pool admit an endorsement key, also of machines that wait; where its policy asks the inventory (attestors.discovery), \
     the machine must be in there besides. Decided by the site's owner.",
);
/// Lists the keys.
pub const LIST: Op<ListEndorsementKeys, EndorsementKeyList> = Op::read(
    "compute.endorsementKeys.list",
    Access::May(Action::EndorsementKeysRead, Scope::Site),
    Phase::V0_1,
    "List the endorsement keys that a pool admits.",
);
/// Takes a key off the list.
pub const REMOVE: Op<RemoveEndorsementKey, EndorsementKeyAnswer> = Op::mutation(
    "compute.endorsementKeys.remove",
    Access::May(Action::EndorsementKeysRemove, Scope::Site),
    Phase::V0_1,
    "Take an endorsement key off a pool's list; nodes that joined with it stay.",
);
/// Lists the keys that were proved and are not on the list.
pub const LIST_UNMATCHED: Op<ListEndorsementKeys, UnmatchedKeyList> = Op::read(
    "compute.endorsementKeys.listUnmatched",
    Access::May(Action::EndorsementKeysRead, Scope::Site),
    Phase::V0_1,
    "List the endorsement keys that machines of a pool proved and that are not on its list.",
);

/// A key to put on the list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddEndorsementKey {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// SHA-256 of the key's SubjectPublicKeyInfo, as `bcd identity` shows it.
    pub ek_sha256: Sha256Hex,
    /// A note for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<Label>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which keys to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListEndorsementKeys {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Sha256Hex>,
}

/// A key to take off the list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveEndorsementKey {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The key.
    pub ek_sha256: Sha256Hex,
}

/// A key on the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementKeyInfo {
    /// SHA-256 of the key's SubjectPublicKeyInfo.
    pub ek_sha256: String,
    /// A note for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// When it was added.
    pub added_at: Timestamp,
    /// Who added it.
    pub added_by: String,
}

/// One key.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementKeyAnswer {
    /// The key.
    pub endorsement_key: EndorsementKeyInfo,
}

/// A page of keys.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementKeyList {
    /// In order of ekSha256.
    pub endorsement_keys: Vec<EndorsementKeyInfo>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// A key that was proved here and is not on the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmatchedKey {
    /// SHA-256 of the key's SubjectPublicKeyInfo.
    pub ek_sha256: String,
    /// The TPM's manufacturer, where its certificate names one: the machine's claim, unless ekVouched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_manufacturer: Option<String>,
    /// Whether one of the pool's authorities vouched for the key at one of these proofs. The manufacturer is then of such a one.
    pub ek_vouched: bool,
    /// The node that proved it, if one is not released; the latest of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// The open join request that proved it, if there is one; the latest of several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_request_id: Option<JoinRequestId>,
    /// When the earliest of these came.
    pub first_seen_at: Timestamp,
}

/// A page of keys that are not on the list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnmatchedKeyList {
    /// In order of ekSha256.
    pub endorsement_keys: Vec<UnmatchedKey>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
