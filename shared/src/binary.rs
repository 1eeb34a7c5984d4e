//! Bytes on the wire: padded standard base64 (RFC 4648, section 4), bounded.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt};

/// At most `MAX` bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Binary<const MAX: usize>(Vec<u8>);

impl<const MAX: usize> Binary<MAX> {
    /// Takes the bytes over; `None` if there are too many.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() <= MAX).then_some(Self(bytes))
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The longest text, in characters.
    const MAX_LENGTH: usize = MAX.div_ceil(3) * 4;
}

impl<const MAX: usize> fmt::Debug for Binary<MAX> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.0.len())
    }
}

impl<const MAX: usize> Serialize for Binary<MAX> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de, const MAX: usize> Deserialize<'de> for Binary<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let bytes = Some(&*text).filter(|text| text.len() <= Self::MAX_LENGTH);
        let bytes = bytes.and_then(|text| STANDARD.decode(text).ok()).and_then(Self::new);
        bytes.ok_or_else(|| D::Error::custom(format!("must be padded base64 of at most {MAX} bytes")))
    }
}

impl<const MAX: usize> JsonSchema for Binary<MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Binary_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "string",
            "contentEncoding": "base64",
            "maxLength": Self::MAX_LENGTH,
            "pattern": "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_and_what_is_no_base64_or_too_long_is_refused() {
        for length in 0..=7 {
            let bytes = Binary::<7>::new((0..length).collect()).unwrap();
            let text = serde_json::to_string(&bytes).unwrap();
            assert_eq!(serde_json::from_str::<Binary<7>>(&text).unwrap(), bytes);
        }
        assert!(Binary::<7>::new(vec![0; 8]).is_none());
        for text in ["AAAAAAAAAAA=", "AAAA\\n", "AA", "AA=", "AB==", "-_==", " AA==", "AAAAAAAAAAAAAAAA"] {
            assert!(serde_json::from_str::<Binary<7>>(&format!("\"{text}\"")).is_err(), "{text}");
        }
    }
}
