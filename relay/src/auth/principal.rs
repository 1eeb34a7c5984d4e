//! A caller with a bearer credential: its subject, and what it was granted. Pure data.

use serde::{Deserialize, Serialize};
use shared::{
    api::access::{AdminRole, ProjectRole, TenantRole},
    id::TokenId,
};

/// A person or service, as one of its credentials shows it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The user or service; the same for all its credentials.
    pub subject: String,
    /// The tenant that the subject belongs to, named in events.
    pub tenant_id: String,
    /// The credential.
    pub token_id: TokenId,
    /// What it may do.
    pub grants: Vec<Grant>,
}

/// A role in a scope.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "scope", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Grant {
    /// Over all tenants.
    Admin {
        /// The role.
        role: AdminRole,
    },
    /// In one tenant and all its projects.
    Tenant {
        /// The tenant.
        tenant_id: String,
        /// The role.
        role: TenantRole,
    },
    /// In one project; also an implicit GUEST of its tenant.
    Project {
        /// The tenant.
        tenant_id: String,
        /// The project.
        project_id: String,
        /// The role.
        role: ProjectRole,
    },
}
