//! Bearer credentials: `tk_<id>.<secret>`, the secret 32 random bytes in base32, kept as its SHA-256.
//!
//! The same answer for every way in which one doesn't count; a lookup costs one read, whatever is sent.

use super::Principal;
use crate::{
    context::Context,
    random::Random,
    store::{
        StoreError, Tx,
        credentials::{self, NewCredential},
    },
};
use shared::{
    base32,
    id::TokenId,
    secret::Secret,
    time::Timestamp,
    token::{SECRET_BYTES, SecretDigest},
};

/// What a credential is made for.
pub struct Purpose<'a> {
    /// Who, and what they may do; its token id is the credential's.
    pub principal: &'a Principal,
    /// What it is for, for people.
    pub description: &'a str,
    /// Who makes it.
    pub created_by: &'a str,
    /// How long it lives, in seconds.
    pub lifetime_seconds: i64,
}

/// Makes a credential and keeps its digest; answers the bearer form, this once.
///
/// # Errors
/// The store's.
pub async fn issue(
    tx: &mut Tx<'_>,
    random: &Random,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<Secret, StoreError> {
    let secret = Secret::new(base32::encode(&random.bytes::<SECRET_BYTES>()));
    let new = NewCredential {
        principal: purpose.principal,
        digest: SecretDigest::of(&secret),
        description: purpose.description,
        created_by: purpose.created_by,
        created_at: now,
        expires_at: now.plus_seconds(purpose.lifetime_seconds),
    };
    credentials::insert(tx, &new).await?;
    Ok(Secret::new(format!("{}.{}", purpose.principal.token_id, secret.expose())))
}

/// The principal behind a bearer text; `None` if it is no credential that counts now.
///
/// # Errors
/// The store's.
pub async fn authenticate(
    relay: &Context,
    bearer: &str,
    now: Timestamp,
) -> Result<Option<Principal>, StoreError> {
    let Some((id, secret)) = parse(bearer) else { return Ok(None) };
    let found = relay.store.glance("authenticate", id, |tx, id| Box::pin(credentials::find(tx, id))).await?;
    Ok(found
        .filter(|row| row.digest.matches(&secret) && row.revoked_at.is_none() && now < row.expires_at)
        .map(|row| row.principal))
}

fn parse(bearer: &str) -> Option<(TokenId, Secret)> {
    let (id, secret) = bearer.split_once('.')?;
    base32::decode::<SECRET_BYTES>(secret)?;
    Some((id.parse().ok()?, Secret::new(secret.to_owned())))
}
