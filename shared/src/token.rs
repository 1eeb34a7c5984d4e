//! The join token as its bearer writes it: `bcjt_<id without its prefix>.<secret>`, that is `bc` and the token's id
//! (`jt_…`), a dot, and the secret (32 random bytes in 52 characters of base32).
//!
//! Only the canonical form parses. The relay keeps SHA-256 of the secret's text and nothing else of it.

use crate::{
    base32,
    id::JoinTokenId,
    secret::{Secret, same_bytes},
};
use sha2::{Digest as _, Sha256};
use std::borrow::Cow;

/// What stands before the token's id.
const LEAD: &str = "bc";
/// Random bytes in a secret.
pub const SECRET_BYTES: usize = 32;
/// The longest bearer form: lead, id, dot, secret.
pub const MAX_LENGTH: usize = 2 + 3 + 52 + 1 + 52;

/// How what people and services show begins, and how many dots it has: an invite's secret, a JWT.
const LEADS: [(&str, usize); 2] = [("inv_", 1), ("eyJ", 2)];
/// What is shown for a text that looks like a secret.
const HIDDEN: &str = "(a token, not shown)";

/// The text without anything in it that looks like a join token or an API credential, for errors that repeat what
/// somebody put in the wrong place.
#[must_use]
pub fn without_tokens(text: &str) -> Cow<'_, str> {
    if !looks_like_token(text) {
        return Cow::Borrowed(text);
    }
    let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = first_token(rest) {
        let (before, token) = rest.split_at(at);
        let end = token.find(|c: char| !is_of_token(c)).unwrap_or(token.len());
        shown.push_str(before);
        shown.push_str(HIDDEN);
        rest = token.split_at(end).1;
    }
    shown.push_str(rest);
    Cow::Owned(shown)
}

/// Whether a join token or an API credential seems to be in this text.
#[must_use]
pub fn looks_like_token(text: &str) -> bool {
    first_token(text).is_some()
}

/// Where the first one begins: `bcjt_` anywhere with something behind it, the others only where a word begins and its
/// dots follow.
fn first_token(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    // How tokens begin is no secret, and what a message about a bad one has to say.
    let has_more = |&(at, lead): &(usize, &str)| {
        let behind = lower.get(at + lead.len()..).unwrap_or_default();
        behind.chars().take_while(|c| is_of_token(*c)).any(|c| c.is_ascii_alphanumeric())
    };
    let join = lower.match_indices("bcjt_").find(has_more).map(|(at, _)| at);
    let others = LEADS.iter().filter_map(|(lead, dots)| {
        let is_one = |&(at, _): &(usize, &str)| {
            let (before, from) = text.split_at(at);
            let begins = !before.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
            let word = from.split(|c: char| !is_of_token(c)).next().unwrap_or_default();
            begins && word.matches('.').count() >= *dots && word.len() >= 16
        };
        text.match_indices(lead).find(is_one).map(|(at, _)| at)
    });
    join.into_iter().chain(others).min()
}

fn is_of_token(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-')
}

/// SHA-256 of a secret's text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SecretDigest([u8; 32]);

impl SecretDigest {
    /// The digest of this secret.
    #[must_use]
    pub fn of(secret: &Secret) -> Self {
        Self(Sha256::digest(secret.expose().as_bytes()).into())
    }

    /// Back from its stored form; `None` if that is not 64 hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        crate::hex::decode(text).map(Self)
    }

    /// The stored form.
    #[must_use]
    pub fn to_hex(self) -> String {
        crate::hex::encode(&self.0)
    }

    /// Whether the secret has this digest, in constant time.
    #[must_use]
    pub fn matches(self, secret: &Secret) -> bool {
        same_bytes(&self.0, &Self::of(secret).0)
    }
}

/// A parsed join token.
pub struct JoinToken {
    /// Which token.
    pub id: JoinTokenId,
    /// What proves that its bearer was given it.
    pub secret: Secret,
}

impl JoinToken {
    /// Makes the bearer's form from 32 random bytes, and the digest to keep.
    #[must_use]
    pub fn mint(id: JoinTokenId, random: &[u8; SECRET_BYTES]) -> (Self, SecretDigest) {
        let secret = Secret::new(base32::encode(random));
        let digest = SecretDigest::of(&secret);
        (Self { id, secret }, digest)
    }

    /// Reads the bearer's form.
    ///
    /// # Errors
    /// The text is not the canonical form; the error never repeats it.
    pub fn parse(text: &str) -> Result<Self, InvalidToken> {
        if text.len() > MAX_LENGTH {
            return Err(InvalidToken::TooLong);
        }
        let rest =
            text.strip_prefix(LEAD).filter(|rest| rest.starts_with("jt_")).ok_or(InvalidToken::Lead)?;
        let (id, secret) = rest.split_once('.').ok_or(InvalidToken::Dot)?;
        let id = id.parse().map_err(|_| InvalidToken::Id)?;
        base32::decode::<SECRET_BYTES>(secret).ok_or(InvalidToken::Secret)?;
        Ok(Self { id, secret: Secret::new(secret.to_owned()) })
    }

    /// The bearer's form, as a secret.
    #[must_use]
    pub fn bearer(&self) -> Secret {
        Secret::new(format!("{LEAD}{}.{}", self.id, self.secret.expose()))
    }
}

/// Where a text stops being a join token. It says the place, never the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// Longer than any token.
    #[error("is longer than a join token ({MAX_LENGTH} characters)")]
    TooLong,
    /// Does not begin as one.
    #[error("must begin with bcjt_ as `relay join-tokens create` shows it once, in one line")]
    Lead,
    /// There is no dot between id and secret.
    #[error("must have a dot between its id and its secret; was it cut off?")]
    Dot,
    /// The id is malformed.
    #[error("has a malformed id; copy it again")]
    Id,
    /// The secret is malformed.
    #[error("has a malformed secret; copy it again, it ends in 52 characters of 0-9 and a-z")]
    Secret,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token() -> (JoinToken, SecretDigest) {
        JoinToken::mint(JoinTokenId::derive(&[3; 32]), &[5; 32])
    }

    #[test]
    fn the_bearer_form_comes_back_and_its_digest_matches() {
        let (token, digest) = token();
        let text = token.bearer();
        assert!(text.expose().starts_with("bcjt_"));
        assert_eq!(text.expose().len(), MAX_LENGTH);
        let parsed = JoinToken::parse(text.expose()).map_err(|e| e.to_string()).unwrap();
        assert_eq!(parsed.id, token.id);
        assert!(digest.matches(&parsed.secret));
        assert!(SecretDigest::from_hex(&digest.to_hex()).unwrap().matches(&parsed.secret));
        assert!(!digest.matches(&Secret::new("other".into())));
    }

    #[test]
    fn what_looks_like_a_token_is_not_shown() {
        let text = token().0.bearer();
        let (bearer, secret) = (text.expose(), text.expose().split_once('.').unwrap().1);
        for said in [
            bearer.to_owned(),
            format!("read {bearer}: No such file"),
            format!("/run/{bearer}/x {bearer}"),
            format!("\"{}\"", bearer.to_uppercase()),
            format!("--token-file={bearer}\n"),
            format!("inv_01hzzzzzzzzzzzzzzzzzzzzzzz.{secret}"),
            format!("eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJ4In0.{secret}"),
        ] {
            let shown = without_tokens(&said);
            assert!(!shown.to_lowercase().contains(secret), "{shown}");
            assert!(shown.contains(HIDDEN), "{shown}");
        }
        assert!(without_tokens(&format!("read {bearer}: No such file")).ends_with(": No such file"));
        let lead = InvalidToken::Lead.to_string();
        assert!(lead.contains("bcjt_"));
        for harmless in [
            "/run/join-token",
            "jt_01hzzzzzzzzzzzzzzzzzzzzzzz",
            "disk_1.img",
            "inv_1.x",
            "tinv_a.bcdefghij",
            "tk_01hzzzzzzzzzzzzzzzzzzzzzzz",
            "eyJ.x.y",
            "bcjt_",
            "it begins with bcjt_. Then",
            &lead,
        ] {
            assert_eq!(without_tokens(harmless), harmless);
        }
        assert_eq!(without_tokens(&format!("bcjt_ is not {bearer}")), format!("bcjt_ is not {HIDDEN}"));
    }

    #[test]
    fn anything_but_the_canonical_form_is_refused_by_its_place() {
        let (token, _) = token();
        let text = token.bearer().expose().to_owned();
        let refused = |text: &str| JoinToken::parse(text).err();
        assert_eq!(refused(""), Some(InvalidToken::Lead));
        assert_eq!(refused(&text.to_uppercase()), Some(InvalidToken::Lead));
        assert_eq!(refused(&text[2..]), Some(InvalidToken::Lead));
        assert_eq!(refused(&text[..40]), Some(InvalidToken::Dot));
        assert_eq!(refused("bcjt_0.1"), Some(InvalidToken::Id));
        assert_eq!(refused(&text[..text.len() - 1]), Some(InvalidToken::Secret));
        assert_eq!(refused(&format!("{}z", &text[..text.len() - 1])), Some(InvalidToken::Secret));
        assert_eq!(refused(&format!("{text}\n")), Some(InvalidToken::TooLong));
    }
}
