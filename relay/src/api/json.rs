//! JSON of a body, as `serde_json` reads it, but that a member given twice is refused: which of two counts is anybody's
//! guess (RFC 8259, 4), and a check before the relay may have seen the other one.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The most characters of a member's name that an error repeats.
const MAX_SHOWN: usize = 64;

/// Reads one JSON text.
///
/// # Errors
/// It is none, is nested over 128 deep, or gives a member twice.
pub(super) fn parse(body: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(body).map(|Unique(value)| value)
}

/// A value whose objects have each member once.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Self)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut all = Vec::new();
        while let Some(Unique(item)) = items.next_element()? {
            all.push(item);
        }
        Ok(Value::Array(all))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut all = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            if all.contains_key(&name) {
                let shown: String = name.chars().take(MAX_SHOWN).collect();
                return Err(A::Error::custom(format!("the member {shown:?} is given twice")));
            }
            let Unique(member) = members.next_value()?;
            all.insert(name, member);
        }
        Ok(Value::Object(all))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_serde_json_reads_comes_out_the_same() {
        for text in [
            "null",
            "[1,-2,3.5,1e300,18446744073709551615,\"a\\u0000\",true,[],{}]",
            "{\"a\":{\"a\":[{\"a\":1},{\"a\":2}]},\"b\":\"\"}",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), serde_json::from_str::<Value>(text).unwrap());
        }
        for text in ["", "{", "{\"a\":1,}", "1 2", "{\"a\":nan}", &"[".repeat(1000)] {
            assert!(parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_member_given_twice_is_refused_wherever_it_is() {
        for text in ["{\"a\":1,\"a\":1}", "[{\"x\":{\"b\":1,\"c\":2,\"b\":3}}]", "{\"a\":1,\"\\u0061\":2}"] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains("given twice"), "{error}");
        }
    }
}
