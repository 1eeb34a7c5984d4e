//! What a permission of an API token is about, as text: `tenant/acme`, `project/acme/ml`, `compute-pool/gpu-a`,
//! `site/north`, `platform`, `self` (the caller's own things), or `*` (every subject that the token's owner has).
//!
//! No id can hold a slash, so that a subject is read in one way only.

use crate::bounded::{Name, TenantId, words_for};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, str::FromStr};

/// The longest subject, in bytes: a project's.
const MAX_LENGTH: usize = 8 + 128 + 1 + 128;

/// The pattern that the schema shows.
pub(crate) const PATTERN: &str = concat!(
    r"^(\*|self|platform|tenant/[A-Za-z0-9._:-]{1,128}|project/[A-Za-z0-9._:-]{1,128}/[A-Za-z0-9][A-Za-z0-9._:-]{0,127}",
    r"|(compute-pool|site)/[A-Za-z0-9][A-Za-z0-9._:-]{0,127})$"
);

/// What a permission is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Subject {
    /// Every subject that the owner has, now and later.
    All,
    /// The caller's own things: its tokens, its profile.
    Own,
    /// The installation.
    Platform,
    /// A tenant, with its projects and their pools.
    Tenant(TenantId),
    /// A project, with its pools.
    Project(TenantId, Name),
    /// A pool.
    ComputePool(Name),
    /// A site.
    Site(Name),
}

/// The text is no subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", words_for(PATTERN))]
pub struct InvalidSubject;

impl FromStr for Subject {
    type Err = InvalidSubject;
    fn from_str(text: &str) -> Result<Self, InvalidSubject> {
        let mut parts = text.splitn(3, '/');
        let (kind, first, second) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
        let tenant = |id: &str| id.parse::<TenantId>().map_err(|_| InvalidSubject);
        let name = |id: &str| id.parse::<Name>().map_err(|_| InvalidSubject);
        match (kind, first, second) {
            ("*", None, None) => Ok(Self::All),
            ("self", None, None) => Ok(Self::Own),
            ("platform", None, None) => Ok(Self::Platform),
            ("tenant", Some(id), None) => Ok(Self::Tenant(tenant(id)?)),
            ("project", Some(of), Some(id)) => Ok(Self::Project(tenant(of)?, name(id)?)),
            ("compute-pool", Some(id), None) => Ok(Self::ComputePool(name(id)?)),
            ("site", Some(id), None) => Ok(Self::Site(name(id)?)),
            _ => Err(InvalidSubject),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => out.write_str("*"),
            Self::Own => out.write_str("self"),
            Self::Platform => out.write_str("platform"),
            Self::Tenant(id) => write!(out, "tenant/{id}"),
            Self::Project(tenant, id) => write!(out, "project/{tenant}/{id}"),
            Self::ComputePool(id) => write!(out, "compute-pool/{id}"),
            Self::Site(id) => write!(out, "site/{id}"),
        }
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Subject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl JsonSchema for Subject {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Subject".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": MAX_LENGTH, "pattern": PATTERN})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subject_is_read_in_one_way_and_said_as_it_was() {
        let regex = regex::Regex::new(PATTERN).unwrap();
        for text in [
            "*",
            "self",
            "platform",
            "tenant/acme",
            "tenant/a:40b.c",
            "project/acme/ml",
            "compute-pool/gpu-a",
            "site/north",
        ] {
            assert!(regex.is_match(text), "{text}");
            assert_eq!(text.parse::<Subject>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "**",
            "tenant",
            "tenant/",
            "tenant/*",
            "tenant/a/b",
            "project/acme",
            "project/acme/",
            "project/acme/-x",
            "project/acme/a/b",
            "compute-pool/",
            "pool/x",
            "self/x",
            "site/a b",
            "tenant/acme\n",
        ] {
            assert!(!regex.is_match(text), "{text:?}");
            assert!(text.parse::<Subject>().is_err(), "{text:?}");
        }
    }
}
