//! What a subject holds now: the roles of its memberships and grants, read at every request.
//!
//! The admin role is never automatic: a token was given one, and it counts as far as the owner's membership of the
//! provider tenant gives it at that moment.

use super::{Grant, Powers, bootstrap};
use crate::store::{
    StoreError, Tx,
    credentials::CredentialRow,
    memberships::{self, Held},
};
use shared::api::{
    access::{AdminRole, ProjectRole, TenantRole},
    tokens::TokenType,
};

/// The admin role that a role in the provider tenant makes possible.
#[must_use]
pub const fn admin_role(role: TenantRole) -> Option<AdminRole> {
    match role {
        TenantRole::Owner => Some(AdminRole::Editor),
        TenantRole::Editor | TenantRole::Viewer => Some(AdminRole::Viewer),
        TenantRole::Guest => None,
    }
}

/// What a subject holds, with the highest admin role that it may ask for.
///
/// # Errors
/// The store's.
pub async fn of_subject(
    tx: &mut Tx<'_>,
    subject: &str,
    provider_tenant: &str,
) -> Result<Vec<Grant>, StoreError> {
    if let Some(role) = bootstrap::role_of(subject) {
        return Ok(vec![Grant::Admin { role }]);
    }
    let held = memberships::held(tx, subject).await?;
    Ok(held.into_iter().flat_map(|held| grants(held, provider_tenant)).flatten().collect())
}

/// What a token may do, given what its owner holds. Pure.
#[must_use]
pub fn powers(row: &CredentialRow, mut held: Vec<Grant>) -> Powers {
    held = held.into_iter().filter_map(|grant| cut(grant, row.admin_role)).collect();
    let within = match row.token.token_type {
        TokenType::User => None,
        TokenType::Api => Some(Grant::of_rights(&row.token.rights)),
    };
    Powers { held, within }
}

/// The admin role at most as it was given; every other grant as it is.
fn cut(grant: Grant, given: Option<AdminRole>) -> Option<Grant> {
    match grant {
        Grant::Admin { role } => given.map(|given| Grant::Admin { role: given.min(role) }),
        other => Some(other),
    }
}

fn grants(held: Held, provider_tenant: &str) -> [Option<Grant>; 2] {
    match held {
        Held::Infra { site, role } => [Some(Grant::Infra { site_id: site, role }), None],
        Held::Member { tenant, project, role } if project.is_empty() => {
            let admin = if tenant == provider_tenant { admin_role(role) } else { None };
            [Some(Grant::Tenant { tenant_id: tenant, role }), admin.map(|role| Grant::Admin { role })]
        }
        Held::Member { tenant, project, role } => {
            let of_project =
                |role: ProjectRole| Grant::Project { tenant_id: tenant, project_id: project, role };
            [ProjectRole::try_from(role).ok().map(of_project), None]
        }
    }
}
