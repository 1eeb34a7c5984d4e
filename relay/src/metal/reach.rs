//! How a BMC is reached, as somebody asked for it: judged, and laid over how it was reached before. Pure.
//!
//! Another address, protocol or way to judge the BMC's certificate drops the credentials that were there, and its pin: they were
//! given for the one before.

use super::facts::{Credentials, Reach, TlsTrust};
use ipnet::IpNet;
use shared::{
    api::metal::{BmcAccess, BmcProtocol},
    bounded::Int,
    problem::{FieldError, Problem},
};
use std::{fmt, net::IpAddr};

/// The longest PEM of CAs, in bytes.
pub const MAX_CA_BYTES: usize = 64 << 10;
/// The longest password, in bytes.
pub const MAX_PASSWORD_BYTES: usize = 256;
/// The suite that IPMI speaks unless told otherwise.
const DEFAULT_CIPHER_SUITE: i64 = 17;

/// Where a BMC is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Host {
    /// At this address.
    Address(IpAddr),
    /// At the addresses of this name.
    Name(String),
}

impl fmt::Display for Host {
    /// As it stands in a URL.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(IpAddr::V6(address)) => write!(out, "[{address}]"),
            Self::Address(address) => address.fmt(out),
            Self::Name(name) => out.write_str(name),
        }
    }
}

/// A host and the port that was given with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The host.
    pub host: Host,
    /// The port, if one was given.
    pub port: Option<u16>,
}

/// `HOST`, `HOST:PORT`, `ADDRESS`, `[ADDRESS]:PORT`; `None` for anything else.
#[must_use]
pub fn location(text: &str) -> Option<Location> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']')?;
            let address: std::net::Ipv6Addr = host.parse().ok()?;
            (
                Host::Address(address.into()),
                if port.is_empty() { None } else { Some(port.strip_prefix(':')?) },
            )
        }
        None => match text.parse::<IpAddr>() {
            Ok(address) => (Host::Address(address), None),
            Err(_) => {
                let (host, port) =
                    text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
                (
                    host.parse().map(Host::Address).or_else(|_| name(host).ok_or(()).map(Host::Name)).ok()?,
                    port,
                )
            }
        },
    };
    let port = port
        .map(|port| port.parse().ok().filter(|port| *port > 0))
        .map_or(Some(None), |port| port.map(Some))?;
    Some(Location { host, port })
}

/// A host's name (RFC 1123), in lower case. One whose last label is a number is none: it would be read as an address.
fn name(text: &str) -> Option<String> {
    let label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len())
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next()?;
    let numeric = last.bytes().all(|byte| byte.is_ascii_digit()) || last.starts_with("0x");
    (text.len() <= 253 && text.split('.').all(label) && !numeric).then(|| text.to_ascii_lowercase())
}

/// Whether an address is one that a site's BMCs have: in one of its networks; a loopback, link-local or own address only where
/// it is listed singly.
#[must_use]
pub fn is_allowed(address: IpAddr, networks: &[IpNet], own: &[IpAddr]) -> bool {
    let address = address.to_canonical();
    let local = match address {
        IpAddr::V4(v4) => {
            v4.is_loopback()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_multicast()
                || v4.is_broadcast()
        }
        IpAddr::V6(v6) => {
            v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast()
        }
    };
    let singly = local || own.iter().any(|own| own.to_canonical() == address);
    networks.iter().any(|network| {
        network.contains(&address) && (!singly || network.prefix_len() == network.max_prefix_len())
    })
}

/// How the BMC is reached from now on, and by which credentials: `None` where those that are there stay, `Some(None)` where they are
/// dropped.
///
/// # Errors
/// INVALID_INPUT with every bad or missing field.
pub fn merge(
    before: Option<&Reach>,
    asked: &BmcAccess,
) -> Result<(Reach, Option<Option<Credentials>>), Problem> {
    let mut errors = Vec::new();
    let mut bad = |field: &str, message: &str| {
        errors.push(FieldError { field: format!("bmc.{field}"), message: message.to_owned() });
    };
    let address = asked.address.as_ref().map(|address| address.as_str().to_ascii_lowercase());
    if address.as_deref().is_some_and(|address| location(address).is_none()) {
        bad(
            "address",
            "must be HOST or HOST:PORT, an IPv6 address in brackets before a port (such as [fd00::17]:8443)",
        );
    }
    if address.is_none() && before.is_none() {
        bad("address", "is required");
    }
    let protocol = asked.protocol.or(before.map(|before| before.protocol)).unwrap_or_default();
    let tls = tls(asked, &mut bad);
    if tls.is_none() && before.is_none() && protocol == BmcProtocol::Redfish {
        bad(
            "tlsPinSha256",
            "is required, or tlsCa, or tlsTrustFirstUse or tlsInsecure: how is the BMC's certificate judged?",
        );
    }
    let credentials = credentials(asked, before.is_none(), &mut bad);
    if !errors.is_empty() {
        return Err(Problem::invalid(errors));
    }
    let suite = asked.ipmi_cipher_suite.map(Int::get);
    let reach = Reach {
        address: address.or_else(|| before.map(|before| before.address.clone())).unwrap_or_default(),
        protocol,
        cipher_suite: suite.or(before.map(|before| before.cipher_suite)).unwrap_or(DEFAULT_CIPHER_SUITE),
        tls: tls.or_else(|| before.map(|before| before.tls.clone())).unwrap_or(TlsTrust::Insecure),
    };
    Ok(settled(before, reach, credentials))
}

/// A new place drops what was given for the one before.
fn settled(
    before: Option<&Reach>,
    mut reach: Reach,
    given: Option<Credentials>,
) -> (Reach, Option<Option<Credentials>>) {
    let Some(before) = before else { return (reach, Some(given)) };
    let moved = (&before.address, before.protocol) != (&reach.address, reach.protocol);
    if moved && reach.tls == before.tls && !matches!(reach.tls, TlsTrust::Ca(_)) {
        // A pin was the other BMC's, and so was the word that none is needed.
        reach.tls = TlsTrust::Unsaid;
    }
    let other = moved || reach.tls != before.tls;
    match given {
        Some(given) => (reach, Some(Some(given))),
        None if other => (reach, Some(None)),
        None => (reach, None),
    }
}

fn tls(asked: &BmcAccess, bad: &mut impl FnMut(&str, &str)) -> Option<TlsTrust> {
    let given = [
        asked.tls_pin_sha256.as_ref().map(|pin| TlsTrust::Pin(pin.as_str().to_owned())),
        asked.tls_ca.clone().map(TlsTrust::Ca),
        asked.tls_trust_first_use.filter(|it| *it).map(|_| TlsTrust::FirstUse),
        asked.tls_insecure.filter(|it| *it).map(|_| TlsTrust::Insecure),
    ];
    let mut given = given.into_iter().flatten();
    let first = given.next();
    if given.next().is_some() {
        bad(
            "tlsPinSha256",
            "is one of four ways to judge a certificate: give one of tlsPinSha256, tlsCa, tlsTrustFirstUse, tlsInsecure",
        );
    }
    if let Some(TlsTrust::Ca(pem)) = &first
        && (pem.len() > MAX_CA_BYTES || !pem.contains("BEGIN CERTIFICATE"))
    {
        bad("tlsCa", "must be CA certificates in PEM, at most 64 KiB");
    }
    first
}

fn credentials(asked: &BmcAccess, needed: bool, bad: &mut impl FnMut(&str, &str)) -> Option<Credentials> {
    match (&asked.username, &asked.password) {
        (Some(username), Some(password)) => {
            if !(1..=MAX_PASSWORD_BYTES).contains(&password.expose().len()) {
                bad("password", "must have 1 to 256 bytes");
            }
            Some(Credentials { username: username.as_str().to_owned(), password: password.clone() })
        }
        (None, None) => {
            if needed {
                bad("username", "is required");
                bad("password", "is required");
            }
            None
        }
        (Some(_), None) => {
            bad("password", "must come with username");
            None
        }
        (None, Some(_)) => {
            bad("username", "must come with password");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_read_in_one_way() {
        let at = |text: &str| location(text).map(|it| (it.host, it.port));
        let address = |text: &str| Host::Address(text.parse().unwrap());
        assert_eq!(at("10.1.0.17"), Some((address("10.1.0.17"), None)));
        assert_eq!(at("10.1.0.17:8443"), Some((address("10.1.0.17"), Some(8443))));
        assert_eq!(at("[fd00::17]:8443"), Some((address("fd00::17"), Some(8443))));
        assert_eq!(at("[fd00::17]"), Some((address("fd00::17"), None)));
        assert_eq!(at("fd00::17"), Some((address("fd00::17"), None)));
        assert_eq!(at("Bmc-1.Example.org:1"), Some((Host::Name("bmc-1.example.org".into()), Some(1))));
        for odd in [
            "",
            ":1",
            "a:0",
            "a:65536",
            "a:b",
            "a:",
            "[::1",
            "[a]:1",
            "1.2.3",
            "0x7f.1",
            "a..b",
            "-a",
            "a_b-.c",
            "2130706433",
            "[1.2.3.4]:1",
            "a/b",
        ] {
            assert_eq!(at(odd), None, "{odd}");
        }
    }

    #[test]
    fn what_is_local_must_be_listed_singly() {
        let networks = |all: &[&str]| all.iter().map(|it| it.parse().unwrap()).collect::<Vec<IpNet>>();
        let own = ["10.1.0.1".parse().unwrap()];
        let allowed =
            |address: &str, all: &[&str]| is_allowed(address.parse().unwrap(), &networks(all), &own);
        assert!(allowed("10.1.0.17", &["10.1.0.0/16"]) && allowed("::ffff:10.1.0.17", &["10.1.0.0/16"]));
        assert!(!allowed("10.2.0.17", &["10.1.0.0/16"]) && !allowed("10.1.0.17", &[]));
        for (address, wide, single) in [
            ("127.0.0.1", "127.0.0.0/8", "127.0.0.1/32"),
            ("169.254.1.1", "0.0.0.0/0", "169.254.1.1/32"),
            ("10.1.0.1", "10.1.0.0/16", "10.1.0.1/32"),
            ("::1", "::/0", "::1/128"),
            ("fe80::1", "fe80::/10", "fe80::1/128"),
        ] {
            assert!(!allowed(address, &[wide]) && allowed(address, &[wide, single]), "{address}");
        }
    }

    #[test]
    fn a_bmc_that_moves_loses_credentials_and_pin() {
        let asked = |json: serde_json::Value| serde_json::from_value::<BmcAccess>(json).unwrap();
        let pin = "a".repeat(64);
        let first = asked(serde_json::json!({
            "address": "10.1.0.17", "username": "root", "password": "x", "tlsPinSha256": pin,
        }));
        let (reach, credentials) = merge(None, &first).unwrap();
        assert_eq!(reach.tls, TlsTrust::Pin(pin));
        assert!(credentials.is_some_and(|it| it.is_some_and(|it| it.username == "root")));

        let change = |json: serde_json::Value| {
            let (after, credentials) = merge(Some(&reach), &asked(json)).unwrap();
            (after, credentials.map(|it| it.is_some()))
        };
        assert_eq!(change(serde_json::json!({})), (reach.clone(), None));
        let (moved, dropped) = change(serde_json::json!({"address": "10.1.0.18"}));
        assert_eq!((moved.tls, dropped), (TlsTrust::Unsaid, Some(false)));
        let (other, dropped) = change(serde_json::json!({"tlsTrustFirstUse": true}));
        assert_eq!((other.tls, dropped), (TlsTrust::FirstUse, Some(false)));
        let (same, kept) = change(serde_json::json!({"username": "a", "password": "b"}));
        assert_eq!((same, kept), (reach.clone(), Some(true)));

        let fields = |json: serde_json::Value, before: Option<&Reach>| {
            let problem = merge(before, &asked(json)).err().unwrap();
            problem.errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert_eq!(
            fields(serde_json::json!({}), None),
            ["bmc.address", "bmc.password", "bmc.tlsPinSha256", "bmc.username"]
        );
        assert_eq!(fields(serde_json::json!({"username": "a"}), Some(&reach)), ["bmc.password"]);
        assert_eq!(
            fields(serde_json::json!({"tlsInsecure": true, "tlsTrustFirstUse": true}), Some(&reach)),
            ["bmc.tlsPinSha256"]
        );
    }
}
