//! What happened, listed and streamed: nothing is missed by one who comes back, at whichever relay, and nothing is told to
//! one who may no more.

use super::World;
use serde_json::{Value, json};
use tests::{Database, LocalRelay, on_both_databases, unique};

/// An open stream, read event by event.
struct Stream {
    response: reqwest::Response,
    text: String,
}

/// What an event of a stream says.
#[derive(Debug, PartialEq)]
struct Told {
    id: String,
    kind: String,
    event: Value,
}

async fn open(relay: &LocalRelay, bearer: &str, query: &str, after: Option<&str>) -> reqwest::Response {
    let url = format!("{}/api/compute/events/stream{query}", relay.url());
    let request = relay.client(None).get(url).bearer_auth(bearer);
    let request = match after {
        Some(id) => request.header("last-event-id", id),
        None => request,
    };
    request.send().await.unwrap()
}

impl Stream {
    async fn of(relay: &LocalRelay, bearer: &str, after: Option<&str>) -> Self {
        let response = open(relay, bearer, "?tenantId=acme", after).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self { response, text: String::new() }
    }

    /// The next event; `None` at the end.
    async fn next(&mut self) -> Option<Told> {
        loop {
            if let Some((frame, rest)) = self.text.split_once("\n\n") {
                let frame = frame.to_owned();
                self.text = rest.to_owned();
                let field = |name: &str| {
                    let lines = frame.lines().find_map(|line| line.strip_prefix(name));
                    lines.map(|text| text.trim().to_owned())
                };
                if let (Some(id), Some(kind), Some(data)) = (field("id:"), field("event:"), field("data:")) {
                    return Some(Told { id, kind, event: serde_json::from_str(&data).unwrap() });
                }
                continue;
            }
            let more = self.response.chunk().await.unwrap()?;
            self.text.push_str(std::str::from_utf8(&more).unwrap());
        }
    }
}

/// A tenant acme with a viewer's token: its id and its bearer.
async fn acme(world: &World) -> (String, String) {
    let relay = &world.relay;
    relay.call("iam/tenants/create", &json!({"tenantId": "acme", "idempotencyKey": unique("key")})).await;
    relay.call("admin/users/create", &json!({"userId": "watcher", "idempotencyKey": unique("key")})).await;
    let member = json!({"tenantId": "acme", "memberId": "watcher", "role": "VIEWER"});
    relay.call("admin/tenants/addMember", &member).await;
    let token = json!({
        "subject": "watcher", "description": "d", "idempotencyKey": unique("key"),
        "tenantRoles": [{"tenantId": "acme", "role": "VIEWER"}],
    });
    let made = relay.call("admin/tokens/create", &token).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&made["token"]["id"]), text(&made["secret"]))
}

async fn project(relay: &LocalRelay, id: &str) {
    let input = json!({"tenantId": "acme", "projectId": id, "idempotencyKey": unique("key")});
    relay.call("iam/projects/create", &input).await;
}

on_both_databases!(
    a_stream_tells_what_happens_and_goes_on_where_it_was_cut,
    a_stream_tells_the_types_that_it_is_asked_for_and_refuses_unknown_ones,
    a_stream_ends_when_its_token_counts_no_more,
    events_are_for_those_who_may_read_them,
);

async fn a_stream_tells_what_happens_and_goes_on_where_it_was_cut(database: Database) {
    let world = World::new(database).await;
    let (_, bearer) = acme(&world).await;
    let relay = &world.relay;
    let mut stream = Stream::of(relay, &bearer, None).await;
    project(relay, "one").await;
    let first = loop {
        // What happened just before the stream began may have got its number after it.
        let told = stream.next().await.unwrap();
        if told.event["subject"] == "one" {
            break told;
        }
    };
    assert_eq!(first.kind, "iam.project.created");
    let event = &first.event;
    assert_eq!((&event["specversion"], &event["tenantid"]), (&json!("1.0"), &json!("acme")));
    assert_eq!((&event["type"], &event["sequence"]), (&json!("iam.project.created"), &json!(first.id)));
    drop(stream);
    let elsewhere = world.second().await;
    let other = elsewhere.as_ref().unwrap_or(relay);
    for number in 0..30 {
        project(if number % 2 == 0 { relay } else { other }, &format!("p{number}")).await;
    }
    let mut resumed = Stream::of(other, &bearer, Some(&first.id)).await;
    let mut seen = Vec::new();
    let mut last = first.id.parse::<u64>().unwrap();
    while seen.len() < 30 {
        let told = resumed.next().await.unwrap();
        let number = told.id.parse::<u64>().unwrap();
        assert!(number > last, "{number} after {last}");
        last = number;
        let subject = told.event["subject"].as_str().unwrap();
        // What has happened before in the same millisecond may have got its number later.
        if subject.starts_with('p') {
            seen.push(subject.to_owned());
        }
    }
    seen.sort();
    let mut expected: Vec<String> = (0..30).map(|number| format!("p{number}")).collect();
    expected.sort();
    assert_eq!(seen, expected, "each once");
    let listed = relay.call_as(&bearer, "compute/events/list", &json!({"tenantId": "acme"})).await;
    assert_eq!(listed.status, 200);
    assert!(listed.body["events"].as_array().unwrap().iter().any(|of| of["id"] == first.event["id"]));
}

async fn a_stream_tells_the_types_that_it_is_asked_for_and_refuses_unknown_ones(database: Database) {
    let world = World::new(database).await;
    let (_, bearer) = acme(&world).await;
    let relay = &world.relay;
    let asked = "?tenantId=acme&types=security.node.*,iam.project.updated&lastEventId=0";
    let mut stream = Stream { response: open(relay, &bearer, asked, None).await, text: String::new() };
    assert_eq!(stream.response.status(), 200);
    project(relay, "one").await;
    let renamed = json!({"tenantId": "acme", "projectId": "one", "displayName": "One"});
    relay.call("iam/projects/update", &renamed).await;
    assert_eq!(stream.next().await.unwrap().kind, "iam.project.updated");
    for (types, near) in [
        ("iam.project.create", "iam.project.created"),
        ("iam.project.updated,x", "README.md"),
        ("No!", "type of events"),
    ] {
        let refused = open(relay, &bearer, &format!("?tenantId=acme&types={types}"), None).await;
        assert_eq!(refused.status(), 400, "{types}");
        let problem: Value = serde_json::from_slice(&refused.bytes().await.unwrap()).unwrap();
        assert_eq!(problem["errors"][0]["field"], "types", "{problem}");
        assert!(problem["errors"][0]["message"].as_str().unwrap().contains(near), "{problem}");
    }
}

async fn a_stream_ends_when_its_token_counts_no_more(database: Database) {
    let world = World::new(database).await;
    let (id, bearer) = acme(&world).await;
    let relay = &world.relay;
    let member = json!({"tenantId": "acme", "memberId": "watcher"});
    let mut stream = Stream::of(relay, &bearer, None).await;
    relay.call("iam/members/remove", &member).await;
    while stream.next().await.is_some() {}
    let refused = open(relay, &bearer, "?tenantId=acme", None).await;
    assert_eq!(refused.status(), 404);

    let mut member = member;
    member["role"] = json!("VIEWER");
    relay.call("admin/tenants/addMember", &member).await;
    let elsewhere = world.second().await;
    let mut stream = Stream::of(relay, &bearer, None).await;
    let revoke = json!({"tokenId": id});
    elsewhere.as_ref().unwrap_or(relay).call("admin/tokens/revoke", &revoke).await;
    while stream.next().await.is_some() {}
    assert_eq!(open(relay, &bearer, "?tenantId=acme", None).await.status(), 401);
}

async fn events_are_for_those_who_may_read_them(database: Database) {
    let world = World::new(database).await;
    let (_, bearer) = acme(&world).await;
    let relay = &world.relay;
    for (bearer, query, status) in [
        (bearer.as_str(), "?tenantId=acme", 200),
        (bearer.as_str(), "?tenantId=provider", 404),
        (bearer.as_str(), "", 403),
        (bearer.as_str(), "?tenant=acme", 400),
        (bearer.as_str(), "?tenantId=acme&lastEventId=x", 400),
        ("x", "?tenantId=acme", 401),
        (relay.viewer().as_str(), "", 200),
    ] {
        assert_eq!(open(relay, bearer, query, None).await.status(), status, "{query}");
    }
    let types = "?tenantId=acme&types=iam.project.deleted";
    let response = open(relay, &bearer, types, None).await;
    let mut stream = Stream { response, text: String::new() };
    project(relay, "one").await;
    relay.call("iam/projects/delete", &json!({"tenantId": "acme", "projectId": "one"})).await;
    assert_eq!(stream.next().await.unwrap().kind, "iam.project.deleted");
}
