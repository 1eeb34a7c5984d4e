//! The signature of a delivery, as the Standard Webhooks specification has it: HMAC-SHA256 over id, time and body, by a key
//! that the receiver was shown once. Pure.

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use shared::secret::Secret;
use zeroize::Zeroizing;

/// A key's length, in bytes.
pub const KEY_BYTES: usize = 32;

/// What a webhook's deliveries are signed with.
pub struct SigningKey(Zeroizing<Vec<u8>>);

impl SigningKey {
    /// These bytes.
    #[must_use]
    pub fn new(bytes: Zeroizing<Vec<u8>>) -> Self {
        Self(bytes)
    }

    /// The bytes, to be sealed.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// As its owner is shown it: `whsec_` and the bytes in base64.
    #[must_use]
    pub fn shown(&self) -> Secret {
        Secret::new(format!("whsec_{}", STANDARD.encode(self.expose())))
    }

    /// The header `webhook-signature` of a delivery: of the event's id, the time in seconds since 1970, and the body.
    #[must_use]
    pub fn signature(&self, id: &str, seconds: i64, body: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.expose());
        let tag = hmac::sign(&key, format!("{id}.{seconds}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag.as_ref()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example that the specification's reference implementations are tested with.
    #[test]
    fn the_signature_is_the_specifications() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let key = SigningKey::new(Zeroizing::new(key));
        assert_eq!(key.shown().expose(), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        assert_eq!(
            key.signature("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#),
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
    }
}
