//! Settings of the agent's image: whether it is served, where, by which address, from which file.

use super::{ConfigError, RelayUrl, address, keys, merge::Merged, parsed, path};
use std::{net::SocketAddr, path::PathBuf};

/// Where the package of the agent's image puts it.
const IMAGE: &str = "/usr/share/relay/agent.iso";

/// How the agent's image is served to BMCs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootSettings {
    /// Where; port 0 picks one.
    pub listen: SocketAddr,
    /// The address that BMCs reach that by, without a path; by it plain HTTP or HTTPS.
    pub url: Option<String>,
    /// The image.
    pub image: PathBuf,
    /// More CA certificates that servers of disk images may come from.
    pub image_ca_file: Option<PathBuf>,
}

impl BootSettings {
    /// Whether it is served over TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.url.as_ref().is_some_and(|url| url.starts_with("https://"))
    }

    /// The address that BMCs fetch from, once it is known where it is served: the one that is listened on, or where that is any, at
    /// the host that machines reach the relay by.
    #[must_use]
    pub fn url_at(&self, listening: SocketAddr, relay_host: &str) -> String {
        let at = || match listening.ip().is_unspecified() {
            true if relay_host.contains(':') => format!("http://[{relay_host}]:{}", listening.port()),
            true => format!("http://{relay_host}:{}", listening.port()),
            false => format!("http://{listening}"),
        };
        self.url.clone().unwrap_or_else(at)
    }
}

/// What the settings say of it; `None` where no image is served.
pub(super) fn read(merged: &Merged) -> Result<Option<BootSettings>, ConfigError> {
    let listen = parsed(merged, &keys::BOOT_LISTEN, address)?;
    let url = parsed(merged, &keys::BOOT_URL, url)?;
    let image = parsed(merged, &keys::AGENT_IMAGE, path)?.unwrap_or_else(|| PathBuf::from(IMAGE));
    let image_ca_file = parsed(merged, &keys::IMAGE_CA_FILE, path)?;
    Ok(listen.map(|listen| BootSettings { listen, url, image, image_ca_file }))
}

/// `http://HOST[:PORT]` or https, without a path: BMCs take no more than a short one.
fn url(text: &str) -> Result<String, String> {
    let rule = || "must be http://HOST:PORT or https://HOST:PORT, with nothing behind it".to_owned();
    let (scheme, authority) = text.split_once("://").ok_or_else(rule)?;
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    // The rest is that of the relay's own address.
    let is_one = format!("https://{authority}").parse::<RelayUrl>().is_ok();
    let is_known = matches!(scheme, "http" | "https");
    (is_one && is_known).then(|| format!("{scheme}://{authority}")).ok_or_else(rule)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_for_bmcs_is_a_host_and_a_port() {
        for (text, expected) in [
            ("http://10.0.0.1:8069", Some("http://10.0.0.1:8069")),
            ("https://boot.example/", Some("https://boot.example")),
            ("http://[fd00::1]:80", Some("http://[fd00::1]:80")),
            ("ftp://a", None),
            ("http://a/b", None),
            ("http://a?b", None),
            ("http://u:p@a", None),
            ("a:80", None),
            ("", None),
        ] {
            assert_eq!(url(text).ok().as_deref(), expected, "{text}");
        }
    }
}
