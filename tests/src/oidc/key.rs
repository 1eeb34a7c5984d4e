//! The key of a provider that lies, and how it signs.

use super::Lie;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use std::error::Error;

/// A key that signs.
pub(super) struct Key {
    /// Its id.
    pub(super) id: String,
    signs: EncodingKey,
    /// As it is published.
    pub(super) jwk: Value,
    public: Vec<u8>,
}

/// Draws a key of this id.
pub(super) fn draw(id: &str) -> Result<Key, Box<dyn Error>> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING)?;
    let document = pair.to_pkcs8v1()?;
    let public = pair.public_key().as_ref().to_vec();
    let part = |range: std::ops::Range<usize>| {
        public.get(range).map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).unwrap_or_default()
    };
    let jwk = json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": id, "x": part(1..33), "y": part(33..65)});
    Ok(Key { id: id.to_owned(), signs: EncodingKey::from_ec_der(document.as_ref()), jwk, public })
}

/// The token of these claims, signed as the lie has it.
pub(super) fn signed(key: &Key, lie: Lie, claims: &Value) -> Result<String, Box<dyn Error>> {
    let header = |algorithm, id: &str| Header { kid: Some(id.to_owned()), ..Header::new(algorithm) };
    Ok(match lie {
        Lie::Unsigned => {
            let head = json!({"alg": "none", "typ": "JWT", "kid": key.id});
            let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
            format!("{}.{}.", part(&head), part(claims))
        }
        Lie::SignedWithThePublicKey => jsonwebtoken::encode(
            &header(Algorithm::HS256, &key.id),
            claims,
            &EncodingKey::from_secret(&key.public)?,
        )?,
        Lie::SignedByAnother => {
            jsonwebtoken::encode(&header(Algorithm::ES256, &key.id), claims, &draw("other")?.signs)?
        }
        Lie::UnknownKey => jsonwebtoken::encode(&header(Algorithm::ES256, "unknown"), claims, &key.signs)?,
        _ => jsonwebtoken::encode(&header(Algorithm::ES256, &key.id), claims, &key.signs)?,
    })
}
