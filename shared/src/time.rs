//! Points in time and their one form on the wire: RFC 3339, UTC, milliseconds.
//!
//! Nothing here reads a clock; whoever needs "now" is given a [`Timestamp`].

use ::time::{OffsetDateTime, format_description::well_known::Rfc3339};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, time::Duration};

/// Milliseconds since 1970-01-01T00:00:00Z; negative before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The last point that the wire form can say, 9999-12-31T23:59:59.999Z.
    pub const MAX: Self = Self(253_402_300_799_999);
    /// The first one, 0000-01-01T00:00:00.000Z.
    pub const MIN: Self = Self(-62_167_219_200_000);

    /// From milliseconds since the epoch, held to what the wire form can say.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        if millis > Self::MAX.0 {
            Self::MAX
        } else if millis < Self::MIN.0 {
            Self::MIN
        } else {
            Self(millis)
        }
    }

    /// From whole seconds since the epoch (as certificates and HTTP say it).
    #[must_use]
    pub const fn from_seconds(seconds: i64) -> Self {
        Self::from_millis(seconds.saturating_mul(1000))
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    #[must_use]
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// This time and `seconds` more (fewer, if negative), held to what the wire form can say.
    #[must_use]
    pub const fn plus_seconds(self, seconds: i64) -> Self {
        Self::from_millis(self.0.saturating_add(seconds.saturating_mul(1000)))
    }

    /// How long after `earlier` this is; zero if it is not after it.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The same point for the crates that speak in `OffsetDateTime`, at whole seconds (X.509 has no finer).
    #[must_use]
    pub fn to_offset_date_time(self) -> OffsetDateTime {
        OffsetDateTime::from_unix_timestamp(self.seconds()).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    }

    /// Reads an RFC 3339 time; finer parts than milliseconds are cut.
    ///
    /// # Errors
    /// The text is not RFC 3339.
    pub fn parse(text: &str) -> Result<Self, InvalidTime> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| InvalidTime)?;
        let millis = parsed.unix_timestamp_nanos().div_euclid(1_000_000);
        i64::try_from(millis).map(Self::from_millis).map_err(|_| InvalidTime)
    }
}

/// The text was not an RFC 3339 time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an RFC 3339 time such as 2026-01-02T03:04:05.678Z")]
pub struct InvalidTime;

impl fmt::Display for Timestamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.to_offset_date_time();
        write!(
            out,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            at.year(),
            u8::from(at.month()),
            at.day(),
            at.hour(),
            at.minute(),
            at.second(),
            self.0.rem_euclid(1000)
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(D::Error::custom)
    }
}

impl JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_has_milliseconds_and_comes_back() {
        for (text, millis) in [
            ("1970-01-01T00:00:00.000Z", 0),
            ("2026-01-02T03:04:05.678Z", 1_767_323_045_678),
            ("1969-12-31T23:59:59.999Z", -1),
        ] {
            assert_eq!(Timestamp::from_millis(millis).to_string(), text);
            assert_eq!(Timestamp::parse(text), Ok(Timestamp::from_millis(millis)));
        }
        assert_eq!(
            Timestamp::parse("2026-01-02T04:04:05.6789+01:00"),
            Timestamp::parse("2026-01-02T03:04:05.678Z")
        );
        assert_eq!(Timestamp::parse("yesterday"), Err(InvalidTime));
        assert_eq!(Timestamp::from_millis(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::MIN.to_string(), "0000-01-01T00:00:00.000Z");
    }

    #[test]
    fn spans_never_underflow() {
        let early = Timestamp::from_seconds(10);
        assert_eq!(early.plus_seconds(5).since(early), Duration::from_secs(5));
        assert_eq!(early.since(early.plus_seconds(5)), Duration::ZERO);
        assert_eq!(Timestamp::MAX.plus_seconds(i64::MAX), Timestamp::MAX);
    }
}
