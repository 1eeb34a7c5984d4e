//! Settings in three stages: what each source says ([`fragment`]), laid over each other ([`merge`]), parsed once into
//! [`Settings`] that cannot be wrong.
//!
//! Order, the last one wins: `/usr/lib/bcd/bcd.toml`, `/etc/bcd/bcd.toml`, `/etc/bcd/bcd.toml.d/*.toml` by name,
//! `BCD_*`, flags. The join token is no setting; [`crate::token`] reads it.

pub mod fragment;
pub mod merge;

use crate::{identity::Places, tpm::Tcti};
use fragment::{Fragment, Origin, Value};
use merge::{Located, Merged};
use rustls::pki_types::ServerName;
use shared::token::looks_like_token;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
};
use tracing::level_filters::LevelFilter;

/// The most pins; two are enough to rotate a CA.
const MAX_PINS: usize = 16;
/// The longest path of a UNIX socket, in bytes (unix(7)).
const MAX_SOCKET_BYTES: usize = 107;

/// The settings, valid.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The relay; only joining, renewing and reporting need one.
    pub relay: Option<Endpoint>,
    /// What the relay is recognised by; `None` means that bcd talks to nobody.
    pub trust: Option<TrustSettings>,
    /// Where the join token is read from, beside the other places.
    pub token_file: Option<TokenFile>,
    /// Where state, key and certificate are.
    pub state_dir: PathBuf,
    /// Where the identity is read from.
    pub places: Places,
    /// Whether the key must be in a TPM.
    pub tpm: TpmMode,
    /// How to reach the TPM.
    pub tcti: Tcti,
    /// The status socket; `None` if the state directory's path is too long for one.
    pub socket: Option<PathBuf>,
    /// A loopback address that serves the same.
    pub status_listen: Option<SocketAddr>,
    /// What is logged.
    pub log: LevelFilter,
    /// The node's name in its cluster.
    pub node_name: Option<String>,
    /// What the daemon does when it is over.
    pub when_final: WhenFinal,
}

/// Where the relay is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The name that its certificate must have.
    pub server_name: ServerName<'static>,
    /// Host as it is looked up.
    pub host: String,
    /// Port.
    pub port: u16,
}

impl Endpoint {
    /// The value of the Host header.
    #[must_use]
    pub fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        const FORM: &str = "must be https://HOST or https://HOST:PORT, with nothing behind it";
        let uri: http::Uri = text.parse().map_err(|_| FORM)?;
        let authority = uri.authority().ok_or(FORM)?;
        let plain = uri.path() == "/" && uri.query().is_none() && !authority.as_str().contains('@');
        if uri.scheme_str() != Some("https") || !plain {
            return Err(FORM);
        }
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let server_name = ServerName::try_from(host.clone()).map_err(|_| FORM)?;
        let written = authority.as_str().rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let port = match authority.port_u16() {
            Some(port) if port > 0 => port,
            None if !written => 443,
            _ => return Err(FORM),
        };
        Ok(Self { server_name, host, port })
    }
}

/// What the relay is recognised by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TrustSettings {
    /// SHA-256 of the SubjectPublicKeyInfo of the CA, any of these.
    Pins(Vec<[u8; 32]>),
    /// The roots in this PEM file.
    CaFile(PathBuf),
    /// The roots that the system trusts.
    SystemRoots,
}

/// Where a token is read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenFile {
    /// Standard input, once.
    StandardInput,
    /// A file, at each attempt.
    Path(PathBuf),
}

/// What is wanted of a TPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TpmMode {
    /// Use one if there is one.
    Auto,
    /// Nothing goes without.
    Required,
    /// Leave it alone.
    Off,
}

/// What the daemon does when the relay has refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFinal {
    /// Ends with the code that says why: its service manager knows which not to start it again after.
    Exit,
    /// Stays, not ready, says why to whoever asks, and looks for another token: where whoever starts it knows no codes, as in
    /// Kubernetes.
    Wait,
}

/// Everything that is wrong with the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the settings are not valid:\n  {}", .0.join("\n  "))]
pub struct InvalidSettings(pub Vec<String>);

/// Stages one and two over all sources.
///
/// # Errors
/// Everything that is wrong with any of them.
pub fn read(
    root: &Path,
    variable: impl Fn(&str) -> Option<String>,
    flags: Fragment,
) -> Result<Merged, InvalidSettings> {
    let (files, environment) = (merge::read_files(root), Fragment::from_environment(variable));
    match (files, environment) {
        (Ok(mut fragments), Ok(environment)) => {
            fragments.extend([environment, flags]);
            Ok(Merged::of(fragments))
        }
        (files, environment) => {
            let problems = files.err().into_iter().flatten().chain(environment.err().into_iter().flatten());
            Err(InvalidSettings(problems.collect()))
        }
    }
}

impl Settings {
    /// Stage three.
    ///
    /// # Errors
    /// Every setting that is wrong, with its source and the rule.
    pub fn parse(merged: &Merged) -> Result<Self, InvalidSettings> {
        let mut parser = Parser { merged, problems: Vec::new() };
        let state_dir = parser.path("state_dir").unwrap_or_default();
        let settings = Self {
            relay: parser.with("relay", Endpoint::parse),
            trust: parser.trust(),
            token_file: parser.text("token_file").map(|text| match text.as_str() {
                "-" => TokenFile::StandardInput,
                path => TokenFile::Path(PathBuf::from(path)),
            }),
            places: Places {
                dmi_dir: parser.path("dmi_dir"),
                net_dir: parser.path("net_dir"),
                credentials: None,
            },
            tpm: parser.with("tpm", parse_tpm).unwrap_or(TpmMode::Auto),
            tcti: parser.with("tcti", Tcti::parse).unwrap_or_default(),
            socket: parser.socket(&state_dir),
            status_listen: parser.with("status_listen", parse_loopback),
            log: parser.with("log", parse_log).unwrap_or(LevelFilter::INFO),
            node_name: parser.with("node_name", parse_node_name),
            when_final: parser.with("when_final", parse_when_final).unwrap_or(WhenFinal::Exit),
            state_dir,
        };
        if parser.problems.is_empty() { Ok(settings) } else { Err(InvalidSettings(parser.problems)) }
    }
}

/// Reads values out of the merged settings and keeps what is wrong with them.
struct Parser<'a> {
    merged: &'a Merged,
    problems: Vec<String>,
}

impl Parser<'_> {
    fn text(&mut self, name: &str) -> Option<String> {
        self.with(name, |text| Ok(text.to_owned()))
    }

    fn path(&mut self, name: &str) -> Option<PathBuf> {
        self.text(name).map(PathBuf::from)
    }

    /// A text by its rule.
    fn with<T>(&mut self, name: &str, rule: impl Fn(&str) -> Result<T, &'static str>) -> Option<T> {
        let Located { value, origin } = self.merged.get(name)?;
        let Value::Text(text) = value else { return None };
        let parsed = match text.as_str() {
            "" => Err("must not be empty"),
            text if looks_like_token(text) => Err(
                "holds what looks like a token (not shown here): a token goes into a file, and the file's name here",
            ),
            text => rule(text),
        };
        parsed.map_err(|problem| self.complain(name, origin, problem)).ok()
    }

    fn complain(&mut self, name: &str, origin: &Origin, problem: &str) {
        self.problems.push(format!("{origin}: {} {problem}", origin.spell(name)));
    }

    /// The kind of trust that was said last. Two kinds from the same source contradict each other.
    fn trust(&mut self) -> Option<TrustSettings> {
        let said = |name: &'static str| self.merged.get(name).map(|located| (located.origin.clone(), name));
        let wants_roots = self.merged.get("system_roots").is_some_and(|l| l.value == Value::Flag(true));
        let mut kinds: Vec<_> =
            [said("ca_pins"), said("ca_file"), said("system_roots").filter(|_| wants_roots)]
                .into_iter()
                .flatten()
                .collect();
        kinds.sort();
        let (origin, name) = kinds.pop()?;
        if let Some((_, other)) = kinds.pop().filter(|(other, _)| *other == origin) {
            let problem = format!("contradicts {}: give one of them", origin.spell(other));
            self.complain(name, &origin, &problem);
            return None;
        }
        match name {
            "ca_pins" => self.pins(),
            "ca_file" => self.path("ca_file").map(TrustSettings::CaFile),
            _ => Some(TrustSettings::SystemRoots),
        }
    }

    fn pins(&mut self) -> Option<TrustSettings> {
        let Located { value, origin } = self.merged.get("ca_pins")?;
        let Value::List(list) = value else { return None };
        let pins: Option<Vec<[u8; 32]>> = list.iter().map(|text| parse_pin(text)).collect();
        match pins {
            Some(pins) if !pins.is_empty() && pins.len() <= MAX_PINS => Some(TrustSettings::Pins(pins)),
            _ => {
                let problem =
                    "must be 1 to 16 of sha256:<64 hexadecimal digits>, as `relay ca pin` prints them";
                self.complain("ca_pins", origin, problem);
                None
            }
        }
    }

    fn socket(&mut self, state_dir: &Path) -> Option<PathBuf> {
        let fits = |path: &Path| path.as_os_str().len() <= MAX_SOCKET_BYTES;
        match self.merged.get("socket").map(|located| located.origin.clone()) {
            None => Some(state_dir.join("bcd.sock")).filter(|path| fits(path)),
            Some(origin) => {
                let path = self.path("socket")?;
                if !fits(&path) {
                    self.complain("socket", &origin, "must be a path of at most 107 bytes");
                }
                Some(path)
            }
        }
    }
}

fn parse_pin(text: &str) -> Option<[u8; 32]> {
    shared::hex::decode(&text.trim().strip_prefix("sha256:")?.to_lowercase())
}

fn parse_tpm(text: &str) -> Result<TpmMode, &'static str> {
    match text {
        "auto" => Ok(TpmMode::Auto),
        "required" => Ok(TpmMode::Required),
        "off" => Ok(TpmMode::Off),
        _ => Err("must be auto, required or off"),
    }
}

fn parse_loopback(text: &str) -> Result<SocketAddr, &'static str> {
    let address: Option<SocketAddr> = text.parse().ok();
    address
        .filter(|address| address.ip().is_loopback())
        .ok_or("must be a loopback address and a port such as 127.0.0.1:9465: it has no authentication")
}

fn parse_log(text: &str) -> Result<LevelFilter, &'static str> {
    text.parse().map_err(|_| "must be off, error, warn, info, debug or trace")
}

fn parse_when_final(text: &str) -> Result<WhenFinal, &'static str> {
    match text {
        "exit" => Ok(WhenFinal::Exit),
        "wait" => Ok(WhenFinal::Wait),
        _ => Err("must be exit or wait"),
    }
}

fn parse_node_name(text: &str) -> Result<String, &'static str> {
    let fits = text.len() <= 253 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    fits.then(|| text.to_owned()).ok_or("must be a name of at most 253 letters, digits, dots and dashes")
}

#[cfg(test)]
mod tests;
