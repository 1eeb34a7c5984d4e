//! Who may call how often: token buckets per credential and per client address, and bounds on what is in flight.
//!
//! A bucket's burst is its figure for a minute. A right credential is never slowed by what others from its
//! address do wrong: a rack behind NAT is one address.

use crate::config::Limits as Figures;
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter, clock::Clock as _};
use shared::{
    api::Access,
    id::NodeId,
    problem::{Code, Problem},
};
use std::{
    collections::BTreeMap,
    hash::Hash,
    net::{IpAddr, Ipv6Addr},
    num::NonZeroU32,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The most calls at a time that are no joins: after an outage all machines call at once, and what the relay can't
/// answer soon it refuses at once, before it takes memory.
const MAX_CALLS_IN_FLIGHT: usize = 1024;

/// The most streams of events at a time.
const MAX_STREAMS: usize = 512;
/// The most of them of one subject.
const MAX_STREAMS_EACH: usize = 16;

/// How often a node may renew: once a minute, and this often in a row. Every certificate that it is given stays on the
/// books until it ends.
const RENEWALS_IN_A_ROW: NonZeroU32 = NonZeroU32::MIN.saturating_add(29);

/// The buckets.
pub struct Limits {
    tokens: DefaultKeyedRateLimiter<String>,
    wrong_credentials: DefaultKeyedRateLimiter<IpAddr>,
    health: DefaultKeyedRateLimiter<IpAddr>,
    joins: DefaultKeyedRateLimiter<IpAddr>,
    renewals: DefaultKeyedRateLimiter<NodeId>,
    joins_in_flight: Arc<Semaphore>,
    calls_in_flight: Arc<Semaphore>,
    streams: Arc<Semaphore>,
    streams_of: Arc<Mutex<BTreeMap<String, usize>>>,
}

/// A stream's place; free again when this is dropped.
pub struct StreamPlace {
    subject: String,
    of: Arc<Mutex<BTreeMap<String, usize>>>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = of.get_mut(&self.subject) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                of.remove(&self.subject);
            }
        }
    }
}

impl Limits {
    /// Full buckets.
    #[must_use]
    pub fn new(settings: &Figures) -> Self {
        let in_flight = usize::try_from(settings.join_in_flight.get()).unwrap_or(Semaphore::MAX_PERMITS);
        Self {
            tokens: RateLimiter::keyed(Quota::per_minute(settings.per_token_per_minute)),
            wrong_credentials: RateLimiter::keyed(Quota::per_minute(settings.per_ip_per_minute)),
            health: RateLimiter::keyed(Quota::per_minute(settings.health_per_minute)),
            joins: RateLimiter::keyed(Quota::per_minute(settings.join_per_ip_per_minute)),
            renewals: RateLimiter::keyed(Quota::per_minute(NonZeroU32::MIN).allow_burst(RENEWALS_IN_A_ROW)),
            joins_in_flight: Arc::new(Semaphore::new(in_flight.min(Semaphore::MAX_PERMITS))),
            calls_in_flight: Arc::new(Semaphore::new(MAX_CALLS_IN_FLIGHT)),
            streams: Arc::new(Semaphore::new(MAX_STREAMS)),
            streams_of: Arc::default(),
        }
    }

    /// Charges a credential that was found right.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the wait.
    pub fn charge_token(&self, id: &str) -> Result<(), Problem> {
        charge(&self.tokens, &id.to_owned(), "this credential")
    }

    /// Charges an address for a missing or wrong credential.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the wait.
    pub fn charge_wrong_credential(&self, address: IpAddr) -> Result<(), Problem> {
        charge(
            &self.wrong_credentials,
            &network(address),
            "calls from this address without a valid credential",
        )
    }

    /// Charges an address for what needs no credential: a health check, a document, a request that is none of a method's.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the wait.
    pub fn charge_open(&self, address: IpAddr) -> Result<(), Problem> {
        charge(&self.health, &network(address), "health checks and documents from this address")
    }

    /// Charges an address for a join with a right token.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the wait.
    pub fn charge_join(&self, address: IpAddr) -> Result<(), Problem> {
        charge(&self.joins, &network(address), "joins from this address")
    }

    /// Charges a node for a renewal.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED with the wait.
    pub fn charge_renewal(&self, node: &NodeId) -> Result<(), Problem> {
        charge(&self.renewals, node, "renewals of this node")
    }

    /// Lets a call that has arrived whole be judged, for as long as the permit lives. Joins, which anybody with a token
    /// can send, have places of their own.
    ///
    /// # Errors
    /// UNAVAILABLE where too many are judged already.
    pub fn enter(&self, access: Access) -> Result<OwnedSemaphorePermit, Problem> {
        let (places, many) = match access {
            Access::JoinToken => (&self.joins_in_flight, "machines join"),
            _ => (&self.calls_in_flight, "calls come"),
        };
        places.clone().try_acquire_owned().map_err(|_| {
            Problem::new(Code::Unavailable, format!("Too many {many} at this moment; try again."))
                .retry_after(2)
        })
    }

    /// Lets a subject's stream of events begin, for as long as the place lives.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED where the subject has as many as one may have; UNAVAILABLE where there are too many of all.
    pub fn enter_stream(&self, subject: &str) -> Result<StreamPlace, Problem> {
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| {
            Problem::new(Code::Unavailable, "Too many streams of events are open; try again.").retry_after(30)
        })?;
        let mut of = self.streams_of.lock().unwrap_or_else(PoisonError::into_inner);
        let count = of.entry(subject.to_owned()).or_default();
        if *count >= MAX_STREAMS_EACH {
            let detail = format!(
                "{subject} has {MAX_STREAMS_EACH} streams of events open, which is the most; end one first."
            );
            return Err(Problem::new(Code::ResourceExhausted, detail).retry_after(30));
        }
        *count = count.saturating_add(1);
        Ok(StreamPlace { subject: subject.to_owned(), of: self.streams_of.clone(), _permit: permit })
    }

    /// Forgets buckets that are full again, so that memory follows the callers of the last minute.
    pub fn tidy(&self) {
        self.tokens.retain_recent();
        self.renewals.retain_recent();
        for addresses in [&self.wrong_credentials, &self.health, &self.joins] {
            addresses.retain_recent();
        }
    }
}

fn charge<K: Clone + Hash + Eq>(
    buckets: &DefaultKeyedRateLimiter<K>,
    key: &K,
    what: &str,
) -> Result<(), Problem> {
    buckets.check_key(key).map_err(|refused| {
        let wait = refused.wait_time_from(buckets.clock().now());
        let seconds = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let detail = format!("The limit for {what} is reached; wait {seconds} s.");
        Problem::new(Code::ResourceExhausted, detail).retry_after(seconds)
    })
}

/// The address as a client has it: an IPv6 client has a whole /64.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Limits {
        let two = NonZeroU32::new(2).unwrap();
        Limits::new(&Figures {
            per_token_per_minute: two,
            per_ip_per_minute: two,
            health_per_minute: two,
            join_per_ip_per_minute: NonZeroU32::new(100).unwrap(),
            join_in_flight: two,
        })
    }

    #[test]
    fn nobody_takes_all_places_of_streams() {
        let limits = small();
        let taken: Vec<_> =
            (0..MAX_STREAMS_EACH).map(|_| limits.enter_stream("ann").unwrap_or_else(|_| panic!())).collect();
        assert_eq!(limits.enter_stream("ann").err().unwrap().code, Code::ResourceExhausted);
        assert!(limits.enter_stream("bob").is_ok());
        drop(taken);
        assert!(limits.enter_stream("ann").is_ok() && limits.streams_of.lock().unwrap().is_empty());
    }

    /// Behaviours 64, 65, 68.
    #[test]
    fn each_credential_and_each_address_has_its_own_bucket() {
        let limits = small();
        let (here, there): (IpAddr, IpAddr) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
        for _ in 0..2 {
            assert!(limits.charge_token("a").is_ok());
            assert!(limits.charge_wrong_credential(here).is_ok());
        }
        let refused = limits.charge_token("a").unwrap_err();
        assert_eq!(refused.code, Code::ResourceExhausted);
        assert!(
            refused.retry_after_seconds.is_some_and(|seconds| (1..=31).contains(&seconds)),
            "{refused:?}"
        );
        assert!(limits.charge_token("b").is_ok());
        assert!(limits.charge_wrong_credential(here).is_err());
        assert!(limits.charge_wrong_credential(there).is_ok());
    }

    #[test]
    fn an_ipv6_client_is_its_network() {
        let limits = small();
        for host in ["2001:db8::1", "2001:db8::2"] {
            assert!(limits.charge_open(host.parse().unwrap()).is_ok());
        }
        assert!(limits.charge_open("2001:db8::3".parse().unwrap()).is_err());
        assert!(limits.charge_open("2001:db8:0:1::3".parse().unwrap()).is_ok());
    }

    #[test]
    fn what_is_in_flight_is_bounded_and_comes_back() {
        let limits = small();
        for (access, most) in [(Access::JoinToken, 2), (Access::Node, MAX_CALLS_IN_FLIGHT)] {
            let mut held: Vec<_> = (0..most).map(|_| limits.enter(access).unwrap()).collect();
            let refused = limits.enter(access).unwrap_err();
            assert_eq!((refused.code, refused.retry_after_seconds), (Code::Unavailable, Some(2)));
            held.pop();
            assert!(limits.enter(access).is_ok());
        }
    }

    #[test]
    fn a_node_renews_some_times_in_a_row_and_no_other_node_pays_for_it() {
        let limits = small();
        let (node, other) = (NodeId::derive(&[1; 32]), NodeId::derive(&[2; 32]));
        for _ in 0..RENEWALS_IN_A_ROW.get() {
            assert!(limits.charge_renewal(&node).is_ok());
        }
        let refused = limits.charge_renewal(&node).unwrap_err();
        assert!(refused.retry_after_seconds.is_some_and(|seconds| seconds <= 61), "{refused:?}");
        assert!(limits.charge_renewal(&other).is_ok());
    }
}
