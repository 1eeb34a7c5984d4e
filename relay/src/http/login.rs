//! `/auth/login`, `/auth/callback` and `/auth/token`: how a browser, and the program that waits for it if there is one, go
//! through a login (`auth::login`). They are no methods: a browser can't call one.
//!
//! A browser is sent to the provider, to the loopback address or to the path of this relay that was asked for, and nowhere
//! else. Requests here come without a credential and are bounded as such.

use super::{
    App, Arrival, cookies,
    page::{Beside, page, redirect},
    problem, read, require_json, session,
};
use crate::{
    auth::login::{self, Answer, Ask, Program, Returned, Waits},
    fault::Fault,
};
use axum::{
    Extension,
    extract::{Query, Request, State, rejection::QueryRejection},
    response::Response,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde::Deserialize;
use shared::{
    api::{access::AdminRole, tokens::TokenCreated},
    problem::Problem,
    secret::Secret,
};
use std::sync::Arc;

type Shared = State<Arc<App>>;

/// What a browser asks, for a program or for itself.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begins {
    code_challenge: Option<String>,
    redirect_uri: Option<String>,
    state: Option<String>,
    #[serde(rename = "return")]
    return_to: Option<String>,
    admin_role: Option<AdminRole>,
}

/// What a provider answers, by the browser. Providers add more.
#[derive(Deserialize)]
pub(super) struct Comes {
    state: Option<String>,
    code: Option<String>,
    error: Option<String>,
    iss: Option<String>,
}

/// What a program shows for its token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    code: Secret,
    verifier: Secret,
}

/// `GET /auth/login`: to the provider.
pub(super) async fn begin(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
    asked: Result<Query<Begins>, QueryRejection>,
) -> Response {
    let begun = async {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
        let ask = parsed(asked, &headers)?;
        login::begin(&app.relay, &callback(&app), ask).await
    };
    match begun.await {
        Ok(begun) => {
            let mut response = redirect(&begun.location);
            cookies::LOGIN.set(&mut response, &begun.cookie, login::PENDING_SECONDS);
            response
        }
        Err(fault) => failed(&app, &arrival, "auth.login", fault),
    }
}

/// `GET /auth/callback`: from the provider, to the program that waits, to a page with the code, or to where the browser
/// wanted to go.
pub(super) async fn come(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
    answer: Result<Query<Comes>, QueryRejection>,
) -> Response {
    if let Err(refused) = app.relay.limits.charge_wrong_credential(arrival.remote) {
        return failed(&app, &arrival, "auth.callback", refused.into());
    }
    let returned = async {
        let Ok(Query(answer)) = answer else {
            return Err(Problem::invalid_field("", "must be the query of a provider's answer").into());
        };
        let answer = Answer {
            state: answer.state.as_deref(),
            code: answer.code.as_deref(),
            error: answer.error.as_deref(),
            issuer: answer.iss.as_deref(),
        };
        let (cookie, from) = (cookies::LOGIN.of(&headers), from(&arrival));
        login::finish(&app.relay, &callback(&app), cookie, answer, &from).await
    };
    let mut response = match returned.await {
        Ok(returned) => returning(&app, &arrival, returned),
        Err(fault) => failed(&app, &arrival, "auth.callback", fault),
    };
    cookies::LOGIN.forget(&mut response);
    response
}

/// `POST /auth/token`: a code for a token.
pub(super) async fn claim(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let claimed = async {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
        login::provider(&app.relay)?;
        require_json(&parts.headers)?;
        let body = read(body).await?;
        let Claims { code, verifier } = serde_json::from_slice(&body)
            .map_err(|_| Problem::invalid_field("", "must be {\"code\": …, \"verifier\": …}"))?;
        let (token, secret) = login::claim(&app.relay, &code, &verifier, &from(&arrival)).await?;
        let created = TokenCreated { token, secret: Some(secret.reveal()) };
        serde_json::to_vec(&created).map_err(Fault::internal("writing a token"))
    };
    match claimed.await {
        Ok(body) => {
            app.relay.metrics.answered("auth.token", "OK");
            problem::json(body)
        }
        Err(fault) => problem::problem(&refusal(&app, &arrival, "auth.token", fault)),
    }
}

/// The only address that the provider answers to.
fn callback(app: &App) -> String {
    format!("{}/auth/callback", app.url)
}

pub(super) fn from(arrival: &Arrival) -> login::From<'_> {
    login::From { remote: arrival.remote, request_id: &arrival.request_id }
}

fn parsed(asked: Result<Query<Begins>, QueryRejection>, headers: &HeaderMap) -> Result<Ask, Problem> {
    let Query(asked) = asked.map_err(|_| {
        let rule = "may be code_challenge, redirect_uri and state for a program, return for a browser, and admin_role (EDITOR, \
                    VIEWER)";
        Problem::invalid_field("", rule)
    })?;
    fn field<T>(name: &str, text: &str) -> Result<T, Problem>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        text.parse().map_err(|rule: T::Err| Problem::invalid_field(name, rule.to_string()))
    }
    let own = asked.redirect_uri.is_none() && asked.state.is_none();
    let waits = match (asked.code_challenge, asked.return_to) {
        (Some(challenge), None) => Waits::Program(Program {
            challenge: field("code_challenge", &challenge)?,
            loopback: asked.redirect_uri.map(|text| field("redirect_uri", &text)).transpose()?,
            state: asked.state.map(|text| field("state", &text)).transpose()?,
        }),
        (None, Some(path)) if own => Waits::Browser(field("return", &path)?),
        (None, None) if own => Waits::Browser(login::Return::default()),
        (None, _) => {
            return Err(Problem::invalid_field("code_challenge", "must come with redirect_uri and state"));
        }
        (Some(_), Some(_)) => {
            let rule = "is for a browser's own session; leave it out beside code_challenge";
            return Err(Problem::invalid_field("return", rule));
        }
    };
    // Another site's link makes nobody an admin who did not ask for it.
    if matches!(waits, Waits::Browser(_)) && asked.admin_role.is_some() && !session::is_own_wish(headers) {
        let rule = "is given to a browser that asks for it itself; open this address by hand, or from a page of this relay";
        return Err(Problem::invalid_field("admin_role", rule));
    }
    Ok(Ask { waits, admin_role: asked.admin_role })
}

/// Hands the outcome to the program that waits, by the browser, or to the browser.
fn returning(app: &App, arrival: &Arrival, returned: Returned) -> Response {
    let (program, outcome) = match returned {
        Returned::Browser(to, Ok((token, bearer))) => {
            let mut response = redirect(&format!("{}{to}", app.url));
            session::give(&mut response, (&token, &bearer), app.relay.clock.now());
            return response;
        }
        Returned::Browser(_, Err(problem)) => return failed(app, arrival, "auth.callback", problem.into()),
        Returned::Program(program, outcome) => (program, outcome),
    };
    match (program.loopback, outcome) {
        (Some(loopback), Ok(code)) => {
            let told = [("code", Some(code.expose())), state(&program.state)];
            redirect(&with_query(&loopback.to_string(), &told))
        }
        (None, Ok(code)) => {
            let text = "Copy this code into the terminal where you began to log in. It is good once, for five minutes. If \
                        you did not begin to log in from a terminal of yours, close this page and give it to nobody.";
            page(StatusCode::OK, "Logged in", text, &Beside::Code(code.expose()))
        }
        (Some(loopback), Err(problem)) => {
            let problem = refusal(app, arrival, "auth.callback", problem.into());
            let told = [("error", Some(problem.code.as_str())), ("detail", Some(&*problem.detail))];
            let [code, detail] = told;
            redirect(&with_query(&loopback.to_string(), &[code, detail, state(&program.state)]))
        }
        (None, Err(problem)) => failed(app, arrival, "auth.callback", problem.into()),
    }
}

fn state(state: &Option<login::Challenge>) -> (&'static str, Option<&str>) {
    ("state", state.as_ref().map(login::Challenge::as_str))
}

/// An address with these parameters, those that there are.
fn with_query(base: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let mut text = base.to_owned();
    for (name, value) in pairs.iter().filter_map(|(name, value)| Some((name, (*value)?))) {
        text.push(if text.contains('?') { '&' } else { '?' });
        text.push_str(name);
        text.push('=');
        for byte in value.bytes() {
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                text.push(char::from(byte));
            } else {
                text.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    text
}

pub(super) fn refusal(app: &App, arrival: &Arrival, name: &'static str, fault: Fault) -> Problem {
    let problem = fault.into_problem(name, &arrival.request_id);
    app.relay.metrics.answered(name, problem.code.as_str());
    app.refusals.refused(name, &arrival.request_id, &problem, app.relay.clock.now());
    Problem { request_id: Some(arrival.request_id.to_string()), ..problem }
}

/// A page that says why.
pub(super) fn failed(app: &App, arrival: &Arrival, name: &'static str, fault: Fault) -> Response {
    let problem = refusal(app, arrival, name, fault);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = problem.errors.iter().map(|error| format!(" {}: {}.", error.field, error.message));
    let text = format!("{}{}", problem.detail, fields.collect::<String>());
    let mut response = page(status, "Not logged in", &text, &Beside::Nothing);
    if let Some(seconds) = problem.retry_after_seconds {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_goes_into_an_address_is_encoded() {
        let address =
            with_query("http://h/c", &[("a", Some("x y&z=\u{e9}\r\n")), ("b", None), ("c", Some("1"))]);
        assert_eq!(address, "http://h/c?a=x%20y%26z%3D%C3%A9%0D%0A&c=1");
    }
}
