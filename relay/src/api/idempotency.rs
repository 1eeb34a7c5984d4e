//! Creations that may be retried: the first answer is kept by (subject, method, key) in the transaction that
//! created, and answered again. Kept for a day at least; never a secret.

use crate::{
    call::Call,
    fault::Fault,
    store::{Tx, idempotency},
};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest as _, Sha256};
use shared::{
    bounded::IdempotencyKey,
    hex,
    problem::{Code, Problem},
};

/// The stored answer of an equal request, if there is one.
///
/// # Errors
/// CONFLICT if the key was used for other content.
pub async fn replay<I: Serialize, O: DeserializeOwned>(
    tx: &mut Tx<'_>,
    call: &Call,
    key: &IdempotencyKey,
    input: &I,
) -> Result<Option<O>, Fault> {
    let subject = &call.principal()?.subject;
    let Some(stored) = idempotency::find(tx, subject, call.method, key.as_str()).await? else {
        return Ok(None);
    };
    if stored.content_sha256 != digest(input)? {
        let detail = "This idempotencyKey was used for another request; take a fresh key, or repeat that request unchanged.";
        return Err(Problem::new(Code::Conflict, detail).into());
    }
    serde_json::from_str(&stored.answer).map(Some).map_err(Fault::internal("reading a stored answer"))
}

/// Keeps an answer beside what it created.
///
/// # Errors
/// The store's; a race with an equal request is retried and then replays.
pub async fn keep<I: Serialize, O: Serialize>(
    tx: &mut Tx<'_>,
    call: &Call,
    key: &IdempotencyKey,
    input: &I,
    answer: &O,
) -> Result<(), Fault> {
    let answer = serde_json::to_string(answer).map_err(Fault::internal("writing an answer to keep"))?;
    let subject = &call.principal()?.subject;
    let content = digest(input)?;
    Ok(idempotency::insert(tx, subject, call.method, key.as_str(), &content, &answer, call.now).await?)
}

fn digest<I: Serialize>(input: &I) -> Result<String, Fault> {
    let bytes = serde_json::to_vec(input).map_err(Fault::internal("digesting the input"))?;
    Ok(hex::encode(&Sha256::digest(bytes)))
}
