//! Bearer tokens: made, and found again at every request.
//!
//! A token counts if a key of ours signed it, its times hold, and the store has it by its id, with the digest of its
//! whole text: a signing key that leaks forges nothing by itself. The same answer for every way in which one doesn't
//! count. Two indexed reads at every request, whatever is sent: the token, and what its owner holds.
//!
//! The first use of a refreshed token ends the one before it, which is a write. Where the store takes none just now (the disk
//! is full), the token counts all the same, for what only reads; the next use tries again, and the one before it ends by its
//! own time at the latest. A browser's requests that were under way with the old one are served for [`LINGER_SECONDS`] more.

use super::{
    Principal, holdings,
    jwt::{self, Claims},
};
use crate::{
    context::Context,
    fault::Fault,
    store::{
        StoreError, Tx,
        credentials::{self, CredentialRow},
    },
};
use serde_json::{Value, json};
use shared::{
    api::{
        access::AdminRole,
        tokens::{Labels, Rights, Token, TokenType},
    },
    id::TokenId,
    secret::Secret,
    time::Timestamp,
    token::SecretDigest,
};

/// How long a browser's session still counts for what was under way when its successor came into use, in seconds: longer
/// than a request may take to arrive.
const LINGER_SECONDS: i64 = 30;

/// The way a bearer text came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// In the header `Authorization`.
    Header,
    /// In the cookie of a browser's session.
    Cookie,
}

/// The token before one that is made by a refresh.
#[derive(Clone, Debug)]
pub struct Predecessor {
    /// It.
    pub id: TokenId,
    /// The first token of its chain.
    pub chain: TokenId,
}

/// What a token is made for.
pub struct Purpose<'a> {
    /// What it is.
    pub token_type: TokenType,
    /// The user or service.
    pub subject: &'a str,
    /// That subject's own tenant.
    pub tenant_id: &'a str,
    /// The admin role that it is given; it counts as far as the subject may have it.
    pub admin_role: Option<AdminRole>,
    /// What it holds; of an API token.
    pub rights: Rights,
    /// What it is for, for people.
    pub description: &'a str,
    /// Names and values to find it by.
    pub labels: Labels,
    /// Who makes it.
    pub created_by: &'a str,
    /// How long it lives, in seconds.
    pub lifetime_seconds: i64,
    /// When it ends at the latest, whatever its lifetime.
    pub ends_at: Option<Timestamp>,
    /// When the user logged in; of a token from a login.
    pub login_at: Option<Timestamp>,
    /// The token that ends when this one is first used.
    pub predecessor: Option<Predecessor>,
}

/// Makes a token and keeps its digest; answers what is known of it and the bearer form, this once.
///
/// # Errors
/// The store's; the signing key's.
pub async fn issue(
    tx: &mut Tx<'_>,
    relay: &Context,
    purpose: &Purpose<'_>,
    now: Timestamp,
) -> Result<(Token, Secret), Fault> {
    let key = relay.signing_keys.current(tx, (&relay.keys, &relay.random), now).await?;
    let end = now.plus_seconds(purpose.lifetime_seconds);
    // Whole seconds, so that the token and the store say the same.
    let expires_at = Timestamp::from_seconds(purpose.ends_at.map_or(end, |most| most.min(end)).seconds());
    let id = TokenId::draw(now, relay.random.bytes());
    let issuer = jwt::issuer(relay.ca.load().trust_domain().as_str());
    let claims = Claims {
        iss: issuer.clone(),
        aud: issuer,
        sub: purpose.subject.to_owned(),
        jti: id.clone(),
        iat: now.seconds(),
        nbf: now.seconds(),
        exp: expires_at.seconds(),
        typ: purpose.token_type,
    };
    let bearer = jwt::sign(&key, &claims).map_err(Fault::internal("signing a token"))?;
    let (predecessor, chain) = match &purpose.predecessor {
        Some(before) => (Some(before.id.clone()), before.chain.clone()),
        None => (None, id.clone()),
    };
    let row = CredentialRow {
        token: Token {
            id,
            token_type: purpose.token_type,
            subject: purpose.subject.to_owned(),
            tenant_id: purpose.tenant_id.to_owned(),
            description: purpose.description.to_owned(),
            rights: purpose.rights.clone(),
            labels: purpose.labels.clone(),
            created_by: purpose.created_by.to_owned(),
            created_at: now,
            expires_at,
            revoked_at: None,
        },
        digest: SecretDigest::of(&bearer),
        admin_role: purpose.admin_role,
        lifetime_seconds: purpose.lifetime_seconds,
        login_at: purpose.login_at,
        predecessor,
        chain,
        lingers_until: None,
    };
    credentials::insert(tx, &row, &key.id).await?;
    Ok((row.token, bearer))
}

/// What an event says of a token.
#[must_use]
pub fn told(token: &Token) -> Value {
    json!({
        "subject": token.subject, "type": token.token_type, "description": token.description,
        "createdBy": token.created_by, "expiresAt": token.expires_at,
    })
}

/// The principal behind a bearer text; `None` if it is no token that counts now.
///
/// # Errors
/// The store's; a signing key that does not open.
pub async fn authenticate(
    relay: &Context,
    (bearer, via): (&str, Via),
    now: Timestamp,
) -> Result<Option<Principal>, Fault> {
    let Some(claims) = signed(relay, bearer).await? else { return Ok(None) };
    if !claims.in_time(now) {
        return Ok(None);
    }
    let id = &claims.jti;
    let found: Result<_, StoreError> =
        relay.store.glance("authenticate", id, |tx, id| Box::pin(credentials::find(tx, id))).await;
    let text = Secret::new(bearer.to_owned());
    let counts = |row: &CredentialRow| {
        let token = &row.token;
        token.subject == claims.sub
            && row.digest.matches(&text)
            && (token.revoked_at.is_none() || (via == Via::Cookie && lingers(row, now)))
            && now < token.expires_at
    };
    let Some(row) = found?.filter(counts) else { return Ok(None) };
    if let Some(ended) = &row.predecessor {
        first_use(relay, id, ended, now).await?;
    }
    let who = (claims.sub.as_str(), relay.provider_tenant.as_str());
    let held: Result<_, StoreError> = relay
        .store
        .glance("authenticate", who, |tx, (subject, provider)| {
            Box::pin(holdings::of_subject(tx, subject, provider))
        })
        .await;
    let powers = holdings::powers(&row, held?);
    let CredentialRow { token, chain, .. } = row;
    let Token { id, token_type, subject, tenant_id, created_by, .. } = token;
    Ok(Some(Principal { subject, tenant_id, token_id: id, chain, token_type, created_by, powers }))
}

/// Whether finding out about a bearer text needs a look into the store for a key that this relay has not opened: whoever
/// makes it do so with one text after another must pay before.
#[must_use]
pub fn asks_for_a_key(relay: &Context, bearer: &str) -> bool {
    jwt::key_of(bearer).is_some_and(|id| !relay.signing_keys.knows(&id))
}

/// What the text says, if a key of ours signed it.
async fn signed(relay: &Context, bearer: &str) -> Result<Option<Claims>, Fault> {
    let Some(id) = jwt::key_of(bearer) else { return Ok(None) };
    let Some(key) = relay.signing_keys.find(relay, &id).await? else { return Ok(None) };
    Ok(jwt::read(bearer, &key, &jwt::issuer(relay.ca.load().trust_domain().as_str())))
}

/// Whether a session that its successor ended still counts. What somebody revoked does not linger.
fn lingers(row: &CredentialRow, now: Timestamp) -> bool {
    row.token.token_type == TokenType::User && row.lingers_until.is_some_and(|end| now < end)
}

/// A refreshed token is in use: the one before it ends.
async fn first_use(relay: &Context, used: &TokenId, ended: &TokenId, now: Timestamp) -> Result<(), Fault> {
    let times = (now, now.plus_seconds(LINGER_SECONDS));
    let settle = relay.store.transact("token's first use", (used, ended), |tx, (used, ended)| {
        Box::pin(credentials::succeed(tx, used, ended, times))
    });
    let settled: Result<(), StoreError> = settle.await;
    match settled {
        // It was read just now: the store is there, and only takes no change.
        Err(StoreError::Full(_) | StoreError::Unreachable(_)) => {
            tracing::warn!(token = %used, before = %ended, "a refreshed token is in use, which can't be noted: the one before it still counts");
            Ok(())
        }
        settled => Ok(settled?),
    }
}
