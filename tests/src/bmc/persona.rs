//! What services of several makers are like, as data: the paths, words and habits that differ. No maker's firmware is in here.

/// How a service wants a change to name what it changes (RFC 9110, `If-Match`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Etags {
    /// It gives none, and looks at none.
    None,
    /// It gives one, and wants it to the letter: 428 without, 412 for another.
    Strict,
    /// It gives a weak one, and wants it without its mark.
    WeakStripped,
    /// It gives an empty one, and wants none, or any.
    Empty,
}

/// Where a service has its virtual media.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    /// Below the system.
    System,
    /// Below its manager.
    Manager,
    /// Nowhere.
    None,
}

/// A maker's service.
#[derive(Clone, Copy, Debug)]
pub struct Persona {
    /// Its name, for tests.
    pub name: &'static str,
    /// `Vendor` of the service root.
    pub vendor: Option<&'static str>,
    /// The id of the system, in its path.
    pub system: &'static str,
    /// The id of the manager, in its path.
    pub manager: &'static str,
    /// What the reset allows.
    pub resets: &'static [&'static str],
    /// Whether that stands apart (`@Redfish.ActionInfo`).
    pub action_info: bool,
    /// How it wants changes.
    pub etags: Etags,
    /// Where its media are.
    pub media: Media,
    /// The slots, and what each takes.
    pub slots: &'static [(&'static str, &'static [&'static str])],
    /// Whether there is an action to eject only while something is inserted.
    pub eject_comes_late: bool,
    /// Whether a reset to the state that is there is refused with 409.
    pub refuses_same_state: bool,
    /// A second system, which can't be reset, before the one that can.
    pub second_system: Option<&'static str>,
    /// The machine's UUID, as it says it.
    pub uuid: &'static str,
    /// The machine's serial number, as it says it.
    pub serial: &'static str,
    /// The machine's SKU number, as it says it.
    pub sku: &'static str,
}

const ALL_RESETS: &[&str] =
    &["On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "PowerCycle"];

/// Services of five makers' kinds, and one of nobody's.
pub const PERSONAS: &[Persona] = &[
    Persona {
        name: "dell",
        vendor: Some("Dell"),
        system: "System.Embedded.1",
        manager: "iDRAC.Embedded.1",
        resets: &["On", "ForceOff", "ForceRestart", "GracefulShutdown", "PushPowerButton", "PowerCycle"],
        action_info: false,
        etags: Etags::None,
        media: Media::System,
        slots: &[("1", &["CD", "DVD", "USBStick"]), ("2", &["CD", "DVD", "USBStick"])],
        eject_comes_late: false,
        refuses_same_state: true,
        second_system: None,
        uuid: "4C4C4544-0037-5810-8032-C2C04F4A3233",
        serial: "CNIVC009BK0042",
        sku: "7CXK2J3",
    },
    Persona {
        name: "hpe",
        vendor: Some("HPE"),
        system: "1",
        manager: "1",
        resets: &["On", "ForceOff", "GracefulShutdown", "ForceRestart", "Nmi", "PushPowerButton"],
        action_info: false,
        etags: Etags::WeakStripped,
        media: Media::Manager,
        slots: &[("1", &["Floppy", "USBStick"]), ("2", &["CD", "DVD"])],
        eject_comes_late: true,
        refuses_same_state: true,
        second_system: None,
        uuid: "30373237-3132-4D32-3235-353130304B42",
        serial: "2M255100KB",
        sku: "P07273-B21",
    },
    Persona {
        name: "supermicro",
        vendor: Some("Supermicro"),
        system: "1",
        manager: "1",
        resets: &["On", "ForceOff", "GracefulShutdown", "GracefulRestart", "ForceRestart", "Nmi", "ForceOn"],
        action_info: true,
        etags: Etags::Strict,
        media: Media::Manager,
        slots: &[("CD1", &["CD", "DVD"])],
        eject_comes_late: true,
        refuses_same_state: false,
        second_system: None,
        uuid: "3CECEF5C-89A6-0000-0000-000000000017",
        serial: "S411795X9C01234",
        sku: "To be filled by O.E.M.",
    },
    Persona {
        name: "lenovo",
        vendor: Some("Lenovo"),
        system: "1",
        manager: "1",
        resets: &["On", "ForceOff", "ForceOn", "ForceRestart", "GracefulRestart", "GracefulShutdown", "Nmi"],
        action_info: false,
        etags: Etags::Strict,
        media: Media::Manager,
        slots: &[("EXT1", &["CD", "DVD"]), ("Remote1", &["USBStick"])],
        eject_comes_late: false,
        refuses_same_state: false,
        second_system: None,
        uuid: "A5E6B1C0-9D3F-11EB-8F4E-0A94EF5C4A17",
        serial: "J1009KLM",
        sku: "7X06CTO1WW",
    },
    Persona {
        name: "nvidia",
        vendor: None,
        system: "DGX",
        manager: "BMC",
        resets: ALL_RESETS,
        action_info: true,
        etags: Etags::Empty,
        media: Media::System,
        slots: &[("CD1", &["CD", "DVD"])],
        eject_comes_late: false,
        refuses_same_state: false,
        second_system: Some("HGX_Baseboard_0"),
        uuid: "a0b1c2d3-e4f5-4617-8899-aabbccddeeff",
        serial: "1660123000017",
        sku: "920-23687-2510-000",
    },
    Persona {
        name: "generic",
        vendor: None,
        system: "system",
        manager: "bmc",
        resets: &["On", "ForceOff"],
        action_info: false,
        etags: Etags::None,
        media: Media::None,
        slots: &[],
        eject_comes_late: false,
        refuses_same_state: false,
        second_system: None,
        uuid: "b7e4d2a0-0c1f-4d0e-9a55-1f2e3d4c5b6a",
        serial: "GEN-0017",
        sku: "",
    },
];
