//! The attestor of the inventory: whether a pool knows the machine.
//!
//! The store finds an entry by one of its identifiers, its anchor, and matches all of them by the same rules, so that
//! machines that share an anchor (blades with their chassis' serial number) don't hide one another. What it finds is no
//! verdict: that is given here.

use super::Verdict;
use shared::{
    api::{
        inventory::{Identifiers, InventoryEntry},
        join_requests::DeferReason,
        pools::DiscoveryMode,
    },
    hardware::{Machine, swapped_uuid},
};

/// Defers a machine that is none of the entries, where the policy asks for it.
#[must_use]
pub fn judge(
    mode: DiscoveryMode,
    entries: &[InventoryEntry],
    machine: &Machine,
    proven_ek: Option<&str>,
) -> Verdict {
    match mode {
        DiscoveryMode::Off => Verdict::Admit,
        DiscoveryMode::Defer if known(entries, machine, proven_ek).is_some() => Verdict::Admit,
        DiscoveryMode::Defer => Verdict::defer(DeferReason::UnknownMachine),
    }
}

/// The identifier by which an entry is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor<'a> {
    /// Its name, as the wire spells it.
    pub kind: &'static str,
    /// Its canonical value.
    pub value: &'a str,
}

/// The kinds of anchors, the strongest first: what fewest machines share, and what is hardest to claim.
pub const ANCHOR_KINDS: [&str; 5] = ["ekSha256", "productUuid", "serial", "gpuUuid", "mac"];

/// The strongest identifier of an entry; `None` if it has none.
#[must_use]
pub fn anchor(of: &Identifiers) -> Option<Anchor<'_>> {
    let values = [&of.ek_sha256, &of.product_uuid, &of.serial, &of.gpu_uuid, &of.mac];
    let present = ANCHOR_KINDS.into_iter().zip(values);
    present.filter_map(|(kind, value)| Some(Anchor { kind, value: value.as_deref()? })).next()
}

/// What an entry for a machine is looked for by, in canonical form.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookups<'a> {
    /// The endorsement key that it has proved.
    pub ek_sha256: Option<&'a str>,
    /// The product UUID, if it is usable.
    pub product_uuid: Option<&'a str>,
    /// The product UUID in the other byte order; it counts beside another identifier only.
    pub swapped_uuid: Option<String>,
    /// The serial number, if it is usable.
    pub serial: Option<&'a str>,
    /// At most [`shared::hardware::MAX_LISTED`].
    pub gpu_uuids: &'a [String],
    /// At most [`shared::hardware::MAX_LISTED`].
    pub macs: &'a [String],
}

impl Lookups<'_> {
    /// Whether no entry can be found by it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Lookups::default()
    }
}

/// What an entry for this machine is looked for by. A placeholder finds nothing.
#[must_use]
pub fn lookups<'a>(machine: &'a Machine, proven_ek: Option<&'a str>) -> Lookups<'a> {
    let product_uuid = machine.product_uuid.usable();
    Lookups {
        ek_sha256: proven_ek,
        product_uuid,
        swapped_uuid: product_uuid.and_then(swapped_uuid),
        serial: machine.serial.usable(),
        gpu_uuids: &machine.gpu_uuids,
        macs: &machine.macs,
    }
}

/// The first of the entries that is this machine: all that it names matches. `proven_ek` is the digest of the
/// endorsement key that the machine's TPM has proved, never one that was only offered.
#[must_use]
pub fn known<'a>(
    entries: &'a [InventoryEntry],
    machine: &Machine,
    proven_ek: Option<&str>,
) -> Option<&'a InventoryEntry> {
    entries.iter().find(|entry| matches(&entry.identifiers, machine, proven_ek))
}

fn matches(wanted: &Identifiers, machine: &Machine, proven_ek: Option<&str>) -> bool {
    let same = |wanted: &Option<String>, seen: Option<&str>| wanted.is_none() || wanted.as_deref() == seen;
    let one_of =
        |wanted: &Option<String>, seen: &[String]| wanted.as_ref().is_none_or(|one| seen.contains(one));
    anchor(wanted).is_some()
        && same(&wanted.ek_sha256, proven_ek)
        && (same(&wanted.product_uuid, machine.product_uuid.usable()) || is_swapped(wanted, machine))
        && same(&wanted.serial, machine.serial.usable())
        && one_of(&wanted.gpu_uuid, &machine.gpu_uuids)
        && one_of(&wanted.mac, &machine.macs)
}

/// Whether the entry's UUID is the machine's in the other byte order, and another identifier of the entry says that it is
/// that machine (each is judged by itself).
fn is_swapped(wanted: &Identifiers, machine: &Machine) -> bool {
    let second = [&wanted.serial, &wanted.mac, &wanted.gpu_uuid, &wanted.ek_sha256];
    let swapped = wanted.product_uuid.as_ref().is_some_and(|uuid| machine.product_uuid.is_swapped(uuid));
    swapped && second.iter().any(|other| other.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::{hardware::Identity, time::Timestamp};

    const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
    const SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";
    const GPU: &str = "GPU-00112233-4455-6677-8899-aabbccddeeff";
    const MAC: &str = "00:1a:2b:3c:4d:5e";
    const EK: &str = "ab";

    fn machine() -> Machine {
        Machine::judge(&Identity {
            product_uuid: Some("00112233445566778899AABBCCDDEEFF".into()),
            serial: Some(" SN-1 ".into()),
            macs: vec!["00:1A:2B:3C:4D:5E".into(), "02:00:00:00:00:01".into()],
            gpu_uuids: vec!["GPU-00112233-4455-6677-8899-AABBCCDDEEFF".into()],
            ..Identity::default()
        })
    }

    fn wanted(uuid: &str, serial: &str, mac: &str, gpu: &str, ek: &str) -> Identifiers {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Identifiers {
            product_uuid: some(uuid),
            serial: some(serial),
            mac: some(mac),
            gpu_uuid: some(gpu),
            ek_sha256: some(ek),
        }
    }

    #[test]
    fn all_that_an_entry_names_must_match() {
        for (entry, ek, expected) in [
            (wanted(UUID, "", "", "", ""), None, true),
            (wanted("", "SN-1", "", "", ""), None, true),
            (wanted("", "", "02:00:00:00:00:01", "", ""), None, true),
            (wanted("", "", "", GPU, ""), None, true),
            (wanted("", "", "", "", EK), Some(EK), true),
            (wanted(UUID, "SN-1", MAC, GPU, EK), Some(EK), true),
            (wanted(UUID, "SN-1", MAC, GPU, ""), Some("cd"), true),
            // The other byte order, with a second identifier and without.
            (wanted(SWAPPED, "SN-1", "", "", ""), None, true),
            (wanted(SWAPPED, "", "", "", ""), None, false),
            (wanted(SWAPPED, "SN-2", "", "", ""), None, false),
            // One that is another's, or to be proved and not proved.
            (wanted("10112233-4455-6677-8899-aabbccddeeff", "SN-1", MAC, GPU, EK), Some(EK), false),
            (wanted(UUID, "sn-1", MAC, GPU, EK), Some(EK), false),
            (wanted(UUID, "SN-1", "00:1a:2b:3c:4d:5f", GPU, EK), Some(EK), false),
            (wanted(UUID, "SN-1", MAC, "GPU-10112233-4455-6677-8899-aabbccddeeff", EK), Some(EK), false),
            (wanted(UUID, "SN-1", MAC, GPU, EK), Some("cd"), false),
            (wanted(UUID, "SN-1", MAC, GPU, EK), None, false),
            (wanted("", "", "", "", EK), None, false),
            // Nothing to go by.
            (wanted("", "", "", "", ""), Some(EK), false),
        ] {
            assert_eq!(matches(&entry, &machine(), ek), expected, "{entry:?} {ek:?}");
        }
    }

    #[test]
    fn absent_and_placeholder_values_match_nothing() {
        let zeros = "00000000-0000-0000-0000-000000000000";
        let nobody = Machine::judge(&Identity {
            product_uuid: Some(zeros.into()),
            serial: Some("Default string".into()),
            ..Identity::default()
        });
        assert!(!matches(&wanted(zeros, "", "", "", ""), &nobody, None));
        assert!(!matches(&wanted("", "Default string", "", "", ""), &nobody, None));
        assert!(!matches(&wanted("", "", MAC, "", ""), &nobody, None));
        assert!(lookups(&nobody, None).is_empty());
    }

    #[test]
    fn an_entry_is_found_by_its_strongest_identifier() {
        let all = wanted(UUID, "SN-1", MAC, GPU, EK);
        for (entry, expected) in [
            (all.clone(), Some(("ekSha256", EK))),
            (Identifiers { ek_sha256: None, ..all.clone() }, Some(("productUuid", UUID))),
            (wanted("", "SN-1", MAC, GPU, ""), Some(("serial", "SN-1"))),
            (wanted("", "", MAC, GPU, ""), Some(("gpuUuid", GPU))),
            (wanted("", "", MAC, "", ""), Some(("mac", MAC))),
            (Identifiers::default(), None),
        ] {
            assert_eq!(anchor(&entry).map(|anchor| (anchor.kind, anchor.value)), expected);
        }
        let machine = machine();
        let lookups = lookups(&machine, Some(EK));
        assert_eq!(
            (lookups.ek_sha256, lookups.product_uuid, lookups.serial),
            (Some(EK), Some(UUID), Some("SN-1"))
        );
        assert_eq!(lookups.swapped_uuid.as_deref(), Some(SWAPPED));
        assert_eq!(
            (lookups.gpu_uuids, lookups.macs),
            (&[GPU.to_owned()][..], &[MAC.to_owned(), "02:00:00:00:00:01".to_owned()][..])
        );
    }

    #[test]
    fn the_entry_that_matches_is_named() {
        let entry = |id: &str, identifiers| InventoryEntry {
            entry_id: id.into(),
            identifiers,
            updated_at: Timestamp::from_millis(0),
            updated_by: "x".into(),
        };
        let entries = [
            entry("a", wanted("", "SN-1", "00:00:00:00:00:01", "", "")),
            entry("b", wanted("", "SN-1", MAC, "", "")),
        ];
        assert_eq!(known(&entries, &machine(), None).map(|entry| entry.entry_id.as_str()), Some("b"));
        assert_eq!(known(&entries[..1], &machine(), None), None);
        let unknown = Verdict::defer(DeferReason::UnknownMachine);
        for (mode, entries, verdict) in [
            (DiscoveryMode::Defer, &entries[..], Verdict::Admit),
            (DiscoveryMode::Defer, &entries[..1], unknown.clone()),
            (DiscoveryMode::Defer, &[], unknown),
            (DiscoveryMode::Off, &[], Verdict::Admit),
        ] {
            assert_eq!(judge(mode, entries, &machine(), None), verdict, "{mode:?} {entries:?}");
        }
    }
}
