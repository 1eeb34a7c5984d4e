//! iam/tokens: the caller's own tokens; admin/tokens: everybody's.
//!
//! What a token may do is judged against whoever makes it (`rights`), and again at each of its requests.

use super::{
    idempotency,
    rights::within,
    steps::{News, announce, invalid_state, on_platform, page, page_size},
};
use crate::{
    audit,
    auth::{
        Powers, bootstrap, holdings,
        policy::not_found,
        tokens::{self, Predecessor, Purpose},
    },
    call::Call,
    events::Kind,
    fault::Fault,
    store::{
        Tx,
        credentials::{self, CredentialRow},
        users,
    },
};
use shared::{
    api::{
        access::{Action, AdminRole},
        tokens::{
            CreateToken, CreateTokenFor, DEFAULT_SECONDS, GetToken, Lifetime, ListTokens, ListTokensOf,
            REFRESH, RefreshToken, Rights, Token, TokenAnswer, TokenCreated, TokenList, TokenType,
            UpdateToken,
        },
    },
    bounded::TenantId,
    id::TokenId,
    secret::Secret,
};

/// How long refreshes keep a login alive, in seconds (24 hours).
const LOGIN_SECONDS: i64 = 86_400;

/// How long a session's successor is waited for to be used before there is another, in seconds.
const SUCCESSOR_SECONDS: i64 = 60;

/// The most tokens of a subject that count at a time: each has a bucket of its own, which those that follow it share.
const MAX_TOKENS: i64 = 1_000;

/// The most successors of a token that wait for their first use; whoever refreshes again has the newest. So no refresh is
/// ever refused for those before it whose answers were lost, and none makes tokens without end.
const MAX_SUCCESSORS: i64 = 8;

/// What a transaction that makes a token answers: the bearer form only if it made one.
type Made = (Token, Option<Secret>);

/// iam/tokens/create.
///
/// # Errors
/// INVALID_INPUT for a token that would hold nothing; PERMISSION_DENIED for one that would hold more than the caller;
/// INVALID_STATE for one more than a subject may have.
pub async fn create(call: Call, input: CreateToken) -> Result<TokenCreated, Fault> {
    let store = &call.relay.store;
    let made = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let principal = call.principal()?;
            within(tx, &principal.powers, &input.rights).await?;
            let owner = (principal.subject.as_str(), principal.tenant_id.as_str());
            make(tx, call, owner, principal.powers.given_admin_role(), input, input).await
        })
    });
    Ok(shown(made.await?))
}

/// admin/tokens/create: for another subject, who is the one that the token acts for.
///
/// # Errors
/// PERMISSION_DENIED; NOT_FOUND for the subject; as [`create`], against the caller and the subject both.
pub async fn create_for(call: Call, input: CreateTokenFor) -> Result<TokenCreated, Fault> {
    let store = &call.relay.store;
    let made = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            on_platform(call, Action::AdminTokensCreate)?;
            let subject = input.subject.as_str();
            let found = users::find(tx, subject).await?;
            found.ok_or_else(|| not_found(&format!("user or service {subject}")))?;
            let rights = &input.token.rights;
            within(tx, &call.principal()?.powers, rights).await?;
            let held = holdings::of_subject(tx, subject, &call.relay.provider_tenant).await?;
            within(tx, &Powers::of(held), rights).await?;
            make(tx, call, (subject, subject), rights.admin_role, &input.token, input).await
        })
    });
    Ok(shown(made.await?))
}

/// iam/tokens/get.
///
/// # Errors
/// NOT_FOUND, also for a token of somebody else.
pub async fn get(call: Call, input: GetToken) -> Result<TokenAnswer, Fault> {
    let store = &call.relay.store;
    let found = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let found = credentials::find(tx, &input.token_id).await?;
            let row = own(call, found, &input.token_id)?;
            Ok::<_, Fault>(TokenAnswer { token: row.token })
        })
    });
    found.await
}

/// iam/tokens/list: those that have not ended.
///
/// # Errors
/// UNAUTHENTICATED.
pub async fn list(call: Call, input: ListTokens) -> Result<TokenList, Fault> {
    let subject = &call.principal()?.subject;
    listed(&call, Some(subject), page_size(input.limit), input.cursor.as_ref()).await
}

/// iam/tokens/update.
///
/// # Errors
/// NOT_FOUND; INVALID_STATE for a token from a login, or one that has ended; PERMISSION_DENIED for more than the caller
/// holds.
pub async fn update(call: Call, input: UpdateToken) -> Result<TokenAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(change(tx, call, input))).await
}

/// iam/tokens/revoke.
///
/// # Errors
/// NOT_FOUND, also for a token of somebody else.
pub async fn revoke(call: Call, input: GetToken) -> Result<TokenAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let found = credentials::lock(tx, &input.token_id).await?;
                end(tx, call, own(call, found, &input.token_id)?).await
            })
        })
        .await
}

/// iam/tokens/refresh: the same for the same time again. Neither who owns the token nor what it holds is asked anew:
/// it counts as far as its owner holds it, like the one before.
///
/// # Errors
/// INVALID_STATE a day after the login, and for the relay's own admin credentials.
pub async fn refresh(call: Call, _: RefreshToken) -> Result<TokenCreated, Fault> {
    let store = &call.relay.store;
    let made = store.transact(call.method, &call, |tx, call| Box::pin(follow(tx, call)));
    Ok(shown(made.await?))
}

/// As [`refresh`], for a browser's session. The requests of a browser come many at a time, and the first use of one
/// successor ends the others: where one was given a moment ago, no other is.
///
/// # Errors
/// INVALID_STATE where one was given; as [`refresh`].
pub async fn refresh_session(call: Call) -> Result<TokenCreated, Fault> {
    let store = &call.relay.store;
    let made = store.transact(call.method, &call, |tx, call| {
        Box::pin(async move {
            let made = follow(tx, call).await?;
            let since = call.now.plus_seconds(-SUCCESSOR_SECONDS);
            // Counted with the one that was made: the lock on its predecessor lets one request after the other do so.
            if credentials::successors(tx, &call.principal()?.token_id, since).await? > 1 {
                return Err(invalid_state("The session was refreshed a moment ago."));
            }
            Ok(made)
        })
    });
    let made = match audit::beside(&call, &REFRESH.method, b"{}") {
        Some(beside) => beside.around(made).await,
        None => made.await,
    };
    Ok(shown(made?))
}

/// admin/tokens/get.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND.
pub async fn admin_get(call: Call, input: GetToken) -> Result<TokenAnswer, Fault> {
    on_platform(&call, Action::AdminTokensRead)?;
    let id = &input.token_id;
    let found = call.relay.store.read(call.method, id, |tx, id| {
        Box::pin(async move { Ok::<_, Fault>(credentials::find(tx, id).await?) })
    });
    let row = found.await?.ok_or_else(|| not_found(&format!("token {id}")))?;
    Ok(TokenAnswer { token: row.token })
}

/// admin/tokens/list: those that have not ended.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn admin_list(call: Call, input: ListTokensOf) -> Result<TokenList, Fault> {
    on_platform(&call, Action::AdminTokensRead)?;
    let subject = input.subject.as_ref().map(TenantId::as_str);
    listed(&call, subject, page_size(input.limit), input.cursor.as_ref()).await
}

/// admin/tokens/revoke.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND.
pub async fn admin_revoke(call: Call, input: GetToken) -> Result<TokenAnswer, Fault> {
    on_platform(&call, Action::AdminTokensRevoke)?;
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let id = &input.token_id;
                let found = credentials::lock(tx, id).await?;
                end(tx, call, found.ok_or_else(|| not_found(&format!("token {id}")))?).await
            })
        })
        .await
}

fn shown((token, bearer): Made) -> TokenCreated {
    TokenCreated { token, secret: bearer.map(Secret::reveal) }
}

async fn listed(
    call: &Call,
    subject: Option<&str>,
    size: i64,
    cursor: Option<&TokenId>,
) -> Result<TokenList, Fault> {
    let after = cursor.map_or("", TokenId::as_str);
    let work = (subject, after, call.now);
    let read = call.relay.store.read(call.method, work, |tx, (subject, after, now)| {
        Box::pin(async move { Ok::<_, Fault>(credentials::page(tx, *subject, after, *now, size + 1).await?) })
    });
    let (tokens, cursor) = page(read.await?, size, |token| token.id.clone());
    Ok(TokenList { tokens, cursor })
}

/// The token, if it is the caller's.
fn own(call: &Call, found: Option<CredentialRow>, id: &TokenId) -> Result<CredentialRow, Fault> {
    let subject = &call.principal()?.subject;
    Ok(found
        .filter(|row| row.token.subject == *subject)
        .ok_or_else(|| not_found(&format!("token {id} of yours")))?)
}

/// Makes an API token whose rights were judged. `asked` is what names the request, for its retry.
async fn make(
    tx: &mut Tx<'_>,
    call: &Call,
    (subject, tenant_id): (&str, &str),
    admin_role: Option<AdminRole>,
    input: &CreateToken,
    asked: &impl serde::Serialize,
) -> Result<Made, Fault> {
    if let Some(token) = idempotency::replay(tx, call, &input.idempotency_key, asked).await? {
        return Ok((token, None));
    }
    if credentials::count(tx, subject, call.now).await? >= MAX_TOKENS {
        let detail = format!(
            "{subject} has {MAX_TOKENS} tokens that count, which is the most; revoke some, or wait until some end."
        );
        return Err(invalid_state(detail));
    }
    let purpose = Purpose {
        token_type: TokenType::Api,
        subject,
        tenant_id,
        admin_role,
        rights: input.rights.clone(),
        description: input.description.as_str(),
        labels: input.labels.clone(),
        created_by: bootstrap::maker(call.principal()?),
        lifetime_seconds: input.expires_in_seconds.map_or(DEFAULT_SECONDS, Lifetime::get),
        ends_at: None,
        login_at: None,
        predecessor: None,
    };
    let (token, bearer) = tokens::issue(tx, &call.relay, &purpose, call.now).await?;
    tell(tx, call, Kind::TokenCreated, &token).await?;
    idempotency::keep(tx, call, &input.idempotency_key, asked, &token).await?;
    Ok((token, Some(bearer)))
}

async fn change(tx: &mut Tx<'_>, call: &Call, input: &UpdateToken) -> Result<TokenAnswer, Fault> {
    let found = credentials::lock(tx, &input.token_id).await?;
    let mut row = own(call, found, &input.token_id)?;
    if row.token.token_type == TokenType::User {
        return Err(invalid_state(
            "A token from a login holds what its user does; make an API token for less.",
        ));
    }
    if row.token.revoked_at.is_some() || row.token.expires_at <= call.now {
        return Err(invalid_state(format!("The token {} has ended; make a new one.", row.token.id)));
    }
    if input.rights != Rights::default() {
        let powers = &call.principal()?.powers;
        within(tx, powers, &input.rights).await?;
        row.token.rights = input.rights.clone();
        row.admin_role = powers.given_admin_role();
        // Whoever has one has what the token holds, and no more.
        credentials::update_successors(tx, &row).await?;
    }
    if let Some(description) = &input.description {
        description.as_str().clone_into(&mut row.token.description);
    }
    if let Some(labels) = &input.labels {
        row.token.labels.clone_from(labels);
    }
    credentials::update(tx, &row).await?;
    tell(tx, call, Kind::TokenUpdated, &row.token).await?;
    Ok(TokenAnswer { token: row.token })
}

async fn end(tx: &mut Tx<'_>, call: &Call, row: CredentialRow) -> Result<TokenAnswer, Fault> {
    let CredentialRow { mut token, chain, .. } = row;
    credentials::linger_no_more(tx, &chain).await?;
    // Also those of one that has ended by itself: whoever got one meanwhile does not outlive this.
    credentials::revoke_successors(tx, &token.id, call.now).await?;
    if token.revoked_at.is_none() {
        credentials::revoke(tx, &token.id, call.now).await?;
        token.revoked_at = Some(call.now);
        tell(tx, call, Kind::TokenDeleted, &token).await?;
    }
    Ok(TokenAnswer { token })
}

async fn follow(tx: &mut Tx<'_>, call: &Call) -> Result<Made, Fault> {
    let id = &call.principal()?.token_id;
    let found = credentials::lock(tx, id).await?;
    let row = found.filter(|row| row.token.revoked_at.is_none()).ok_or_else(crate::call::unauthenticated)?;
    let ends_at = match (row.token.token_type, row.login_at) {
        (TokenType::Api, _) => None,
        (TokenType::User, Some(login)) => Some(login.plus_seconds(LOGIN_SECONDS)),
        (TokenType::User, None) => {
            return Err(invalid_state(
                "The relay renews its own admin credentials by itself; read the file again.",
            ));
        }
    };
    if ends_at.is_some_and(|end| end <= call.now.plus_seconds(1)) {
        return Err(invalid_state(
            "A login lasts a day at most, however often it is refreshed; log in again.",
        ));
    }
    let token = &row.token;
    let purpose = Purpose {
        token_type: token.token_type,
        subject: &token.subject,
        tenant_id: &token.tenant_id,
        admin_role: row.admin_role,
        rights: token.rights.clone(),
        description: &token.description,
        labels: token.labels.clone(),
        created_by: &token.created_by,
        lifetime_seconds: row.lifetime_seconds,
        ends_at,
        login_at: row.login_at,
        predecessor: Some(Predecessor { id: token.id.clone(), chain: row.chain.clone() }),
    };
    credentials::shed_successors(tx, &token.id, MAX_SUCCESSORS - 1).await?;
    let (token, bearer) = tokens::issue(tx, &call.relay, &purpose, call.now).await?;
    tell(tx, call, Kind::TokenCreated, &token).await?;
    Ok((token, Some(bearer)))
}

async fn tell(tx: &mut Tx<'_>, call: &Call, kind: Kind, token: &Token) -> Result<(), Fault> {
    let news = News { kind, tenant: &token.tenant_id, subject: token.id.as_str() };
    Ok(announce(tx, call, news, tokens::told(token)).await?)
}
