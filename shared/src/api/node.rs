//! The node plane: what bcd calls. A machine shows a join token once, its certificate from then on.

use super::{Access, Op, Phase};
use crate::{
    binary::Binary,
    hardware::Identity,
    id::{JoinRequestId, NodeId},
    secret::Reveal,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Joins a pool.
pub const JOIN: Op<JoinInput, JoinAnswer> = Op::mutation(
    "node.join",
    Access::JoinToken,
    Phase::V0_1,
    "Join the token's pool; answers a certificate.",
);
/// Renews the caller's certificate.
pub const RENEW: Op<RenewInput, JoinAnswer> = Op::mutation(
    "node.renew",
    Access::RenewingNode,
    Phase::V0_1,
    "Exchange the certificate for a fresh one.",
);
/// Tells that the machine is alive.
pub const HEARTBEAT: Op<HeartbeatInput, HeartbeatAnswer> =
    Op::mutation("node.heartbeat", Access::Node, Phase::V0_1, "Tell that this machine is alive.");
/// Fetches the pool's platform secrets.
pub const SECRETS: Op<SecretsInput, SecretsAnswer> =
    Op::read("node.secrets", Access::PlatformNode, Phase::V0_1, "Fetch the pool's platform secrets.");

/// Texts that are stored as they come: no control characters, which PostgreSQL takes in part and terminals obey.
const PRINTABLE: &str = r"^[^\x00-\x1f\x7f]*$";

/// What a machine claims when it joins.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JoinInput {
    /// One PEM PKCS#10 request, at most 16 KiB; only its public key and its signature count.
    #[schemars(length(max = 16384))]
    pub csr: String,
    /// What the machine says it is.
    pub identity: Identity,
    /// What calls.
    pub agent: Agent,
    /// Where it runs, if in a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<Kubernetes>,
    /// The TPM that holds the request's key, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Tpm>,
    /// The answer to a challenge: send the same join again with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// The most endorsement keys that a machine offers.
pub const MAX_ENDORSEMENT_KEYS: usize = 8;
/// The longest TPM structure, in bytes.
pub const MAX_TPM_BYTES: usize = 1024;
/// The longest endorsement key certificate, in bytes.
pub const MAX_EK_CERTIFICATE_BYTES: usize = 8192;

/// A TPM 2.0 and what it holds. TPM structures are as the TPM marshals them, without the TPM2B's size.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tpm {
    /// All endorsement keys that it has.
    #[schemars(length(min = 1, max = MAX_ENDORSEMENT_KEYS))]
    pub endorsement_keys: Vec<EndorsementKey>,
    /// TPMT_PUBLIC of the request's key.
    pub key_public: Binary<MAX_TPM_BYTES>,
}

/// An endorsement key as the machine offers it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndorsementKey {
    /// Its TPMT_PUBLIC.
    pub public: Binary<MAX_TPM_BYTES>,
    /// Its certificate, then those of the CAs that are at hand, DER.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub certificates: Vec<Binary<MAX_EK_CERTIFICATE_BYTES>>,
}

/// The answer to a challenge.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proof {
    /// The challenge, as it came.
    #[schemars(length(min = 1, max = 1024))]
    pub challenge_id: String,
    /// What the TPM got out of the credential, padded base64: tells that the key lives beside the endorsement key.
    #[schemars(extend("maxLength" = 64))]
    pub secret: Reveal,
}

/// The program that calls.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Agent {
    /// bcd's version.
    #[schemars(length(max = 64), regex(pattern = PRINTABLE))]
    pub version: String,
    /// The operating system, as `/etc/os-release` says it.
    #[schemars(length(max = 128), regex(pattern = PRINTABLE))]
    pub os: String,
    /// The processor architecture.
    #[schemars(length(max = 64), regex(pattern = PRINTABLE))]
    pub arch: String,
}

/// Where bcd runs in a cluster; shown to people, never trusted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubernetes {
    /// The node's name in its cluster.
    #[schemars(length(max = 253), regex(pattern = PRINTABLE))]
    pub node_name: String,
}

/// What a join or a renewal came to.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "status", rename_all = "camelCase")]
pub enum JoinAnswer {
    /// The machine is a node.
    Issued(Issued),
    /// The TPM must show that it holds the key: send the same request again with a proof.
    Challenge(Challenge),
    /// A person decides; ask again with the same CSR.
    Deferred(Deferred),
}

/// A credential made for the name of the request's key under one of the endorsement keys (TPM 2.0 part 1, 24).
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Challenge {
    /// Comes back with the proof, unchanged.
    pub challenge_id: String,
    /// Which of the offered endorsement keys was chosen, from 0.
    pub endorsement_key: u32,
    /// TPMS_ID_OBJECT: what TPM2_ActivateCredential takes as credentialBlob, without its size.
    pub credential_blob: Binary<MAX_TPM_BYTES>,
    /// TPM2B_ENCRYPTED_SECRET without its size.
    pub encrypted_secret: Binary<MAX_TPM_BYTES>,
    /// Until when a proof is taken.
    pub expires_at: Timestamp,
}

/// A certificate, and what its holder needs to use it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Issued {
    /// The node.
    pub node_id: NodeId,
    /// Raised by each reclaim.
    pub generation: i64,
    /// What the relay takes the machine for.
    pub trust: Trust,
    /// The leaf, PEM.
    pub certificate: String,
    /// Its issuing CA, PEM, without the root.
    pub chain: String,
    /// The roots that verify the relay, PEM.
    pub ca_bundle: String,
    /// When to renew, at the earliest.
    pub renew_after: Timestamp,
    /// When the certificate ends.
    pub expires_at: Timestamp,
    /// The relay's clock.
    pub server_time: Timestamp,
}

/// A join that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deferred {
    /// What to approve.
    pub join_request_id: JoinRequestId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// Why a person is asked.
    pub reasons: Vec<String>,
    /// When to ask again, in seconds.
    pub retry_after_seconds: u32,
}

/// What the relay takes a machine for, from the most trusted down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// A machine of the platform's own: a `node` certificate.
    Platform,
    /// A tenant's cluster on a platform site: a `node-tenant` certificate.
    TenantControlled,
    /// A machine on a tenant's own site: a `node-tenant` certificate.
    TenantOwned,
}

impl Trust {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::TenantControlled => "tenant-controlled",
            Self::TenantOwned => "tenant-owned",
        }
    }
}

/// A renewal.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RenewInput {
    /// One PEM PKCS#10 request, at most 16 KiB.
    #[schemars(length(max = 16384))]
    pub csr: String,
    /// The TPM, where the key is another one than before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<Tpm>,
    /// The answer to a challenge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<Proof>,
}

/// A sign of life. Every member is optional: an empty object is a heartbeat.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HeartbeatInput {
    /// bcd's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = PRINTABLE))]
    pub agent_version: Option<String>,
    /// The kernel's boot id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64), regex(pattern = PRINTABLE))]
    pub boot_id: Option<String>,
    /// The identity as seen now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

/// What a heartbeat answers.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatAnswer {
    /// The relay's clock.
    pub server_time: Timestamp,
    /// Renew now, whatever the certificate's age.
    pub renew: bool,
    /// A word for the person at the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Nothing: the certificate says it all.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretsInput {}

/// The pool's platform secrets.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretsAnswer {
    /// By name.
    pub secrets: BTreeMap<String, Reveal>,
}
