//! Which relay is asked, by which credential, and whom the connection trusts: flags, then the environment. (Contexts will
//! come last, here.) Nothing is sent from here.
//!
//! A relay is named by its address or, on its own machine, by its folder; flags go before the environment, whichever of the
//! two they name. RELAY_URL is the setting `url` of a relay, the address that people reach it at: it is the one to ask where
//! nothing else is said. In the environment of a relay itself, which has a folder too, the folder counts: there an operator
//! means the relay that runs here, and its folder has the credential.

use crate::config::RelayUrl;
use shared::secret::Secret;
use std::{
    fs::File,
    io::{self, Read as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The longest file of a credential or an address, in bytes.
const MAX_TOKEN_BYTES: u64 = 16 * 1024;
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
}

/// A relay to ask.
pub(super) struct Target {
    /// Its address.
    pub(super) url: RelayUrl,
    /// The credential to show.
    pub(super) token: Secret,
    /// The only CA certificates to trust, PEM; the system's if absent.
    pub(super) ca_pem: Option<String>,
}

/// Why it isn't known whom to ask. Every text says what to do.
#[derive(Debug, thiserror::Error)]
pub(super) enum TargetError {
    /// No address.
    #[error(
        "find the relay: give --relay URL (or RELAY_RELAY), or --data-dir DIR of a relay on this machine (or RELAY_DATA_DIR)"
    )]
    NoRelay,
    /// The address is none.
    #[error("find the relay: its address {0}")]
    Url(#[from] crate::config::InvalidRelayUrl),
    /// A relay's folder doesn't say where it listens.
    #[error("find the relay: {} does not say where it listens; start the relay of this folder", .0.display())]
    Listen(PathBuf),
    /// No credential.
    #[error("find a credential: give --token-file FILE (or RELAY_TOKEN_FILE)")]
    NoToken,
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
        let (relay, data_dir) = match (self.relay, self.data_dir) {
            (None, None) => match (env("RELAY_RELAY"), path("RELAY_DATA_DIR")) {
                (None, None) => (env("RELAY_URL"), None),
                said => said,
            },
            said => said,
        };
        let token_file = self.token_file.or_else(|| path("RELAY_TOKEN_FILE"));
        Self { relay, token_file, ca_file: self.ca_file.or_else(|| path("RELAY_CA_FILE")), data_dir }
    }
}

impl Target {
    /// Finds the relay.
    ///
    /// # Errors
    /// It isn't known where it is or what to show it, or a file can't be read.
    pub(super) fn find(said: &Said) -> Result<Self, TargetError> {
        let data_dir = said.data_dir.as_deref();
        // A folder's files go with the folder's relay only: no other is ever shown its credential.
        let local = if said.relay.is_none() { data_dir } else { None };
        let url = match (&said.relay, local) {
            (Some(text), _) => text.parse()?,
            (None, Some(dir)) => listening(&dir.join("listen"))?,
            (None, None) => return Err(TargetError::NoRelay),
        };
        let of_folder = |name: &str| local.map(|dir| dir.join(name));
        let token_file = said.token_file.clone().or_else(|| of_folder("bootstrap/admin_editor_token"));
        let ca_file = said.ca_file.clone().or_else(|| of_folder("trust-bundle.pem"));
        let ca_pem = ca_file.map(|path| read(&path, MAX_CA_BYTES)).transpose()?;
        Ok(Self { url, token: token(&token_file.ok_or(TargetError::NoToken)?)?, ca_pem })
    }
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

fn token(path: &Path) -> Result<Secret, TargetError> {
    let text = Secret::new(read(path, MAX_TOKEN_BYTES)?);
    let line = text.expose().trim();
    let is_join_token = line.starts_with("bcjt_");
    if is_join_token || line.is_empty() || !line.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(TargetError::Token(path.to_owned()));
    }
    Ok(Secret::new(line.to_owned()))
}

fn read(path: &Path, max_bytes: u64) -> Result<String, TargetError> {
    let bounded = || {
        let mut text = String::new();
        File::open(path)?.take(max_bytes + 1).read_to_string(&mut text)?;
        if text.len() as u64 > max_bytes {
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is over {max_bytes} bytes")));
        }
        Ok(text)
    };
    bounded().map_err(|source| TargetError::Read { path: path.to_owned(), source })
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
