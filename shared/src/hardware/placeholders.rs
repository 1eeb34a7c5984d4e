//! The values that vendors leave at their default: one table, each row with the source it was seen in.
//!
//! Compared after folding: lower case, only letters and digits left. A value of one repeated character, or of
//! a counted-up sequence, is a placeholder by rule.

/// What kind of value a row is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlaceholderKind {
    /// A product UUID.
    Uuid,
    /// A serial, SKU or other text.
    Text,
}

/// One default value.
#[derive(Clone, Copy, Debug)]
pub struct Placeholder {
    /// What it is a default for.
    pub kind: PlaceholderKind,
    /// The value, folded.
    pub folded: &'static str,
    /// Where it is described or was seen.
    pub source: &'static str,
}

const fn uuid(folded: &'static str, source: &'static str) -> Placeholder {
    Placeholder { kind: PlaceholderKind::Uuid, folded, source }
}
const fn text(folded: &'static str, source: &'static str) -> Placeholder {
    Placeholder { kind: PlaceholderKind::Text, folded, source }
}

/// Every known default value.
pub const PLACEHOLDERS: &[Placeholder] = &[
    uuid("00000000000000000000000000000000", "SMBIOS 3.7, 7.2.1: all zeros, the system has no ID"),
    uuid("ffffffffffffffffffffffffffffffff", "SMBIOS 3.7, 7.2.1: all ones, the ID is not set"),
    uuid("03000200040005000006000700080009", "AMI Aptio reference code default"),
    text("tobefilledbyoem", "AMI Aptio reference code default"),
    text("defaultstring", "AMI Aptio V reference code default"),
    text("systemserialnumber", "Supermicro and AMI boards"),
    text("notspecified", "dmidecode's word for an unset string"),
    text("notapplicable", "server vendors' unset fields"),
    text("none", "server vendors' unset fields"),
    text("0123456789", "Intel and Supermicro reference boards"),
    text("123456789", "AMI reference boards"),
];

/// Whether the value, folded, is a default.
pub(super) fn is_placeholder(kind: PlaceholderKind, value: &str) -> bool {
    let folded = fold(value);
    folded.is_empty()
        || PLACEHOLDERS.iter().any(|row| row.kind == kind && row.folded == folded)
        || (folded.len() > 1 && one_character(&folded))
}

/// Lower case, letters and digits only.
fn fold(value: &str) -> String {
    value.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn one_character(folded: &str) -> bool {
    folded.chars().next().is_some_and(|first| folded.chars().all(|c| c == first))
}
