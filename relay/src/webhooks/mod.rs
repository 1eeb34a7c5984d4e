//! Webhooks: a tenant's events, sent to an address that its OWNER named, signed ([`sign`]), over the way to the outside.
//!
//! **Each event is delivered at least once, and none before the one that it follows.** A webhook keeps the number of the last
//! event that was delivered or passed over. One task for each webhook ([`deliver`]) sends the next one, and writes its number
//! when the receiver has taken it; a worker that is killed between the two sends it again, and the receiver knows it by its id.
//! Events of before a webhook was made have smaller numbers than the one that it begins with, so they are none of it.
//!
//! Whoever numbers events asks for the tasks of the webhooks that are told one, in the same transaction ([`number`]). A task
//! that is just ending may have looked before that, and takes the key of the one that is asked for: so a sweep each minute
//! asks for those that are behind without a task ([`sweep`]).
//!
//! What fails is tried again, after waits that double up to an hour, before anything that follows it. A webhook that has only
//! failed for three days is disabled, and the event `infra.webhook.disabled` tells of it; its events wait, and one that is
//! enabled again goes on where it stopped. What the receiver answered is told to nobody but as one of a few words.

mod deliver;
pub mod sign;
mod sweep;
#[cfg(test)]
mod tests;

use crate::{
    events::Kind as EventKind,
    fault::Fault,
    nearest::nearest,
    random::Random,
    seal::{KeyRing, Place},
    store::{
        Tx, events,
        tasks::wake,
        webhooks::{self, COLUMN, TABLE, WebhookRow},
    },
    tasks::{Asked, Kind, Manner, Queue, enqueue, runner::Handlers},
};
use serde_json::json;
use shared::id::WebhookId;
use sign::SigningKey;
use std::collections::BTreeSet;

/// Where the tasks of this module wait.
pub static QUEUE: Queue = Queue { name: "webhooks", at_a_time: 16 };
/// A webhook has something to deliver.
static DELIVER: Kind =
    Kind { name: "webhook.deliver", queue: &QUEUE, manner: Manner::Retried, lease_seconds: 60 };
/// Some may have without a task that does it.
static SWEEP: Kind =
    Kind { name: "webhooks.sweep", queue: &QUEUE, manner: Manner::Every { seconds: 60 }, lease_seconds: 120 };

/// How many events get their number in one transaction.
const NUMBERED_AT_ONCE: i64 = 1_000;
/// How many times so many get one before a webhook is made: more than ever wait.
const NUMBERED_FIRST: usize = 100;
/// How many pairs of a webhook and a type of events are looked at beside that; what is left is found by the sweep.
const TOLD_AT_ONCE: i64 = 1_000;

/// With the handlers that deliver.
#[must_use]
pub fn handlers(others: Handlers) -> Handlers {
    others.on(&DELIVER, deliver::deliver).on(&SWEEP, sweep::sweep)
}

/// Whether an event's type is one of these: a type, a beginning that ends in `.*`, or `*` for all. Pure.
#[must_use]
pub fn matches(patterns: &[String], event_type: &str) -> bool {
    let one = |pattern: &String| match pattern.strip_suffix('*') {
        Some(beginning) => event_type.starts_with(beginning),
        None => pattern == event_type,
    };
    patterns.iter().any(one)
}

/// The first of these that no event is of: its place, and the rule that it breaks. Pure.
#[must_use]
pub fn unknown(patterns: &[String]) -> Option<(usize, String)> {
    let known = || EventKind::ALL.into_iter().map(EventKind::as_str);
    let is_known = |pattern: &String| known().any(|kind| matches(std::slice::from_ref(pattern), kind));
    let (at, pattern) = patterns.iter().enumerate().find(|(_, pattern)| !is_known(pattern))?;
    let near = match nearest(pattern, known()).as_slice() {
        [] => String::new(),
        near => format!("near it: {}; ", near.join(", ")),
    };
    Some((at, format!("there is no event of this type; {near}README.md lists them all, under \"Webhooks\"")))
}

/// Gives numbers to events that have none, and asks for the deliveries that follow from that; says how many got one.
///
/// # Errors
/// The store's.
pub async fn number(tx: &mut Tx<'_>, random: &Random) -> Result<u64, Fault> {
    let numbered = events::number(tx, NUMBERED_AT_ONCE).await?;
    let last = events::last_number(tx).await?;
    let before = last.saturating_sub(i64::try_from(numbered).unwrap_or(0));
    let told = webhooks::told(tx, (before, last), TOLD_AT_ONCE).await?;
    let told = told.into_iter().filter(|(_, patterns, event_type)| matches(patterns, event_type));
    for id in told.map(|(id, ..)| id).collect::<BTreeSet<_>>() {
        ask(tx, random, &id).await?;
    }
    Ok(numbered)
}

/// The number that a webhook which is made now begins behind: no event that was written before has a greater one.
///
/// # Errors
/// The store's.
pub async fn beginning(tx: &mut Tx<'_>, random: &Random) -> Result<i64, Fault> {
    for _ in 0..NUMBERED_FIRST {
        if number(tx, random).await? == 0 {
            break;
        }
    }
    Ok(events::last_number(tx).await?)
}

/// Asks for what a webhook that was changed has to deliver, without the wait of failures that were another's.
///
/// # Errors
/// The store's.
pub async fn resume(tx: &mut Tx<'_>, random: &Random, id: &WebhookId) -> Result<(), Fault> {
    ask(tx, random, id).await?;
    let now = tx.database_time().await?;
    Ok(wake(tx, id.as_str(), now).await?)
}

async fn ask(tx: &mut Tx<'_>, random: &Random, id: &WebhookId) -> Result<(), Fault> {
    let payload = json!({"webhookId": id});
    let asked = Asked { key: Some(id.as_str()), ..Asked::now(&DELIVER, &payload) };
    enqueue(tx, random, &asked).await.map(drop)
}

/// A webhook's key, sealed to its row.
///
/// # Errors
/// It can't be sealed.
pub fn sealed(keys: &KeyRing, random: &Random, id: &WebhookId, key: &SigningKey) -> Result<String, Fault> {
    let place = Place { table: TABLE, row: id.as_str(), column: COLUMN };
    keys.seal(place, key.expose(), random).map_err(Fault::internal("sealing a webhook's secret"))
}

/// The key of a webhook.
fn opened(keys: &KeyRing, row: &WebhookRow) -> Result<SigningKey, Fault> {
    let place = Place { table: TABLE, row: row.webhook.id.as_str(), column: COLUMN };
    let opened = keys.open(place, &row.sealed_secret);
    opened.map(SigningKey::new).map_err(Fault::internal("opening a webhook's secret"))
}
