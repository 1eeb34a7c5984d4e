//! admin/users, admin/grants, admin/tenants: what admins do for people and services.

use super::{
    idempotency,
    members::{Place, enter},
    steps::{News, announce, conflict, on_platform, page, page_size},
};
use crate::{
    auth::{
        login::is_reserved,
        policy::{Resource, Role, lacks, not_found},
    },
    call::Call,
    events::Kind,
    fault::Fault,
    store::{Tx, memberships, sites, tenants, users},
};
use serde_json::json;
use shared::{
    api::{
        access::{Action, TenantRole},
        members::MemberAnswer,
        tenants::{ListTenants, TenantList},
        users::{
            AddTenantMember, CreateUser, GrantAnswer, GrantList, InfraGrant, ListGrants, ListUsers, PutGrant,
            RemoveGrant, User, UserAnswer, UserList,
        },
    },
    problem::{Code, Problem},
};

/// admin/users/create: a service, with a tenant of its own.
///
/// # Errors
/// PERMISSION_DENIED; CONFLICT if the id is a user's or tenant's, or was one's.
pub async fn create(call: Call, input: CreateUser) -> Result<UserAnswer, Fault> {
    on_platform(&call, Action::AdminUsersCreate)?;
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(make(tx, call, input))).await
}

/// admin/users/list.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn list(call: Call, input: ListUsers) -> Result<UserList, Fault> {
    on_platform(&call, Action::AdminUsersRead)?;
    let size = page_size(input.limit);
    let after = input.cursor.as_ref().map_or("", |id| id.as_str());
    let read = call.relay.store.read(call.method, after, |tx, after| {
        Box::pin(async move { Ok::<_, Fault>(users::page(tx, after, size + 1).await?) })
    });
    let (users, cursor) = page(read.await?, size, |user| user.user_id.clone());
    Ok(UserList { users, cursor })
}

/// admin/grants/put.
///
/// # Errors
/// PERMISSION_DENIED; NOT_FOUND for the service or the site.
pub async fn put_grant(call: Call, input: PutGrant) -> Result<GrantAnswer, Fault> {
    on_platform(&call, Action::AdminGrantsPut)?;
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let (user, site) = (input.user_id.as_str(), input.site_id.as_str());
                let found = users::find(tx, user).await?.filter(|user| user.service);
                found.ok_or_else(|| not_found(&format!("service {user}")))?;
                let found = sites::lock(tx, site).await?.ok_or_else(|| not_found(&format!("site {site}")))?;
                let resource = Resource::Site { site, owner: &found.owner_tenant_id };
                if let Some(action) = lacks(&call.principal()?.powers, Role::Infra(input.role), resource) {
                    let detail = format!(
                        "The role {} on the site {site} holds {}, which you do not hold there: nobody gives more than they have.",
                        input.role.as_str(),
                        action.as_str()
                    );
                    return Err(Problem::new(Code::PermissionDenied, detail).into());
                }
                let known = memberships::find_grant(tx, user, site).await?;
                if let Some(grant) = known.filter(|grant| grant.role == input.role) {
                    return Ok::<_, Fault>(GrantAnswer { grant });
                }
                let grant = InfraGrant {
                    user_id: user.to_owned(),
                    site_id: site.to_owned(),
                    role: input.role,
                    since: call.now,
                    granted_by: call.principal()?.subject.clone(),
                };
                memberships::put_grant(tx, &grant).await?;
                Ok(GrantAnswer { grant })
            })
        })
        .await
}

/// admin/grants/list.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn list_grants(call: Call, input: ListGrants) -> Result<GrantList, Fault> {
    on_platform(&call, Action::AdminGrantsRead)?;
    let size = page_size(input.limit);
    let work = (input.user_id.as_str(), input.cursor.as_ref().map_or("", |id| id.as_str()));
    let read = call.relay.store.read(call.method, work, |tx, (user, after)| {
        Box::pin(async move { Ok::<_, Fault>(memberships::page_grants(tx, user, after, size + 1).await?) })
    });
    let (grants, cursor) = page(read.await?, size, |grant| grant.site_id.clone());
    Ok(GrantList { grants, cursor })
}

/// admin/grants/remove.
///
/// # Errors
/// PERMISSION_DENIED; NOT_FOUND if there is none.
pub async fn remove_grant(call: Call, input: RemoveGrant) -> Result<GrantAnswer, Fault> {
    on_platform(&call, Action::AdminGrantsRemove)?;
    let store = &call.relay.store;
    store
        .transact(call.method, &input, |tx, input| {
            Box::pin(async move {
                let (user, site) = (input.user_id.as_str(), input.site_id.as_str());
                let found = memberships::find_grant(tx, user, site).await?;
                let grant = found.ok_or_else(|| not_found(&format!("grant of {user} on the site {site}")))?;
                memberships::remove_grant(tx, user, site).await?;
                Ok::<_, Fault>(GrantAnswer { grant })
            })
        })
        .await
}

/// admin/tenants/list: all of them.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn list_tenants(call: Call, input: ListTenants) -> Result<TenantList, Fault> {
    on_platform(&call, Action::AdminTenantsRead)?;
    let size = page_size(input.limit);
    let after = input.cursor.as_ref().map_or("", |id| id.as_str());
    let read = call.relay.store.read(call.method, after, |tx, after| {
        Box::pin(async move { Ok::<_, Fault>(tenants::page(tx, after, size + 1).await?) })
    });
    let (tenants, cursor) = page(read.await?, size, |tenant| tenant.tenant_id.clone());
    Ok(TenantList { tenants, cursor })
}

/// admin/tenants/addMember: the same member again, with the same role, is the same answer.
///
/// # Errors
/// PERMISSION_DENIED; NOT_FOUND for the tenant or the user; CONFLICT if it is a member with another role.
pub async fn add_member(call: Call, input: AddTenantMember) -> Result<MemberAnswer, Fault> {
    on_platform(&call, Action::AdminTenantsAddMember)?;
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, None);
                place.hold(tx).await?;
                // Also an admin's token for this alone gives no role that it does not hold.
                place.gives(tx, call, Action::AdminTenantsAddMember, Some(input.role)).await?;
                let user = input.member_id.as_str();
                let known = memberships::find(tx, place.tenant, "", user).await?;
                if let Some(member) = known.filter(|member| member.role == input.role) {
                    return Ok::<_, Fault>(MemberAnswer { member });
                }
                Ok(MemberAnswer { member: enter(tx, call, place, user, input.role).await? })
            })
        })
        .await
}

async fn make(tx: &mut Tx<'_>, call: &Call, input: &CreateUser) -> Result<UserAnswer, Fault> {
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    let id = input.user_id.as_str();
    let user = User {
        user_id: id.to_owned(),
        display_name: input.display_name.as_ref().map_or(id, |name| name.as_str()).to_owned(),
        service: true,
        issuer: None,
        created_at: call.now,
        created_by: call.principal()?.subject.clone(),
    };
    let free = !is_reserved(id, &call.relay.provider_tenant) && users::insert(tx, &user, id).await?;
    let tenant = if free { tenants::settle(tx, id, &user.display_name, call.now).await? } else { None };
    let Some(tenant) = tenant else {
        // An equal request may have won since the look above.
        if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
            return Ok(answer);
        }
        return Err(conflict(format!(
            "The id {id} is or was a user's or a tenant's, or names something else; choose another."
        )));
    };
    announce(tx, call, News { kind: Kind::TenantCreated, tenant: id, subject: id }, json!(tenant)).await?;
    enter(tx, call, Place { tenant: id, project: "" }, id, TenantRole::Owner).await?;
    let answer = UserAnswer { user };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}
