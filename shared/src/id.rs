//! Typed ids: a prefix that says what the id names, then Crockford base32.
//!
//! Drawn ids are ULIDs (48 bits of milliseconds, 80 random bits: 26 characters), so that lists in order of id
//! are lists in order of making. Derived ids (join tokens) carry 52 characters of a SHA-256 instead.

use crate::{base32, time::Timestamp};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

/// Random bytes that a drawn id takes.
pub const RANDOM_BYTES: usize = 10;
/// The characters of a ULID, and those of its milliseconds.
const ULID_CHARS: usize = 26;
const MILLIS_CHARS: usize = 10;

/// What an id names. Implemented by the empty types below only.
pub trait Kind {
    /// The text before the base32 part, with its underscore.
    const PREFIX: &'static str;
    /// The schema's name.
    const NAME: &'static str;
}

/// An id of one kind; the text is known to be prefix + 26 to 52 characters of base32.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id<K>(String, PhantomData<fn() -> K>);

/// Declares the kinds: one line each.
macro_rules! kinds {
    ($($(#[$doc:meta])* $alias:ident, $kind:ident, $prefix:literal;)*) => {$(
        /// The kind behind the alias of the same name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $kind {}
        impl Kind for $kind {
            const PREFIX: &'static str = $prefix;
            const NAME: &'static str = stringify!($alias);
        }
        $(#[$doc])*
        pub type $alias = Id<$kind>;
    )*};
}

kinds! {
    /// A join token, `jt_…`.
    JoinTokenId, JoinToken, "jt_";
    /// A join request, `jr_…`.
    JoinRequestId, JoinRequest, "jr_";
    /// A node, `nd_…`.
    NodeId, Node, "nd_";
    /// A pool's own id, `pl_…` (its `poolId` is the operator's name for it).
    PoolUid, Pool, "pl_";
    /// An API or user token, `tk_…`.
    TokenId, Token, "tk_";
    /// An event, `ev_…`.
    EventId, Event, "ev_";
    /// A record of the audit, `au_…`.
    AuditId, Audit, "au_";
    /// An invite, `inv_…`.
    InviteId, Invite, "inv_";
    /// A signing key of tokens, `sk_…`.
    SigningKeyId, SigningKey, "sk_";
    /// A task, `task_…`.
    TaskId, Task, "task_";
    /// A bundle of endorsement authorities, `ea_…`.
    EndorsementAuthorityId, EndorsementAuthority, "ea_";
    /// A webhook, `wh_…`.
    WebhookId, Webhook, "wh_";
    /// A step that a machine's agent does, `ms_…`.
    MetalStepId, MetalStep, "ms_";
}

impl<K: Kind> Id<K> {
    /// A new id from the time and [`RANDOM_BYTES`] random bytes.
    #[must_use]
    pub fn draw(now: Timestamp, random: [u8; RANDOM_BYTES]) -> Self {
        let millis = u128::from(now.millis().unsigned_abs() & 0xffff_ffff_ffff);
        let tail = random.iter().fold(0u128, |sum, byte| (sum << 8) | u128::from(*byte));
        Self(format!("{}{}", K::PREFIX, base32::encode_u128((millis << 80) | tail)), PhantomData)
    }

    /// The id that a digest gives: the same digest, the same id.
    #[must_use]
    pub fn derive(digest: &[u8; 32]) -> Self {
        Self(format!("{}{}", K::PREFIX, base32::encode(digest)), PhantomData)
    }

    /// The whole text, prefix included.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// When an id was drawn; `None` of one that was derived.
    #[must_use]
    pub fn drawn_at(&self) -> Option<Timestamp> {
        let ulid = self.0.strip_prefix(K::PREFIX).filter(|rest| rest.len() == ULID_CHARS)?;
        let millis = base32::decode_number(ulid.get(..MILLIS_CHARS)?)?;
        Some(Timestamp::from_millis(i64::try_from(millis).ok()?))
    }

    /// The pattern that every id of this kind matches, anchored.
    #[must_use]
    pub fn pattern() -> String {
        format!("^{}[0-9a-hjkmnp-tv-z]{{26,52}}$", K::PREFIX)
    }
}

/// The text is no id of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {prefix} and 26 to 52 characters of 0-9, a-z without i, l, o, u")]
pub struct InvalidId {
    prefix: &'static str,
}

impl<K: Kind> FromStr for Id<K> {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let fits = |rest: &str| (26..=52).contains(&rest.len()) && base32::is_base32(rest);
        if text.strip_prefix(K::PREFIX).is_some_and(fits) {
            Ok(Self(text.to_owned(), PhantomData))
        } else {
            Err(InvalidId { prefix: K::PREFIX })
        }
    }
}

impl<K> fmt::Display for Id<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<K> fmt::Debug for Id<K> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<K> Serialize for Id<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de, K: Kind> Deserialize<'de> for Id<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl<K: Kind> JsonSchema for Id<K> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        K::NAME.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": 64, "pattern": Self::pattern()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_ids_are_ulids_in_order_of_time() {
        let zero = NodeId::draw(Timestamp::from_millis(0), [0; 10]);
        assert_eq!(zero.as_str(), format!("nd_{}", "0".repeat(26)));
        // The published example of the ULID specification: 1469918176385 ms is 01ARYZ6S41.
        let known = NodeId::draw(Timestamp::from_millis(1_469_918_176_385), [0xff; 10]);
        assert_eq!(known.as_str(), format!("nd_01aryz6s41{}", "z".repeat(16)));
        let later = NodeId::draw(Timestamp::from_millis(1_469_918_176_386), [0; 10]);
        assert!(known < later);
        assert_eq!(known.as_str().parse::<NodeId>().unwrap(), known);
        assert_eq!(known.drawn_at(), Some(Timestamp::from_millis(1_469_918_176_385)));
        assert_eq!(zero.drawn_at(), Some(Timestamp::from_millis(0)));
        assert_eq!(NodeId::derive(&[1; 32]).drawn_at(), None);
    }

    #[test]
    fn ids_of_another_kind_or_form_do_not_parse() {
        let id = NodeId::derive(&[9; 32]);
        assert_eq!(id.as_str().len(), 3 + 52);
        assert!(id.as_str().parse::<JoinTokenId>().is_err());
        for bad in ["", "nd_", "nd_0123", "nd_01ARYZ6S41TSV4RRFFQ69G5FAV", "nd_01aryz6s41tsv4rrffq69g5fau\n"]
        {
            assert!(bad.parse::<NodeId>().is_err(), "{bad:?}");
        }
    }
}
