//! The audit of a relay that serves: machines and people leave records with the client's own address, the relay seals them by
//! itself, and `relay audit verify` finds what was done to them.

use super::World;
use relay::{
    cli::{Exit, Start, World as Surroundings, start},
    random::Random,
    store::StoreError,
};
use rustls::{ClientConnection, StreamOwned};
use serde_json::{Value, json};
use std::{
    ffi::OsString,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};
use tests::{Database, LocalRelay, Machine, client, on_both_databases};

on_both_databases!(machines_leave_records_and_the_relay_seals_them, clients_behind_a_trusted_proxy_are_apart);

/// The records of a method so far, in order.
async fn records(relay: &LocalRelay, method: &str) -> Vec<Value> {
    let all = relay.call("admin/audit/list", &json!({"limit": 200})).await;
    let all = all["records"].as_array().unwrap().iter();
    all.filter(|record| record["method"] == method).cloned().collect()
}

/// `relay audit verify` of this relay's folder.
async fn verify(world: &World) -> Exit {
    let data_dir = world.home.path().join("relay").display().to_string();
    let master_key = world.home.path().join("master.key").display().to_string();
    let arguments = ["relay", "audit", "verify", "--data-dir", &data_dir, "--master-key-file", &master_key];
    let mut arguments: Vec<OsString> = arguments.iter().map(Into::into).collect();
    arguments.extend(["--database-url".into(), world.database.url().into()]);
    let clock = world.clock.clone();
    let ended = tokio::task::spawn_blocking(move || {
        let registry = relay::api::registry().unwrap();
        let methods: Vec<_> = registry.methods().copied().collect();
        let surroundings =
            Surroundings { env: &|_| None, names: &Vec::new, clock: &clock, random: &Random::system() };
        match start(arguments, &methods, &surroundings) {
            Start::Ended(exit) => exit,
            Start::Serve(_) => panic!("it serves"),
        }
    });
    ended.await.unwrap()
}

/// Waits until nothing is left to seal; the relay does so by itself.
async fn all_sealed(world: &World) {
    world.pass(3);
    for _ in 0..200 {
        let open: Result<i64, StoreError> = world
            .relay
            .context
            .store
            .read("test", (), |tx, ()| Box::pin(relay::store::audit::count_open(tx)))
            .await;
        if open.unwrap() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the relay does not seal");
}

async fn machines_leave_records_and_the_relay_seals_them(database: Database) {
    let world = World::new(database).await;
    let relay = &world.relay;
    let token = relay.mint(json!({"maxUses": 5})).await;
    let (mut machine, mut waiting) = (Machine::new(1), super::queue::vague(2));
    let joined = machine.join(relay, &token).await;
    assert_eq!(joined.status, 200);
    for _ in 0..3 {
        assert_eq!(machine.call(relay, "node/heartbeat", &json!({})).await.status, 200);
        assert_eq!(waiting.join(relay, &token).await.body["status"], "deferred");
    }
    assert_eq!(machine.renew(relay).await.status, 200);
    let last = if token.ends_with('0') { "g" } else { "0" };
    let wrong = format!("{}{last}", &token[..token.len() - 1]);
    assert_eq!(Machine::new(3).join(relay, &wrong).await.status, 401);
    let joins = records(relay, "node.join").await;
    assert_eq!(joins.len(), 2, "a retry is no news: {joins:?}");
    let id = token.trim_start_matches("bc").split('.').next().unwrap();
    assert!(
        joins.iter().all(|record| record["subject"] == id && record["tenantId"] == "provider"),
        "{joins:?}"
    );
    let about: Vec<&str> = joins.iter().map(|record| record["resource"].as_str().unwrap()).collect();
    let node = joined.body["nodeId"].as_str().unwrap();
    assert!(about.contains(&format!("id={node}").as_str()), "{about:?}");
    let renewals = records(relay, "node.renew").await;
    assert_eq!((renewals.len(), &renewals[0]["subject"]), (1, &json!(node)));
    assert!(records(relay, "node.heartbeat").await.is_empty());
    let minted = records(relay, "compute.joinTokens.create").await;
    assert_eq!(
        (&minted[0]["createdBy"], &minted[0]["clientAddress"]),
        (&json!("provider"), &json!("127.0.0.1"))
    );
    all_sealed(&world).await;
    assert_eq!(verify(&world).await, Exit::Ok);
    let removed: Result<u64, StoreError> = relay
        .context
        .store
        .transact("tamper", (), |tx, ()| {
            Box::pin(tx.execute("DELETE FROM audit WHERE method = 'node.renew'", &[]))
        })
        .await;
    assert_eq!(removed.unwrap(), 1);
    assert_eq!(verify(&world).await, Exit::Refused);
}

/// What a load balancer says of a client.
fn header(client: [u8; 4]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    bytes.extend(client);
    bytes.extend([127, 0, 0, 1, 0x80, 0x00, 0x20, 0xfb]);
    bytes
}

/// Calls a method through a balancer that says `first`; the status, 0 if the connection ends instead.
async fn call(relay: &LocalRelay, first: Vec<u8>, bearer: &str, method: &str, input: Value) -> u16 {
    let (address, config) =
        (relay.url().replace("https://", ""), client::tls(&relay.ca_bundle(), &relay.clock, None));
    let body = input.to_string();
    let request = format!(
        "POST /api/{method} HTTP/1.1\r\nhost: relay\r\nconnection: close\r\ncontent-type: application/json\r\n\
         x-forwarded-for: 198.51.100.66\r\nforwarded: for=198.51.100.66\r\n\
         authorization: Bearer {bearer}\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let answer = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.write_all(&first).unwrap();
        let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
        let mut stream = StreamOwned::new(connection, stream);
        let _ = stream.write_all(request.as_bytes()).and_then(|()| stream.flush());
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        while let Ok(read @ 1..) = stream.read(&mut chunk) {
            answer.extend(chunk.iter().take(read));
        }
        String::from_utf8_lossy(&answer).into_owned()
    });
    answer.await.unwrap().split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
}

async fn clients_behind_a_trusted_proxy_are_apart(database: Database) {
    let home = tempfile::tempdir().unwrap();
    let clock = relay::clock::Clock::manual(super::START);
    let settings = [("trusted_proxies", "127.0.0.0/8"), ("limits.per_ip_per_minute", "3")];
    let relay = &LocalRelay::start_with(home.path(), "relay", &database, &clock, &settings).await;
    let pools = json!({"tenantId": "provider"});
    let (one, two) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let wrong = async |client| call(relay, header(client), "x", "compute/pools/list", pools.clone()).await;
    for _ in 0..3 {
        assert_eq!(wrong(one).await, 401);
    }
    assert_eq!(wrong(one).await, 429);
    assert_eq!(wrong(two).await, 401, "another client of the same proxy");
    let rename = json!({"tenantId": "provider", "displayName": "x"});
    assert_eq!(call(relay, header(two), &relay.admin(), "iam/tenants/update", rename).await, 200);
    let kept: Result<_, StoreError> = relay
        .context
        .store
        .read("test", (), |tx, ()| {
            Box::pin(
                tx.fetch_one("SELECT client_address FROM audit WHERE method = 'iam.tenants.update'", &[]),
            )
        })
        .await;
    assert_eq!(kept.unwrap().text("client_address").unwrap(), "192.0.2.2");
    // A trusted proxy that says nothing, or in words, is served nothing.
    let in_words = b"PROXY TCP4 192.0.2.3 127.0.0.1 5000 8443\r\n".to_vec();
    for first in [Vec::new(), in_words] {
        assert_eq!(call(relay, first, &relay.admin(), "compute/pools/list", pools.clone()).await, 0);
    }
    // Who is none is not listened to.
    let other = &LocalRelay::start(home.path(), "other", &Database::sqlite(), &clock).await;
    assert_eq!(call(other, header(one), "x", "compute/pools/list", pools.clone()).await, 0);
    assert_eq!(call(other, Vec::new(), "x", "compute/pools/list", pools).await, 401);
}
