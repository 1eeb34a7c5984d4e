//! TLS of a client: trust in the certificates that it was given, and in no others.

use rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use std::sync::Arc;

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

/// Trust in these PEM certificates.
///
/// # Errors
/// There is none among them, or one is broken.
pub fn trusting(pem: &[u8]) -> Result<ClientConfig, TrustError> {
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
        .with_safe_default_protocol_versions()
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
