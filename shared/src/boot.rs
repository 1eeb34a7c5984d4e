//! What the relay writes into the image of the agent that it serves for one boot: where the relay is, what it is recognised
//! by, and a token.
//!
//! The image has room for it: a region of [`REGION_BYTES`] that is a file of the agent's own file system, stored as it is (an
//! uncompressed part of the initramfs), so that nothing but those bytes changes. Whoever gets hold of the image reads it; the
//! token in it is for one machine, once.

use crate::{secret::Secret, time::Timestamp};
use serde::{Deserialize, Serialize};

/// The room for it, in bytes.
pub const REGION_BYTES: usize = 4096;
/// What a region begins with, written or not.
const HEAD: &[u8] = b"bcd-agent-boot-1\n";
/// What stands behind the head in a region that nobody has written, up to the line break that ends it.
const FILL: u8 = b'#';

/// What an agent is told by the image that it was booted from.
pub struct Boot {
    /// The relay, `https://HOST:PORT`.
    pub relay: String,
    /// The pins of its CA, each `sha256:` and 64 hexadecimal digits.
    pub ca_pins: Vec<String>,
    /// The join token, as its bearer writes it.
    pub token: Secret,
    /// When the image was served: no clock is behind that.
    pub at: Timestamp,
}

/// The same on the wire. The token is a plain text here, and nowhere else.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Written<'a> {
    relay: String,
    ca_pins: Vec<String>,
    token: &'a str,
    at: Timestamp,
}

/// The bytes are no region, or one that nobody has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRegion {
    /// Not of this form.
    #[error("it is none of this agent's image")]
    Form,
    /// As the image was built.
    #[error("the relay has written nothing into it: the image was not served by a relay")]
    Empty,
}

impl Boot {
    /// The region with it; `None` if it does not fit.
    #[must_use]
    pub fn to_region(&self) -> Option<Vec<u8>> {
        let written = Written {
            relay: self.relay.clone(),
            ca_pins: self.ca_pins.clone(),
            token: self.token.expose(),
            at: self.at,
        };
        let mut region = HEAD.to_vec();
        region.extend(serde_json::to_vec(&written).ok()?);
        (region.len() < REGION_BYTES).then(|| {
            region.resize(REGION_BYTES - 1, b' ');
            region.push(b'\n');
            region
        })
    }

    /// Reads a region.
    ///
    /// # Errors
    /// It is none, or nobody has written it.
    pub fn parse(region: &[u8]) -> Result<Self, InvalidRegion> {
        if region == template() {
            return Err(InvalidRegion::Empty);
        }
        let body = region.strip_prefix(HEAD).filter(|_| region.len() == REGION_BYTES);
        let written: Written<'_> =
            serde_json::from_slice(body.ok_or(InvalidRegion::Form)?).map_err(|_| InvalidRegion::Form)?;
        Ok(Self {
            relay: written.relay,
            ca_pins: written.ca_pins,
            token: Secret::new(written.token.to_owned()),
            at: written.at,
        })
    }
}

/// The region as an image is built with it.
#[must_use]
pub fn template() -> Vec<u8> {
    let mut region = HEAD.to_vec();
    region.resize(REGION_BYTES - 1, FILL);
    region.push(b'\n');
    region
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boot(relay: &str) -> Boot {
        Boot {
            relay: relay.into(),
            ca_pins: vec![format!("sha256:{}", "a".repeat(64)); 2],
            token: Secret::new("bcjt_x.y".into()),
            at: Timestamp::from_seconds(1_800_000_000),
        }
    }

    #[test]
    fn what_is_written_is_read_and_fills_the_region() {
        let region = boot("https://relay.example:8443").to_region().unwrap();
        assert_eq!(region.len(), REGION_BYTES);
        let read = Boot::parse(&region).ok().unwrap();
        assert_eq!((read.relay.as_str(), read.token.expose()), ("https://relay.example:8443", "bcjt_x.y"));
        assert_eq!((read.ca_pins.len(), read.at.seconds()), (2, 1_800_000_000));
        assert!(boot(&"x".repeat(REGION_BYTES)).to_region().is_none());
    }

    #[test]
    fn what_is_no_region_is_said() {
        let whole = boot("https://r").to_region().unwrap();
        assert_eq!(Boot::parse(&template()).err(), Some(InvalidRegion::Empty));
        for bad in [
            &b""[..],
            b"bcd-agent-boot-1\n{}",
            &whole[1..],
            &whole[..REGION_BYTES - 1],
            &[b' '; REGION_BYTES],
        ] {
            assert_eq!(Boot::parse(bad).err(), Some(InvalidRegion::Form));
        }
    }
}
