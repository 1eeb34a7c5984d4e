//! The requests to the provider: bounded in time and size, over https, redirected nowhere.

use crate::{
    access,
    outside::client::{REQUEST_TIMEOUT, innermost, wiped},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Client, RequestBuilder, Response, StatusCode, Url, header};
use shared::secret::Secret;
use std::{io, path::Path};
use zeroize::Zeroizing;

/// Why there is nothing to read.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No answer came, or not the whole of it.
    #[error(
        "reach the identity provider's {what}: {why}; does oidc.issuer lead there, and is its CA trusted?"
    )]
    Transport {
        /// Which document.
        what: &'static str,
        /// Why.
        why: String,
    },
    /// It answered something else.
    #[error("read the identity provider's {what}: it answered {status}, and no redirect is followed")]
    Status {
        /// Which document.
        what: &'static str,
        /// The HTTP status.
        status: StatusCode,
    },
    /// It is too long.
    #[error("read the identity provider's {what}: it is over {max_bytes} bytes")]
    TooLong {
        /// Which document.
        what: &'static str,
        /// The bound.
        max_bytes: usize,
    },
}

/// An answer, which may hold a token.
pub(super) type Bytes = Zeroizing<Vec<u8>>;

/// Asks the provider.
pub(super) struct Fetch(Client);

impl Fetch {
    /// By this client.
    pub(super) fn new(client: Client) -> Self {
        Self(client)
    }

    /// A document.
    pub(super) async fn get(
        &self,
        what: &'static str,
        url: Url,
        max_bytes: usize,
    ) -> Result<Bytes, FetchError> {
        let (status, body) = ask(what, self.0.get(url), max_bytes).await?;
        if status == StatusCode::OK { Ok(body) } else { Err(FetchError::Status { what, status }) }
    }

    /// The answer to a form, or to a refusal its body.
    pub(super) async fn post(
        &self,
        what: &'static str,
        url: Url,
        form: &[(&str, &str)],
        basic: Option<(&str, &Secret)>,
        max_bytes: usize,
    ) -> Result<Result<Bytes, Bytes>, FetchError> {
        let mut request = self
            .0
            .post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .header(header::ACCEPT, "application/json")
            .body(wiped(encoded(form)));
        if let Some((name, secret)) = basic {
            request = request.header(header::AUTHORIZATION, authorization(what, name, secret)?);
        }
        match ask(what, request, max_bytes).await? {
            (StatusCode::OK, body) => Ok(Ok(body)),
            (status, body) if status.is_client_error() => Ok(Err(body)),
            (status, _) => Err(FetchError::Status { what, status }),
        }
    }
}

async fn ask(
    what: &'static str,
    request: RequestBuilder,
    max_bytes: usize,
) -> Result<(StatusCode, Bytes), FetchError> {
    let transport = |error: reqwest::Error| FetchError::Transport { what, why: why(&error) };
    let mut response: Response = request.send().await.map_err(transport)?;
    let mut body = Bytes::new(Vec::new());
    while let Some(chunk) = response.chunk().await.map_err(transport)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(FetchError::TooLong { what, max_bytes });
        }
        body.extend_from_slice(&chunk);
    }
    Ok((response.status(), body))
}

/// What an error came from in the end: the part that a person can use.
fn why(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return format!("no whole answer within {} seconds", REQUEST_TIMEOUT.as_secs());
    }
    innermost(error)
}

/// `application/x-www-form-urlencoded` (WHATWG URL, 5.2). Written here, so that a secret in it is wiped with it.
fn encoded(pairs: &[(&str, &str)]) -> Bytes {
    let bytes = pairs.iter().map(|(name, value)| name.len().saturating_add(value.len()).saturating_add(2));
    // Room for all of it, so that nothing is copied on the way.
    let mut form = Bytes::new(Vec::with_capacity(bytes.sum::<usize>().saturating_mul(3)));
    for (name, value) in pairs {
        if !form.is_empty() {
            form.push(b'&');
        }
        encode(&mut form, name);
        form.push(b'=');
        encode(&mut form, value);
    }
    form
}

fn encode(form: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        match byte {
            b'*' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => form.push(byte),
            b' ' => form.push(b'+'),
            other => form.extend(format!("%{other:02X}").bytes()),
        }
    }
}

/// Name and secret as RFC 6749, 2.3.1 has them: each form-encoded before they are joined.
fn authorization(what: &'static str, name: &str, secret: &Secret) -> Result<header::HeaderValue, FetchError> {
    let mut pair = Bytes::new(Vec::with_capacity((name.len() + secret.expose().len()) * 3 + 1));
    encode(&mut pair, name);
    pair.push(b':');
    encode(&mut pair, secret.expose());
    let pair = Secret::new(STANDARD.encode(&pair));
    let value = Secret::new(format!("Basic {}", pair.expose()));
    let mut value = header::HeaderValue::from_str(value.expose())
        .map_err(|error| FetchError::Transport { what, why: error.to_string() })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The text of a file that is not over `max_bytes`.
pub(super) fn small_file(path: &Path, max_bytes: u64) -> io::Result<Secret> {
    access::read_text(path, max_bytes).map(Secret::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_are_encoded_before_they_are_joined() {
        let form = [("a", "b c"), ("d", "&=+"), ("e", "~é*-._09azAZ")];
        let mut by_url = Url::parse("https://form/").unwrap();
        by_url.query_pairs_mut().extend_pairs(form);
        assert_eq!(str::from_utf8(&encoded(&form)).unwrap(), by_url.query().unwrap());
        assert_eq!(encoded(&[]).as_slice(), b"");
        let value = authorization("x", "a:b", &Secret::new("p w=".to_owned())).unwrap();
        let basic = STANDARD.decode(value.to_str().unwrap().strip_prefix("Basic ").unwrap()).unwrap();
        assert_eq!(basic, b"a%3Ab:p+w%3D");
        assert!(value.is_sensitive());
    }
}
