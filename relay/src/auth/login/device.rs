//! A login that a person confirms on another device (RFC 8628). The program has a handle, the relay what the provider gave
//! for it: the device code leaves the relay for the provider alone.
//!
//! - A handle is of no use without the secret whose S256 began the login, as with a code; a try without it ends the login.
//! - The provider is asked as often as it says and not more, by one relay at a time, however often and wherever the program
//!   asks. Where it answers, it vouches to this relay directly: its ID token may name the login's nonce, and must not name
//!   another.
//! - No admin role is given like this: whoever is talked into confirming a login must not give away that much.

use super::{Challenge, From, Given, PROGRAM, grant, provider, s256, spent, told};
use crate::{
    auth::oidc::{Confirmed, MAX_INTERVAL_SECONDS, OidcError, Polled},
    context::Context,
    fault::Fault,
    store::{
        StoreError,
        device_logins::{self, DeviceLogin},
        logins::Login,
    },
};
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
use std::time::Duration;

/// How many logins may wait: anybody can begin one.
const MAX_WAITING: i64 = 4096;
/// How long one relay may wait for the provider's answer before another asks, in seconds.
const ASKING_SECONDS: i64 = 90;
/// How long it waits: shorter, so that no two ask at once, and longer than the provider's documents, keys and answer may take.
const ASKING: Duration = Duration::from_secs(75);
const _: () = assert!(ASKING.as_secs() < ASKING_SECONDS.unsigned_abs());
/// What `slow_down` adds to the interval, in seconds (RFC 8628, 3.5).
const SLOWER_SECONDS: i64 = 5;

/// A login that has begun: what its program keeps, and what the person needs. The device code is not for the program.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Begun {
    /// What the program asks with.
    pub handle: Reveal,
    /// What the person enters.
    pub user_code: String,
    /// Where.
    pub verification_uri: String,
    /// The same with the code in it, where the provider has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verification_uri_complete: Option<String>,
    /// How long it waits, in seconds.
    pub expires_in_seconds: i64,
    /// How long the program waits between two questions, in seconds.
    pub interval_seconds: i64,
}

/// What a program is told of its login.
#[derive(Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Told {
    /// Nothing yet.
    Pending {
        /// When to ask again, in seconds.
        retry_after_seconds: i64,
    },
    /// It was confirmed.
    Issued {
        /// What is known of the token.
        token: Box<Token>,
        /// The token, this once.
        secret: Reveal,
    },
}

/// What a transaction found.
enum Found {
    /// The provider is not to be asked yet, for so many seconds.
    Early(i64),
    /// It is to be asked, by us.
    Due(DeviceLogin),
    /// There is no such login for this program, or it has ended.
    Spent(Problem),
}

/// That the provider offers this.
///
/// # Errors
/// NOT_FOUND where it does not, or there is none; UNAVAILABLE where it does not answer.
pub async fn offered(relay: &Context) -> Result<(), Fault> {
    let offers = provider(relay)?.offers_devices().await.map_err(|error| told(&error))?;
    if offers { Ok(()) } else { Err(not_offered().into()) }
}

/// Begins a login of whoever can show what `challenge` is the S256 of.
///
/// # Errors
/// NOT_FOUND where it is not offered; UNAVAILABLE where the provider does not answer, or too many wait. The store's.
pub async fn begin(relay: &Context, challenge: &Challenge) -> Result<Begun, Fault> {
    let nonce = URL_SAFE_NO_PAD.encode(relay.random.bytes::<32>());
    let now = relay.clock.now();
    let waiting = relay.store.glance("device login", now, |tx, now| Box::pin(device_logins::count(tx, *now)));
    if waiting.await.map_err(|error: StoreError| Fault::from(error))? >= MAX_WAITING {
        let detail = "Too many logins wait to be confirmed on another device; try again.";
        return Err(Problem::new(Code::Unavailable, detail).retry_after(60).into());
    }
    let begun = provider(relay)?.begin_device(&nonce).await.map_err(|error| told(&error))?;
    let code = begun.ok_or_else(not_offered)?;
    let handle = Secret::new(base32::encode(&relay.random.bytes::<32>()));
    let digest = SecretDigest::of(&handle);
    let plain = code.device_code.expose().as_bytes();
    let sealed = relay.keys.seal_carried(&purpose(digest), plain, &relay.random);
    let login = DeviceLogin {
        challenge: challenge.as_str().to_owned(),
        device_code: sealed.map_err(Fault::internal("sealing a device code"))?,
        nonce,
        begun_at: now,
        interval_seconds: code.interval_seconds,
        ask_at: now.plus_seconds(code.interval_seconds),
        expires_at: now.plus_seconds(code.expires_in_seconds),
    };
    let kept: Result<(), StoreError> = relay
        .store
        .transact("device login", (digest, &login), |tx, (digest, login)| {
            Box::pin(device_logins::insert(tx, *digest, login))
        })
        .await;
    kept?;
    Ok(Begun {
        handle: handle.reveal(),
        user_code: code.user_code,
        verification_uri: code.verification_uri,
        verification_uri_complete: code.verification_uri_complete,
        expires_in_seconds: code.expires_in_seconds,
        interval_seconds: code.interval_seconds,
    })
}

/// Says whether a login was confirmed; its token, if it was. Makes the user and its tenant at its first login.
///
/// # Errors
/// UNAUTHENTICATED for a handle that is not good or not this program's, and where the person or the provider refused; it is
/// spent then. UNAVAILABLE where the provider does not answer. The store's.
pub async fn confirm(
    relay: &Context,
    handle: &Secret,
    verifier: &Secret,
    from: &From<'_>,
) -> Result<Told, Fault> {
    let digest = SecretDigest::of(handle);
    let login = match found(relay, digest, verifier).await? {
        Found::Early(seconds) => return Ok(Told::Pending { retry_after_seconds: seconds }),
        Found::Spent(problem) => return Err(problem.into()),
        Found::Due(login) => login,
    };
    let opened = relay.keys.open_carried(&purpose(digest), &login.device_code);
    let opened = opened.map_err(Fault::internal("opening a device code"))?;
    let device_code = Secret::new(String::from_utf8_lossy(&opened).into_owned());
    let confirmed = Confirmed {
        device_code: &device_code,
        nonce: &login.nonce,
        begun_at: login.begun_at,
        now: relay.clock.now(),
    };
    let asked = tokio::time::timeout(ASKING, provider(relay)?.poll_device(&confirmed)).await;
    match asked.unwrap_or(Err(OidcError::Failed)) {
        Ok(Polled::Vouched(who)) => {
            let now = relay.clock.now();
            let of_user = Login {
                challenge: login.challenge,
                who,
                admin_role: None,
                logged_in_at: now,
                expires_at: now,
            };
            let (token, secret) = give(relay, digest, &of_user, from).await?;
            Ok(Told::Issued { token: Box::new(token), secret: secret.reveal() })
        }
        Ok(Polled::Pending) => wait(relay, digest, login.interval_seconds).await,
        Ok(Polled::SlowDown) => {
            wait(relay, digest, (login.interval_seconds + SLOWER_SECONDS).min(MAX_INTERVAL_SECONDS)).await
        }
        Err(error) => {
            let problem = told(&error);
            if is_final(&error) {
                end(relay, digest).await?;
            } else {
                wait(relay, digest, login.interval_seconds).await?;
            }
            Err(problem.into())
        }
    }
}

/// Whether the login is over: the provider said no, or vouched in a way that does not count.
const fn is_final(error: &OidcError) -> bool {
    matches!(error, OidcError::Refused(_) | OidcError::IdToken(_))
}

/// Finds a login, and keeps others from asking the provider while we do.
async fn found(relay: &Context, digest: SecretDigest, verifier: &Secret) -> Result<Found, Fault> {
    relay
        .store
        .transact("device login", (relay, digest, verifier), |tx, (relay, digest, verifier)| {
            Box::pin(async move {
                let now = relay.clock.now();
                let Some(login) = device_logins::lock(tx, *digest).await? else {
                    return Ok(Found::Spent(spent()));
                };
                let proved = same_bytes(s256(verifier.expose()).as_bytes(), login.challenge.as_bytes());
                if !proved || login.expires_at <= now {
                    device_logins::take(tx, *digest).await?;
                    return Ok(Found::Spent(if proved { late() } else { spent() }));
                }
                if now < login.ask_at {
                    return Ok(Found::Early(seconds_until(login.ask_at, now)));
                }
                let other = now.plus_seconds(ASKING_SECONDS);
                device_logins::wait(tx, *digest, login.interval_seconds, other).await?;
                Ok::<_, Fault>(Found::Due(login))
            })
        })
        .await
}

/// Whole seconds, so that who waits for them is not early.
fn seconds_until(time: Timestamp, now: Timestamp) -> i64 {
    time.seconds().saturating_sub(now.seconds()).saturating_add(1).clamp(1, MAX_INTERVAL_SECONDS)
}

async fn wait(relay: &Context, digest: SecretDigest, seconds: i64) -> Result<Told, Fault> {
    let work = (digest, seconds, relay.clock.now().plus_seconds(seconds));
    let noted: Result<(), StoreError> = relay
        .store
        .transact("device login", work, |tx, (digest, seconds, ask_at)| {
            Box::pin(device_logins::wait(tx, *digest, *seconds, *ask_at))
        })
        .await;
    noted?;
    Ok(Told::Pending { retry_after_seconds: seconds })
}

async fn end(relay: &Context, digest: SecretDigest) -> Result<(), Fault> {
    let ended: Result<bool, StoreError> = relay
        .store
        .transact("device login", digest, |tx, digest| Box::pin(device_logins::take(tx, *digest)))
        .await;
    Ok(ended.map(drop)?)
}

async fn give(relay: &Context, digest: SecretDigest, login: &Login, from: &From<'_>) -> Result<Given, Fault> {
    let work = (relay, digest, login, from);
    let given = relay.store.transact("login", work, |tx, (relay, digest, login, from)| {
        Box::pin(async move {
            if !device_logins::take(tx, *digest).await? {
                return Ok(Err(spent()));
            }
            grant::give(tx, relay, login, PROGRAM, from).await
        })
    });
    let given: Result<Result<Given, Problem>, Fault> = given.await;
    let given = given??;
    grant::say(&given, from);
    Ok(given)
}

/// A device code opens only for the login that it belongs to.
fn purpose(digest: SecretDigest) -> String {
    format!("device_logins/{}/device_code", digest.to_hex())
}

fn not_offered() -> Problem {
    let detail = "The identity provider offers no login by another device (its document has no \
                  device_authorization_endpoint); log in by a browser.";
    Problem::new(Code::NotFound, detail)
}

fn late() -> Problem {
    Problem::new(Code::Unauthenticated, "Nobody confirmed the login in time; begin again.")
}
