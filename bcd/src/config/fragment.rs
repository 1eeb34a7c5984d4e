//! Stage one of the settings: what one source says, all of it optional, checked for nothing but its keys and kinds.
//!
//! [`KEYS`] is the one table of settings. A key that is not in it is refused with the file that has it; its value is
//! never repeated, since it may be a secret in the wrong place.

use crate::tpm::DEFAULT_TCTI;
use std::{fmt, path::PathBuf};

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One text.
    Text,
    /// Several texts; from the environment, between commas.
    List,
    /// `true` or `false`.
    Flag,
}

/// A setting.
#[derive(Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name in files; `BCD_` and the name in upper case in the environment; with dashes as a flag.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What it is if nobody says anything.
    pub default: Option<&'static str>,
}

const fn key(name: &'static str, kind: Kind) -> Key {
    Key { name, kind, default: None }
}

const fn with_default(name: &'static str, default: &'static str) -> Key {
    Key { name, kind: Kind::Text, default: Some(default) }
}

/// Every setting, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    key("relay", Kind::Text),
    key("ca_pins", Kind::List),
    key("ca_file", Kind::Text),
    key("system_roots", Kind::Flag),
    key("token_file", Kind::Text),
    with_default("state_dir", "/var/lib/bcd"),
    key("dmi_dir", Kind::Text),
    key("net_dir", Kind::Text),
    with_default("tpm", "auto"),
    with_default("tcti", DEFAULT_TCTI),
    key("socket", Kind::Text),
    key("status_listen", Kind::Text),
    with_default("log", "info"),
    key("node_name", Kind::Text),
    with_default("when_final", "exit"),
];

/// The environment variable that holds the join token itself, and so is no setting.
pub const TOKEN_VARIABLE: &str = "BCD_JOIN_TOKEN";
const PREFIX: &str = "BCD_";

/// A value of one of the kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// One text.
    Text(String),
    /// Several.
    List(Vec<String>),
    /// Yes or no.
    Flag(bool),
}

impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(out, "{text:?}"),
            Self::List(list) => write!(out, "{list:?}"),
            Self::Flag(flag) => write!(out, "{flag}"),
        }
    }
}

/// Where a value was said; a later one goes before an earlier one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Built in.
    Default,
    /// A file, with its place in the order of reading.
    File(usize, PathBuf),
    /// The environment.
    Environment,
    /// A flag of the command.
    Flag,
}

impl Origin {
    /// How this source spells the key.
    #[must_use]
    pub fn spell(&self, name: &str) -> String {
        match self {
            Self::Default | Self::File(..) => name.to_owned(),
            Self::Environment => format!("{PREFIX}{}", name.to_uppercase()),
            Self::Flag if name == "ca_pins" => "--ca-pin".to_owned(),
            Self::Flag => format!("--{}", name.replace('_', "-")),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => out.write_str("built in"),
            Self::File(_, path) => write!(out, "{}", path.display()),
            Self::Environment => out.write_str("environment"),
            Self::Flag => out.write_str("flag"),
        }
    }
}

/// What one source says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Which source.
    pub origin: Origin,
    /// The keys it names.
    pub values: Vec<(&'static Key, Value)>,
}

impl Fragment {
    /// What is built in.
    #[must_use]
    pub fn defaults() -> Self {
        let value = |key: &'static Key| Some((key, Value::Text(key.default?.to_owned())));
        Self { origin: Origin::Default, values: KEYS.iter().filter_map(value).collect() }
    }

    /// Reads a file's text.
    ///
    /// # Errors
    /// Every line that is wrong: what is no TOML, an unknown key, a value of another kind.
    pub fn from_toml(origin: Origin, text: &str) -> Result<Self, Vec<String>> {
        let table: toml::Table = toml::from_str(text).map_err(|error| {
            let line =
                error.span().map_or(1, |span| text.get(..span.start).map_or(1, |t| t.lines().count().max(1)));
            // Not the error's own text: it shows the line, and the line may hold a secret.
            vec![format!("{origin}: line {line} is no TOML: {}", error.message())]
        })?;
        let read = table.into_iter().map(|(name, value)| match KEYS.iter().find(|key| key.name == name) {
            Some(key) => from_toml_value(key, value)
                .map(|value| (key, value))
                .ok_or_else(|| format!("{origin}: {name} must be {}", describe(key.kind))),
            None => Err(format!("{origin}: there is no setting {name}; settings are: {}", names())),
        });
        collect(read).map(|values| Self { origin, values })
    }

    /// Reads the environment. Unknown names are left alone: a cluster puts names of its own there
    /// (`BCD_SERVICE_HOST`).
    ///
    /// # Errors
    /// Every variable whose value is of another kind.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Vec<String>> {
        let origin = Origin::Environment;
        let read = KEYS.iter().filter_map(|key| {
            let name = origin.spell(key.name);
            let text = variable(&name).filter(|text| !text.is_empty())?;
            Some(
                from_text(key.kind, text)
                    .map(|value| (key, value))
                    .ok_or_else(|| format!("environment: {name} must be {}", describe(key.kind))),
            )
        });
        collect(read).map(|values| Self { origin: Origin::Environment, values })
    }

    /// From the command's flags; names that are no setting are a mistake of ours and left out.
    #[must_use]
    pub fn from_flags(flags: Vec<(&str, Value)>) -> Self {
        let values = flags
            .into_iter()
            .filter_map(|(name, value)| Some((KEYS.iter().find(|key| key.name == name)?, value)))
            .collect();
        Self { origin: Origin::Flag, values }
    }
}

/// The names of all settings.
fn names() -> String {
    KEYS.iter().map(|key| key.name).collect::<Vec<_>>().join(", ")
}

/// Names in the environment that look like settings and are none.
#[must_use]
pub fn unknown_variables<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let known = |name: &str| {
        name == TOKEN_VARIABLE || KEYS.iter().any(|key| Origin::Environment.spell(key.name) == name)
    };
    names.filter(|name| name.starts_with(PREFIX) && !known(name)).collect()
}

fn collect<T>(read: impl Iterator<Item = Result<T, String>>) -> Result<Vec<T>, Vec<String>> {
    let (mut good, mut bad) = (Vec::new(), Vec::new());
    for item in read {
        match item {
            Ok(item) => good.push(item),
            Err(problem) => bad.push(problem),
        }
    }
    if bad.is_empty() { Ok(good) } else { Err(bad) }
}

fn from_toml_value(key: &Key, value: toml::Value) -> Option<Value> {
    match (key.kind, value) {
        (Kind::Text, toml::Value::String(text)) => Some(Value::Text(text)),
        (Kind::Flag, toml::Value::Boolean(flag)) => Some(Value::Flag(flag)),
        (Kind::List, toml::Value::Array(items)) => items
            .into_iter()
            .map(|item| item.as_str().map(str::to_owned))
            .collect::<Option<_>>()
            .map(Value::List),
        _ => None,
    }
}

fn from_text(kind: Kind, text: String) -> Option<Value> {
    match kind {
        Kind::Text => Some(Value::Text(text)),
        Kind::List => Some(Value::List(
            text.split(',').map(|item| item.trim().to_owned()).filter(|i| !i.is_empty()).collect(),
        )),
        Kind::Flag => match text.as_str() {
            "true" | "1" => Some(Value::Flag(true)),
            "false" | "0" => Some(Value::Flag(false)),
            _ => None,
        },
    }
}

fn describe(kind: Kind) -> &'static str {
    match kind {
        Kind::Text => "a text",
        Kind::List => "a list of texts",
        Kind::Flag => "true or false",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> Origin {
        Origin::File(0, PathBuf::from("/etc/bcd/bcd.toml"))
    }

    #[test]
    fn a_file_says_what_it_says() {
        let fragment =
            Fragment::from_toml(file(), "relay = 'https://r'\nca_pins = ['a', 'b']\nsystem_roots = true");
        let values =
            fragment.unwrap().values.into_iter().map(|(key, value)| (key.name, value)).collect::<Vec<_>>();
        assert_eq!(values.len(), 3);
        assert!(values.contains(&("relay", Value::Text("https://r".into()))));
        assert!(values.contains(&("ca_pins", Value::List(vec!["a".into(), "b".into()]))));
        assert!(values.contains(&("system_roots", Value::Flag(true))));
    }

    #[test]
    fn every_wrong_key_is_named_with_its_file_and_without_its_value() {
        let text = "join_token = 'bcjt_hush'\nrelay = 1\nsystem_roots = 'yes'\nca_pins = [1]";
        let problems = Fragment::from_toml(file(), text).unwrap_err().join("\n");
        for part in [
            "/etc/bcd/bcd.toml",
            "no setting join_token",
            "ca_pins, ca_file",
            "relay must",
            "system_roots must",
            "ca_pins must",
        ] {
            assert!(problems.contains(part), "{part}: {problems}");
        }
        assert!(!problems.contains("hush"));
        let problems = Fragment::from_toml(file(), "log = 'info'\nx = bcjt_hush\n").unwrap_err().join("\n");
        assert!(problems.contains("line 2") && !problems.contains("hush"), "{problems}");
    }

    #[test]
    fn the_environment_is_read_by_kind() {
        let variable = |name: &str| match name {
            "BCD_CA_PINS" => Some("a, b,".to_owned()),
            "BCD_SYSTEM_ROOTS" => Some("0".to_owned()),
            "BCD_LOG" => Some(String::new()),
            _ => None,
        };
        let values = Fragment::from_environment(variable).unwrap().values;
        let values: Vec<_> = values.into_iter().map(|(key, value)| (key.name, value)).collect();
        assert_eq!(
            values,
            [("ca_pins", Value::List(vec!["a".into(), "b".into()])), ("system_roots", Value::Flag(false))]
        );
        let bad = Fragment::from_environment(|name| (name == "BCD_SYSTEM_ROOTS").then(|| "maybe".to_owned()));
        assert_eq!(bad.unwrap_err(), ["environment: BCD_SYSTEM_ROOTS must be true or false"]);
    }

    #[test]
    fn misspelled_variables_are_found() {
        let names = ["BCD_RELAY", "BCD_REALY", "BCD_JOIN_TOKEN", "HOME"];
        assert_eq!(unknown_variables(names.into_iter()), ["BCD_REALY"]);
    }
}
