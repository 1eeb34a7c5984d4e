//! The cookies that a browser keeps for the relay: their names and what it may do with each, and how they are read back.
//!
//! All have the prefix `__Host-`: a browser takes them over https only, from this host alone, and for the whole of it. What
//! other sites of the same host keep beside them is passed over. A name that comes twice is none: one of the two is
//! somebody else's.

use axum::response::Response;
use http::{
    HeaderMap, HeaderValue,
    header::{COOKIE, SET_COOKIE},
};

/// The longest value that is looked at, in bytes.
const MAX_VALUE_BYTES: usize = 4096;
/// How many cookies are looked at; a header that has more has none of ours.
const MAX_COOKIES: usize = 256;

/// A cookie.
pub(super) struct Cookie {
    name: &'static str,
    /// What the browser does with it.
    rules: &'static str,
}

/// A login on its way to the provider and back; the way back begins at another site.
pub(super) const LOGIN: Cookie =
    Cookie { name: "__Host-relay-login", rules: "Path=/; HttpOnly; Secure; SameSite=Lax" };
/// A session's token.
pub(super) const SESSION: Cookie =
    Cookie { name: "__Host-relay-session", rules: "Path=/; HttpOnly; Secure; SameSite=Strict" };
/// What a page of this relay shows beside a session; pages read it.
pub(super) const CSRF: Cookie =
    Cookie { name: "__Host-relay-csrf", rules: "Path=/; Secure; SameSite=Strict" };

impl Cookie {
    /// Its value, if it came once and is one (RFC 6265, 4.1.1).
    pub(super) fn of<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let pairs = || {
            let headers = headers.get_all(COOKIE).into_iter();
            headers.flat_map(|value| value.as_bytes().split(|byte| *byte == b';'))
        };
        if pairs().nth(MAX_COOKIES).is_some() {
            return None;
        }
        let mut ours = pairs().filter_map(|pair| {
            let pair = pair.trim_ascii();
            let at = pair.iter().position(|byte| *byte == b'=').unwrap_or(pair.len());
            let (name, value) = pair.split_at(at);
            (name.trim_ascii() == self.name.as_bytes()).then_some(value)
        });
        let (value, None) = (ours.next()?, ours.next()) else { return None };
        let value = value.strip_prefix(b"=")?;
        let fits = (1..=MAX_VALUE_BYTES).contains(&value.len()) && value.iter().all(|byte| is_octet(*byte));
        str::from_utf8(value).ok().filter(|_| fits)
    }

    /// Makes a browser keep it for so many seconds.
    pub(super) fn set(&self, response: &mut Response, value: &str, seconds: i64) {
        let text = format!("{}={value}; {}; Max-Age={}", self.name, self.rules, seconds.max(0));
        if let Ok(mut value) = HeaderValue::from_str(&text) {
            value.set_sensitive(true);
            response.headers_mut().append(SET_COOKIE, value);
        }
    }

    /// Makes a browser forget it.
    pub(super) fn forget(&self, response: &mut Response) {
        self.set(response, "", 0);
    }
}

/// `cookie-octet`.
const fn is_octet(byte: u8) -> bool {
    matches!(byte, 0x21 | 0x23..=0x2b | 0x2d..=0x3a | 0x3c..=0x5b | 0x5d..=0x7e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::problem;
    use http::StatusCode;

    /// What is read of headers, which a `|` parts.
    fn of(cookie: &Cookie, headers: &[u8]) -> Option<String> {
        let mut all = HeaderMap::new();
        for header in headers.split(|byte| *byte == b'|') {
            all.append(COOKIE, HeaderValue::from_bytes(header).unwrap());
        }
        cookie.of(&all).map(str::to_owned)
    }

    #[test]
    fn only_its_own_cookie_is_taken_and_only_if_it_came_once() {
        let goods: [&[u8]; 4] = [
            b"__Host-relay-login=v1.k.a+/=",
            b"a=b; relay-login=x|c=d;__Host-relay-login=v1.k.a+/=; e=f",
            b"odd; =; \xff=\xff; __Host-relay-login=v1.k.a+/= ;",
            b"__Host-relay-login=v1.k.a+/=; __Host-relay-logins=x; X__Host-relay-login=x",
        ];
        for good in goods {
            assert_eq!(of(&LOGIN, good).as_deref(), Some("v1.k.a+/="), "{good:?}");
        }
        let long = [&b"__Host-relay-login="[..], &[b'a'; MAX_VALUE_BYTES + 1]].concat();
        let many = [&b"a=b;".repeat(MAX_COOKIES)[..], b"__Host-relay-login=a"].concat();
        let bads: [&[u8]; 13] = [
            b"",
            b"__Host-relay-login",
            b"__Host-relay-login=",
            b"__host-relay-login=a",
            b"__Host-relay-session=a",
            b"__Host-relay-login=\"a\"",
            b"__Host-relay-login=a b",
            b"__Host-relay-login=\xc3\xa9",
            b"__Host-relay-login=a; __Host-relay-login=a",
            b"__Host-relay-login=a|__Host-relay-login=b",
            b"__Host-relay-login=a; __Host-relay-login",
            &long,
            &many,
        ];
        for bad in bads {
            assert_eq!(of(&LOGIN, bad), None, "{bad:?}");
        }
    }

    #[test]
    fn each_is_for_this_host_over_https_and_none_is_in_a_log() {
        let mut response = problem::answer(StatusCode::OK, "text/plain", "");
        for cookie in [&LOGIN, &SESSION, &CSRF] {
            cookie.set(&mut response, "x", 60);
            cookie.forget(&mut response);
        }
        let set: Vec<_> = response.headers().get_all(SET_COOKIE).into_iter().collect();
        assert_eq!(set.len(), 6);
        for value in set {
            assert!(value.is_sensitive());
            let text = value.to_str().unwrap();
            assert!(text.starts_with("__Host-relay-") && text.contains("; Path=/; "), "{text}");
            assert!(text.contains("; Secure") && !text.contains("Domain"), "{text}");
            assert_eq!(text.contains("HttpOnly"), !text.contains("csrf"), "{text}");
            assert_eq!(text.contains("SameSite=Lax"), text.contains("login"), "{text}");
            assert!(text.contains("SameSite=Strict") || text.contains("login"), "{text}");
        }
    }
}
