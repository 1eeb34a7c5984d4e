//! compute/pools. A pool's own tenant reads it; whoever owns its site makes it, sets its policy and deletes it,
//! because that vouches for the machines.

use super::{
    idempotency,
    steps::{conflict, invalid_state, page, page_size, permitted},
    tenants::hold,
};
use crate::{
    auth::{
        Grant, Powers,
        policy::{Decision, Resource, may, not_found},
        principal::names,
    },
    call::Call,
    facts::PoolFacts,
    fault::Fault,
    store::{
        Tx, join_requests, node_views,
        pools::{self, Listed},
        projects, sites, tenants, token_views,
    },
};
use shared::{
    api::{
        access::{Action, TenantRole},
        pools::{
            AgentKind, CreatePool, DiscoveryMode, GetPool, ListPools, Policy, PolicyPatch, PoolAnswer,
            PoolList, UpdatePool,
        },
        sites::Site,
        subject::Subject,
        tokens::ALL,
    },
    bounded::{Name, TenantId},
    id::PoolUid,
};
use std::collections::BTreeMap;

/// compute/pools/create.
///
/// # Errors
/// NOT_FOUND for the site, the tenant or the project; PERMISSION_DENIED; CONFLICT if the id is taken or was used
/// before; INVALID_STATE where the policy would switch a foreign pool's inventory off.
pub async fn create(call: Call, input: CreatePool) -> Result<PoolAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(make(tx, call, input))).await
}

/// compute/pools/get.
///
/// # Errors
/// NOT_FOUND.
pub async fn get(call: Call, input: GetPool) -> Result<PoolAnswer, Fault> {
    let store = &call.relay.store;
    let show = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::PoolsRead, DecidedBy::PoolTenant).await?;
            Ok::<_, Fault>(PoolAnswer { pool: pool.view() })
        })
    });
    show.await
}

/// compute/pools/list: those of the tenant's pools that the caller may read.
///
/// # Errors
/// NOT_FOUND if the caller may not see the tenant; PERMISSION_DENIED for a GUEST without a project.
pub async fn list(call: Call, input: ListPools) -> Result<PoolList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store
        .read(call.method, (&call, &input), |tx, (call, input)| Box::pin(readable(tx, call, input, size)));
    let (read, cursor) = page(read.await?, size, |pool| pool.pool_id.clone());
    Ok(PoolList { pools: read.iter().map(PoolFacts::view).collect(), cursor })
}

/// compute/pools/update: the named members of the policy.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE where it would switch a foreign pool's inventory off.
pub async fn update(call: Call, input: UpdatePool) -> Result<PoolAnswer, Fault> {
    let store = &call.relay.store;
    let change = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            named(tx, call, name, Action::PoolsUpdate, DecidedBy::SiteOwner).await?;
            let mut pool = held(tx, &input.pool_id).await?;
            pool.policy = changed(&pool, &input.policy)?;
            pools::set_policy(tx, &pool.pool_id, &pool.policy).await?;
            Ok::<_, Fault>(PoolAnswer { pool: pool.view() })
        })
    });
    change.await
}

/// compute/pools/delete: the id is never used again.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE while it has live tokens, open join requests, or nodes that are not released.
pub async fn delete(call: Call, input: GetPool) -> Result<PoolAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(remove(tx, call, input))).await
}

/// Who decides what is done with a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecidedBy {
    /// The tenant whose machines join.
    PoolTenant,
    /// The tenant that vouches for the site.
    SiteOwner,
    /// Either of them: what both must see.
    EitherOwner,
}

/// The pool that an input names, if it is that tenant's and the caller may do this there.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED: in this order.
pub(super) async fn named(
    tx: &mut Tx<'_>,
    call: &Call,
    (tenant, id): (&TenantId, &Name),
    action: Action,
    by: DecidedBy,
) -> Result<PoolFacts, Fault> {
    let powers = &call.principal()?.powers;
    let what = format!("pool {id}");
    let found = pools::load(tx, id.as_str()).await?.filter(|pool| pool.tenant_id == tenant.as_str());
    let pool = found.ok_or_else(|| not_found(&what))?;
    let by_tenant = || may(powers, action, Resource::Pool(pool.owners()));
    let by_site = || may(powers, action, Resource::PoolBySiteOwner(pool.owners()));
    let decision = match by {
        DecidedBy::PoolTenant => by_tenant(),
        DecidedBy::SiteOwner => by_site(),
        DecidedBy::EitherOwner if by_site() == Decision::Allow => Decision::Allow,
        DecidedBy::EitherOwner => by_tenant(),
    };
    decision.require(action, &what)?;
    Ok(pool)
}

/// A pool that was decided on, locked.
///
/// # Errors
/// NOT_FOUND if it was deleted meanwhile.
pub(super) async fn held(tx: &mut Tx<'_>, id: &Name) -> Result<PoolFacts, Fault> {
    let found = pools::lock(tx, id.as_str()).await?;
    Ok(found.ok_or_else(|| not_found(&format!("pool {id}")))?)
}

async fn make(tx: &mut Tx<'_>, call: &Call, input: &CreatePool) -> Result<PoolAnswer, Fault> {
    let (id, powers) = (&input.pool_id, &call.principal()?.powers);
    let site = sites::find(tx, input.site_id.as_str()).await?;
    let site = site.ok_or_else(|| not_found(&format!("site {}", input.site_id)))?;
    decide_on_new(powers, &site, input)?;
    let project_id = input.project_id.as_ref().map_or(projects::DEFAULT, |project| project.as_str());
    hold_place(tx, input, project_id).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    let mut pool = PoolFacts {
        uid: PoolUid::draw(call.now, call.relay.random.bytes()),
        pool_id: id.as_str().to_owned(),
        tenant_id: input.tenant_id.as_str().to_owned(),
        project_id: project_id.to_owned(),
        site_id: site.site_id,
        agent: input.agent.unwrap_or(AgentKind::Bcd),
        policy: Policy::default(),
        created_at: call.now,
        site_owner: site.owner_tenant_id,
        custom_site: site.custom,
    };
    pool.policy = changed(&pool, &input.policy.clone().unwrap_or_default())?;
    if !pools::insert(tx, &pool).await? {
        let detail =
            format!("The pool id {id} is taken or was used before, and none is used twice; choose another.");
        return Err(conflict(detail));
    }
    let answer = PoolAnswer { pool: pool.view() };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}

/// The site's owner decides. On a platform site that holds for every tenant's pools; on a custom one, another tenant's
/// pool needs that tenant's consent as well.
fn decide_on_new(powers: &Powers, site: &Site, input: &CreatePool) -> Result<(), Fault> {
    let action = Action::PoolsCreate;
    let what = format!("site {}", site.site_id);
    may(powers, action, Resource::Site { site: &site.site_id, owner: &site.owner_tenant_id })
        .require(action, &what)?;
    if site.custom {
        let tenant = input.tenant_id.as_str();
        may(powers, action, Resource::Tenant { tenant }).require(action, &format!("tenant {tenant}"))?;
    }
    Ok(())
}

/// Locks what the pool is put into, from the tenant down.
async fn hold_place(tx: &mut Tx<'_>, input: &CreatePool, project: &str) -> Result<(), Fault> {
    let (tenant, site) = (input.tenant_id.as_str(), input.site_id.as_str());
    hold(tx, tenant).await?;
    let found = projects::lock(tx, tenant, project).await?;
    found.ok_or_else(|| not_found(&format!("project {project} in {tenant}")))?;
    let found = sites::lock(tx, site).await?;
    found.ok_or_else(|| not_found(&format!("site {site}")))?;
    Ok(())
}

/// The pool's policy with the patch. The inventory of a pool whose tenant does not vouch for the site always judges:
/// else a tenant's token would be enough to make any machine one of the site owner's.
fn changed(pool: &PoolFacts, patch: &PolicyPatch) -> Result<Policy, Fault> {
    let mut policy = pool.policy.patched(patch);
    if pool.tenant_id != pool.site_owner {
        let asked = patch.attestors.as_ref().and_then(|attestors| attestors.discovery);
        if asked == Some(DiscoveryMode::Off) {
            let detail = format!(
                "The pool {} stands on a site of another tenant: its policy.attestors.discovery is always defer.",
                pool.pool_id
            );
            return Err(invalid_state(detail));
        }
        policy.attestors.discovery = DiscoveryMode::Defer;
    }
    Ok(policy)
}

async fn remove(tx: &mut Tx<'_>, call: &Call, input: &GetPool) -> Result<PoolAnswer, Fault> {
    let id = &input.pool_id;
    named(tx, call, (&input.tenant_id, id), Action::PoolsDelete, DecidedBy::SiteOwner).await?;
    let pool = held(tx, id).await?;
    if token_views::any_live(tx, id.as_str(), call.now).await? {
        return Err(invalid_state(format!("The pool {id} has live join tokens; revoke them first.")));
    }
    // Those that are over are revoked too: that waits for a join in flight, whose node is then seen.
    token_views::revoke_all(tx, id.as_str(), call.now).await?;
    if node_views::any_unreleased(tx, id.as_str()).await? {
        return Err(invalid_state(format!(
            "The pool {id} has nodes that are not released; release them first."
        )));
    }
    if join_requests::any_open(tx, id.as_str(), call.now).await? {
        return Err(invalid_state(format!("The pool {id} has open join requests; deny them first.")));
    }
    pools::delete(tx, id.as_str(), call.now).await?;
    Ok(PoolAnswer { pool: pool.view() })
}

/// The tenant's pools that the caller may read, one more than the page holds: a query for each view that
/// shows some, so that what is hidden is never read.
async fn readable(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &ListPools,
    size: i64,
) -> Result<Vec<PoolFacts>, Fault> {
    let tenant = input.tenant_id.as_str();
    let powers = &call.principal()?.powers;
    let after = input.cursor.as_ref().map_or("", |id| id.as_str());
    let project = input.project_id.as_ref().map_or("", |id| id.as_str());
    let mut read = BTreeMap::new();
    let views = views(powers, tenant, project);
    for listed in &views {
        for pool in pools::page(tx, *listed, after, size + 1).await? {
            read.insert(pool.pool_id.clone(), pool);
        }
    }
    if read.is_empty() {
        refuse_empty(tx, powers, tenant).await?;
    }
    Ok(read.into_values().take(usize::try_from(size + 1).unwrap_or(usize::MAX)).collect())
}

/// What the caller's powers show of the tenant's pools: whatever is in a view of each side.
fn views<'a>(powers: &'a Powers, tenant: &'a str, project: &'a str) -> Vec<Listed<'a>> {
    let all = Listed { tenant, project, ..Listed::default() };
    if may(powers, Action::PoolsRead, Resource::Tenant { tenant }) == Decision::Allow {
        return vec![all];
    }
    let of_side =
        |side: &'a [Grant]| side.iter().filter_map(|grant| view(grant, all)).collect::<Vec<Listed<'a>>>();
    let meet = |some: Vec<Listed<'a>>, others: Vec<Listed<'a>>| {
        some.iter().flat_map(|view| others.iter().filter_map(|other| view.and(other))).collect()
    };
    powers.sides().map(of_side).reduce(meet).unwrap_or_default()
}

/// What a grant shows of `all`.
fn view<'a>(grant: &'a Grant, all: Listed<'a>) -> Option<Listed<'a>> {
    let of_tenant = |id: &'a str| {
        if names(id, all.tenant) { all } else { Listed { site_owner: id, ..all } }
    };
    let of_project = |tenant: &str, id: &'a str| {
        let asked = all.project.is_empty() || names(id, all.project);
        let project = if id == ALL { all.project } else { id };
        (names(tenant, all.tenant) && asked).then_some(Listed { project, ..all })
    };
    match grant {
        Grant::Admin { .. } => Some(all),
        Grant::Tenant { tenant_id, role } if *role >= TenantRole::Viewer => Some(of_tenant(tenant_id)),
        Grant::Project { tenant_id, project_id, .. } => of_project(tenant_id, project_id),
        Grant::Actions { subject, actions } if actions.contains(&Action::PoolsRead) => match subject {
            Subject::All => Some(all),
            Subject::Tenant(id) => Some(of_tenant(id.as_str())),
            Subject::Project(tenant, id) => of_project(tenant.as_str(), id.as_str()),
            Subject::ComputePool(id) => Some(Listed { pool: id.as_str(), ..all }),
            Subject::Own | Subject::Platform | Subject::Site(_) => None,
        },
        Grant::Tenant { .. } | Grant::Infra { .. } | Grant::Actions { .. } => None,
    }
}

/// An empty list is for those who may know that the tenant is there, and may read some of its pools.
async fn refuse_empty(tx: &mut Tx<'_>, powers: &Powers, tenant: &str) -> Result<(), Fault> {
    let views = views(powers, tenant, "");
    let resource = Resource::Tenant { tenant };
    let decision = match may(powers, Action::PoolsRead, resource) {
        Decision::Deny if views.iter().any(|view| view.site_owner.is_empty()) => Decision::Allow,
        decision => decision,
    };
    permitted(tenants::find(tx, tenant).await?, decision, Action::PoolsRead, &format!("tenant {tenant}"))?;
    Ok(())
}
