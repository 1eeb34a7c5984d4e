//! iam/invites: a role for whoever shows a secret.
//!
//! It is good once: whoever accepts locks it, removes it and becomes the member in one transaction. And it is worth
//! what its maker may still give: one who has lost the role leaves no way back in.

use super::{
    idempotency,
    members::{Place, enter},
    steps::{invalid_state, page, page_size},
};
use crate::{
    auth::{
        Powers, holdings,
        policy::{Decision, may, not_found},
    },
    call::Call,
    fault::Fault,
    store::{Tx, invites, memberships},
};
use shared::{
    api::{
        access::{Action, TenantRole},
        invites::{
            AcceptInvite, CreateInvite, DEFAULT_SECONDS, DeleteInvite, Invite, InviteAnswer, InviteCreated,
            InviteList, ListInvites,
        },
        members::MemberAnswer,
    },
    base32,
    bounded::Int,
    id::InviteId,
    problem::{Code, Problem},
    secret::Secret,
    token::{SECRET_BYTES, SecretDigest},
};

/// iam/invites/create.
///
/// # Errors
/// INVALID_INPUT for GUEST of a project; NOT_FOUND, PERMISSION_DENIED, CONFLICT.
pub async fn create(call: Call, input: CreateInvite) -> Result<InviteCreated, Fault> {
    let secret = Secret::new(base32::encode(&call.relay.random.bytes::<SECRET_BYTES>()));
    let work = (&call, &input, SecretDigest::of(&secret));
    let store = &call.relay.store;
    let (invite, fresh) = store
        .transact(call.method, work, |tx, (call, input, digest)| Box::pin(make(tx, call, input, *digest)))
        .await?;
    let secret = fresh.then(|| Secret::new(format!("{}.{}", invite.id, secret.expose())).reveal());
    Ok(InviteCreated { invite, secret })
}

/// iam/invites/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListInvites) -> Result<InviteList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = Place::new(&input.tenant_id, input.project_id.as_ref());
            place.decide(call, Action::InvitesRead)?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            let place = (place.tenant, place.project);
            Ok::<_, Fault>(invites::page(tx, place, after, call.now, size + 1).await?)
        })
    });
    let (invites, cursor) = page(read.await?, size, |invite| invite.id.clone());
    Ok(InviteList { invites, cursor })
}

/// iam/invites/delete.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn delete(call: Call, input: DeleteInvite) -> Result<InviteAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, input.project_id.as_ref());
                place.decide(call, Action::InvitesDelete)?;
                let here = |invite: &Invite| {
                    let project = invite.project_id.as_deref().unwrap_or_default();
                    invite.tenant_id == place.tenant && project == place.project
                };
                let found = invites::lock(tx, &input.invite_id).await?.map(|(invite, _)| invite);
                let invite = found
                    .filter(here)
                    .ok_or_else(|| not_found(&format!("invite {} to {}", input.invite_id, place.words())))?;
                invites::remove(tx, &invite.id).await?;
                Ok::<_, Fault>(InviteAnswer { invite })
            })
        })
        .await
}

/// iam/invites/accept.
///
/// # Errors
/// NOT_FOUND for a secret of no invite that is good; INVALID_STATE if the caller is a member already, or whoever
/// invited may not give the role any more.
pub async fn accept(call: Call, input: AcceptInvite) -> Result<MemberAnswer, Fault> {
    let text = input.secret.into_secret();
    let parts = text.expose().trim().split_once('.');
    let shown = parts.and_then(|(id, secret)| Some((id.parse().ok()?, Secret::new(secret.to_owned()))));
    let shown: (InviteId, Secret) = shown.ok_or_else(no_invite)?;
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &shown), |tx, (call, (id, secret))| {
            Box::pin(enter_by(tx, call, id, secret))
        })
        .await
}

async fn make(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &CreateInvite,
    digest: SecretDigest,
) -> Result<(Invite, bool), Fault> {
    let place = Place::new(&input.tenant_id, input.project_id.as_ref());
    let role = input.role.unwrap_or(TenantRole::Viewer);
    place.decide(call, Action::InvitesCreate)?;
    place.given(&call.principal()?.powers, role)?;
    place.hold(tx).await?;
    place.gives(tx, call, Action::InvitesCreate, Some(role)).await?;
    if let Some(invite) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok((invite, false));
    }
    let invite = Invite {
        id: InviteId::draw(call.now, call.relay.random.bytes()),
        tenant_id: place.tenant.to_owned(),
        project_id: input.project_id.as_ref().map(ToString::to_string),
        role,
        created_by: call.principal()?.subject.clone(),
        created_at: call.now,
        expires_at: call.now.plus_seconds(input.expires_in_seconds.map_or(DEFAULT_SECONDS, Int::get)),
    };
    invites::insert(tx, &invite, digest).await?;
    tx.note_about(&invite.tenant_id, invite.id.as_str());
    idempotency::keep(tx, call, &input.idempotency_key, input, &invite).await?;
    Ok((invite, true))
}

async fn enter_by(
    tx: &mut Tx<'_>,
    call: &Call,
    id: &InviteId,
    secret: &Secret,
) -> Result<MemberAnswer, Fault> {
    // Looked at first, to lock in the order of all: tenant, project, invite.
    let invite = good(invites::find(tx, id).await?, call, secret)?;
    let project = invite.project_id.as_deref().unwrap_or_default();
    let place = Place { tenant: &invite.tenant_id, project };
    place.hold(tx).await.map_err(|_| no_invite())?;
    good(invites::lock(tx, id).await?, call, secret)?;
    still_given(tx, call, &invite, place).await?;
    let user = &call.principal()?.subject;
    if let Some(member) = memberships::find(tx, place.tenant, place.project, user).await? {
        let detail = format!("You are {} of {} already.", member.role.as_str(), place.words());
        return Err(invalid_state(detail));
    }
    tx.note_about(place.tenant, invite.id.as_str());
    let member = enter(tx, call, place, user, invite.role).await?;
    invites::remove(tx, id).await?;
    Ok(MemberAnswer { member })
}

/// The invite, if the secret is its own and it is good now.
fn good(found: Option<(Invite, SecretDigest)>, call: &Call, secret: &Secret) -> Result<Invite, Problem> {
    let good = found.filter(|(invite, digest)| digest.matches(secret) && call.now < invite.expires_at);
    good.map(|(invite, _)| invite).ok_or_else(no_invite)
}

async fn still_given(tx: &mut Tx<'_>, call: &Call, invite: &Invite, place: Place<'_>) -> Result<(), Fault> {
    let held = holdings::of_subject(tx, &invite.created_by, &call.relay.provider_tenant).await?;
    let powers = Powers::of(held);
    let invites = may(&powers, Action::InvitesCreate, place.resource()) == Decision::Allow;
    if invites && place.given(&powers, invite.role).is_ok() {
        return Ok(());
    }
    let detail =
        format!("{} invited you and may not do so any more; ask for a new invite.", invite.created_by);
    Err(invalid_state(detail))
}

fn no_invite() -> Problem {
    let detail = "There is no invite with this secret that is good: it was accepted, taken back, or has ended; or the \
                  secret was not copied whole.";
    Problem::new(Code::NotFound, detail)
}
