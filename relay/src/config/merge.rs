//! Stages one and two: what each source says, and what all of them together say. Nothing is judged here but
//! whether a key exists and its TOML type.

use super::{
    Sources,
    error::{ConfigError, Origin},
    keys::{Form, KEYS, Key},
};
use crate::access;
use shared::secret::Secret;
use std::{collections::BTreeMap, io, path::Path};

/// The file that is read if none is named; it may be absent.
pub const DEFAULT_FILE: &str = "/etc/relay/relay.toml";
/// The longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// What the sources say, the strongest last: file, environment, flags.
#[derive(Default)]
pub(super) struct Merged(BTreeMap<&'static str, (Secret, Origin)>);

impl Merged {
    /// Reads all sources.
    pub(super) fn read(sources: &Sources<'_>) -> Result<Self, ConfigError> {
        let mut merged = Self::default();
        if let Some((text, path)) = file_text(sources)? {
            merged.add_file(&text, &path)?;
        }
        for key in KEYS {
            let variable = key.env();
            if let Some(value) = (sources.env)(&variable) {
                merged.set(key, value, Origin::Env(variable));
            }
        }
        for key in KEYS {
            if let Some(value) = (sources.flags)(key) {
                merged.set(key, value, Origin::Flag(key.flag()));
            }
        }
        Ok(merged)
    }

    /// A setting's value and where it came from.
    pub(super) fn get(&self, key: &Key) -> Option<(&str, &Origin)> {
        self.0.get(key.name).map(|(value, origin)| (value.expose(), origin))
    }

    fn set(&mut self, key: &Key, value: String, origin: Origin) {
        self.0.insert(key.name, (Secret::new(value), origin));
    }

    fn add_file(&mut self, text: &str, path: &Path) -> Result<(), ConfigError> {
        let table: toml::Table = toml::from_str(text).map_err(|error| ConfigError::Syntax {
            path: path.to_owned(),
            line: line_of(text, &error),
            message: error.message().to_owned(),
        })?;
        let mut wrong = Vec::new();
        for (name, value) in table {
            self.add_value(&name, value, path, &mut wrong);
        }
        match wrong.pop() {
            None => Ok(()),
            Some(only) if wrong.is_empty() => Err(only),
            Some(last) => {
                wrong.push(last);
                Err(ConfigError::Several(wrong))
            }
        }
    }

    /// Takes a key and its value, or says what is wrong with them.
    fn add_value(&mut self, name: &str, value: toml::Value, path: &Path, wrong: &mut Vec<ConfigError>) {
        let unknown = || ConfigError::UnknownKey { path: path.to_owned(), key: name.to_owned() };
        if let Some(key) = KEYS.iter().find(|key| key.name == name) {
            match scalar(key, value) {
                Ok(text) => self.set(key, text, Origin::File(path.to_owned())),
                Err(expected) => {
                    wrong.push(ConfigError::Type { path: path.to_owned(), key: key.name, expected });
                }
            }
            return;
        }
        // A name with a dot was a table's member already, or a quoted key that looks like one.
        let is_table =
            KEYS.iter().any(|key| key.name.split_once('.').is_some_and(|(table, _)| table == name));
        let (true, toml::Value::Table(members)) = (is_table, value) else { return wrong.push(unknown()) };
        for (member, value) in members {
            self.add_value(&format!("{name}.{member}"), value, path, wrong);
        }
    }
}

fn scalar(key: &Key, value: toml::Value) -> Result<String, &'static str> {
    match (key.form, value) {
        (Form::Text, toml::Value::String(text)) => Ok(text),
        (Form::Number, toml::Value::Integer(number)) => Ok(number.to_string()),
        (Form::Words, toml::Value::Array(words)) => {
            let words: Option<Vec<&str>> = words.iter().map(toml::Value::as_str).collect();
            words.map(|words| words.join(",")).ok_or("an array of strings")
        }
        (Form::Words, _) => Err("an array of strings"),
        (Form::Text, _) => Err("a string"),
        (Form::Number, _) => Err("an integer"),
    }
}

/// The file's text and path. A named file must be there; the default one may be absent.
fn file_text(sources: &Sources<'_>) -> Result<Option<(String, std::path::PathBuf)>, ConfigError> {
    let named = sources.file.clone().or_else(|| (sources.env)("RELAY_CONFIG").map(Into::into));
    let path = named.clone().unwrap_or_else(|| sources.default_file.to_owned());
    match access::read_text(&path, MAX_FILE_BYTES) {
        Ok(text) => Ok(Some((text, path))),
        Err(error) if named.is_none() && error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(ConfigError::Read { path, source }),
    }
}

fn line_of(text: &str, error: &toml::de::Error) -> usize {
    let at = error.span().map_or(0, |span| span.start);
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}
