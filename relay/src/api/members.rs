//! iam/members: who belongs to a tenant or a project.
//!
//! Every change of a tenant's memberships first locks the tenant, so that of two owners who remove each other one
//! stays, and nobody gives a role that they do not hold.

use super::{
    idempotency,
    steps::{News, announce, conflict, invalid_state, page, page_size},
    tenants::hold,
};
use crate::{
    auth::{
        Grant, Powers, holdings,
        policy::{Resource, Role, lacks, may, not_found},
    },
    call::Call,
    events::Kind,
    fault::Fault,
    store::{
        Tx,
        memberships::{self, MAX_IN_ONE_TENANT, MAX_MEMBERSHIPS},
        projects, users,
    },
};
use serde_json::json;
use shared::{
    api::{
        access::{Action, ProjectRole, TenantRole},
        members::{
            AddMember, LeaveMembership, ListMembers, Member, MemberAnswer, MemberList, RemoveMember,
            UpdateMember,
        },
    },
    bounded::{Name, TenantId},
    problem::{Code, Problem},
};

/// A tenant, or a project of it.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) tenant: &'a str,
    /// Empty for the tenant itself.
    pub(super) project: &'a str,
}

impl<'a> Place<'a> {
    pub(super) fn new(tenant: &'a TenantId, project: Option<&'a Name>) -> Self {
        Self { tenant: tenant.as_str(), project: project.map_or("", Name::as_str) }
    }

    pub(super) fn resource(self) -> Resource<'a> {
        match self {
            Self { tenant, project: "" } => Resource::Tenant { tenant },
            Self { tenant, project } => Resource::Project { tenant, project },
        }
    }

    pub(super) fn words(self) -> String {
        match self {
            Self { tenant, project: "" } => format!("tenant {tenant}"),
            Self { tenant, project } => format!("project {project} in {tenant}"),
        }
    }

    /// Whether the caller may do this here.
    pub(super) fn decide(self, call: &Call, action: Action) -> Result<(), Fault> {
        let decision = may(&call.principal()?.powers, action, self.resource());
        Ok(decision.require(action, &self.words())?)
    }

    /// The role as one of this place; nobody gives one that they do not hold.
    pub(super) fn given(self, powers: &Powers, role: TenantRole) -> Result<(), Problem> {
        let of_place = if self.project.is_empty() {
            Role::Tenant(role)
        } else {
            let role = ProjectRole::try_from(role);
            Role::Project(role.map_err(|rule| Problem::invalid_field("role", rule.to_string()))?)
        };
        match lacks(powers, of_place, self.resource()) {
            None => Ok(()),
            Some(lacking) => Err(beyond(role, self, lacking)),
        }
    }

    /// As [`Self::decide`], and whether the caller may give this role, by what it holds when the place is locked: whoever was put
    /// out while it waited puts nobody in.
    pub(super) async fn gives(
        self,
        tx: &mut Tx<'_>,
        call: &Call,
        action: Action,
        role: Option<TenantRole>,
    ) -> Result<(), Fault> {
        let powers = still(tx, call).await?;
        let resource = if action.row().tenant.is_none() { Resource::Platform } else { self.resource() };
        may(&powers, action, resource).require(action, &self.words())?;
        let Some(role) = role else { return Ok(()) };
        self.given(&powers, role)?;
        // Who belongs to the provider's tenant may be an admin: a token that holds no such role makes nobody one.
        let implied = holdings::admin_role(role)
            .filter(|_| self.project.is_empty() && self.tenant == call.relay.provider_tenant);
        let (Some(implied), Some(side)) = (implied, powers.within) else { return Ok(()) };
        match lacks(&Powers::of(side), Role::Admin(implied), Resource::Platform) {
            None => Ok(()),
            Some(action) => Err(beyond(role, self, action).into()),
        }
    }

    /// Locks the place; before anybody becomes a member of it, and before anybody ends to be one.
    pub(super) async fn hold(self, tx: &mut Tx<'_>) -> Result<(), Fault> {
        hold(tx, self.tenant).await?;
        if !self.project.is_empty() {
            let found = projects::lock(tx, self.tenant, self.project).await?;
            found.ok_or_else(|| not_found(&self.words()))?;
        }
        Ok(())
    }
}

fn beyond(role: TenantRole, place: Place<'_>, lacking: Action) -> Problem {
    let detail = format!(
        "The role {} on {} holds {}, which you do not hold: nobody gives more than they have.",
        role.as_str(),
        place.words(),
        lacking.as_str(),
    );
    Problem::new(Code::PermissionDenied, detail)
}

/// What of the caller's powers it holds still.
async fn still(tx: &mut Tx<'_>, call: &Call) -> Result<Powers, Fault> {
    let principal = call.principal()?;
    let mut powers = principal.powers.clone();
    if users::find(tx, &principal.subject).await?.is_none() {
        return Ok(powers);
    }
    let now = holdings::of_subject(tx, &principal.subject, &call.relay.provider_tenant).await?;
    powers.held.retain(|grant| match grant {
        Grant::Admin { role } => {
            now.iter().any(|now| matches!(now, Grant::Admin { role: held } if held >= role))
        }
        grant => now.contains(grant),
    });
    Ok(powers)
}

/// iam/members/add.
///
/// # Errors
/// INVALID_INPUT for GUEST of a project; NOT_FOUND, also for a user that never logged in; PERMISSION_DENIED; CONFLICT
/// if it is a member; INVALID_STATE if it has as many memberships as one may have.
pub async fn add(call: Call, input: AddMember) -> Result<MemberAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, input.project_id.as_ref());
                place.decide(call, Action::MembersAdd)?;
                place.given(&call.principal()?.powers, input.role)?;
                place.hold(tx).await?;
                place.gives(tx, call, Action::MembersAdd, Some(input.role)).await?;
                if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
                    return Ok(answer);
                }
                let member = enter(tx, call, place, input.member_id.as_str(), input.role).await?;
                let answer = MemberAnswer { member };
                idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
                Ok(answer)
            })
        })
        .await
}

/// iam/members/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListMembers) -> Result<MemberList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = Place::new(&input.tenant_id, input.project_id.as_ref());
            place.decide(call, Action::MembersRead)?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            Ok::<_, Fault>(memberships::page(tx, (place.tenant, place.project), after, size + 1).await?)
        })
    });
    let (members, cursor) = page(read.await?, size, |member| member.member_id.clone());
    Ok(MemberList { members, cursor })
}

/// iam/members/update.
///
/// # Errors
/// INVALID_INPUT for GUEST of a project; NOT_FOUND, PERMISSION_DENIED; INVALID_STATE for a tenant's last OWNER, and for
/// a user in its own tenant.
pub async fn update(call: Call, input: UpdateMember) -> Result<MemberAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, input.project_id.as_ref());
                place.decide(call, Action::MembersUpdate)?;
                place.given(&call.principal()?.powers, input.role)?;
                place.hold(tx).await?;
                place.gives(tx, call, Action::MembersUpdate, Some(input.role)).await?;
                let mut member = find(tx, place, input.member_id.as_str()).await?;
                if member.role != input.role {
                    member.role = input.role;
                    stays_owned(tx, place, &member.member_id, input.role).await?;
                    memberships::set_role(tx, &member).await?;
                    tell(tx, call, Kind::MemberUpdated, &member).await?;
                }
                Ok(MemberAnswer { member })
            })
        })
        .await
}

/// iam/members/remove.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE for a tenant's last OWNER, and for a user in its own tenant.
pub async fn remove(call: Call, input: RemoveMember) -> Result<MemberAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, input.project_id.as_ref());
                place.decide(call, Action::MembersRemove)?;
                place.hold(tx).await?;
                place.gives(tx, call, Action::MembersRemove, None).await?;
                end(tx, call, place, input.member_id.as_str()).await
            })
        })
        .await
}

/// iam/members/leave.
///
/// # Errors
/// NOT_FOUND if the caller is no member, also where there is no such place; INVALID_STATE for a tenant's last OWNER, and in the
/// caller's own tenant.
pub async fn leave(call: Call, input: LeaveMembership) -> Result<MemberAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, input.project_id.as_ref());
                let subject = &call.principal()?.subject;
                // Before the place is looked for: who is no member of it learns nothing of it.
                if belongs(tx, place, subject).await?.is_none() {
                    return Err(not_found(&format!("membership of yours in {}", place.words())).into());
                }
                end(tx, call, place, subject).await
            })
        })
        .await
}

/// Makes a member of a place that is locked.
///
/// # Errors
/// NOT_FOUND, CONFLICT, INVALID_STATE.
pub(super) async fn enter(
    tx: &mut Tx<'_>,
    call: &Call,
    place: Place<'_>,
    user: &str,
    role: TenantRole,
) -> Result<Member, Fault> {
    if users::find(tx, user).await?.is_none() {
        let detail = format!("There is no user {user}: one becomes known by logging in, or as a service.");
        return Err(Problem::new(Code::NotFound, detail).into());
    }
    if memberships::count(tx, user).await? >= MAX_MEMBERSHIPS {
        let detail = format!("{user} has {MAX_MEMBERSHIPS} memberships, which is the most; end one first.");
        return Err(invalid_state(detail));
    }
    if memberships::count_in(tx, place.tenant, user).await? >= MAX_IN_ONE_TENANT {
        let detail = format!(
            "{user} has {MAX_IN_ONE_TENANT} memberships in {} and its projects, which is the most; make it a member of the tenant.",
            place.tenant
        );
        return Err(invalid_state(detail));
    }
    let member = Member {
        tenant_id: place.tenant.to_owned(),
        project_id: (!place.project.is_empty()).then(|| place.project.to_owned()),
        member_id: user.to_owned(),
        role,
        since: call.now,
        added_by: call.principal()?.subject.clone(),
    };
    if !memberships::insert(tx, &member).await? {
        let detail = format!("{user} is a member of {} already; update changes the role.", place.words());
        return Err(conflict(detail));
    }
    tell(tx, call, Kind::MemberCreated, &member).await?;
    Ok(member)
}

async fn end(tx: &mut Tx<'_>, call: &Call, place: Place<'_>, user: &str) -> Result<MemberAnswer, Fault> {
    place.hold(tx).await?;
    let found = belongs(tx, place, user).await?;
    let member = found.ok_or_else(|| not_found(&format!("member {user} of {}", place.words())))?;
    if member.project_id.is_none() {
        stays_owned(tx, place, user, TenantRole::Guest).await?;
    }
    memberships::remove(tx, place.tenant, place.project, user).await?;
    tell(tx, call, Kind::MemberDeleted, &member).await?;
    Ok(MemberAnswer { member })
}

/// The membership that ends with a place: of a tenant also that of one of its projects, which all end with it.
async fn belongs(tx: &mut Tx<'_>, place: Place<'_>, user: &str) -> Result<Option<Member>, Fault> {
    Ok(match place.project {
        "" => memberships::find_any(tx, place.tenant, user).await?,
        project => memberships::find(tx, place.tenant, project, user).await?,
    })
}

async fn find(tx: &mut Tx<'_>, place: Place<'_>, user: &str) -> Result<Member, Fault> {
    let found = memberships::find(tx, place.tenant, place.project, user).await?;
    Ok(found.ok_or_else(|| not_found(&format!("member {user} of {}", place.words())))?)
}

/// That a tenant keeps an OWNER, and its own user as one, when this member gets a role less than that.
async fn stays_owned(tx: &mut Tx<'_>, place: Place<'_>, user: &str, role: TenantRole) -> Result<(), Fault> {
    if !place.project.is_empty() || role == TenantRole::Owner {
        return Ok(());
    }
    if place.tenant == user {
        let detail = format!("{user} is that user's own tenant: its user stays in it, as its OWNER.");
        return Err(invalid_state(detail));
    }
    let member = find(tx, place, user).await?;
    if member.role == TenantRole::Owner && !memberships::has_other_owner(tx, place.tenant, user).await? {
        let detail = format!("{user} is the last OWNER of {}: make another one first.", place.words());
        return Err(invalid_state(detail));
    }
    Ok(())
}

async fn tell(tx: &mut Tx<'_>, call: &Call, kind: Kind, member: &Member) -> Result<(), Fault> {
    let news = News { kind, tenant: &member.tenant_id, subject: &member.member_id };
    Ok(announce(tx, call, news, json!(member)).await?)
}
