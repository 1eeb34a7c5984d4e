//! `/auth/device` and `/auth/device/token`: how a program logs in whose person confirms it on another device
//! (`auth::login::device`). Requests here come without a credential and are bounded as such.

use super::{
    App, Arrival,
    login::{from, refusal},
    problem, read, require_json,
};
use crate::{
    auth::login::{
        self, Challenge,
        device::{self, Begun, Told},
    },
    fault::Fault,
};
use axum::{
    Extension,
    extract::{Request, State},
    response::Response,
};
use serde::Deserialize;
use shared::{problem::Problem, secret::Secret};
use std::sync::Arc;

type Shared = State<Arc<App>>;

/// What a program begins with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Begins {
    challenge: Challenge,
}

/// What a program asks with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Asks {
    handle: Secret,
    verifier: Secret,
}

/// `POST /auth/device`: begins a login.
pub(super) async fn begin(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let begun = async {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
        login::provider(&app.relay)?;
        require_json(&parts.headers)?;
        device::offered(&app.relay).await?;
        let Begins { challenge } = serde_json::from_slice(&read(body).await?)
            .map_err(|_| Problem::invalid_field("", "must be {\"challenge\": …}, an S256"))?;
        let begun: Begun = device::begin(&app.relay, &challenge).await?;
        serde_json::to_vec(&begun).map_err(Fault::internal("writing a login"))
    };
    answer(&app, &arrival, "auth.device", begun.await)
}

/// `POST /auth/device/token`: what became of it, and the token.
pub(super) async fn confirm(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let confirmed = async {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
        login::provider(&app.relay)?;
        require_json(&parts.headers)?;
        let Asks { handle, verifier } = serde_json::from_slice(&read(body).await?)
            .map_err(|_| Problem::invalid_field("", "must be {\"handle\": …, \"verifier\": …}"))?;
        let told: Told = device::confirm(&app.relay, &handle, &verifier, &from(&arrival)).await?;
        serde_json::to_vec(&told).map_err(Fault::internal("writing a token"))
    };
    answer(&app, &arrival, "auth.device.token", confirmed.await)
}

fn answer(app: &App, arrival: &Arrival, name: &'static str, done: Result<Vec<u8>, Fault>) -> Response {
    match done {
        Ok(body) => {
            app.relay.metrics.answered(name, "OK");
            problem::json(body)
        }
        Err(fault) => problem::problem(&refusal(app, arrival, name, fault)),
    }
}
