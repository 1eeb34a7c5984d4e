//! HTTP: from a connection to a method and back.
//!
//! Owns the order in which a request is judged before its handler runs: route, media type, credential, limits,
//! body. What the handlers decide is theirs.

mod answers;
mod cookies;
pub mod crls;
mod device;
pub mod documents;
pub mod limits;
mod login;
mod logout;
mod page;
pub mod problem;
pub mod proxy;
pub mod record;
pub mod serve;
mod session;
mod stream;
pub mod tls;

use crate::{
    api::registry::Registry,
    audit::{self, denials::Denials},
    auth::tokens::{self, Via},
    call::{Call, Caller, no_credential, unauthenticated},
    context::Context,
    fault::Fault,
    join::{signs, standing},
    store::join_tokens,
};
use axum::{
    Router,
    body::{Body, HttpBody as _},
    extract::{Request, State},
    response::Response,
    routing::{get, post},
};
use bytes::Bytes;
use http::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, CONTENT_TYPE},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use session::Shown;
use shared::{
    api::{Access, Method},
    problem::{Code, Problem, Reason},
    token::JoinToken,
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::time::Instant;

/// The longest body, in bytes.
pub const MAX_BODY_BYTES: usize = 256 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(20);
/// How long what was found out about a caller counts while its body comes.
const FRESH: Duration = Duration::from_millis(20);

/// What the routes share.
pub struct App {
    /// The relay.
    pub relay: Arc<Context>,
    /// The methods.
    pub registry: Registry,
    /// Where clients reach it, without a path.
    pub url: String,
    /// The CRLs that were made last.
    pub crls: crls::Crls,
    /// Bounds what the log says of refusals.
    pub refusals: record::Refusals,
    /// Bounds what the audit says of refusals.
    pub denials: Denials,
    /// Who is believed on who the client is.
    pub proxies: proxy::Trusted,
}

/// What is known of a request before it is read.
#[derive(Clone)]
pub struct Arrival {
    /// The client's address.
    pub remote: IpAddr,
    /// The machine's certificate, if one came and verified.
    pub peer: Option<Arc<crate::ca::PeerCertificate>>,
    /// The request's id.
    pub request_id: Arc<str>,
}

/// Every route.
pub fn router(app: &Arc<App>) -> Router {
    let mut router = Router::new()
        .route("/livez", get(documents::livez))
        .route("/readyz", get(documents::readyz))
        .route("/api/version", get(documents::version))
        .route("/api/openapi.json", get(documents::openapi))
        .route("/api/trust-bundle", get(documents::platform_bundle))
        .route("/api/trust-bundle/tenant", get(documents::tenant_bundle))
        .route("/crl/{issuer}", get(documents::crl))
        .route("/auth/login", get(login::begin))
        .route("/auth/callback", get(login::come))
        .route("/auth/token", post(login::claim))
        .route("/auth/device", post(device::begin))
        .route("/auth/device/token", post(device::confirm))
        .route("/auth/session", get(logout::session))
        .route("/auth/logout", get(logout::ask).post(logout::end))
        .route("/api/compute/events/stream", get(stream::events));
    for method in app.registry.methods() {
        let name = method.name;
        let serve = move |State(app): State<Arc<App>>, request: Request| async move {
            call(&app, name, request).await
        };
        router = router.route(&method.path(), post(serve));
    }
    router.fallback(no_such_route).method_not_allowed_fallback(wrong_verb).with_state(app.clone())
}

async fn no_such_route(State(app): State<Arc<App>>, request: Request) -> Response {
    let refusal = Problem::new(Code::NotFound, "There is no such route; GET /api/openapi.json lists them.");
    refuse(&app, &request, refusal)
}

async fn wrong_verb(State(app): State<Arc<App>>, request: Request) -> Response {
    let detail = "Methods are called with POST, documents with GET.";
    refuse(&app, &request, problem::invalid_with_status(StatusCode::METHOD_NOT_ALLOWED, detail))
}

/// Refuses what is no method's request; also that not without end.
fn refuse(app: &App, request: &Request, refusal: Problem) -> Response {
    let Some(arrival) = request.extensions().get::<Arrival>() else { return problem::problem(&refusal) };
    let refusal = app.relay.limits.charge_open(arrival.remote).err().unwrap_or(refusal);
    problem::problem(&Problem { request_id: Some(arrival.request_id.to_string()), ..refusal })
}

/// Runs a method for a request.
async fn call(app: &Arc<App>, name: &'static str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let Some(arrival) = parts.extensions.get::<Arrival>().cloned() else {
        return problem::problem(&Problem::new(Code::Internal, "The relay failed."));
    };
    let answer = run(app, name, &arrival, &parts.headers, body).await;
    let code = match answer {
        Ok(body) => {
            app.relay.metrics.answered(name, "OK");
            let mut response = problem::json(body);
            if app.registry.get(name).is_some_and(|bound| bound.method.for_operators()) {
                session::renew(app, &arrival, &parts.headers, &mut response).await;
            }
            return response;
        }
        Err(fault) => fault.into_problem(name, &arrival.request_id),
    };
    app.relay.metrics.answered(name, code.code.as_str());
    app.refusals.refused(name, &arrival.request_id, &code, app.relay.clock.now());
    problem::problem(&Problem { request_id: Some(arrival.request_id.to_string()), ..code })
}

async fn run(
    app: &Arc<App>,
    name: &'static str,
    arrival: &Arrival,
    headers: &HeaderMap,
    body: Body,
) -> Result<Vec<u8>, Fault> {
    let method = app.registry.get(name).map(|bound| bound.method).ok_or_else(unauthenticated)?;
    let access = method.access;
    if let Err(refusal) = require_json(headers) {
        app.relay.limits.charge_open(arrival.remote)?;
        return Err(refusal.into());
    }
    let mut stranger = Stranger::new(app, arrival.remote);
    let Some(caller) = authenticate(&mut stranger, (access, Shown::Call), headers, arrival).await? else {
        stranger.charge()?;
        return Err(no_credential(access).into());
    };
    charge(&app.relay, access, &caller, arrival.remote)?;
    let known = Instant::now();
    let body = read(body).await?;
    // Whoever holds a body back holds no right with it: what the caller may is what it may when all has come.
    let caller = if known.elapsed() < FRESH {
        caller
    } else {
        let again = authenticate(&mut stranger, (access, Shown::Call), headers, arrival).await?;
        again.ok_or_else(|| no_credential(access))?
    };
    // Taken only now: a body that is slow to come holds nobody else up.
    let in_flight = app.relay.limits.enter(access)?;
    let call = Call {
        relay: app.relay.clone(),
        caller,
        method: name,
        remote: arrival.remote,
        request_id: arrival.request_id.to_string(),
        // Only now: what ends while a slow body comes has ended.
        now: app.relay.clock.now(),
    };
    let answer = judged(app, &method, call, body).await;
    drop(in_flight);
    // A certificate or token that counts no more shows only in the store.
    if is(&answer, Code::Unauthenticated) {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
    }
    answer
}

/// Runs the handler, and records what came of it.
async fn judged(app: &App, method: &Method, call: Call, body: Bytes) -> Result<Vec<u8>, Fault> {
    let Some(bound) = app.registry.get(method.name) else { return Err(unauthenticated().into()) };
    let mut answer = bound.run(call.clone(), body.clone()).await;
    if matches!(call.caller, Caller::Peer(_)) {
        answer = of_machine(&call, answer).await;
    }
    match &answer {
        Ok(answer) => record::changed(method, &call.request_id, &call.caller, &body, answer),
        Err(Fault::Problem(problem)) => {
            audit::refused(&app.denials, &call, audit::action(method), &body, problem).await;
        }
        Err(_) => {}
    }
    answer
}

/// The answer to a machine: who it is comes before what it said. One whose certificate was overtaken may be a copy.
async fn of_machine(call: &Call, mut answer: Result<Vec<u8>, Fault>) -> Result<Vec<u8>, Fault> {
    let peer = call.peer()?;
    if is(&answer, Code::InvalidInput) {
        let known =
            call.relay.store.glance("node.known", peer, |tx, peer| Box::pin(standing::known(tx, peer)));
        answer = known.await.and(answer);
    }
    if matches!(&answer, Err(Fault::Problem(problem)) if problem.reason == Some(Reason::Superseded)) {
        signs::note_overtaken(call, peer).await?;
    }
    answer
}

fn is<T>(answer: &Result<T, Fault>, code: Code) -> bool {
    matches!(answer, Err(Fault::Problem(problem)) if problem.code == code)
}

fn require_json(headers: &HeaderMap) -> Result<(), Problem> {
    let media_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    let essence = media_type.split(';').next().unwrap_or("").trim();
    if essence.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let detail = "The body must be JSON, with the header Content-Type: application/json.";
    Err(problem::invalid_with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail))
}

/// Whoever has not shown yet who they are. Pays once, at the latest when the credential turns out to be none.
struct Stranger<'a> {
    app: &'a App,
    remote: IpAddr,
    charged: bool,
}

impl<'a> Stranger<'a> {
    fn new(app: &'a App, remote: IpAddr) -> Self {
        Self { app, remote, charged: false }
    }

    fn charge(&mut self) -> Result<(), Problem> {
        if std::mem::replace(&mut self.charged, true) {
            return Ok(());
        }
        self.app.relay.limits.charge_wrong_credential(self.remote)
    }
}

/// The caller, by the kind of credential that the method asks for; `None` if there is none that counts.
async fn authenticate(
    stranger: &mut Stranger<'_>,
    (access, shown): (Access, Shown),
    headers: &HeaderMap,
    arrival: &Arrival,
) -> Result<Option<Caller>, Fault> {
    let relay = &stranger.app.relay;
    match access {
        Access::Any | Access::Own(_) | Access::May(..) => {
            let (bearer, via) = match credential(stranger.app, headers, shown) {
                Ok(Some(shown)) => shown,
                Ok(None) => return Ok(None),
                Err(refused) => {
                    stranger.charge()?;
                    return Err(refused.into());
                }
            };
            if tokens::asks_for_a_key(relay, bearer) {
                stranger.charge()?;
            }
            let principal = tokens::authenticate(relay, (bearer, via), relay.clock.now()).await?;
            Ok(principal.map(|principal| Caller::Credential(Arc::new(principal))))
        }
        Access::JoinToken => {
            let token = bearer(headers).and_then(|text| JoinToken::parse(text).ok());
            let Some(token) = token else { return Ok(None) };
            let kept =
                relay.store.glance("authenticate", &token.id, |tx, id| Box::pin(join_tokens::secret(tx, id)));
            let matches = kept.await?.is_some_and(|digest| digest.matches(&token.secret));
            Ok(matches.then_some(Caller::JoinToken(token.id)))
        }
        Access::RenewingNode | Access::Node | Access::PlatformNode | Access::Agent => {
            let in_time = |peer: &&Arc<crate::ca::PeerCertificate>| {
                access == Access::RenewingNode || standing::in_time(peer, relay.clock.now(), 0)
            };
            Ok(arrival.peer.as_ref().filter(in_time).cloned().map(Caller::Peer))
        }
    }
}

/// The text of a person's or service's credential: the header's, or where there is none, the one of a browser's session.
fn credential<'a>(
    app: &App,
    headers: &'a HeaderMap,
    shown: Shown,
) -> Result<Option<(&'a str, Via)>, Problem> {
    let (bearer, via) = if headers.contains_key(AUTHORIZATION) {
        (bearer(headers), Via::Header)
    } else {
        (session::bearer(app, headers, shown)?, Via::Cookie)
    };
    Ok(bearer.map(|bearer| (bearer, via)))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut shown = headers.get_all(AUTHORIZATION).into_iter();
    // Of two, others on the way may have looked at the other one.
    let (value, None) = (shown.next()?.to_str().ok()?, shown.next()) else { return None };
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Charges the buckets of a right credential, and only its own.
fn charge(relay: &Context, access: Access, caller: &Caller, remote: IpAddr) -> Result<(), Problem> {
    match caller {
        Caller::Credential(principal) => relay.limits.charge_token(principal.chain.as_str()),
        Caller::JoinToken(id) => {
            relay.limits.charge_join(remote)?;
            relay.limits.charge_token(id.as_str())
        }
        Caller::Peer(peer) if access == Access::RenewingNode => relay.limits.charge_renewal(&peer.node),
        Caller::Peer(peer) => relay.limits.charge_token(peer.node.as_str()),
    }
}

/// The whole body, bounded in size and time.
async fn read(body: Body) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("The body is over {MAX_BODY_BYTES} bytes.");
        Problem::new(Code::PayloadTooLarge, detail)
    };
    // What its own length says needs no waiting for.
    if body.size_hint().lower() > MAX_BODY_BYTES as u64 {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(BODY_TIMEOUT, Limited::new(body, MAX_BODY_BYTES).collect());
    match collected.await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large()),
        Ok(Err(_)) | Err(_) => Err(Problem::invalid_field("", "must arrive whole, within 20 seconds")),
    }
}

#[cfg(test)]
mod tests;
