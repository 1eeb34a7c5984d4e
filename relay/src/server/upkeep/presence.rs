//! The relay's own signs of life among the components: of itself, and of its workers.
//!
//! Its identifier is drawn once and kept in the data directory, because relays of one store may have everything else in
//! common: a second start on the same directory is the same relay.

use crate::{
    context::Context,
    fault::{Fault, chain},
    files,
    random::Random,
    store::components,
    tasks::runner::Runner,
};
use shared::{
    api::components::{Component, RELAY, RELAY_TASKS},
    bounded::Name,
    hex,
    time::Timestamp,
};
use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// How often it pings.
const INTERVAL: Duration = Duration::from_secs(60);
/// The file of the identifier.
const FILE: &str = "instance";
/// As much as an identifier can have, in bytes.
const MAX_BYTES: u64 = 256;

/// Tells the other components of this relay as long as it serves, and of its workers as long as they look for tasks.
pub(super) async fn show(relay: Arc<Context>, directory: PathBuf, runner: Arc<Runner>) {
    let presence = match Presence::of(&directory, &relay.random, relay.clock.now()) {
        Ok(presence) => presence,
        Err(fault) => {
            tracing::warn!(error = chain(&fault), "the relay is not among the components: it has no name");
            return;
        }
    };
    let mut before = None;
    loop {
        let turns = runner.turns();
        let works = before.replace(turns) != Some(turns);
        if !works {
            tracing::warn!(
                "no worker has looked for tasks for a minute; a restart of the relay starts them anew"
            );
        }
        if let Err(fault) = presence.ping(&relay, works).await {
            tracing::warn!(error = chain(&fault), "pinging failed; it is tried again");
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// What the relay is called among the components.
struct Presence {
    identifier: String,
    started_at: Timestamp,
}

impl Presence {
    /// Reads the identifier, or draws it.
    ///
    /// # Errors
    /// The file can't be read or written.
    fn of(directory: &Path, random: &Random, now: Timestamp) -> Result<Self, Fault> {
        let identifier = identifier(&directory.join(FILE), random)
            .map_err(Fault::internal("reading the instance's name"))?;
        Ok(Self { identifier, started_at: now })
    }

    /// Says that the relay lives, and its workers if they do.
    ///
    /// # Errors
    /// The store's.
    async fn ping(&self, relay: &Context, works: bool) -> Result<(), Fault> {
        let types: &[&str] = if works { &[RELAY, RELAY_TASKS] } else { &[RELAY] };
        let context = (self, types, relay.clock.now());
        relay
            .store
            .transact("components.ping", context, |tx, (this, types, now)| {
                Box::pin(async move {
                    for of in *types {
                        components::put(tx, &this.component(of, *now)).await?;
                    }
                    Ok(())
                })
            })
            .await
    }

    fn component(&self, of: &str, now: Timestamp) -> Component {
        Component {
            component_type: of.to_owned(),
            identifier: self.identifier.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: self.started_at,
            interval_seconds: i64::try_from(INTERVAL.as_secs()).unwrap_or(i64::MAX),
            created_at: now,
            pinged_at: now,
            subject: "relay".to_owned(),
            token_id: None,
            token_expires_at: None,
        }
    }
}

fn identifier(path: &Path, random: &Random) -> io::Result<String> {
    let known = match fs::metadata(path) {
        Ok(metadata) if metadata.len() <= MAX_BYTES => fs::read_to_string(path)?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => String::new(),
    };
    if known.trim().parse::<Name>().is_ok() {
        return Ok(known.trim().to_owned());
    }
    let drawn = hex::encode(&random.bytes::<8>());
    files::write(path, format!("{drawn}\n").as_bytes(), files::PUBLIC)?;
    Ok(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::tests::{at_a_desk, root};
    use serde_json::json;

    #[test]
    fn a_second_start_has_the_same_name_and_another_directory_another() {
        let (home, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let random = Random::seeded(1);
        let of = |home: &Path| Presence::of(home, &random, Timestamp::from_seconds(0)).unwrap().identifier;
        let first = of(home.path());
        assert_eq!(first, of(home.path()));
        assert_ne!(first, of(other.path()));
        fs::write(home.path().join(FILE), "relay-7\n").unwrap();
        assert_eq!(of(home.path()), "relay-7", "it may be given");
        fs::write(home.path().join(FILE), "no name\n").unwrap();
        assert_ne!(of(home.path()), "no name");
    }

    #[tokio::test]
    async fn the_relay_is_among_the_components_and_its_workers_as_long_as_they_look() {
        at_a_desk(async |desk| {
            let home = tempfile::tempdir().unwrap();
            let presence = Presence::of(home.path(), &desk.relay.random, desk.clock.now()).unwrap();
            let pinged = async |of: &str| {
                let one = json!({"type": of, "identifier": presence.identifier});
                let shown = desk.good(&root(), "admin.components.get", one).await;
                shown["component"]["pingedAt"].clone()
            };
            presence.ping(&desk.relay, true).await.unwrap();
            let first = pinged(RELAY).await;
            assert_eq!(pinged(RELAY_TASKS).await, first);
            desk.clock.advance(INTERVAL);
            presence.ping(&desk.relay, false).await.unwrap();
            assert_ne!(pinged(RELAY).await, first);
            assert_eq!(pinged(RELAY_TASKS).await, first, "they are silent");
        })
        .await;
    }
}
