//! What anyone may read with GET: health, version, the API's description, trust bundles and CRLs.

use super::{App, Arrival, problem};
use crate::{
    api,
    ca::{CaState, Domain},
    fault::Fault,
};
use axum::{
    Extension,
    extract::{Path, State, rejection::PathRejection},
    response::Response,
};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};
use shared::{
    api::Phase,
    problem::{Code, Problem},
};
use std::sync::{Arc, OnceLock};

type Shared = State<Arc<App>>;

/// `GET /livez`: the process answers. A constant that is charged to nobody: who asks shares an address with strangers, and a
/// refusal would have the relay killed for what they do.
pub(super) async fn livez() -> Response {
    plain("ok\n")
}

/// `GET /readyz`: the store answers too, and has room.
pub(super) async fn readyz(State(app): Shared, Extension(arrival): Extension<Arrival>) -> Response {
    if let Err(refused) = limited(&app, &arrival) {
        return refused;
    }
    match app.relay.store.ready().await {
        Ok(()) => plain("ok\n"),
        Err(error) => refuse(&arrival, Fault::from(error).into_problem("readyz", &arrival.request_id)),
    }
}

/// `GET /api/version`.
pub(super) async fn version(State(app): Shared, Extension(arrival): Extension<Arrival>) -> Response {
    if let Err(refused) = limited(&app, &arrival) {
        return refused;
    }
    let phases: Vec<&str> = Phase::ALL.iter().map(|phase| phase.as_str()).collect();
    document(&json!({"version": env!("CARGO_PKG_VERSION"), "phases": phases}))
}

/// `GET /api/openapi.json`: made once and shared, since the table never changes while the relay runs.
pub(super) async fn openapi(State(app): Shared, Extension(arrival): Extension<Arrival>) -> Response {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    if let Err(refused) = limited(&app, &arrival) {
        return refused;
    }
    let text = DOCUMENT.get_or_init(|| api::document::openapi(app.registry.methods()).to_string().into());
    problem::json(text.clone())
}

/// `GET /api/trust-bundle`.
pub(super) async fn platform_bundle(State(app): Shared, Extension(arrival): Extension<Arrival>) -> Response {
    limited(&app, &arrival).map_or_else(|refused| refused, |()| bundle(&app, Domain::Platform))
}

/// `GET /api/trust-bundle/tenant`.
pub(super) async fn tenant_bundle(State(app): Shared, Extension(arrival): Extension<Arrival>) -> Response {
    limited(&app, &arrival).map_or_else(|refused| refused, |()| bundle(&app, Domain::Tenant))
}

fn bundle(app: &App, domain: Domain) -> Response {
    let ca = app.relay.ca.load();
    let mut issuers = serde_json::Map::new();
    let mut crls = Vec::new();
    for record in ca.issuers().filter(|record| record.domain == domain) {
        crls.push(format!("{}/crl/{}.crl", app.url, record.id));
        // The CA that signs now goes by its name, one that only overlaps by its id.
        let key = if record.state == CaState::Active { record.name.as_str() } else { record.id.as_str() };
        issuers.insert(key.to_owned(), Value::from(record.certificate_pem.as_str()));
    }
    document(&json!({"caBundle": ca.bundle(domain), "issuers": issuers, "crlUrls": crls}))
}

/// `GET /crl/{issuer}.crl`: DER; by an issuing CA's id, or its name for the one that signs now.
pub(super) async fn crl(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    file: Result<Path<String>, PathRejection>,
) -> Response {
    if let Err(refused) = limited(&app, &arrival) {
        return refused;
    }
    let ca = app.relay.ca.load_full();
    let file = file.map_or_else(|_| String::new(), |Path(file)| file);
    let name = file.strip_suffix(".crl").unwrap_or_default();
    let by_name =
        |record: &&crate::ca::CaRecord| record.name.as_str() == name && record.state == CaState::Active;
    let Some(issuer) = ca.issuers().find(|record| record.id == name).or_else(|| ca.issuers().find(by_name))
    else {
        let detail = "There is no such issuing CA; GET /api/trust-bundle lists them.";
        return refuse(&arrival, Problem::new(Code::NotFound, detail));
    };
    match app.crls.get(&app.relay, &ca, &issuer.id).await {
        Ok(der) => problem::answer(StatusCode::OK, "application/pkix-crl", der),
        Err(fault) => refuse(&arrival, fault.into_problem("crl", &arrival.request_id)),
    }
}

fn limited(app: &App, arrival: &Arrival) -> Result<(), Response> {
    app.relay.limits.charge_open(arrival.remote).map_err(|refusal| refuse(arrival, refusal))
}

fn refuse(arrival: &Arrival, refusal: Problem) -> Response {
    problem::problem(&Problem { request_id: Some(arrival.request_id.to_string()), ..refusal })
}

fn document(value: &Value) -> Response {
    problem::json(value.to_string().into_bytes())
}

fn plain(text: &'static str) -> Response {
    problem::answer(StatusCode::OK, "text/plain; charset=utf-8", text.as_bytes().to_vec())
}
