//! May this caller do this here? A pure function of powers, action and resource, by the table of `shared`.
//!
//! A token may what its owner may *and* what it holds itself: each side is judged alone and both must allow, so that
//! nothing that a token holds, however it came to it, adds to what its owner holds at that moment.
//!
//! Visibility is part of the decision: who may not know that a thing exists is told that it does not.

use super::principal::{Grant, Powers, names};
use shared::{
    api::{
        access::{ACTIONS, Action, ActionRow, AdminRole, InfraRole, ProjectRole, TenantRole},
        subject::Subject,
    },
    problem::{Code, Problem},
};

/// What an action is decided on, with the facts that decide.
#[derive(Clone, Copy, Debug)]
pub enum Resource<'a> {
    /// The caller's own things.
    Own,
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
        /// Its id.
        site: &'a str,
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
    /// The pool's id.
    pub pool: &'a str,
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
pub fn may(powers: &Powers, action: Action, resource: Resource<'_>) -> Decision {
    if !may_see(powers, resource) {
        return Decision::Hidden;
    }
    let allow = |side: &[Grant]| side.iter().any(|grant| allows(grant, action, resource));
    let allowed = match resource {
        // What is one's own needs no role; a token must still hold the action.
        Resource::Own => action.row().own && powers.within.as_deref().is_none_or(allow),
        _ => powers.sides().all(allow),
    };
    if allowed { Decision::Allow } else { Decision::Deny }
}

/// The first action of a role that the caller lacks here; `None` if it holds all of the role. Nobody gives a role, to
/// a person or to a token, that they do not hold.
#[must_use]
pub fn lacks(powers: &Powers, role: Role, resource: Resource<'_>) -> Option<Action> {
    let of_role = ACTIONS.iter().filter(|row| role.holds(row)).map(|row| row.action);
    of_role.into_iter().find(|action| may(powers, *action, resource) != Decision::Allow)
}

/// Whether a token that holds these may do this on every subject that its owner has.
#[must_use]
pub fn allowed_by(side: &[Grant], action: Action) -> bool {
    side.iter().any(|grant| match grant {
        Grant::Actions { subject, actions } => *subject == Subject::All && actions.contains(&action),
        _ => false,
    })
}

/// A role in any scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// In a tenant.
    Tenant(TenantRole),
    /// In a project.
    Project(ProjectRole),
    /// Over all tenants.
    Admin(AdminRole),
    /// On a site.
    Infra(InfraRole),
}

impl Role {
    fn holds(self, row: &ActionRow) -> bool {
        match self {
            Self::Tenant(role) => row.tenant.is_some_and(|least| role >= least),
            Self::Project(role) => row.project.is_some_and(|least| role >= least),
            Self::Admin(role) => row.admin.is_some_and(|least| role >= least),
            Self::Infra(role) => row.infra.is_some_and(|least| role >= least),
        }
    }
}

/// Whether the caller may know that it exists.
#[must_use]
pub fn may_see(powers: &Powers, resource: Resource<'_>) -> bool {
    is_open(resource) || powers.sides().all(|side| side.iter().any(|grant| sees(grant, resource)))
}

/// Everybody may list sites, and knows that there is an installation.
fn is_open(resource: Resource<'_>) -> bool {
    use Resource::{NewSite, Own, Platform, Site};
    matches!(resource, Own | Platform | Site { .. } | NewSite { .. })
}

fn allows(grant: &Grant, action: Action, resource: Resource<'_>) -> bool {
    let row = action.row();
    match grant {
        Grant::Admin { role } => row.admin.is_some_and(|least| *role >= least),
        Grant::Tenant { tenant_id, role } => {
            let here = matches!(resource, Resource::Own) || tenant_decides(tenant_id, action, resource);
            here && row.tenant.is_some_and(|least| *role >= least)
        }
        Grant::Project { tenant_id, project_id, role } => {
            let here = matches!(resource, Resource::Own) || project_decides(tenant_id, project_id, resource);
            is_guest_of(tenant_id, row, resource) || (here && row.project.is_some_and(|least| *role >= least))
        }
        Grant::Infra { site_id, role } => {
            let here = match resource {
                Resource::Site { site, .. } => names(site_id, site),
                Resource::Platform | Resource::Own => true,
                _ => false,
            };
            here && row.infra.is_some_and(|least| *role >= least)
        }
        Grant::Actions { subject, actions } => actions.contains(&action) && covers(subject, row, resource),
    }
}

/// Whether single actions on a subject count here: where a role of the same scope would.
fn covers(subject: &Subject, row: &ActionRow, resource: Resource<'_>) -> bool {
    match subject {
        Subject::All => true,
        Subject::Own => matches!(resource, Resource::Own),
        Subject::Platform => matches!(resource, Resource::Platform),
        Subject::Tenant(tenant) => tenant_decides(tenant.as_str(), row.action, resource),
        Subject::Project(tenant, project) => {
            project_decides(tenant.as_str(), project.as_str(), resource)
                || is_guest_of(tenant.as_str(), row, resource)
        }
        Subject::ComputePool(id) => matches!(
            resource,
            Resource::Pool(PoolOwners { pool, .. }) | Resource::PoolBySiteOwner(PoolOwners { pool, .. })
                if pool == id.as_str()
        ),
        Subject::Site(id) => matches!(resource, Resource::Site { site, .. } if site == id.as_str()),
    }
}

/// Whether a tenant's roles decide: it is the one that has the say, or it owns the site, and so sees the pools that
/// stand there and their machines.
fn tenant_decides(tenant: &str, action: Action, resource: Resource<'_>) -> bool {
    let reads = matches!(action, Action::PoolsRead | Action::NodesRead);
    decider(resource).is_some_and(|decider| names(tenant, decider))
        || matches!(resource, Resource::Pool(pool) if reads && names(tenant, pool.site_owner))
}

/// The tenant whose roles decide; `None` where only admins do.
fn decider(resource: Resource<'_>) -> Option<&str> {
    match resource {
        Resource::Tenant { tenant } | Resource::Project { tenant, .. } => Some(tenant),
        Resource::Pool(pool) => Some(pool.tenant),
        Resource::PoolBySiteOwner(pool) => Some(pool.site_owner),
        Resource::Site { owner, .. } | Resource::NewSite { owner, custom: true } => Some(owner),
        Resource::Own | Resource::Platform | Resource::NewSite { custom: false, .. } => None,
    }
}

/// Whether a project's roles decide.
fn project_decides(of: &str, id: &str, resource: Resource<'_>) -> bool {
    match resource {
        Resource::Project { tenant, project } | Resource::Pool(PoolOwners { tenant, project, .. }) => {
            names(of, tenant) && names(id, project)
        }
        // Where the pool's tenant vouches for the site itself, its projects decide what is theirs to decide.
        Resource::PoolBySiteOwner(pool) => {
            pool.tenant == pool.site_owner && project_decides(of, id, Resource::Pool(pool))
        }
        _ => false,
    }
}

/// A member of a project is a GUEST of its tenant.
fn is_guest_of(tenant_id: &str, row: &ActionRow, resource: Resource<'_>) -> bool {
    let of = matches!(resource, Resource::Tenant { tenant } if names(tenant_id, tenant));
    of && row.tenant == Some(TenantRole::Guest) && !row.own
}

fn sees(grant: &Grant, resource: Resource<'_>) -> bool {
    match grant {
        Grant::Admin { .. } => true,
        Grant::Tenant { tenant_id, role } => match resource {
            Resource::Tenant { tenant } => names(tenant_id, tenant),
            Resource::Project { tenant, .. } => names(tenant_id, tenant) && *role >= TenantRole::Viewer,
            Resource::Pool(pool) | Resource::PoolBySiteOwner(pool) => {
                let of = names(tenant_id, pool.tenant) || names(tenant_id, pool.site_owner);
                of && *role >= TenantRole::Viewer
            }
            _ => false,
        },
        Grant::Project { tenant_id, project_id, .. } => sees_of_project(tenant_id, project_id, resource),
        Grant::Infra { .. } => false,
        Grant::Actions { subject, .. } => match subject {
            Subject::All => true,
            Subject::Tenant(tenant) => {
                let (tenant_id, role) = (tenant.to_string(), TenantRole::Viewer);
                sees(&Grant::Tenant { tenant_id, role }, resource)
            }
            Subject::Project(tenant, project) => sees_of_project(tenant.as_str(), project.as_str(), resource),
            Subject::ComputePool(_) | Subject::Site(_) | Subject::Own | Subject::Platform => {
                covers(subject, Action::PoolsRead.row(), resource)
            }
        },
    }
}

fn sees_of_project(tenant_id: &str, project_id: &str, resource: Resource<'_>) -> bool {
    match resource {
        Resource::Tenant { tenant } => names(tenant_id, tenant),
        Resource::Project { tenant, project } => names(tenant_id, tenant) && names(project_id, project),
        Resource::Pool(pool) | Resource::PoolBySiteOwner(pool) => {
            names(tenant_id, pool.tenant) && names(project_id, pool.project)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::access::{ACTIONS, AdminRole, ProjectRole};

    const POOL: PoolOwners<'_> =
        PoolOwners { pool: "gpu-a", tenant: "acme", project: "ml", site_owner: "provider" };

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
            let on = |action, resource| may(&Powers::of(grants.clone()), action, resource);
            assert_eq!(on(Action::JoinTokensRead, Resource::Pool(POOL)), read, "{grants:?}");
            assert_eq!(on(Action::JoinTokensCreate, Resource::Pool(POOL)), mint, "{grants:?}");
            assert_eq!(on(Action::PoolsUpdate, Resource::PoolBySiteOwner(POOL)), policy, "{grants:?}");
            let sees = may_see(&Powers::of(grants.clone()), Resource::Pool(POOL));
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
            let on = |custom| {
                may(
                    &Powers::of(grants.clone()),
                    Action::SitesCreate,
                    Resource::NewSite { owner: "acme", custom },
                )
            };
            assert_eq!((on(true), on(false)), (own, platform), "{grants:?}");
        }
    }

    #[test]
    fn a_project_member_is_a_guest_of_the_tenant() {
        let grants = project("ml", ProjectRole::Owner);
        let on = |action| may(&Powers::of(grants.clone()), action, Resource::Tenant { tenant: "acme" });
        assert_eq!(on(Action::TenantsRead), Decision::Allow);
        assert_eq!(on(Action::TenantsUpdate), Decision::Deny);
        assert_eq!(
            may(&Powers::of(grants.clone()), Action::TenantsRead, Resource::Tenant { tenant: "other" }),
            Decision::Hidden
        );
    }

    #[test]
    fn a_higher_role_never_may_less() {
        let resources = [
            Resource::Platform,
            Resource::Tenant { tenant: "acme" },
            Resource::Project { tenant: "acme", project: "ml" },
            Resource::Pool(POOL),
            Resource::PoolBySiteOwner(POOL),
            Resource::Site { site: "barn", owner: "acme" },
            Resource::NewSite { owner: "acme", custom: true },
        ];
        let ladder = [TenantRole::Guest, TenantRole::Viewer, TenantRole::Editor, TenantRole::Owner];
        for row in ACTIONS {
            for resource in resources {
                let allowed: Vec<bool> = ladder
                    .map(|role| {
                        may(&Powers::of(tenant("acme", role)), row.action, resource) == Decision::Allow
                    })
                    .into();
                assert!(allowed.is_sorted(), "{} on {resource:?}: {allowed:?}", row.name);
                if allowed.contains(&true) {
                    assert_eq!(
                        may(&Powers::of(admin(AdminRole::Editor)), row.action, resource),
                        Decision::Allow,
                        "{}",
                        row.name
                    );
                }
            }
        }
    }
}
