//! Which relay is asked, by which credential, and whom the connection trusts: flags, then the environment, then the
//! active context. Nothing is sent from here.
//!
//! A relay is named by its address or, on its own machine, by its folder; flags go before the environment, whichever of the
//! two they name. RELAY_URL is the setting `url` of a relay, the address that people reach it at: it is the one to ask where
//! nothing else is said. In the environment of a relay itself, which has a folder too, the folder counts: there an operator
//! means the relay that runs here, and its folder has the credential.

use super::{
    World,
    contexts::{ContextError, Contexts, Named},
};
use crate::{access, config::RelayUrl};
use shared::secret::Secret;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The longest file of a credential or an address, in bytes.
const MAX_TOKEN_BYTES: u64 = 16 * 1024;
/// The tenant of a caller who names none.
const DEFAULT_TENANT: &str = "provider";
/// The longest file of CA certificates, in bytes.
const MAX_CA_BYTES: u64 = 1 << 20;

/// What was said about the relay, by flags or the environment.
#[derive(Clone, Debug, Default)]
pub(super) struct Said {
    /// Its address.
    pub(super) relay: Option<String>,
    /// The file of the credential.
    pub(super) token_file: Option<PathBuf>,
    /// The file of the CA.
    pub(super) ca_file: Option<PathBuf>,
    /// The folder of a relay on this machine.
    pub(super) data_dir: Option<PathBuf>,
    /// The name of the context.
    pub(super) context: Option<String>,
    /// The context that the address is from.
    pub(super) of: Option<Named>,
}

/// A relay to ask.
pub(super) struct Target {
    /// Its address.
    pub(super) url: RelayUrl,
    /// The credential to show.
    pub(super) token: Secret,
    /// The only CA certificates to trust, PEM; the system's if absent.
    pub(super) ca_pem: Option<String>,
    /// The file that the context keeps the credential in, where it is the context's.
    pub(super) kept_in: Option<PathBuf>,
}

/// Why it isn't known whom to ask. Every text says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    /// No address.
    #[error(
        "find the relay: give --relay URL (or RELAY_RELAY), or --data-dir DIR of a relay on this machine (or \
         RELAY_DATA_DIR), or log in to one: relay login --relay URL"
    )]
    NoRelay,
    /// The address is none.
    #[error("find the relay: its address {0}")]
    Url(#[from] crate::config::InvalidRelayUrl),
    /// A relay's folder doesn't say where it listens.
    #[error("find the relay: {} does not say where it listens; start the relay of this folder", .0.display())]
    Listen(PathBuf),
    /// No credential.
    #[error("find a credential: give --token-file FILE (or RELAY_TOKEN_FILE), or log in: relay login")]
    NoToken,
    /// A context without its credential.
    #[error("find a credential: nobody is logged in to the context {0}; relay login --context {0}")]
    LoggedOut(String),
    /// The contexts can't be used.
    #[error(transparent)]
    Contexts(#[from] ContextError),
    /// The file is no credential.
    #[error(
        "find a credential: {} must hold an API credential in one line of visible characters; a join token is for bcd \
         alone", .0.display()
    )]
    Token(PathBuf),
    /// A file can't be read.
    #[error("read {}: {source}{}", path.display(), remedy(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

/// What helps a user who may not read a relay's folder.
fn remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; ask as root or as the relay's user, or give --relay, --token-file and --ca-file"
        }
        _ => "",
    }
}

impl Said {
    /// What the environment says, where this says nothing.
    #[must_use]
    pub(super) fn or_env(self, env: &dyn Fn(&str) -> Option<String>) -> Self {
        let path = |name| env(name).map(PathBuf::from);
        // The credential and CA of the environment are for the relay of the environment: a context that was named has its
        // own.
        if self.context.is_some() {
            return self;
        }
        let (relay, data_dir, context) = match (self.relay, self.data_dir) {
            (None, None) => match (env("RELAY_RELAY"), path("RELAY_DATA_DIR"), env("RELAY_CONTEXT")) {
                (None, None, None) => (env("RELAY_URL"), None, None),
                (None, None, context) => (None, None, context),
                (relay, data_dir, _) => (relay, data_dir, None),
            },
            (relay, data_dir) => (relay, data_dir, None),
        };
        let token_file = self.token_file.or_else(|| path("RELAY_TOKEN_FILE"));
        let ca_file = self.ca_file.or_else(|| path("RELAY_CA_FILE"));
        Self { relay, token_file, ca_file, data_dir, context, of: self.of }
    }

    /// What the context says, where this names no relay: the one that was named, or the active one.
    ///
    /// # Errors
    /// The contexts can't be read, or there is none of that name.
    pub(super) fn or_context(mut self, world: &World<'_>) -> Result<Self, TargetError> {
        if self.relay.is_some() || self.data_dir.is_some() {
            return Ok(self);
        }
        let named = Contexts::load(world.env)?.named(self.context.as_deref())?;
        if let Some(named) = named {
            self.relay = Some(named.context.relay.clone());
            self.ca_file = self.ca_file.or_else(|| named.context.ca_file.clone());
            self.of = Some(named);
        }
        Ok(self)
    }

    /// The tenant where none is given by a flag.
    #[must_use]
    pub(super) fn tenant(&self, world: &World<'_>) -> String {
        let of = self.of.as_ref().and_then(|named| named.context.tenant.clone());
        (world.env)("RELAY_TENANT").or(of).unwrap_or_else(|| DEFAULT_TENANT.to_owned())
    }

    /// The project where none is given by a flag.
    #[must_use]
    pub(super) fn project(&self, world: &World<'_>) -> Option<String> {
        (world.env)("RELAY_PROJECT").or_else(|| {
            let context = &self.of.as_ref()?.context;
            // A project is one of its tenant.
            let same = context.tenant.as_ref().is_none_or(|tenant| *tenant == self.tenant(world));
            context.project.clone().filter(|_| same)
        })
    }
}

impl Target {
    /// Finds the relay.
    ///
    /// # Errors
    /// It isn't known where it is or what to show it, or a file can't be read.
    pub(super) fn find(said: &Said) -> Result<Self, TargetError> {
        let (url, ca_pem) = Self::address(said)?;
        let kept = said.of.as_ref().filter(|_| said.token_file.is_none());
        if let Some(named) = kept {
            let file = named.token_file.clone();
            let token = match token(&file) {
                Err(TargetError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    return Err(TargetError::LoggedOut(named.name.clone()));
                }
                other => other?,
            };
            return Ok(Self { url, token, ca_pem, kept_in: Some(file) });
        }
        let of_folder = local(said).map(|dir| dir.join("bootstrap/admin_editor_token"));
        let file = said.token_file.clone().or(of_folder).ok_or(TargetError::NoToken)?;
        Ok(Self { url, token: token(&file)?, ca_pem, kept_in: None })
    }

    /// Where the relay is, and the CA certificates to trust.
    ///
    /// # Errors
    /// It isn't known where it is, or a file can't be read.
    pub(super) fn address(said: &Said) -> Result<(RelayUrl, Option<String>), TargetError> {
        let url = match (&said.relay, local(said)) {
            (Some(text), _) => text.parse()?,
            (None, Some(dir)) => listening(&dir.join("listen"))?,
            (None, None) => return Err(TargetError::NoRelay),
        };
        let ca_pem = ca_file(said).map(|path| read(&path, MAX_CA_BYTES)).transpose()?;
        Ok((url, ca_pem))
    }
}

/// The file of the CA certificates to trust.
pub(super) fn ca_file(said: &Said) -> Option<PathBuf> {
    said.ca_file.clone().or_else(|| local(said).map(|dir| dir.join("trust-bundle.pem")))
}

/// A folder's files go with the folder's relay only: no other is ever shown its credential.
fn local(said: &Said) -> Option<&Path> {
    said.data_dir.as_deref().filter(|_| said.relay.is_none())
}

/// The address in a relay's `listen` file. One that listens everywhere is met on the loopback.
pub(super) fn listening(path: &Path) -> Result<RelayUrl, TargetError> {
    let nowhere = || TargetError::Listen(path.to_owned());
    let text = match read(path, MAX_TOKEN_BYTES) {
        Err(TargetError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            return Err(nowhere());
        }
        other => other?,
    };
    let address: SocketAddr = text.trim().parse().map_err(|_| nowhere())?;
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    Ok(SocketAddr::new(ip, address.port()).into())
}

/// The credential in a file.
pub(super) fn token(path: &Path) -> Result<Secret, TargetError> {
    let text = Secret::new(read(path, MAX_TOKEN_BYTES)?);
    let line = text.expose().trim();
    let is_join_token = line.starts_with("bcjt_");
    if is_join_token || line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TargetError::Token(path.to_owned()));
    }
    Ok(Secret::new(line.to_owned()))
}

fn read(path: &Path, max_bytes: u64) -> Result<String, TargetError> {
    access::read_given(path, max_bytes).map_err(|source| TargetError::Read { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("bootstrap")).unwrap();
        fs::write(dir.path().join("listen"), "0.0.0.0:4711\n").unwrap();
        fs::write(dir.path().join("bootstrap/admin_editor_token"), "local-token\n").unwrap();
        fs::write(dir.path().join("trust-bundle.pem"), "PEM").unwrap();
        dir
    }

    #[test]
    fn a_folder_of_a_relay_says_it_all() {
        let dir = folder();
        let said = Said { data_dir: Some(dir.path().to_owned()), ..Said::default() };
        let target = Target::find(&said).map_err(|error| error.to_string()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(target.url.to_string(), "https://127.0.0.1:4711");
        assert_eq!(target.token.expose(), "local-token");
        assert_eq!(target.ca_pem.as_deref(), Some("PEM"));
    }

    #[test]
    fn another_relay_is_never_shown_the_folders_credential() {
        let dir = folder();
        let said = Said {
            data_dir: Some(dir.path().to_owned()),
            relay: Some("https://other.example".into()),
            ..Said::default()
        };
        assert!(matches!(Target::find(&said), Err(TargetError::NoToken)));
        let token_file = Some(dir.path().join("bootstrap/admin_editor_token"));
        let target = Target::find(&Said { token_file, ..said }).unwrap_or_else(|error| panic!("{error}"));
        assert!(target.ca_pem.is_none(), "nor is its CA trusted to name that one");
    }

    #[test]
    fn flags_win_over_the_environment() {
        let env = |name: &str| Some(format!("env-{name}"));
        let said = Said { relay: Some("flag".into()), ..Said::default() }.or_env(&env);
        assert_eq!(said.relay.as_deref(), Some("flag"));
        assert_eq!(said.token_file.as_deref(), Some(Path::new("env-RELAY_TOKEN_FILE")));
    }

    #[test]
    fn a_folder_goes_before_the_url_that_its_relay_is_told() {
        let of = |names: &'static [&'static str]| {
            move |name: &str| names.contains(&name).then(|| format!("env-{name}"))
        };
        let found = |said: Said, names| {
            let said = said.or_env(&of(names));
            (said.relay, said.data_dir.map(|dir| dir.display().to_string()))
        };
        let text = |text: &str| Some(text.to_owned());
        let nothing = Said::default;
        assert_eq!(found(nothing(), &["RELAY_URL"]), (text("env-RELAY_URL"), None));
        assert_eq!(found(nothing(), &["RELAY_URL", "RELAY_DATA_DIR"]), (None, text("env-RELAY_DATA_DIR")));
        assert_eq!(found(nothing(), &["RELAY_URL", "RELAY_RELAY"]), (text("env-RELAY_RELAY"), None));
        let flag = Said { data_dir: Some("flag".into()), ..Said::default() };
        assert_eq!(found(flag, &["RELAY_URL", "RELAY_RELAY"]), (None, text("flag")));
    }

    #[test]
    fn odd_files_are_refused_without_their_text() {
        let dir = folder();
        let said = Said { data_dir: Some(dir.path().to_owned()), ..Said::default() };
        for text in ["", "\n", "two words", "two\nlines", "b\u{e9}", "bcjt_hush.hush"] {
            fs::write(dir.path().join("bootstrap/admin_editor_token"), text).unwrap();
            assert!(matches!(Target::find(&said), Err(TargetError::Token(_))), "{text:?}");
        }
        fs::write(dir.path().join("listen"), "everywhere").unwrap();
        assert!(matches!(Target::find(&said), Err(TargetError::Listen(_))));
        fs::remove_file(dir.path().join("listen")).unwrap();
        assert!(matches!(Target::find(&said), Err(TargetError::Listen(_))));
        assert!(matches!(Target::find(&Said::default()), Err(TargetError::NoRelay)));
        let bad = Said { relay: Some("http://x".into()), ..Said::default() };
        assert!(matches!(Target::find(&bad), Err(TargetError::Url(_))));
    }
}
