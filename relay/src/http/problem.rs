//! Answers: JSON, and problems as `application/problem+json` (RFC 9457).

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{
    HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER},
};
use shared::problem::{Code, Problem};

/// An answer of JSON that was written already. It is never cached: it may hold a secret.
#[must_use]
pub fn json(body: impl Into<Bytes>) -> Response {
    answer(StatusCode::OK, "application/json", body)
}

/// A problem, with its `Retry-After` where it has one.
#[must_use]
pub fn problem(problem: &Problem) -> Response {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    // A problem is text and numbers: it always serialises.
    let body = serde_json::to_vec(problem).unwrap_or_default();
    let mut response = answer(status, "application/problem+json", body);
    if let Some(seconds) = problem.retry_after_seconds {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

/// A problem whose HTTP status says more than its code: 405 and 415.
#[must_use]
pub fn invalid_with_status(status: StatusCode, detail: &str) -> Problem {
    Problem { status: status.as_u16(), ..Problem::new(Code::InvalidInput, detail) }
}

/// An answer of any media type.
#[must_use]
pub fn answer(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
