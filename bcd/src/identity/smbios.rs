//! The System Information structure (type 1) of an SMBIOS table: UUID, serial, SKU.
//!
//! A pure function of the two files that the kernel gives (`smbios_entry_point` and `DMI`). It never panics, whatever
//! the bytes are, and never guesses: a UUID whose byte order is unknown (no readable version) is absent.

use shared::hex;
use smbioslib::{SMBiosStruct as _, SMBiosSystemInformation, UndefinedStructTable};

/// The most bytes of either file that are looked at. Real tables have a few kilobytes.
pub const MAX_TABLE_BYTES: usize = 1024 * 1024;

/// The kind and place of the UUID in the structure (SMBIOS 3.7, 7.2).
const UUID_AT: std::ops::Range<usize> = 0x08..0x18;

/// A version of the SMBIOS specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major.
    pub major: u8,
    /// Minor.
    pub minor: u8,
}

/// What the table says of the system. An unset string is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct System {
    /// The sixteen bytes as they stand in the table.
    pub uuid_raw: Option<[u8; 16]>,
    /// The same by the byte order of the version, as 8-4-4-4-12 in lower case.
    pub uuid: Option<String>,
    /// Serial number, trimmed.
    pub serial: Option<String>,
    /// SKU number, trimmed.
    pub sku: Option<String>,
}

/// Reads the first System Information structure. What is broken is absent.
#[must_use]
pub fn parse(entry_point: &[u8], table: &[u8]) -> System {
    let version = version(entry_point);
    let bounded = table.get(..MAX_TABLE_BYTES).unwrap_or(table);
    let structures = UndefinedStructTable::from(bounded.to_vec());
    let Some(system) = structures.first::<SMBiosSystemInformation<'_>>() else { return System::default() };
    let uuid_raw: Option<[u8; 16]> =
        system.parts().get_field_data(UUID_AT.start, UUID_AT.end).and_then(|bytes| bytes.try_into().ok());
    let text = |value: Option<String>| value.map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
    System {
        uuid_raw,
        uuid: uuid_raw.zip(version).map(|(raw, version)| decode_uuid(&raw, version)),
        serial: text(system.serial_number().to_utf8_lossy()),
        sku: text(system.sku_number().to_utf8_lossy()),
    }
}

/// The version that an entry point states, if its checksum holds.
///
/// The library's own reader is not used: it panics on a 32-bit entry point with bytes behind the 31 that it has, and
/// some kernels hand over more.
#[must_use]
pub fn version(entry_point: &[u8]) -> Option<Version> {
    let (length_at, version_at) = match entry_point {
        [b'_', b'S', b'M', b'3', b'_', ..] => (6, 7),
        [b'_', b'S', b'M', b'_', ..] => (5, 6),
        _ => return None,
    };
    let length = usize::from(*entry_point.get(length_at)?);
    let summed = entry_point.get(..length)?;
    if summed.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) != 0 {
        return None;
    }
    let major = *summed.get(version_at)?;
    let minor = *summed.get(version_at + 1)?;
    Some(corrected(Version { major, minor }))
}

/// Some BIOSes state versions that do not exist; Linux (dmi_scan.c, dmi_smbios3_present and dmi_present) corrects
/// the same ones, and `product_uuid` in sysfs must agree with us.
fn corrected(stated: Version) -> Version {
    match (stated.major, stated.minor) {
        (2, 0x1f | 0x21) => Version { major: 2, minor: 3 },
        (2, 0x33) => Version { major: 2, minor: 6 },
        _ => stated,
    }
}

/// From 2.6 the first three fields are little-endian; before, all sixteen bytes stand as they are written.
fn decode_uuid(raw: &[u8; 16], version: Version) -> String {
    let mut bytes = *raw;
    if version >= (Version { major: 2, minor: 6 }) {
        let [a, b, c, d, e, f, g, h, rest @ ..] = *raw;
        let [i, j, k, l, m, n, o, p] = rest;
        bytes = [d, c, b, a, f, e, h, g, i, j, k, l, m, n, o, p];
    }
    let digits = hex::encode(&bytes);
    shared::hardware::canonical_uuid(&digits).unwrap_or(digits)
}

#[cfg(test)]
mod tests;
