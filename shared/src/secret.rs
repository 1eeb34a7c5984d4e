//! Secrets as a type: no `Debug`, no `Display`, no `Serialize`, wiped when dropped.
//!
//! What must be shown once to its owner goes through [`Reveal`], so that the places where a secret leaves
//! the process can be listed by searching for one word.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// A secret text. Compare it with [`Secret::matches`], read it with [`Secret::expose`].
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes the text over; the caller keeps no copy.
    #[must_use]
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, for the one call that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the two are equal, in time that depends on the lengths only.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        same_bytes(self.0.as_bytes(), other.0.as_bytes())
    }

    /// The way out to the caller who may see it, once.
    #[must_use]
    pub fn reveal(self) -> Reveal {
        Reveal(self)
    }
}

/// Whether two byte strings are equal, in time that depends on their lengths only.
#[must_use]
pub fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// What it is read from. An input that carries one can't be serialised.
impl JsonSchema for Secret {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Reveal::json_schema(generator)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// A secret on its way into an answer. It serialises, and is never logged: it has no `Debug`.
#[derive(Clone)]
pub struct Reveal(Secret);

impl Reveal {
    /// Back to the guarded form, as the receiving side wants it.
    #[must_use]
    pub fn into_secret(self) -> Secret {
        self.0
    }
}

impl std::ops::Deref for Reveal {
    type Target = Secret;
    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl Serialize for Reveal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.0.expose())
    }
}

impl<'de> Deserialize<'de> for Reveal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Secret::deserialize(deserializer).map(Self)
    }
}

impl JsonSchema for Reveal {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Secret".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "x-secret": true})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_only_when_equal() {
        let secret = Secret::new("abc".into());
        assert!(secret.matches(&Secret::new("abc".into())));
        assert!(!secret.matches(&Secret::new("abd".into())));
        assert!(!secret.matches(&Secret::new("abcd".into())));
    }

    #[test]
    fn only_a_revealed_secret_serialises() {
        let json = serde_json::to_string(&Secret::new("once".into()).reveal()).unwrap();
        assert_eq!(json, "\"once\"");
    }
}
