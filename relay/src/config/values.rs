//! The types of settings that need more than the standard library's: each is parsed once and right from then on.

use crate::ca::{InvalidTrustDomain, TrustDomain};
use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
    str::FromStr,
};

/// The address of a relay: `https://host[:port]`, nothing behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayUrl {
    /// Without brackets; lower case.
    host: String,
    port: u16,
}

/// The text is no relay's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be https://host or https://host:port, such as https://relay.example.org:8443")]
pub struct InvalidRelayUrl;

/// There is no trust domain to begin with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTrustDomain {
    /// The host is the address of nobody.
    #[error(
        "{0} names no relay, and the trust domain stays in every certificate for good; give the address that machines \
         use by url = \"https://HOST:PORT\" in /etc/relay/relay.toml (or --url https://HOST:PORT), or a name by trust_domain \
         (or --trust-domain)"
    )]
    Unspecified(String),
    /// The host's form.
    #[error(transparent)]
    Invalid(#[from] InvalidTrustDomain),
}

/// The port of https.
const HTTPS_PORT: u16 = 443;
/// The longest DNS name, in bytes.
const MAX_HOST_BYTES: usize = 253;

impl FromStr for RelayUrl {
    type Err = InvalidRelayUrl;
    fn from_str(text: &str) -> Result<Self, InvalidRelayUrl> {
        let authority = text.strip_prefix("https://").ok_or(InvalidRelayUrl)?;
        let authority = authority.strip_suffix('/').unwrap_or(authority);
        let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, rest)) => (host.parse::<Ipv6Addr>().map_err(|_| InvalidRelayUrl)?.to_string(), rest),
            None => {
                let end = authority.find(':').unwrap_or(authority.len());
                let (host, rest) = authority.split_at(end);
                (host_name(host).ok_or(InvalidRelayUrl)?, rest)
            }
        };
        Ok(Self { host, port: port_after(port).ok_or(InvalidRelayUrl)? })
    }
}

/// A DNS name or an IPv4 address, in lower case.
fn host_name(text: &str) -> Option<String> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let fits = (1..=MAX_HOST_BYTES).contains(&text.len()) && text.bytes().all(allowed);
    fits.then(|| text.to_ascii_lowercase())
}

/// The port of what follows a host: nothing, or `:8443`.
fn port_after(text: &str) -> Option<u16> {
    if text.is_empty() {
        return Some(HTTPS_PORT);
    }
    let digits = text.strip_prefix(':').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|port| *port > 0)
}

impl From<SocketAddr> for RelayUrl {
    fn from(address: SocketAddr) -> Self {
        Self { host: address.ip().to_string(), port: address.port() }
    }
}

impl RelayUrl {
    /// The host, a name or an IP address without brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port; 443 where the address names none.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The trust domain of a relay that is told none: the host, `-` for the colons of an IPv6 address.
    ///
    /// # Errors
    /// The host is no trust domain, or the address of nobody, so that one must be set.
    pub fn trust_domain(&self) -> Result<TrustDomain, NoTrustDomain> {
        let names_nobody = self.host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_unspecified());
        if names_nobody {
            return Err(NoTrustDomain::Unspecified(self.host.clone()));
        }
        Ok(self.host.replace(':', "-").parse()?)
    }
}

impl fmt::Display for RelayUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (open, close) = if self.host.contains(':') { ("[", "]") } else { ("", "") };
        write!(out, "https://{open}{}{close}", self.host)?;
        if self.port == HTTPS_PORT { Ok(()) } else { write!(out, ":{}", self.port) }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Pretty on a terminal, else JSON.
    #[default]
    Auto,
    /// One JSON object a line.
    Json,
    /// For people.
    Pretty,
}

/// The text is none of the formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be auto, json or pretty")]
pub struct InvalidLogFormat;

impl FromStr for LogFormat {
    type Err = InvalidLogFormat;
    fn from_str(text: &str) -> Result<Self, InvalidLogFormat> {
        match text {
            "auto" => Ok(Self::Auto),
            "json" => Ok(Self::Json),
            "pretty" => Ok(Self::Pretty),
            _ => Err(InvalidLogFormat),
        }
    }
}
