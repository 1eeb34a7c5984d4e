//! The contexts: relays that somebody works with, by name, and what is taken for granted at each. The file is
//! `~/.config/relay/config.toml` (XDG_CONFIG_HOME counts; RELAY_CONTEXTS names another); the credential of each context lies
//! in a file of its own beside it. Both are for their owner only and written whole.

use crate::{access, files};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
};

/// The longest file, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The longest name of a context, in characters.
const MAX_NAME_CHARS: usize = 64;

/// A context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    /// The relay's address.
    pub(super) relay: String,
    /// The only CA certificates to trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) ca_file: Option<PathBuf>,
    /// The tenant where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tenant: Option<String>,
    /// The project where none is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) project: Option<String>,
}

/// A context, its name, and where its credential is.
#[derive(Clone, Debug)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) context: Context,
    pub(super) token_file: PathBuf,
}

/// All contexts.
#[derive(Debug)]
pub(super) struct Contexts {
    path: PathBuf,
    kept: Kept,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    active: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

/// Why the contexts can't be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContextError {
    /// There is no place for them.
    #[error("find the contexts: HOME is not set; set it, or RELAY_CONTEXTS to a file")]
    NoHome,
    /// The file can't be read or written.
    #[error("{doing} {}: {source}", path.display())]
    File {
        /// `read` or `write`.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is not what was written.
    #[error("read the contexts in {}: {message}; correct the file, or move it away", path.display())]
    Form {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        message: String,
    },
    /// There is no such context.
    #[error(
        "there is no context {0}; relay context list shows all, relay login or relay context add makes one"
    )]
    Unknown(String),
    /// None is active.
    #[error("no context is active; relay context use NAME makes one so, relay login makes one")]
    NoneActive,
    /// The name is none.
    #[error("a context's name must be 1 to 64 letters, digits, -, _ or ., and begin with a letter or digit")]
    Name,
}

impl Contexts {
    /// Reads them; there are none where there is no file.
    ///
    /// # Errors
    /// The file can't be read, or is not what was written.
    pub(super) fn load(env: &dyn Fn(&str) -> Option<String>) -> Result<Self, ContextError> {
        let Some(path) = path(env) else {
            // Who has no home has no contexts; that is told to who asks for one.
            return Ok(Self { path: PathBuf::new(), kept: Kept::default() });
        };
        let text = match read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { path, kept: Kept::default() });
            }
            Err(source) => return Err(ContextError::File { doing: "read", path, source }),
        };
        match toml::from_str::<Kept>(&text) {
            Ok(kept) if kept.contexts.keys().all(|name| is_name(name)) => Ok(Self { path, kept }),
            Ok(_) => Err(ContextError::Form { path, message: ContextError::Name.to_string() }),
            Err(error) => Err(ContextError::Form { path, message: error.message().to_owned() }),
        }
    }

    /// Writes them.
    ///
    /// # Errors
    /// The file can't be written.
    pub(super) fn save(&self) -> Result<(), ContextError> {
        let failed = |source| ContextError::File { doing: "write", path: self.path.clone(), source };
        let text = toml::to_string(&self.kept).map_err(|error| failed(io::Error::other(error)))?;
        self.folder().and_then(|folder| files::directory(folder).map_err(failed))?;
        files::write(&self.path, text.as_bytes(), files::SECRET).map_err(failed)
    }

    /// The context of this name, or the active one; `None` if none is asked for and none is active.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn named(&self, name: Option<&str>) -> Result<Option<Named>, ContextError> {
        let Some(name) = name.or(self.kept.active.as_deref()) else { return Ok(None) };
        let context = self.kept.contexts.get(name).ok_or_else(|| ContextError::Unknown(name.to_owned()))?;
        let token_file = self.token_file(name)?;
        Ok(Some(Named { name: name.to_owned(), context: context.clone(), token_file }))
    }

    /// The active one's name.
    #[must_use]
    pub(super) fn active(&self) -> Option<&str> {
        self.kept.active.as_deref()
    }

    /// All of them, by name.
    pub(super) fn all(&self) -> impl Iterator<Item = (&String, &Context)> {
        self.kept.contexts.iter()
    }

    /// Puts one in, in place of one of the same name.
    ///
    /// # Errors
    /// The name is none.
    pub(super) fn put(&mut self, name: &str, context: Context) -> Result<(), ContextError> {
        if !is_name(name) {
            return Err(ContextError::Name);
        }
        self.kept.contexts.insert(name.to_owned(), context);
        Ok(())
    }

    /// Makes one the active one.
    ///
    /// # Errors
    /// There is none of that name.
    pub(super) fn activate(&mut self, name: &str) -> Result<(), ContextError> {
        self.named(Some(name))?;
        self.kept.active = Some(name.to_owned());
        Ok(())
    }

    /// Takes one out; whether it was the active one.
    pub(super) fn remove(&mut self, name: &str) -> bool {
        self.kept.contexts.remove(name);
        let was_active = self.kept.active.as_deref() == Some(name);
        if was_active {
            self.kept.active = None;
        }
        was_active
    }

    /// Writes a context's credential.
    ///
    /// # Errors
    /// The file can't be written, or the name is none.
    pub(super) fn put_token(&self, name: &str, bearer: &str) -> Result<(), ContextError> {
        let path = self.token_file(name)?;
        let failed = |source| ContextError::File { doing: "write", path: path.clone(), source };
        files::directory(path.parent().unwrap_or(Path::new("."))).map_err(failed)?;
        files::write(&path, format!("{bearer}\n").as_bytes(), files::SECRET).map_err(failed)
    }

    /// Where a context's credential is.
    ///
    /// # Errors
    /// There is no home, or the name is none.
    pub(super) fn token_file(&self, name: &str) -> Result<PathBuf, ContextError> {
        if !is_name(name) {
            return Err(ContextError::Name);
        }
        Ok(self.folder()?.join("tokens").join(name))
    }

    fn folder(&self) -> Result<&Path, ContextError> {
        self.path.parent().ok_or(ContextError::NoHome)
    }
}

/// Whether the text may be a context's name; it is a file's name too.
#[must_use]
pub(super) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    first && text.len() <= MAX_NAME_CHARS && text.bytes().all(plain)
}

fn path(env: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let folder = || {
        let xdg = env("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        xdg.or_else(|| Some(PathBuf::from(env("HOME")?).join(".config")))
    };
    // As an absolute path: a file without a folder would have none beside it.
    let told = env("RELAY_CONTEXTS").and_then(|text| std::path::absolute(text).ok());
    told.or_else(|| Some(folder()?.join("relay/config.toml")))
}

fn read(path: &Path) -> io::Result<String> {
    access::read_text(path, MAX_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt as _};

    fn context(relay: &str) -> Context {
        let project = Some("web \"1\"".to_owned());
        Context { relay: relay.to_owned(), ca_file: Some("/a b/ca.pem".into()), tenant: None, project }
    }

    #[test]
    fn contexts_are_kept_for_their_owner_only() {
        let home = tempfile::tempdir().unwrap();
        let env = |name: &str| (name == "HOME").then(|| home.path().display().to_string());
        let mut contexts = Contexts::load(&env).unwrap();
        assert!(contexts.named(None).unwrap().is_none());
        assert!(matches!(contexts.activate("a"), Err(ContextError::Unknown(_))));
        contexts.put("a", context("https://a")).unwrap();
        contexts.put("b", context("https://b")).unwrap();
        contexts.activate("b").unwrap();
        contexts.save().unwrap();
        contexts.put_token("b", "hush").unwrap();
        let again = Contexts::load(&env).unwrap();
        assert_eq!((again.active(), again.all().count()), (Some("b"), 2));
        let named = again.named(None).unwrap().unwrap();
        assert_eq!((named.name.as_str(), named.context), ("b", context("https://b")));
        assert_eq!(fs::read_to_string(&named.token_file).unwrap(), "hush\n");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let file = home.path().join(".config/relay/config.toml");
        assert_eq!(
            (mode(&file), mode(&named.token_file), mode(file.parent().unwrap())),
            (0o600, 0o600, 0o700)
        );
        assert!(!fs::read_to_string(&file).unwrap().contains("hush"));
    }

    #[test]
    fn a_broken_file_and_a_name_that_is_a_path_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("c.toml");
        let env = |name: &str| (name == "RELAY_CONTEXTS").then(|| file.display().to_string());
        for broken in
            ["x", "active = 1", "[contexts.a]\nrelay = \"r\"\nodd = 1", "[contexts.\"../x\"]\nrelay = \"r\""]
        {
            fs::write(&file, broken).unwrap();
            assert!(matches!(Contexts::load(&env), Err(ContextError::Form { .. })), "{broken}");
        }
        for bad in ["", ".", "..", "../x", "a/b", "-a", ".a", &"a".repeat(65)] {
            assert!(!is_name(bad), "{bad}");
        }
        assert!(is_name("prod-1.eu_x"));
    }

    #[test]
    fn who_has_no_home_has_no_contexts() {
        let contexts = Contexts::load(&|_| None).unwrap();
        assert!(contexts.named(None).unwrap().is_none());
        assert!(matches!(contexts.save(), Err(ContextError::NoHome)));
    }
}
