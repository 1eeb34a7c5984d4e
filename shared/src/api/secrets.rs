//! compute/secrets: the platform secrets of a pool, for machines with `node` certificates only.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{Name, SecretName, TenantId},
    secret::Reveal,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most secrets of a pool.
pub const MAX_SECRETS: i64 = 100;
/// The longest secret, in bytes of UTF-8.
pub const MAX_SECRET_BYTES: usize = 16 * 1024;

/// Sets a secret.
pub const PUT: Op<PutSecret, SecretAnswer> = Op::mutation(
    "compute.secrets.put",
    Access::May(Action::SecretsPut, Scope::Site),
    Phase::V0_1,
    "Set a platform secret of a pool; decided by the site's owner.",
);
/// Lists the names.
pub const LIST: Op<ListSecrets, SecretList> = Op::read(
    "compute.secrets.list",
    Access::May(Action::SecretsRead, Scope::Site),
    Phase::V0_1,
    "List the names of a pool's platform secrets, never their values.",
);
/// Removes a secret.
pub const REMOVE: Op<RemoveSecret, SecretAnswer> = Op::mutation(
    "compute.secrets.remove",
    Access::May(Action::SecretsRemove, Scope::Site),
    Phase::V0_1,
    "Remove a platform secret of a pool.",
);

/// A secret to set.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PutSecret {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The secret's name.
    pub name: SecretName,
    /// Its value, at most 16 KiB.
    pub value: Reveal,
}

/// Which secrets to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListSecrets {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<SecretName>,
}

/// A secret to remove.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RemoveSecret {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The secret's name.
    pub name: SecretName,
}

/// A secret without its value.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretInfo {
    /// Its name.
    pub name: String,
    /// When it was last set.
    pub updated_at: Timestamp,
    /// Who set it.
    pub updated_by: String,
}

/// One secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretAnswer {
    /// The secret, without its value.
    pub secret: SecretInfo,
}

/// A page of secrets.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretList {
    /// In order of name.
    pub secrets: Vec<SecretInfo>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
