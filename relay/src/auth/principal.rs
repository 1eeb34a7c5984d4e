//! A caller with a bearer token: its subject, what that subject holds, and what the token holds of it. Pure data.
//!
//! Nothing here is ever the sum of the two: [`policy`](super::policy) asks each side, and both must allow.

use serde::{Deserialize, Serialize};
use shared::{
    api::{
        access::{Action, AdminRole, InfraRole, ProjectRole, TenantRole},
        subject::Subject,
        tokens::{ALL, Rights, TokenType},
    },
    id::TokenId,
};

/// A person or service, as one of its tokens shows it.
#[derive(Clone, Debug)]
pub struct Principal {
    /// The user or service; the same for all its tokens.
    pub subject: String,
    /// The subject's own tenant, named in events.
    pub tenant_id: String,
    /// The token.
    pub token_id: TokenId,
    /// The first token of the chain of refreshes that the token is of: their calls are limited together.
    pub chain: TokenId,
    /// What the token is.
    pub token_type: TokenType,
    /// Who made the token: the subject, where it is from a login.
    pub created_by: String,
    /// What it may do.
    pub powers: Powers,
}

/// What a token may do: what its owner holds now, and what it holds of that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Powers {
    /// What the owner holds now. The admin role in it is the one that the token was given, or less.
    pub held: Vec<Grant>,
    /// What the token holds; `None` where it holds whatever its owner does.
    pub within: Option<Vec<Grant>>,
}

impl Powers {
    /// All that an owner holds.
    #[must_use]
    pub fn of(held: Vec<Grant>) -> Self {
        Self { held, within: None }
    }

    /// What must allow an action, all of it.
    pub fn sides(&self) -> impl Iterator<Item = &[Grant]> {
        [Some(self.held.as_slice()), self.within.as_deref()].into_iter().flatten()
    }

    /// The admin role that the owner holds by this token: what is made by it is given no more.
    #[must_use]
    pub fn given_admin_role(&self) -> Option<AdminRole> {
        let roles = self.held.iter().filter_map(|grant| match grant {
            Grant::Admin { role } => Some(*role),
            _ => None,
        });
        roles.max()
    }

    /// The admin role that both sides give.
    #[must_use]
    pub fn admin_role(&self) -> Option<AdminRole> {
        let of = |grants: &[Grant]| {
            grants
                .iter()
                .filter_map(|grant| if let Grant::Admin { role } = grant { Some(*role) } else { None })
                .max()
        };
        self.sides().map(of).min().flatten()
    }
}

/// A role in a scope, or single actions on a subject. Where a token holds one, an id may be `*`.
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
    /// A service's on a site.
    Infra {
        /// The site.
        site_id: String,
        /// The role.
        role: InfraRole,
    },
    /// Single actions, of a token only.
    Actions {
        /// What they are about.
        subject: Subject,
        /// The actions.
        actions: Vec<Action>,
    },
}

impl Grant {
    /// What a token's rights hold, as grants.
    #[must_use]
    pub fn of_rights(rights: &Rights) -> Vec<Self> {
        let tenants = rights
            .tenant_roles
            .iter()
            .map(|of| Self::Tenant { tenant_id: of.tenant_id.to_string(), role: of.role });
        let projects = rights.project_roles.iter().map(|of| Self::Project {
            tenant_id: of.tenant_id.to_string(),
            project_id: of.project_id.to_string(),
            role: of.role,
        });
        let sites = rights
            .infra_roles
            .iter()
            .map(|of| Self::Infra { site_id: of.site_id.to_string(), role: of.role });
        let actions = rights
            .permissions
            .iter()
            .map(|of| Self::Actions { subject: of.subject.clone(), actions: of.actions.clone() });
        let admin = rights.admin_role.map(|role| Self::Admin { role });
        admin.into_iter().chain(tenants).chain(projects).chain(sites).chain(actions).collect()
    }
}

/// Whether an id of a grant names this one.
#[must_use]
pub fn names(id: &str, this: &str) -> bool {
    id == this || id == ALL
}
