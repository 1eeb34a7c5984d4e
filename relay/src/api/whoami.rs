//! iam/self: open to every token, also to one that may do nothing else.

use crate::{
    auth::{
        Grant, Powers,
        policy::{Decision, Resource, may},
    },
    call::{Call, unauthenticated},
    fault::Fault,
    store::{Tx, credentials, pools, sites},
};
use shared::api::{
    access::{ACTIONS, Action},
    subject::Subject,
    tokens::ALL,
    whoami::{ListPermissions, PermissionList, Permitted, WhoAmI, WhoAmIAnswer},
};
use std::collections::{BTreeMap, BTreeSet};

/// iam/self/whoAmI.
///
/// # Errors
/// UNAUTHENTICATED.
pub async fn who_am_i(call: Call, _: WhoAmI) -> Result<WhoAmIAnswer, Fault> {
    let principal = call.principal()?;
    let found = call.relay.store.read(call.method, &principal.token_id, |tx, id| {
        Box::pin(async move { Ok::<_, Fault>(credentials::find(tx, id).await?) })
    });
    let token = found.await?.ok_or_else(unauthenticated)?.token;
    Ok(WhoAmIAnswer { subject: principal.subject.clone(), tenant_id: principal.tenant_id.clone(), token })
}

/// iam/self/permissions.
///
/// # Errors
/// UNAUTHENTICATED.
pub async fn permissions(call: Call, _: ListPermissions) -> Result<PermissionList, Fault> {
    let powers = &call.principal()?.powers;
    let read = call.relay.store.read(call.method, powers, |tx, powers| {
        Box::pin(async move {
            let mut permissions = Vec::new();
            let sorted = Sorted::of(powers);
            for subject in named(powers) {
                let actions = actions(tx, powers, &sorted, &subject).await?;
                if !actions.is_empty() {
                    permissions.push(Permitted { subject, actions });
                }
            }
            Ok::<_, Fault>(PermissionList { permissions })
        })
    });
    read.await
}

/// Every subject that either side names.
fn named(powers: &Powers) -> BTreeSet<Subject> {
    let of_text = |text: String| text.parse::<Subject>().ok();
    let named = powers.sides().flatten().filter_map(|grant| match grant {
        Grant::Admin { .. } => Some(Subject::Platform),
        Grant::Tenant { tenant_id, .. } => of_text(format!("tenant/{tenant_id}")),
        Grant::Project { tenant_id, project_id, .. } => of_text(format!("project/{tenant_id}/{project_id}")),
        Grant::Infra { site_id, .. } => of_text(format!("site/{site_id}")),
        Grant::Actions { subject, .. } => Some(subject.clone()),
    });
    named.chain([Subject::All, Subject::Own]).collect()
}

/// Powers by what they are about, so that a thousand memberships are not all asked about each of a thousand places.
struct Sorted {
    /// Those that may count anywhere.
    everywhere: Powers,
    /// Those of a tenant, and one of its projects': that makes a GUEST of it.
    tenants: BTreeMap<String, Powers>,
    /// Those of a project alone.
    projects: BTreeMap<(String, String), Powers>,
}

impl Sorted {
    fn of(powers: &Powers) -> Self {
        let none = || Powers { held: Vec::new(), within: powers.within.as_ref().map(|_| Vec::new()) };
        let mut this = Self { everywhere: none(), tenants: BTreeMap::new(), projects: BTreeMap::new() };
        for (within, grant) in [(false, Some(&powers.held)), (true, powers.within.as_ref())]
            .into_iter()
            .flat_map(|(within, side)| side.into_iter().flatten().map(move |grant| (within, grant)))
        {
            let add = |to: &mut Powers| match (&mut to.within, within) {
                (Some(side), true) => side.push(grant.clone()),
                (_, false) => to.held.push(grant.clone()),
                (None, true) => {}
            };
            match grant {
                // A token's word for all that its owner has.
                Grant::Tenant { tenant_id, .. } if tenant_id == ALL => add(&mut this.everywhere),
                Grant::Project { tenant_id, project_id, .. } if tenant_id == ALL || project_id == ALL => {
                    add(&mut this.everywhere);
                }
                Grant::Project { tenant_id, project_id, .. } => {
                    add(this.projects.entry((tenant_id.clone(), project_id.clone())).or_insert_with(none));
                    let tenant = this.tenants.entry(tenant_id.clone()).or_insert_with(none);
                    let side = if within { tenant.within.as_ref() } else { Some(&tenant.held) };
                    let is_guest = |grant: &Grant| matches!(grant, Grant::Project { .. });
                    if !side.is_some_and(|side| side.iter().any(is_guest)) {
                        add(tenant);
                    }
                }
                Grant::Tenant { tenant_id, .. } => {
                    add(this.tenants.entry(tenant_id.clone()).or_insert_with(none));
                }
                Grant::Admin { .. } | Grant::Infra { .. } | Grant::Actions { .. } => {
                    add(&mut this.everywhere);
                }
            }
        }
        this
    }

    /// Those that may count in this project of a tenant, or in the tenant itself.
    fn at(&self, tenant: &str, project: Option<&str>) -> Powers {
        let mut all = self.everywhere.clone();
        let of_project = project.and_then(|id| self.projects.get(&(tenant.to_owned(), id.to_owned())));
        for part in self.tenants.get(tenant).into_iter().chain(of_project) {
            all.held.extend(part.held.iter().cloned());
            if let (Some(side), Some(more)) = (&mut all.within, &part.within) {
                side.extend(more.iter().cloned());
            }
        }
        all
    }
}

/// What may be done on a subject. `*` is what an admin may do in every tenant.
async fn actions(
    tx: &mut Tx<'_>,
    all: &Powers,
    sorted: &Sorted,
    subject: &Subject,
) -> Result<Vec<Action>, Fault> {
    let here = match subject {
        Subject::Tenant(tenant) => Some(sorted.at(tenant.as_str(), None)),
        Subject::Project(tenant, project) => Some(sorted.at(tenant.as_str(), Some(project.as_str()))),
        // Few: a token names them singly.
        _ => None,
    };
    let powers = here.as_ref().unwrap_or(all);
    let on = |resource: Resource<'_>| {
        let may = |action: &Action| may(powers, *action, resource) == Decision::Allow;
        ACTIONS.iter().map(|row| row.action).filter(may).collect::<Vec<_>>()
    };
    Ok(match subject {
        Subject::All => on(Resource::Tenant { tenant: ALL }),
        Subject::Own => on(Resource::Own),
        Subject::Platform => on(Resource::Platform),
        Subject::Tenant(id) => on(Resource::Tenant { tenant: id.as_str() }),
        Subject::Project(tenant, id) => {
            on(Resource::Project { tenant: tenant.as_str(), project: id.as_str() })
        }
        Subject::ComputePool(id) => match pools::load(tx, id.as_str()).await? {
            Some(pool) => {
                let mut actions = on(Resource::Pool(pool.owners()));
                actions.extend(on(Resource::PoolBySiteOwner(pool.owners())));
                actions.sort_unstable();
                actions.dedup();
                actions
            }
            None => Vec::new(),
        },
        Subject::Site(id) => match sites::find(tx, id.as_str()).await? {
            Some(site) => on(Resource::Site { site: &site.site_id, owner: &site.owner_tenant_id }),
            None => Vec::new(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::access::{AdminRole, ProjectRole, TenantRole};

    /// What is said of a place by the powers that are kept for it is what all of them say.
    #[test]
    fn sorted_powers_say_of_each_place_what_all_of_them_say() {
        let tenant = |id: &str, role| Grant::Tenant { tenant_id: id.to_owned(), role };
        let project = |t: &str, p: &str, role| Grant::Project {
            tenant_id: t.to_owned(),
            project_id: p.to_owned(),
            role,
        };
        let single = |subject: &str, action| Grant::Actions {
            subject: subject.parse().unwrap(),
            actions: vec![action],
        };
        let held = vec![
            tenant("a", TenantRole::Editor),
            tenant("b", TenantRole::Guest),
            project("b", "x", ProjectRole::Owner),
            project("b", "y", ProjectRole::Viewer),
            project("c", "x", ProjectRole::Editor),
        ];
        let sides = [
            None,
            Some(vec![tenant(ALL, TenantRole::Viewer)]),
            Some(vec![project("b", ALL, ProjectRole::Owner), tenant("a", TenantRole::Owner)]),
            Some(vec![project(ALL, "x", ProjectRole::Editor), single("*", Action::PoolsRead)]),
            Some(vec![
                single("project/b/x", Action::TenantsRead),
                single("tenant/a", Action::JoinTokensCreate),
            ]),
            Some(vec![Grant::Admin { role: AdminRole::Viewer }]),
        ];
        for within in sides {
            for admin in [false, true] {
                let mut held = held.clone();
                held.extend(admin.then_some(Grant::Admin { role: AdminRole::Editor }));
                let powers = Powers { held, within: within.clone() };
                let sorted = Sorted::of(&powers);
                for tenant in ["a", "b", "c", "d"] {
                    for project in [None, Some("x"), Some("y"), Some("z")] {
                        let resource = match project {
                            None => Resource::Tenant { tenant },
                            Some(project) => Resource::Project { tenant, project },
                        };
                        let here = sorted.at(tenant, project);
                        for row in ACTIONS {
                            let (all, few) =
                                (may(&powers, row.action, resource), may(&here, row.action, resource));
                            assert_eq!(all, few, "{} at {tenant}/{project:?} of {powers:?}", row.name);
                        }
                    }
                }
            }
        }
    }
}
