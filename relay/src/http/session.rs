//! A browser's session: a token of a login in a cookie that no script reads, and what a request must show beside it.
//!
//! A browser sends its cookies with whatever another site makes it send. So a session counts only with a proof that a page
//! of this relay asked: the header `X-CSRF-Token`, whose value is bound to the token (its HMAC) and stands in a cookie that
//! this origin's pages alone can read. A stream of events, which a page can give no header, and the form that logs out, are
//! proved by what the browser itself says of where they are from (`Sec-Fetch-Site`, `Origin`). Where a browser says that
//! another origin asks, no proof helps. All this is judged before the token is: it tells nothing about it.
//!
//! - A session never counts beside a header `Authorization`, whatever that holds, and for nothing but people's methods.
//! - There are no CORS headers here, on no answer: no other origin reads one.
//! - A session is a token like any other: revoked, listed and audited as such. It is refreshed on the way of a call from
//!   three quarters of its lifetime on, once for all requests of a browser that are under way; those that show the old one
//!   after the new one came into use are served for half a minute more.

use super::{App, Arrival, Stranger, authenticate, cookies, judged};
use crate::{
    api::tokens,
    auth::jwt::Said,
    call::{Call, Caller, unauthenticated},
    fault::{Fault, chain},
};
use aws_lc_rs::hmac;
use axum::response::Response;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::{
    HeaderMap, HeaderName,
    header::{AUTHORIZATION, ORIGIN},
};
use serde_json::json;
use shared::{
    api::{
        Access,
        tokens::{REFRESH, REVOKE, Token},
    },
    problem::{Code, Problem},
    secret::{Secret, same_bytes},
    time::Timestamp,
};

/// What a page shows beside a session.
const CSRF_HEADER: HeaderName = HeaderName::from_static("x-csrf-token");
/// Where a browser says that a request is from (W3C Fetch Metadata).
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// What the header's value is made for.
const LABEL: &[u8] = b"relay csrf 1";

/// What a session is shown for, which says what proves that a page of this relay asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// A call: the header.
    Call,
    /// A stream of events: the header, or the browser's word.
    Stream,
    /// A form: the browser's word.
    Form,
}

/// What a browser says of where a request is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// A page of this relay.
    Ours,
    /// Something else.
    Foreign,
    /// Nothing.
    Unsaid,
}

/// The token of the session that a request shows; `None` if it shows none, or another credential.
///
/// # Errors
/// UNAUTHENTICATED for one that comes without the proof.
pub(super) fn bearer<'a>(
    app: &App,
    headers: &'a HeaderMap,
    shown: Shown,
) -> Result<Option<&'a str>, Problem> {
    if headers.contains_key(AUTHORIZATION) {
        return Ok(None);
    }
    let Some(bearer) = cookies::SESSION.of(headers) else { return Ok(None) };
    if is_proved(&app.url, headers, bearer, shown) {
        return Ok(Some(bearer));
    }
    let detail = "A browser's session counts only where a page of this relay asks, with the header X-CSRF-Token as the \
                  cookie __Host-relay-csrf has it.";
    Err(Problem::new(Code::Unauthenticated, detail))
}

/// Whether a person asks: by a page of this relay, or by an address that they typed. A browser says so.
pub(super) fn is_own_wish(headers: &HeaderMap) -> bool {
    let mut said = headers.get_all(FETCH_SITE).into_iter().peekable();
    said.peek().is_some() && said.all(|site| site == "same-origin" || site == "none")
}

/// Gives a browser a session.
pub(super) fn give(response: &mut Response, (token, bearer): (&Token, &Secret), now: Timestamp) {
    let seconds = token.expires_at.seconds().saturating_sub(now.seconds());
    cookies::SESSION.set(response, bearer.expose(), seconds);
    cookies::CSRF.set(response, &csrf(bearer.expose()), seconds);
}

/// Makes a browser forget its session.
pub(super) fn forget(response: &mut Response) {
    cookies::SESSION.forget(response);
    cookies::CSRF.forget(response);
}

/// Refreshes the session of a call that was answered, where it is due. What fails leaves it as it is.
pub(super) async fn renew(app: &App, arrival: &Arrival, headers: &HeaderMap, response: &mut Response) {
    let Ok(Some(bearer)) = bearer(app, headers, Shown::Call) else { return };
    let now = app.relay.clock.now();
    if !Said::of(bearer).is_some_and(|said| said.is_due(now)) {
        return;
    }
    let renewed = async {
        let call = call(app, arrival, headers, (Shown::Call, REFRESH.method.name)).await?;
        tokens::refresh_session(call).await
    };
    match renewed.await {
        Ok(created) => {
            if let Some(bearer) = created.secret {
                give(response, (&created.token, &bearer.into_secret()), now);
            }
        }
        Err(fault) => tracing::debug!(error = chain(&fault), "a session is not refreshed"),
    }
}

/// Ends the session of a browser that asks so by a form of this relay; one that counts no more has ended.
///
/// # Errors
/// UNAUTHENTICATED where another site asks; the store's.
pub(super) async fn end(app: &App, arrival: &Arrival, headers: &HeaderMap) -> Result<(), Fault> {
    // Also without a session: what another site sends comes without its cookie, and must not make the browser forget it.
    if origin(&app.url, headers) != Origin::Ours {
        let detail = "Only the form of this relay's page /auth/logout logs a browser out.";
        return Err(Problem::new(Code::Unauthenticated, detail).into());
    }
    let Some(bearer) = bearer(app, headers, Shown::Form)? else { return Ok(()) };
    let Some(said) = Said::of(bearer) else { return Ok(()) };
    let call = match call(app, arrival, headers, (Shown::Form, REVOKE.method.name)).await {
        Err(Fault::Problem(problem)) if problem.code == Code::Unauthenticated => return Ok(()),
        called => called?,
    };
    let input = json!({"tokenId": said.jti}).to_string();
    judged(app, &REVOKE.method, call, input.into()).await.map(drop)
}

/// A call of a method by a session's token.
async fn call(
    app: &App,
    arrival: &Arrival,
    headers: &HeaderMap,
    (shown, method): (Shown, &'static str),
) -> Result<Call, Fault> {
    let mut stranger = Stranger::new(app, arrival.remote);
    let caller = authenticate(&mut stranger, (Access::Any, shown), headers, arrival).await?;
    let Some(Caller::Credential(principal)) = caller else {
        stranger.charge()?;
        return Err(unauthenticated().into());
    };
    app.relay.limits.charge_token(principal.chain.as_str())?;
    Ok(Call {
        relay: app.relay.clone(),
        caller: Caller::Credential(principal),
        method,
        remote: arrival.remote,
        request_id: arrival.request_id.to_string(),
        now: app.relay.clock.now(),
    })
}

fn is_proved(url: &str, headers: &HeaderMap, bearer: &str, shown: Shown) -> bool {
    let (origin, header) = (origin(url, headers), has_header(headers, bearer));
    match (origin, shown) {
        (Origin::Foreign, _) => false,
        (_, Shown::Call) => header,
        (Origin::Ours, Shown::Stream | Shown::Form) => true,
        (Origin::Unsaid, Shown::Stream) => header,
        (Origin::Unsaid, Shown::Form) => false,
    }
}

fn origin(url: &str, headers: &HeaderMap) -> Origin {
    let sites = headers.get_all(FETCH_SITE).into_iter().map(|site| site == "same-origin");
    let origins = headers.get_all(ORIGIN).into_iter().map(|origin| origin == url);
    match sites.chain(origins).reduce(|all, ours| all && ours) {
        Some(true) => Origin::Ours,
        Some(false) => Origin::Foreign,
        None => Origin::Unsaid,
    }
}

fn has_header(headers: &HeaderMap, bearer: &str) -> bool {
    let mut shown = headers.get_all(CSRF_HEADER).into_iter();
    let (Some(shown), None) = (shown.next(), shown.next()) else { return false };
    same_bytes(shown.as_bytes(), csrf(bearer).as_bytes())
}

/// The header's value for a token: whoever has it does not have the token, and has it for no other.
fn csrf(bearer: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, bearer.as_bytes());
    URL_SAFE_NO_PAD.encode(hmac::sign(&key, LABEL))
}

#[cfg(test)]
mod tests {
    use super::{super::cookies::SESSION, *};
    use crate::api::document::openapi;
    use http::{HeaderValue, header::SET_COOKIE};

    const URL: &str = "https://relay.example:8443";

    fn proved(pairs: &[(&HeaderName, &str)], shown: Shown) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append((*name).clone(), HeaderValue::from_str(value).unwrap());
        }
        is_proved(URL, &headers, "a.b.c", shown)
    }

    #[test]
    fn a_call_needs_the_header_of_its_own_token_and_no_word_of_another_origin() {
        let right = csrf("a.b.c");
        let header = (&CSRF_HEADER, right.as_str());
        for more in [&[][..], &[(&ORIGIN, URL)], &[(&FETCH_SITE, "same-origin"), (&ORIGIN, URL)]] {
            assert!(proved(&[&[header], more].concat(), Shown::Call), "{more:?}");
            assert!(!proved(more, Shown::Call), "{more:?}");
            let other = csrf("a.b.d");
            for wrong in [other.as_str(), "", "a.b.c", &right[1..], &format!("{right}x")] {
                assert!(!proved(&[&[(&CSRF_HEADER, wrong)], more].concat(), Shown::Call), "{wrong}");
            }
            assert!(!proved(&[&[header, header], more].concat(), Shown::Call), "twice");
        }
        for foreign in [
            (&FETCH_SITE, "cross-site"),
            (&FETCH_SITE, "same-site"),
            (&FETCH_SITE, "none"),
            (&FETCH_SITE, ""),
            (&ORIGIN, "null"),
            (&ORIGIN, "https://relay.example"),
            (&ORIGIN, "http://relay.example:8443"),
            (&ORIGIN, "https://evil.example"),
            (&ORIGIN, ""),
        ] {
            for shown in [Shown::Call, Shown::Stream, Shown::Form] {
                assert!(!proved(&[header, foreign], shown), "{foreign:?}");
                assert!(!proved(&[header, (&ORIGIN, URL), foreign], shown), "{foreign:?}");
                assert!(!proved(&[header, (&FETCH_SITE, "same-origin"), foreign], shown), "{foreign:?}");
            }
        }
    }

    #[test]
    fn the_document_names_what_a_session_is_shown_by() {
        let schemes = &openapi([])["components"]["securitySchemes"];
        let mut answer = Response::default();
        SESSION.set(&mut answer, "t", 1);
        let set = answer.headers()[SET_COOKIE].to_str().unwrap();
        assert_eq!(set.split_once('=').unwrap().0, schemes["session"]["name"]);
        assert_eq!(CSRF_HEADER.as_str(), schemes["csrf"]["name"].as_str().unwrap().to_lowercase());
    }

    #[test]
    fn a_stream_and_a_form_are_proved_by_the_browsers_word() {
        let right = csrf("a.b.c");
        assert!(proved(&[(&CSRF_HEADER, &right)], Shown::Stream));
        assert!(!proved(&[(&CSRF_HEADER, &right)], Shown::Form));
        for shown in [Shown::Stream, Shown::Form] {
            assert!(!proved(&[], shown));
            assert!(proved(&[(&FETCH_SITE, "same-origin")], shown));
            assert!(proved(&[(&ORIGIN, URL)], shown));
        }
    }

    #[test]
    fn a_wish_is_a_persons_own_where_their_browser_says_so() {
        let said = |sites: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for site in sites {
                headers.append(FETCH_SITE, HeaderValue::from_static(site));
            }
            is_own_wish(&headers)
        };
        assert!(said(&["none"]) && said(&["same-origin"]));
        assert!(
            !said(&[]) && !said(&["cross-site"]) && !said(&["same-site"]) && !said(&["none", "cross-site"])
        );
    }
}
