//! HTTP and TLS as no client of ours speaks them. Each gets the documented status as a problem with the request's id,
//! or its connection ends; none keeps others from being served.

use super::{World, outcome};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, version::TLS12};
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};
use tests::{Database, LocalRelay, Machine, client, on_both_databases};

on_both_databases!(
    routes_verbs_and_media_types,
    bodies_that_are_no_input,
    heads_that_are_no_request,
    wrong_credentials_slow_down_only_themselves,
);

/// What came back, until the relay closed the connection.
struct Reply {
    status: u16,
    head: String,
    body: String,
}

impl Reply {
    fn parse(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Self { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// Whether it is a problem of this status and code that names its request.
    fn is_problem(&self, status: u16, code: &str, what: &str) {
        assert_eq!(self.status, status, "{what}: {}", self.body);
        assert_eq!(self.header("content-type"), Some("application/problem+json"), "{what}: {}", self.head);
        let problem: Value = serde_json::from_str(&self.body).unwrap();
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)), "{what}");
        let id = self.header("x-request-id").unwrap();
        // Heads are compared in lower case.
        assert_eq!(problem["requestId"].as_str().map(str::to_lowercase).as_deref(), Some(id), "{what}");
    }
}

fn tls(relay: &LocalRelay) -> ClientConfig {
    client::tls(&relay.ca_bundle(), &relay.clock, None)
}

fn connect(address: &str, config: ClientConfig) -> StreamOwned<ClientConnection, TcpStream> {
    let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    StreamOwned::new(connection, stream)
}

/// Sends these bytes and reads to the end of the connection, however it ends.
async fn send(relay: &LocalRelay, bytes: impl Into<Vec<u8>>) -> Reply {
    let (address, config, bytes) = (relay.url().replace("https://", ""), tls(relay), bytes.into());
    let sent = tokio::task::spawn_blocking(move || {
        let mut stream = connect(&address, config);
        // The relay may answer and close before it has all of it.
        let _ = stream.write_all(&bytes).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut chunk) {
            answer.extend(chunk.iter().take(read));
        }
        String::from_utf8_lossy(&answer).into_owned()
    });
    Reply::parse(&sent.await.unwrap())
}

fn request(line: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{line} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    [format!("{head}\r\n").as_bytes(), body].concat()
}

/// A call of a method that only reads, as an admin.
fn call(relay: &LocalRelay, body: &[u8]) -> Vec<u8> {
    let bearer = format!("authorization: Bearer {}", relay.admin());
    let length = format!("content-length: {}", body.len());
    request("POST /api/compute/pools/list", &["content-type: application/json", &bearer, &length], body)
}

async fn routes_verbs_and_media_types(database: Database) {
    let World { relay, .. } = &World::new(database).await;
    for path in [
        "/",
        "/api",
        "/api/",
        "/api/node/join/",
        "//api/node/join",
        "/api/node/../node/join",
        "/API/node/join",
        "/api/node/join%00",
        "/api/node/steps/next",
        "/api/compute/pools",
        "/crl/",
        "/livez/",
        "/api/%6eode/join",
    ] {
        for verb in ["GET", "POST", "DELETE"] {
            let line = format!("{verb} {path}");
            send(relay, request(&line, &[], b"")).await.is_problem(404, "NOT_FOUND", &line);
        }
    }
    for verb in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"] {
        let line = format!("{verb} /api/node/join");
        let reply = send(relay, request(&line, &["content-length: 0"], b"")).await;
        reply.is_problem(405, "INVALID_INPUT", &line);
        assert_eq!(reply.header("allow"), Some("post"), "{line}: {}", reply.head);
    }
    for path in ["/livez", "/readyz", "/api/version", "/api/trust-bundle", "/crl/node.crl"] {
        let line = format!("POST {path}");
        send(relay, request(&line, &["content-length: 0"], b"")).await.is_problem(
            405,
            "INVALID_INPUT",
            &line,
        );
    }
    let bearer = format!("authorization: Bearer {}", relay.admin());
    for media_type in
        ["text/plain", "application/x-www-form-urlencoded", "application/jsonx", "json", "", "*/*"]
    {
        let headers = [&format!("content-type: {media_type}"), bearer.as_str(), "content-length: 2"];
        let reply = send(relay, request("POST /api/compute/pools/list", &headers, b"{}")).await;
        reply.is_problem(415, "INVALID_INPUT", media_type);
    }
    let none =
        send(relay, request("POST /api/compute/pools/list", &[&bearer, "content-length: 2"], b"{}")).await;
    none.is_problem(415, "INVALID_INPUT", "no media type");
    let good = br#"{"tenantId":"provider"}"#;
    let headers = ["content-type: Application/JSON; charset=utf-8", &bearer, "content-length: 23"];
    let reply = send(relay, request("POST /api/compute/pools/list", &headers, good)).await;
    assert_eq!(reply.status, 200, "{}", reply.body);
    assert_eq!(send(relay, call(relay, good)).await.header("cache-control"), Some("no-store"));
}

async fn bodies_that_are_no_input(database: Database) {
    let World { relay, .. } = &World::new(database).await;
    let deep = "[".repeat(100_000);
    let deep_member = format!("{{\"tenantId\":{}", "{\"a\":".repeat(50_000));
    let bodies: [&[u8]; 13] = [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\"x\"",
        b"7",
        deep.as_bytes(),
        deep_member.as_bytes(),
        b"{\"tenantId\":\"provider\"}{}",
        b"{\"tenantId\":\"prov\xff\"}",
        b"\xef\xbb\xbf{\"tenantId\":\"provider\"}",
        b"{\"tenantId\":1e999}",
        b"\0\0\0\0",
    ];
    for body in bodies {
        let what = String::from_utf8_lossy(&body[..body.len().min(60)]).into_owned();
        send(relay, call(relay, body)).await.is_problem(400, "INVALID_INPUT", &what);
    }
    // No length and no body at all.
    let bearer = format!("authorization: Bearer {}", relay.admin());
    let json = "content-type: application/json";
    let reply = send(relay, request("POST /api/compute/pools/list", &[json, &bearer], b"")).await;
    reply.is_problem(400, "INVALID_INPUT", "no body");
    // Too large: by what it says of itself, by what comes, and in chunks.
    let large = vec![b' '; 256 * 1024 + 1];
    send(relay, call(relay, &large)).await.is_problem(413, "PAYLOAD_TOO_LARGE", "a byte too many");
    let promised = [json, &bearer, "content-length: 99999999999"];
    let reply = send(relay, request("POST /api/compute/pools/list", &promised, b"{")).await;
    reply.is_problem(413, "PAYLOAD_TOO_LARGE", "a promise of too much");
    let chunk = [b"50000\r\n".to_vec(), vec![b' '; 0x50000], b"\r\n0\r\n\r\n".to_vec()].concat();
    let chunked =
        request("POST /api/compute/pools/list", &[json, &bearer, "transfer-encoding: chunked"], &chunk);
    send(relay, chunked).await.is_problem(413, "PAYLOAD_TOO_LARGE", "in chunks");
    let fits = [&large[23 + 1..], br#"{"tenantId":"provider"}"#].concat();
    assert_eq!(send(relay, call(relay, &fits)).await.status, 200, "exactly 256 KiB");
    // Who has no credential is told so first, and nothing of the input.
    let anonymous = request("POST /api/compute/pools/list", &[json, "content-length: 1"], b"{");
    send(relay, anonymous).await.is_problem(401, "UNAUTHENTICATED", "no credential");
}

async fn heads_that_are_no_request(database: Database) {
    let World { relay, .. } = &World::new(database).await;
    let huge = format!("x-huge: {}", "h".repeat(1_000_000));
    let many: Vec<String> = (0..5000).map(|number| format!("x-{number}: {number}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for headers in [vec![huge.as_str()], many] {
        let reply = send(relay, request("GET /livez", &headers, b"")).await;
        assert!(matches!(reply.status, 0 | 431), "{}", reply.head);
    }
    for head in [
        "GARBAGE\r\n\r\n",
        "GET /livez HTTP/1.1\r\nno colon\r\n\r\n",
        "GET /livez HTTP/9.9\r\n\r\n",
        "GET /li vez HTTP/1.1\r\n\r\n",
        "POST /api/node/join HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        "POST /api/node/join HTTP/1.1\r\ncontent-length: -1\r\n\r\n",
        "POST /api/node/join HTTP/1.1\r\ntransfer-encoding: gzip\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
    ] {
        let reply = send(relay, head).await;
        assert!(matches!(reply.status, 0 | 400), "{head}: {}", reply.head);
    }
    // A request's id is the client's, where it is harmless.
    let id = |given: &str| request("GET /nowhere", &[&format!("x-request-id: {given}")], b"");
    let reply = send(relay, id("trace-1.a_b")).await;
    assert_eq!(reply.header("x-request-id"), Some("trace-1.a_b"));
    for odd in ["a b", "<script>", "\"", &"a".repeat(65), "é"] {
        let reply = send(relay, id(odd)).await;
        reply.is_problem(404, "NOT_FOUND", odd);
        assert_ne!(reply.header("x-request-id"), Some(odd));
    }
    other_protocols(relay).await;
    let livez = send(relay, request("GET /livez", &[], b"")).await;
    assert_eq!((livez.status, livez.body.as_str()), (200, "ok\n"));
}

/// TLS 1.2, another protocol by ALPN, and no TLS at all.
async fn other_protocols(relay: &LocalRelay) {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(client::certificates(&std::fs::read(relay.ca_bundle()).unwrap()));
    let old = ClientConfig::builder_with_provider(tls(relay).crypto_provider().clone())
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut other = tls(relay);
    other.alpn_protocols = vec![b"smtp".to_vec()];
    for (config, alert) in [(old, "ProtocolVersion"), (other, "NoApplicationProtocol")] {
        let address = relay.url().replace("https://", "");
        let refused = tokio::task::spawn_blocking(move || {
            let mut stream = connect(&address, config);
            stream.conn.complete_io(&mut stream.sock).map_err(|error| format!("{error:?}"))
        });
        let refused = refused.await.unwrap();
        assert!(refused.as_ref().is_err_and(|error| error.contains(alert)), "{alert}: {refused:?}");
    }
    let address = relay.url().replace("https://", "");
    let plain = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: relay\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        answer
    });
    assert!(!String::from_utf8_lossy(&plain.await.unwrap()).contains("HTTP/"));
}

async fn wrong_credentials_slow_down_only_themselves(database: Database) {
    let World { relay, .. } = &World::new(database).await;
    let token = relay.mint(json!({"maxUses": 2})).await;
    let mut node = Machine::new(1);
    assert_eq!(node.join(relay, &token).await.status, 200);
    let last = if token.ends_with('0') { "g" } else { "0" };
    let wrong = format!("{}{last}", &token[..token.len() - 1]);
    let (client, url) = (relay.client(None), relay.url());
    let guess = async |bearer: Option<&str>, method: &str| {
        let mut request =
            client.post(format!("{url}/api/{method}")).header("content-type", "application/json");
        if let Some(bearer) = bearer {
            request = request.bearer_auth(bearer);
        }
        let answer = request.body(Machine::new(2).join_input().to_string()).send().await.unwrap();
        let retry_after =
            answer.headers().get("retry-after").and_then(|value| value.to_str().ok()?.parse().ok());
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        (body["code"].as_str().unwrap_or_default().to_owned(), retry_after)
    };
    let mut guesses = 0;
    let told: (String, Option<u32>) = loop {
        let told = guess(Some(&wrong), "node/join").await;
        if told.0 != "UNAUTHENTICATED" || guesses > 2000 {
            break told;
        }
        assert_eq!(told.1, None);
        guesses += 1;
    };
    assert!(guesses >= 100, "{guesses} wrong credentials were judged");
    assert_eq!(told.0, "RESOURCE_EXHAUSTED");
    assert!(told.1.is_some_and(|seconds| (1..=60).contains(&seconds)), "{told:?}");
    // Whatever kind of credential is wrong or missing, it is one bucket. What comes back in between is little.
    for (bearer, method) in
        [(Some("tk_x.y"), "compute/pools/list"), (None, "compute/pools/list"), (None, "node/heartbeat")]
    {
        let mut told = Vec::new();
        for _ in 0..20 {
            told.push(guess(bearer, method).await.0);
        }
        assert!(told.iter().any(|code| code == "RESOURCE_EXHAUSTED"), "{method}: {told:?}");
    }
    // From the same address, who has the right one is served.
    assert_eq!(Machine::new(2).join(relay, &token).await.status, 200);
    assert_eq!(node.call(relay, "node/heartbeat", &json!({})).await.status, 200);
    let pools = relay.call_as(&relay.admin(), "compute/pools/list", &json!({"tenantId": "provider"})).await;
    assert_eq!(outcome(&pools), "200");
}

/// What takes as long as the relay is patient.
mod slow {
    use super::*;
    use tokio::io::AsyncReadExt as _;

    #[tokio::test]
    async fn who_is_slow_or_silent_is_cut_off_and_keeps_nobody_waiting() {
        let World { relay, .. } = &World::new(Database::sqlite()).await;
        let address = relay.url().replace("https://", "");
        // Connections that never say a word, a third of a body, and one that goes away in the middle.
        let mut silent = Vec::new();
        for _ in 0..200 {
            silent.push(tokio::net::TcpStream::connect(&address).await.unwrap());
        }
        let bearer = format!("authorization: Bearer {}", relay.admin());
        let headers = ["content-type: application/json", &bearer, "content-length: 30"];
        let third = request("POST /api/compute/pools/list", &headers, b"{\"tenantId\"");
        let (config, gone) = (tls(relay), (address.clone(), third.clone()));
        tokio::task::spawn_blocking(move || {
            let mut stream = connect(&gone.0, config);
            stream.write_all(&gone.1).and_then(|()| stream.flush()).unwrap();
        })
        .await
        .unwrap();
        let (slow, meanwhile) = tokio::join!(send(relay, third), async {
            relay.call_as(&relay.admin(), "compute/pools/list", &json!({"tenantId": "provider"})).await
        });
        assert_eq!(meanwhile.status, 200);
        slow.is_problem(400, "INVALID_INPUT", "a third of a body");
        for mut stream in silent {
            let read = tokio::time::timeout(Duration::from_secs(60), stream.read_u8()).await;
            assert!(read.is_ok_and(|read| read.is_err()), "still open");
        }
    }
}
