//! The identity provider by which people log in (OpenID Connect): all of its settings, or none.

use super::{
    ConfigError,
    keys::{KEYS, OIDC_CA_FILE, OIDC_CLIENT_ID, OIDC_CLIENT_SECRET_FILE, OIDC_ISSUER, OIDC_KEY, OIDC_SCOPES},
    merge::Merged,
    missing, parsed, path,
};
use std::path::PathBuf;

/// The longest address of a provider, in bytes.
const MAX_ISSUER_BYTES: usize = 512;
/// The longest client id or list of scopes, in bytes.
const MAX_WORDS_BYTES: usize = 256;
/// The scope without which it is no login.
const OPENID: &str = "openid";

/// The provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Oidc {
    /// Its address, which its tokens name to the letter.
    pub issuer: String,
    /// What it knows this relay as.
    pub client_id: String,
    /// The file of the relay's secret; none for a public client.
    pub client_secret_file: Option<PathBuf>,
    /// What it is asked for, by spaces.
    pub scopes: String,
    /// What a user is known by.
    pub key: LoginKey,
    /// The only CA certificates to trust; the system's if absent.
    pub ca_file: Option<PathBuf>,
}

/// What a user is known by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LoginKey {
    /// The claim `sub`, which a provider never gives to another.
    #[default]
    Sub,
    /// The claim `email`, where the provider says that it verified it.
    Email,
}

/// The provider, if one was told.
pub(super) fn read(merged: &Merged) -> Result<Option<Oidc>, ConfigError> {
    // What is given is judged even where something else is missing.
    let issuer = parsed(merged, &OIDC_ISSUER, issuer)?;
    let client_id = parsed(merged, &OIDC_CLIENT_ID, client_id)?;
    let client_secret_file = parsed(merged, &OIDC_CLIENT_SECRET_FILE, path)?;
    let scopes = parsed(merged, &OIDC_SCOPES, scopes)?;
    let key = parsed(merged, &OIDC_KEY, key)?.unwrap_or_default();
    let ca_file = parsed(merged, &OIDC_CA_FILE, path)?;
    let Some(issuer) = issuer else {
        let of_oidc = |name: &str| name.starts_with("oidc.");
        let alone = KEYS.iter().find(|key| of_oidc(key.name) && merged.get(key).is_some());
        return if alone.is_some() { Err(missing(&OIDC_ISSUER)) } else { Ok(None) };
    };
    let client_id = client_id.ok_or_else(|| missing(&OIDC_CLIENT_ID))?;
    let scopes = scopes.unwrap_or_else(|| default_scopes(key));
    Ok(Some(Oidc { issuer, client_id, client_secret_file, scopes, key, ca_file }))
}

/// The provider's address. It is compared to the letter, so it is kept as it was written.
fn issuer(text: &str) -> Result<String, String> {
    let host = text.strip_prefix("https://").map(|rest| rest.split('/').next().unwrap_or_default());
    let plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@\\\"<>".contains(&byte);
    let fits = text.len() <= MAX_ISSUER_BYTES && text.bytes().all(plain);
    if fits && host.is_some_and(|host| !host.is_empty()) {
        return Ok(text.to_owned());
    }
    Err("must be the provider's issuer, https://host/path, as its discovery document says it".to_owned())
}

fn client_id(text: &str) -> Result<String, String> {
    if (1..=MAX_WORDS_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        Ok(text.to_owned())
    } else {
        Err(format!("must be 1 to {MAX_WORDS_BYTES} visible ASCII characters without blanks"))
    }
}

fn scopes(text: &str) -> Result<String, String> {
    let plain = text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    if text.len() <= MAX_WORDS_BYTES && plain && text.split(' ').any(|scope| scope == OPENID) {
        Ok(text.to_owned())
    } else {
        Err(format!("must be scopes by spaces, {OPENID} among them, {MAX_WORDS_BYTES} characters at most"))
    }
}

fn key(text: &str) -> Result<LoginKey, String> {
    match text {
        "sub" => Ok(LoginKey::Sub),
        "email" => Ok(LoginKey::Email),
        _ => Err("must be sub or email".to_owned()),
    }
}

fn default_scopes(key: LoginKey) -> String {
    match key {
        LoginKey::Sub => format!("{OPENID} profile"),
        LoginKey::Email => format!("{OPENID} profile email"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_https_is_an_issuer() {
        for good in ["https://id.example", "https://id.example:8443/realms/x/", "https://[::1]:1/"] {
            assert_eq!(issuer(good).as_deref(), Ok(good));
        }
        let long = format!("https://{}", "a".repeat(MAX_ISSUER_BYTES));
        for bad in [
            "",
            "id.example",
            "http://id.example",
            "http://127.0.0.1",
            "https://",
            "https:///x",
            "https://u@h",
            "https://h?x",
            "https://h#x",
            "https://h/a b",
            &long,
        ] {
            assert!(issuer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_login_asks_for_openid() {
        assert!(scopes("email openid").is_ok());
        for bad in ["", "email", "openid2", "openid\n"] {
            assert!(scopes(bad).is_err(), "{bad:?}");
        }
        assert_eq!(default_scopes(LoginKey::Email), "openid profile email");
        assert_eq!((key("sub"), key("email")), (Ok(LoginKey::Sub), Ok(LoginKey::Email)));
        assert!(key("name").is_err());
    }
}
