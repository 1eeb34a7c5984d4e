//! TPM2_MakeCredential without a TPM (TPM 2.0 part 1, 24 and annexes B.10.4 and C.7.4).
//!
//! A secret is wrapped so that only a TPM opens it that holds the endorsement key and a key of the given Name.
//! All sizes and algorithms are those of the endorsement key's template.

use super::kdf::{hmac, kdf_a, kdf_e};
use crate::random::Random;
use aws_lc_rs::{
    agreement::{self, ECDH_P256, ECDH_P384, PrivateKey, UnparsedPublicKey},
    cipher::{AES_128, AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey},
    iv::FixedLength,
    rsa::{OAEP_SHA256_MGF1SHA256, OAEP_SHA384_MGF1SHA384, OaepPublicEncryptingKey, PublicEncryptingKey},
};
use shared::{
    csr::{Curve, PublicKey},
    tpm::{EndorsementKey, EndorsementPublic, Name, NameHash},
};
use zeroize::Zeroizing;

/// Bytes of the secret that is wrapped.
pub const SECRET_BYTES: usize = 32;

/// The labels of TPM 2.0, each with its zero byte.
const IDENTITY: &[u8] = b"IDENTITY\0";
const STORAGE: &[u8] = b"STORAGE\0";
const INTEGRITY: &[u8] = b"INTEGRITY\0";

/// The most scalars that are drawn for one ephemeral key. One is refused in 2³² draws.
const MAX_DRAWS: usize = 8;

/// What TPM2_ActivateCredential takes, both without a TPM2B's size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// TPMS_ID_OBJECT.
    pub blob: Vec<u8>,
    /// TPM2B_ENCRYPTED_SECRET: the seed for the endorsement key.
    pub encrypted_secret: Vec<u8>,
}

/// Why no credential could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialError {
    /// The endorsement key is no point of its curve, or no modulus that the provider takes.
    #[error("make a credential: the endorsement key is no key of its kind")]
    Key,
    /// The provider refused what it never refuses.
    #[error("make a credential: the crypto provider failed at {0}")]
    Provider(&'static str),
}

/// Wraps `secret` for the TPM that holds `ek` and a key with this `name`.
///
/// The seed and, for ECC, the ephemeral key come from `random`; the padding of OAEP is drawn by aws-lc-rs.
///
/// # Errors
/// The endorsement key is no key of its kind, or the provider fails.
pub fn make_credential(
    ek: &EndorsementPublic,
    name: &Name,
    secret: &[u8; SECRET_BYTES],
    random: &Random,
) -> Result<Credential, CredentialError> {
    let (seed, encrypted_secret) = match ek.key() {
        EndorsementKey::Rsa(_) => seed_for_rsa(ek, random)?,
        EndorsementKey::Ec(key) => seed_for_ec(ek.template().name_hash, key, random)?,
    };
    Ok(Credential { blob: wrap(ek, &seed, name, secret)?, encrypted_secret })
}

/// TPMS_ID_OBJECT: an HMAC over the encrypted TPM2B of the secret and the Name, then what it is over.
fn wrap(
    ek: &EndorsementPublic,
    seed: &[u8],
    name: &Name,
    secret: &[u8; SECRET_BYTES],
) -> Result<Vec<u8>, CredentialError> {
    let (hash, aes_bits) = (ek.template().name_hash, ek.template().aes_bits);
    let key = kdf_a(hash, seed, STORAGE, name.as_bytes(), usize::from(aes_bits) / 8);
    let mut identity = Zeroizing::new(sized(secret));
    encrypt(&key, &mut identity)?;
    let key = kdf_a(hash, seed, INTEGRITY, &[], hash.digest_bytes());
    let integrity = hmac(hash, &key, &[&identity, name.as_bytes()]);
    Ok([sized(&integrity).as_slice(), &identity].concat())
}

/// AES-CFB under a zero IV: each key encrypts one text.
fn encrypt(key: &[u8], text: &mut [u8]) -> Result<(), CredentialError> {
    let failed = |_| CredentialError::Provider("AES-CFB");
    let algorithm = if key.len() == 16 { &AES_128 } else { &AES_256 };
    let key = UnboundCipherKey::new(algorithm, key).map_err(failed)?;
    let context = EncryptionContext::Iv128(FixedLength::from([0; 16]));
    EncryptingKey::cfb128(key).and_then(|key| key.less_safe_encrypt(text, context)).map_err(failed).map(drop)
}

/// A drawn seed, and the same under RSA-OAEP (annex B.10.4).
fn seed_for_rsa(
    ek: &EndorsementPublic,
    random: &Random,
) -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), CredentialError> {
    let hash = ek.template().name_hash;
    let oaep = match hash {
        NameHash::Sha256 => &OAEP_SHA256_MGF1SHA256,
        NameHash::Sha384 => &OAEP_SHA384_MGF1SHA384,
    };
    let mut seed = Zeroizing::new(vec![0; hash.digest_bytes()]);
    random.fill(&mut seed);
    let key = PublicEncryptingKey::from_der(&ek.spki_der()).map_err(|_| CredentialError::Key)?;
    let key = OaepPublicEncryptingKey::new(key).map_err(|_| CredentialError::Key)?;
    let mut encrypted = vec![0; key.ciphertext_size()];
    key.encrypt(oaep, &seed, &mut encrypted, Some(IDENTITY))
        .map_err(|_| CredentialError::Provider("RSA-OAEP"))?;
    Ok((seed, encrypted))
}

/// A seed that is agreed on with an ephemeral key, and the ephemeral key's TPMS_ECC_POINT (annex C.7.4).
fn seed_for_ec(
    hash: NameHash,
    key: &PublicKey,
    random: &Random,
) -> Result<(Zeroizing<Vec<u8>>, Vec<u8>), CredentialError> {
    let algorithm = match key.curve() {
        Curve::P256 => &ECDH_P256,
        Curve::P384 => &ECDH_P384,
    };
    let failed = CredentialError::Provider("ECDH");
    let coordinate = key.point().len() / 2;
    let private = draw_key(algorithm, coordinate, random).ok_or(failed)?;
    let public = private.compute_public_key().map_err(|_| failed)?;
    let halves = |point: &[u8]| {
        let (x, y) = point.get(1..)?.split_at_checked(coordinate)?;
        Some((x.to_vec(), y.to_vec()))
    };
    let ((x, y), (ek_x, _)) = halves(public.as_ref()).zip(halves(key.point())).ok_or(failed)?;
    let peer = UnparsedPublicKey::new(algorithm, key.point());
    let seed =
        agreement::agree(&private, peer, CredentialError::Key, |z| Ok(kdf_e(hash, z, IDENTITY, &x, &ek_x)))?;
    Ok((seed, [sized(&x), sized(&y)].concat()))
}

/// An ephemeral key. A scalar that is zero or not below the order is drawn again.
fn draw_key(algorithm: &'static agreement::Algorithm, bytes: usize, random: &Random) -> Option<PrivateKey> {
    (0..MAX_DRAWS).find_map(|_| {
        let mut scalar = Zeroizing::new(vec![0; bytes]);
        random.fill(&mut scalar);
        PrivateKey::from_private_key(algorithm, &scalar).ok()
    })
}

/// A TPM2B. What is wrapped and what is written is far shorter than 64 KiB.
fn sized(bytes: &[u8]) -> Vec<u8> {
    let size = u16::try_from(bytes.len()).unwrap_or_default();
    [&size.to_be_bytes(), bytes].concat()
}

#[cfg(test)]
mod tests;
