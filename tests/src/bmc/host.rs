//! The machine behind a fake BMC: its power, what it starts from, and what is inserted. It changes after so many looks at it.

use super::persona::Persona;

/// What a machine is to start from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Boot {
    pub(super) enabled: String,
    pub(super) target: String,
    pub(super) mode: String,
}

impl Boot {
    /// From where it does by itself.
    fn by_itself() -> Self {
        Self { enabled: "Disabled".to_owned(), target: "None".to_owned(), mode: "UEFI".to_owned() }
    }
}

/// A machine.
pub(super) struct Host {
    cd: &'static str,
    pub(super) is_on: bool,
    /// What it becomes, and after how many looks.
    becomes: Option<(bool, u32)>,
    pub(super) boot: Boot,
    /// What it is to start from, where that stands apart until it starts.
    pub(super) pending: Option<Boot>,
    /// What it started from, each time: the URL of its media, or `disk`.
    pub(super) started: Vec<String>,
    /// The slot and the image.
    pub(super) inserted: Option<(usize, String)>,
    /// What is inserted by a task, or taken out, and after how many looks.
    inserting: Option<(Option<(usize, String)>, u32)>,
}

impl Host {
    pub(super) fn new(persona: &Persona) -> Self {
        Self {
            cd: persona.cd,
            is_on: false,
            becomes: None,
            boot: Boot::by_itself(),
            pending: persona.settings.then(Boot::by_itself),
            started: Vec::new(),
            inserted: None,
            inserting: None,
        }
    }

    /// Somebody looks at its power.
    pub(super) fn look(&mut self) {
        if let Some((to, looks)) = self.becomes {
            self.becomes = (looks > 1).then(|| (to, looks - 1));
            if self.becomes.is_none() {
                self.turn(to);
            }
        }
    }

    /// Somebody looks at its media.
    pub(super) fn look_at_media(&mut self) {
        if let Some((to, looks)) = self.inserting.take() {
            match looks {
                0 | 1 => self.inserted = to,
                _ => self.inserting = Some((to, looks - 1)),
            }
        }
    }

    /// Switches it, now or after so many looks.
    pub(super) fn switch(&mut self, on: bool, looks: u32) {
        match looks {
            0 => self.turn(on),
            looks => self.becomes = Some((on, looks)),
        }
    }

    /// Inserts an image, or takes one out, now or after so many looks.
    pub(super) fn insert(&mut self, image: Option<(usize, String)>, looks: u32) {
        match looks {
            0 => (self.inserted, self.inserting) = (image, None),
            looks => self.inserting = Some((image, looks)),
        }
    }

    /// On, from its media where it was told so, or off.
    fn turn(&mut self, on: bool) {
        self.is_on = on;
        if !on {
            return;
        }
        if let Some(pending) = &self.pending {
            self.boot = pending.clone();
        }
        let told = self.boot.enabled != "Disabled" && self.boot.target == self.cd;
        let media = self.inserted.as_ref().filter(|_| told).map(|(_, image)| image.clone());
        self.started.push(media.unwrap_or_else(|| "disk".to_owned()));
        if self.boot.enabled == "Once" {
            self.boot = Boot::by_itself();
            self.pending = self.pending.as_ref().map(|_| Boot::by_itself());
        }
    }
}
