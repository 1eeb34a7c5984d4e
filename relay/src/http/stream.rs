//! `GET /api/compute/events/stream`: events as they come, as server-sent events (WHATWG HTML, 9.2).
//!
//! A stream tells events in the order of their numbers and says each number as its id; whoever comes back with
//! `Last-Event-ID` misses none. The token is judged anew at every look, before anything of it is told: one that was revoked,
//! has ended, or whose owner may no more, ends the stream. What it tells is read by a task of its own, which ends at its
//! next look when the client has gone.

use super::{
    App, Arrival, Stranger, answers::Endless, authenticate, credential, limits::StreamPlace, login::refusal,
    problem, session::Shown,
};
use crate::{
    audit,
    auth::{
        Principal,
        policy::{Decision, Resource, may, not_found},
        tokens::{self, Via},
    },
    call::{Call, Caller, no_credential},
    fault::{Fault, chain},
    store::events,
    webhooks::{matches, unknown},
};
use axum::{
    Extension,
    body::Body,
    extract::{Query, State, rejection::QueryRejection},
    response::Response,
};
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use serde_json::json;
use shared::{
    api::webhooks::MAX_TYPES,
    api::{Access, access::Action},
    bounded::{EventPattern, TenantId},
    problem::Problem,
    secret::Secret,
};
use std::{convert::Infallible, sync::Arc, time::Duration};
use tokio::{sync::mpsc, time::Instant};

/// What it is called beside the methods.
const NAME: &str = "compute.events.stream";
/// How often a stream looks for what is new, and judges its token.
const LOOK: Duration = Duration::from_millis(500);
/// How often a silent stream says that it is there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How many frames wait for the client.
const FRAMES_AHEAD: usize = 4;
/// How many events a stream reads at a time.
const BATCH: i64 = 100;

/// What a stream is asked for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Asked {
    /// Whose events; an admin may leave it out for everybody's.
    tenant_id: Option<TenantId>,
    /// Only these, by commas: types of events, their beginnings, or `*`, as a webhook has them.
    types: Option<String>,
    /// As the header `Last-Event-ID`, for those who can't send it.
    last_event_id: Option<String>,
}

/// A stream.
struct Stream {
    app: Arc<App>,
    bearer: Secret,
    via: Via,
    tenant: Option<TenantId>,
    types: Vec<String>,
    after: i64,
    told: Instant,
    _place: StreamPlace,
}

/// Answers with a stream, or the problem.
pub(super) async fn events(
    State(app): State<Arc<App>>,
    Extension(arrival): Extension<Arrival>,
    asked: Result<Query<Asked>, QueryRejection>,
    headers: HeaderMap,
) -> Response {
    match begin(&app, &arrival, asked, &headers).await {
        Ok(stream) => {
            app.relay.metrics.answered(NAME, "OK");
            answer(stream)
        }
        Err(fault) => problem::problem(&refusal(&app, &arrival, NAME, fault)),
    }
}

async fn begin(
    app: &Arc<App>,
    arrival: &Arrival,
    asked: Result<Query<Asked>, QueryRejection>,
    headers: &HeaderMap,
) -> Result<Stream, Fault> {
    let relay = &app.relay;
    let mut stranger = Stranger::new(app, arrival.remote);
    let found = authenticate(&mut stranger, (Access::Any, Shown::Stream), headers, arrival).await?;
    let Some(Caller::Credential(principal)) = found else {
        stranger.charge()?;
        return Err(no_credential(Access::Any).into());
    };
    relay.limits.charge_token(principal.chain.as_str())?;
    let Query(asked) = asked.map_err(|_| {
        let rule = "takes tenantId, types (by commas) and lastEventId";
        Problem::invalid_field("query", rule)
    })?;
    let given = headers.get("last-event-id").and_then(|value| value.to_str().ok());
    let after = match given.or(asked.last_event_id.as_deref()) {
        Some(id) => id.parse().map_err(|_| {
            Problem::invalid_field("lastEventId", "must be the id of an event that a stream told")
        })?,
        None => {
            relay
                .store
                .read("stream", (), |tx, ()| {
                    Box::pin(async move { Ok::<_, Fault>(events::last_number(tx).await?) })
                })
                .await?
        }
    };
    let types = types_of(asked.types.as_deref().unwrap_or_default())?;
    let tenant = asked.tenant_id;
    if let Err(problem) = decide(&principal.powers, tenant.as_ref()) {
        note(app, arrival, principal, tenant.as_ref(), &problem).await;
        return Err(problem.into());
    }
    let place = relay.limits.enter_stream(&principal.subject)?;
    let (bearer, via) = credential(app, headers, Shown::Stream)?.ok_or_else(|| no_credential(Access::Any))?;
    let bearer = Secret::new(bearer.to_owned());
    Ok(Stream { app: app.clone(), bearer, via, tenant, types, after, told: Instant::now(), _place: place })
}

/// The types that were asked for, of which each one is an event's.
fn types_of(asked: &str) -> Result<Vec<String>, Problem> {
    let refused = |rule: String| Problem::invalid_field("types", rule);
    let words = asked.split(',').filter(|word| !word.is_empty()).take(MAX_TYPES + 1);
    let types: Vec<EventPattern> = words
        .map(|word| word.parse().map_err(|broken| refused(format!("{broken}"))))
        .collect::<Result<_, _>>()?;
    if types.len() > MAX_TYPES {
        return Err(refused(format!("must be at most {MAX_TYPES} types")));
    }
    let types = types.iter().map(ToString::to_string).collect::<Vec<_>>();
    match unknown(&types) {
        Some((_, rule)) => Err(refused(rule)),
        None => Ok(types),
    }
}

/// Records that somebody may not.
async fn note(
    app: &App,
    arrival: &Arrival,
    principal: Arc<Principal>,
    tenant: Option<&TenantId>,
    problem: &Problem,
) {
    let call = Call {
        relay: app.relay.clone(),
        caller: Caller::Credential(principal),
        method: NAME,
        remote: arrival.remote,
        request_id: arrival.request_id.to_string(),
        now: app.relay.clock.now(),
    };
    let input = json!({"tenantId": tenant}).to_string();
    audit::refused(&app.denials, &call, Action::EventsRead.as_str(), input.as_bytes(), problem).await;
}

fn decide(powers: &crate::auth::Powers, tenant: Option<&TenantId>) -> Result<(), Problem> {
    let (resource, what) = match tenant {
        Some(id) => (Resource::Tenant { tenant: id.as_str() }, format!("tenant {id}")),
        None => (Resource::Platform, "this installation".to_owned()),
    };
    match may(powers, Action::EventsRead, resource) {
        Decision::Hidden => Err(not_found(&what)),
        decision => decision.require(Action::EventsRead, &what),
    }
}

fn answer(stream: Stream) -> Response {
    let (frames, told) = mpsc::channel(FRAMES_AHEAD);
    tokio::spawn(stream.tell(frames));
    let frames = futures_util::stream::unfold(told, |mut told| async move {
        let frame = told.recv().await?;
        Some((Ok::<_, Infallible>(frame), told))
    });
    let mut response = Response::new(Body::from_stream(frames));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response.extensions_mut().insert(Endless);
    response
}

impl Stream {
    /// Tells what comes until the client goes, or may no more.
    async fn tell(mut self, frames: mpsc::Sender<Bytes>) {
        while !frames.is_closed() {
            let mut ready = match self.read().await {
                Ok(ready) => ready,
                Err(fault) => return tracing::warn!(error = chain(&fault), "a stream of events ends"),
            };
            // After the reading, so that nothing is told that was read while it might.
            if !self.still_may().await {
                return;
            }
            if ready.is_empty() && self.told.elapsed() < KEEP_ALIVE {
                tokio::time::sleep(LOOK).await;
                continue;
            }
            if ready.is_empty() {
                ready.push(Bytes::from_static(b": still here\n\n"));
            }
            for frame in ready {
                if frames.send(frame).await.is_err() {
                    return;
                }
            }
            self.told = Instant::now();
        }
    }

    /// Reads what is new, as frames.
    async fn read(&mut self) -> Result<Vec<Bytes>, Fault> {
        let mut ready = Vec::new();
        let relay = &self.app.relay;
        let work = (self.tenant.as_ref().map(TenantId::as_str), self.after);
        let kept = relay.store.read("stream", work, |tx, (tenant, after)| {
            Box::pin(async move { Ok::<_, Fault>(events::after(tx, *tenant, *after, BATCH).await?) })
        });
        for kept in kept.await? {
            self.after = kept.number.unwrap_or(self.after);
            let event = relay.sourced(kept);
            if self.types.is_empty() || matches(&self.types, &event.event_type) {
                let json = serde_json::to_string(&event).map_err(Fault::internal("writing an event"))?;
                let (id, kind) = (self.after, &event.event_type);
                ready.push(format!("id: {id}\nevent: {kind}\ndata: {json}\n\n").into());
            }
        }
        Ok(ready)
    }

    /// Whether the token still counts, and may still be told.
    async fn still_may(&self) -> bool {
        let relay = &self.app.relay;
        let found = tokens::authenticate(relay, (self.bearer.expose(), self.via), relay.clock.now()).await;
        let principal = found.ok().flatten();
        principal.is_some_and(|principal| decide(&principal.powers, self.tenant.as_ref()).is_ok())
    }
}
