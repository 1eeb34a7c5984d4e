//! Secrets at rest: sealed under a master key, each to the place where it is stored.
//!
//! AES-256-GCM with a drawn 96-bit nonce; the associated data names table, row, column and key, so that a
//! sealed text moved to another place does not open. The text names its key, so that the master key rotates:
//! older keys open, the current one seals. This file never writes a secret anywhere and never makes a key
//! unless told to.

mod carried;
mod chain;
mod master;
#[cfg(test)]
mod tests;

pub use carried::CarriedError;
pub use chain::{ChainKey, LINK_BYTES};
pub use master::{CREDENTIAL, MasterKey, MasterKeyError};

use crate::random::Random;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use std::fmt;
use zeroize::Zeroizing;

/// The version of the sealed form, its first part.
const VERSION: &str = "v1";
/// Where the key-check value is sealed to, and what it says.
const CHECK_PLACE: Place<'static> = Place { table: "relay", row: "master-key", column: "check" };
const CHECK_TEXT: &[u8] = b"relay master key check";

/// Where a sealed secret is stored. It opens nowhere else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The row's primary key, as text.
    pub row: &'a str,
    /// The column's name.
    pub column: &'a str,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{} of {}", self.table, self.column, self.row)
    }
}

/// The master keys that this relay has: one that seals, and older ones that still open.
pub struct KeyRing {
    current: MasterKey,
    older: Vec<MasterKey>,
}

/// Why a secret could not be sealed or opened. No variant holds any of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The stored text is not the sealed form.
    #[error(
        "open {place}: the stored text is not of the form v1.<key id>.<base64>; restore it from a backup"
    )]
    Malformed {
        /// Where it is stored.
        place: String,
    },
    /// It was sealed by a key that this relay was not given.
    #[error(
        "open {place}: sealed by master key {key_id}, which this relay was not given; \
         start it with the master key file that belongs to this store"
    )]
    UnknownKey {
        /// Where it is stored.
        place: String,
        /// The key's id.
        key_id: String,
    },
    /// The text was altered, or belongs to another place.
    #[error(
        "open {place}: the sealed text was altered or moved here from another place; restore it from a backup"
    )]
    Altered {
        /// Where it is stored.
        place: String,
    },
    /// The provider refused to seal (the text is longer than AES-GCM allows).
    #[error("seal {place}: the text is too long")]
    TooLong {
        /// Where it would have been stored.
        place: String,
    },
}

impl KeyRing {
    /// A ring that seals with `current` and opens with any of them.
    #[must_use]
    pub fn new(current: MasterKey, older: Vec<MasterKey>) -> Self {
        Self { current, older }
    }

    /// The id of the key that seals.
    #[must_use]
    pub fn current_id(&self) -> &str {
        self.current.id()
    }

    /// Seals `plain` to `place`: `v1.<key id>.<base64 of nonce, ciphertext and tag>`.
    ///
    /// # Errors
    /// [`SealError::TooLong`] only.
    pub fn seal(&self, place: Place<'_>, plain: &[u8], random: &Random) -> Result<String, SealError> {
        let too_long = || SealError::TooLong { place: place.to_string() };
        let nonce = random.bytes::<NONCE_LEN>();
        let mut text = Zeroizing::new(plain.to_vec());
        let tag = cipher(&self.current)
            .ok_or_else(too_long)?
            .seal_in_place_separate_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(associated_data(place, self.current.id())),
                &mut text,
            )
            .map_err(|_| too_long())?;
        let sealed = [nonce.as_slice(), &text, tag.as_ref()].concat();
        Ok(format!("{VERSION}.{}.{}", self.current.id(), STANDARD.encode(sealed)))
    }

    /// Opens what was sealed to `place`.
    ///
    /// # Errors
    /// Every [`SealError`] but `TooLong`.
    pub fn open(&self, place: Place<'_>, sealed: &str) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let malformed = || SealError::Malformed { place: place.to_string() };
        let (key_id, body) = parts(sealed).ok_or_else(malformed)?;
        let key = self
            .key(key_id)
            .ok_or_else(|| SealError::UnknownKey { place: place.to_string(), key_id: key_id.to_owned() })?;
        let bytes = STANDARD.decode(body).map_err(|_| malformed())?;
        let (nonce, text) = bytes.split_first_chunk::<NONCE_LEN>().ok_or_else(malformed)?;
        let altered = || SealError::Altered { place: place.to_string() };
        let mut text = Zeroizing::new(text.to_vec());
        let plain_len = cipher(key)
            .ok_or_else(altered)?
            .open_in_place(
                Nonce::assume_unique_for_key(*nonce),
                Aad::from(associated_data(place, key_id)),
                &mut text,
            )
            .map_err(|_| altered())?
            .len();
        text.truncate(plain_len);
        Ok(text)
    }

    /// Whether `sealed` should be sealed anew because another key than the current one sealed it.
    #[must_use]
    pub fn is_outdated(&self, sealed: &str) -> bool {
        parts(sealed).is_none_or(|(key_id, _)| key_id != self.current.id())
    }

    /// The value to store at bootstrap, so that a later start can tell whether its key belongs to the store.
    ///
    /// # Errors
    /// As [`KeyRing::seal`].
    pub fn check_value(&self, random: &Random) -> Result<String, SealError> {
        self.seal(CHECK_PLACE, CHECK_TEXT, random)
    }

    /// Whether this ring belongs to the store that holds `stored`. If it does not, the relay must end, and
    /// never make a new CA.
    ///
    /// # Errors
    /// As [`KeyRing::open`].
    pub fn verify_check_value(&self, stored: &str) -> Result<(), SealError> {
        let plain = self.open(CHECK_PLACE, stored)?;
        if plain.as_slice() == CHECK_TEXT {
            Ok(())
        } else {
            Err(SealError::Altered { place: CHECK_PLACE.to_string() })
        }
    }

    fn key(&self, id: &str) -> Option<&MasterKey> {
        std::iter::once(&self.current).chain(&self.older).find(|key| key.id() == id)
    }
}

/// Key id and body of a sealed text.
fn parts(sealed: &str) -> Option<(&str, &str)> {
    let (version, rest) = sealed.split_once('.')?;
    let (key_id, body) = rest.split_once('.')?;
    let is_id = key_id.len() == master::ID_CHARS && key_id.bytes().all(|digit| digit.is_ascii_hexdigit());
    (version == VERSION && is_id).then_some((key_id, body))
}

fn cipher(key: &MasterKey) -> Option<LessSafeKey> {
    UnboundKey::new(&AES_256_GCM, key.expose()).map(LessSafeKey::new).ok()
}

/// Length-prefixed, so that no two places share one encoding.
fn associated_data(place: Place<'_>, key_id: &str) -> Vec<u8> {
    let mut data = Vec::new();
    for part in [VERSION, place.table, place.row, place.column, key_id] {
        data.extend_from_slice(&(part.len() as u64).to_be_bytes());
        data.extend_from_slice(part.as_bytes());
    }
    data
}
