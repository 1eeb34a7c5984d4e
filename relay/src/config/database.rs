//! The address of the store, as people write it. What it leads to the store alone knows.

use shared::secret::Secret;
use std::{fmt, path::Path, str::FromStr};

/// One line for people.
pub(super) const HELP: &str = "sqlite:///path/to/file or postgres://user@host/database; one with a password belongs into the file or the environment [default: sqlite://DATA_DIR/relay.db]";

/// The address of the store. It may hold a password: no `Display`, and its `Debug` shows neither that nor the user.
#[derive(Clone)]
pub struct DatabaseUrl(Secret);

/// The text is no store's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be sqlite:///path/to/file or postgres://user@host/database")]
pub struct InvalidDatabaseUrl;

/// What SQLite's addresses begin with; the path follows to the letter.
const SQLITE: &str = "sqlite://";

impl FromStr for DatabaseUrl {
    type Err = InvalidDatabaseUrl;
    fn from_str(text: &str) -> Result<Self, InvalidDatabaseUrl> {
        let rest =
            [SQLITE, "postgres://", "postgresql://"].iter().find_map(|scheme| text.strip_prefix(scheme));
        match rest {
            Some(rest) if !rest.is_empty() => Ok(Self(Secret::new(text.to_owned()))),
            _ => Err(InvalidDatabaseUrl),
        }
    }
}

impl DatabaseUrl {
    /// SQLite in this folder.
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self::of_file(&folder.join("relay.db"))
    }

    /// SQLite in this file.
    #[must_use]
    pub fn of_file(file: &Path) -> Self {
        Self(Secret::new(format!("{SQLITE}{}", file.display())))
    }

    /// The whole address, for the store alone.
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose()
    }

    /// The file of the embedded database; `None` for a server.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.expose().strip_prefix(SQLITE).map(Path::new)
    }

    /// Whether a password is in it: behind the user, or among the options.
    #[must_use]
    pub fn has_password(&self) -> bool {
        if self.file().is_some() {
            return false;
        }
        let rest = self.expose().split_once("://").map_or("", |(_, rest)| rest);
        let (user, rest) = rest.rsplit_once('@').unwrap_or(("", rest));
        let options = rest.split_once('?').map_or("", |(_, options)| options);
        user.contains(':') || options.split('&').any(|option| option.starts_with("password="))
    }

    /// The address for people: a file's path, or the host and database without user, password and options.
    #[must_use]
    pub fn redacted(&self) -> String {
        let text = self.expose();
        if self.file().is_some() {
            return text.to_owned();
        }
        let (scheme, rest) = text.split_once("://").unwrap_or(("", text));
        let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
        let rest = rest.split(['?', '#']).next().unwrap_or_default();
        format!("{scheme}://{rest}")
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DatabaseUrl({})", self.redacted())
    }
}
