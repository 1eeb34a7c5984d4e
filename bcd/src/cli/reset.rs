//! `bcd reset`: the machine forgets its join.

use super::print;
use crate::{
    config::Settings,
    failure::{Exit, Failure},
    state::{self, State, StateDir, StateError},
    status::Status,
};

/// `bcd reset`.
pub(super) fn run(settings: &Settings, keep_key: bool) -> Result<Exit, Failure> {
    let dir = StateDir::open(&settings.state_dir).map_err(|error| match error {
        // Trying again helps as little as with wrong usage.
        StateError::Busy(folder) => {
            let folder = folder.display();
            let rule = format!("bcd is at work in {folder}: stop it first (systemctl stop bcd), then reset");
            Failure::new(Exit::Usage, rule)
        }
        error => error.into(),
    })?;
    // A state that can't be read is forgotten all the same.
    let stored = state::read(dir.path()).ok();
    dir.forget(keep_key)?;
    let key = if keep_key { "; its key is kept" } else { " and its key" };
    let node = stored.as_ref().and_then(|stored| Status::of(stored).node_id);
    print(&match (node, stored.map(|stored| stored.state)) {
        (Some(node), Some(state)) => format!("forgotten: node {node}{key}. {}", at_the_relay(&node, &state)),
        _ => format!("forgotten: what this machine knew of its join{key}"),
    })
}

/// What of it the relay still has, and what frees that.
fn at_the_relay(node: &str, state: &State) -> String {
    let ended = match state {
        State::Final(over) => Some(Exit::from_final(over.exit)),
        _ => None,
    };
    match ended {
        Some(Exit::Released) => "The relay has let it go already: a new token is enough".to_owned(),
        Some(Exit::Banned) => {
            format!("The ban stays at the relay; if that is to end: relay nodes unban {node} --pool POOL")
        }
        _ => format!(
            "The relay still has it; to free its identity there: relay nodes release {node} --pool POOL"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Final;
    use shared::time::Timestamp;

    #[test]
    fn what_the_relay_still_has_follows_from_how_it_ended() {
        let since = Timestamp::from_seconds(1_780_000_000);
        let over = |exit: Exit| {
            State::Final(Final {
                exit: exit.code(),
                message: String::new(),
                token_id: None,
                node: None,
                since,
            })
        };
        for (state, words) in [
            (State::New, "relay nodes release nd_1"),
            (over(Exit::Identity), "relay nodes release nd_1"),
            (over(Exit::Released), "let it go already"),
            (over(Exit::Banned), "relay nodes unban nd_1"),
        ] {
            let text = at_the_relay("nd_1", &state);
            assert!(text.contains(words), "{text}");
        }
    }
}
