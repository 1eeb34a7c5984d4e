//! What a token is to hold, judged when it is made or changed: nothing beyond the token that asks, and nothing beyond
//! what its owner holds.
//!
//! That it holds no more than its owner at each later request is not decided here, but at that request. An id of `*`
//! stands for whatever the owner has, now and later: only the token that asks must have it.

use crate::{
    auth::{
        Grant, Powers,
        policy::{Decision, PoolOwners, Resource, Role, allowed_by, lacks, may},
    },
    fault::Fault,
    store::{Tx, pools, sites},
};
use shared::{
    api::{
        access::Action,
        subject::Subject,
        tokens::{ALL, Permission, Rights},
    },
    problem::{Code, Problem},
};

/// That `powers` hold all of `rights`.
///
/// # Errors
/// INVALID_INPUT for rights that hold nothing; PERMISSION_DENIED naming what is beyond; the store's.
pub(super) async fn within(tx: &mut Tx<'_>, powers: &Powers, rights: &Rights) -> Result<(), Fault> {
    if *rights == Rights::default() {
        let rule = "one of tenantRoles, projectRoles, adminRole, infraRoles and permissions must be given: a token \
                    that holds nothing may nothing";
        return Err(Problem::invalid_field("tenantRoles", rule).into());
    }
    for (role, resource, what) in roles(rights) {
        if let Some(action) = lacks(&judged(powers, &what), role, resource) {
            return Err(beyond(action, &what));
        }
    }
    for permission in &rights.permissions {
        if let Some(action) = lacking(tx, powers, permission).await? {
            return Err(beyond(action, &permission.subject.to_string()));
        }
    }
    Ok(())
}

/// Every role that rights name, with what it is about.
fn roles(rights: &Rights) -> Vec<(Role, Resource<'_>, String)> {
    let tenants = rights.tenant_roles.iter().map(|of| {
        let tenant = of.tenant_id.as_str();
        (Role::Tenant(of.role), Resource::Tenant { tenant }, format!("tenant/{tenant}"))
    });
    let projects = rights.project_roles.iter().map(|of| {
        let (tenant, project) = (of.tenant_id.as_str(), of.project_id.as_str());
        let what = format!("project/{tenant}/{project}");
        (Role::Project(of.role), Resource::Project { tenant, project }, what)
    });
    let sites = rights.infra_roles.iter().map(|of| {
        let site = of.site_id.as_str();
        (Role::Infra(of.role), Resource::Site { site, owner: "" }, format!("site/{site}"))
    });
    let admin = rights.admin_role.map(|role| (Role::Admin(role), Resource::Platform, "platform".to_owned()));
    tenants.chain(projects).chain(sites).chain(admin).collect()
}

/// The powers that judge: all of them, or those of the token alone where `*` stands for what the owner has.
fn judged(powers: &Powers, what: &str) -> Powers {
    if !what.split('/').any(|part| part == ALL) {
        return powers.clone();
    }
    let all = vec![Grant::Actions { subject: Subject::All, actions: Action::all() }];
    Powers::of(powers.within.clone().unwrap_or(all))
}

/// The first action of a permission that is beyond the powers.
async fn lacking(tx: &mut Tx<'_>, powers: &Powers, permission: &Permission) -> Result<Option<Action>, Fault> {
    let allowed = |resource: Resource<'_>, action| may(powers, action, resource) == Decision::Allow;
    let first = |allowed: &dyn Fn(Action) -> bool| {
        permission.actions.iter().copied().find(|action| !allowed(*action))
    };
    Ok(match &permission.subject {
        Subject::All => first(&|action| powers.within.as_deref().is_none_or(|side| allowed_by(side, action))),
        Subject::Own => first(&|action| allowed(Resource::Own, action)),
        Subject::Platform => first(&|action| allowed(Resource::Platform, action)),
        Subject::Tenant(id) => first(&|action| allowed(Resource::Tenant { tenant: id.as_str() }, action)),
        Subject::Project(tenant, id) => {
            let resource = Resource::Project { tenant: tenant.as_str(), project: id.as_str() };
            first(&|action| allowed(resource, action))
        }
        Subject::ComputePool(id) => {
            let Some(pool) = pools::load(tx, id.as_str()).await? else { return Ok(first(&|_| false)) };
            first(&|action| in_pool(powers, action, pool.owners()))
        }
        Subject::Site(id) => {
            let Some(site) = sites::find(tx, id.as_str()).await? else { return Ok(first(&|_| false)) };
            let resource = Resource::Site { site: &site.site_id, owner: &site.owner_tenant_id };
            first(&|action| allowed(resource, action))
        }
    })
}

/// Whether the powers may give this on a pool. The permission counts wherever the action is decided on that pool: by its tenant, by
/// the site's owner, or by the one here and the other there. What its owner does not hold in one of these places counts for nothing
/// there; the token that asks must hold it in all.
fn in_pool(powers: &Powers, action: Action, owners: PoolOwners<'_>) -> bool {
    let (tenant, site) = (Resource::Pool(owners), Resource::PoolBySiteOwner(owners));
    let places = match action {
        Action::JoinTokensCreate | Action::JoinTokensRead | Action::JoinTokensRevoke => vec![tenant, site],
        Action::EndorsementAuthoritiesAdd
        | Action::EndorsementAuthoritiesRead
        | Action::EndorsementAuthoritiesRemove
        | Action::EndorsementKeysAdd
        | Action::EndorsementKeysRead
        | Action::EndorsementKeysRemove
        | Action::InventoryPut
        | Action::InventoryRead
        | Action::InventoryRemove
        | Action::PoolsCreate
        | Action::PoolsDelete
        | Action::PoolsUpdate
        | Action::SecretsPut
        | Action::SecretsRead
        | Action::SecretsRemove => vec![site],
        _ => vec![tenant],
    };
    let allows = |side: &[Grant], place: &Resource<'_>| {
        may(&Powers::of(side.to_vec()), action, *place) == Decision::Allow
    };
    places.iter().any(|place| allows(&powers.held, place))
        && powers.within.as_ref().is_none_or(|side| places.iter().all(|place| allows(side, place)))
}

fn beyond(action: Action, what: &str) -> Fault {
    let detail = format!(
        "{} on {what} is beyond what you may do: a token holds at most what the token that makes it and its owner hold.",
        action.as_str()
    );
    Problem::new(Code::PermissionDenied, detail).into()
}
