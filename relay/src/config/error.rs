//! Why there are no settings. Every text names the setting, the rule and the remedy; none holds a value, which may
//! be a password.

use super::{DEFAULT_FILE, keys::KEYS};
use crate::access;
use shared::access::Use;
use std::{
    fmt, io,
    path::{Path, PathBuf},
};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file.
    File(PathBuf),
    /// A variable of the environment.
    Env(String),
    /// A flag of the command line, without its dashes.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(out, "in {}", path.display()),
            Self::Env(name) => write!(out, "by {name}"),
            Self::Flag(name) => write!(out, "by --{name}"),
        }
    }
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file can't be read.
    #[error("read settings from {path}: {source}{}", unread(path, source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Several keys of the file are wrong.
    #[error("{}", said(.0))]
    Several(Vec<ConfigError>),
    /// The file is no TOML.
    #[error("read settings from {path}, line {line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Where, from 1.
        line: usize,
        /// What the parser says; never the line itself.
        message: String,
    },
    /// A key is no setting.
    #[error("read settings from {path}: {key} is not a setting; remove or correct it ({})", known())]
    UnknownKey {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
    },
    /// A key's value is of the wrong type.
    #[error("read settings from {path}: {key} must be {expected}")]
    Type {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
        /// A word for the type.
        expected: &'static str,
    },
    /// A value breaks its rule.
    #[error("set {key} ({origin}): {rule}")]
    Invalid {
        /// The setting.
        key: &'static str,
        /// Where the value came from.
        origin: Origin,
        /// The rule, and how to meet it.
        rule: String,
    },
    /// A setting has no default and no value.
    #[error("set {key}: it is required; write {key} into {DEFAULT_FILE} (or give --{flag}, or {env})")]
    Missing {
        /// The setting.
        key: &'static str,
        /// Its flag.
        flag: String,
        /// Its variable.
        env: String,
    },
}

/// What helps where the file can't be read.
fn unread(path: &Path, source: &io::Error) -> String {
    match access::remedy(path, Use::Read, source) {
        remedy if remedy.is_empty() => "; name another file by --config (or RELAY_CONFIG)".to_owned(),
        remedy => remedy,
    }
}

/// Each on a line of its own.
fn said(errors: &[ConfigError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n  ")
}

fn known() -> String {
    let names: Vec<&str> = KEYS.iter().map(|key| key.name).collect();
    format!("settings are: {}", names.join(", "))
}
