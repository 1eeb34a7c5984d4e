//! `/auth/session` and `/auth/logout`: what a browser is told of its session, and how it ends it.
//!
//! A link ends nothing: `GET /auth/logout` asks, and the form of its page, which counts from here alone, ends the session's
//! token and makes the browser forget it.

use super::{
    App, Arrival, cookies,
    login::failed,
    page::{Beside, page},
    session,
};
use crate::fault::Fault;
use axum::{Extension, extract::State, response::Response};
use http::{HeaderMap, StatusCode, header::AUTHORIZATION};
use shared::problem::{Code, Problem};
use std::sync::Arc;

type Shared = State<Arc<App>>;

/// `GET /auth/session`: where a login ends that was to lead nowhere else. The same for everybody.
pub(super) async fn session(State(app): Shared, Extension(arrival): Extension<Arrival>) -> Response {
    match app.relay.limits.charge_open(arrival.remote) {
        Ok(()) => {
            let text = "This browser has a session of this relay. It ends by itself within a day.";
            page(StatusCode::OK, "Logged in", text, &Beside::Link("/auth/logout", "Log out"))
        }
        Err(refused) => failed(&app, &arrival, "auth.session", refused.into()),
    }
}

/// `GET /auth/logout`: asks.
pub(super) async fn ask(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
) -> Response {
    match admit(&app, &arrival, &headers) {
        Ok(()) => {
            let text = "This ends the session that this browser has with this relay, if it has one.";
            page(StatusCode::OK, "Log out?", text, &Beside::Button("/auth/logout", "Log out"))
        }
        Err(refused) => failed(&app, &arrival, "auth.logout", refused.into()),
    }
}

/// `POST /auth/logout`: ends the session, and shows the way to end the one with the provider where that is offered.
pub(super) async fn end(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
) -> Response {
    let ended = async {
        admit(&app, &arrival, &headers)?;
        session::end(&app, &arrival, &headers).await?;
        // Where the provider can't be asked, this browser is logged out here all the same.
        Ok::<_, Fault>(match &app.relay.oidc {
            Some(provider) => provider.end_session().await.ok().flatten(),
            None => None,
        })
    };
    let text = "This browser holds no session of this relay.";
    let mut response = match ended.await {
        Ok(Some(location)) => {
            let beside = Beside::Link(&location, "End the session with the identity provider too");
            page(StatusCode::OK, "Logged out", text, &beside)
        }
        Ok(None) => page(StatusCode::OK, "Logged out", text, &Beside::Nothing),
        Err(fault) => return failed(&app, &arrival, "auth.logout", fault),
    };
    app.relay.metrics.answered("auth.logout", "OK");
    cookies::LOGIN.forget(&mut response);
    session::forget(&mut response);
    response
}

/// Charges a request, and refuses one of a program.
fn admit(app: &App, arrival: &Arrival, headers: &HeaderMap) -> Result<(), Problem> {
    app.relay.limits.charge_wrong_credential(arrival.remote)?;
    if headers.contains_key(AUTHORIZATION) {
        let detail = "A token is ended by iam/tokens/revoke; this is for browsers.";
        return Err(Problem::new(Code::InvalidInput, detail));
    }
    Ok(())
}
