//! No space left: a join says so and costs nothing, and is the same join when there is room again.

use super::World;
use relay::store::StoreError;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};
use tests::{Answer, Database, Machine, RelayProcess};

/// What comes of a join, and its Retry-After.
async fn join(client: &reqwest::Client, url: &str, token: &str, machine: &Machine) -> (Answer, Option<u32>) {
    let request = client.post(format!("{url}/api/node/join")).bearer_auth(token);
    let request = request.header(CONTENT_TYPE, "application/json");
    let answer = request.body(machine.join_input().to_string()).send().await.unwrap();
    let status = answer.status().as_u16();
    let retry_after = answer.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    (Answer { status, body }, retry_after)
}

/// Machines join until there is no room; answers how many did, and the one that did not.
async fn join_until_full(client: &reqwest::Client, url: &str, token: &str) -> (Vec<Machine>, Machine) {
    let mut joined = Vec::new();
    for number in 0..500 {
        let machine = Machine::new(number);
        let (answer, retry_after) = join(client, url, token, &machine).await;
        if answer.status != 200 {
            assert_eq!(
                (answer.status, &answer.body["code"]),
                (503, &json!("UNAVAILABLE")),
                "{}",
                answer.body
            );
            assert!(retry_after.is_some_and(|seconds| seconds > 0), "no Retry-After");
            assert!(answer.body["requestId"].is_string(), "{}", answer.body);
            return (joined, machine);
        }
        joined.push(machine);
    }
    panic!("500 machines joined on a full disk");
}

async fn uses(database: &Database) -> usize {
    let uses = database.number("SELECT CAST(SUM(uses) AS BIGINT) FROM join_tokens").await;
    assert_eq!(database.number("SELECT COUNT(*) FROM nodes").await, uses);
    usize::try_from(uses).unwrap()
}

/// What the relay says of itself to whoever sends it machines.
async fn readyz(client: &reqwest::Client, url: &str) -> u16 {
    client.get(format!("{url}/readyz")).send().await.unwrap().status().as_u16()
}

/// The most pages of 4 KiB that SQLite may take; 1 means no more than it has.
async fn set_room(world: &World, statement: &'static str) {
    let set =
        world.relay.context.store.transact("room", (), |tx, ()| {
            Box::pin(async move { tx.execute(statement, &[]).await.map(drop) })
        });
    let set: Result<(), StoreError> = set.await;
    set.unwrap();
}

#[tokio::test]
async fn a_join_on_a_full_database_costs_nothing() {
    let world = World::new(Database::sqlite()).await;
    let token = world.relay.mint(json!({"maxUses": 1000})).await;
    let (client, url) = (world.relay.client(None), world.relay.url());
    set_room(&world, "PRAGMA max_page_count = 1").await;
    assert_eq!(readyz(&client, &url).await, 200);
    let (mut joined, mut refused) = join_until_full(&client, &url, &token).await;
    assert_eq!(readyz(&client, &url).await, 503);
    assert_eq!(uses(&world.database).await, joined.len());
    // Also together, where one commit serves many.
    let others: Vec<Machine> = (600..616).map(Machine::new).collect();
    let mut all = tokio::task::JoinSet::new();
    for other in others {
        let (client, url, token) = (client.clone(), url.clone(), token.clone());
        all.spawn(async move { (join(&client, &url, &token, &other).await.0.status, other) });
    }
    let (got_in, got_none): (Vec<_>, Vec<_>) =
        all.join_all().await.into_iter().partition(|(status, _)| *status == 200);
    assert!(got_none.iter().all(|(status, _)| *status == 503) && !got_none.is_empty());
    joined.extend(got_in.into_iter().map(|(_, machine)| machine));
    assert_eq!(uses(&world.database).await, joined.len());
    set_room(&world, "PRAGMA max_page_count = 1000000").await;
    world.relay.context.store.seek_space().await.unwrap();
    assert_eq!(readyz(&client, &url).await, 200);
    assert_eq!(refused.join(&world.relay, &token).await.status, 200);
    for (_, mut late) in got_none {
        assert_eq!(late.join(&world.relay, &token).await.status, 200);
        joined.push(late);
    }
    assert_eq!(uses(&world.database).await, joined.len() + 1);
}

/// A small disk of memory, gone with this value.
struct SmallDisk(PathBuf);

impl SmallDisk {
    /// `None` if this user may not mount.
    fn mount(path: &Path) -> Option<Self> {
        fs::create_dir_all(path).unwrap();
        let mounted =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(path).output();
        mounted.is_ok_and(|output| output.status.success()).then(|| Self(path.to_owned()))
    }

    /// Writes a file until there is no room for another byte.
    fn fill(&self) -> PathBuf {
        let path = self.0.join("filler");
        let mut file = fs::File::create(&path).unwrap();
        for block in [64 * 1024, 512, 1] {
            for _ in 0..4096 {
                if file.write_all(&vec![1; block]).is_err() {
                    break;
                }
            }
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(&self.0).output());
    }
}

#[tokio::test]
async fn a_join_on_a_full_disk_costs_nothing() {
    let home = tempfile::tempdir().unwrap();
    let Some(disk) = SmallDisk::mount(&home.path().join("relay")) else {
        eprintln!("NOT SHOWN: a full disk; this user may not mount one (run as root)");
        return;
    };
    let database = Database::file(&home.path().join("relay/relay.db"));
    let relay = RelayProcess::start(home.path(), None, &[]);
    let token = relay.join_token(1000).await;
    let (client, url) = (relay.client(None), relay.url());
    assert_eq!(join(&client, &url, &token, &Machine::new(900)).await.0.status, 200);
    let filler = disk.fill();
    let (joined, refused) = join_until_full(&client, &url, &token).await;
    assert_eq!(uses(&database).await, joined.len() + 1);
    fs::remove_file(filler).unwrap();
    let (first, _) = join(&client, &url, &token, &refused).await;
    let (again, _) = join(&client, &url, &token, &refused).await;
    assert_eq!(first.status, 200, "{}", first.body);
    assert_eq!(first.body["certificate"], again.body["certificate"]);
    assert_eq!(uses(&database).await, joined.len() + 2);
    // What was answered before the disk was full, and while it was, is the answer still; also after a restart.
    let relay = relay.restart();
    let client = relay.client(None);
    for machine in joined.iter().chain([&refused]) {
        assert_eq!(join(&client, &url, &token, machine).await.0.status, 200);
    }
    assert_eq!(uses(&database).await, joined.len() + 2);
    assert_eq!(relay.terminate(), Some(0));
}
