//! What services of several makers are like, as data: the paths, words and habits that differ. No maker's firmware is in here.

mod makers;

pub use makers::PERSONAS;

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

/// What lets somebody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// Basic, or a session.
    Both,
    /// A session alone.
    Sessions,
}

/// What a service wants of `BootSourceOverrideMode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It may be there.
    Optional,
    /// Nothing is changed without.
    Required,
    /// It can't be written.
    Refused,
}

/// How a service wants a boot source to be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disable {
    /// In any way.
    Any,
    /// By `Disabled` alone: a target `None` beside it is refused.
    Alone,
    /// By `Disabled` and the target `None` together.
    WithTarget,
}

/// How a service wants an image to be inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// By the action, with any of its parameters.
    Any,
    /// By the action, with the image's URL alone.
    ImageAlone,
    /// By changing the slot: there is no action.
    Patch,
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
    /// What lets somebody in.
    pub auth: Auth,
    /// How many sessions it has at once.
    pub max_sessions: usize,
    /// Whether it says where a session or task is with its own host.
    pub whole_locations: bool,
    /// What the reset allows.
    pub resets: &'static [&'static str],
    /// Whether that stands apart (`@Redfish.ActionInfo`).
    pub action_info: bool,
    /// Whether a reset to the state that is there is refused: by this status.
    pub refuses_same_state: Option<u16>,
    /// Whether what it is asked to insert or to change is done by a task.
    pub tasks: bool,
    /// How it wants changes.
    pub etags: Etags,
    /// What it wants of the mode.
    pub mode: Mode,
    /// How a boot source is cleared.
    pub disable: Disable,
    /// What `Once` reads back as.
    pub once: &'static str,
    /// What it calls a CD to start from.
    pub cd: &'static str,
    /// Whether a boot source is written to a settings object alone, and is there until the machine starts.
    pub settings: bool,
    /// Where its media are.
    pub media: Media,
    /// The slots, and what each takes.
    pub slots: &'static [(&'static str, &'static [&'static str])],
    /// How an image is inserted.
    pub insert: Insert,
    /// Whether there is an action to eject only while something is inserted.
    pub eject_comes_late: bool,
    /// What is away while the machine is off: the end of its path.
    pub away_while_off: Option<&'static str>,
    /// A second system, which can't be reset, before the one that can.
    pub second_system: Option<&'static str>,
    /// The machine's UUID, as it says it.
    pub uuid: &'static str,
    /// The machine's serial number, as it says it.
    pub serial: &'static str,
    /// The machine's SKU number, as it says it.
    pub sku: &'static str,
}
