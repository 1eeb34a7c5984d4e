//! What the relay promises, as stories over its API. Each runs on SQLite and on PostgreSQL, most of them against
//! relays in the test's own process whose clock the story moves.
#![expect(clippy::indexing_slicing, reason = "a story indexes JSON, where what is absent is null")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "a story whose world is not as it should be fails")]

mod agent_image;
mod audit;
mod cluster;
mod decisions;
mod dropped;
mod endorsement;
mod events;
mod full_disk;
mod hostile;
mod impostors;
mod interrupted;
mod join;
mod login;
mod login_browser;
mod login_cli;
mod login_device;
mod matrix;
mod metal;
mod metal_in_band;
mod metal_rotation;
mod metal_secrecy;
mod metal_theft;
mod operator;
mod over;
mod own_root;
mod owners;
mod proof;
mod queue;
mod relays;
mod renewal;
mod requests;
mod restore;
mod secrecy;
mod signs;
mod storm;
mod swapped;
mod tasks;
mod token_secret;
mod tpm;
mod trust;
mod webhooks;

use serde_json::{Value, json};
use shared::time::Timestamp;
use tests::{Answer, Database, LocalRelay};

/// When stories begin: today would do, but a fixed time makes them the same every day.
const START: Timestamp = Timestamp::from_seconds(1_780_000_000);

/// Settings of a relay that BMCs get images from, and that slows nobody.
const IMAGES: &[(&str, &str)] = &[
    ("boot_listen", "127.0.0.1:0"),
    // The same after a restart; what is fetched from there, another story says.
    ("boot_url", "http://127.0.0.1:1"),
    ("limits.per_ip_per_minute", "1000000"),
    ("limits.per_token_per_minute", "1000000"),
];

/// A relay on a database, its folder, and the clock of both.
struct World {
    home: tempfile::TempDir,
    database: Database,
    clock: relay::clock::Clock,
    relay: LocalRelay,
}

impl World {
    async fn new(database: Database) -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = relay::clock::Clock::manual(START);
        let relay = LocalRelay::start(home.path(), "relay", &database, &clock).await;
        Self { home, database, clock, relay }
    }

    /// A world without limits, for stories of more calls than a person makes.
    async fn unlimited(database: Database) -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = relay::clock::Clock::manual(START);
        let limits = [("limits.per_ip_per_minute", "1000000"), ("limits.per_token_per_minute", "1000000")];
        let relay = LocalRelay::start_with(home.path(), "relay", &database, &clock, &limits).await;
        Self { home, database, clock, relay }
    }

    /// As [`World::unlimited`], with an address that BMCs get images from.
    async fn serving_images(database: Database) -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = relay::clock::Clock::manual(START);
        let relay = LocalRelay::start_with(home.path(), "relay", &database, &clock, IMAGES).await;
        Self { home, database, clock, relay }
    }

    /// The relay killed, and started again.
    async fn killed(self) -> Self {
        let Self { home, database, clock, relay } = self;
        relay.kill().await;
        // Whoever was at a task is so no more: its lease has ended.
        database.change("UPDATE tasks SET due_at = 0 WHERE due_at IS NOT NULL").await;
        let relay = LocalRelay::start_with(home.path(), "relay", &database, &clock, IMAGES).await;
        Self { home, database, clock, relay }
    }

    /// Another relay on the same store; on SQLite there is only one, so none.
    async fn second(&self) -> Option<LocalRelay> {
        if self.database.kind() == tests::Kind::Sqlite {
            return None;
        }
        Some(LocalRelay::start(self.home.path(), "second", &self.database, &self.clock).await)
    }

    fn pass(&self, seconds: u64) {
        self.clock.advance(std::time::Duration::from_secs(seconds));
    }
}

/// What an answer came to, in one word: `200`, a reason, or a code.
fn outcome(answer: &Answer) -> String {
    let word = |name: &str| answer.body[name].as_str().map(str::to_owned);
    word("reason").or_else(|| word("code")).unwrap_or_else(|| answer.status.to_string())
}

/// An input that names the pool `default`, with `more` members.
fn in_pool(more: Value) -> Value {
    let mut input = json!({"tenantId": "provider", "poolId": "default"});
    if let (Some(members), Value::Object(more)) = (input.as_object_mut(), more) {
        members.extend(more);
    }
    input
}

/// Changes the policy of the pool `default`.
async fn set_policy(relay: &LocalRelay, policy: Value) {
    relay.call("compute/pools/update", &in_pool(json!({"policy": policy}))).await;
}
