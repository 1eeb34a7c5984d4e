//! Placeholders and identities, on what vendors really ship.

use super::*;

fn uuid_of(text: &str) -> Claim {
    Machine::judge(&Identity { product_uuid: Some(text.into()), ..Identity::default() }).product_uuid
}

fn serial_of(text: &str) -> Claim {
    Machine::judge(&Identity { serial: Some(text.into()), ..Identity::default() }).serial
}

#[test]
fn uuids_fold_and_odd_ones_are_placeholders() {
    let canonical = Claim::Usable("00112233-4455-6677-8899-aabbccddeeff".into());
    for text in [
        "00112233-4455-6677-8899-AABBCCDDEEFF",
        "00112233445566778899aabbccddeeff",
        " 00112233-4455-6677-8899-aabbccddeeff\n",
    ] {
        assert_eq!(uuid_of(text), canonical, "{text:?}");
    }
    for text in [
        "0011-2233445566778899aabbccddeeff",
        "not a uuid",
        "00000000-0000-0000-0000-000000000000",
        "03000200-0400-0500-0006-000700080009",
    ] {
        assert!(matches!(uuid_of(text), Claim::Placeholder(_)), "{text:?}");
    }
    assert_eq!(uuid_of(" "), Claim::Absent);
}

#[test]
fn placeholders_fold_case_blanks_and_punctuation() {
    for text in [
        "To be filled by O.E.M.",
        "TO BE FILLED BY O.E.M",
        "to-be-filled-by-oem",
        "N O N E",
        "0000000",
        "...",
        "x".repeat(257).as_str(),
    ] {
        assert!(matches!(serial_of(text), Claim::Placeholder(_)), "{text:?}");
    }
    assert_eq!(serial_of(" SN-0042 "), Claim::Usable("SN-0042".into()));
    assert_eq!(serial_of("7"), Claim::Usable("7".into()));
}

#[test]
fn real_values_that_look_like_defaults_are_usable() {
    for text in
        ["SN-0042", "123456789-07", "NONE0042", "MB-1234567891", "VMware-56 4d 0f 6c", "0000000007", "ABC"]
    {
        assert!(matches!(serial_of(text), Claim::Usable(_)), "{text:?}");
    }
    for text in ["4c4c4544-0042-3510-8052-b3c04f4b4e32", "76006b9c-c49c-0000-0000-000000000000"] {
        assert!(matches!(uuid_of(text), Claim::Usable(_)), "{text:?}");
    }
}

#[test]
fn defaults_from_the_field_are_placeholders_however_they_are_written() {
    for text in [
        "Default_string",
        "System Serial Number ",
        "SYS-1234567890",
        "Chassis Serial Number",
        "<BAD INDEX>",
        "[Empty]",
        "n/a",
        "................",
        "XXXXXXXXXXXX",
    ] {
        assert!(matches!(serial_of(text), Claim::Placeholder(_)), "{text:?}");
    }
    for text in [
        "00020003-0004-0005-0006-000700080009",
        "FEFEFEFE-FEFE-FEFE-FEFE-FEFEFEFEFEFE",
        "11111111-1111-1111-1111-111111111111",
        "{DEADBEEF-DEAD-BEEF-DEAD-BEEFDEADBEEF}",
    ] {
        assert!(matches!(uuid_of(text), Claim::Placeholder(_)), "{text:?}");
    }
}

#[test]
fn what_is_stored_is_judged_as_it_was() {
    let long = |length: usize| "SN".repeat(length / 2) + if length % 2 == 1 { "7" } else { "" };
    let hidden = "00112233-4455-6677-8899-aabb\u{1}ccddeeff".to_owned();
    let mut odd: Vec<String> =
        ["\0\0", "SN\u{7}1", "a\u{fffd}b", "\u{1}", "é\u{85}", " \0x"].map(String::from).into();
    odd.extend([hidden, "é".repeat(140), "\u{2}".repeat(90)]);
    odd.extend((250..=260).map(long));
    odd.extend((250..=260).map(|length| long(length) + "\u{3}"));
    for text in &odd {
        let claim = Identity {
            product_uuid: Some(text.clone()),
            serial: Some(text.clone()),
            sku: Some(text.clone()),
            ..Identity::default()
        };
        let machine = Machine::judge(&claim);
        assert_eq!(Machine::judge(&machine.to_identity()), machine, "{text:?}");
        assert!(machine.serial.claimed().is_some_and(|shown| shown.len() <= MAX_STRING_BYTES), "{text:?}");
        assert!(!matches!(machine.product_uuid, Claim::Usable(_)), "{text:?}");
    }
    assert!(matches!(serial_of(&long(256)), Claim::Usable(_)));
    assert!(matches!(serial_of(&long(257)), Claim::Placeholder(_)));
}

#[test]
fn every_row_is_folded_and_sourced() {
    let mut values: Vec<_> = PLACEHOLDERS.iter().map(|row| row.folded).collect();
    values.sort_unstable();
    values.dedup();
    assert_eq!(values.len(), PLACEHOLDERS.len(), "a row is there twice");
    for row in PLACEHOLDERS {
        assert!(row.folded.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{row:?}");
        assert!(!row.source.is_empty(), "{row:?}");
        assert!(placeholders::is_placeholder(row.kind, row.folded), "{row:?}");
        let swapped = (row.kind == PlaceholderKind::Uuid).then(|| swapped_digits(row.folded).unwrap());
        if let Some(swapped) = swapped {
            assert!(placeholders::is_placeholder(row.kind, &swapped), "{row:?} in the other byte order");
            assert!(
                swapped == row.folded || !values.iter().any(|other| *other == swapped),
                "{row:?} is there twice"
            );
        }
    }
}

#[test]
fn lists_are_canonical_sorted_and_odd_members_absent() {
    let claim = Identity {
        macs: ["00:1A:2b:3c:4d:5f", "00-1a-2b-3c-4d-5e", "00:00:00:00:00:00", "é:::", "001a2b3c4d5e"]
            .map(String::from)
            .into(),
        gpu_uuids: [
            "GPU-00112233-4455-6677-8899-AABBCCDDEEFF",
            "gpu-00112233445566778899aabbccddeeff",
            "GPU-x",
        ]
        .map(String::from)
        .into(),
        ..Identity::default()
    };
    let machine = Machine::judge(&claim);
    assert_eq!(machine.macs, ["00:1a:2b:3c:4d:5e", "00:1a:2b:3c:4d:5f"]);
    assert_eq!(machine.gpu_uuids, ["GPU-00112233-4455-6677-8899-aabbccddeeff"]);
}

#[test]
fn a_uuid_in_the_other_byte_order_is_recognised() {
    let (one, other) = ("33221100-5544-7766-8899-aabbccddeeff", "00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!(swapped_uuid(one).as_deref(), Some(other));
    assert_eq!(swapped_uuid(other).as_deref(), Some(one));
    assert_eq!(swapped_uuid("00112233"), None);
    assert!(Claim::Usable(one.into()).is_swapped(other));
    assert!(!Claim::Usable(one.into()).is_swapped(one));
    assert!(!Claim::Placeholder(one.into()).is_swapped(other));
    for uuid in [one, other] {
        assert_eq!(uuid_in_one_order(uuid), other, "the lesser of the two");
    }
    assert_eq!(uuid_in_one_order("what is none"), "what is none");
    let same = "00000000-0000-0000-8899-aabbccddeeff";
    assert_eq!(uuid_in_one_order(same), same);
    assert!(!Claim::Usable(same.into()).is_swapped(same), "what reads the same both ways is not swapped");
}
