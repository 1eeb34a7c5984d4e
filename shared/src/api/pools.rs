//! compute/pools: what machines join, and by which policy.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{IdempotencyKey, Int, Name, TenantId},
    id::PoolUid,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a pool.
pub const CREATE: Op<CreatePool, PoolAnswer> = Op::mutation(
    "compute.pools.create",
    Access::May(Action::PoolsCreate, Scope::Site),
    Phase::V0_1,
    "Make a pool on a site; decided by the site's owner, also for another tenant.",
);
/// Shows a pool.
pub const GET: Op<GetPool, PoolAnswer> = Op::read(
    "compute.pools.get",
    Access::May(Action::PoolsRead, Scope::ComputePool),
    Phase::V0_1,
    "Show a pool.",
);
/// Lists a tenant's pools.
pub const LIST: Op<ListPools, PoolList> = Op::read(
    "compute.pools.list",
    Access::May(Action::PoolsRead, Scope::Tenant),
    Phase::V0_1,
    "List the pools of a tenant that the caller may see.",
);
/// Changes a pool's policy.
pub const UPDATE: Op<UpdatePool, PoolAnswer> = Op::mutation(
    "compute.pools.update",
    Access::May(Action::PoolsUpdate, Scope::Site),
    Phase::V0_1,
    "Change a pool's policy, the named members only; decided by the site's owner.",
);
/// Removes a pool.
pub const DELETE: Op<GetPool, PoolAnswer> = Op::mutation(
    "compute.pools.delete",
    Access::May(Action::PoolsDelete, Scope::Site),
    Phase::V0_1,
    "Delete a pool whose nodes are all released; its id is never used again.",
);

/// A pool to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreatePool {
    /// The tenant whose machines join.
    pub tenant_id: TenantId,
    /// The tenant's project, `default` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// Its id: global, never reused.
    pub pool_id: Name,
    /// The site that its machines stand at, for good.
    pub site_id: Name,
    /// What runs on its machines, `bcd` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentKind>,
    /// The policy, where it differs from the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyPatch>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetPool {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
}

/// A pool's new policy.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdatePool {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The members to change.
    pub policy: PolicyPatch,
}

/// Which pools to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListPools {
    /// The tenant.
    pub tenant_id: TenantId,
    /// Only this project's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<Name>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<Name>,
}

/// What runs on a pool's machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AgentKind {
    /// bcd: they join.
    Bcd,
    /// Nothing: no token can be minted.
    None,
}

impl AgentKind {
    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bcd => "bcd",
            Self::None => "none",
        }
    }
}

/// A pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    /// Its id, the operator's name for it.
    pub pool_id: String,
    /// Its own id, as certificates carry it.
    pub id: PoolUid,
    /// The tenant whose machines join.
    pub tenant_id: String,
    /// The tenant's project.
    pub project_id: String,
    /// The site that its machines stand at.
    pub site_id: String,
    /// What runs on its machines.
    pub agent: AgentKind,
    /// The policy, whole.
    pub policy: Policy,
    /// Whether `policy.kubernetes.platformOperated` counts: the platform owns the pool.
    pub platform_operated_counts: bool,
    /// When it was made.
    pub created_at: Timestamp,
}

/// One pool.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolAnswer {
    /// The pool.
    pub pool: Pool,
}

/// A page of pools.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PoolList {
    /// In order of poolId.
    pub pools: Vec<Pool>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How a pool judges machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Policy {
    /// Which attestors judge.
    pub attestors: Attestors,
    /// What a vendor's default value does.
    pub placeholders: PlaceholderPolicy,
    /// What TPM evidence does.
    pub tpm: TpmPolicy,
    /// What a proven endorsement key that is on no list does.
    pub unknown_endorsement_keys: UnknownKeys,
    /// What is known of a cluster.
    pub kubernetes: KubernetesPolicy,
    /// The lifetime of certificates, in seconds.
    pub certificate_ttl_seconds: CertificateTtl,
    /// How long an expired certificate still renews, in seconds.
    pub renew_grace_seconds: RenewGrace,
    /// How long a join request waits, in seconds.
    pub join_request_ttl_seconds: JoinRequestTtl,
}

/// The lifetime of a certificate, in seconds.
pub type CertificateTtl = Int<600, 2_592_000>;
/// The grace for an expired certificate, in seconds.
pub type RenewGrace = Int<0, 2_592_000>;
/// The life of a join request, in seconds.
pub type JoinRequestTtl = Int<60, 2_592_000>;

impl Default for Policy {
    fn default() -> Self {
        Self {
            attestors: Attestors::default(),
            placeholders: PlaceholderPolicy::Defer,
            tpm: TpmPolicy::default(),
            unknown_endorsement_keys: UnknownKeys::Defer,
            kubernetes: KubernetesPolicy::default(),
            certificate_ttl_seconds: CertificateTtl::of::<86_400>(),
            renew_grace_seconds: RenewGrace::of::<604_800>(),
            join_request_ttl_seconds: JoinRequestTtl::of::<604_800>(),
        }
    }
}

/// Which attestors judge a join.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Attestors {
    /// The pool's inventory.
    pub discovery: DiscoveryMode,
    /// The TPM.
    pub tpm: TpmMode,
}

/// How the inventory judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DiscoveryMode {
    /// Not at all.
    #[default]
    Off,
    /// An unknown machine waits for a person.
    Defer,
}

/// How the TPM judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum TpmMode {
    /// Not at all.
    Off,
    /// A TPM that is offered is proved; a machine without one goes on.
    #[default]
    Optional,
    /// A machine without one is refused.
    Required,
}

/// What a vendor's default value does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PlaceholderPolicy {
    /// The machine waits for a person.
    #[default]
    Defer,
    /// The machine is admitted if its UUID or serial is still usable.
    AllowUnique,
}

/// What TPM evidence does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TpmPolicy {
    /// Whether a certificate of an endorsement authority admits by itself.
    pub authority_admits: bool,
}

/// What a proven endorsement key that is on no list does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum UnknownKeys {
    /// The machine waits for a person.
    #[default]
    Defer,
    /// The machine is admitted, its key recorded.
    Accept,
}

/// What is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct KubernetesPolicy {
    /// Whether the platform runs the cluster; counts only where the platform owns the pool.
    pub platform_operated: bool,
}

/// A change of a policy: the members that are named.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyPatch {
    /// Who judges a join beside its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attestors: Option<AttestorsPatch>,
    /// What a UUID or serial number that a vendor left at its default does: with `defer`, as in a new pool, the machine waits
    /// for a person; `allowUnique` admits it if the other of the two is usable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placeholders: Option<PlaceholderPolicy>,
    /// What TPM evidence does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TpmPolicyPatch>,
    /// What a proved endorsement key that is on no list of the pool does: with `defer`, as in a new pool, the machine waits
    /// for a person; `accept` admits it and records the key. (The pool `default` begins with `accept`.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_endorsement_keys: Option<UnknownKeys>,
    /// What is known of a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<KubernetesPatch>,
    /// The lifetime of certificates, in seconds; in a new pool 86400, a day.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_ttl_seconds: Option<CertificateTtl>,
    /// How long a certificate that has ended can still be renewed, in seconds; in a new pool 604800, seven days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_grace_seconds: Option<RenewGrace>,
    /// How long a join waits for a person before its request ends, in seconds; in a new pool 604800, seven days.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub join_request_ttl_seconds: Option<JoinRequestTtl>,
}

/// A change of the attestors.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AttestorsPatch {
    /// Whether the pool's inventory judges: with `defer` a machine that is not in it waits for a person, also one whose
    /// endorsement key is listed; with `off`, as in a new pool, it is not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub discovery: Option<DiscoveryMode>,
    /// Whether the TPM judges: with `optional`, as in a new pool, one that is offered is proved and a machine without one goes
    /// on; `required` refuses a machine without one; with `off` none is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tpm: Option<TpmMode>,
}

/// A change of what TPM evidence does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TpmPolicyPatch {
    /// Whether an endorsement key that one of the pool's endorsement authorities certifies admits its machine, listed or not;
    /// `false` in a new pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority_admits: Option<bool>,
}

/// A change of what is known of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KubernetesPatch {
    /// Whether the platform runs the Kubernetes cluster of these machines, so that they are trusted as `platform`; `false` in a
    /// new pool, and it counts only where the platform owns the pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_operated: Option<bool>,
}

impl Policy {
    /// This policy with the members that the patch names.
    #[must_use]
    pub fn patched(&self, patch: &PolicyPatch) -> Self {
        let attestors = patch.attestors.clone().unwrap_or_default();
        let tpm = patch.tpm.clone().unwrap_or_default();
        let kubernetes = patch.kubernetes.clone().unwrap_or_default();
        Self {
            attestors: Attestors {
                discovery: attestors.discovery.unwrap_or(self.attestors.discovery),
                tpm: attestors.tpm.unwrap_or(self.attestors.tpm),
            },
            placeholders: patch.placeholders.unwrap_or(self.placeholders),
            tpm: TpmPolicy { authority_admits: tpm.authority_admits.unwrap_or(self.tpm.authority_admits) },
            unknown_endorsement_keys: patch.unknown_endorsement_keys.unwrap_or(self.unknown_endorsement_keys),
            kubernetes: KubernetesPolicy {
                platform_operated: kubernetes.platform_operated.unwrap_or(self.kubernetes.platform_operated),
            },
            certificate_ttl_seconds: patch.certificate_ttl_seconds.unwrap_or(self.certificate_ttl_seconds),
            renew_grace_seconds: patch.renew_grace_seconds.unwrap_or(self.renew_grace_seconds),
            join_request_ttl_seconds: patch.join_request_ttl_seconds.unwrap_or(self.join_request_ttl_seconds),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        let json = r#"{"kubernetes":{"platformOperated":true},"certificateTtlSeconds":600}"#;
        let patch: PolicyPatch = serde_json::from_str(json).unwrap();
        let policy = Policy::default().patched(&patch);
        assert!(policy.kubernetes.platform_operated);
        assert_eq!(policy.certificate_ttl_seconds.get(), 600);
        assert_eq!(policy.patched(&PolicyPatch::default()), policy);
        let back = Policy { kubernetes: KubernetesPolicy::default(), ..policy };
        assert_eq!(
            Policy { certificate_ttl_seconds: CertificateTtl::of::<86_400>(), ..back },
            Policy::default()
        );
    }

    #[test]
    fn a_stored_policy_of_an_older_release_takes_the_defaults() {
        assert_eq!(serde_json::from_str::<Policy>("{}").unwrap(), Policy::default());
    }
}
