//! compute/joinRequests: a person decides what an attestor deferred.
//!
//! A decision locks the token, then the request, as every join does: it and an admission never pass each other.

use super::{
    pools::{DecidedBy, named},
    steps::{News, announce, invalid_state, page, page_size},
};
use crate::{
    auth::policy::{self, Resource, may, not_found},
    call::Call,
    events::Kind,
    fault::Fault,
    join::{
        queue,
        requests::{APPROVAL_SECONDS, Decision, Outcome, RequestState, decide},
    },
    store::{
        Tx, identifiers,
        join_requests::{self as rows, Decided},
        join_tokens,
    },
};
use serde_json::json;
use shared::{
    api::{
        access::Action,
        join_requests::{
            ApproveJoinRequest, DenyJoinRequests, GetJoinRequest, JoinRequest, JoinRequestAnswer,
            JoinRequestList, JoinRequestState, JoinRequestsDenied, ListJoinRequests,
        },
    },
    bounded::Label,
    id::{JoinRequestId, JoinTokenId},
    problem::{FieldError, Problem},
    time::Timestamp,
};

/// compute/joinRequests/list: the pending ones unless told otherwise.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListJoinRequests) -> Result<JoinRequestList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::JoinTokensRead, DecidedBy::EitherOwner).await?;
            let state = input.state.unwrap_or(JoinRequestState::Pending);
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            Ok::<_, Fault>(rows::page(tx, &pool.pool_id, (state, call.now), after, size + 1).await?)
        })
    });
    let (mut join_requests, cursor) = page(read.await?, size, |request| request.id.clone());
    for request in &mut join_requests {
        request.state = state(request).at(call.now);
    }
    Ok(JoinRequestList { join_requests, cursor })
}

/// compute/joinRequests/get: also who else says to be the same machine.
///
/// # Errors
/// NOT_FOUND (also for a request of another pool), PERMISSION_DENIED.
pub async fn get(call: Call, input: GetJoinRequest) -> Result<JoinRequestAnswer, Fault> {
    let store = &call.relay.store;
    let show = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::JoinTokensRead, DecidedBy::EitherOwner).await?;
            let found = rows::find(tx, &pool.pool_id, &input.join_request_id).await?;
            let mut join_request = found.ok_or_else(|| absent(&input.join_request_id))?;
            join_request.state = state(&join_request).at(call.now);
            // Who may not read all of the tenant is told of this pool's machines only.
            let tenant = Resource::Tenant { tenant: &pool.tenant_id };
            let whole =
                may(&call.principal()?.powers, Action::JoinTokensRead, tenant) == policy::Decision::Allow;
            let within = (!whole).then_some(pool.pool_id.as_str());
            join_request.shared_with = identifiers::shared_with(tx, join_request.id.as_str(), within).await?;
            Ok::<_, Fault>(JoinRequestAnswer { join_request })
        })
    });
    show.await
}

/// compute/joinRequests/approve: the machine is admitted once, at its next retry within a day.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE if it was denied, has ended, or its token was revoked.
pub async fn approve(call: Call, input: ApproveJoinRequest) -> Result<JoinRequestAnswer, Fault> {
    let store = &call.relay.store;
    let approval = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::JoinTokensCreate, DecidedBy::SiteOwner).await?;
            let note = input.note.as_ref();
            let ruling = Ruling { decision: Decision::Approve, note };
            let join_request = rule(tx, call, &pool.pool_id, &input.join_request_id, ruling).await?;
            Ok::<_, Fault>(JoinRequestAnswer { join_request })
        })
    });
    approval.await
}

/// compute/joinRequests/deny: one request, or all of a token's that are open. Their uses are given back.
///
/// # Errors
/// INVALID_INPUT unless exactly one of both is named; NOT_FOUND, PERMISSION_DENIED; INVALID_STATE if it has ended.
pub async fn deny(call: Call, input: DenyJoinRequests) -> Result<JoinRequestsDenied, Fault> {
    let target = target(&input)?;
    let store = &call.relay.store;
    let denial = store.transact(call.method, (&call, &input, &target), |tx, (call, input, target)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::JoinTokensRevoke, DecidedBy::EitherOwner).await?;
            let ruling = Ruling { decision: Decision::Deny, note: input.note.as_ref() };
            let join_requests = match target {
                Target::One(id) => vec![rule(tx, call, &pool.pool_id, id, ruling).await?],
                Target::AllOf(token) => {
                    let found = queue::lock_token(tx, &call.relay, token, call.now).await?;
                    let found = found.filter(|found| found.pool_id == pool.pool_id);
                    found.ok_or_else(|| not_found(&format!("join token {token}")))?;
                    deny_all(tx, call, token, ruling.note).await?
                }
            };
            Ok::<_, Fault>(JoinRequestsDenied { join_requests })
        })
    });
    denial.await
}

enum Target<'a> {
    One(&'a JoinRequestId),
    AllOf(&'a JoinTokenId),
}

fn target(input: &DenyJoinRequests) -> Result<Target<'_>, Problem> {
    match (&input.join_request_id, &input.token_id) {
        (Some(id), None) => Ok(Target::One(id)),
        (None, Some(token)) => Ok(Target::AllOf(token)),
        (None, None) | (Some(_), Some(_)) => {
            let error = |field: &str| FieldError {
                field: field.to_owned(),
                message: "name either a joinRequestId or a tokenId".to_owned(),
            };
            Err(Problem::invalid(vec![error("joinRequestId"), error("tokenId")]))
        }
    }
}

/// A decision and why.
#[derive(Clone, Copy)]
struct Ruling<'a> {
    decision: Decision,
    note: Option<&'a Label>,
}

/// Decides one request of the pool.
async fn rule(
    tx: &mut Tx<'_>,
    call: &Call,
    pool_id: &str,
    id: &JoinRequestId,
    ruling: Ruling<'_>,
) -> Result<JoinRequest, Fault> {
    let seen = rows::find(tx, pool_id, id).await?.ok_or_else(|| absent(id))?;
    let token = queue::lock_token(tx, &call.relay, &seen.token_id, call.now).await?;
    let request = rows::lock(tx, pool_id, id).await?.ok_or_else(|| absent(id))?;
    let revoked = token.is_none_or(|token| token.revoked_at.is_some());
    match decide(state(&request), ruling.decision, revoked, call.now)? {
        Outcome::Unchanged => Ok(request),
        Outcome::Becomes(state) => write(tx, call, request, state, ruling.note).await,
    }
}

/// Denies all open requests of a token, which is locked and whose overdue requests have ended.
///
/// # Errors
/// The store's.
pub(super) async fn deny_all(
    tx: &mut Tx<'_>,
    call: &Call,
    token: &JoinTokenId,
    note: Option<&Label>,
) -> Result<Vec<JoinRequest>, Fault> {
    let mut denied = Vec::new();
    for request in rows::lock_open(tx, token).await? {
        denied.push(write(tx, call, request, JoinRequestState::Denied, note).await?);
    }
    Ok(denied)
}

/// Writes a decision that was judged, with its event; a denial gives the use back.
async fn write(
    tx: &mut Tx<'_>,
    call: &Call,
    mut request: JoinRequest,
    state: JoinRequestState,
    note: Option<&Label>,
) -> Result<JoinRequest, Fault> {
    let approved = state == JoinRequestState::Approved;
    let expires_at: Timestamp =
        if approved { call.now.plus_seconds(APPROVAL_SECONDS) } else { request.expires_at };
    let by = call.actor();
    let note = note.map(Label::as_str);
    if !rows::decide(tx, &request.id, Decided { state, expires_at, at: call.now, by: &by, note }).await? {
        return Err(invalid_state(format!("The join request {} has just ended.", request.id)));
    }
    if !approved {
        join_tokens::give_back(tx, &request.token_id, 1).await?;
        identifiers::forget(tx, request.id.as_str()).await?;
    }
    let kind = if approved { Kind::JoinRequestApproved } else { Kind::JoinRequestDenied };
    let news = News { kind, tenant: &request.tenant_id, subject: request.id.as_str() };
    let data = json!({
        "poolId": request.pool_id,
        "tokenId": request.token_id,
        "reasons": request.reasons,
        "note": note,
    });
    announce(tx, call, news, data).await?;
    request.state = state;
    request.expires_at = expires_at;
    request.decided_at = Some(call.now);
    request.decided_by = Some(by);
    request.note = note.map(str::to_owned).or(request.note);
    Ok(request)
}

/// As decisions are judged by.
fn state(request: &JoinRequest) -> RequestState {
    RequestState {
        state: request.state,
        expires_at: request.expires_at,
        decided: request.decided_at.is_some(),
    }
}

fn absent(id: &JoinRequestId) -> Problem {
    not_found(&format!("join request {id}"))
}
