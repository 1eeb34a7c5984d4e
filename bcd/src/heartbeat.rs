//! The sign of life, and what goes with it: the boot id, and the identity whenever it is news.

use crate::{failure::Failure, identity::Report, node::Node};
use shared::{
    api::node::{HEARTBEAT, HeartbeatAnswer, HeartbeatInput},
    hardware::Identity,
};
use std::{fs, time::Duration};

/// How often, before jitter.
pub const INTERVAL: Duration = Duration::from_secs(60);
/// The identity is sent with the first heartbeat, whenever it has changed, and with every one of so many.
const IDENTITY_EVERY: u32 = 60;

/// Remembers what the relay was last told.
#[derive(Debug, Default)]
pub struct Identities {
    gpu_uuids: Vec<String>,
    told: Option<Identity>,
    since: u32,
}

impl Identities {
    /// Whether the GPUs should be asked again; that is slow, and so rare.
    #[must_use]
    pub fn want_gpus(&self) -> bool {
        self.told.is_none() || self.since >= IDENTITY_EVERY
    }

    /// Takes the GPUs as they were just seen.
    pub fn saw_gpus(&mut self, gpu_uuids: Vec<String>) {
        self.gpu_uuids = gpu_uuids;
    }

    /// The machine as it is now.
    #[must_use]
    pub fn gather(&self, node: &Node) -> Identity {
        Report::gather_with(&node.settings.places, self.gpu_uuids.clone()).to_claim()
    }

    /// What of it is news to the relay.
    fn news(&self, seen: &Identity) -> Option<Identity> {
        let is_news = self.told.as_ref() != Some(seen) || self.since >= IDENTITY_EVERY;
        is_news.then(|| seen.clone())
    }

    /// Notes that a join told the relay this.
    pub fn told(&mut self, identity: Identity) {
        self.told = Some(identity);
        self.since = 0;
    }
}

/// One heartbeat.
///
/// # Errors
/// Refused, or not reached. A final refusal is written down.
pub async fn send(node: &mut Node, identities: &mut Identities) -> Result<HeartbeatAnswer, Failure> {
    let news = identities.news(&identities.gather(node));
    let answer = call(node, news.clone()).await?;
    identities.since += 1;
    if let Some(identity) = news {
        identities.told(identity);
    }
    Ok(answer)
}

/// The question whether the relay takes this node: a heartbeat that says nothing of the identity, since whoever asks has not
/// looked at all of the machine.
///
/// # Errors
/// Refused, or not reached. A final refusal is written down.
pub async fn ask(node: &mut Node) -> Result<(), Failure> {
    call(node, None).await.map(drop)
}

async fn call(node: &mut Node, identity: Option<Identity>) -> Result<HeartbeatAnswer, Failure> {
    let agent_version = Some(env!("CARGO_PKG_VERSION").to_owned());
    let input = HeartbeatInput { agent_version, boot_id: boot_id(), identity };
    match node.client.call(&HEARTBEAT, &input, None).await {
        Ok(answer) => {
            node.hear(answer.server_time);
            Ok(answer)
        }
        Err(error) => {
            let failure = Failure::of_call(&error, true);
            node.finish(&failure)?;
            Err(failure)
        }
    }
}

/// The kernel's id of this boot: a clone of the disk has another.
fn boot_id() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(text.trim().to_owned()).filter(|id| !id.is_empty() && id.len() <= 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(serial: &str) -> Identity {
        Identity { serial: Some(serial.into()), ..Identity::default() }
    }

    #[test]
    fn the_identity_goes_along_when_it_is_news_and_once_in_a_while() {
        let mut identities = Identities::default();
        assert!(identities.want_gpus());
        assert_eq!(identities.news(&identity("A")), Some(identity("A")));
        identities.told(identity("A"));
        assert_eq!(identities.news(&identity("A")), None);
        assert!(!identities.want_gpus());
        assert_eq!(identities.news(&identity("B")), Some(identity("B")));
        identities.since = IDENTITY_EVERY;
        assert!(identities.want_gpus());
        assert_eq!(identities.news(&identity("A")), Some(identity("A")));
    }

    #[test]
    fn this_boot_has_an_id() {
        assert_eq!(boot_id().unwrap().len(), 36);
    }
}
