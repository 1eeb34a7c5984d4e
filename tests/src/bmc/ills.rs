//! How a fake BMC misbehaves, and what it remembers of what it was asked.

/// How it misbehaves.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ills {
    /// It refuses the credentials.
    pub unauthorized: bool,
    /// It wants another password first.
    pub password_change: bool,
    /// It has no room, for so many requests.
    pub busy: u32,
    /// It takes these resets, and does nothing.
    pub ignores: Vec<&'static str>,
    /// Its system does not shut itself down.
    pub hangs_at_shutdown: bool,
    /// It refuses another password.
    pub refuses_password: bool,
    /// It takes another password, and does not go by it before it is told to.
    pub forgets_password: bool,
    /// How many looks it takes until a change is seen.
    pub looks: u32,
    /// It answers 400 to a reset, and does it.
    pub lies_about_reset: bool,
    /// It answers 400 to what concerns the boot source, the media and the accounts, and does it.
    pub lies_about_changes: bool,
    /// It refuses so many resets by 409, as some do soon after a power off.
    pub conflicts: u32,
    /// Its machine starts, so that nothing can be changed, for so many changes.
    pub starting: u32,
    /// It fails by its own fault at inserting, so often.
    pub insert_errors: u32,
    /// What is done by a task fails.
    pub tasks_fail: bool,
    /// Its tasks are gone once they are finished.
    pub tasks_vanish: bool,
    /// It takes a boot source, and forgets it.
    pub forgets_boot: bool,
    /// It has no place for a session.
    pub sessions_full: bool,
    /// What is at paths that end so is away.
    pub away: Option<&'static str>,
    /// It starts anew after so many requests: sessions are gone, and it is busy for three requests.
    pub restarts_after: Option<u32>,
    /// Its system's reset leads there.
    pub reset_target: Option<&'static str>,
    /// Its media's actions lead there.
    pub media_target: Option<&'static str>,
    /// Its service root leads its systems there.
    pub systems: Option<&'static str>,
    /// Its sessions and tasks are said to be there.
    pub location: Option<&'static str>,
    /// It sends whoever asks there.
    pub redirects: Option<String>,
    /// Its answers never end.
    pub endless: bool,
    /// Its answers are of 100 MB.
    pub big: bool,
    /// Its answers come a byte a second.
    pub slow: bool,
    /// It never answers.
    pub silent: bool,
    /// Its answers are no JSON.
    pub garbage: bool,
    /// The UUID that it says instead.
    pub uuid: Option<&'static str>,
    /// The serial that it says instead.
    pub serial: Option<&'static str>,
    /// Its refusals echo what was sent, and the password; so does the name of its machine's model.
    pub echoes: bool,
    /// Its only system can't be reset.
    pub no_reset: bool,
}

/// A request that changes something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The method and the last part of the path.
    pub what: String,
    /// The body.
    pub body: String,
}

/// A request that is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// After how many requests.
    pub after: usize,
    /// Whether requests that change nothing are counted too.
    pub reads_too: bool,
    /// Whether it is done all the same.
    pub done: bool,
}
