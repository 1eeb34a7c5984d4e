//! `/auth/login`, `/auth/callback`, `/auth/token` and `/auth/logout`: how a browser and the program that waits for it go
//! through a login (`auth::login`). They are no methods: a browser can't call one.
//!
//! A browser is sent to the provider and to the loopback address that was asked for, and nowhere else. Pages hold no script,
//! load nothing and may not be framed. Requests here come without a credential and are bounded as such.

use super::{App, Arrival, bearer, problem, read, require_json};
use crate::{
    auth::login::{self, Answer, Ask, Returned},
    fault::Fault,
};
use axum::{
    Extension,
    extract::{Query, Request, State, rejection::QueryRejection},
    response::Response,
};
use http::{
    HeaderMap, HeaderName, HeaderValue, StatusCode,
    header::{
        CONTENT_SECURITY_POLICY, COOKIE, LOCATION, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
    },
};
use serde::Deserialize;
use shared::{
    api::{access::AdminRole, tokens::TokenCreated},
    problem::{Code, Problem},
    secret::Secret,
};
use std::sync::Arc;

type Shared = State<Arc<App>>;

/// The cookie that a login lives in. The prefix makes browsers keep it to this host and to https.
const COOKIE_NAME: &str = "__Host-relay-login";
/// The longest cookie that is looked at, in bytes.
const MAX_COOKIE_BYTES: usize = 4096;
/// What pages may do: nothing.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// What a program asks, by its browser.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Begins {
    code_challenge: String,
    redirect_uri: Option<String>,
    state: Option<String>,
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
    asked: Result<Query<Begins>, QueryRejection>,
) -> Response {
    let begun = async {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
        let ask = parsed(asked)?;
        login::begin(&app.relay, &callback(&app), ask).await
    };
    match begun.await {
        Ok(begun) => {
            let mut response = redirect(&begun.location);
            set_cookie(&mut response, &begun.cookie, login::PENDING_SECONDS);
            response
        }
        Err(fault) => failed(&app, &arrival, "auth.login", fault),
    }
}

/// `GET /auth/callback`: from the provider, to the program that waits or to a page with the code.
pub(super) async fn come(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
    answer: Result<Query<Comes>, QueryRejection>,
) -> Response {
    if let Err(refused) = app.relay.limits.charge_wrong_credential(arrival.remote) {
        return failed(&app, &arrival, "auth.callback", refused.into());
    }
    let running = app.clone();
    // A task of its own: a browser that goes away does not stop it inside of a transaction.
    let task = tokio::spawn(async move {
        let Ok(Query(answer)) = answer else {
            return Err(Problem::invalid_field("", "must be the query of a provider's answer").into());
        };
        let answer = Answer {
            state: answer.state.as_deref(),
            code: answer.code.as_deref(),
            error: answer.error.as_deref(),
            issuer: answer.iss.as_deref(),
        };
        login::finish(&running.relay, &callback(&running), cookie(&headers), answer).await
    });
    let returned = task.await.map_err(Fault::internal("taking a provider's answer"));
    let mut response = match returned.and_then(|returned| returned) {
        Ok(returned) => returning(&app, &arrival, returned),
        Err(fault) => failed(&app, &arrival, "auth.callback", fault),
    };
    set_cookie(&mut response, "", 0);
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
        let (running, arrived) = (app.clone(), arrival.clone());
        let task = tokio::spawn(async move {
            let from = login::From { remote: arrived.remote, request_id: &arrived.request_id };
            login::claim(&running.relay, &code, &verifier, &from).await
        });
        let (token, secret) = task.await.map_err(Fault::internal("taking a login"))??;
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

/// `GET /auth/logout`: ends what this browser has here, and its session with the provider where that is offered. A token
/// is ended by iam/tokens/revoke.
pub(super) async fn end(
    State(app): Shared,
    Extension(arrival): Extension<Arrival>,
    headers: HeaderMap,
) -> Response {
    let left = async {
        app.relay.limits.charge_wrong_credential(arrival.remote)?;
        if bearer(&headers).is_some() {
            return Err(Problem::new(
                Code::InvalidInput,
                "A token is ended by iam/tokens/revoke; this is for browsers.",
            ));
        }
        let provider = login::provider(&app.relay)?;
        // Where the provider can't be asked, this browser is logged out here all the same.
        Ok(provider.end_session().await.ok().flatten())
    };
    let mut response = match left.await {
        Ok(Some(location)) => redirect(&location),
        Ok(None) => page(StatusCode::OK, "Logged out", "This browser holds no login of this relay.", None),
        Err(problem) => failed(&app, &arrival, "auth.logout", problem.into()),
    };
    set_cookie(&mut response, "", 0);
    response
}

/// The only address that the provider answers to.
fn callback(app: &App) -> String {
    format!("{}/auth/callback", app.url)
}

fn parsed(asked: Result<Query<Begins>, QueryRejection>) -> Result<Ask, Problem> {
    let Query(asked) = asked.map_err(|_| {
        let rule =
            "must be code_challenge, and where wanted redirect_uri, state and admin_role (EDITOR, VIEWER)";
        Problem::invalid_field("", rule)
    })?;
    fn field<T>(name: &str, text: &str) -> Result<T, Problem>
    where
        T: std::str::FromStr<Err: std::fmt::Display>,
    {
        text.parse().map_err(|rule: T::Err| Problem::invalid_field(name, rule.to_string()))
    }
    Ok(Ask {
        challenge: field("code_challenge", &asked.code_challenge)?,
        loopback: asked.redirect_uri.map(|text| field("redirect_uri", &text)).transpose()?,
        state: asked.state.map(|text| field("state", &text)).transpose()?,
        admin_role: asked.admin_role,
    })
}

/// The cookie of a login.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    headers
        .get_all(COOKIE)
        .into_iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(';'))
        .filter_map(|pair| pair.trim().split_once('='))
        .find(|(name, value)| *name == COOKIE_NAME && value.len() <= MAX_COOKIE_BYTES)
        .map(|(_, value)| value)
}

fn set_cookie(response: &mut Response, value: &str, seconds: i64) {
    let text = format!("{COOKIE_NAME}={value}; Path=/; Max-Age={seconds}; HttpOnly; Secure; SameSite=Lax");
    if let Ok(mut value) = HeaderValue::from_str(&text) {
        value.set_sensitive(true);
        response.headers_mut().insert(SET_COOKIE, value);
    }
}

/// Hands the outcome to the program that waits, by the browser.
fn returning(app: &App, arrival: &Arrival, returned: Returned) -> Response {
    let Returned { ask, outcome } = returned;
    match (ask.loopback, outcome) {
        (Some(loopback), Ok(code)) => {
            redirect(&with_query(&loopback.to_string(), &[("code", Some(code.expose())), state(&ask.state)]))
        }
        (None, Ok(code)) => {
            let text = "Copy this code into the terminal where you began to log in. It is good once, for five minutes. If \
                        you did not begin to log in from a terminal of yours, close this page and give it to nobody.";
            page(StatusCode::OK, "Logged in", text, Some(code.expose()))
        }
        (Some(loopback), Err(problem)) => {
            let problem = refusal(app, arrival, "auth.callback", problem.into());
            let told = [("error", Some(problem.code.as_str())), ("detail", Some(&*problem.detail))];
            let [code, detail] = told;
            redirect(&with_query(&loopback.to_string(), &[code, detail, state(&ask.state)]))
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

fn refusal(app: &App, arrival: &Arrival, name: &'static str, fault: Fault) -> Problem {
    let problem = fault.into_problem(name, &arrival.request_id);
    app.relay.metrics.answered(name, problem.code.as_str());
    app.refusals.refused(name, &arrival.request_id, &problem, app.relay.clock.now());
    Problem { request_id: Some(arrival.request_id.to_string()), ..problem }
}

/// A page that says why.
fn failed(app: &App, arrival: &Arrival, name: &'static str, fault: Fault) -> Response {
    let problem = refusal(app, arrival, name, fault);
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let fields = problem.errors.iter().map(|error| format!(" {}: {}.", error.field, error.message));
    let text = format!("{}{}", problem.detail, fields.collect::<String>());
    let mut response = page(status, "Not logged in", &text, None);
    if let Some(seconds) = problem.retry_after_seconds {
        response.headers_mut().insert(http::header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

fn redirect(location: &str) -> Response {
    let Ok(value) = HeaderValue::from_str(location) else {
        return page(StatusCode::INTERNAL_SERVER_ERROR, "Not logged in", "The relay failed.", None);
    };
    let mut response = guarded(problem::answer(StatusCode::SEE_OTHER, "text/plain; charset=utf-8", ""));
    response.headers_mut().insert(LOCATION, value);
    response
}

/// A page for people.
fn page(status: StatusCode, title: &str, text: &str, code: Option<&str>) -> Response {
    let code = code.map(|code| format!("<p><code>{}</code></p>", escaped(code))).unwrap_or_default();
    let (title, text) = (escaped(title), escaped(text));
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>relay</title>\
         <body style=\"font-family: sans-serif; max-width: 40em; margin: 4em auto\">\
         <h1>{title}</h1>{code}<p>{text}</p></body></html>\n"
    );
    guarded(problem::answer(status, "text/html; charset=utf-8", html))
}

/// With the headers that keep a page to itself.
fn guarded(mut response: Response) -> Response {
    let headers: [(HeaderName, &'static str); 3] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_cookie_is_taken_and_what_goes_into_an_address_is_encoded() {
        let mut headers = HeaderMap::new();
        headers.append(COOKIE, HeaderValue::from_static("a=b; relay-login=x"));
        assert_eq!(cookie(&headers), None);
        headers.append(COOKIE, HeaderValue::from_static("c=d;__Host-relay-login=v1.k.a+/=; e=f"));
        assert_eq!(cookie(&headers), Some("v1.k.a+/="));
        let address =
            with_query("http://h/c", &[("a", Some("x y&z=\u{e9}\r\n")), ("b", None), ("c", Some("1"))]);
        assert_eq!(address, "http://h/c?a=x%20y%26z%3D%C3%A9%0D%0A&c=1");
        assert_eq!(escaped("<a href='x'>&\""), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;");
    }
}
