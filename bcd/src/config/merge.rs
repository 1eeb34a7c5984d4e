//! Stage two of the settings: the fragments laid over each other, each value with the source that had the last word.

use super::fragment::{Fragment, KEYS, Key, Origin, Value};
use crate::files;
use shared::access::Use;
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    path::{Path, PathBuf},
};

/// The most bytes of one file.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// The most files in the folder of fragments.
const MAX_FILES: usize = 256;

/// A value and who said it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The value.
    pub value: Value,
    /// Its source.
    pub origin: Origin,
}

/// All settings that were said, by key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged(BTreeMap<&'static str, Located>);

impl Merged {
    /// Lays the fragments over what is built in, the last one on top. A list replaces a list.
    #[must_use]
    pub fn of(fragments: Vec<Fragment>) -> Self {
        let mut merged = BTreeMap::new();
        for Fragment { origin, values } in [Fragment::defaults()].into_iter().chain(fragments) {
            for (key, value) in values {
                merged.insert(key.name, Located { value, origin: origin.clone() });
            }
        }
        Self(merged)
    }

    /// What was said for this key.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Located> {
        self.0.get(name)
    }

    /// One line for each setting that was said, as TOML; with their sources as comments, if asked.
    #[must_use]
    pub fn show(&self, with_origin: bool) -> String {
        let mut text = String::new();
        for Key { name, .. } in KEYS {
            let Some(Located { value, origin }) = self.get(name) else { continue };
            let value = value.to_string();
            let _ = write!(text, "{name} = {}", shared::token::without_tokens(&value));
            if with_origin {
                let _ = write!(text, "  # {origin}");
            }
            text.push('\n');
        }
        text
    }
}

/// Reads the files under `root` (`/` but in tests), in the order in which they count.
///
/// # Errors
/// Everything that is wrong with any of them. A file that is not there is not wrong.
pub fn read_files(root: &Path) -> Result<Vec<Fragment>, Vec<String>> {
    let (mut fragments, mut problems) = (Vec::new(), Vec::new());
    for (place, path) in files(root).map_err(|problem| vec![problem])?.into_iter().enumerate() {
        let text = match read_bounded(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                let remedy = files::remedy(&path, Use::Read, &error);
                problems.push(format!("{}: cannot be read: {error}{remedy}", path.display()));
                continue;
            }
        };
        match Fragment::from_toml(Origin::File(place, path), &text) {
            Ok(fragment) => fragments.push(fragment),
            Err(more) => problems.extend(more),
        }
    }
    if problems.is_empty() { Ok(fragments) } else { Err(problems) }
}

/// The files that may hold settings, the least important first; or why they can't be known.
fn files(root: &Path) -> Result<Vec<PathBuf>, String> {
    let mut list = vec![root.join("usr/lib/bcd/bcd.toml"), root.join("etc/bcd/bcd.toml")];
    let folder = root.join("etc/bcd/bcd.toml.d");
    let unread = |error: &io::Error| {
        let remedy = files::remedy(&folder.join("settings"), Use::Read, error);
        format!("{}: cannot be read: {error}{remedy}", folder.display())
    };
    let entries = match std::fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(list),
        Err(error) => return Err(unread(&error)),
    };
    let mut dropped_in = Vec::new();
    for entry in entries.take(MAX_FILES) {
        let path = entry.map_err(|error| unread(&error))?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            dropped_in.push(path);
        }
    }
    dropped_in.sort();
    list.extend(dropped_in);
    Ok(list)
}

fn read_bounded(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(files::read(path, MAX_FILE_BYTES)?);
    // Not the error itself, which holds the bytes.
    text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    #[test]
    fn later_sources_go_before_earlier_ones_and_are_remembered() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        write(
            root,
            "usr/lib/bcd/bcd.toml",
            "relay = 'https://a'\nlog = 'warn'\ntpm = 'off'\nstate_dir = '/a'",
        );
        write(root, "etc/bcd/bcd.toml", "relay = 'https://b'\nlog = 'info'\ntpm = 'auto'");
        write(root, "etc/bcd/bcd.toml.d/20-b.toml", "relay = 'https://d'\nlog = 'error'");
        write(root, "etc/bcd/bcd.toml.d/10-a.toml", "relay = 'https://c'");
        write(root, "etc/bcd/bcd.toml.d/30-c.toml.disabled", "relay = 'https://never'\nnonsense");
        let mut fragments = read_files(root).unwrap();
        fragments.push(
            Fragment::from_environment(|name| (name == "BCD_RELAY").then(|| "https://e".to_owned())).unwrap(),
        );
        let text = |value: &str| Value::Text(value.to_owned());
        let merged = Merged::of(fragments.clone());
        assert_eq!(
            merged.get("relay").unwrap(),
            &Located { value: text("https://e"), origin: Origin::Environment }
        );
        assert_eq!(merged.get("log").unwrap().value, text("error"));
        assert_eq!(merged.get("tpm").unwrap().value, text("auto"));
        assert_eq!(merged.get("state_dir").unwrap().value, text("/a"));
        fragments.push(Fragment::from_flags(vec![("relay", text("https://f"))]));
        let shown = Merged::of(fragments).show(true);
        assert!(shown.contains("relay = \"https://f\"  # flag\n"), "{shown}");
        assert!(shown.contains("/etc/bcd/bcd.toml.d/20-b.toml\n"), "{shown}");
        assert!(Merged::of(Vec::new()).show(true).contains("tpm = \"auto\"  # built in\n"));
    }

    #[test]
    fn all_files_are_read_before_any_is_complained_of() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/bcd/bcd.toml", "one = 1");
        write(root.path(), "etc/bcd/bcd.toml.d/x.toml", "two = 2");
        write(root.path(), "etc/bcd/bcd.toml.d/y.toml", &"#".repeat(70_000));
        let problems = read_files(root.path()).unwrap_err();
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert_eq!(read_files(&root.path().join("nowhere")).unwrap(), []);
    }

    #[test]
    fn what_is_no_file_of_settings_is_said_and_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "etc/bcd/bcd.toml.d/x.toml/y", "");
        nix::unistd::mkfifo(&root.path().join("etc/bcd/bcd.toml"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let problems = read_files(root.path()).unwrap_err();
        assert!(problems[0].ends_with("etc/bcd/bcd.toml: cannot be read: it is a FIFO, and must be a file"));
        assert!(
            problems[1].ends_with("x.toml: cannot be read: it is a folder, and must be a file"),
            "{problems:?}"
        );
    }
}
