//! What a daemon can do, and the words for it.

/// Something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Ask whether a ban still holds.
    Ask,
    /// Join the pool.
    Join,
    /// Exchange the certificate.
    Renew,
    /// Tell that we live.
    Heartbeat,
    /// Fetch the pool's secrets.
    Secrets,
    /// It is over: look for what ends that.
    Look,
}

impl Action {
    /// The word for people.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Ask => "question whether the ban still holds",
            Self::Join => "join",
            Self::Renew => "renewal",
            Self::Heartbeat => "heartbeat",
            Self::Secrets => "platform secrets",
            Self::Look => "look for another token",
        }
    }
}
