//! An ID token judged (OpenID Connect Core 1.0, 3.1.3.7): signed by a key of the provider with an algorithm of the list,
//! for this relay, for this login, and now. Pure; the provider's keys and the time are parameters.

#[cfg(test)]
mod tests;

use crate::{config::LoginKey, facts::Vouched};
use jsonwebtoken::{
    Algorithm, DecodingKey, Header, Validation,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse},
};
use serde::Deserialize;
use serde_json::Value;
use shared::{bounded::Label, secret::same_bytes, time::Timestamp};

/// What may sign: nothing symmetric, whose key is the client's secret, and never `none`.
const ALGORITHMS: &[Algorithm] = &[
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::ES256,
    Algorithm::ES384,
];
/// The longest ID token, in bytes.
const MAX_BYTES: usize = 16 << 10;
/// The longest subject, in bytes (Core 2: 255 ASCII characters).
const MAX_SUBJECT_BYTES: usize = 255;
/// The longest address of mail, in bytes (RFC 5321).
const MAX_EMAIL_BYTES: usize = 254;
/// The most keys of a provider that are looked at.
const MAX_KEYS: usize = 64;
/// How far the provider's clock may differ, in seconds.
const LEEWAY_SECONDS: i64 = 60;

/// Why an ID token does not count. No variant holds anything of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdTokenError {
    /// Not the form of an ID token, or too long.
    #[error("it is no ID token of at most 16 KiB")]
    Malformed,
    /// Signed with an algorithm that is not on the list, or not signed.
    #[error("it is not signed by RS256, RS384, RS512, PS256, ES256 or ES384")]
    Algorithm,
    /// No key of the provider fits it.
    #[error("the provider publishes no key that it says it is signed with")]
    UnknownKey,
    /// The signature is wrong.
    #[error("its signature is wrong")]
    Signature,
    /// Another issuer's.
    #[error("it names another issuer than oidc.issuer")]
    Issuer,
    /// For somebody else.
    #[error("it is for another client than oidc.client_id")]
    Audience,
    /// It has ended.
    #[error("it has expired; are the clocks of relay and provider right?")]
    Expired,
    /// It was made in the future, or before this login.
    #[error("it was not made now; are the clocks of relay and provider right?")]
    IssuedAt,
    /// Of another login.
    #[error("its nonce is not this login's")]
    Nonce,
    /// It names nobody.
    #[error("its subject is empty, too long or has control characters")]
    Subject,
    /// It has no address of mail that the provider vouches for.
    #[error("it has no email that the provider verified, and oidc.key is email")]
    Email,
}

/// The keys that a provider publishes.
#[derive(Clone, Debug, Default)]
pub struct Keys(Vec<Jwk>);

impl Keys {
    /// The keys of a JWK Set (RFC 7517) that could sign; others are passed over. `None` if it is no JWK Set.
    #[must_use]
    pub fn parse(document: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let Set { keys } = serde_json::from_slice(document).ok()?;
        let keys = keys.into_iter().take(MAX_KEYS);
        Some(Self(keys.filter_map(|key| serde_json::from_value(key).ok()).collect()))
    }

    /// The key for a header: by its id, or the only one that fits where it names none.
    fn find(&self, header: &Header) -> Option<&Jwk> {
        let mut fitting = self.0.iter().filter(|key| fits(key, header));
        let first = fitting.next()?;
        (header.kid.is_some() || fitting.next().is_none()).then_some(first)
    }
}

fn fits(key: &Jwk, header: &Header) -> bool {
    let common = &key.common;
    let named = header.kid.is_none() || common.key_id == header.kid;
    let signs = common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
    let of_algorithm = common
        .key_algorithm
        .is_none_or(|algorithm| algorithm.to_string().parse::<Algorithm>().ok() == Some(header.alg));
    let of_kind = match (&key.algorithm, header.alg) {
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES256) => curve.curve == EllipticCurve::P256,
        (AlgorithmParameters::EllipticCurve(curve), Algorithm::ES384) => curve.curve == EllipticCurve::P384,
        (AlgorithmParameters::RSA(_), algorithm) => !matches!(algorithm, Algorithm::ES256 | Algorithm::ES384),
        _ => false,
    };
    named && signs && of_algorithm && of_kind
}

/// The word by which an ID token is a login's own.
#[derive(Clone, Copy)]
pub enum Nonce<'a> {
    /// It must have it: a browser brought what the token was given for.
    Always(&'a str),
    /// It must have no other: the provider gave it to the relay directly, for what the relay alone has.
    IfNamed(&'a str),
}

/// What an ID token must be for.
pub struct Expected<'a> {
    /// The provider.
    pub issuer: &'a str,
    /// This relay.
    pub client_id: &'a str,
    /// The login's own word.
    pub nonce: Nonce<'a>,
    /// When the login began.
    pub begun_at: Timestamp,
    /// The time.
    pub now: Timestamp,
    /// What a user is known by.
    pub key: LoginKey,
}

/// What an ID token says. Times are numbers of seconds, perhaps with a fraction (RFC 7519).
#[derive(Deserialize)]
struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    azp: Option<String>,
    exp: f64,
    iat: f64,
    nbf: Option<f64>,
    nonce: Option<String>,
    email: Option<Value>,
    email_verified: Option<Value>,
    preferred_username: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Several(Vec<String>),
}

/// Whom the token vouches for.
///
/// # Errors
/// It does not count; [`IdTokenError::UnknownKey`] may pass once the provider's keys are read again.
pub fn judge(token: &str, keys: &Keys, expected: &Expected<'_>) -> Result<Vouched, IdTokenError> {
    if token.len() > MAX_BYTES {
        return Err(IdTokenError::Malformed);
    }
    let claims = signed(token, keys)?;
    addressed(&claims, expected)?;
    in_time(&claims, expected)?;
    let right = match (expected.nonce, claims.nonce.as_deref()) {
        (Nonce::IfNamed(_), None) => true,
        (Nonce::Always(ours) | Nonce::IfNamed(ours), said) => {
            same_bytes(said.unwrap_or_default().as_bytes(), ours.as_bytes())
        }
    };
    if !right {
        return Err(IdTokenError::Nonce);
    }
    vouched(&claims, expected)
}

/// What a token says that a key of the provider signed.
fn signed(token: &str, keys: &Keys) -> Result<Claims, IdTokenError> {
    // A header that names no algorithm of the library's has none of the list.
    let header = jsonwebtoken::decode_header(token).map_err(|_| IdTokenError::Algorithm)?;
    if !ALGORITHMS.contains(&header.alg) {
        return Err(IdTokenError::Algorithm);
    }
    let key = keys.find(&header).ok_or(IdTokenError::UnknownKey)?;
    let key = DecodingKey::from_jwk(key).map_err(|_| IdTokenError::UnknownKey)?;
    // What it says is judged here: the library goes by a clock of its own.
    let mut rules = Validation::new(header.alg);
    rules.validate_exp = false;
    rules.validate_aud = false;
    rules.required_spec_claims.clear();
    match jsonwebtoken::decode::<Claims>(token, &key, &rules) {
        Ok(read) => Ok(read.claims),
        Err(error) if matches!(error.kind(), jsonwebtoken::errors::ErrorKind::Json(_)) => {
            Err(IdTokenError::Malformed)
        }
        Err(_) => Err(IdTokenError::Signature),
    }
}

fn addressed(claims: &Claims, expected: &Expected<'_>) -> Result<(), IdTokenError> {
    if claims.iss != expected.issuer {
        return Err(IdTokenError::Issuer);
    }
    let (ours, several) = match &claims.aud {
        Audience::One(one) => (one == expected.client_id, false),
        Audience::Several(all) => (all.iter().any(|one| one == expected.client_id), all.len() > 1),
    };
    let party = claims.azp.as_deref();
    let made_for_us = party.map_or(!several, |party| party == expected.client_id);
    if ours && made_for_us { Ok(()) } else { Err(IdTokenError::Audience) }
}

#[expect(clippy::cast_precision_loss, reason = "seconds of our days are far below 2^53")]
fn in_time(claims: &Claims, expected: &Expected<'_>) -> Result<(), IdTokenError> {
    let seconds = |time: Timestamp, plus: i64| time.seconds().saturating_add(plus) as f64;
    if claims.exp <= seconds(expected.now, -LEEWAY_SECONDS) {
        return Err(IdTokenError::Expired);
    }
    let latest = seconds(expected.now, LEEWAY_SECONDS);
    let earliest = seconds(expected.begun_at, -LEEWAY_SECONDS);
    let begun = claims.nbf.is_none_or(|begins| begins <= latest);
    if begun && (earliest..=latest).contains(&claims.iat) { Ok(()) } else { Err(IdTokenError::IssuedAt) }
}

fn vouched(claims: &Claims, expected: &Expected<'_>) -> Result<Vouched, IdTokenError> {
    let sub = word(&claims.sub, MAX_SUBJECT_BYTES).ok_or(IdTokenError::Subject)?;
    let (subject, login) = match expected.key {
        LoginKey::Sub => (sub.to_owned(), sub),
        // No subject of the other kind begins like this by chance: an address is never taken for one.
        LoginKey::Email => {
            let address = verified(claims).ok_or(IdTokenError::Email)?;
            (format!("email:{address}"), address)
        }
    };
    let name = claims.preferred_username.as_ref().and_then(Value::as_str).unwrap_or(login);
    let display_name = [name, login].into_iter().find_map(|name| name.parse::<Label>().ok());
    Ok(Vouched {
        issuer: expected.issuer.to_owned(),
        subject,
        login: login.to_owned(),
        display_name: display_name.map(|name| name.to_string()).unwrap_or_default(),
    })
}

fn verified(claims: &Claims) -> Option<&str> {
    if claims.email_verified != Some(Value::Bool(true)) {
        return None;
    }
    let address = word(claims.email.as_ref()?.as_str()?, MAX_EMAIL_BYTES)?;
    address.contains('@').then_some(address)
}

/// A name that is neither empty nor long and holds nothing that is not shown.
fn word(text: &str, max_bytes: usize) -> Option<&str> {
    let fits = (1..=max_bytes).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then_some(text)
}
