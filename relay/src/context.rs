//! What every call can reach: the store, the CA, the keys, the clock. Made once, by `server`.

use crate::{
    auth::{jwt, keys::SigningKeys, oidc::Provider},
    ca::Authority,
    clock::Clock,
    http::limits::Limits,
    join::{heartbeats::Heartbeats, lookups::Lookups},
    metrics::Metrics,
    outside::Outside,
    random::Random,
    seal::KeyRing,
    store::{Store, events::Kept},
};
use arc_swap::ArcSwap;
use shared::api::events::CloudEvent;

/// One relay.
pub struct Context {
    /// The database.
    pub store: Store,
    /// The time.
    pub clock: Clock,
    /// Randomness.
    pub random: Random,
    /// The CAs; swapped when one rotates.
    pub ca: ArcSwap<Authority>,
    /// The master keys.
    pub keys: KeyRing,
    /// The keys that sign tokens.
    pub signing_keys: SigningKeys,
    /// The identity provider by which people log in, if there is one.
    pub oidc: Option<Provider>,
    /// The way to addresses that others named.
    pub outside: Outside,
    /// Who may call how often.
    pub limits: Limits,
    /// What is counted.
    pub metrics: Metrics,
    /// Signs of life on their way to the store.
    pub heartbeats: Heartbeats,
    /// Nodes that are looked up, many at a time.
    pub lookups: Lookups,
    /// The address that machines reach it by.
    pub url: String,
    /// Where BMCs get images from, `http://host:port`, if they get any here.
    pub boot_url: Option<String>,
    /// CA certificates in PEM that servers of images may come from, beside the public ones.
    pub image_roots: Option<String>,
    /// The tenant whose members may be admins.
    pub provider_tenant: String,
}

impl Context {
    /// An event with its source, this installation.
    #[must_use]
    pub fn sourced(&self, kept: Kept) -> CloudEvent {
        CloudEvent { source: jwt::issuer(self.ca.load().trust_domain().as_str()), ..kept.event }
    }
}
