//! The golden tables, their broken kin, and what must be absent.

use super::*;

const DMI_32: &[u8] = include_bytes!("../../../testdata/dmi/DMI.32");
const DMI_64: &[u8] = include_bytes!("../../../testdata/dmi/DMI.64");
const ENTRY_32: &[u8] = include_bytes!("../../../testdata/dmi/entry.32");
const ENTRY_64: &[u8] = include_bytes!("../../../testdata/dmi/entry.64");

const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";

/// The 32-bit entry point with other version bytes and a checksum that holds over `length` bytes.
fn entry_32(major: u8, minor: u8, length: u8) -> Vec<u8> {
    let mut entry = ENTRY_32.to_vec();
    entry.resize(usize::from(length).max(31), 0);
    entry[5] = length;
    entry[6] = major;
    entry[7] = minor;
    entry[4] = 0;
    let sum = entry[..usize::from(length)].iter().fold(0u8, |sum, b| sum.wrapping_add(*b));
    entry[4] = 0u8.wrapping_sub(sum);
    entry
}

fn expected() -> System {
    System {
        uuid_raw: hex::decode("33221100554477668899aabbccddeeff"),
        uuid: Some(UUID.into()),
        serial: Some("SN-0042".into()),
        sku: Some("SKU1".into()),
    }
}

#[test]
fn both_kinds_of_entry_point_give_the_uuid_that_dmidecode_prints() {
    assert_eq!(parse(ENTRY_32, DMI_32), expected());
    assert_eq!(parse(ENTRY_64, DMI_64), expected());
    assert_eq!(version(ENTRY_32), Some(Version { major: 2, minor: 8 }));
    assert_eq!(version(ENTRY_64), Some(Version { major: 3, minor: 0 }));
}

#[test]
fn before_2_6_the_uuid_stands_as_it_is_written() {
    let swapped = Some("33221100-5544-7766-8899-aabbccddeeff".to_owned());
    assert_eq!(parse(&entry_32(2, 4, 31), DMI_32).uuid, swapped);
    assert_eq!(parse(&entry_32(2, 5, 31), DMI_32).uuid, swapped);
    assert_eq!(parse(&entry_32(2, 6, 31), DMI_32).uuid.as_deref(), Some(UUID));
}

#[test]
fn versions_that_do_not_exist_are_read_as_linux_reads_them() {
    assert_eq!(version(&entry_32(2, 0x1f, 31)), Some(Version { major: 2, minor: 3 }));
    assert_eq!(version(&entry_32(2, 0x21, 31)), Some(Version { major: 2, minor: 3 }));
    assert_eq!(version(&entry_32(2, 0x33, 31)), Some(Version { major: 2, minor: 6 }));
}

#[test]
fn an_entry_point_of_64_bytes_is_read() {
    let mut padded = ENTRY_32.to_vec();
    padded.resize(64, 0xa5);
    assert_eq!(parse(&padded, DMI_32), expected());
    assert_eq!(parse(&entry_32(2, 8, 64), DMI_32), expected());
}

#[test]
fn without_a_version_the_byte_order_is_unknown_and_the_uuid_absent() {
    let mut broken = ENTRY_32.to_vec();
    broken[7] ^= 1;
    for entry in [&[][..], b"_SM_", b"_SM3_", &broken, &ENTRY_32[..30], &entry_32(2, 8, 4)] {
        let system = parse(entry, DMI_32);
        assert_eq!(system.uuid, None, "{entry:x?}");
        assert!(system.uuid_raw.is_some());
        assert_eq!(system.serial.as_deref(), Some("SN-0042"));
    }
}

#[test]
fn a_table_without_the_structure_or_with_a_short_one_gives_nothing() {
    assert_eq!(parse(ENTRY_64, &[]), System::default());
    assert_eq!(parse(ENTRY_64, b"\x7f\x04\0\0\0\0"), System::default());
    // SMBIOS 2.0: the structure ends before the UUID.
    let short = b"\x01\x08\0\x01\0\0\0\x01SN\0\0";
    assert_eq!(parse(ENTRY_64, short), System { serial: Some("SN".into()), ..System::default() });
}

#[test]
fn all_zeros_and_all_ones_are_reported_as_they_are() {
    for (byte, text) in
        [(0u8, "00000000-0000-0000-0000-000000000000"), (0xff, "ffffffff-ffff-ffff-ffff-ffffffffffff")]
    {
        let mut table = b"\x01\x1b\0\x01\0\0\0\0".to_vec();
        table.extend([byte; 16]);
        table.extend([6, 0, 0, 0, 0]);
        let system = parse(ENTRY_64, &table);
        assert_eq!(system.uuid.as_deref(), Some(text));
        assert_eq!((system.serial, system.sku), (None, None));
    }
}

/// A small generator: the same broken tables at every run.
struct Xorshift(u64);
impl Xorshift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(bound.max(1)).unwrap()).unwrap()
    }
}

#[test]
fn no_cut_and_no_flipped_bit_makes_it_panic_or_invent() {
    let real = [Some("00112233-4455-6677-8899-aabbccddeeff".to_owned()), None];
    for length in 0..DMI_64.len() {
        let cut = parse(ENTRY_64, &DMI_64[..length]);
        assert!(real.contains(&cut.uuid), "cut at {length}: {cut:?}");
        for length in 0..ENTRY_64.len() {
            assert!(version(&ENTRY_64[..length]).is_none());
        }
    }
    let mut random = Xorshift(0x9e37_79b9_7f4a_7c15);
    for (entry, table) in [(ENTRY_32, DMI_32), (ENTRY_64, DMI_64)] {
        for _ in 0..5_000 {
            let (mut entry, mut table) = (entry.to_vec(), table.to_vec());
            for _ in 0..=random.below(4) {
                let (at, bit) = (random.below(table.len()), random.below(8));
                table[at] ^= 1 << bit;
                let (at, bit) = (random.below(entry.len()), random.below(16));
                entry[at] ^= u8::try_from(1usize << bit >> 8).unwrap_or(0);
            }
            let from = random.below(table.len());
            let to = (from + random.below(8)).min(table.len());
            table.drain(from..to);
            let _ = parse(&entry, &table);
        }
    }
}
