//! Publishing revocation lists: a task, as signing them is not part of the transaction that revokes.
//!
//! A change of what must not be accepted any more ([`changed`]) asks for it in its own transaction, and beside that it is done
//! every few minutes, so that what has expired drops off and no list gets old. The work can be done twice: a list is derived
//! from the nodes alone, and takes the place of the one that was there when these were read, or of none. So a worker that is
//! late or one of two never puts an older list over a newer one, and the numbers of a CA's lists only grow.

use crate::{
    ca::{Authority, CRL_SECONDS, Revoked},
    context::Context,
    fault::Fault,
    random::Random,
    store::{
        Tx, certificates,
        crls::{self, Published},
        tasks,
    },
    tasks::{Asked, Attempt, Claim, Ended, Failure, Kind, Manner, Queue, enqueue, runner::Handlers},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;
use shared::{id::TaskId, time::Timestamp};
use std::sync::Arc;

/// How old a published list may be to be handed out, in seconds: three turns of its publishing.
pub const STALE_SECONDS: i64 = 900;

/// Where the tasks of this module wait.
pub static QUEUE: Queue = Queue { name: "crls", at_a_time: 1 };
/// What must not be accepted any more has changed.
static PUBLISH: Kind =
    Kind { name: "crls.publish", queue: &QUEUE, manner: Manner::Retried, lease_seconds: 60 };
/// Time has passed.
static REFRESH: Kind =
    Kind { name: "crls.refresh", queue: &QUEUE, manner: Manner::Every { seconds: 300 }, lease_seconds: 60 };
/// How many changes one publishing answers at most.
const CHANGES_AT_ONCE: i64 = 200;

/// Asks for new lists, in the transaction that revokes certificates or takes that back.
///
/// # Errors
/// The store's.
pub async fn changed(tx: &mut Tx<'_>, random: &Random) -> Result<(), Fault> {
    // Without a key: a task that is under way may have read what was there before this change.
    enqueue(tx, random, &Asked::now(&PUBLISH, &Value::Null)).await.map(drop)
}

/// With the handlers that publish.
#[must_use]
pub fn handlers(others: Handlers) -> Handlers {
    others.on(&PUBLISH, publish).on(&REFRESH, publish)
}

/// Publishes the lists of all issuing CAs, and answers the changes that were asked for before they were read.
async fn publish(relay: Arc<Context>, claim: Claim) -> Attempt {
    let answered: Vec<TaskId> = relay
        .store
        .read("crls.changes", (), |tx, ()| {
            Box::pin(async move { Ok::<_, Fault>(tasks::waiting(tx, PUBLISH.name, CHANGES_AT_ONCE).await?) })
        })
        .await
        .map_err(Failure::from)?;
    let ca = relay.ca.load_full();
    for issuer in ca.issuers() {
        let (before, revoked) = read(&relay, &issuer.id).await?;
        let list = sign(&ca, &issuer.id, before, (&revoked, relay.clock.now()))?;
        let put = relay.store.transact("crls.put", (&issuer.id, &list, before), |tx, (id, list, before)| {
            Box::pin(async move { Ok::<_, Fault>(crls::put(tx, id, list, *before).await?) })
        });
        if !put.await.map_err(Failure::from)? {
            // Another one was published meanwhile, which may be of before the change.
            return Ok(Ended::Later(1));
        }
    }
    finish(&relay, &claim, &answered).await
}

/// The number of the list that is there, and what a new one says, as of one moment.
async fn read(relay: &Context, issuer: &str) -> Result<(i64, Vec<Revoked>), Failure> {
    let read = relay.store.read("crls.revoked", (issuer, relay.clock.now()), |tx, (issuer, now)| {
        Box::pin(async move {
            let before = crls::number(tx, issuer).await?;
            Ok::<_, Fault>((before, certificates::revoked(tx, issuer, *now).await?))
        })
    });
    read.await.map_err(Failure::from)
}

fn sign(
    ca: &Authority,
    issuer: &str,
    before: i64,
    (revoked, now): (&[Revoked], Timestamp),
) -> Result<Published, Failure> {
    // The wall clock may have been put back since the last one.
    let number = now.millis().max(before.saturating_add(1));
    let der = ca.crl(issuer, revoked, now, number).map_err(Fault::internal("signing a CRL"))?;
    Ok(Published { number, der: STANDARD.encode(der), made_at: now })
}

async fn finish(relay: &Context, claim: &Claim, answered: &[TaskId]) -> Attempt {
    let context = (claim, answered, relay.clock.now().plus_seconds(-CRL_SECONDS));
    let finished = relay.store.transact("crls.finish", context, |tx, (claim, answered, gone)| {
        Box::pin(async move {
            if !claim.finish(tx).await? {
                return Ok::<_, Fault>(());
            }
            crls::forget(tx, *gone).await?;
            let now = tx.database_time().await?;
            // Those that another worker takes at this moment are left to it.
            for id in tasks::lock_waiting(tx, PUBLISH.name, CHANGES_AT_ONCE).await? {
                if answered.contains(&id) {
                    tasks::complete(tx, &id, now).await?;
                }
            }
            Ok(())
        })
    });
    finished.await.map(|()| Ended::Finished).map_err(Failure::from)
}

#[cfg(test)]
mod tests;
