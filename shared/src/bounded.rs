//! Constrained strings and integers: parsed once, then known to be right.
//!
//! A [`Rule`] is one row: name, longest length, the pattern for the schema and the same pattern as a
//! function. A test holds the two together, so that the schema and the type never disagree.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{borrow::Cow, fmt, marker::PhantomData, str::FromStr};

/// What a constrained string must be.
pub trait Rule {
    /// The schema's name.
    const NAME: &'static str;
    /// The longest length in bytes.
    const MAX_LENGTH: usize;
    /// The anchored regular expression that the schema shows.
    const PATTERN: &'static str;
    /// The same as [`Rule::PATTERN`], as code. The length is checked apart from it.
    fn accepts(text: &str) -> bool;
}

/// A string that obeys `R`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Text<R>(String, PhantomData<fn() -> R>);

/// What a pattern of a schema asks for, for people: where the words are not known, the pattern itself.
#[must_use]
pub fn words_for(pattern: &str) -> String {
    if let Some((_, words)) = WORDS.iter().find(|(known, _)| *known == pattern) {
        return format!("must be {words}");
    }
    // The pattern of an id, as `id` writes it: "^nd_[...]".
    match pattern.strip_prefix('^').and_then(|rest| rest.split_once('[')) {
        Some((prefix, _)) if prefix.ends_with('_') => {
            format!("must be an id that begins with {prefix}, as lists show it")
        }
        _ => format!("must match {pattern}"),
    }
}

/// The patterns in words, with an example where that says more.
const WORDS: &[(&str, &str)] = &[
    (TenantIdRule::PATTERN, "1 to 128 letters, digits and . _ : - (such as acme)"),
    (NameRule::PATTERN, "1 to 128 letters, digits and . _ : -, the first a letter or digit (such as gpu-a)"),
    (IdempotencyKeyRule::PATTERN, "1 to 128 letters, digits and . _ ~ : / + = -"),
    (
        ProductUuidPinRule::PATTERN,
        "a UUID in hexadecimal digits (such as 4c4c4544-0037-5810-8032-c2c04f4a3233)",
    ),
    (SerialPinRule::PATTERN, "1 to 128 letters, digits and . _ : / + - (such as 7CXK2J3)"),
    (MacPinRule::PATTERN, "six pairs of hexadecimal digits (such as 00:1a:2b:3c:4d:5e)"),
    (GpuUuidPinRule::PATTERN, "GPU- and a UUID, as `nvidia-smi -L` prints it"),
    (Sha256HexRule::PATTERN, "64 hexadecimal digits in lower case"),
    (LabelRule::PATTERN, "1 to 256 characters, none of them a control character"),
    (SecretNameRule::PATTERN, "1 to 128 letters, digits and . _ -, the first a letter or digit"),
    (WebhookUrlRule::PATTERN, "an https:// address without blanks (such as https://hooks.example.org/relay)"),
    (BmcAddressRule::PATTERN, "HOST or HOST:PORT (such as 10.1.0.17 or [fd00::17]:8443)"),
    (SshPublicKeyRule::PATTERN, "a public key as ssh-keygen writes it (such as ssh-ed25519 AAAA… note)"),
    (
        EventPatternRule::PATTERN,
        "a type of events (such as security.node.joined), its beginning (such as security.node.*), or * for all",
    ),
    (crate::api::components::CURSOR_PATTERN, "the cursor of a page of components"),
    (crate::api::tokens::IdOrAllRule::PATTERN, "an id, or * for all that the token's owner has"),
    (
        crate::api::subject::PATTERN,
        "*, self, platform, tenant/ID, project/TENANT/ID, compute-pool/ID or site/ID",
    ),
    (r"^[0-9A-Fa-f.:]{2,45}/[0-9]{1,3}$", "a network (such as 10.0.0.0/8 or fd00::/16)"),
];

/// The text broke the rule; the message says which, not what it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}, at most {max_length} bytes", words_for(pattern))]
pub struct RuleBroken {
    max_length: usize,
    pattern: &'static str,
}

impl<R: Rule> Text<R> {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<R: Rule> FromStr for Text<R> {
    type Err = RuleBroken;
    fn from_str(text: &str) -> Result<Self, RuleBroken> {
        if text.len() <= R::MAX_LENGTH && R::accepts(text) {
            Ok(Self(text.to_owned(), PhantomData))
        } else {
            Err(RuleBroken { max_length: R::MAX_LENGTH, pattern: R::PATTERN })
        }
    }
}

impl<R> fmt::Display for Text<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl<R> fmt::Debug for Text<R> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

impl<R> Serialize for Text<R> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de, R: Rule> Deserialize<'de> for Text<R> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl<R: Rule> JsonSchema for Text<R> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        R::NAME.into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "maxLength": R::MAX_LENGTH, "pattern": R::PATTERN})
    }
}

/// An integer from `MIN` to `MAX`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct Int<const MIN: i64, const MAX: i64>(i64);

impl<const MIN: i64, const MAX: i64> Int<MIN, MAX> {
    /// A constant within the bounds; out of them it does not compile.
    #[must_use]
    pub const fn of<const VALUE: i64>() -> Self {
        const { assert!(VALUE >= MIN && VALUE <= MAX) };
        Self(VALUE)
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl<const MIN: i64, const MAX: i64> TryFrom<i64> for Int<MIN, MAX> {
    type Error = String;
    fn try_from(number: i64) -> Result<Self, String> {
        if (MIN..=MAX).contains(&number) { Ok(Self(number)) } else { Err(format!("must be {MIN} to {MAX}")) }
    }
}

impl<const MIN: i64, const MAX: i64> From<Int<MIN, MAX>> for i64 {
    fn from(number: Int<MIN, MAX>) -> Self {
        number.0
    }
}

impl<const MIN: i64, const MAX: i64> JsonSchema for Int<MIN, MAX> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Integer_{MIN}_{MAX}").into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "integer", "minimum": MIN, "maximum": MAX})
    }
}

/// Whether every byte satisfies `fits`, and there is at least one.
fn all(text: &str, fits: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(fits)
}

/// Whether the text is `head` followed by `count` (inclusive) hexadecimal digits and dashes.
fn hex_dashed(text: &str, shortest: usize) -> bool {
    (shortest..=64).contains(&text.len()) && all(text, |b| b.is_ascii_hexdigit() || b == b'-')
}

/// The rules: a row each.
macro_rules! rules {
    ($($(#[$doc:meta])* $alias:ident, $rule:ident, $max:literal, $pattern:literal, $accepts:expr;)*) => {
        $(
            /// The rule behind the alias of the same name.
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum $rule {}
            impl Rule for $rule {
                const NAME: &'static str = stringify!($alias);
                const MAX_LENGTH: usize = $max;
                const PATTERN: &'static str = $pattern;
                fn accepts(text: &str) -> bool {
                    let accepts: fn(&str) -> bool = $accepts;
                    accepts(text)
                }
            }
            $(#[$doc])*
            pub type $alias = Text<$rule>;
        )*
        #[cfg(test)]
        const ROWS: &[(&str, usize, &str, fn(&str) -> bool)] =
            &[$((stringify!($alias), $max, $pattern, <$rule as Rule>::accepts)),*];
    };
}

rules! {
    /// A tenant's id.
    TenantId, TenantIdRule, 128, "^[A-Za-z0-9._:-]{1,128}$",
        |t| all(t, |b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
    /// An operator's name for a pool, project or site.
    Name, NameRule, 128, "^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
        |t| t.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && all(t, |b| b.is_ascii_alphanumeric() || b"._:-".contains(&b));
    /// What makes a retry the same request.
    IdempotencyKey, IdempotencyKeyRule, 128, "^[A-Za-z0-9._~:/+=-]{1,128}$",
        |t| all(t, |b| b.is_ascii_alphanumeric() || b"._~:/+=-".contains(&b));
    /// A product UUID as an operator writes it: with or without dashes, any case.
    ProductUuidPin, ProductUuidPinRule, 64, "^[0-9A-Fa-f-]{8,64}$", |t| hex_dashed(t, 8);
    /// A serial number.
    SerialPin, SerialPinRule, 128, "^[A-Za-z0-9._:/+-]{1,128}$",
        |t| all(t, |b| b.is_ascii_alphanumeric() || b"._:/+-".contains(&b));
    /// A hardware address.
    MacPin, MacPinRule, 17, "^[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}$",
        |t| t.len() == 17 && t.split(':').count() == 6
            && t.split(':').all(|pair| pair.len() == 2 && all(pair, |b| b.is_ascii_hexdigit()));
    /// A GPU's UUID as NVML prints it.
    GpuUuidPin, GpuUuidPinRule, 68, "^GPU-[0-9A-Fa-f-]{8,64}$",
        |t| t.strip_prefix("GPU-").is_some_and(|rest| hex_dashed(rest, 8));
    /// SHA-256 in lower-case hexadecimal.
    Sha256Hex, Sha256HexRule, 64, "^[0-9a-f]{64}$",
        |t| t.len() == 64 && all(t, |b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    /// A text for people: a display name, a note, a reason.
    Label, LabelRule, 256, "^[^\\x00-\\x1f\\x7f]{1,256}$",
        |t| !t.is_empty() && t.chars().count() <= 256 && !t.bytes().any(|b| b < 0x20 || b == 0x7f);
    /// The name of a platform secret.
    SecretName, SecretNameRule, 128, "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$",
        |t| t.as_bytes().first().is_some_and(u8::is_ascii_alphanumeric)
            && all(t, |b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    /// Where a webhook leads to. The relay parses it fully.
    WebhookUrl, WebhookUrlRule, 1024, "^https://[!-~]{1,1016}$",
        |t| t.strip_prefix("https://").is_some_and(|rest| all(rest, |b| b.is_ascii_graphic()));
    /// Where a BMC is: a host, or a host and a port; an IPv6 address in brackets. The relay parses it fully.
    BmcAddress, BmcAddressRule, 261, "^[A-Za-z0-9.:_\\[\\]-]{1,261}$",
        |t| all(t, |b| b.is_ascii_alphanumeric() || b".:_[]-".contains(&b));
    /// Where an image of a disk is. The relay parses it fully.
    ImageUrl, ImageUrlRule, 1024, "^https://[!-~]{1,1016}$",
        |t| t.strip_prefix("https://").is_some_and(|rest| all(rest, |b| b.is_ascii_graphic()));
    /// A public key of SSH, as a line of `authorized_keys` without options.
    SshPublicKey, SshPublicKeyRule, 2048, "^(?:ssh|ecdsa|sk-ssh|sk-ecdsa)[a-z0-9@.-]{1,64} [A-Za-z0-9+/=]{16,1600}(?: [ -~]{0,128})?$",
        |t| {
            let mut parts = t.splitn(3, ' ');
            let (kind, key, note) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next());
            let rest = ["ssh", "ecdsa", "sk-ssh", "sk-ecdsa"].iter().find_map(|lead| {
                kind.strip_prefix(lead).filter(|rest| (1..=64).contains(&rest.len())
                    && all(rest, |b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"@.-".contains(&b)))
            });
            rest.is_some()
                && (16..=1600).contains(&key.len())
                && all(key, |b| b.is_ascii_alphanumeric() || b"+/=".contains(&b))
                && note.is_none_or(|note| note.len() <= 128 && note.bytes().all(|b| (b' '..=b'~').contains(&b)))
        };
    /// A type of events, the beginning of some, or all.
    EventPattern, EventPatternRule, 64, "^(?:\\*|[a-z]+(?:[.-][a-z]+)*(?:\\.\\*)?)$",
        |t| t == "*" || t.strip_suffix(".*").unwrap_or(t).split(['.', '-'])
            .all(|word| all(word, |b| b.is_ascii_lowercase()));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts at and around the edges of every rule, and each of them with every odd character put in.
    fn samples() -> Vec<String> {
        let seeds = [
            "a",
            "A9._:-",
            "-a",
            ".",
            "GPU-12345678",
            "GPU-1234567",
            "gpu-12345678",
            "00:1a:2B:3c:4d:5e",
            "00:1a:2b:3c:4d",
            "00:1a:2b:3c:4d:5e:6f",
            "0:01a:2b:3c:4d:5e",
            "1234567",
            "12345678",
            "x/y+z=~",
            "https://a.example:1/b?c=d",
            "https://",
            "http://a",
            "*",
            "a.*",
            "a-b.c.*",
            "a.",
            "a..b",
            "a.*.b",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA me@here",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",
            "sk-ecdsa-sha2-nistp256@openssh.com AAAAE2VjZHNhAAAA= a b",
            "ssh AAAAC3NzaC1lZDI1NTE5",
            "ssh-rsa AAAA",
            "command=\"x\" ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA",
        ];
        let mut all: Vec<String> = seeds.iter().map(|s| (*s).to_owned()).collect();
        for length in [0, 7, 8, 63, 64, 65, 127, 128, 129, 256, 257] {
            all.push("a".repeat(length));
            all.push(format!("GPU-{}", "b".repeat(length)));
        }
        let odd = ["\n", "\r\n", " ", "\0", "é", "g", "G", "~", "/", "+", "=", "_", "\u{7f}", "\u{2028}"];
        let plain = all.clone();
        for text in &plain {
            for o in odd {
                all.extend([format!("{text}{o}"), format!("{o}{text}")]);
            }
        }
        all
    }

    #[test]
    fn every_rule_is_said_in_words() {
        for (name, _, pattern, _) in ROWS {
            assert!(!words_for(pattern).contains(pattern), "{name}");
        }
        let id = words_for(&crate::id::NodeId::pattern());
        assert!(id.contains("nd_") && !id.contains('['), "{id}");
        assert_eq!(words_for("^x$"), "must match ^x$");
    }

    #[test]
    fn the_code_of_each_rule_is_its_pattern() {
        for (name, max, pattern, accepts) in ROWS {
            let regex = regex::Regex::new(pattern).unwrap();
            let (mut yes, mut no) = (0, 0);
            for text in samples().iter().filter(|text| text.len() <= *max) {
                assert_eq!(accepts(text), regex.is_match(text), "{name} on {text:?}");
                if accepts(text) { yes += 1 } else { no += 1 }
            }
            assert!(yes > 0 && no > 0, "{name} is tested on both sides");
        }
    }

    #[test]
    fn integers_hold_their_bounds() {
        type Ttl = Int<60, 86_400>;
        for (number, good) in [(59, false), (60, true), (86_400, true), (86_401, false), (-1, false)] {
            assert_eq!(serde_json::from_str::<Ttl>(&number.to_string()).is_ok(), good, "{number}");
        }
        assert!(serde_json::from_str::<Ttl>("60.0").is_err());
        assert_eq!(Ttl::of::<60>().get(), 60);
    }
}
