//! What a machine says it is: the claim on the wire, and the claim judged by form.
//!
//! An odd form never refuses a join: a UUID or serial that is none counts as a placeholder, a MAC or GPU UUID that
//! is none counts as absent. Placeholders match nothing and collide with nothing. bcd reports, the relay judges,
//! both by [`PLACEHOLDERS`].

use crate::hex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod placeholders;
pub use placeholders::{PLACEHOLDERS, Placeholder, PlaceholderKind};

/// The longest identity string that counts, in bytes.
pub const MAX_STRING_BYTES: usize = 256;
/// The most MACs, and the most GPU UUIDs, of one machine.
pub const MAX_LISTED: usize = 64;

/// The claim on the wire. Every value is as the machine gave it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Identity {
    /// SMBIOS System UUID, decoded by SMBIOS version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// SMBIOS System serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// SMBIOS System SKU number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Permanent hardware addresses.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub macs: Vec<String>,
    /// GPU UUIDs as NVML prints them.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub gpu_uuids: Vec<String>,
    /// The host name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
}

/// One claimed value, judged by its form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Claim {
    /// Not claimed, or blank.
    #[default]
    Absent,
    /// A vendor's default, or no value of its kind at all; as it was claimed.
    Placeholder(String),
    /// In its canonical form.
    Usable(String),
}

impl Claim {
    /// The canonical value, where there is a usable one.
    #[must_use]
    pub fn usable(&self) -> Option<&str> {
        match self {
            Self::Usable(value) => Some(value),
            Self::Absent | Self::Placeholder(_) => None,
        }
    }

    /// What was claimed, in the canonical form where it has one.
    #[must_use]
    pub fn claimed(&self) -> Option<&str> {
        match self {
            Self::Usable(value) | Self::Placeholder(value) => Some(value),
            Self::Absent => None,
        }
    }
}

impl Claim {
    /// Whether this is the UUID `other` with its first three fields in the other byte order, as machines and their BMCs
    /// give them when they disagree about SMBIOS 2.6.
    #[must_use]
    pub fn is_swapped(&self, other: &str) -> bool {
        self.usable().is_some_and(|own| own != other && swapped_uuid(own).as_deref() == Some(other))
    }
}

/// A canonical UUID with its first three fields in the other byte order; `None` if it is no canonical UUID.
#[must_use]
pub fn swapped_uuid(uuid: &str) -> Option<String> {
    let digits: String = uuid.chars().filter(|digit| *digit != '-').collect();
    canonical_uuid(&swapped_digits(&digits)?)
}

/// One value for both byte orders of a canonical UUID: the lesser of them. What is no canonical UUID stays as it is.
#[must_use]
pub fn uuid_in_one_order(uuid: &str) -> String {
    match swapped_uuid(uuid) {
        Some(swapped) if swapped.as_str() < uuid => swapped,
        _ => uuid.to_owned(),
    }
}

/// The 32 digits of a UUID with its first three fields in the other byte order; `None` if they are not as many.
fn swapped_digits(digits: &str) -> Option<String> {
    let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
    let byte = |at: usize| digits.get(2 * at..2 * at + 2).unwrap_or_default();
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    String::from_utf8(order.into_iter().flat_map(byte).copied().collect()).ok()
}

/// The whole claim, judged by form: what pins and identity rows are compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// 8-4-4-4-12, lower case.
    pub product_uuid: Claim,
    /// Trimmed, else as claimed: serials are case-sensitive.
    pub serial: Claim,
    /// Trimmed, else as claimed.
    pub sku: Claim,
    /// Six pairs with colons, lower case, sorted, no repeats.
    pub macs: Vec<String>,
    /// `GPU-` and lower case, sorted, no repeats.
    pub gpu_uuids: Vec<String>,
    /// Trimmed.
    pub hostname: Option<String>,
}

impl Machine {
    /// Judges a claim by form. It never fails.
    #[must_use]
    pub fn judge(claim: &Identity) -> Self {
        Self {
            product_uuid: judge_uuid(claim.product_uuid.as_deref()),
            serial: judge_text(claim.serial.as_deref()),
            sku: judge_text(claim.sku.as_deref()),
            macs: canonical_list(&claim.macs, canonical_mac),
            gpu_uuids: canonical_list(&claim.gpu_uuids, canonical_gpu_uuid),
            hostname: claim.hostname.as_deref().and_then(bounded).map(str::to_owned),
        }
    }

    /// Names of the members that hold placeholders, as the wire spells them.
    #[must_use]
    pub fn placeholders(&self) -> Vec<&'static str> {
        let members = [("productUuid", &self.product_uuid), ("serial", &self.serial)];
        members
            .iter()
            .filter(|(_, claim)| matches!(claim, Claim::Placeholder(_)))
            .map(|(name, _)| *name)
            .collect()
    }

    /// The claim in canonical form, as it is stored and shown.
    #[must_use]
    pub fn to_identity(&self) -> Identity {
        let text = |claim: &Claim| claim.claimed().map(str::to_owned);
        Identity {
            product_uuid: text(&self.product_uuid),
            serial: text(&self.serial),
            sku: text(&self.sku),
            macs: self.macs.clone(),
            gpu_uuids: self.gpu_uuids.clone(),
            hostname: self.hostname.clone(),
        }
    }
}

/// A UUID in any case, with or without dashes, as 8-4-4-4-12 in lower case; `None` if it is none.
#[must_use]
pub fn canonical_uuid(text: &str) -> Option<String> {
    let packed: String = text.chars().filter(|c| *c != '-').collect();
    let plain = text.len() == 32;
    let dashed = text.len() == 36
        && text.bytes().enumerate().all(|(at, b)| (b == b'-') == matches!(at, 8 | 13 | 18 | 23));
    if !plain && !dashed {
        return None;
    }
    let bytes: [u8; 16] = hex::decode(&packed)?;
    let digits = hex::encode(&bytes);
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32];
    Some(groups.map(|group| digits.get(group).unwrap_or_default().to_owned()).join("-"))
}

/// A MAC (EUI-48) with colons or dashes as six pairs with colons, lower case; `None` if it is none or all zeros or ones.
#[must_use]
pub fn canonical_mac(text: &str) -> Option<String> {
    let separator = text.chars().nth(2).filter(|c| matches!(c, ':' | '-'))?;
    let pairs: Vec<&str> = text.split(separator).collect();
    let good = |pair: &&str| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit());
    let mac = pairs.join(":").to_ascii_lowercase();
    let empty = mac == "00:00:00:00:00:00" || mac == "ff:ff:ff:ff:ff:ff";
    (pairs.len() == 6 && pairs.iter().all(good) && !empty).then_some(mac)
}

/// `GPU-` and a UUID, lower case behind the prefix; `None` if it is none.
#[must_use]
pub fn canonical_gpu_uuid(text: &str) -> Option<String> {
    let uuid = text.get(..4).filter(|lead| lead.eq_ignore_ascii_case("GPU-")).and_then(|_| text.get(4..))?;
    canonical_uuid(uuid).map(|uuid| format!("GPU-{uuid}"))
}

fn bounded(text: &str) -> Option<&str> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    let odd = |c: char| c.is_control() || c == char::REPLACEMENT_CHARACTER;
    (!text.is_empty() && text.len() <= MAX_STRING_BYTES && !text.chars().any(odd)).then_some(text)
}

fn judge_uuid(text: Option<&str>) -> Claim {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Claim::Absent };
    match canonical_uuid(text.trim()) {
        Some(uuid) if !placeholders::is_placeholder(PlaceholderKind::Uuid, &uuid) => Claim::Usable(uuid),
        Some(uuid) => Claim::Placeholder(uuid),
        None => Claim::Placeholder(cut(text)),
    }
}

fn judge_text(text: Option<&str>) -> Claim {
    let Some(text) = text.filter(|text| !text.trim().is_empty()) else { return Claim::Absent };
    match bounded(text) {
        Some(value) if !placeholders::is_placeholder(PlaceholderKind::Text, value) => {
            Claim::Usable(value.to_owned())
        }
        Some(value) => Claim::Placeholder(value.to_owned()),
        None => Claim::Placeholder(cut(text)),
    }
}

/// An odd value for showing: at most [`MAX_STRING_BYTES`], what can't be shown or has no room replaced by U+FFFD. What is
/// stored is judged again, so that what was odd must stay so: no value with that character is usable.
fn cut(text: &str) -> String {
    const MARK: char = char::REPLACEMENT_CHARACTER;
    let mut shown = String::new();
    for character in text.trim().chars().map(|c| if c.is_control() { MARK } else { c }) {
        if shown.len() + character.len_utf8() > MAX_STRING_BYTES - MARK.len_utf8() {
            shown.push(MARK);
            break;
        }
        shown.push(character);
    }
    shown
}

fn canonical_list(values: &[String], canonical: fn(&str) -> Option<String>) -> Vec<String> {
    let mut list: Vec<String> =
        values.iter().take(MAX_LISTED).filter_map(|value| canonical(value.trim())).collect();
    list.sort();
    list.dedup();
    list
}

#[cfg(test)]
mod tests;
