//! An address that somebody named: parsed once, by the rules that browsers read addresses by, so that no odd spelling of a
//! host (`0x7f.1`, `[::ffff:127.0.0.1]`) is taken for a name.

use reqwest::Url;
use std::{fmt, net::IpAddr, str::FromStr};

/// The longest address, in bytes.
pub const MAX_TARGET_BYTES: usize = 1024;

/// `https://host[:port]/path`, nobody's name or password in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    url: Url,
    host: Host,
    port: u16,
}

/// Where a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// At the addresses of this name.
    Name(String),
    /// There.
    Address(IpAddr),
}

/// The text is no target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be https://host[:port]/path, at most {MAX_TARGET_BYTES} bytes, without a user's name, a password or a #fragment"
)]
pub struct InvalidTarget;

impl FromStr for Target {
    type Err = InvalidTarget;
    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        if text.len() > MAX_TARGET_BYTES {
            return Err(InvalidTarget);
        }
        let url = Url::parse(text).map_err(|_| InvalidTarget)?;
        let nobodys = url.username().is_empty() && url.password().is_none();
        if url.scheme() != "https" || !nobodys || url.fragment().is_some() {
            return Err(InvalidTarget);
        }
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or(InvalidTarget)?;
        let port = url.port_or_known_default().filter(|port| *port > 0).ok_or(InvalidTarget)?;
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let host = bare.parse().map_or_else(|_| Host::Name(host.to_owned()), Host::Address);
        Ok(Self { url, host, port })
    }
}

impl Target {
    /// The address.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Where it is.
    #[must_use]
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port; 443 where it names none.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for Target {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_spellings_of_an_address_are_that_address() {
        for (text, host) in [
            ("https://127.0.0.1/x", "127.0.0.1"),
            ("https://127.0.0.1./x", "127.0.0.1"),
            ("https://0x7f.1/x", "127.0.0.1"),
            ("https://0x7f000001", "127.0.0.1"),
            ("https://2130706433/", "127.0.0.1"),
            ("https://0177.0.0.1/", "127.0.0.1"),
            ("https://127.1:8443/", "127.0.0.1"),
            ("https://0/", "0.0.0.0"),
            ("https://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
            ("https://[::ffff:7f00:1]/", "::ffff:127.0.0.1"),
            ("https://[::1]:1/", "::1"),
            ("https://１２７.0.0.1/", "127.0.0.1"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(target.host(), &Host::Address(host.parse().unwrap()), "{text}");
        }
        for (text, name) in [
            ("https://hooks.example.org/a?b=c", "hooks.example.org"),
            ("https://HOOKS.example.org", "hooks.example.org"),
            ("https://localhost./", "localhost."),
            ("https://127.0.0.1.nip.example/", "127.0.0.1.nip.example"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.host(), target.port()), (&Host::Name(name.to_owned()), 443), "{text}");
        }
    }

    #[test]
    fn what_is_no_https_or_somebodys_is_refused() {
        let long = format!("https://a.example/{}", "a".repeat(MAX_TARGET_BYTES));
        for bad in [
            "",
            "hooks.example.org",
            "http://hooks.example.org",
            "ftp://hooks.example.org",
            "file:///etc/passwd",
            "https://",
            "https:///",
            "https://u@hooks.example.org",
            "https://u:p@hooks.example.org",
            "https://:p@hooks.example.org",
            "https://hooks.example.org/#x",
            "https://hooks.example.org:0",
            "https://hooks.example.org:65536",
            "https://1.2.3.4.5",
            "https://256.1.1.1",
            "https://[::1",
            "https://a b/",
            &long,
        ] {
            assert_eq!(bad.parse::<Target>(), Err(InvalidTarget), "{bad}");
        }
    }
}
