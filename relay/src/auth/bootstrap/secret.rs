//! The bootstrap pair in a Kubernetes Secret: one for all relays of a store, renewed under one lease.
//!
//! **Whatever crashes, at least one pair is written per period of 8 hours in which a relay runs and the cluster answers, and
//! what the Secret has is valid.** One is the rule; a further one comes where a writer fails half-way (below). The lease is the record of that. A relay takes
//! it for a minute in the transaction that mints the pair, writes the Secret, and only then lets the lease run for the
//! whole period; so there is never a time in which the lease says that a pair was written and none was, and a relay that
//! starts within the period finds the lease held and writes nothing.
//!
//! - The writer dies before it wrote: the lease ends after the minute, and the next relay writes. The pair of before is
//!   valid for eight hours more, so there is no gap.
//! - It dies after it wrote and before it said so: the same; the Secret gets a second pair, and the first stays valid.
//! - The write fails, or nobody knows: the lease is given up, and every relay tries at its next turn. Both pairs are
//!   valid, so it does not matter which of them the Secret has.
//! - The writer is late (it stood still): it gives up its request before the lease ends. Where its request got through all
//!   the same, its fence is an old one when it says so: which pair the Secret has is then unknown, so the lease is ended,
//!   and a new pair is written.
//!
//! A pair that was minted and never written is known to nobody and ends by itself. Nothing here keeps the relay from
//! serving, and no token is in a log or an error.

use super::{RENEW_SECONDS, mint};
use crate::{
    config::ClusterSecret,
    context::Context,
    fault::{Fault, chain},
    kubernetes::Cluster,
    outside::client::REQUEST_TIMEOUT,
    store::{
        StoreError,
        leases::{self, Lease, Taken},
    },
};
use shared::{hex, secret::Secret};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long one relay has to write a pair, in seconds.
const WRITING_SECONDS: u32 = 60;
/// When it gives up, counted from before it asked for the lease: the database's clock may not run quite as ours.
const GIVE_UP: Duration = Duration::from_secs(45);
/// How often it is looked whether a pair is due; the lease may be ended by hand.
const LOOK: Duration = Duration::from_secs(60);
/// The first wait after a failure; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest wait after a failure.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

const _: () = assert!(REQUEST_TIMEOUT.as_secs() < GIVE_UP.as_secs());
const _: () = assert!(GIVE_UP.as_secs() < WRITING_SECONDS as u64);
const _: () = assert!(WRITING_SECONDS < RENEW_SECONDS && RENEW_SECONDS <= leases::LONGEST_SECONDS);

/// Keeps a current pair in the Secret; never ends. What fails is logged and tried again, ever more rarely.
pub async fn keep(relay: &Context, place: &ClusterSecret) {
    // Another one for each start: what a former process held is not this one's.
    let holder = hex::encode(&relay.random.bytes::<16>());
    let mut failures = 0;
    loop {
        let wait = match turn(relay, place, &holder).await {
            Ok(wait) => {
                failures = 0;
                wait
            }
            Err(fault) => {
                let wait = wait_after(failures);
                failures += 1;
                tracing::warn!(
                    secret = place.name(),
                    seconds = wait.as_secs(),
                    error = chain(&fault),
                    "the admin credentials could not be written to the Secret; it is tried again"
                );
                wait
            }
        };
        tokio::time::sleep(wait).await;
    }
}

fn wait_after(failures: u32) -> Duration {
    FIRST_WAIT.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(LONGEST_WAIT)
}

/// What the lease let us do.
enum Begun {
    /// Nothing for so long: the Secret's pair is current, or another relay writes it.
    Held(Duration),
    /// To write this pair.
    Minted(Lease, Vec<(&'static str, Secret)>),
}

/// Writes a pair if one is due; answers when to look again.
async fn turn(relay: &Context, place: &ClusterSecret, holder: &str) -> Result<Duration, Fault> {
    let began = Instant::now();
    // First what may be missing here: no lease is taken for nothing.
    let cluster = Cluster::open(place).map_err(Fault::internal("opening the cluster"))?;
    let lease = format!("bootstrap-secret/{}/{}", cluster.namespace(), place.name());
    let (lease, pair) = match begin(relay, &lease, holder).await? {
        Begun::Held(left) => {
            tracing::debug!(secret = place.name(), seconds = left.as_secs(), "no pair is due");
            return Ok(left.min(LOOK));
        }
        Begun::Minted(lease, pair) => (lease, pair),
    };
    let written = timeout_at(began + GIVE_UP, cluster.apply(place.name(), &pair)).await;
    let failed = match written {
        Ok(Ok(())) => return settle(relay, &lease, place).await,
        Ok(Err(error)) => Fault::internal("writing the Secret")(error),
        Err(late) => Fault::internal("writing the Secret before the lease ends")(late),
    };
    // If this fails too, it ends by itself.
    let given_up: Result<(), StoreError> = relay
        .store
        .transact("bootstrap secret", &lease, |tx, lease| Box::pin(leases::release(tx, lease)))
        .await;
    if let Err(error) = given_up {
        tracing::debug!(error = chain(&error), "the lease is not given up");
    }
    Err(failed)
}

/// Takes the lease and mints a pair, or neither.
async fn begin(relay: &Context, lease: &str, holder: &str) -> Result<Begun, Fault> {
    relay
        .store
        .transact("bootstrap secret", (relay, lease, holder), |tx, (relay, lease, holder)| {
            Box::pin(async move {
                match leases::take(tx, lease, holder, WRITING_SECONDS).await? {
                    Taken::Held(left) => Ok::<_, Fault>(Begun::Held(left)),
                    Taken::Ours(lease) => Ok(Begun::Minted(lease, mint(tx, relay).await?)),
                }
            })
        })
        .await
}

/// Notes that the pair is in the Secret: the next is due in a period.
async fn settle(relay: &Context, lease: &Lease, place: &ClusterSecret) -> Result<Duration, Fault> {
    let settled: Result<bool, StoreError> = relay
        .store
        .transact("bootstrap secret", lease, |tx, lease| {
            Box::pin(async move {
                let ours = leases::renew(tx, lease, RENEW_SECONDS).await?;
                if !ours {
                    leases::end(tx, &lease.name).await?;
                }
                Ok(ours)
            })
        })
        .await;
    if settled? {
        tracing::info!(secret = place.name(), "the admin credentials in the Secret are new");
        return Ok(LOOK);
    }
    Err(Fault::internal("writing the Secret")(
        "another relay wrote it meanwhile, so which pair it has is unknown",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_five_minutes() {
        let waits: Vec<u64> = (0..11).map(|failures| wait_after(failures).as_secs()).collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]);
        assert_eq!(wait_after(u32::MAX), LONGEST_WAIT);
    }
}
