//! Why a relay is not trusted, for people: the rule, what was seen, and the remedy.

use crate::host::Clocks;
use shared::time::Timestamp;

/// A clock before this is wrong: 2026-01-01T00:00:00Z, when this program did not exist.
const MADE: Timestamp = Timestamp::from_seconds(1_767_225_600);

/// Why the other end is not trusted. Nothing but the handshake was sent to it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// No certificate of the chain has a pinned key.
    #[error(
        "the relay is not trusted: none of its certificates has a pinned key. Pinned: {}. Its CA has: {}. If that is \
         what `relay ca pin` prints on the relay, change the pin; else somebody stands in between",
        .pinned.join(", "), .offered.as_deref().unwrap_or("no certificate")
    )]
    PinMismatch {
        /// The pins.
        pinned: Vec<String>,
        /// The pin of the last certificate in the chain.
        offered: Option<String>,
    },
    /// No path from the certificate to the anchor.
    #[error("the relay is not trusted: its certificate does not lead to the trusted CA ({0})")]
    NoPath(String),
    /// Not a certificate.
    #[error("the relay is not trusted: its certificate cannot be read ({0})")]
    Unreadable(String),
    /// For another host.
    #[error("the relay is not trusted: its certificate is not for {wanted}; it names {}", .named.join(", "))]
    NameMismatch {
        /// The host that was asked.
        wanted: String,
        /// What the certificate names.
        named: Vec<String>,
    },
    /// Of the right CA, and not the relay's.
    #[error(
        "the relay is not trusted: its certificate is of the right CA but is not a relay's (no URI with the path \
         /relay; it has {})", .0.join(", ")
    )]
    NotARelay(Vec<String>),
    /// The relay of another trust domain.
    #[error(
        "the relay is not trusted: it is of trust domain {seen}, this machine joined {joined}; `bcd reset` to move"
    )]
    OtherTrustDomain {
        /// As remembered.
        joined: String,
        /// As seen.
        seen: String,
    },
    /// The certificate is good, but for a clock that is behind, or one that was ahead when it was made.
    #[error("the relay's certificate is good only from {not_before}; {clocks}: {}", which_is_off(clocks))]
    ClockBehind {
        /// What the clocks say.
        clocks: Clocks,
        /// The certificate's notBefore.
        not_before: Timestamp,
    },
    /// What the path leads to has run out.
    #[error(
        "the relay is not trusted: the certificate of the trusted CA ended {not_after}; {clocks}: if that is right, the relay \
         needs another root, and this machine its pin (`relay ca pin`) or its certificate"
    )]
    AnchorExpired {
        /// What the clocks say.
        clocks: Clocks,
        /// The last certificate's notAfter.
        not_after: Timestamp,
    },
    /// The certificate has run out, or a clock is ahead.
    #[error(
        "the relay is not trusted: its certificate ended {not_after}; {clocks}: check which is wrong, the clock of this \
         machine, that of the relay, or the certificate"
    )]
    Expired {
        /// What the clocks say.
        clocks: Clocks,
        /// The certificate's notAfter.
        not_after: Timestamp,
    },
}

/// Which clock is off, as far as that is known, and what to do.
fn which_is_off(clocks: &Clocks) -> &'static str {
    if clocks.wall < MADE {
        "this machine's clock is wrong, set it"
    } else if clocks.relay.is_some() {
        "the relay's clock has been put ahead since then; if this machine's is right, the relay's is wrong now"
    } else {
        "set this machine's clock, or, if it is right, the relay's"
    }
}
