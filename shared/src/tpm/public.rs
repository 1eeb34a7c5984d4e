//! What endorsement keys and node keys have in common: names, key values, the public key's DER form.

use super::fields::{alg, curve};
use crate::csr::{Curve, PublicKey};
use sha2::{Digest as _, Sha256, Sha384};
use std::fmt;

/// The hash of a key's name, and of whatever is derived for the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameHash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

impl NameHash {
    /// Its TPM_ALG_ID.
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::Sha256 => alg::SHA256,
            Self::Sha384 => alg::SHA384,
        }
    }

    /// The digest's length, in bytes.
    #[must_use]
    pub const fn digest_bytes(self) -> usize {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
        }
    }

    fn digest(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
        }
    }
}

/// A key's Name (TPM 2.0 part 1, 16): nameAlg and the digest of its TPMT_PUBLIC.
#[derive(Clone, PartialEq, Eq)]
pub struct Name(Vec<u8>);

impl Name {
    /// The name of the key with this TPMT_PUBLIC.
    pub(super) fn of(hash: NameHash, tpmt_public: &[u8]) -> Self {
        Self([hash.id().to_be_bytes().as_slice(), &hash.digest(tpmt_public)].concat())
    }

    /// The bytes, without a TPM2B's size.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&crate::hex::encode(&self.0))
    }
}

/// An RSA modulus with the exponent 65537: odd, and exactly as long as its template says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RsaModulus(Vec<u8>);

/// AlgorithmIdentifier of rsaEncryption (RFC 8017, A.1): the OID and NULL.
const RSA_ENCRYPTION: &[u8] =
    &[0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00];
/// INTEGER 65537.
const EXPONENT: &[u8] = &[0x02, 0x03, 0x01, 0x00, 0x01];

impl RsaModulus {
    /// A modulus of exactly `bits` bits; `None` for another size or an even number.
    pub(super) fn new(bits: u16, modulus: &[u8]) -> Option<Self> {
        let (first, last) = (modulus.first()?, modulus.last()?);
        let fits = modulus.len() * 8 == usize::from(bits) && *first >= 0x80 && *last % 2 == 1;
        fits.then(|| Self(modulus.to_vec()))
    }

    /// Big-endian, without leading zeros.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The SubjectPublicKeyInfo in its rsaEncryption form.
    #[must_use]
    pub fn spki_der(&self) -> Vec<u8> {
        // The first bit is set: a zero byte keeps the INTEGER positive.
        let modulus = der(0x02, &[&[0], self.0.as_slice()].concat());
        let key = der(0x30, &[modulus.as_slice(), EXPONENT].concat());
        let bits = der(0x03, &[&[0], key.as_slice()].concat());
        der(0x30, &[RSA_ENCRYPTION, &bits].concat())
    }
}

/// A DER element, its length in the fewest bytes.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    let significant =
        length.iter().position(|byte| *byte != 0).map_or(&[0u8][..], |at| length.split_at(at).1);
    let mut element = vec![tag];
    match significant {
        [short @ 0..=0x7f] => element.push(*short),
        long => {
            // At most eight length bytes.
            element.push(0x80 | u8::try_from(long.len()).unwrap_or_default());
            element.extend_from_slice(long);
        }
    }
    element.extend_from_slice(content);
    element
}

/// The key of a TPMS_ECC_POINT; `None` for a curve that is not taken or a coordinate that does not fit.
///
/// TPMs write coordinates at full length or, older ones, without leading zeros. Nothing else is a coordinate.
pub(super) fn point(curve_id: u16, x: &[u8], y: &[u8]) -> Option<PublicKey> {
    let (curve, bytes) = match curve_id {
        curve::P256 => (Curve::P256, 32),
        curve::P384 => (Curve::P384, 48),
        _ => return None,
    };
    let mut sec1 = vec![4];
    for coordinate in [x, y] {
        let short = coordinate.len() < bytes;
        let fits = coordinate.first().is_some_and(|first| !short || *first != 0);
        let padding = bytes.checked_sub(coordinate.len()).filter(|_| fits)?;
        sec1.resize(sec1.len() + padding, 0);
        sec1.extend_from_slice(coordinate);
    }
    PublicKey::from_point(curve, &sec1)
}
