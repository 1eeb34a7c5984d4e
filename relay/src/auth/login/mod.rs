//! A login: a program begins it, a browser carries it to the identity provider and back, and the program that began it
//! takes the token. Or a browser begins it for itself, and has the token when it comes back.
//!
//! - The program keeps a secret of its own and says its S256 (as PKCE has it, RFC 7636): a code that somebody else sees is
//!   of no use to them, and no token is ever in a URL.
//! - What the browser carries meanwhile is sealed into a cookie, and the provider's `state` must be the one in it: an
//!   answer counts only in the browser that the login began in.
//! - The code is a row of the store that is taken once, and no user, tenant or token is made before it is taken: a login
//!   that fails on the way leaves nothing.

mod ask;
pub mod device;
mod grant;
mod user;

pub use ask::{Ask, Challenge, InvalidLoopback, Loopback, Program, Return, Waits};
pub use user::{RESERVED_RULE, is_reserved};

use super::oidc::{Asked, Brought, OidcError, Provider};
use crate::{
    context::Context,
    facts::Vouched,
    fault::{Fault, chain},
    store::{
        StoreError,
        logins::{self, Login},
    },
};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use shared::{
    api::tokens::Token,
    base32,
    problem::{Code, Problem},
    secret::{Reveal, Secret, same_bytes},
    time::Timestamp,
    token::SecretDigest,
};
use std::net::IpAddr;
use zeroize::Zeroizing;

/// How long a person may take at the provider, in seconds (10 minutes).
pub const PENDING_SECONDS: i64 = 600;
/// How long a code waits for its program, in seconds: somebody may have to copy it.
pub const CODE_SECONDS: i64 = 300;
/// What the token of a program's login is called.
const PROGRAM: &str = "login";
/// What the token of a browser's session is called.
const BROWSER: &str = "browser session";
/// What the sealed cookie is for.
const PURPOSE: &str = "login";
/// The longest code of a provider, in bytes.
const MAX_CODE_BYTES: usize = 4096;

/// What the browser carries, sealed. No `Debug`: what is open of it is the secret of this login.
#[derive(Serialize, Deserialize)]
struct Pending {
    state: Reveal,
    nonce: Reveal,
    verifier: Reveal,
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

/// A login that came back: who waits for it, and what for them, or why there is nothing.
pub enum Returned {
    /// The code for a program.
    Program(Program, Result<Secret, Problem>),
    /// The token for the browser itself.
    Browser(Return, Result<Given, Problem>),
}

/// What is known of a token, and its bearer form, this once.
pub type Given = (Token, Secret);

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
    let drawn = || Secret::new(URL_SAFE_NO_PAD.encode(relay.random.bytes::<32>())).reveal();
    let pending =
        Pending { state: drawn(), nonce: drawn(), verifier: drawn(), begun_at: relay.clock.now(), ask };
    let asked = Asked {
        state: pending.state.expose(),
        nonce: pending.nonce.expose(),
        challenge: &s256(pending.verifier.expose()),
        redirect_uri: callback,
    };
    let location = provider.authorization(&asked).await.map_err(|error| told(&error))?;
    let plain =
        serde_json::to_vec(&pending).map(Zeroizing::new).map_err(Fault::internal("writing a login"))?;
    let cookie = relay.keys.seal_carried(PURPOSE, &plain, &relay.random);
    Ok(Begun { location, cookie: cookie.map_err(Fault::internal("sealing a login"))? })
}

/// Takes the provider's answer. A login of this browser that failed is told to whoever waits for it. Where that is the
/// browser, the login ends here: the user and its tenant are made at its first login.
///
/// # Errors
/// INVALID_INPUT where no login of this browser is answered; the store's.
pub async fn finish(
    relay: &Context,
    callback: &str,
    cookie: Option<&str>,
    answer: Answer<'_>,
    from: &From<'_>,
) -> Result<Returned, Fault> {
    let now = relay.clock.now();
    let pending = cookie.and_then(|cookie| opened(relay, cookie)).filter(|pending| {
        let state = answer.state.unwrap_or_default();
        let age = now.seconds().saturating_sub(pending.begun_at.seconds());
        (0..=PENDING_SECONDS).contains(&age)
            && same_bytes(state.as_bytes(), pending.state.expose().as_bytes())
    });
    let Some(pending) = pending else {
        let detail =
            "No login of this browser is answered by this, or it took longer than ten minutes; begin again.";
        return Err(Problem::new(Code::InvalidInput, detail).into());
    };
    let vouched = told_apart(identified(relay, callback, &pending, answer, now).await)?;
    let login = |who, program: Option<&Program>| Login {
        challenge: program.map(|program| program.challenge.as_str().to_owned()).unwrap_or_default(),
        who,
        admin_role: pending.ask.admin_role,
        logged_in_at: now,
        expires_at: now.plus_seconds(CODE_SECONDS),
    };
    Ok(match pending.ask.waits {
        Waits::Program(program) => {
            let outcome = match vouched {
                Ok(who) => Ok(keep(relay, &login(who, Some(&program))).await?),
                Err(problem) => Err(problem),
            };
            Returned::Program(program, outcome)
        }
        Waits::Browser(to) => {
            let outcome = match vouched {
                Ok(who) => told_apart(grant::at_once(relay, &login(who, None), BROWSER, from).await)?,
                Err(problem) => Err(problem),
            };
            Returned::Browser(to, outcome)
        }
    })
}

/// What is for whoever logs in, apart from what is for nobody.
fn told_apart<T>(done: Result<T, Fault>) -> Result<Result<T, Problem>, Fault> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(Fault::Problem(problem)) => Ok(Err(*problem)),
        Err(fault) => Err(fault),
    }
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
) -> Result<Given, Fault> {
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
            grant::give(tx, relay, &login, PROGRAM, from).await
        })
    });
    let taken: Result<Result<Given, Problem>, Fault> = taken.await;
    let given = taken??;
    grant::say(&given, from);
    Ok(given)
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

/// Whom the provider vouches for.
async fn identified(
    relay: &Context,
    callback: &str,
    pending: &Pending,
    answer: Answer<'_>,
    now: Timestamp,
) -> Result<Vouched, Fault> {
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
        verifier: pending.verifier.expose(),
        redirect_uri: callback,
        nonce: pending.nonce.expose(),
        begun_at: pending.begun_at,
        now,
    };
    Ok(provider(relay)?.identify(&brought).await.map_err(|error| told(&error))?)
}

/// A code for the program.
async fn keep(relay: &Context, login: &Login) -> Result<Secret, Fault> {
    let code = Secret::new(base32::encode(&relay.random.bytes::<32>()));
    let kept: Result<(), StoreError> = relay
        .store
        .transact("login", (&code, login), |tx, (code, login)| {
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
