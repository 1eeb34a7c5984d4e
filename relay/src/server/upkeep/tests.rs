//! Housekeeping by a clock that a test puts to any time.

use super::*;
use crate::{clock::Clock, config, random::Random, server::Relay};

const DAY: i64 = 86_400;
const HOUR: Duration = Duration::from_secs(3600);

/// A relay that does not serve, and its housekeeping, which goes by turns.
struct World {
    house: Arc<House>,
    pair: PairOfFiles,
    clock: Clock,
    _relay: Relay,
    home: tempfile::TempDir,
}

impl World {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = Clock::manual(Timestamp::from_seconds(1_780_000_000));
        let relay = Relay::start(settings(home.path()), clock.clone(), Random::seeded(5)).await.unwrap();
        let house = Arc::new(House::new(&relay.settings, relay.address, &relay.app, &relay.tls, relay.dates));
        let pair = PairOfFiles::new(house.relay.clone(), home.path().join("bootstrap"));
        pair.keep().await.unwrap();
        Self { house, pair, clock, _relay: relay, home }
    }

    /// One whose first hour is over.
    async fn trusting() -> Self {
        let world = Self::new().await;
        world.keep().await;
        world.pass(HOUR).await;
        world
    }

    async fn keep(&self) {
        self.house.keep().await.unwrap();
        self.sweep().await;
    }

    /// What the recurring tasks do.
    async fn sweep(&self) {
        let handlers = Arc::new(sweeps::handlers(&self.house));
        let runner = Runner::new(self.house.relay.clone(), handlers);
        runner.ensure().await.unwrap();
        // All of them are due.
        let due: Result<u64, StoreError> = self
            .house
            .relay
            .store
            .transact("due", (), |tx, ()| Box::pin(tx.execute("UPDATE tasks SET due_at = 0", &[])))
            .await;
        due.unwrap();
        assert_eq!(runner.turn().await.unwrap(), 3);
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        self.keep().await;
    }

    /// The credential that is in the file after a look whether a pair is due.
    async fn admin(&self) -> String {
        self.pair.keep().await.unwrap();
        std::fs::read_to_string(self.home.path().join("bootstrap/admin_editor_token")).unwrap()
    }

    /// The server certificate that is shown.
    fn shown(&self) -> Dates {
        self.house.shown.lock().unwrap().certificate
    }

    fn holds(&self) -> bool {
        self.shown().serves(self.clock.now(), false)
    }

    fn cas(&self) -> Vec<String> {
        faces(&self.house.relay.ca.load())
    }

    async fn credentials(&self) -> i64 {
        let counted = self.house.relay.store.read("count", (), |tx, ()| {
            Box::pin(async move {
                let rows = tx.fetch_all("SELECT CAST(COUNT(*) AS BIGINT) AS n FROM credentials", &[]).await?;
                rows.first().unwrap().integer("n")
            })
        });
        counted.await.unwrap()
    }
}

fn settings(home: &Path) -> Settings {
    let nowhere = home.join("no-relay.toml");
    let flags = |key: &config::Key| match key.name {
        "data_dir" => Some(home.display().to_string()),
        "listen" | "metrics_listen" => Some("127.0.0.1:0".to_owned()),
        _ => None,
    };
    let sources = config::Sources { file: None, default_file: &nowhere, env: &|_| None, flags: &flags };
    Settings::load(&sources).unwrap()
}

#[tokio::test]
async fn a_clock_that_is_wrong_for_a_minute_does_no_damage() {
    for days in [5, 25, -25, 400, -400] {
        let world = World::trusting().await;
        let (cas, credentials) = (world.cas(), world.credentials().await);
        let certificate = world.shown();
        world.clock.step(days * DAY);
        // Where no CA holds by then, the turn fails, and says so.
        let _ = world.house.keep().await;
        world.sweep().await;
        world.clock.advance(Duration::from_secs(60));
        let _ = world.house.keep().await;
        world.sweep().await;
        assert_eq!((world.cas(), world.credentials().await), (cas.clone(), credentials), "{days}");
        if (0..30).contains(&days) {
            assert_eq!(world.shown().not_after, certificate.not_after, "{days}: it still holds");
        }
        world.clock.step(-days * DAY);
        world.keep().await;
        assert!(world.holds(), "{days}: {:?} at {}", world.shown(), world.clock.now());
        assert_eq!(world.cas(), cas, "{days}");
    }
}

#[tokio::test]
async fn a_certificate_that_begins_in_the_future_is_exchanged_as_one_that_is_due_is() {
    let world = World::trusting().await;
    world.clock.step(31 * DAY);
    world.keep().await;
    assert!(world.holds(), "the one before has ended");
    world.clock.step(-31 * DAY);
    world.keep().await;
    assert!(world.holds(), "{:?}", world.shown());
    let before = world.shown();
    world.pass(Duration::from_secs(19 * 86_400)).await;
    assert_eq!(world.shown().not_after, before.not_after);
    world.pass(Duration::from_secs(2 * 86_400)).await;
    assert!(world.shown().not_after > before.not_after, "two thirds of its life are over");
}

#[tokio::test]
async fn a_new_time_counts_once_it_has_held_for_an_hour() {
    let world = World::trusting().await;
    let (cas, credentials) = (world.cas(), world.credentials().await);
    world.clock.step(250 * DAY);
    world.keep().await;
    world.pass(HOUR - Duration::from_secs(1)).await;
    assert_eq!((world.cas(), world.credentials().await), (cas.clone(), credentials));
    world.pass(Duration::from_secs(1)).await;
    assert_ne!(world.cas(), cas);
    assert_eq!(world.credentials().await, 0);
}

#[tokio::test]
async fn nothing_is_rotated_or_forgotten_in_the_first_hour() {
    let world = World::new().await;
    let cas = world.cas();
    // Wrong within the first minute, before the first turn: seen as well, and what is shown stays.
    let shown = world.shown();
    world.clock.step(25 * DAY);
    world.keep().await;
    assert_eq!(world.shown(), shown);
    world.clock.step(225 * DAY);
    world.keep().await;
    world.pass(HOUR - Duration::from_secs(1)).await;
    assert_eq!((world.cas(), world.credentials().await), (cas, 2));
}

#[tokio::test]
async fn bootstrap_credentials_go_by_the_wall_clock() {
    let world = World::new().await;
    let first = world.admin().await;
    world.clock.advance(HOUR * 8 - Duration::from_secs(1));
    assert_eq!(world.admin().await, first, "not due");
    world.clock.advance(Duration::from_secs(1));
    let second = world.admin().await;
    assert_ne!(second, first, "after eight hours, half of its life");
    // As long a suspension as any, and a clock that is put ahead, which no time since boot tells of.
    world.clock.advance(HOUR * 20);
    let third = world.admin().await;
    assert_ne!(third, second);
    world.clock.step(400 * DAY);
    let future = world.admin().await;
    assert_ne!(future, third);
    world.clock.step(-400 * DAY);
    let back = world.admin().await;
    assert_ne!(back, future, "that one is not valid yet");
    world.clock.advance(HOUR * 7);
    assert_eq!(world.admin().await, back);
}

#[tokio::test]
async fn what_another_relay_rotated_is_taken_over_meanwhile() {
    let world = World::new().await;
    let domain = world.house.relay.ca.load().trust_domain().clone();
    let rotator = Rotator {
        trust_domain: &domain,
        provider_tenant: &world.house.relay.provider_tenant,
        keys: &world.house.relay.keys,
        random: &world.house.relay.random,
        actor: "another",
    };
    let demand = Demand::Issuer(ca::CaName::Node);
    rotation::rotate(&world.house.relay.store, &rotator, demand, world.clock.now()).await.unwrap();
    let before = world.cas();
    world.keep().await;
    assert_eq!(world.cas().len(), before.len() + 1);
}

#[tokio::test]
async fn a_relay_that_has_just_begun_tells_of_its_fleet() {
    let home = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Timestamp::from_seconds(1_780_000_000));
    let relay = Relay::start(settings(home.path()), clock, Random::seeded(6)).await.unwrap();
    let context = relay.context().clone();
    relay.run(async {}).await.unwrap();
    let told = context.metrics.render();
    let gauge =
        |name: &str| told.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<i64>().ok());
    assert!(gauge("relay_ca_not_after_seconds ").unwrap() > 1_780_000_000, "{told}");
    assert_eq!(gauge("relay_join_requests_pending "), Some(0), "{told}");
    for queue in ["crls", "metal", "upkeep", "webhooks"] {
        let name = format!("relay_tasks{{queue=\"{queue}\",state=\"archived\"}} ");
        assert_eq!(gauge(&name), Some(0), "{told}");
    }
    assert_eq!(gauge("relay_nodes{state=\"live\"} "), Some(0), "{told}");
    assert_eq!(gauge("relay_metal_machines{state=\"deployFailed\"} "), Some(0), "{told}");
}

#[tokio::test]
async fn what_is_over_is_forgotten_some_rows_at_a_time_until_all_are_gone() {
    const ANSWERS: &str = "INSERT INTO idempotent_answers (subject, method, idempotency_key, content_sha256, answer, created_at) \
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2500) \
        SELECT 's', 'm', CAST(i AS TEXT), 'd', '{}', $1 + (CASE WHEN i > 2490 THEN 172800000 ELSE 0 END) FROM n";
    let world = World::trusting().await;
    let store = &world.house.relay.store;
    let long_ago = world.clock.now().plus_seconds(-2 * DAY);
    let made: Result<u64, StoreError> = store
        .transact("make", long_ago, |tx, at| {
            Box::pin(async move { tx.execute(ANSWERS, &[(*at).into()]).await })
        })
        .await;
    assert_eq!(made.unwrap(), 2500);
    world.keep().await;
    let left = store.read("left", (), |tx, ()| {
        Box::pin(tx.fetch_one("SELECT COUNT(*) AS n FROM idempotent_answers", &[]))
    });
    let left: Result<_, StoreError> = left.await;
    assert_eq!(left.unwrap().integer("n").unwrap(), 10);
}

#[tokio::test]
async fn ended_tasks_and_silent_components_are_kept_for_their_time() {
    const TASK: &str = "INSERT INTO tasks (id, queue, type, state, once, payload, attempts, holder, fence, created_at, ended_at) \
        VALUES ($1, 'q', 'k', $2, 0, 'null', 1, '', 1, 0, $3)";
    const COMPONENT: &str = "INSERT INTO components (type, identifier, version, started_at, interval_seconds, subject, \
        created_at, pinged_at) VALUES ('t', $1, '1', 0, 60, 's', 0, $2)";
    let world = World::trusting().await;
    let store = &world.house.relay.store;
    let now = world.clock.now();
    let made: Result<(), StoreError> = store
        .transact("make", now, |tx, now| {
            Box::pin(async move {
                for (id, state, days) in [
                    ("c13", "completed", 13),
                    ("c15", "completed", 15),
                    ("a89", "archived", 89),
                    ("a91", "archived", 91),
                ] {
                    let id = format!("task_{}{id}", "0".repeat(23));
                    let ended = now.plus_seconds(-days * DAY);
                    tx.execute(TASK, &[id.as_str().into(), state.into(), ended.into()]).await?;
                }
                for (identifier, seconds) in [("lives", 86_000), ("silent", 86_500)] {
                    tx.execute(COMPONENT, &[identifier.into(), now.plus_seconds(-seconds).into()]).await?;
                }
                Ok(())
            })
        })
        .await;
    made.unwrap();
    world.keep().await;
    let left: Result<Vec<String>, StoreError> = store
        .read("left", (), |tx, ()| {
            Box::pin(async move {
                let sql = "SELECT id FROM tasks WHERE queue = 'q' UNION ALL SELECT identifier AS id FROM components ORDER BY id";
                tx.fetch_all(sql, &[]).await?.iter().map(|row| row.text("id")).collect()
            })
        })
        .await;
    let left: Vec<String> =
        left.unwrap().iter().map(|id| id.replace("task_00000000000000000000000", "")).collect();
    assert_eq!(left, ["lives", "a89", "c13"]);
}
