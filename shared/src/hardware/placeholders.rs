//! The values that vendors leave at their default: one table, each row with the source it was seen in.
//!
//! Compared after folding: lower case, only letters and digits left; a UUID in both byte orders, so that a row stands for
//! both. A value of one repeated character (zeros, F, X)
//! is a placeholder by rule and needs no row, up to [`LONGEST_FILLER`]. A row is a whole value, never a part of one: a
//! real serial may well contain `1234`.

use super::swapped_digits;

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

/// DMTF DSP0134 (SMBIOS) 3.7, 7.2.1.
const SPEC_NO_ID: &str = "SMBIOS 3.7, 7.2.1: all zeros, the system has no ID";
const SPEC_NOT_SET: &str = "SMBIOS 3.7, 7.2.1: all ones, the ID is not set";
/// Found on more than one computer by a vendor of inventory software.
const CAPA: &str = "CapaSystems, CapaInstaller documentation, page Non-Unique UUID";
const HAY: &str = "A. C. Hay, SMBIOS UUID FAIL (2012), read from real computers";
const HWDB: &str = "systemd, hwdb.d/20-dmi-id.hwdb, mostly meaningless names (AMI's and ASUS' defaults)";
const DMIDECODE: &str = "dmidecode and sysfs, words printed for a value that is not there";
const ASUS: &str = "lshw and dmidecode reports of ASUS boards (P4C800, P5V, A8N) in public bug trackers";
const GENERIC: &str = "serials that GLPI's FusionInventory and similar servers refuse to merge machines by";
const AGENTS: &str = "in the filter lists of several public inventory agents (surveyed in 2026)";

/// The longest value of one repeated character that is a default, in bytes: SMBIOS before 2.7 limits strings to 64.
const LONGEST_FILLER: usize = 64;

/// Every known default value. A UUID stands in one byte order.
pub const PLACEHOLDERS: &[Placeholder] = &[
    uuid("00000000000000000000000000000000", SPEC_NO_ID),
    uuid("ffffffffffffffffffffffffffffffff", SPEC_NOT_SET),
    uuid("03000200040005000006000700080009", CAPA),
    uuid("58585858585858585858585858585858", HAY),
    uuid("fefefefefefefefefefefefefefefefe", CAPA),
    uuid("07090201010303010807060504030201", CAPA),
    uuid("56f49712ffffffffffffffffffffffff", CAPA),
    uuid("93309712ffffffffffffffffffffffff", CAPA),
    uuid("50fb9712ffffffffffffffffffffffff", CAPA),
    uuid("61f39712ffffffffffffffffffffffff", CAPA),
    uuid("52309712ffffffffffffffffffffffff", CAPA),
    uuid("dc698397fa544cf282c8b1b5307a6a7f", CAPA),
    uuid("8e275844178f44a8aceba7d7e5178c63", CAPA),
    uuid("890e2d14cacd45d1ae66bc80e8bfeb0f", CAPA),
    uuid("000102030405060708090a0b0c0d0e0f", AGENTS),
    uuid("deadbeefdeadbeefdeadbeefdeadbeef", AGENTS),
    text("tobefilledbyoem", HWDB),
    text("defaultstring", HWDB),
    text("oem", HWDB),
    text("na", HWDB),
    text("systemproductname", HWDB),
    text("systemname", HWDB),
    text("systemmanufacturer", HWDB),
    text("notspecified", DMIDECODE),
    text("notpresent", DMIDECODE),
    text("notsettable", DMIDECODE),
    text("badindex", DMIDECODE),
    text("outofspec", DMIDECODE),
    text("mb1234567890", ASUS),
    text("sys1234567890", GENERIC),
    text("asset1234567890", AGENTS),
    text("123456789000", ASUS),
    text("chassismanufacture", ASUS),
    text("chassisversion", ASUS),
    text("eval", GENERIC),
    text("serialnumberxxxxxx", GENERIC),
    text("systemserialnumber", AGENTS),
    text("systemversion", AGENTS),
    text("systemskunumber", AGENTS),
    text("systemsku", AGENTS),
    text("sku", AGENTS),
    text("chassisserialnumber", AGENTS),
    text("baseboardserialnumber", AGENTS),
    text("type2boardserialnumber", AGENTS),
    text("boardserialnumber", AGENTS),
    text("serialnumber", AGENTS),
    text("serialnum", AGENTS),
    text("serial", AGENTS),
    text("noserialnumber", AGENTS),
    text("notapplicable", AGENTS),
    text("notavailable", AGENTS),
    text("notprovided", AGENTS),
    text("notdefined", AGENTS),
    text("unspecified", AGENTS),
    text("undefined", AGENTS),
    text("unknown", AGENTS),
    text("invalid", AGENTS),
    text("none", AGENTS),
    text("null", AGENTS),
    text("nil", AGENTS),
    text("no", AGENTS),
    text("empty", AGENTS),
    text("tbd", AGENTS),
    text("tbdbyodm", AGENTS),
    text("tobedefinedbyoem", AGENTS),
    text("tobefilled", AGENTS),
    text("filledbyoem", AGENTS),
    text("fillbyoem", AGENTS),
    text("oemstring", AGENTS),
    text("oemdefine0", AGENTS),
    text("oemdefine1", AGENTS),
    text("oemid", AGENTS),
    text("noassettag", AGENTS),
    text("noassetinformation", AGENTS),
    text("assettag", AGENTS),
    text("standard", AGENTS),
    text("other", AGENTS),
    text("default", AGENTS),
    text("0", AGENTS),
    text("0123456789", AGENTS),
    text("0123456789abcdef", AGENTS),
    text("1234567", AGENTS),
    text("12345678", AGENTS),
    text("123456789", AGENTS),
    text("1234567890", AGENTS),
    text("123456789012", AGENTS),
    text("9876543210", AGENTS),
    text("abcdefghijklm", AGENTS),
    text("5ekpm18320000397", AGENTS),
];

/// Whether the value, folded, is a default.
pub(super) fn is_placeholder(kind: PlaceholderKind, value: &str) -> bool {
    let folded = fold(value);
    let swapped = if kind == PlaceholderKind::Uuid { swapped_digits(&folded) } else { None };
    let is = |row: &Placeholder| row.folded == folded || swapped.as_deref() == Some(row.folded);
    folded.is_empty()
        || PLACEHOLDERS.iter().any(|row| row.kind == kind && is(row))
        || ((2..=LONGEST_FILLER).contains(&folded.len()) && one_character(&folded))
}

/// Lower case, letters and digits only.
fn fold(value: &str) -> String {
    value.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

fn one_character(folded: &str) -> bool {
    folded.chars().next().is_some_and(|first| folded.chars().all(|c| c == first))
}
