//! The node's key: one small trait, and the key in a file behind it.
//!
//! A key signs; it is never handed out. The same key signs the request (rcgen) and the handshake (rustls), each through
//! that library's own trait.

use crate::{
    config::TpmMode,
    state::{KEY, StateDir, StateError},
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SigningKey as _};
use rustls::{
    SignatureAlgorithm, SignatureScheme,
    sign::{Signer, SigningKey},
};
use shared::{
    csr::{Curve, PublicKey},
    secret::Secret,
};
use std::{fmt, path::PathBuf, sync::Arc};

/// A P-256 key that signs with ECDSA and SHA-256.
pub trait NodeKey: Send + Sync {
    /// Its public half.
    fn public_key(&self) -> &PublicKey;

    /// The signature over the SHA-256 of the message, in DER.
    ///
    /// # Errors
    /// The key does not answer.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError>;
}

/// Why there is no key, or no signature.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The settings want a TPM.
    #[error("tpm = \"required\" cannot be met: this bcd keeps its key in a file; set tpm to auto or off")]
    TpmRequired,
    /// The file is there and is no key.
    #[error("{0} holds no P-256 private key in PKCS#8 PEM: put the right file back, or `bcd reset`")]
    Damaged(PathBuf),
    /// A key cannot be made or used.
    #[error("the node key cannot be used: {0}")]
    Crypto(String),
    /// The file cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// The key of this folder; made and kept before its first use if there is none.
///
/// # Errors
/// The file is no key or can't be written, or the settings want a TPM.
pub fn load_or_create(dir: &StateDir, tpm: TpmMode) -> Result<Arc<dyn NodeKey>, KeyError> {
    if tpm == TpmMode::Required {
        return Err(KeyError::TpmRequired);
    }
    if let Some(bytes) = dir.read(KEY)? {
        let damaged = || KeyError::Damaged(dir.path().join(KEY));
        let text = Secret::new(String::from_utf8(bytes).map_err(|_| damaged())?);
        let pair = KeyPair::from_pem(text.expose()).map_err(|_| damaged())?;
        return FileKey::new(pair).map(|key| Arc::new(key) as Arc<dyn NodeKey>).ok_or_else(damaged);
    }
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| KeyError::Crypto(e.to_string()))?;
    let text = Secret::new(pair.serialize_pem());
    dir.write(KEY, text.expose().as_bytes(), 0o600)?;
    FileKey::new(pair)
        .map(|key| Arc::new(key) as Arc<dyn NodeKey>)
        .ok_or_else(|| KeyError::Damaged(dir.path().join(KEY)))
}

/// A key in memory, out of its file.
struct FileKey {
    pair: KeyPair,
    public: PublicKey,
}

impl FileKey {
    /// `None` if it is not on P-256.
    fn new(pair: KeyPair) -> Option<Self> {
        let on_curve = *pair.algorithm() == PKCS_ECDSA_P256_SHA256;
        let public = PublicKey::from_point(Curve::P256, pair.public_key_raw()).filter(|_| on_curve)?;
        Some(Self { pair, public })
    }
}

impl NodeKey for FileKey {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        self.pair.sign(message).map_err(|error| KeyError::Crypto(error.to_string()))
    }
}

/// The key as rcgen wants it.
pub(crate) struct RequestKey<'a>(pub(crate) &'a dyn NodeKey);

impl PublicKeyData for RequestKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.public_key().point()
    }
    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for RequestKey<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.0.sign(message).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// The key as rustls wants it.
#[derive(Clone)]
pub(crate) struct HandshakeKey(pub(crate) Arc<dyn NodeKey>);

impl fmt::Debug for HandshakeKey {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("HandshakeKey")
    }
}

impl SigningKey for HandshakeKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        offered
            .contains(&SignatureScheme::ECDSA_NISTP256_SHA256)
            .then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }
    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ECDSA
    }
}

impl Signer for HandshakeKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        self.0.sign(message).map_err(|error| rustls::Error::General(error.to_string()))
    }
    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP256_SHA256
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_key_is_kept_before_it_is_used_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        let made = load_or_create(&dir, TpmMode::Auto).unwrap();
        let path = folder.path().join(KEY);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
        let read = load_or_create(&dir, TpmMode::Off).unwrap();
        assert_eq!(made.public_key(), read.public_key());
        assert!(!made.sign(b"x").unwrap().is_empty());
    }

    #[test]
    fn a_key_that_cannot_be_kept_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        dir.writes_left.set(0);
        assert!(matches!(load_or_create(&dir, TpmMode::Auto), Err(KeyError::State(_))));
    }

    #[test]
    fn another_file_in_its_place_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        for text in ["", "nonsense", &p384] {
            std::fs::write(folder.path().join(KEY), text).unwrap();
            let error = load_or_create(&dir, TpmMode::Auto).err().unwrap();
            assert!(matches!(error, KeyError::Damaged(_)), "{error}");
            assert_eq!(std::fs::read_to_string(folder.path().join(KEY)).unwrap(), text);
        }
    }

    #[test]
    fn without_a_tpm_a_required_one_is_refused_before_any_key_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        assert!(matches!(load_or_create(&dir, TpmMode::Required), Err(KeyError::TpmRequired)));
        assert!(!folder.path().join(KEY).exists());
    }
}
