//! The forms of the fake BMC's answers.

use http::{HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

pub(super) fn put(of: &mut Value, name: &str, value: Value) {
    if let Some(members) = of.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
}

pub(super) fn collection(members: impl IntoIterator<Item = String>) -> Value {
    let members: Vec<Value> = members.into_iter().map(|path| json!({"@odata.id": path})).collect();
    json!({"Name": "Collection", "Members@odata.count": members.len(), "Members": members})
}

pub(super) fn found(body: &Value) -> Response<Vec<u8>> {
    let mut answer = Response::new(body.to_string().into_bytes());
    answer.headers_mut().insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

pub(super) fn empty() -> Response<Vec<u8>> {
    let mut answer = Response::new(Vec::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}
