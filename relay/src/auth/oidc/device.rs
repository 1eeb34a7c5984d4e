//! The device flow (RFC 8628), where the provider offers it: a code for a person to confirm elsewhere, and the question
//! whether they have.

use super::{
    OidcError, Provider, TOKEN_ENDPOINT,
    document::{error_word, https, id_token_of},
    id_token::{Expected, Nonce},
};
use crate::facts::Vouched;
use serde::Deserialize;
use shared::{secret::Secret, time::Timestamp};

/// What a token is asked for with.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";
/// The longest device code, in bytes.
const MAX_CODE_BYTES: usize = 4096;
/// The longest code that a person types, in bytes.
const MAX_USER_CODE_BYTES: usize = 64;
/// How long a login waits at most, whatever the provider says, in seconds (30 minutes).
const MAX_WAIT_SECONDS: i64 = 1800;
/// How often a provider that says nothing of it may be asked, in seconds (RFC 8628, 3.2).
const INTERVAL_SECONDS: i64 = 5;
/// The longest interval that is taken over, in seconds.
pub const MAX_INTERVAL_SECONDS: i64 = 60;

/// A login that a person may confirm.
pub struct DeviceCode {
    /// What the provider is asked with.
    pub device_code: Secret,
    /// What the person types.
    pub user_code: String,
    /// Where; https.
    pub verification_uri: String,
    /// The same with the code in it, where the provider has one.
    pub verification_uri_complete: Option<String>,
    /// How long it waits, in seconds.
    pub expires_in_seconds: i64,
    /// How often the provider may be asked, in seconds.
    pub interval_seconds: i64,
}

/// What the provider is asked about a login.
pub struct Confirmed<'a> {
    /// Which login.
    pub device_code: &'a Secret,
    /// What was sent when it began.
    pub nonce: &'a str,
    /// When it began.
    pub begun_at: Timestamp,
    /// The time.
    pub now: Timestamp,
}

/// What became of a login.
pub enum Polled {
    /// Nothing yet.
    Pending,
    /// Nothing yet, and the provider is asked too often.
    SlowDown,
    /// The provider vouches for this user.
    Vouched(Vouched),
}

/// RFC 8628, 3.2.
#[derive(Deserialize)]
struct Answer {
    device_code: Secret,
    user_code: String,
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: i64,
    interval: Option<i64>,
}

impl Provider {
    /// Whether the provider offers it.
    ///
    /// # Errors
    /// The provider does not say what it offers.
    pub async fn offers_devices(&self) -> Result<bool, OidcError> {
        let _place = self.enter()?;
        Ok(self.discovered().await?.device.is_some())
    }

    /// Begins a login; `None` where the provider does not offer it.
    ///
    /// # Errors
    /// The provider does not answer as it should.
    pub async fn begin_device(&self, nonce: &str) -> Result<Option<DeviceCode>, OidcError> {
        let what = "device authorization endpoint";
        let _place = self.enter()?;
        let discovered = self.discovered().await?;
        let Some(endpoint) = &discovered.device else { return Ok(None) };
        let form = vec![("scope", self.settings.scopes.as_str()), ("nonce", nonce)];
        let answer = self.post_as_client(what, &discovered, endpoint, form).await?;
        let body = answer.map_err(|error| OidcError::Refused(error_word(&error)))?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|_| OidcError::Document { what, rule: "it must be the JSON of RFC 8628, 3.2" })?;
        judged(answer).map(Some)
    }

    /// Asks whether a login was confirmed.
    ///
    /// # Errors
    /// It was refused, has ended, or its ID token does not count.
    pub async fn poll_device(&self, confirmed: &Confirmed<'_>) -> Result<Polled, OidcError> {
        let _place = self.enter()?;
        let discovered = self.discovered().await?;
        let form = vec![("grant_type", GRANT), ("device_code", confirmed.device_code.expose())];
        let body = match self.post_as_client(TOKEN_ENDPOINT, &discovered, &discovered.token, form).await? {
            Ok(body) => body,
            Err(refused) => {
                return match error_word(&refused).as_str() {
                    "authorization_pending" => Ok(Polled::Pending),
                    "slow_down" => Ok(Polled::SlowDown),
                    word => Err(OidcError::Refused(word.to_owned())),
                };
            }
        };
        let token = id_token_of(&body)?;
        let expected = Expected {
            issuer: &self.settings.issuer,
            client_id: &self.settings.client_id,
            nonce: Nonce::IfNamed(confirmed.nonce),
            begun_at: confirmed.begun_at,
            now: confirmed.now,
            key: self.settings.key,
        };
        self.judged(&token, &discovered, &expected).await.map(Polled::Vouched)
    }
}

fn judged(answer: Answer) -> Result<DeviceCode, OidcError> {
    let what = "device authorization endpoint";
    let odd = |rule| OidcError::Document { what, rule };
    if !(1..=MAX_CODE_BYTES).contains(&answer.device_code.expose().len()) {
        return Err(odd("its device_code must have 1 to 4096 bytes"));
    }
    let typed = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
    let code = &answer.user_code;
    if !(1..=MAX_USER_CODE_BYTES).contains(&code.len()) || !code.bytes().all(typed) {
        return Err(odd("its user_code must have 1 to 64 ASCII characters"));
    }
    if answer.expires_in < 1 {
        return Err(odd("its expires_in must be a number of seconds"));
    }
    let complete = answer.verification_uri_complete.map(|text| https(&text, what)).transpose()?;
    Ok(DeviceCode {
        device_code: answer.device_code,
        user_code: answer.user_code,
        verification_uri: https(&answer.verification_uri, what)?.into(),
        verification_uri_complete: complete.map(Into::into),
        expires_in_seconds: answer.expires_in.min(MAX_WAIT_SECONDS),
        interval_seconds: answer.interval.unwrap_or(INTERVAL_SECONDS).clamp(1, MAX_INTERVAL_SECONDS),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read(more: Value) -> Result<DeviceCode, OidcError> {
        let mut answer = json!({
            "device_code": "d", "user_code": "AB CD-1", "verification_uri": "https://id.example/device", "expires_in": 600,
        });
        if let (Some(answer), Value::Object(more)) = (answer.as_object_mut(), more) {
            answer.extend(more);
        }
        judged(serde_json::from_value(answer).unwrap())
    }

    #[test]
    fn what_a_provider_says_of_a_device_is_bounded() {
        let plain = read(json!({})).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((plain.interval_seconds, plain.expires_in_seconds), (5, 600));
        let long =
            read(json!({"interval": 3600, "expires_in": 86_400})).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((long.interval_seconds, long.expires_in_seconds), (60, 1800));
        let short = read(json!({"interval": -1})).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(short.interval_seconds, 1);
        for bad in [
            json!({"device_code": ""}),
            json!({"device_code": "x".repeat(4097)}),
            json!({"user_code": ""}),
            json!({"user_code": "x".repeat(65)}),
            json!({"user_code": "a\u{1b}[2J"}),
            json!({"verification_uri": "http://id.example/device"}),
            json!({"verification_uri": "javascript:alert(1)"}),
            json!({"verification_uri_complete": "file:///etc"}),
            json!({"expires_in": 0}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
    }
}
