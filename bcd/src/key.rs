//! The node's key: one small trait, the key in a file behind it, and the choice between that and a key in a TPM.
//!
//! A key signs; it is never handed out. The same key signs the request (rcgen) and the handshake (rustls), each through
//! that library's own trait.
//!
//! The choice is made once, when there is no key yet; from then on the key says it. The key is the node: a machine that
//! has one in a file keeps it when it is given a TPM, or it would be another node after an upgrade; one whose key is in
//! its TPM never goes on with a file because the TPM does not answer, or whoever can disturb a chip could turn a machine
//! that proves itself into one that doesn't. For the same reason `auto` takes a file only where there is no TPM 2.0 at
//! all; where there is one that does not work, a person decides.

use crate::{
    config::TpmMode,
    state::{KEY, StateDir, StateError, TPM_KEY, read_file},
    tpm::{Tcti, Tpm, TpmError, TpmKey},
};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PublicKeyData, SigningKey as _};
use rustls::{
    OtherError, SignatureAlgorithm, SignatureScheme,
    sign::{Signer, SigningKey},
};
use shared::{
    csr::{Curve, PublicKey},
    secret::Secret,
};
use std::{
    cell::Cell,
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A P-256 key that signs with ECDSA and SHA-256.
pub trait NodeKey: Send + Sync {
    /// Its public half.
    fn public_key(&self) -> &PublicKey;

    /// The signature over the SHA-256 of the message, in DER. It may block: a TPM takes a second.
    ///
    /// # Errors
    /// The key does not answer.
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError>;

    /// The key as one in a TPM, if it is; such a key is not used on the runtime's thread.
    fn in_tpm(&self) -> Option<&TpmKey> {
        None
    }
}

/// Why there is no key, or no signature.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The TPM does not do as it should, or there is none.
    #[error(transparent)]
    Tpm(#[from] TpmError),
    /// The settings want a TPM, and the machine has a key already.
    #[error(
        "tpm = \"required\" cannot be met: this machine's key is in {0}; set tpm = \"auto\" in /etc/bcd/bcd.toml (or --tpm), or \
         `bcd reset` and join with a fresh token, which needs the right to reclaim (`relay join-tokens create --allow-reclaim`) \
         if this machine has joined: the relay knows it by its old key"
    )]
    InFile(PathBuf),
    /// The settings want no TPM, and the key is in one.
    #[error(
        "tpm = \"off\" cannot be met: this machine's key is in its TPM ({0}); set tpm = \"auto\" in /etc/bcd/bcd.toml (or --tpm), \
         or `bcd reset` and join with a fresh token, which needs the right to reclaim (`relay join-tokens create \
         --allow-reclaim`) if this machine has joined: the relay knows it by its old key"
    )]
    InTpm(PathBuf),
    /// The file is there and is no key.
    #[error("{0} holds no P-256 key as bcd writes it: put the right file back, or `bcd reset`")]
    Damaged(PathBuf),
    /// A key cannot be made or used.
    #[error("the node key cannot be used: {0}")]
    Crypto(String),
    /// The file cannot be read or written.
    #[error(transparent)]
    State(#[from] StateError),
}

/// A key that is new, and must be kept before its first use.
pub struct Fresh {
    key: Arc<dyn NodeKey>,
    file: &'static str,
    text: Secret,
}

impl Fresh {
    /// The key, once it is in this folder.
    ///
    /// # Errors
    /// It can't be written.
    pub fn keep(self, dir: &StateDir) -> Result<Arc<dyn NodeKey>, KeyError> {
        dir.write(self.file, self.text.expose().as_bytes(), 0o600)?;
        Ok(self.key)
    }
}

/// Makes a key, in the TPM or not. It blocks for a minute at most.
///
/// # Errors
/// The TPM fails, or there is none and the settings want one.
pub fn make(mode: TpmMode, tcti: &Tcti) -> Result<Fresh, KeyError> {
    match mode {
        TpmMode::Off => FileKey::make(),
        TpmMode::Required => make_in_tpm(tcti),
        TpmMode::Auto => match make_in_tpm(tcti) {
            Err(KeyError::Tpm(error)) if error.is_absent() => {
                tracing::info!("the node key is kept in a file: {error}");
                FileKey::make()
            }
            made => made,
        },
    }
}

/// The key of this folder, if there is one; it needs no lock.
///
/// # Errors
/// A file is no key, or the settings don't go with the key that is there.
pub fn load(folder: &Path, mode: TpmMode, tcti: &Tcti) -> Result<Option<Arc<dyn NodeKey>>, KeyError> {
    let (tpm, file) = (folder.join(TPM_KEY), folder.join(KEY));
    if let Some(bytes) = read_file(&tpm)? {
        if mode == TpmMode::Off {
            return Err(KeyError::InTpm(tpm));
        }
        let key = TpmKey::from_file(Tpm::new(tcti.clone()), &bytes).ok_or(KeyError::Damaged(tpm))?;
        return Ok(Some(Arc::new(key)));
    }
    let Some(bytes) = read_file(&file)? else { return Ok(None) };
    match mode {
        TpmMode::Required => Err(KeyError::InFile(file)),
        TpmMode::Auto | TpmMode::Off => Ok(Some(Arc::new(FileKey::read(bytes, || file.clone())?))),
    }
}

fn make_in_tpm(tcti: &Tcti) -> Result<Fresh, KeyError> {
    let key = TpmKey::create(Tpm::new(tcti.clone()))?;
    let text = Secret::new(key.to_file());
    Ok(Fresh { key: Arc::new(key), file: TPM_KEY, text })
}

/// The key of this folder; made and kept if there is none.
#[cfg(test)]
pub(crate) fn load_or_make(dir: &StateDir, mode: TpmMode, tcti: &Tcti) -> Result<Arc<dyn NodeKey>, KeyError> {
    match load(dir.path(), mode, tcti)? {
        Some(key) => Ok(key),
        None => make(mode, tcti)?.keep(dir),
    }
}

/// A key in memory, out of its file.
struct FileKey {
    pair: KeyPair,
    public: PublicKey,
}

impl FileKey {
    fn make() -> Result<Fresh, KeyError> {
        let pair =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| KeyError::Crypto(e.to_string()))?;
        let text = Secret::new(pair.serialize_pem());
        let key = Self::new(pair).ok_or_else(|| KeyError::Crypto("it is not on P-256".to_owned()))?;
        Ok(Fresh { key: Arc::new(key), file: KEY, text })
    }

    fn read(bytes: Vec<u8>, path: impl Fn() -> PathBuf) -> Result<Self, KeyError> {
        let text = Secret::new(String::from_utf8(bytes).map_err(|_| KeyError::Damaged(path()))?);
        let pair = KeyPair::from_pem(text.expose()).map_err(|_| KeyError::Damaged(path()))?;
        Self::new(pair).ok_or_else(|| KeyError::Damaged(path()))
    }

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

/// The key as rcgen wants it, which has no place for the reason why a key did not sign.
pub(crate) struct RequestKey<'a> {
    key: &'a dyn NodeKey,
    failure: Cell<Option<KeyError>>,
}

impl<'a> RequestKey<'a> {
    pub(crate) fn new(key: &'a dyn NodeKey) -> Self {
        Self { key, failure: Cell::new(None) }
    }

    /// Why the key did not sign, if it did not.
    pub(crate) fn failure(&self) -> Option<KeyError> {
        self.failure.take()
    }
}

impl PublicKeyData for RequestKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.key.public_key().point()
    }
    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}

impl rcgen::SigningKey for RequestKey<'_> {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        self.key.sign(message).map_err(|error| {
            self.failure.set(Some(error));
            rcgen::Error::RemoteKeyError
        })
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
        self.0.sign(message).map_err(|error| match error {
            KeyError::Tpm(error) => rustls::Error::Other(OtherError(Arc::new(error))),
            error => rustls::Error::General(error.to_string()),
        })
    }
    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ECDSA_NISTP256_SHA256
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    /// On a machine without a TPM.
    fn open(dir: &StateDir, mode: TpmMode) -> Result<Arc<dyn NodeKey>, KeyError> {
        load_or_make(dir, mode, &Tcti::Device("/nonexistent/tpmrm0".into()))
    }

    #[test]
    fn a_key_is_kept_before_it_is_used_and_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        let made = open(&dir, TpmMode::Auto).unwrap();
        let path = folder.path().join(KEY);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("-----BEGIN PRIVATE KEY-----"));
        let read = open(&dir, TpmMode::Off).unwrap();
        assert_eq!(made.public_key(), read.public_key());
        assert!(!made.sign(b"x").unwrap().is_empty());
    }

    #[test]
    fn a_key_that_cannot_be_kept_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        dir.writes_left.set(0);
        assert!(matches!(open(&dir, TpmMode::Auto), Err(KeyError::State(_))));
    }

    #[test]
    fn another_file_in_its_place_is_named_and_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap().serialize_pem();
        for text in ["", "nonsense", &p384] {
            std::fs::write(folder.path().join(KEY), text).unwrap();
            let error = open(&dir, TpmMode::Auto).err().unwrap();
            assert!(matches!(error, KeyError::Damaged(_)), "{error}");
            assert_eq!(std::fs::read_to_string(folder.path().join(KEY)).unwrap(), text);
        }
    }

    #[test]
    fn without_a_tpm_a_required_one_is_refused_before_any_key_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        let error = open(&dir, TpmMode::Required).err().unwrap();
        assert!(matches!(error, KeyError::Tpm(TpmError::Missing(_))), "{error}");
        assert!(!folder.path().join(KEY).exists());
    }

    #[test]
    fn the_key_that_is_there_says_where_it_is_and_settings_do_not_change_it() {
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        open(&dir, TpmMode::Off).unwrap();
        assert!(matches!(open(&dir, TpmMode::Required), Err(KeyError::InFile(_))));
        // Whatever a TPM key's file holds, a file key beside it is not taken.
        for text in ["", "{}", "{\"version\": 1, \"private\": \"AA==\", \"public\": \"AA==\"}"] {
            std::fs::write(folder.path().join(TPM_KEY), text).unwrap();
            for mode in [TpmMode::Auto, TpmMode::Required] {
                assert!(matches!(open(&dir, mode), Err(KeyError::Damaged(_))), "{text}");
            }
            assert!(matches!(open(&dir, TpmMode::Off), Err(KeyError::InTpm(_))));
        }
        dir.forget(true).unwrap();
        assert!(folder.path().join(KEY).exists() && folder.path().join(TPM_KEY).exists());
        dir.forget(false).unwrap();
        assert!(!folder.path().join(KEY).exists() && !folder.path().join(TPM_KEY).exists());
    }
}
