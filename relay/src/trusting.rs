//! TLS of a client: trust in the certificates that it was given, and in no others.

use crate::access;
use rustls::{
    ClientConfig, DEFAULT_VERSIONS, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::{
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The longest file of CA certificates, in bytes.
const MAX_CA_BYTES: u64 = 1 << 20;

/// Why there is no such trust.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// The text holds no certificate, or one that is broken.
    #[error("the CA file must hold PEM certificates")]
    NoCertificates,
    /// The provider has nothing to offer.
    #[error("set up TLS: {0}")]
    SetUp(String),
}

/// Why there is no trust by a file.
#[derive(Debug, thiserror::Error)]
pub enum TrustFileError {
    /// The file can't be read.
    #[error("read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// It is of no use.
    #[error(transparent)]
    Trust(#[from] TrustError),
}

/// Trust in these PEM certificates.
///
/// # Errors
/// There is none among them, or one is broken.
pub fn trusting(pem: &[u8]) -> Result<ClientConfig, TrustError> {
    trusting_by(pem, DEFAULT_VERSIONS)
}

/// Trust in the PEM certificates of a file, by these versions of TLS.
///
/// # Errors
/// It can't be read, there is none in it, or one is broken.
pub fn trusting_file(
    path: &Path,
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, TrustFileError> {
    let pem = access::read_text(path, MAX_CA_BYTES)
        .map_err(|source| TrustFileError::Read { path: path.to_owned(), source })?;
    Ok(trusting_by(pem.as_bytes(), versions)?)
}

/// Trust in these PEM certificates, by these versions of TLS.
///
/// # Errors
/// As [`trusting`].
pub fn trusting_by(
    pem: &[u8],
    versions: &[&'static SupportedProtocolVersion],
) -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|_| TrustError::NoCertificates)?;
        roots.add(certificate).map_err(|_| TrustError::NoCertificates)?;
    }
    if roots.is_empty() {
        return Err(TrustError::NoCertificates);
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(versions)
        .map_err(|error| TrustError::SetUp(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_certificate_is_not_trusted() {
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        for pem in ["", "x", broken] {
            assert_eq!(trusting(pem.as_bytes()).unwrap_err(), TrustError::NoCertificates, "{pem}");
        }
    }
}
