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
        Tx, join_requests, node_views, pools, projects,
        sites::{self, MAX_CUSTOM_POOLS},
        tenants, token_views,
    },
};
use shared::{
    api::{
        access::{Action, AdminRole, TenantRole},
        pools::{
            AgentKind, CreatePool, DiscoveryMode, GetPool, ListPools, Policy, PolicyPatch, PoolAnswer,
            PoolList, UpdatePool,
        },
        sites::Site,
        subject::Subject,
    },
    bounded::{Name, TenantId},
    id::PoolUid,
};

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

/// How many pools are looked at by one query.
const LOOKED_AT: i64 = 500;

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
    let decision = match by {
        DecidedBy::PoolTenant => may(powers, action, Resource::Pool(pool.owners())),
        DecidedBy::SiteOwner => may(powers, action, Resource::PoolBySiteOwner(pool.owners())),
        DecidedBy::EitherOwner => by_either_owner(powers, action, &pool),
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
    let by_admin = powers.admin_role() == Some(AdminRole::Editor);
    if site.custom && !by_admin && sites::pools_made(tx, &site.owner_tenant_id).await? >= MAX_CUSTOM_POOLS {
        let detail = format!(
            "On sites of {} {MAX_CUSTOM_POOLS} pools were made, which is the most, deleted ones included; an admin may make more.",
            site.owner_tenant_id
        );
        return Err(invalid_state(detail));
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

/// Whether the pool's tenant or its site's lets the caller do this.
fn by_either_owner(powers: &Powers, action: Action, pool: &PoolFacts) -> Decision {
    match may(powers, action, Resource::PoolBySiteOwner(pool.owners())) {
        Decision::Allow => Decision::Allow,
        _ => may(powers, action, Resource::Pool(pool.owners())),
    }
}

/// The tenant's pools that the caller may read, one more than the page holds.
async fn readable(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &ListPools,
    size: i64,
) -> Result<Vec<PoolFacts>, Fault> {
    let tenant = input.tenant_id.as_str();
    let powers = &call.principal()?.powers;
    let project = input.project_id.as_ref().map_or("", |id| id.as_str());
    let wanted = usize::try_from(size + 1).unwrap_or(usize::MAX);
    let mut after = input.cursor.as_ref().map_or(String::new(), |id| id.as_str().to_owned());
    let mut read = Vec::new();
    // By the tenant's pools and not by what the caller holds, which may be a thousand memberships elsewhere.
    loop {
        let some = pools::page(tx, (tenant, project), &after, LOOKED_AT).await?;
        let is_last = i64::try_from(some.len()).is_ok_and(|found| found < LOOKED_AT);
        after = some.last().map_or(after, |pool| pool.pool_id.clone());
        read.extend(
            some.into_iter()
                .filter(|pool| by_either_owner(powers, Action::PoolsRead, pool) == Decision::Allow),
        );
        if is_last || read.len() >= wanted {
            break;
        }
    }
    if read.is_empty() {
        refuse_empty(tx, powers, tenant).await?;
    }
    read.truncate(wanted);
    Ok(read)
}

/// An empty list is for those who may know that the tenant is there, and may read some of its pools.
async fn refuse_empty(tx: &mut Tx<'_>, powers: &Powers, tenant: &str) -> Result<(), Fault> {
    let by_some = powers.sides().all(|side| side.iter().any(|grant| shows_some(grant, tenant)));
    let resource = Resource::Tenant { tenant };
    let decision = match may(powers, Action::PoolsRead, resource) {
        Decision::Deny if by_some => Decision::Allow,
        decision => decision,
    };
    permitted(tenants::find(tx, tenant).await?, decision, Action::PoolsRead, &format!("tenant {tenant}"))?;
    Ok(())
}

/// Whether a grant may show pools of this tenant as its own, if there are any.
fn shows_some(grant: &Grant, tenant: &str) -> bool {
    match grant {
        Grant::Admin { .. } => true,
        Grant::Tenant { tenant_id, role } => *role >= TenantRole::Viewer && names(tenant_id, tenant),
        Grant::Project { tenant_id, .. } => names(tenant_id, tenant),
        Grant::Actions { subject, actions } if actions.contains(&Action::PoolsRead) => match subject {
            Subject::All | Subject::ComputePool(_) => true,
            Subject::Tenant(id) | Subject::Project(id, _) => names(id.as_str(), tenant),
            Subject::Own | Subject::Platform | Subject::Site(_) => false,
        },
        Grant::Infra { .. } | Grant::Actions { .. } => false,
    }
}
