//! compute/endorsementAuthorities: the CAs by which a pool takes an endorsement key for that of a genuine TPM.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{IdempotencyKey, Name, TenantId},
    id::EndorsementAuthorityId,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most bundles of a pool.
pub const MAX_AUTHORITIES: i64 = 32;
/// The most certificates of a bundle.
pub const MAX_CERTIFICATES: usize = 32;
/// The longest bundle, in bytes.
pub const MAX_BUNDLE_BYTES: usize = 64 * 1024;

/// Adds a bundle.
pub const ADD: Op<AddEndorsementAuthority, EndorsementAuthorityAnswer> = Op::mutation(
    "compute.endorsementAuthorities.add",
    Access::May(Action::EndorsementAuthoritiesAdd, Scope::Site),
    Phase::V0_1,
    "Add CAs of TPM manufacturers to a pool; they admit machines only where its policy says so (tpm.authorityAdmits). \
     Decided by the site's owner.",
);
/// Lists the bundles.
pub const LIST: Op<ListEndorsementAuthorities, EndorsementAuthorityList> = Op::read(
    "compute.endorsementAuthorities.list",
    Access::May(Action::EndorsementAuthoritiesRead, Scope::Site),
    Phase::V0_1,
    "List a pool's CAs of TPM manufacturers.",
);
/// Removes a bundle.
pub const REMOVE: Op<RemoveEndorsementAuthority, EndorsementAuthorityAnswer> = Op::mutation(
    "compute.endorsementAuthorities.remove",
    Access::May(Action::EndorsementAuthoritiesRemove, Scope::Site),
    Phase::V0_1,
    "Remove a bundle of CAs from a pool; nodes that joined by it stay.",
);

/// A bundle to add.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddEndorsementAuthority {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// Roots and intermediates, 1 to 32 PEM blocks CERTIFICATE, at most 64 KiB.
    #[schemars(length(max = MAX_BUNDLE_BYTES), extend("contentMediaType" = "application/pem-certificate-chain"))]
    pub certificates: String,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which bundles to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListEndorsementAuthorities {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EndorsementAuthorityId>,
}

/// A bundle to remove.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveEndorsementAuthority {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The bundle.
    pub authority_id: EndorsementAuthorityId,
}

/// A bundle of CAs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementAuthority {
    /// Its id.
    pub id: EndorsementAuthorityId,
    /// Its certificates, in the order in which they came.
    pub certificates: Vec<AuthorityCertificate>,
    /// When it was added.
    pub added_at: Timestamp,
    /// Who added it.
    pub added_by: String,
}

/// A CA certificate of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthorityCertificate {
    /// Its subject.
    pub subject: String,
    /// SHA-256 of its DER.
    pub sha256: String,
    /// When it ends.
    pub not_after: Timestamp,
}

/// One bundle.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementAuthorityAnswer {
    /// The bundle.
    pub endorsement_authority: EndorsementAuthority,
}

/// A page of bundles.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EndorsementAuthorityList {
    /// In order of id.
    pub endorsement_authorities: Vec<EndorsementAuthority>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EndorsementAuthorityId>,
}
