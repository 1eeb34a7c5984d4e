//! iam/tenants.

use super::{
    idempotency,
    steps::{News, announce, conflict, invalid_state, page, page_size, permitted},
};
use crate::{
    auth::{
        Grant, Powers,
        login::{RESERVED_RULE, is_reserved},
        policy::{Decision, Resource, may, not_found},
    },
    call::Call,
    events::Kind,
    fault::Fault,
    store::{StoreError, Tx, memberships, tenants, users, webhooks},
};
use serde_json::json;
use shared::{
    api::{
        access::{Action, AdminRole},
        subject::Subject,
        tenants::{CreateTenant, GetTenant, ListTenants, Tenant, TenantAnswer, TenantList, UpdateTenant},
        tokens::ALL,
    },
    problem::Problem,
};
use std::collections::BTreeSet;

/// iam/tenants/create: the tenant and its project `default`.
///
/// # Errors
/// PERMISSION_DENIED; CONFLICT if the id is taken or was used before.
pub async fn create(call: Call, input: CreateTenant) -> Result<TenantAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(make(tx, call, input))).await
}

/// iam/tenants/get.
///
/// # Errors
/// NOT_FOUND.
pub async fn get(call: Call, input: GetTenant) -> Result<TenantAnswer, Fault> {
    let store = &call.relay.store;
    let show = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let id = input.tenant_id.as_str();
            let found = tenants::find(tx, id).await?;
            Ok::<_, Fault>(TenantAnswer { tenant: decide(call, found, id, Action::TenantsRead)? })
        })
    });
    show.await
}

/// iam/tenants/list: those that the caller belongs to. An admin holds OWNER's actions in every tenant, so it is shown
/// them all.
///
/// # Errors
/// UNAUTHENTICATED.
pub async fn list(call: Call, input: ListTenants) -> Result<TenantList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store
        .read(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let after = input.cursor.as_ref().map_or("", |id| id.as_str());
                let principal = call.principal()?;
                if principal.powers.sides().all(|side| side.iter().any(is_wide)) {
                    return Ok::<_, Fault>(tenants::page(tx, after, size + 1).await?);
                }
                Ok(own(tx, &principal.powers, after, size).await?)
            })
        })
        .await?;
    let (tenants, cursor) = page(read, size, |tenant| tenant.tenant_id.clone());
    Ok(TenantList { tenants, cursor })
}

/// iam/tenants/update: the display name.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn update(call: Call, input: UpdateTenant) -> Result<TenantAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(rename(tx, call, input))).await
}

/// iam/tenants/delete.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE for the provider tenant, the caller's own one, and one that has pools
/// or sites.
pub async fn delete(call: Call, input: GetTenant) -> Result<TenantAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(remove(tx, call, input))).await
}

async fn make(tx: &mut Tx<'_>, call: &Call, input: &CreateTenant) -> Result<TenantAnswer, Fault> {
    let powers = &call.principal()?.powers;
    may(powers, Action::TenantsCreate, Resource::Platform)
        .require(Action::TenantsCreate, "this installation")?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    let id = input.tenant_id.as_str();
    if is_reserved(id, &call.relay.provider_tenant) {
        return Err(Problem::invalid_field("tenantId", RESERVED_RULE).into());
    }
    let display_name = input.display_name.as_ref().map_or(id, |name| name.as_str());
    let Some(tenant) = tenants::settle(tx, id, display_name, call.now).await? else {
        // An equal request may have won since the look above.
        let earlier = idempotency::replay(tx, call, &input.idempotency_key, input).await?;
        return earlier.ok_or_else(|| {
            conflict(format!("The tenant id {id} is taken or was used before; choose another."))
        });
    };
    announce(tx, call, News { kind: Kind::TenantCreated, tenant: id, subject: id }, json!(tenant)).await?;
    let answer = TenantAnswer { tenant };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}

async fn rename(tx: &mut Tx<'_>, call: &Call, input: &UpdateTenant) -> Result<TenantAnswer, Fault> {
    let id = input.tenant_id.as_str();
    let found = tenants::lock(tx, id).await?;
    let mut tenant = decide(call, found, id, Action::TenantsUpdate)?;
    if tenant.display_name != input.display_name.as_str() {
        input.display_name.as_str().clone_into(&mut tenant.display_name);
        tenants::rename(tx, id, &tenant.display_name).await?;
        announce(tx, call, News { kind: Kind::TenantUpdated, tenant: id, subject: id }, json!(tenant))
            .await?;
    }
    Ok(TenantAnswer { tenant })
}

async fn remove(tx: &mut Tx<'_>, call: &Call, input: &GetTenant) -> Result<TenantAnswer, Fault> {
    let id = input.tenant_id.as_str();
    let found = tenants::lock(tx, id).await?;
    let tenant = decide(call, found, id, Action::TenantsDelete)?;
    if call.relay.provider_tenant == id {
        return Err(invalid_state(format!("{id} is the provider's tenant: it stays with the installation.")));
    }
    if call.principal()?.tenant_id == id {
        return Err(invalid_state(format!("{id} is your own tenant, which nobody deletes; ask an admin.")));
    }
    let of_a_person = users::find(tx, id).await?.is_some_and(|user| !user.service);
    if of_a_person && call.principal()?.powers.admin_role() != Some(AdminRole::Editor) {
        return Err(invalid_state(format!("{id} is a user's own tenant, which an admin alone deletes.")));
    }
    if let Some(held) = tenants::holds(tx, id).await? {
        return Err(invalid_state(format!("The tenant {id} has {held}; delete them first.")));
    }
    tenants::delete(tx, id, call.now).await?;
    memberships::remove_all(tx, id, "").await?;
    webhooks::remove_all(tx, id).await?;
    announce(tx, call, News { kind: Kind::TenantDeleted, tenant: id, subject: id }, json!(tenant)).await?;
    Ok(TenantAnswer { tenant })
}

fn decide(call: &Call, found: Option<Tenant>, id: &str, action: Action) -> Result<Tenant, Fault> {
    let decision = may(&call.principal()?.powers, action, Resource::Tenant { tenant: id });
    Ok(permitted(found, decision, action, &format!("tenant {id}"))?)
}

/// The tenants that are named and that the caller may read, one more than the page holds.
async fn own(tx: &mut Tx<'_>, powers: &Powers, after: &str, size: i64) -> Result<Vec<Tenant>, StoreError> {
    let named: BTreeSet<&str> =
        powers.sides().flatten().filter_map(tenant_of).filter(|id| *id > after).collect();
    let mut own = Vec::new();
    let may_read =
        |id: &&str| may(powers, Action::TenantsRead, Resource::Tenant { tenant: id }) == Decision::Allow;
    for id in named.into_iter().filter(may_read) {
        if i64::try_from(own.len()).is_ok_and(|read| read > size) {
            break;
        }
        own.extend(tenants::find(tx, id).await?);
    }
    Ok(own)
}

/// Whether a grant lets all tenants be read.
fn is_wide(grant: &Grant) -> bool {
    match grant {
        Grant::Admin { .. } => true,
        Grant::Tenant { tenant_id, .. } => tenant_id == ALL,
        Grant::Actions { subject, actions } => {
            *subject == Subject::All && actions.contains(&Action::TenantsRead)
        }
        Grant::Project { .. } | Grant::Infra { .. } => false,
    }
}

fn tenant_of(grant: &Grant) -> Option<&str> {
    match grant {
        Grant::Tenant { tenant_id, .. } | Grant::Project { tenant_id, .. } => Some(tenant_id),
        Grant::Actions { subject: Subject::Tenant(id) | Subject::Project(id, _), .. } => Some(id.as_str()),
        Grant::Admin { .. } | Grant::Infra { .. } | Grant::Actions { .. } => None,
    }
}

/// The tenant, which something is about to be put into, locked.
///
/// # Errors
/// NOT_FOUND if it is absent.
pub(super) async fn hold(tx: &mut Tx<'_>, id: &str) -> Result<Tenant, Fault> {
    let found = tenants::lock(tx, id).await?;
    Ok(found.ok_or_else(|| not_found(&format!("tenant {id}")))?)
}
