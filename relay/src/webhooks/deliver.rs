//! One webhook's deliveries: its events one at a time, in order, as long as a turn lasts.
//!
//! Each step counts only for the webhook as it was read: where it was changed, disabled or deleted meanwhile, it is read anew
//! before anything else is sent.

use super::{matches, opened, sign::SigningKey};
use crate::{
    context::Context,
    events::{Event, Kind, Origin},
    fault::Fault,
    outside::{Target, Unreached, client::REQUEST_TIMEOUT, settled, unreached},
    store::{
        Tx, events,
        events::Kept,
        webhooks::{self, Failed, WebhookRow},
    },
    tasks::{Attempt, Claim, Ended, Failure},
};
use reqwest::{Client, Response, header::CONTENT_TYPE};
use serde_json::json;
use shared::{api::events::CloudEvent, id::WebhookId, time::Timestamp};
use std::{sync::Arc, time::Duration};
use tokio::time::{Instant, timeout_at};

/// How long a turn lasts; then others of the queue have theirs. With what is under way at its end, it is over before the
/// worker gives up.
const TURN: Duration = Duration::from_secs(20);
/// How many events are read at a time.
const BATCH: i64 = 50;
/// The wait after the first failure, in seconds; each further one is twice as long.
const FIRST_WAIT_SECONDS: u32 = 10;
/// The longest wait, in seconds (one hour).
const LONGEST_WAIT_SECONDS: u32 = 3_600;
/// How long a webhook may fail without a success before it is disabled, in seconds (three days).
const FAILING_SECONDS: u64 = 3 * 86_400;
/// How many attempts must have failed by then. Where no relay ran for days, nothing was tried.
const MIN_FAILURES: i64 = 20;
/// The media type of an event in JSON (CloudEvents 1.0, HTTP binding).
const CLOUD_EVENT: &str = "application/cloudevents+json";

pub(super) async fn deliver(relay: Arc<Context>, claim: Claim) -> Attempt {
    let id = claim.payload.get("webhookId").and_then(|id| id.as_str()?.parse().ok());
    let id: WebhookId = id.ok_or_else(|| Failure::Never("its payload names no webhook".to_owned()))?;
    turn(&relay, &id).await.map_err(Failure::from)
}

async fn turn(relay: &Context, id: &WebhookId) -> Result<Ended, Fault> {
    let end = Instant::now() + TURN;
    let mut line: Option<Line> = None;
    while Instant::now() < end {
        let Some((row, behind)) = load(relay, id).await? else { return Ok(Ended::Done) };
        let all = i64::try_from(behind.len()).is_ok_and(|read| read < BATCH);
        if !line.as_ref().is_some_and(|line| line.is_of(&row)) {
            line = Some(Line::to(relay, &row)?);
        }
        let Some(line) = &mut line else { break };
        match batch(relay, row, behind, line, end).await? {
            Batch::Over if all => return Ok(Ended::Done),
            Batch::Over | Batch::Open => {}
            Batch::Failed(ended) => return Ok(ended),
        }
    }
    Ok(Ended::Later(1))
}

/// The webhook, if it delivers, and the next events of its tenant.
async fn load(relay: &Context, id: &WebhookId) -> Result<Option<(WebhookRow, Vec<Kept>)>, Fault> {
    let read = relay.store.read("webhooks.next", id, |tx, id| {
        Box::pin(async move {
            let found = webhooks::find(tx, id).await?;
            let Some(row) = found.filter(|row| row.webhook.enabled) else { return Ok::<_, Fault>(None) };
            let behind = events::after(tx, Some(&row.webhook.tenant_id), row.event_number, BATCH).await?;
            Ok(Some((row, behind)))
        })
    });
    read.await
}

/// What became of a batch of events.
enum Batch {
    /// They are delivered or passed over.
    Over,
    /// The webhook is another by now, or the turn has ended.
    Open,
    /// One was not delivered.
    Failed(Ended),
}

async fn batch(
    relay: &Context,
    mut row: WebhookRow,
    behind: Vec<Kept>,
    line: &mut Line,
    end: Instant,
) -> Result<Batch, Fault> {
    let mut seen = row.event_number;
    for kept in behind {
        let Some(number) = kept.number else { continue };
        if matches(&row.webhook.types, &kept.event.event_type) {
            if Instant::now() >= end {
                return Ok(Batch::Open);
            }
            match line.send(relay, &relay.sourced(kept)).await? {
                Ok(()) if delivered(relay, &row, number).await? => row.event_number = number,
                Ok(()) => return Ok(Batch::Open),
                Err(why) => return failed(relay, &row, why).await.map(Batch::Failed),
            }
        }
        seen = number;
    }
    if seen > row.event_number && !passed(relay, &row, seen).await? {
        return Ok(Batch::Open);
    }
    Ok(Batch::Over)
}

async fn delivered(relay: &Context, row: &WebhookRow, number: i64) -> Result<bool, Fault> {
    let context = (row, number, relay.clock.now());
    let store = &relay.store;
    store
        .transact("webhooks.delivered", context, |tx, (row, number, now)| {
            Box::pin(async move { Ok(webhooks::delivered(tx, row, *number, *now).await?) })
        })
        .await
}

async fn passed(relay: &Context, row: &WebhookRow, number: i64) -> Result<bool, Fault> {
    let store = &relay.store;
    store
        .transact("webhooks.passed", (row, number), |tx, (row, number)| {
            Box::pin(async move { Ok(webhooks::passed(tx, row, *number).await?) })
        })
        .await
}

/// Keeps that an attempt failed, and says how the task goes on.
async fn failed(relay: &Context, row: &WebhookRow, why: Unreached) -> Result<Ended, Fault> {
    let (webhook, word) = (row.webhook.id.as_str(), why.to_string());
    tracing::info!(
        webhook,
        why = word,
        failures = row.failures.saturating_add(1),
        "a webhook was not reached"
    );
    let context = (relay, row, word);
    let store = &relay.store;
    store
        .transact("webhooks.failed", context, |tx, (relay, row, word)| {
            Box::pin(keep_failure(tx, relay, row, word))
        })
        .await
}

async fn keep_failure(tx: &mut Tx<'_>, relay: &Context, by: &WebhookRow, word: &str) -> Result<Ended, Fault> {
    let same = |row: &WebhookRow| row.revision == by.revision && row.event_number == by.event_number;
    let Some(row) = webhooks::lock(tx, &by.webhook.id).await?.filter(same) else {
        return Ok(Ended::Later(1));
    };
    // One clock for all relays.
    let now = tx.database_time().await?;
    let failures = row.failures.saturating_add(1);
    let failing_since = row.webhook.failing_since.unwrap_or(now);
    let ends = is_over(failures, failing_since, now);
    let failed = Failed { failures, failing_since, last_error: word, disabled_at: ends.then_some(now) };
    webhooks::failed(tx, &row, &failed).await?;
    if !ends {
        return Ok(Ended::Later(wait_seconds(failures)));
    }
    let data = json!({"reason": "failing", "failingSince": failing_since, "lastError": word});
    let event = Event {
        kind: Kind::WebhookDisabled,
        tenant: &row.webhook.tenant_id,
        subject: row.webhook.id.as_str(),
        data,
    };
    let origin = Origin { actor: "relay".to_owned(), request_id: String::new(), at: relay.clock.now() };
    events::insert(tx, &relay.random, &origin, &event).await?;
    Ok(Ended::Done)
}

/// Whether so many failures since then are enough to disable a webhook.
fn is_over(failures: i64, failing_since: Timestamp, now: Timestamp) -> bool {
    failures >= MIN_FAILURES && now.since(failing_since).as_secs() >= FAILING_SECONDS
}

/// The wait after so many failures.
fn wait_seconds(failures: i64) -> u32 {
    let doublings = u32::try_from(failures.saturating_sub(1).max(0)).unwrap_or(u32::MAX);
    let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
    FIRST_WAIT_SECONDS.saturating_mul(factor).min(LONGEST_WAIT_SECONDS)
}

/// What a webhook's events are sent by, as long as it leads to the same place: its address is judged once, with the first
/// event of a turn.
struct Line {
    revision: i64,
    target: Option<Target>,
    key: SigningKey,
    client: Option<Client>,
}

impl Line {
    fn to(relay: &Context, row: &WebhookRow) -> Result<Self, Fault> {
        let target = row.webhook.url.parse().ok();
        let key = opened(&relay.keys, row)?;
        Ok(Self { revision: row.revision, target, key, client: None })
    }

    fn is_of(&self, row: &WebhookRow) -> bool {
        self.revision == row.revision
    }

    /// Sends an event; all of it within the time of one request.
    async fn send(&mut self, relay: &Context, event: &CloudEvent) -> Result<Result<(), Unreached>, Fault> {
        let body = serde_json::to_string(event).map_err(Fault::internal("writing an event"))?;
        let by = Instant::now() + REQUEST_TIMEOUT;
        let answered = timeout_at(by, self.post(relay, event, body)).await;
        Ok(match answered.unwrap_or(Err(Unreached::Timeout)) {
            Ok(answer) => settled(answer, by).await,
            Err(why) => Err(why),
        })
    }

    async fn post(
        &mut self,
        relay: &Context,
        event: &CloudEvent,
        body: String,
    ) -> Result<Response, Unreached> {
        // One that was parsed when it was named parses.
        let target = self.target.as_ref().ok_or(Unreached::RefusedAddress)?;
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(relay.outside.open(target).await?),
        };
        let (id, seconds) = (event.id.as_str(), relay.clock.now().seconds());
        let request = client
            .post(target.url().clone())
            .header(CONTENT_TYPE, CLOUD_EVENT)
            .header("webhook-id", id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", self.key.signature(id, seconds, &body))
            .body(body);
        request.send().await.map_err(|error| unreached(&error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_an_hour() {
        let waits: Vec<u32> = (1..=12).map(wait_seconds).collect();
        assert_eq!(waits, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600, 3600]);
        assert_eq!((wait_seconds(0), wait_seconds(i64::MAX)), (10, 3600));
    }

    #[test]
    fn three_days_of_nothing_but_failure_are_enough_and_a_relay_that_was_off_is_none() {
        let now = Timestamp::from_seconds(1_780_000_000);
        let since = |seconds: i64| now.plus_seconds(-seconds);
        for (failures, seconds, over) in [
            (20, 259_200, true),
            (20, 259_199, false),
            (19, 259_200, false),
            (19, 9_000_000, false),
            (1_000, 0, false),
            // The database's clock was put back.
            (1_000, -259_200, false),
        ] {
            assert_eq!(is_over(failures, since(seconds), now), over, "{failures} in {seconds} s");
        }
    }
}
