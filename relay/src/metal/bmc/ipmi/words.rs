//! What `ipmitool` says, read. Pure.

use super::super::error::Reason;
use shared::api::metal::PowerState;

/// The longest text that is taken, in characters.
const MAX_TEXT_CHARS: usize = 128;

/// What its errors mean: the first row whose words are among them holds. Nothing else of them is told.
const MEANINGS: &[(&str, Reason)] = &[
    ("rakp 2 hmac is invalid", Reason::Unauthorized),
    ("unauthorized name", Reason::Unauthorized),
    ("invalid user", Reason::Unauthorized),
    ("unauthorized role", Reason::Unauthorized),
    ("rakp 2 message has invalid", Reason::Unauthorized),
    ("no matching cipher suite", Reason::Unsupported),
    ("invalid authentication algorithm", Reason::Unsupported),
    ("invalid integrity algorithm", Reason::Unsupported),
    ("invalid confidentiality algorithm", Reason::Unsupported),
    ("unsupported cipher suite", Reason::Unsupported),
    ("insufficient resources", Reason::Busy),
    ("node busy", Reason::Busy),
    ("timeout", Reason::Unreachable),
    ("unable to establish", Reason::Unreachable),
    ("no response", Reason::Unreachable),
    ("address lookup", Reason::Unreachable),
];

/// Why a run failed.
pub(super) fn meaning(errors: &str) -> Reason {
    let errors = errors.to_ascii_lowercase();
    MEANINGS.iter().find(|(words, _)| errors.contains(words)).map_or(Reason::Refused, |row| row.1)
}

/// Of `chassis power status`.
pub(super) fn power(said: &str) -> PowerState {
    match said.trim().to_ascii_lowercase().as_str() {
        "chassis power is on" => PowerState::On,
        "chassis power is off" => PowerState::Off,
        _ => PowerState::Unknown,
    }
}

/// The value of a line `Name : value`, trimmed, cut and without control characters; `None` for a blank one.
pub(super) fn field(said: &str, name: &str) -> Option<String> {
    let value = said.lines().find_map(|line| {
        let (left, right) = line.split_once(':')?;
        (left.trim() == name).then_some(right)
    })?;
    let value: String = value.trim().chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect();
    (!value.is_empty()).then_some(value)
}

/// Of `chassis bootparam get 5`: whether the machine is to start from somewhere of its own.
pub(super) fn has_boot_source(said: &str) -> bool {
    said.contains("Boot Flag Valid") && !said.contains("Boot Device Selector : No override")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read() {
        assert_eq!(power("Chassis Power is on\n"), PowerState::On);
        assert_eq!(power("Chassis Power is off\n"), PowerState::Off);
        for odd in ["", "Chassis Power is on off", "off"] {
            assert_eq!(power(odd), PowerState::Unknown, "{odd}");
        }
        let fru = " Product Manufacturer  : DELL\n Product Serial        : 7CXK2J3\n Chassis Serial :  \n a: b: c\n";
        assert_eq!(field(fru, "Product Serial").as_deref(), Some("7CXK2J3"));
        assert_eq!(field(fru, "Chassis Serial"), None);
        assert_eq!(field(fru, "a").as_deref(), Some("b: c"));
        assert_eq!(field(fru, "Serial"), None);
        assert_eq!(field(&format!("x: {}", "y".repeat(500)), "x").map(|value| value.len()), Some(128));
        let valid = "Boot parameter data: c000000000\n Boot Flags :\n   - Boot Flag Valid\n   - Boot Device Selector : ";
        assert!(has_boot_source(&format!("{valid}Force Boot from CD/DVD\n")));
        assert!(!has_boot_source(&format!("{valid}No override\n")));
        assert!(
            !has_boot_source("   - Boot Flag Invalid\n   - Boot Device Selector : Force PXE\n")
                && !has_boot_source("")
        );
    }

    #[test]
    fn an_error_means_what_its_words_say() {
        for (said, reason) in [
            (
                "> RAKP 2 HMAC is invalid\nError: Unable to establish IPMI v2 / RMCP+ session",
                Reason::Unauthorized,
            ),
            ("RAKP 2 message indicates an error : unauthorized name", Reason::Unauthorized),
            ("Error in open session response message : no matching cipher suite", Reason::Unsupported),
            ("Error: Unable to establish IPMI v2 / RMCP+ session", Reason::Unreachable),
            ("Set Chassis Power Control to Up/On failed: Node busy", Reason::Busy),
            (
                "Set Chassis Power Control to Cycle failed: Command not supported in present state",
                Reason::Refused,
            ),
            ("", Reason::Refused),
        ] {
            assert_eq!(meaning(said), reason, "{said}");
        }
    }
}
