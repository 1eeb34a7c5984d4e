//! The agent's image as a BMC fetches it: what is written into it, who gets it, and until when.

use super::{
    START, World,
    metal::{access, allow, ask, enroll, persona, until, until_state},
    outcome,
};
use serde_json::{Value, json};
use shared::boot::{Boot, REGION_BYTES};
use std::net::Ipv4Addr;
use tests::{Database, FakeBmc, IMAGE_REGION, LocalRelay, Machine, client, free_port, on_both_databases};

on_both_databases!(an_image_is_for_one_start_one_address_and_one_join, an_image_over_tls_is_the_same,);

const LOCAL: Ipv4Addr = Ipv4Addr::LOCALHOST;

/// A world that serves images, a machine in it that is started from one, and that image's address.
async fn started(database: Database, settings: &[(&str, &str)]) -> (World, FakeBmc, Value, String) {
    let home = tempfile::tempdir().unwrap();
    let clock = relay::clock::Clock::manual(START);
    let relay = LocalRelay::start_with(home.path(), "relay", &database, &clock, settings).await;
    let world = World { home, database, clock, relay };
    allow(&world, &["127.0.0.1/32"]).await;
    let bmc = FakeBmc::start(persona("dell"));
    let node = until_state(&world, &enroll(&world, access(&bmc)).await, "enrolled").await;
    assert_eq!(ask(&world, "inspect", &node, json!({})).await.status, 200);
    let node = until_state(&world, &node, "inspected").await;
    assert_eq!(ask(&world, "commission", &node, json!({})).await.status, 200);
    until(&world, &node, "started", |node| node["waitingFor"] == "agent").await;
    let url = bmc.started().last().unwrap().clone();
    (world, bmc, node, url)
}

/// What a client at this address is answered.
async fn fetched(url: &str, from: Ipv4Addr) -> (u16, Vec<u8>) {
    let answer = client::plain(from.into()).get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.bytes().await.unwrap().to_vec())
}

fn told(image: &[u8]) -> Boot {
    let region = &image[IMAGE_REGION..IMAGE_REGION + REGION_BYTES];
    Boot::parse(region).unwrap_or_else(|error| panic!("{error}"))
}

async fn an_image_is_for_one_start_one_address_and_one_join(database: Database) {
    let (world, bmc, node, url) = started(database, &[("boot_listen", "127.0.0.1:0")]).await;
    let client = client::plain(LOCAL.into());
    let head = client.head(&url).send().await.unwrap();
    let (status, length) = (head.status(), head.headers()["content-length"].to_str().unwrap().to_owned());
    let (_, whole) = fetched(&url, LOCAL).await;
    assert_eq!((status.as_u16(), length), (200, whole.len().to_string()));
    assert!(whole == fetched(&url, LOCAL).await.1, "the same at each request");
    let behind = &whole[IMAGE_REGION + REGION_BYTES..];
    assert!(whole[..IMAGE_REGION].iter().chain(behind).all(|byte| *byte == 0x11), "nothing else is changed");
    let range = format!("bytes={}-{}", IMAGE_REGION - 1, IMAGE_REGION + 16);
    let part = client.get(&url).header("range", range).send().await.unwrap();
    assert_eq!(part.status(), 206);
    assert_eq!(&part.bytes().await.unwrap()[..], b"\x11bcd-agent-boot-1\n");

    let word = url.split('/').rev().nth(1).unwrap();
    let guessed = format!("{}{}", if word.starts_with('0') { '1' } else { '0' }, &word[1..]);
    for (what, url, from) in [
        ("another address", url.clone(), Ipv4Addr::new(127, 0, 0, 2)),
        ("another name", url.replace("/agent.iso", "/agent.img"), LOCAL),
        ("a word that is guessed", url.replace(word, &guessed), LOCAL),
        ("no path", url.split("/boot/").next().unwrap().to_owned(), LOCAL),
    ] {
        let (status, body) = fetched(&url, from).await;
        assert_eq!((status, body.len()), (404, 0), "{what}");
    }
    assert_eq!(client.post(&url).send().await.unwrap().status(), 405);

    let told = told(&whole);
    assert_eq!(told.relay, world.relay.url());
    assert_eq!(told.ca_pins, [world.relay.context.ca.load().pin().unwrap()]);
    assert!(told.at <= START && START.since(told.at).as_secs() < 60);
    let maker = persona("dell");
    let claim = json!({"productUuid": maker.uuid, "serial": maker.sku, "macs": []});
    let mut agent = Machine::claiming(claim);
    let joined = agent.join(&world.relay, told.token.expose()).await;
    assert_eq!(joined.body["nodeId"], node["nodeId"], "{}", joined.body);
    assert_eq!(fetched(&url, LOCAL).await.0, 404, "after the join");

    assert_eq!(ask(&world, "abort", &node, json!({})).await.status, 200);
    let node = until_state(&world, &node, "commissionFailed").await;
    assert_eq!(ask(&world, "commission", &node, json!({})).await.status, 200);
    until(&world, &node, "started again", |_| bmc.started().len() == 2).await;
    let next = bmc.started().last().unwrap().clone();
    assert_ne!(url, next, "each start has its own");
    assert_eq!((fetched(&url, LOCAL).await.0, fetched(&next, LOCAL).await.0), (404, 200));
    assert_eq!(outcome(&agent.call(&world.relay, "node/steps/poll", &json!({})).await), "superseded");
    assert_eq!(ask(&world, "abort", &node, json!({})).await.status, 200);
    until_state(&world, &node, "commissionFailed").await;
    assert_eq!(fetched(&next, LOCAL).await.0, 404, "what was given up");
}

async fn an_image_over_tls_is_the_same(database: Database) {
    let address = format!("127.0.0.1:{}", free_port());
    let url = format!("https://{address}");
    let (world, _bmc, _, image) = started(database, &[("boot_listen", &address), ("boot_url", &url)]).await;
    assert!(image.starts_with(&url), "{image}");
    let answer = world.relay.client(None).get(&image).send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(told(&answer.bytes().await.unwrap()).relay, world.relay.url());
}
