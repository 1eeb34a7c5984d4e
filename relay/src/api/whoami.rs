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
use std::collections::BTreeSet;

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
            for subject in named(powers) {
                let actions = actions(tx, powers, &subject).await?;
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

/// What may be done on a subject. `*` is what an admin may do in every tenant.
async fn actions(tx: &mut Tx<'_>, powers: &Powers, subject: &Subject) -> Result<Vec<Action>, Fault> {
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
