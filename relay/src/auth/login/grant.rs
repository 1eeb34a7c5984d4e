//! The end of a login: its user, made at the first one, and the token, with their events and the audit's record, in one
//! transaction.

use super::{From, Given, user};
use crate::{
    audit,
    auth::{
        holdings,
        tokens::{self, Purpose},
    },
    context::Context,
    events::{Event, Kind, Origin},
    fault::Fault,
    store::{self, Tx, events, logins::Login, memberships},
};
use shared::{
    api::{
        access::AdminRole,
        tokens::{DEFAULT_SECONDS, Labels, Rights, TokenType},
        users::User,
    },
    problem::{Code, Problem},
    time::Timestamp,
};

/// How long a token with an admin role lives, in seconds (1 hour).
const ADMIN_SECONDS: i64 = 3600;

/// Gives a token to whoever logged in, called `description`. What is refused is an answer, not a failure: the user is known
/// all the same, and what its caller did in the transaction stays.
///
/// # Errors
/// The store's.
pub(super) async fn give(
    tx: &mut Tx<'_>,
    relay: &Context,
    login: &Login,
    description: &str,
    from: &From<'_>,
) -> Result<Result<Given, Problem>, Fault> {
    let now = relay.clock.now();
    let user = user::of(tx, relay, &login.who, from.request_id, now).await?;
    let outcome = match beyond(tx, relay, &user, login.admin_role).await? {
        Some(refusal) => Err(refusal),
        None => Ok(made(tx, relay, &user, (login, description), (from.request_id, now)).await?),
    };
    let asked = login.admin_role.map(|role| format!("adminRole={}", role.as_str())).unwrap_or_default();
    let record = audit::Login {
        subject: &user.user_id,
        token_id: outcome.as_ref().ok().map(|(token, _)| &token.id),
        tenant_id: &user.user_id,
        asked: &asked,
        remote: from.remote,
        request_id: from.request_id,
        at: now,
    };
    let key = relay.keys.chain_key();
    store::audit::insert(tx, key.as_ref(), &record.record(&relay.random)).await?;
    Ok(outcome)
}

/// As [`give`], in a transaction of its own.
///
/// # Errors
/// PERMISSION_DENIED for an admin role beyond what the user's membership of the provider tenant gives. The store's.
pub(super) async fn at_once(
    relay: &Context,
    login: &Login,
    description: &str,
    from: &From<'_>,
) -> Result<Given, Fault> {
    let work = (relay, login, description, from);
    let given = relay.store.transact("login", work, |tx, (relay, login, description, from)| {
        Box::pin(give(tx, relay, login, description, from))
    });
    let given: Result<Result<Given, Problem>, Fault> = given.await;
    let given = given??;
    say(&given, from);
    Ok(given)
}

/// Says in the log who logged in.
pub(super) fn say((token, _): &Given, from: &From<'_>) {
    tracing::info!(subject = token.subject, token = %token.id, request_id = from.request_id, "logged in");
}

/// Why an admin role is not given, if it is beyond what the user may ask for.
async fn beyond(
    tx: &mut Tx<'_>,
    relay: &Context,
    user: &User,
    asked: Option<AdminRole>,
) -> Result<Option<Problem>, Fault> {
    let Some(asked) = asked else { return Ok(None) };
    let provider = relay.provider_tenant.as_str();
    let member = memberships::find(tx, provider, "", &user.user_id).await?;
    let most = member.and_then(|member| holdings::admin_role(member.role));
    if most.is_some_and(|most| asked <= most) {
        return Ok(None);
    }
    let most = most.map_or("no admin role".to_owned(), |most| format!("admin {} at most", most.as_str()));
    let detail = format!(
        "{} may ask for {most}, not {}: it goes by the role in the tenant {provider}.",
        user.user_id,
        asked.as_str()
    );
    Ok(Some(Problem::new(Code::PermissionDenied, detail)))
}

async fn made(
    tx: &mut Tx<'_>,
    relay: &Context,
    user: &User,
    (login, description): (&Login, &str),
    (request_id, now): (&str, Timestamp),
) -> Result<Given, Fault> {
    let purpose = Purpose {
        token_type: TokenType::User,
        subject: &user.user_id,
        tenant_id: &user.user_id,
        admin_role: login.admin_role,
        rights: Rights { admin_role: login.admin_role, ..Rights::default() },
        description,
        labels: Labels::new(),
        created_by: &user.user_id,
        lifetime_seconds: if login.admin_role.is_some() { ADMIN_SECONDS } else { DEFAULT_SECONDS },
        ends_at: None,
        login_at: Some(login.logged_in_at),
        predecessor: None,
    };
    let (token, secret) = tokens::issue(tx, relay, &purpose, now).await?;
    let origin = Origin { actor: user.user_id.clone(), request_id: request_id.to_owned(), at: now };
    let data = tokens::told(&token);
    let event =
        Event { kind: Kind::TokenCreated, tenant: &token.tenant_id, subject: token.id.as_str(), data };
    events::insert(tx, &relay.random, &origin, &event).await?;
    Ok((token, secret))
}
