//! What bcd remembers, as types: where the machine stands with its relay. [`dir`] keeps it on disk.

mod dir;

pub use dir::{
    CA_BUNDLE, CERTIFICATE, IN_MEMORY, KEY, StateDir, StateError, TOKEN, TPM_KEY, locked, note, read,
    volatile_filesystem,
};
pub(crate) use dir::{damaged, has_key, read_file};

use serde::{Deserialize, Serialize};
use shared::{
    api::node::{Deferred, Trust},
    hardware::Identity,
    id::{JoinRequestId, JoinTokenId, NodeId},
    terminal::shown_within,
    time::Timestamp,
};

/// The most reasons of a deferral that are kept, and the longest word of a relay's, in characters.
const MAX_REASONS: usize = 16;
const MAX_WORD: usize = 128;

/// The version that this bcd writes.
pub const VERSION: u64 = 1;

/// Everything that is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stored {
    /// [`VERSION`].
    pub version: u64,
    /// The relay's trust domain, from the first join on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trust_domain: Option<String>,
    /// Why the last attempt came to nothing, while there is none that went well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<Noted>,
    /// Where the machine stands.
    #[serde(flatten)]
    pub state: State,
}

impl Default for Stored {
    fn default() -> Self {
        Self { version: VERSION, trust_domain: None, last_failure: None, state: State::New }
    }
}

/// A failure that changed nothing, for people who ask later.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Noted {
    /// What failed, by which rule, and the remedy.
    pub message: String,
    /// The exit code that goes with it.
    pub exit: u8,
    /// When, by the relay's clock where that is known.
    pub at: Timestamp,
}

/// Where a machine stands with its relay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum State {
    /// Nothing was asked for yet.
    New,
    /// A request is made; it may have been sent and even admitted.
    Joining(Joining),
    /// A person decides.
    Waiting(Waiting),
    /// It has a certificate.
    Enrolled(Enrolled),
    /// It is over, until `bcd join`, `bcd reset` or another token; a ban also until the relay ends it.
    Final(Final),
}

impl State {
    /// The token that it began with.
    #[must_use]
    pub fn token_id(&self) -> Option<&JoinTokenId> {
        match self {
            Self::New => None,
            Self::Joining(joining) => Some(&joining.token_id),
            Self::Waiting(waiting) => Some(&waiting.joining.token_id),
            Self::Enrolled(node) => node.token_id.as_ref(),
            Self::Final(over) => over.token_id.as_ref(),
        }
    }

    /// The word for it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::New => "new",
            Self::Joining(_) => "joining",
            Self::Waiting(_) => "waiting",
            Self::Enrolled(_) => "enrolled",
            Self::Final(_) => "final",
        }
    }
}

/// The request that is sent again unchanged until the join ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Joining {
    /// PEM.
    pub csr: String,
    /// The token that it goes with.
    pub token_id: JoinTokenId,
}

/// A join that was deferred.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// What is sent again.
    #[serde(flatten)]
    pub joining: Joining,
    /// What to approve.
    pub join_request_id: JoinRequestId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// Why a person is asked.
    pub reasons: Vec<String>,
    /// When to ask again.
    pub retry_at: Timestamp,
    /// The GPUs that the request shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpu_uuids: Vec<String>,
    /// The MAC addresses that it shows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
}

impl Waiting {
    /// What a deferral makes of a request.
    #[must_use]
    pub fn new(joining: Joining, identity: Identity, deferred: Deferred, now: Timestamp) -> Self {
        Self {
            joining,
            join_request_id: deferred.join_request_id,
            tenant_id: shown_within(&deferred.tenant_id, MAX_WORD),
            pool_id: shown_within(&deferred.pool_id, MAX_WORD),
            reasons: deferred
                .reasons
                .iter()
                .take(MAX_REASONS)
                .map(|reason| shown_within(reason, MAX_WORD))
                .collect(),
            retry_at: now.plus_seconds(i64::from(deferred.retry_after_seconds)),
            gpu_uuids: identity.gpu_uuids,
            macs: identity.macs,
        }
    }
}

/// A node and its certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Enrolled {
    /// Which node.
    pub node_id: NodeId,
    /// Raised by each reclaim.
    pub generation: i64,
    /// What the relay takes it for.
    pub trust: Trust,
    /// The certificate's serial number in hexadecimal.
    pub serial: String,
    /// The leaf and its issuing CA, PEM.
    pub certificate: String,
    /// The roots that verify the relay, PEM.
    pub ca_bundle: String,
    /// When it was issued, by the relay's clock.
    pub issued_at: Timestamp,
    /// When the relay wants it renewed, at the earliest.
    pub renew_after: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The token that it joined with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<JoinTokenId>,
    /// The request of a renewal that has not ended, PEM.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renewal_csr: Option<String>,
}

/// Why it is over, and what was there before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Final {
    /// The exit code that goes with it.
    pub exit: u8,
    /// What the relay said.
    pub message: String,
    /// The token that it began with; another one begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_id: Option<JoinTokenId>,
    /// The node that it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<Enrolled>>,
    /// When, by the relay's clock.
    pub since: Timestamp,
}

#[cfg(test)]
pub(crate) mod tests;
