//! The power of a machine. What is asked for is one of what the service allows; of a refusal the machine's state is the judge.

use super::{
    super::error::{BmcError, Reason},
    Redfish,
    answer::Document,
    path::Path,
    text, words,
};
use crate::metal::facts::Asked;
use serde_json::{Value, json};
use shared::api::metal::PowerState;

const ON: &[&str] = &["On", "ForceOn"];

impl Redfish {
    pub(in crate::metal::bmc) fn power(&self) -> PowerState {
        power_of(&self.system)
    }

    pub(in crate::metal::bmc) async fn ask(&self, asked: Asked) -> Result<(), BmcError> {
        let (target, allowed) = reset(&self.system).ok_or(Reason::NoSystem)?;
        let allowed = match allowed {
            Some(allowed) => allowed,
            None => self.action_info().await?,
        };
        // A service that says nothing of what it allows is asked for the first.
        let choose = |words: &[&'static str]| {
            words.iter().find(|word| allowed.is_empty() || allowed.iter().any(|it| it == *word)).copied()
        };
        let word = choose(words_of(asked)).ok_or(Reason::Unsupported)?;
        let post = async |word: &str| self.line.post(&target, &json!({"ResetType": word})).await.map(drop);
        let refused = match post(word).await {
            Err(error) if error.reason == Reason::Refused => error,
            posted => return posted,
        };
        // It may be as it was to be already, or have done what it refused.
        let now = self.line.get(&self.system.path).await.map_or(PowerState::Unknown, |now| power_of(&now));
        match (asked, now) {
            (Asked::On, PowerState::On | PowerState::PoweringOn) => Ok(()),
            (Asked::ForceOff | Asked::GracefulShutdown, PowerState::Off | PowerState::PoweringOff) => Ok(()),
            // One that is off can't be cycled.
            (Asked::PowerCycle, PowerState::Off) => match choose(ON) {
                Some(word) => post(word).await,
                None => Err(refused),
            },
            _ => Err(refused),
        }
    }

    /// What a service allows of the reset, where it says so apart (`@Redfish.ActionInfo`).
    async fn action_info(&self) -> Result<Vec<String>, BmcError> {
        let action = self.system.body.get("Actions").and_then(|it| it.get("#ComputerSystem.Reset"));
        let info = action.and_then(|it| Path::of(it.get("@Redfish.ActionInfo")?.as_str()?));
        let Some(info) = info else { return Ok(Vec::new()) };
        let document = self.line.get(&info).await?;
        let parameters =
            document.body.get("Parameters").and_then(Value::as_array).cloned().unwrap_or_default();
        let of_reset = parameters.iter().find(|it| text(it, "Name").as_deref() == Some("ResetType"));
        Ok(of_reset.map(|it| words(it.get("AllowableValues"))).unwrap_or_default())
    }
}

/// The words for what is asked, the best first.
const fn words_of(asked: Asked) -> &'static [&'static str] {
    match asked {
        Asked::On => ON,
        Asked::ForceOff => &["ForceOff"],
        Asked::GracefulShutdown => &["GracefulShutdown"],
        Asked::PowerCycle => &["PowerCycle", "ForceRestart"],
    }
}

fn power_of(system: &Document) -> PowerState {
    match system.body.get("PowerState").and_then(Value::as_str) {
        Some("On") => PowerState::On,
        Some("Off") => PowerState::Off,
        Some("PoweringOn") => PowerState::PoweringOn,
        Some("PoweringOff") => PowerState::PoweringOff,
        _ => PowerState::Unknown,
    }
}

/// The target of a system's reset, and what it allows where that stands beside it.
pub(super) fn reset(system: &Document) -> Option<(Path, Option<Vec<String>>)> {
    let action = system.body.get("Actions")?.get("#ComputerSystem.Reset")?;
    let target = Path::of(action.get("target")?.as_str()?)?;
    let allowed = action.get("ResetType@Redfish.AllowableValues");
    Some((target, allowed.map(|allowed| words(Some(allowed)))))
}
