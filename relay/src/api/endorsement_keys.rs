//! compute/endorsementKeys: which TPMs a pool admits, decided by whoever vouches for its site. A machine that waits for
//! its key is admitted at its next retry: a join reads the list anew each time.

use super::{
    idempotency,
    pools::{DecidedBy, held, named},
    steps::{News, announce, conflict, page, page_size},
};
use crate::{
    auth::policy::not_found,
    call::Call,
    events::Kind,
    facts::PoolFacts,
    fault::Fault,
    store::{StoreError, Tx, endorsement_keys},
};
use serde_json::json;
use shared::api::{
    access::Action,
    endorsement_keys::{
        AddEndorsementKey, EndorsementKeyAnswer, EndorsementKeyInfo, EndorsementKeyList, ListEndorsementKeys,
        RemoveEndorsementKey, UnmatchedKeyList,
    },
};

/// compute/endorsementKeys/add.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; CONFLICT if the key is on the list, or the idempotency key was used for another.
pub async fn add(call: Call, input: AddEndorsementKey) -> Result<EndorsementKeyAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(enlist(tx, call, input))).await
}

/// compute/endorsementKeys/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListEndorsementKeys) -> Result<EndorsementKeyList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let (pool, after) = place(tx, call, input).await?;
            Ok::<_, Fault>(endorsement_keys::page(tx, &pool.pool_id, after, size + 1).await?)
        })
    });
    let (endorsement_keys, cursor) = page(read.await?, size, |key| key.ek_sha256.clone());
    Ok(EndorsementKeyList { endorsement_keys, cursor })
}

/// compute/endorsementKeys/remove: nodes that joined with it stay.
///
/// # Errors
/// NOT_FOUND (also for the key), PERMISSION_DENIED.
pub async fn remove(call: Call, input: RemoveEndorsementKey) -> Result<EndorsementKeyAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(strike(tx, call, input))).await
}

/// compute/endorsementKeys/listUnmatched: proved here, and not on the list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list_unmatched(call: Call, input: ListEndorsementKeys) -> Result<UnmatchedKeyList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let (pool, after) = place(tx, call, input).await?;
            Ok::<_, Fault>(endorsement_keys::unmatched(tx, &pool.pool_id, after, size + 1, call.now).await?)
        })
    });
    let (endorsement_keys, cursor) = page(read.await?, size, |key| key.ek_sha256.clone());
    Ok(UnmatchedKeyList { endorsement_keys, cursor })
}

/// The pool of a list, and behind which key its page begins.
async fn place<'a>(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &'a ListEndorsementKeys,
) -> Result<(PoolFacts, &'a str), Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    let pool = named(tx, call, name, Action::EndorsementKeysRead, DecidedBy::SiteOwner).await?;
    Ok((pool, input.cursor.as_ref().map_or("", |key| key.as_str())))
}

async fn enlist(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &AddEndorsementKey,
) -> Result<EndorsementKeyAnswer, Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    named(tx, call, name, Action::EndorsementKeysAdd, DecidedBy::SiteOwner).await?;
    // Of two that add one key the second waits here, and sees the first.
    let pool = held(tx, &input.pool_id).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    if endorsement_keys::find(tx, &pool.pool_id, input.ek_sha256.as_str()).await?.is_some() {
        let detail = format!(
            "The endorsement key is on the list of pool {} already; to change its note, remove it first.",
            pool.pool_id
        );
        return Err(conflict(detail));
    }
    let key = EndorsementKeyInfo {
        ek_sha256: input.ek_sha256.as_str().to_owned(),
        note: input.note.as_ref().map(|note| note.as_str().to_owned()),
        added_at: call.now,
        added_by: call.actor(),
    };
    endorsement_keys::insert(tx, &pool.pool_id, &key).await?;
    tell(tx, call, Kind::EndorsementKeyAdded, &pool, &key).await?;
    let answer = EndorsementKeyAnswer { endorsement_key: key };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}

async fn strike(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &RemoveEndorsementKey,
) -> Result<EndorsementKeyAnswer, Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    named(tx, call, name, Action::EndorsementKeysRemove, DecidedBy::SiteOwner).await?;
    // Of two that remove one key only the first tells so.
    let pool = held(tx, &input.pool_id).await?;
    let found = endorsement_keys::find(tx, &pool.pool_id, input.ek_sha256.as_str()).await?;
    let key = found.ok_or_else(|| not_found(&format!("endorsement key {}", input.ek_sha256)))?;
    endorsement_keys::remove(tx, &pool.pool_id, &key.ek_sha256).await?;
    tell(tx, call, Kind::EndorsementKeyRemoved, &pool, &key).await?;
    Ok(EndorsementKeyAnswer { endorsement_key: key })
}

async fn tell(
    tx: &mut Tx<'_>,
    call: &Call,
    kind: Kind,
    pool: &PoolFacts,
    key: &EndorsementKeyInfo,
) -> Result<(), StoreError> {
    let news = News { kind, tenant: &pool.tenant_id, subject: &key.ek_sha256 };
    announce(tx, call, news, json!({"poolId": pool.pool_id})).await
}
