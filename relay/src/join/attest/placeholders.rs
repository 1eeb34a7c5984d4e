//! The attestor of identifiers: vendors' defaults, and machines that say nothing of themselves.

use super::Verdict;
use shared::{
    api::{join_requests::DeferReason, pools::PlaceholderPolicy},
    hardware::{Claim, Machine},
};

/// Defers a machine whose product UUID or serial is a placeholder, or that has neither of them and no proven endorsement
/// key. Where the policy is `allowUnique`, one usable identifier is enough.
#[must_use]
pub fn judge(policy: PlaceholderPolicy, machine: &Machine, proven_ek: bool) -> Verdict {
    let claims = [&machine.product_uuid, &machine.serial];
    let usable = proven_ek || claims.iter().any(|claim| claim.usable().is_some());
    let placeholder = claims.iter().any(|claim| matches!(claim, Claim::Placeholder(_)));
    let good = usable && (!placeholder || policy == PlaceholderPolicy::AllowUnique);
    if good { Verdict::Admit } else { Verdict::defer(DeferReason::PlaceholderIdentifiers) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PlaceholderPolicy::{AllowUnique, Defer};
    use shared::hardware::{Identity, PLACEHOLDERS, PlaceholderKind, swapped_uuid};

    const REAL_UUID: &str = "4C4C4544-0043-3510-8052-B3C04F4B4E32";
    const REAL_SERIAL: &str = "CZ3720J2KM";

    /// What becomes of a machine that claims this UUID and this serial, and nothing else, as it sends them.
    fn judged(uuid: &str, serial: &str) -> Verdict {
        let claim =
            Identity { product_uuid: Some(uuid.into()), serial: Some(serial.into()), ..Identity::default() };
        judge(Defer, &Machine::judge(&claim), false)
    }

    fn waits(uuid: &str, serial: &str) -> bool {
        judged(uuid, serial) == Verdict::defer(DeferReason::PlaceholderIdentifiers)
    }

    /// A row's value in all ways in which vendors write such values.
    fn spellings(folded: &str, kind: PlaceholderKind) -> Vec<String> {
        let upper = folded.to_uppercase();
        if kind == PlaceholderKind::Text {
            let spaced: Vec<String> = folded.chars().map(String::from).collect();
            let framed =
                ["  {}  ", "<{}>", "[{}]", "{}.", "$({})", "{}\u{0}"].map(|form| form.replace("{}", folded));
            return [folded.to_owned(), upper, spaced.join(" "), spaced.join("."), spaced.join("_")]
                .into_iter()
                .chain(framed)
                .collect();
        }
        let dashed =
            [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)].map(|(from, to)| &folded[from..to]).join("-");
        let other = swapped_uuid(folded).unwrap();
        let all = [
            folded.to_owned(),
            upper,
            dashed.to_uppercase(),
            format!(" {dashed}\n"),
            format!("{{{dashed}}}"),
        ];
        all.into_iter().chain([other.to_uppercase(), other.replace('-', ""), other, dashed]).collect()
    }

    #[test]
    fn every_row_defers_however_it_is_written_and_in_either_byte_order() {
        for row in PLACEHOLDERS {
            for spelling in spellings(row.folded, row.kind) {
                let deferred = match row.kind {
                    PlaceholderKind::Uuid => waits(&spelling, REAL_SERIAL),
                    PlaceholderKind::Text => waits(REAL_UUID, &spelling),
                };
                assert!(deferred, "{spelling:?} {row:?}");
            }
        }
    }

    #[test]
    fn what_vendors_leave_for_a_serial_defers() {
        for serial in [
            "To be filled by O.E.M.",
            "To Be Filled By O.E.M. ",
            "TO BE FILLED BY O.E.M",
            "To be filled by OEM",
            "Default string",
            "Default String",
            "$(DEFAULT_STRING)",
            "System Serial Number",
            "Chassis Serial Number",
            "Base Board Serial Number",
            "Serial Number:xxxxxx",
            "Type2 - Board Serial Number",
            "MB-1234567890",
            "SYS-1234567890",
            "Asset-1234567890",
            "123456789000",
            "0123456789",
            "0123456789ABCDEF",
            "Not Specified",
            "Not Applicable",
            "Not Available",
            "Not Present",
            "Not Settable",
            "<OUT OF SPEC>",
            "<BAD INDEX>",
            "N/A",
            "NONE",
            "None",
            "(none)",
            "Unknown",
            "INVALID",
            "[Empty]",
            "O.E.M.",
            "00000000",
            "0",
            "XXXXXXXXXX",
            "xxxxxxxxxxxx",
            "................",
            "-",
            "FFFFFFFF",
            "no value\u{7}",
        ] {
            assert!(waits(REAL_UUID, serial), "{serial:?}");
        }
    }

    #[test]
    fn what_vendors_leave_for_a_uuid_defers() {
        for uuid in [
            "00000000-0000-0000-0000-000000000000",
            "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
            "11111111-1111-1111-1111-111111111111",
            "58585858-5858-5858-5858-585858585858",
            "1297F456-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
            "978369DC-54FA-F24C-82C8-B1B5307A6A7F",
            "03020100-0504-0706-0809-0A0B0C0D0E0F",
            "00010203-0405-0607-0809-0a0b0c0d0e0f",
            "EFBEADDE-ADDE-EFBE-DEAD-BEEFDEADBEEF",
            "Not Settable",
            "Not Present",
            "To be filled by O.E.M.",
        ] {
            assert!(waits(uuid, REAL_SERIAL), "{uuid:?}");
        }
    }

    #[test]
    fn what_tells_machines_apart_does_not_defer() {
        for serial in [
            REAL_SERIAL,
            "CN7016379G00KT",
            "S15317X8B24680",
            "PF0ABCDE",
            "J1002ABC",
            "VMware-42 1c 5e 0b 7a 91 3d 44-8f 20 6b c5 19 e7 d2 08",
            "0000000007",
            "123456789-07",
            "NONE0042",
            "Serial-0042",
            "Default-0042",
            "MB-1234567891",
            "7",
        ] {
            assert_eq!(judged(REAL_UUID, serial), Verdict::Admit, "{serial:?}");
        }
        for uuid in [
            REAL_UUID,
            "4c4c4544004335108052b3c04f4b4e32",
            "00000000-0000-0000-0000-AC1F6B123456",
            "03000200-0400-0500-0006-00070008000A",
            "1297F456-FFFF-FFFF-FFFF-FFFFFFFFFFFE",
            "76006b9c-c49c-0000-0000-000000000000",
            "DEADBEEF-DEAD-BEEF-DEAD-BEEFDEADBEE0",
        ] {
            assert_eq!(judged(uuid, REAL_SERIAL), Verdict::Admit, "{uuid:?}");
        }
    }

    #[test]
    fn one_usable_identifier_is_enough_unless_a_placeholder_stands_beside_it() {
        let (good, bad, none) = (Claim::Usable("x".into()), Claim::Placeholder("None".into()), Claim::Absent);
        for (uuid, serial, ek, defer, allow_unique) in [
            (&good, &good, false, true, true),
            (&good, &none, false, true, true),
            (&none, &good, false, true, true),
            (&good, &bad, false, false, true),
            (&bad, &good, false, false, true),
            (&bad, &bad, false, false, false),
            (&bad, &none, false, false, false),
            (&none, &none, false, false, false),
            (&none, &none, true, true, true),
            (&bad, &none, true, false, true),
            (&bad, &bad, true, false, true),
            (&good, &bad, true, false, true),
        ] {
            let machine =
                Machine { product_uuid: uuid.clone(), serial: serial.clone(), ..Machine::default() };
            for (policy, admits) in [(Defer, defer), (AllowUnique, allow_unique)] {
                let verdict = judge(policy, &machine, ek);
                assert_eq!(verdict == Verdict::Admit, admits, "{policy:?} {uuid:?} {serial:?} {ek}");
            }
        }
    }
}
