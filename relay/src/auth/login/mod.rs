//! A login: a program begins it, a browser carries it to the identity provider and back, and the program that began it
//! takes the token.
//!
//! - The program keeps a secret of its own and says its S256 (as PKCE has it, RFC 7636): a code that somebody else sees is
//!   of no use to them, and no token is ever in a URL.
//! - What the browser carries meanwhile is sealed into a cookie, and the provider's `state` must be the one in it: an
//!   answer counts only in the browser that the login began in.
//! - The code is a row of the store that is taken once, and no user, tenant or token is made before it is taken: a login
//!   that fails on the way leaves nothing.

mod ask;
mod user;

pub use ask::{Ask, Challenge, InvalidLoopback, Loopback};

use super::{
    holdings,
    oidc::{Asked, Brought, OidcError, Provider},
    tokens::{self, Purpose},
};
use crate::{
    audit,
    context::Context,
    events::{Event, Kind, Origin},
    fault::{Fault, chain},
    store::{
        self, StoreError, Tx, events,
        logins::{self, Login},
        memberships,
    },
};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::json;
use shared::{
    api::{
        access::AdminRole,
        tokens::{DEFAULT_SECONDS, Labels, Rights, Token, TokenType},
        users::User,
    },
    base32,
    problem::{Code, Problem},
    secret::{Secret, same_bytes},
    time::Timestamp,
    token::SecretDigest,
};
use std::net::IpAddr;

/// How long a person may take at the provider, in seconds (10 minutes).
pub const PENDING_SECONDS: i64 = 600;
/// How long a code waits for its program, in seconds: somebody may have to copy it.
pub const CODE_SECONDS: i64 = 300;
/// How long a token with an admin role lives, in seconds (1 hour).
const ADMIN_SECONDS: i64 = 3600;
/// What the sealed cookie is for.
const PURPOSE: &str = "login";
/// The longest code of a provider, in bytes.
const MAX_CODE_BYTES: usize = 4096;

/// What the browser carries, sealed.
#[derive(Serialize, Deserialize)]
struct Pending {
    state: String,
    nonce: String,
    verifier: String,
    begun_at: Timestamp,
    ask: Ask,
}

/// A login that has begun.
pub struct Begun {
    /// Where the browser goes.
    pub location: String,
    /// What it carries.
    pub cookie: String,
}

/// What the provider said, as the browser brought it; each part as it came.
#[derive(Clone, Copy, Default)]
pub struct Answer<'a> {
    /// Which login it answers.
    pub state: Option<&'a str>,
    /// The code.
    pub code: Option<&'a str>,
    /// Why there is no code.
    pub error: Option<&'a str>,
    /// The issuer.
    pub issuer: Option<&'a str>,
}

/// A login that came back: who waits for it, and what for them.
pub struct Returned {
    /// What its program asked.
    pub ask: Ask,
    /// The code for the program, or why there is none.
    pub outcome: Result<Secret, Problem>,
}

/// Where a request is from.
pub struct From<'a> {
    /// The client's address.
    pub remote: IpAddr,
    /// The request's id.
    pub request_id: &'a str,
}

/// The provider, or that there is none.
///
/// # Errors
/// NOT_FOUND.
pub fn provider(relay: &Context) -> Result<&Provider, Problem> {
    relay.oidc.as_ref().ok_or_else(|| {
        let detail = "Nobody logs in to this relay: it has no identity provider (its setting oidc.issuer).";
        Problem::new(Code::NotFound, detail)
    })
}

/// Begins a login. `callback` is the relay's own address for the provider's answer.
///
/// # Errors
/// NOT_FOUND where there is no provider; UNAVAILABLE where it does not answer.
pub async fn begin(relay: &Context, callback: &str, ask: Ask) -> Result<Begun, Fault> {
    let provider = provider(relay)?;
    let drawn = || URL_SAFE_NO_PAD.encode(relay.random.bytes::<32>());
    let pending =
        Pending { state: drawn(), nonce: drawn(), verifier: drawn(), begun_at: relay.clock.now(), ask };
    let asked = Asked {
        state: &pending.state,
        nonce: &pending.nonce,
        challenge: &s256(&pending.verifier),
        redirect_uri: callback,
    };
    let location = provider.authorization(&asked).await.map_err(|error| told(&error))?;
    let plain = serde_json::to_vec(&pending).map_err(Fault::internal("writing a login"))?;
    let cookie = relay.keys.seal_carried(PURPOSE, &plain, &relay.random);
    Ok(Begun { location, cookie: cookie.map_err(Fault::internal("sealing a login"))? })
}

/// Takes the provider's answer. A login of this browser that failed is told to the program that waits for it.
///
/// # Errors
/// INVALID_INPUT where no login of this browser is answered; the store's.
pub async fn finish(
    relay: &Context,
    callback: &str,
    cookie: Option<&str>,
    answer: Answer<'_>,
) -> Result<Returned, Fault> {
    let now = relay.clock.now();
    let pending = cookie.and_then(|cookie| opened(relay, cookie)).filter(|pending| {
        let state = answer.state.unwrap_or_default();
        let age = now.seconds().saturating_sub(pending.begun_at.seconds());
        (0..=PENDING_SECONDS).contains(&age) && same_bytes(state.as_bytes(), pending.state.as_bytes())
    });
    let Some(pending) = pending else {
        let detail =
            "No login of this browser is answered by this, or it took longer than ten minutes; begin again.";
        return Err(Problem::new(Code::InvalidInput, detail).into());
    };
    let outcome = match vouched(relay, callback, &pending, answer, now).await {
        Ok(code) => Ok(code),
        Err(Fault::Problem(problem)) => Err(*problem),
        Err(fault) => return Err(fault),
    };
    Ok(Returned { ask: pending.ask, outcome })
}

/// Exchanges a code for a token, with the secret of the program that began the login. Makes the user and its tenant at its
/// first login.
///
/// # Errors
/// UNAUTHENTICATED for a code that is not good or not this program's; it is spent then. PERMISSION_DENIED for an admin
/// role beyond what the user's membership of the provider tenant gives; the user is known all the same. The store's.
pub async fn claim(
    relay: &Context,
    code: &Secret,
    verifier: &Secret,
    from: &From<'_>,
) -> Result<(Token, Secret), Fault> {
    let work = (relay, code, verifier, from);
    let taken = relay.store.transact("login", work, |tx, (relay, code, verifier, from)| {
        Box::pin(async move {
            let now = relay.clock.now();
            let Some(login) = logins::take(tx, SecretDigest::of(code)).await? else {
                return Ok(Err(spent()));
            };
            let proved = same_bytes(s256(verifier.expose()).as_bytes(), login.challenge.as_bytes());
            if login.expires_at <= now || !proved {
                return Ok(Err(spent()));
            }
            let user = user::of(tx, relay, &login.who, from.request_id, now).await?;
            // What is refused here is an answer, not a failure: the code stays spent and the user known.
            let outcome = match beyond(tx, relay, &user, login.admin_role).await? {
                Some(refusal) => Err(refusal),
                None => Ok(made(tx, relay, &user, &login, from.request_id, now).await?),
            };
            let asked =
                login.admin_role.map(|role| format!("adminRole={}", role.as_str())).unwrap_or_default();
            let record = audit::Login {
                subject: &user.user_id,
                token_id: outcome.as_ref().ok().map(|(token, _)| &token.id),
                tenant_id: &user.user_id,
                asked: &asked,
                remote: from.remote,
                request_id: from.request_id,
                at: now,
            };
            store::audit::insert(tx, &record.record(&relay.random)).await?;
            Ok(outcome)
        })
    });
    let taken: Result<Result<(Token, Secret), Problem>, Fault> = taken.await;
    let (token, secret) = taken??;
    tracing::info!(subject = token.subject, token = %token.id, request_id = from.request_id, "logged in");
    Ok((token, secret))
}

/// The S256 of a text (RFC 7636).
#[must_use]
pub fn s256(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

fn opened(relay: &Context, cookie: &str) -> Option<Pending> {
    let plain = relay.keys.open_carried(PURPOSE, cookie).ok()?;
    serde_json::from_slice(&plain).ok()
}

/// A code for the program, once the provider has vouched for somebody.
async fn vouched(
    relay: &Context,
    callback: &str,
    pending: &Pending,
    answer: Answer<'_>,
    now: Timestamp,
) -> Result<Secret, Fault> {
    if let Some(error) = answer.error {
        return Err(told(&OidcError::Refused(super::oidc::word(error))).into());
    }
    let code = answer.code.filter(|code| (1..=MAX_CODE_BYTES).contains(&code.len()));
    let Some(code) = code else {
        return Err(told(&OidcError::Refused("it sent no code".to_owned())).into());
    };
    let brought = Brought {
        code,
        issuer: answer.issuer,
        verifier: &pending.verifier,
        redirect_uri: callback,
        nonce: &pending.nonce,
        begun_at: pending.begun_at,
        now,
    };
    let who = provider(relay)?.identify(&brought).await.map_err(|error| told(&error))?;
    let login = Login {
        challenge: pending.ask.challenge.as_str().to_owned(),
        who,
        admin_role: pending.ask.admin_role,
        logged_in_at: now,
        expires_at: now.plus_seconds(CODE_SECONDS),
    };
    let code = Secret::new(base32::encode(&relay.random.bytes::<32>()));
    let kept: Result<(), StoreError> = relay
        .store
        .transact("login", (&code, &login), |tx, (code, login)| {
            Box::pin(logins::insert(tx, SecretDigest::of(code), login))
        })
        .await;
    kept?;
    Ok(code)
}

/// What the provider's failure is to whoever logs in; the log has it too.
fn told(error: &OidcError) -> Problem {
    tracing::warn!(error = chain(error), "a login failed at the identity provider");
    let detail = match error {
        // What the operator must mend is for the operator.
        OidcError::SetUp(_)
        | OidcError::File { .. }
        | OidcError::Document { .. }
        | OidcError::Failed
        | OidcError::Fetch(_) => {
            "The identity provider can't be used now; the relay's log says why.".to_owned()
        }
        OidcError::Busy | OidcError::Refused(_) | OidcError::IdToken(_) => {
            format!("Nobody was logged in: {error}.")
        }
    };
    match error {
        OidcError::Refused(_) | OidcError::IdToken(_) => Problem::new(Code::Unauthenticated, detail),
        OidcError::SetUp(_) | OidcError::File { .. } | OidcError::Document { .. } => {
            Problem::new(Code::Unavailable, detail).retry_after(60)
        }
        OidcError::Busy | OidcError::Failed | OidcError::Fetch(_) => {
            Problem::new(Code::Unavailable, detail).retry_after(5)
        }
    }
}

fn spent() -> Problem {
    let detail = "The login's code is not good, was used, or is another program's; log in again.";
    Problem::new(Code::Unauthenticated, detail)
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
    login: &Login,
    request_id: &str,
    now: Timestamp,
) -> Result<(Token, Secret), Fault> {
    let purpose = Purpose {
        token_type: TokenType::User,
        subject: &user.user_id,
        tenant_id: &user.user_id,
        admin_role: login.admin_role,
        rights: Rights { admin_role: login.admin_role, ..Rights::default() },
        description: "login",
        labels: Labels::new(),
        created_by: &user.user_id,
        lifetime_seconds: if login.admin_role.is_some() { ADMIN_SECONDS } else { DEFAULT_SECONDS },
        ends_at: None,
        login_at: Some(login.logged_in_at),
        predecessor: None,
    };
    let (token, secret) = tokens::issue(tx, relay, &purpose, now).await?;
    let origin = Origin { actor: user.user_id.clone(), request_id: request_id.to_owned(), at: now };
    let data = json!({
        "subject": token.subject, "type": token.token_type, "description": token.description,
        "createdBy": token.created_by, "expiresAt": token.expires_at,
    });
    let event =
        Event { kind: Kind::TokenCreated, tenant: &token.tenant_id, subject: token.id.as_str(), data };
    events::insert(tx, &relay.random, &origin, &event).await?;
    Ok((token, secret))
}
