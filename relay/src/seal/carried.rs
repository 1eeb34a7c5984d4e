//! What is sealed to leave the relay and to come back: a client carries it, any relay with the same master key opens
//! it, and nothing is stored.
//!
//! Every text has a key of its own, derived from the master key and 32 drawn bytes: however many a busy relay makes,
//! no key of the store and no nonce is ever used for two of them.

use super::{KeyRing, MasterKey, VERSION, parts};
use crate::random::Random;
use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hkdf,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

/// The drawn part of a text's key.
const SALT_BYTES: usize = 32;

/// Why a carried text could not be sealed or does not open. What it says goes to the log, never to the client.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CarriedError {
    /// Not the form of a sealed text.
    #[error("it is not of the form v1.<key id>.<base64>")]
    Malformed,
    /// Sealed by a master key that this relay was not given.
    #[error("it was sealed by master key {0}, which this relay was not given")]
    UnknownKey(String),
    /// Altered, or sealed for another purpose.
    #[error("it was altered, or sealed for something else")]
    Altered,
    /// The provider refused to seal.
    #[error("the crypto provider refused to seal it")]
    Provider,
}

impl KeyRing {
    /// Seals `plain` for one purpose: `v1.<key id>.<base64 of salt, ciphertext and tag>`.
    ///
    /// # Errors
    /// [`CarriedError::Provider`] only.
    pub fn seal_carried(&self, purpose: &str, plain: &[u8], random: &Random) -> Result<String, CarriedError> {
        let salt = random.bytes::<SALT_BYTES>();
        let mut text = Zeroizing::new(plain.to_vec());
        let tag = cipher(&self.current, purpose, &salt)
            .ok_or(CarriedError::Provider)?
            .seal_in_place_separate_tag(only_nonce(), Aad::from(purpose.as_bytes()), &mut text)
            .map_err(|_| CarriedError::Provider)?;
        let sealed = STANDARD.encode([salt.as_slice(), &text, tag.as_ref()].concat());
        Ok(format!("{VERSION}.{}.{sealed}", self.current.id()))
    }

    /// Opens what was sealed for this purpose by any key of the ring.
    ///
    /// # Errors
    /// Every [`CarriedError`] but `Provider`.
    pub fn open_carried(&self, purpose: &str, sealed: &str) -> Result<Zeroizing<Vec<u8>>, CarriedError> {
        let (key_id, body) = parts(sealed).ok_or(CarriedError::Malformed)?;
        let key = self.key(key_id).ok_or_else(|| CarriedError::UnknownKey(key_id.to_owned()))?;
        let bytes = STANDARD.decode(body).map_err(|_| CarriedError::Malformed)?;
        let (salt, text) = bytes.split_first_chunk::<SALT_BYTES>().ok_or(CarriedError::Malformed)?;
        let mut text = Zeroizing::new(text.to_vec());
        let plain_len = cipher(key, purpose, salt)
            .ok_or(CarriedError::Altered)?
            .open_in_place(only_nonce(), Aad::from(purpose.as_bytes()), &mut text)
            .map_err(|_| CarriedError::Altered)?
            .len();
        text.truncate(plain_len);
        Ok(text)
    }
}

/// The cipher of one text.
fn cipher(key: &MasterKey, purpose: &str, salt: &[u8; SALT_BYTES]) -> Option<LessSafeKey> {
    let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(key.expose());
    let info = [b"relay carried text\0", purpose.as_bytes(), b"\0", key.id().as_bytes()];
    let key = derived.expand(&info, &AES_256_GCM).ok().map(UnboundKey::from)?;
    Some(LessSafeKey::new(key))
}

/// A key that seals one text needs no more than one nonce.
fn only_nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}
