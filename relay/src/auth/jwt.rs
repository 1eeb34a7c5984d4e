//! The form of a bearer token: a JWT (RFC 7519) signed with ES256, which says whom it acts for and until when, and
//! nothing of what it may do. Pure, but for the signature's randomness.

use super::keys::SigningKey;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, Header, Validation};
use serde::{Deserialize, Serialize};
use shared::{
    api::tokens::TokenType,
    id::{SigningKeyId, TokenId},
    secret::Secret,
    time::Timestamp,
};

/// The longest bearer text that is looked at, in bytes.
const MAX_BYTES: usize = 2_048;
/// How far the clocks of two relays may differ, in seconds: a token may be used before it begins by that much.
const LEEWAY_SECONDS: i64 = 60;

/// What a token says. Times are whole seconds, as RFC 7519 has them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The installation.
    pub iss: String,
    /// The installation, again: a token is for nobody else.
    pub aud: String,
    /// The user or service.
    pub sub: String,
    /// The token.
    pub jti: TokenId,
    /// When it was made.
    pub iat: i64,
    /// When it begins.
    pub nbf: i64,
    /// When it ends.
    pub exp: i64,
    /// What it is.
    pub typ: TokenType,
}

impl Claims {
    /// Whether the token counts at `now`, by its own times.
    #[must_use]
    pub const fn in_time(&self, now: Timestamp) -> bool {
        self.nbf <= now.seconds().saturating_add(LEEWAY_SECONDS) && now.seconds() < self.exp
    }
}

/// What a bearer text says of itself, to whoever has it. Nothing is decided by it but when to ask for the next.
#[derive(Debug, Deserialize)]
pub struct Said {
    /// Its id.
    pub jti: TokenId,
    iat: i64,
    exp: i64,
}

impl Said {
    /// `None` if it is no token of a relay.
    #[must_use]
    pub fn of(bearer: &str) -> Option<Self> {
        let claims = bearer.split('.').nth(1)?;
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()
    }

    /// When it ends.
    #[must_use]
    pub const fn ends(&self) -> Timestamp {
        Timestamp::from_seconds(self.exp)
    }

    /// Whether three quarters of its lifetime are over, and not all of it: it is time to refresh it.
    #[must_use]
    pub const fn is_due(&self, now: Timestamp) -> bool {
        let lifetime = self.exp.saturating_sub(self.iat);
        let from = self.iat.saturating_add(lifetime - lifetime / 4);
        from <= now.seconds() && now.seconds() < self.exp
    }
}

/// The issuer and audience of this installation's tokens: its relays' SPIFFE id, which stays whatever the address.
#[must_use]
pub fn issuer(trust_domain: &str) -> String {
    format!("spiffe://{trust_domain}/relay")
}

/// The bearer form.
///
/// # Errors
/// The key does not sign.
pub fn sign(key: &SigningKey, claims: &Claims) -> Result<Secret, jsonwebtoken::errors::Error> {
    let header = Header { kid: Some(key.id.to_string()), ..Header::new(Algorithm::ES256) };
    jsonwebtoken::encode(&header, claims, &key.signs).map(Secret::new)
}

/// The key that a bearer text says it is signed with; `None` if it is no token of ours. Nothing of it is proved yet.
#[must_use]
pub fn key_of(bearer: &str) -> Option<SigningKeyId> {
    if bearer.len() > MAX_BYTES {
        return None;
    }
    let header = jsonwebtoken::decode_header(bearer).ok().filter(|header| header.alg == Algorithm::ES256)?;
    header.kid?.parse().ok()
}

/// What a bearer text says, if `key` signed it for this installation. Its times are the caller's to judge: the library
/// goes by a clock of its own.
#[must_use]
pub fn read(bearer: &str, key: &SigningKey, issuer: &str) -> Option<Claims> {
    let mut rules = Validation::new(Algorithm::ES256);
    rules.validate_exp = false;
    rules.set_required_spec_claims(&["iss", "aud", "sub", "exp", "nbf"]);
    rules.set_issuer(&[issuer]);
    rules.set_audience(&[issuer]);
    jsonwebtoken::decode::<Claims>(bearer, &key.verifies, &rules).ok().map(|token| token.claims)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Behaviour 96.
    #[test]
    fn a_token_is_refreshed_from_three_quarters_of_its_lifetime() {
        let id = TokenId::derive(&[1; 32]);
        let claims = json!({"jti": id, "iat": 1000, "exp": 2000, "sub": "a"}).to_string();
        let said = Said::of(&format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims))).unwrap();
        for (now, due) in [(0, false), (1749, false), (1750, true), (1999, true), (2000, false)] {
            assert_eq!(said.is_due(Timestamp::from_seconds(now)), due, "{now}");
        }
        for odd in ["", "a.b.c", "a", "a..c"] {
            assert!(Said::of(odd).is_none(), "{odd}");
        }
    }
}
