//! The forms of the fake BMC's answers.

use http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

pub(super) type Answer = Response<Vec<u8>>;

pub(super) fn put(of: &mut Value, name: &str, value: Value) {
    if let Some(members) = of.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

pub(super) fn collection(kind: &str, members: impl IntoIterator<Item = String>) -> Value {
    let members: Vec<Value> = members.into_iter().map(|path| json!({"@odata.id": path})).collect();
    json!({
        "@odata.type": format!("#{kind}Collection.{kind}Collection"), "Name": format!("{kind} Collection"),
        "Members@odata.count": members.len(), "Members": members,
    })
}

pub(super) fn link(path: &str) -> Value {
    json!({"@odata.id": path})
}

pub(super) fn found(body: &Value) -> Answer {
    with_type(body.to_string().into_bytes(), "application/json;charset=utf-8")
}

pub(super) fn with_type(body: Vec<u8>, kind: &'static str) -> Answer {
    let mut answer = Response::new(body);
    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static(kind));
    answer
}

pub(super) fn empty() -> Answer {
    with_status(Response::new(Vec::new()), 204)
}

pub(super) fn with_status(mut answer: Answer, status: u16) -> Answer {
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer
}

pub(super) fn with_header(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    answer.headers_mut().extend(HeaderValue::from_str(value).ok().map(|value| (name, value)));
    answer
}

/// A refusal in the form of DSP0266.
pub(super) fn refusal(status: u16, id: &str, echo: &str) -> Answer {
    let message = if echo.is_empty() { "It is refused." } else { echo };
    let info = json!([{
        "@odata.type": "#Message.v1_1_1.Message", "MessageId": id, "Message": message, "MessageArgs": [echo],
        "MessageSeverity": "Critical", "Severity": "Critical", "Resolution": "None.",
    }]);
    let body = json!({"error": {"code": id, "message": message, "@Message.ExtendedInfo": info}});
    with_status(found(&body), status)
}
