//! What is asked of a login, parsed: who waits for it and where, and which admin role they want. Pure.

use serde::{Deserialize, Serialize};
use shared::api::access::AdminRole;
use std::{fmt, str::FromStr};

/// The characters of an S256: 32 bytes in base64url without padding.
const CHALLENGE_CHARS: usize = 43;

/// The longest path that a browser goes back to, in bytes.
const MAX_RETURN_BYTES: usize = 512;

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// For whom.
    pub waits: Waits,
    /// The admin role that they want.
    pub admin_role: Option<AdminRole>,
}

/// Who waits for a login.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waits {
    /// A program, which a browser logs in.
    Program(Program),
    /// The browser itself, which goes there then.
    Browser(Return),
}

/// A program that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// What it will prove that it knows.
    pub challenge: Challenge,
    /// Where it waits; none where a person copies the code.
    pub loopback: Option<Loopback>,
    /// Comes back to it as it is.
    pub state: Option<Challenge>,
}

/// 43 characters of base64url: an S256, or 32 drawn bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Challenge(String);

/// The text is no challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 32 bytes in base64url without padding")]
pub struct InvalidChallenge;

impl Challenge {
    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Challenge {
    type Err = InvalidChallenge;
    fn from_str(text: &str) -> Result<Self, InvalidChallenge> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if text.len() == CHALLENGE_CHARS && text.bytes().all(plain) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidChallenge)
        }
    }
}

impl TryFrom<String> for Challenge {
    type Error = InvalidChallenge;
    fn try_from(text: String) -> Result<Self, InvalidChallenge> {
        text.parse()
    }
}

impl From<Challenge> for String {
    fn from(challenge: Challenge) -> Self {
        challenge.0
    }
}

/// Where a program on the browser's own machine waits: `http://127.0.0.1:PORT/callback`, or the same on `[::1]`. Nothing
/// else is ever redirected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Loopback(String);

/// The text is no such address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be http://127.0.0.1:PORT/callback or http://[::1]:PORT/callback, to the letter")]
pub struct InvalidLoopback;

impl FromStr for Loopback {
    type Err = InvalidLoopback;
    fn from_str(text: &str) -> Result<Self, InvalidLoopback> {
        let rest = ["http://127.0.0.1:", "http://[::1]:"].iter().find_map(|host| text.strip_prefix(host));
        let port = rest.and_then(|rest| rest.strip_suffix("/callback")).ok_or(InvalidLoopback)?;
        let number: u16 = port.parse().map_err(|_| InvalidLoopback)?;
        // One way to write each: `+1` and `01` are numbers too.
        if number > 0 && number.to_string() == port {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidLoopback)
        }
    }
}

impl fmt::Display for Loopback {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for Loopback {
    type Error = InvalidLoopback;
    fn try_from(text: String) -> Result<Self, InvalidLoopback> {
        text.parse()
    }
}

impl From<Loopback> for String {
    fn from(loopback: Loopback) -> Self {
        loopback.0
    }
}

/// Where a browser goes with its session: a path of this relay, with its query, as a browser writes it. Never a page of
/// a login, which would go round in a circle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Return(String);

/// The text is no such path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be a path of this relay, such as /console/nodes?state=ready, of at most 512 bytes and not below /auth/"
)]
pub struct InvalidReturn;

impl Return {
    /// The page that says that a browser is logged in.
    pub const SESSION: &str = "/auth/session";
}

impl Default for Return {
    fn default() -> Self {
        Self(Self::SESSION.to_owned())
    }
}

impl FromStr for Return {
    type Err = InvalidReturn;
    fn from_str(text: &str) -> Result<Self, InvalidReturn> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~?&=%+,:;@!$'()*".contains(&byte);
        let path = text.split('?').next().unwrap_or_default();
        // A browser takes `//host` for a host, and reads `.` and `..` before it asks.
        let leads_away = text.starts_with("//")
            || path.split('/').any(|part| matches!(part, "." | "..") || part.contains('%'))
            || path.starts_with("/auth/")
            || path == "/auth";
        if text.starts_with('/') && text.len() <= MAX_RETURN_BYTES && text.bytes().all(plain) && !leads_away {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidReturn)
        }
    }
}

impl fmt::Display for Return {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TryFrom<String> for Return {
    type Error = InvalidReturn;
    fn try_from(text: String) -> Result<Self, InvalidReturn> {
        if text == Self::SESSION { Ok(Self(text)) } else { text.parse() }
    }
}

impl From<Return> for String {
    fn from(path: Return) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_redirect_url_that_is_not_exactly_a_loopback_is_refused() {
        for good in
            ["http://127.0.0.1:1/callback", "http://127.0.0.1:65535/callback", "http://[::1]:8080/callback"]
        {
            assert_eq!(good.parse::<Loopback>().unwrap().to_string(), good);
        }
        for bad in [
            "",
            "http://127.0.0.1/callback",
            "http://127.0.0.1:/callback",
            "http://127.0.0.1:0/callback",
            "http://127.0.0.1:01/callback",
            "http://127.0.0.1:+1/callback",
            "http://127.0.0.1:65536/callback",
            "http://127.0.0.1:1/callback/",
            "http://127.0.0.1:1/callback?x=y",
            "http://127.0.0.1:1/callback#x",
            "http://127.0.0.1:1/Callback",
            "http://127.0.0.1:1/../callback",
            "http://127.0.0.1:1@evil.example/callback",
            "http://127.0.0.1:1\\@evil.example/callback",
            "http://127.0.0.1.evil.example:1/callback",
            "http://u@127.0.0.1:1/callback",
            "https://127.0.0.1:1/callback",
            "HTTP://127.0.0.1:1/callback",
            "http://localhost:1/callback",
            "http://127.1:1/callback",
            "http://0.0.0.0:1/callback",
            "http://[::]:1/callback",
            "http://[0:0:0:0:0:0:0:1]:1/callback",
            "http://[::ffff:127.0.0.1]:1/callback",
            "//127.0.0.1:1/callback",
            "javascript:alert(1)",
            " http://127.0.0.1:1/callback",
            "http://127.0.0.1:1/callback\n",
        ] {
            assert_eq!(bad.parse::<Loopback>(), Err(InvalidLoopback), "{bad:?}");
        }
    }

    #[test]
    fn a_challenge_is_thirty_two_bytes() {
        assert!("a-_9".repeat(11).get(..43).unwrap().parse::<Challenge>().is_ok());
        for bad in
            [String::new(), "a".repeat(42), "a".repeat(44), format!("{}=", "a".repeat(42)), "é".repeat(21)]
        {
            assert_eq!(bad.parse::<Challenge>(), Err(InvalidChallenge), "{bad}");
        }
    }

    #[test]
    fn a_browser_goes_back_to_this_relay_alone() {
        for good in ["/", "/console/", "/console/nodes?state=ready&q=a%20b", "/a:b@c/d//e"] {
            assert_eq!(good.parse::<Return>().unwrap().to_string(), good);
        }
        let long = format!("/{}", "a".repeat(MAX_RETURN_BYTES));
        for bad in [
            "",
            "console",
            "//evil.example/",
            "///evil.example/",
            "/\\evil.example/",
            "\\/evil.example/",
            "https://evil.example/",
            "https:/evil",
            "javascript:alert(1)",
            " /console",
            "/console\n",
            "/\t/evil.example",
            "/a#b",
            "/a\"b",
            "/a<b",
            "/é",
            "/.//evil.example",
            "/a/..//evil.example",
            "/%2e%2e//evil.example",
            "/auth",
            "/auth/login",
            "/auth/logout?x",
            "/x/../auth/login",
            &long,
        ] {
            assert_eq!(bad.parse::<Return>(), Err(InvalidReturn), "{bad:?}");
        }
        let kept: Return = serde_json::from_str(&serde_json::to_string(&Return::default()).unwrap()).unwrap();
        assert_eq!(kept.to_string(), Return::SESSION);
    }
}
