//! The approval queue: joins that wait for a person, and what becomes of their requests.
//!
//! Every request that is open holds a use of its token. Whoever ends one gives that use back or spends it, in the same
//! transaction, with the token's row locked before the request's. Whoever counts on a token's requests or uses takes its
//! lock by [`lock_token`], which ends what is overdue: then nobody waits for the sweep, and no decision is made about what
//! has ended.

use super::{
    identity::Incumbent,
    requests::{About, Earlier},
    submit::Submission,
};
use crate::{
    context::Context,
    events::{Event, Kind, Origin},
    facts::{PoolFacts, TokenFacts},
    fault::Fault,
    store::{
        Tx, events,
        identifiers::{self, Holder},
        join_requests, join_tokens,
    },
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use shared::{
    api::{
        join_requests::{DeferReason, JoinRequest, JoinRequestState},
        node::{Deferred, JoinAnswer},
    },
    hardware::Identity,
    hex,
    id::{JoinRequestId, JoinTokenId},
    time::Timestamp,
};

/// When a waiting machine asks again, in seconds.
pub const RETRY_SECONDS: u32 = 30;

/// What a request is about, beside the endorsement key: SHA-256 over identity and pool. The host's name is for people and may
/// change.
pub(super) fn content(join: &Submission<'_>, pool: &PoolFacts) -> String {
    let identity = Identity { hostname: None, ..join.identity.clone() };
    let content = json!([identity, pool.uid]);
    hex::encode(&Sha256::digest(content.to_string()))
}

/// The answer while a request waits.
pub(super) fn waiting(pool: &PoolFacts, id: JoinRequestId, reasons: &[DeferReason]) -> JoinAnswer {
    JoinAnswer::Deferred(Deferred {
        join_request_id: id,
        tenant_id: pool.tenant_id.clone(),
        pool_id: pool.pool_id.clone(),
        reasons: reasons.iter().map(|reason| reason.as_str().to_owned()).collect(),
        retry_after_seconds: RETRY_SECONDS,
    })
}

/// Asks a person: writes a request that holds a use of the token.
///
/// # Errors
/// The store's; `StoreError::Race` if the token has no use left after all.
pub(super) async fn ask(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    pool: &PoolFacts,
    about: About<'_>,
    reasons: Vec<DeferReason>,
    incumbents: &[Incumbent],
) -> Result<JoinAnswer, Fault> {
    let now = join.call.now;
    let request = JoinRequest {
        id: JoinRequestId::draw(now, join.call.relay.random.bytes()),
        tenant_id: pool.tenant_id.clone(),
        pool_id: pool.pool_id.clone(),
        token_id: join.token.clone(),
        csr_sha256: join.csr_sha256.clone(),
        reasons,
        identity: join.identity.clone(),
        ek_sha256: join.ek_sha256().map(str::to_owned),
        ek_manufacturer: join.ek_manufacturer().map(str::to_owned),
        ek_vouched: join.ek_vouched(),
        remote_address: join.remote_address.clone(),
        shared_with: Vec::new(),
        state: JoinRequestState::Pending,
        created_at: now,
        expires_at: now.plus_seconds(pool.policy.join_request_ttl_seconds.get()),
        decided_at: None,
        decided_by: None,
        note: None,
    };
    join_tokens::hold(tx, join.token).await?;
    join_requests::insert(tx, &request, about).await?;
    let holder = Holder { tenant_id: &pool.tenant_id, id: request.id.as_str() };
    identifiers::note(tx, holder, &join.machine, join.ek_sha256()).await?;
    let origin = origin_of(join);
    let data = json!({
        "poolId": pool.pool_id,
        "tokenId": join.token,
        "reasons": request.reasons,
        "csrSha256": join.csr_sha256,
        "ekSha256": request.ek_sha256,
        "remoteAddress": join.remote_address,
    });
    tell(tx, &join.call.relay, &origin, Kind::JoinRequestDeferred, &request, data).await?;
    if request.reasons.contains(&DeferReason::IdentityDisputed) {
        dispute(tx, join, pool, &origin, incumbents).await?;
    }
    Ok(waiting(pool, request.id, &request.reasons))
}

/// Ends the requests of a join that is admitted: the one that admits it is consumed, the others expire. Answers how many
/// uses were given back.
///
/// # Errors
/// The store's.
pub(super) async fn settle(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    pool: &PoolFacts,
    by: Option<&JoinRequestId>,
    earlier: &[Earlier],
) -> Result<i64, Fault> {
    let mut given_back = 0;
    for request in earlier.iter().filter(|request| request.state.state.is_open()) {
        let (state, kind) = if by == Some(&request.id) {
            (JoinRequestState::Consumed, Kind::JoinRequestConsumed)
        } else {
            given_back += 1;
            (JoinRequestState::Expired, Kind::JoinRequestExpired)
        };
        join_requests::end(tx, &request.id, state).await?;
        identifiers::forget(tx, request.id.as_str()).await?;
        let data = json!({"poolId": pool.pool_id, "tokenId": join.token});
        let event = Event { kind, tenant: &pool.tenant_id, subject: request.id.as_str(), data };
        events::insert(tx, &join.call.relay.random, &origin_of(join), &event).await?;
    }
    join_tokens::give_back(tx, join.token, given_back).await?;
    Ok(given_back)
}

/// The token, locked until the transaction ends, with those of its requests ended whose time is over.
///
/// # Errors
/// The store's.
pub async fn lock_token(
    tx: &mut Tx<'_>,
    relay: &Context,
    token: &JoinTokenId,
    now: Timestamp,
) -> Result<Option<TokenFacts>, Fault> {
    let Some(mut token) = join_tokens::lock(tx, token).await? else { return Ok(None) };
    if token.pending == 0 {
        return Ok(Some(token));
    }
    let origin = Origin { actor: "relay".to_owned(), request_id: String::new(), at: now };
    for request in join_requests::lock_overdue(tx, &token.id, now).await? {
        join_requests::end(tx, &request.id, JoinRequestState::Expired).await?;
        join_tokens::give_back(tx, &token.id, 1).await?;
        identifiers::forget(tx, request.id.as_str()).await?;
        let data = json!({"poolId": request.pool_id, "tokenId": request.token_id});
        tell(tx, relay, &origin, Kind::JoinRequestExpired, &request, data).await?;
        token.pending -= 1;
    }
    Ok(Some(token))
}

/// Ends the requests whose time is over; of at most 100 requests' tokens of each kind at a time.
///
/// # Errors
/// The store's.
pub async fn expire(relay: &Context) -> Result<(), Fault> {
    for state in [JoinRequestState::Pending, JoinRequestState::Approved] {
        let now = relay.clock.now();
        let overdue = relay
            .store
            .read("joinRequests.overdue", (state, now), |tx, (state, now)| {
                Box::pin(async move { Ok::<_, Fault>(join_requests::overdue(tx, *state, *now).await?) })
            })
            .await?;
        for token in overdue {
            relay
                .store
                .transact("joinRequests.expire", (relay, &token, now), |tx, (relay, token, now)| {
                    Box::pin(async move { lock_token(tx, relay, token, *now).await.map(drop) })
                })
                .await?;
        }
    }
    Ok(())
}

/// Tells the site's owner whose identity is claimed by whom; the pool's tenant learns no more than that it is disputed.
async fn dispute(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    pool: &PoolFacts,
    origin: &Origin,
    incumbents: &[Incumbent],
) -> Result<(), Fault> {
    for incumbent in incumbents.iter().filter(|incumbent| incumbent.tenant_id != pool.tenant_id) {
        let data = json!({
            "kind": incumbent.identity.kind.as_str(),
            "value": incumbent.identity.value,
            "tenantId": incumbent.tenant_id,
            "poolId": incumbent.pool_id,
            "claimedIn": {"tenantId": pool.tenant_id, "poolId": pool.pool_id, "tokenId": join.token},
            "remoteAddress": join.remote_address,
        });
        let event = Event {
            kind: Kind::NodeIdentityDisputed,
            tenant: &pool.site_owner,
            subject: incumbent.node.as_str(),
            data,
        };
        events::insert(tx, &join.call.relay.random, origin, &event).await?;
    }
    Ok(())
}

async fn tell(
    tx: &mut Tx<'_>,
    relay: &Context,
    origin: &Origin,
    kind: Kind,
    request: &JoinRequest,
    data: Value,
) -> Result<(), Fault> {
    let event = Event { kind, tenant: &request.tenant_id, subject: request.id.as_str(), data };
    Ok(events::insert(tx, &relay.random, origin, &event).await?)
}

fn origin_of(join: &Submission<'_>) -> Origin {
    Origin { actor: join.token.to_string(), request_id: join.call.request_id.clone(), at: join.call.now }
}
