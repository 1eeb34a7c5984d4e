//! `bcd config`: the settings as they are merged, and all that is wrong with them or that a join still needs.

use super::{Flags, print, variable};
use crate::{
    client::CallError,
    client::check_trust,
    config::{
        InvalidSettings, Settings, TokenFile,
        fragment::{TOKEN_VARIABLE, unknown_variables},
    },
    failure::{Exit, Failure},
    files, state,
    token::Sources,
};
use nix::unistd::geteuid;
use std::io::{self, Write as _};

/// `bcd config show`.
pub(super) fn show(flags: &Flags, origin: bool) -> Result<Exit, Failure> {
    let mut text = flags.merged().map_err(usage)?.show(origin);
    if variable(TOKEN_VARIABLE).is_some() {
        text.push_str("# a join token is in BCD_JOIN_TOKEN (not shown)\n");
    }
    print(&text)
}

/// `bcd config check`.
pub(super) fn check(flags: &Flags) -> Result<Exit, Failure> {
    let settings = Settings::parse(&flags.merged().map_err(usage)?).map_err(usage)?;
    let names: Vec<String> = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    for name in unknown_variables(names.iter().map(String::as_str)) {
        warn(&format!("the environment has {name}, which is no setting"));
    }
    let missing = missing(&settings);
    if !missing.is_empty() {
        let text =
            format!("the settings do not suffice for `bcd join` and `bcd run`:\n  {}", missing.join("\n  "));
        return Err(Failure::new(Exit::Usage, text));
    }
    if let Some(text) = without_token(&settings) {
        warn(&format!("{text}; a credential of systemd is seen by its unit alone"));
    }
    if geteuid().is_root()
        && let Some(TokenFile::Path(path)) = &settings.token_file
        && let Some(text) = files::kept_from_the_unit(path)
    {
        warn(&format!("the unit's bcd can't read the join token: {text}"));
    }
    print("the settings are valid")
}

fn usage(error: InvalidSettings) -> Failure {
    Failure::new(Exit::Usage, error)
}

fn warn(text: &str) {
    let _ = writeln!(io::stderr(), "bcd: warning: {text}");
}

/// What is valid and still not enough to talk to a relay.
pub(super) fn missing(settings: &Settings) -> Vec<String> {
    let relay = settings.relay.is_none().then(|| CallError::NoRelay.to_string());
    let trust = match &settings.trust {
        None => Some(CallError::NoTrust.to_string()),
        Some(trust) => check_trust(trust).err().map(|error| error.to_string()),
    };
    relay.into_iter().chain(trust).collect()
}

/// Why there is no join token, where the machine needs one. Standard input is left alone.
fn without_token(settings: &Settings) -> Option<String> {
    let is_enrolled =
        || state::read(&settings.state_dir).is_ok_and(|stored| stored.state.name() == "enrolled");
    if settings.token_file == Some(TokenFile::StandardInput) || is_enrolled() {
        return None;
    }
    let sources = Sources::new(settings.token_file.as_ref(), variable, io::empty());
    sources.and_then(|sources| sources.read()).err().map(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{fragment::Fragment, fragment::Value, merge::Merged};

    fn settings(flags: Vec<(&str, &str)>) -> Settings {
        let flags = flags.into_iter().map(|(name, text)| (name, Value::Text(text.to_owned()))).collect();
        Settings::parse(&Merged::of(vec![Fragment::from_flags(flags)])).unwrap()
    }

    #[test]
    fn what_a_join_needs_is_named() {
        let all = missing(&settings(vec![])).join("\n");
        assert!(all.contains("--relay") && all.contains("--ca-pin"), "{all}");
        let file = missing(&settings(vec![("relay", "https://r"), ("ca_file", "/nope/ca.pem")])).join("\n");
        assert!(file.contains("/nope/ca.pem") && !file.contains("which relay"), "{file}");
    }

    #[test]
    fn a_token_is_missed_where_there_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).display().to_string();
        let text = without_token(&settings(vec![("state_dir", &at("state")), ("token_file", &at("token"))]));
        assert!(text.unwrap().contains(&at("token")));
        assert_eq!(without_token(&settings(vec![("state_dir", &at("state")), ("token_file", "-")])), None);
    }
}
