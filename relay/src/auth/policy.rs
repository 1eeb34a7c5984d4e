//! May this caller do this here? A pure function of grants, action and resource, by the table of `shared`.
//!
//! Visibility is part of the decision: who may not know that a thing exists is told that it does not.

use super::principal::Grant;
use shared::{
    api::access::{Action, TenantRole},
    problem::{Code, Problem},
};

/// What an action is decided on, with the facts that decide.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// The installation.
    Platform,
    /// A tenant.
    Tenant {
        /// Its id.
        tenant: &'a str,
    },
    /// A project.
    Project {
        /// Its tenant.
        tenant: &'a str,
        /// Its id.
        project: &'a str,
    },
    /// A pool, for what its own tenant decides.
    Pool(PoolOwners<'a>),
    /// A pool, for what its site's owner decides: policy, secrets, whatever vouches.
    PoolBySiteOwner(PoolOwners<'a>),
    /// A site that is there, or a pool to be made on it.
    Site {
        /// The owning tenant.
        owner: &'a str,
    },
    /// A site to be made.
    NewSite {
        /// The owning tenant.
        owner: &'a str,
        /// Whether it is to be a tenant's own.
        custom: bool,
    },
}

/// Who has a say about a pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolOwners<'a> {
    /// Whose machines join.
    pub tenant: &'a str,
    /// The tenant's project.
    pub project: &'a str,
    /// The tenant that owns the site.
    pub site_owner: &'a str,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Allow,
    /// The caller may see it but not do this.
    Deny,
    /// The caller may not know that it exists.
    Hidden,
}

impl Decision {
    /// Nothing, or the problem to answer; `what` names the resource for people ("pool gpu-a").
    ///
    /// # Errors
    /// PERMISSION_DENIED naming the action, or NOT_FOUND.
    pub fn require(self, action: Action, what: &str) -> Result<(), Problem> {
        match self {
            Self::Allow => Ok(()),
            Self::Deny => {
                let detail =
                    format!("{} on {what} is needed and your roles do not hold it.", action.as_str());
                Err(Problem::new(Code::PermissionDenied, detail))
            }
            Self::Hidden => Err(not_found(what)),
        }
    }
}

/// NOT_FOUND for a thing that is absent or hidden: the same words for both.
#[must_use]
pub fn not_found(what: &str) -> Problem {
    Problem::new(Code::NotFound, format!("There is no {what} that you may see."))
}

/// Decides.
#[must_use]
pub fn may(grants: &[Grant], action: Action, resource: Resource<'_>) -> Decision {
    if !may_see(grants, resource) {
        return Decision::Hidden;
    }
    if grants.iter().any(|grant| allows(grant, action, resource)) { Decision::Allow } else { Decision::Deny }
}

/// Whether the caller may know that it exists.
#[must_use]
pub fn may_see(grants: &[Grant], resource: Resource<'_>) -> bool {
    // Everybody may list sites, and knows that there is an installation.
    let open = matches!(resource, Resource::Platform | Resource::Site { .. } | Resource::NewSite { .. });
    open || grants.iter().any(|grant| sees(grant, resource))
}

fn allows(grant: &Grant, action: Action, resource: Resource<'_>) -> bool {
    let row = action.row();
    match grant {
        Grant::Admin { role } => *role >= row.admin,
        Grant::Tenant { tenant_id, role } => {
            let decides =
                decider(resource) == Some(tenant_id) || reads_as_site_owner(tenant_id, action, resource);
            decides && row.tenant.is_some_and(|least| *role >= least)
        }
        Grant::Project { tenant_id, project_id, role } => match resource {
            Resource::Project { tenant, project } | Resource::Pool(PoolOwners { tenant, project, .. }) => {
                tenant == tenant_id
                    && project == project_id
                    && row.project.is_some_and(|least| *role >= least)
            }
            Resource::Tenant { tenant } => tenant == tenant_id && row.tenant == Some(TenantRole::Guest),
            // Where the pool's tenant vouches for the site itself, its projects decide what is theirs to decide.
            Resource::PoolBySiteOwner(pool) => {
                pool.tenant == pool.site_owner && allows(grant, action, Resource::Pool(pool))
            }
            Resource::Platform | Resource::Site { .. } | Resource::NewSite { .. } => false,
        },
    }
}

/// The site's owner sees the pools that stand there, and their machines.
fn reads_as_site_owner(tenant: &str, action: Action, resource: Resource<'_>) -> bool {
    matches!(resource, Resource::Pool(pool) if pool.site_owner == tenant)
        && matches!(action, Action::PoolsRead | Action::NodesRead)
}

/// The tenant whose roles decide; `None` where only admins do.
fn decider(resource: Resource<'_>) -> Option<&str> {
    match resource {
        Resource::Tenant { tenant } | Resource::Project { tenant, .. } => Some(tenant),
        Resource::Pool(pool) => Some(pool.tenant),
        Resource::PoolBySiteOwner(pool) => Some(pool.site_owner),
        Resource::Site { owner } | Resource::NewSite { owner, custom: true } => Some(owner),
        Resource::Platform | Resource::NewSite { custom: false, .. } => None,
    }
}

fn sees(grant: &Grant, resource: Resource<'_>) -> bool {
    let reads = |tenant: &str, own: &str, role: TenantRole| tenant == own && role >= TenantRole::Viewer;
    match (resource, grant) {
        (Resource::Platform | Resource::Site { .. } | Resource::NewSite { .. }, _)
        | (_, Grant::Admin { .. }) => true,
        (Resource::Tenant { tenant }, Grant::Tenant { tenant_id, .. } | Grant::Project { tenant_id, .. }) => {
            tenant == tenant_id
        }
        (Resource::Project { tenant, .. }, Grant::Tenant { tenant_id, role }) => {
            reads(tenant, tenant_id, *role)
        }
        (Resource::Project { tenant, project }, Grant::Project { tenant_id, project_id, .. }) => {
            tenant == tenant_id && project == project_id
        }
        (Resource::Pool(pool) | Resource::PoolBySiteOwner(pool), Grant::Tenant { tenant_id, role }) => {
            reads(pool.tenant, tenant_id, *role) || reads(pool.site_owner, tenant_id, *role)
        }
        (
            Resource::Pool(pool) | Resource::PoolBySiteOwner(pool),
            Grant::Project { tenant_id, project_id, .. },
        ) => pool.tenant == tenant_id && pool.project == project_id,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::access::{ACTIONS, AdminRole, ProjectRole};

    const POOL: PoolOwners<'_> = PoolOwners { tenant: "acme", project: "ml", site_owner: "provider" };

    fn tenant(tenant: &str, role: TenantRole) -> Vec<Grant> {
        vec![Grant::Tenant { tenant_id: tenant.into(), role }]
    }
    fn project(project: &str, role: ProjectRole) -> Vec<Grant> {
        vec![Grant::Project { tenant_id: "acme".into(), project_id: project.into(), role }]
    }
    fn admin(role: AdminRole) -> Vec<Grant> {
        vec![Grant::Admin { role }]
    }

    #[test]
    fn a_pool_is_seen_by_its_tenant_its_project_its_sites_owner_and_admins() {
        use Decision::{Allow, Deny, Hidden};
        for (grants, read, mint, policy) in [
            (tenant("acme", TenantRole::Owner), Allow, Allow, Deny),
            (tenant("acme", TenantRole::Editor), Allow, Allow, Deny),
            (tenant("acme", TenantRole::Viewer), Allow, Deny, Deny),
            (tenant("acme", TenantRole::Guest), Hidden, Hidden, Hidden),
            (tenant("other", TenantRole::Owner), Hidden, Hidden, Hidden),
            (tenant("provider", TenantRole::Owner), Deny, Deny, Allow),
            (tenant("provider", TenantRole::Viewer), Deny, Deny, Deny),
            (tenant("provider", TenantRole::Guest), Hidden, Hidden, Hidden),
            (project("ml", ProjectRole::Editor), Allow, Allow, Deny),
            (project("ml", ProjectRole::Viewer), Allow, Deny, Deny),
            (project("web", ProjectRole::Owner), Hidden, Hidden, Hidden),
            (admin(AdminRole::Editor), Allow, Allow, Allow),
            (admin(AdminRole::Viewer), Allow, Deny, Deny),
            (vec![], Hidden, Hidden, Hidden),
        ] {
            let on = |action, resource| may(&grants, action, resource);
            assert_eq!(on(Action::JoinTokensRead, Resource::Pool(POOL)), read, "{grants:?}");
            assert_eq!(on(Action::JoinTokensCreate, Resource::Pool(POOL)), mint, "{grants:?}");
            assert_eq!(on(Action::PoolsUpdate, Resource::PoolBySiteOwner(POOL)), policy, "{grants:?}");
            let sees = may_see(&grants, Resource::Pool(POOL));
            assert_eq!(
                on(Action::PoolsRead, Resource::Pool(POOL)),
                if sees { Allow } else { Hidden },
                "{grants:?}"
            );
        }
    }

    #[test]
    fn sites_are_made_by_admins_and_custom_ones_also_by_their_owner() {
        use Decision::{Allow, Deny};
        for (grants, own, platform) in [
            (tenant("acme", TenantRole::Owner), Allow, Deny),
            (tenant("acme", TenantRole::Editor), Deny, Deny),
            (tenant("other", TenantRole::Owner), Deny, Deny),
            (project("ml", ProjectRole::Owner), Deny, Deny),
            (admin(AdminRole::Editor), Allow, Allow),
            (admin(AdminRole::Viewer), Deny, Deny),
        ] {
            let on = |custom| may(&grants, Action::SitesCreate, Resource::NewSite { owner: "acme", custom });
            assert_eq!((on(true), on(false)), (own, platform), "{grants:?}");
        }
    }

    #[test]
    fn a_project_member_is_a_guest_of_the_tenant() {
        let grants = project("ml", ProjectRole::Owner);
        let on = |action| may(&grants, action, Resource::Tenant { tenant: "acme" });
        assert_eq!(on(Action::TenantsRead), Decision::Allow);
        assert_eq!(on(Action::TenantsUpdate), Decision::Deny);
        assert_eq!(may(&grants, Action::TenantsRead, Resource::Tenant { tenant: "other" }), Decision::Hidden);
    }

    #[test]
    fn a_higher_role_never_may_less() {
        let resources = [
            Resource::Platform,
            Resource::Tenant { tenant: "acme" },
            Resource::Project { tenant: "acme", project: "ml" },
            Resource::Pool(POOL),
            Resource::PoolBySiteOwner(POOL),
            Resource::Site { owner: "acme" },
            Resource::NewSite { owner: "acme", custom: true },
        ];
        let ladder = [TenantRole::Guest, TenantRole::Viewer, TenantRole::Editor, TenantRole::Owner];
        for row in ACTIONS {
            for resource in resources {
                let allowed: Vec<bool> = ladder
                    .map(|role| may(&tenant("acme", role), row.action, resource) == Decision::Allow)
                    .into();
                assert!(allowed.is_sorted(), "{} on {resource:?}: {allowed:?}", row.name);
                if allowed.contains(&true) {
                    assert_eq!(
                        may(&admin(AdminRole::Editor), row.action, resource),
                        Decision::Allow,
                        "{}",
                        row.name
                    );
                }
            }
        }
    }
}
