//! The two SMBIOS files of a machine: broken ones give right or absent values, never a panic.
//!
//! An input's first byte is the length of its entry point; the rest of it is the table. Where that byte is zero, two
//! bytes follow, the version of a well-formed entry point, so that the table is reached without a lucky checksum.
#![no_main]

use bcd::identity::smbios::{MAX_TABLE_BYTES, parse, version};
use libfuzzer_sys::fuzz_target;
use shared::hardware::canonical_uuid;

fuzz_target!(|data: &[u8]| match data {
    [0, major, minor, table @ ..] => machine(&entry_point(*major, *minor), table),
    [length, rest @ ..] => {
        let (entry_point, table) = rest.split_at(rest.len().min(usize::from(*length)));
        machine(entry_point, table);
    }
    [] => {}
});

fn machine(entry_point: &[u8], table: &[u8]) {
    let system = parse(entry_point, table);
    let seen = &table[..table.len().min(MAX_TABLE_BYTES)];
    if let Some(raw) = system.uuid_raw {
        assert!(seen.windows(raw.len()).any(|window| window == raw));
    }
    assert_eq!(system.uuid.is_some(), system.uuid_raw.is_some() && version(entry_point).is_some());
    if let (Some(uuid), Some(raw)) = (&system.uuid, system.uuid_raw) {
        // The bytes are reordered, and nothing else.
        assert_eq!(canonical_uuid(uuid).as_ref(), Some(uuid));
        let mut pairs: Vec<String> = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        let digits = uuid.replace('-', "");
        let mut shown: Vec<&str> = (0..16).map(|at| &digits[2 * at..2 * at + 2]).collect();
        pairs.sort_unstable();
        shown.sort_unstable();
        assert_eq!(pairs, shown);
    }
    for text in [&system.serial, &system.sku].into_iter().flatten() {
        assert!(!text.is_empty() && text.trim() == text);
    }
}

/// A 64-bit entry point (SMBIOS 3.7, 5.2.2) of this version whose checksum holds.
fn entry_point(major: u8, minor: u8) -> Vec<u8> {
    let mut bytes = b"_SM3_".to_vec();
    bytes.extend([0, 24, major, minor]);
    bytes.resize(24, 0);
    let sum = bytes.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte));
    bytes[5] = sum.wrapping_neg();
    bytes
}
