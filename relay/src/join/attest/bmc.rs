//! The attestor of metal machines: whether the machine that calls is the one that its BMC said it is. The token names the node; this
//! says that what calls is not the machine beside it.
//!
//! BMC and firmware disagree in known ways, which count as the same: a UUID in the other byte order, where a second identifier
//! matches; a serial number that the other one calls the SKU. Upper and lower case make no difference. A BMC that says nothing
//! that tells machines apart vouches for nothing: then only the token, and the endorsement key it is pinned to, say who it is.

use super::Verdict;
use shared::{
    api::metal::MachineIdentity,
    hardware::{Identity, Machine},
    problem::{FieldError, Problem, Reason},
};

/// Judges whether a machine is what its BMC said. Refuses with `identityMismatch`, with expected and seen.
#[must_use]
pub fn judge(said: &MachineIdentity, machine: &Machine) -> Verdict {
    matches(said, machine).map(drop).into()
}

/// How a machine was found to be what its BMC said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// By the UUID.
    Uuid,
    /// By the UUID in the other byte order, and a second identifier.
    SwappedUuid,
    /// By the serial or SKU number, where one side has no UUID.
    Serial,
    /// By a hardware address, where one side has neither.
    Mac,
    /// There was nothing to compare.
    Nothing,
}

/// How a machine is what its BMC said.
///
/// # Errors
/// `identityMismatch`, with expected and seen.
pub fn matches(said: &MachineIdentity, machine: &Machine) -> Result<Match, Problem> {
    let bmc = Machine::judge(&Identity {
        product_uuid: said.product_uuid.clone(),
        serial: said.serial.clone(),
        sku: said.sku.clone(),
        macs: said.macs.clone(),
        ..Identity::default()
    });
    let own = |of: &Machine| -> Vec<String> {
        [of.serial.usable(), of.sku.usable()].into_iter().flatten().map(str::to_ascii_lowercase).collect()
    };
    let (expected, seen) = (own(&bmc), own(machine));
    let serial = expected.iter().any(|one| seen.contains(one));
    let mac = bmc.macs.iter().any(|mac| machine.macs.contains(mac));
    match (bmc.product_uuid.usable(), machine.product_uuid.usable()) {
        (Some(expected), Some(seen)) if expected == seen => Ok(Match::Uuid),
        (Some(expected), Some(_)) if machine.product_uuid.is_swapped(expected) && (serial || mac) => {
            Ok(Match::SwappedUuid)
        }
        (Some(expected), Some(seen)) => Err(mismatch("productUuid", expected, seen)),
        _ if serial => Ok(Match::Serial),
        _ if !expected.is_empty() && !seen.is_empty() => {
            Err(mismatch("serial", &expected.join(" or "), &seen.join(" or ")))
        }
        _ if mac => Ok(Match::Mac),
        _ if !bmc.macs.is_empty() && !machine.macs.is_empty() => {
            Err(mismatch("mac", &bmc.macs.join(", "), &machine.macs.join(", ")))
        }
        // Who claims nothing where its BMC says something may be anybody.
        _ if bmc.product_uuid.usable().is_some() || !expected.is_empty() || !bmc.macs.is_empty() => {
            Err(mismatch("productUuid", "what its BMC says", "nothing that tells machines apart"))
        }
        _ => Ok(Match::Nothing),
    }
}

fn mismatch(field: &str, expected: &str, seen: &str) -> Problem {
    let detail = "The machine is not the one that its BMC says it is; is the BMC cabled to another machine, or the token's image started \
         elsewhere?";
    let message = format!("expected {expected}, seen {seen}");
    Problem::refused(Reason::IdentityMismatch, detail)
        .with_errors(vec![FieldError { field: field.to_owned(), message }])
}

#[cfg(test)]
mod tests {
    use super::*;

    const UUID: &str = "4c4c4544-0037-5810-8032-c2c04f4a3233";
    const SWAPPED: &str = "44454c4c-3700-1058-8032-c2c04f4a3233";
    const OTHER: &str = "00112233-4455-6677-8899-aabbccddeeff";
    const ZERO: &str = "00000000-0000-0000-0000-000000000000";
    const MAC: &str = "00:16:3e:00:00:17";

    fn said(uuid: &str, serial: &str, sku: &str, mac: &str) -> MachineIdentity {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        MachineIdentity {
            product_uuid: some(uuid),
            serial: some(serial),
            sku: some(sku),
            macs: some(mac).into_iter().collect(),
            ..MachineIdentity::default()
        }
    }

    fn machine(uuid: &str, serial: &str, sku: &str, mac: &str) -> Machine {
        let said = said(uuid, serial, sku, mac);
        Machine::judge(&Identity {
            product_uuid: said.product_uuid,
            serial: said.serial,
            sku: said.sku,
            macs: said.macs,
            ..Identity::default()
        })
    }

    #[test]
    fn what_bmc_and_firmware_may_disagree_in() {
        let upper = UUID.to_uppercase();
        for (bmc, own, expected) in [
            (said(UUID, "", "", ""), machine(&upper, "", "", ""), Some(Match::Uuid)),
            (said(UUID, "A", "", ""), machine(UUID, "B", "", ""), Some(Match::Uuid)),
            (said(UUID, "", "", ""), machine(SWAPPED, "", "", ""), None),
            (said(UUID, "A", "", ""), machine(SWAPPED, "B", "", ""), None),
            (said(UUID, "A", "", ""), machine(SWAPPED, "a", "", ""), Some(Match::SwappedUuid)),
            (said(UUID, "", "", MAC), machine(SWAPPED, "", "", MAC), Some(Match::SwappedUuid)),
            (said(UUID, "A", "", MAC), machine(OTHER, "A", "", MAC), None),
            // Dell: the service tag is the SKU here and the serial there.
            (
                said("", "CNIVC009BK0042", "7CXK2J3", ""),
                machine(UUID, "7CXK2J3", "", ""),
                Some(Match::Serial),
            ),
            (said(ZERO, "A", "", ""), machine(UUID, "A", "", ""), Some(Match::Serial)),
            (said(ZERO, "A", "", MAC), machine(UUID, "B", "", MAC), None),
            (said("", "", "", MAC), machine(UUID, "B", "", MAC), Some(Match::Mac)),
            (said("", "None", "", MAC), machine(UUID, "B", "", "00:16:3e:00:00:18"), None),
            (said(UUID, "A", "", ""), machine("", "", "", ""), None),
            (said("", "", "", ""), machine(UUID, "A", "", ""), Some(Match::Nothing)),
        ] {
            assert_eq!(matches(&bmc, &own).ok(), expected, "{bmc:?} {own:?}");
        }
    }
}
