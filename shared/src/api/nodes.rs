//! compute/nodes: the machines that joined.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
    join_tokens::Hosted,
    node::Trust,
};
use crate::{
    bounded::{Label, Name, TenantId},
    hardware::Identity,
    id::{JoinTokenId, NodeId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Lists a pool's nodes.
pub const LIST: Op<ListNodes, NodeList> = Op::read(
    "compute.nodes.list",
    Access::May(Action::NodesRead, Scope::ComputePool),
    Phase::V0_1,
    "List a pool's nodes, without the released ones unless told otherwise.",
);
/// Shows a node.
pub const GET: Op<GetNode, NodeAnswer> = Op::read(
    "compute.nodes.get",
    Access::May(Action::NodesRead, Scope::ComputePool),
    Phase::V0_1,
    "Show a node.",
);
/// Bans a node.
pub const BAN: Op<BanNode, NodeAnswer> = Op::mutation(
    "compute.nodes.ban",
    Access::May(Action::NodesBan, Scope::ComputePool),
    Phase::V0_1,
    "Ban a node and its key: it is refused from its next request on.",
);
/// Ends a ban.
pub const UNBAN: Op<GetNode, NodeAnswer> = Op::mutation(
    "compute.nodes.unban",
    Access::May(Action::NodesBan, Scope::ComputePool),
    Phase::V0_1,
    "End a node's ban; CONFLICT if its identity is taken meanwhile.",
);
/// Lets a node go.
pub const RELEASE: Op<GetNode, NodeAnswer> = Op::mutation(
    "compute.nodes.release",
    Access::May(Action::NodesRelease, Scope::ComputePool),
    Phase::V0_1,
    "Release a node: its certificate ends, its identity is free.",
);

/// Which nodes to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListNodes {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// Also released ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_released: Option<bool>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<NodeId>,
}

/// Which node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetNode {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The node.
    pub node_id: NodeId,
}

/// A node to ban.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BanNode {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The node.
    pub node_id: NodeId,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Label>,
    /// Claimed identifiers that the ban covers too; its key and its proven endorsement key are always covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2))]
    pub identifiers: Option<Vec<BannedIdentifier>>,
}

/// A claimed identifier that a ban may cover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BannedIdentifier {
    /// The product UUID.
    ProductUuid,
    /// The serial number.
    Serial,
}

/// Where a node is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum NodeState {
    /// A member of its pool.
    Live,
    /// Refused until unbanned.
    Banned,
    /// Gone; its identity is free.
    Released,
}

impl NodeState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Live, Self::Banned, Self::Released];

    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Banned => "banned",
            Self::Released => "released",
        }
    }
}

/// A node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Node {
    /// Its id.
    pub node_id: NodeId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// Where it is in its life.
    pub state: NodeState,
    /// Raised by each reclaim; 0 before the first join.
    pub generation: i64,
    /// What the relay takes it for.
    pub trust: Trust,
    /// Where its bcd is hosted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosted: Option<Hosted>,
    /// What it said it is when it joined.
    pub identity: Identity,
    /// Members of the identity that hold a vendor's default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placeholders: Vec<String>,
    /// What it said it is in its last heartbeat, where that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_identity: Option<Identity>,
    /// What is odd about it; nothing is held because of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
    /// SHA-256 of its key's SubjectPublicKeyInfo; absent, as all that a join brings, of a metal machine that has not joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_sha256: Option<String>,
    /// The endorsement key of its TPM, if it has proved one: SHA-256 of its SubjectPublicKeyInfo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_sha256: Option<String>,
    /// Who made its TPM, as that key's certificate says: the machine's claim, unless ekVouched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_manufacturer: Option<String>,
    /// Whether one of the pool's authorities vouched for that key when it was proved. Absent without such a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_vouched: Option<bool>,
    /// The token it joined with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<JoinTokenId>,
    /// The address it joined from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<String>,
    /// The name of the cluster node it runs as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes_node_name: Option<String>,
    /// bcd's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_version: Option<String>,
    /// Its certificate, unless that ended so long ago that it is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateInfo>,
    /// When it first joined, or was enrolled.
    pub created_at: Timestamp,
    /// When it last joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joined_at: Option<Timestamp>,
    /// When it was last heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_heartbeat_at: Option<Timestamp>,
    /// Why it was banned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban_reason: Option<String>,
}

/// Something odd about a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCondition {
    /// `cloneSuspected` or `identityDrift`.
    #[serde(rename = "type")]
    pub condition_type: String,
    /// What was seen.
    pub message: String,
    /// Since when.
    pub since: Timestamp,
}

/// A node's certificate, for people.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CertificateInfo {
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// One node.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeAnswer {
    /// The node.
    pub node: Node,
}

/// A page of nodes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeList {
    /// In order of id.
    pub nodes: Vec<Node>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<NodeId>,
}
