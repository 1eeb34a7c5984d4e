//! What the provider's documents and answers say, as far as it matters here. Pure.

use super::OidcError;
use reqwest::Url;
use serde::Deserialize;
use shared::secret::Secret;

/// The longest address in a document, in bytes.
const MAX_URL_BYTES: usize = 2048;

/// OpenID Connect Discovery 1.0, as far as it matters here.
#[derive(Deserialize)]
pub(super) struct Document {
    pub(super) issuer: String,
    pub(super) authorization_endpoint: String,
    pub(super) token_endpoint: String,
    pub(super) jwks_uri: String,
    pub(super) end_session_endpoint: Option<String>,
    pub(super) device_authorization_endpoint: Option<String>,
    pub(super) token_endpoint_auth_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    pub(super) authorization_response_iss_parameter_supported: bool,
}

/// The ID token in a token endpoint's answer.
pub(super) fn id_token_of(body: &[u8]) -> Result<Secret, OidcError> {
    #[derive(Deserialize)]
    struct Answer {
        id_token: Option<Secret>,
    }
    let what = "token answer";
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| OidcError::Document { what, rule: "it must be a JSON object" })?;
    let rule = "it must have an id_token; is openid asked for?";
    answer.id_token.ok_or(OidcError::Document { what, rule })
}

/// An address of the provider: https, and nobody's name or password in it.
pub(super) fn https(text: &str, what: &'static str) -> Result<Url, OidcError> {
    let url = if text.len() <= MAX_URL_BYTES { Url::parse(text).ok() } else { None };
    let allowed = |url: &Url| {
        url.scheme() == "https"
            && url.username().is_empty()
            && url.password().is_none()
            && url.fragment().is_none()
    };
    url.filter(allowed)
        .ok_or(OidcError::Document { what, rule: "its addresses must be https:// and at most 2048 bytes" })
}

/// The one word of an OAuth refusal (RFC 6749, 5.2); what else it says is not told.
pub(super) fn error_word(body: &[u8]) -> String {
    let answer: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    word(answer.get("error").and_then(serde_json::Value::as_str).unwrap_or_default())
}

/// An error's code as it may be shown: `access_denied`; a word of ours for anything else.
#[must_use]
pub fn word(code: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    if (1..=64).contains(&code.len()) && code.bytes().all(plain) { code } else { "it did not say why" }
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_providers_addresses_are_https_and_nobodys() {
        assert!(https("https://id.example/a?b=c", "x").is_ok());
        let long = format!("https://id.example/{}", "a".repeat(MAX_URL_BYTES));
        for bad in
            ["http://id.example", "https://u:p@id.example", "https://id.example/#x", "ftp://x", "x", &long]
        {
            assert!(https(bad, "x").is_err(), "{bad}");
        }
    }

    #[test]
    fn of_a_refusal_only_its_word_is_told() {
        assert_eq!(error_word(br#"{"error":"invalid_grant","error_description":"hush"}"#), "invalid_grant");
        for odd in [&b"{"[..], b"[]", br#"{"error":"<script>"}"#, br#"{"error":""}"#, br#"{"error":7}"#] {
            assert_eq!(error_word(odd), "it did not say why");
        }
    }
}
