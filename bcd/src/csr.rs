//! The certificate request: the key, its proof, and a random name that makes no two requests alike.
//!
//! The relay takes nothing of it but key and proof.

use crate::{
    host::{Host, NoRandomness},
    key::{KeyError, NodeKey, RequestKey},
};
use rcgen::{CertificateParams, DistinguishedName, DnType};
use shared::hex;

/// Why there is no request.
#[derive(Debug, thiserror::Error)]
pub enum CsrError {
    /// The name can't be drawn.
    #[error(transparent)]
    Random(#[from] NoRandomness),
    /// The key did not sign.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It can't be written.
    #[error("the certificate request cannot be made: {0}")]
    Crypto(#[from] rcgen::Error),
}

/// A fresh request, PEM. Keep it before it is sent.
///
/// # Errors
/// The key or the system's randomness fails.
pub fn make(key: &dyn NodeKey, host: &dyn Host) -> Result<String, CsrError> {
    let mut name = [0; 16];
    host.random(&mut name)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, hex::encode(&name));
    let key = RequestKey::new(key);
    match params.serialize_request(&key) {
        Ok(request) => Ok(request.pem()?),
        Err(error) => Err(key.failure().map_or(CsrError::Crypto(error), CsrError::Key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::TpmMode, host::System, key, state::StateDir, tpm::Tcti};
    use shared::csr::CertificateRequest;

    #[test]
    fn requests_of_one_key_are_good_and_never_alike() {
        let folder = tempfile::tempdir().unwrap();
        let key = key::load_or_make(&StateDir::open(folder.path()).unwrap(), TpmMode::Off, &Tcti::default())
            .unwrap();
        let [one, two] = [0; 2].map(|_| CertificateRequest::parse(&make(&*key, &System).unwrap()).unwrap());
        assert_eq!(&one.key, key.public_key());
        assert_eq!(one.key, two.key);
        assert_ne!(one.digest(), two.digest());
        let verifier = aws_lc_rs::signature::UnparsedPublicKey::new(
            &aws_lc_rs::signature::ECDSA_P256_SHA256_ASN1,
            one.key.point(),
        );
        verifier.verify(&one.info_der, &one.signature).unwrap();
    }
}
