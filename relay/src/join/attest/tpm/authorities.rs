//! The endorsement authorities of a pool: certificates of CAs, given as a PEM bundle.
//!
//! What is taken is what a path can use. Everything that is wrong with a bundle is named at once; nothing of it is
//! ever shown again, since a private key may have got into it.

use super::certificate::{Certificate, InvalidCertificate};
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use sha2::{Digest as _, Sha256};
use shared::{hex, time::Timestamp};

/// The most certificates of a bundle.
pub const MAX_AUTHORITIES: usize = 32;
/// The longest bundle, in bytes of PEM.
pub const MAX_BUNDLE_BYTES: usize = 192 * 1024;

/// A CA that vouches for endorsement keys. Parsed once, when it is loaded.
#[derive(Clone, Debug)]
pub struct Authority {
    certificate: Certificate,
    der: Vec<u8>,
}

/// What is wrong with a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBundle {
    /// Over [`MAX_BUNDLE_BYTES`].
    #[error("must be at most {MAX_BUNDLE_BYTES} bytes of PEM")]
    TooLong,
    /// None at all.
    #[error("must hold at least one PEM block CERTIFICATE")]
    Empty,
    /// Over [`MAX_AUTHORITIES`].
    #[error("must hold at most {MAX_AUTHORITIES} certificates; give the rest in another bundle")]
    TooMany,
    /// A block, counted from 1, that is broken.
    #[error("block {0}: must be PEM: a BEGIN line, base64, and its END line")]
    Pem(usize),
    /// A block of another kind.
    #[error("block {0}: must be a CERTIFICATE; take everything else out of the bundle")]
    Kind(usize),
    /// A certificate that can't be read.
    #[error("block {0}: {1}")]
    Certificate(usize, InvalidCertificate),
    /// A certificate of no CA.
    #[error("block {0}: must be of a CA: basicConstraints with cA, and keyCertSign if there is a keyUsage")]
    NotCa(usize),
    /// A CA whose signatures no path takes.
    #[error("block {0}: must have an RSA key or an EC key on P-256, P-384 or P-521")]
    Key(usize),
    /// The same certificate as an earlier block.
    #[error("block {0}: is the same certificate as block {1}")]
    Repeated(usize, usize),
}

impl Authority {
    /// Reads one certificate, as it was stored.
    ///
    /// # Errors
    /// It is none that a path can use. The block's number is 1.
    pub fn from_der(der: &[u8]) -> Result<Self, InvalidBundle> {
        Self::read(der.to_vec(), 1)
    }

    /// The certificate in DER.
    #[must_use]
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// SHA-256 of the certificate, 64 hex digits: to tell one from another, not to trust it by.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        hex::encode(&Sha256::digest(&self.der))
    }

    /// Its subject, for people.
    #[must_use]
    pub fn subject(&self) -> &str {
        &self.certificate.subject_text
    }

    /// Its last second.
    #[must_use]
    pub fn not_after(&self) -> Timestamp {
        Timestamp::from_seconds(self.certificate.validity.1)
    }

    pub(super) fn certificate(&self) -> &Certificate {
        &self.certificate
    }

    fn read(der: Vec<u8>, block: usize) -> Result<Self, InvalidBundle> {
        let certificate =
            Certificate::parse(&der).map_err(|error| InvalidBundle::Certificate(block, error))?;
        if !certificate.is_ca || certificate.usage.is_some_and(|usage| !usage.signs_certificates) {
            return Err(InvalidBundle::NotCa(block));
        }
        if certificate.key.is_none() {
            return Err(InvalidBundle::Key(block));
        }
        Ok(Self { certificate, der })
    }
}

/// Reads a bundle. Text between the blocks is ignored.
///
/// # Errors
/// Everything that is wrong with it, in the order of the blocks.
pub fn parse_bundle(pem: &str) -> Result<Vec<Authority>, Vec<InvalidBundle>> {
    if pem.len() > MAX_BUNDLE_BYTES {
        return Err(vec![InvalidBundle::TooLong]);
    }
    let (mut authorities, mut problems) = (Vec::<(usize, Authority)>::new(), Vec::new());
    let sections = <(SectionKind, Vec<u8>)>::pem_slice_iter(pem.as_bytes());
    for (block, section) in (1..).zip(sections) {
        if block > MAX_AUTHORITIES {
            problems.push(InvalidBundle::TooMany);
            break;
        }
        let read = match section {
            Ok((SectionKind::Certificate, der)) => Authority::read(der, block),
            Ok(_) => Err(InvalidBundle::Kind(block)),
            Err(_) => Err(InvalidBundle::Pem(block)),
        };
        match read {
            Ok(authority) => match authorities.iter().find(|(_, earlier)| earlier.der == authority.der) {
                Some((earlier, _)) => problems.push(InvalidBundle::Repeated(block, *earlier)),
                None => authorities.push((block, authority)),
            },
            Err(problem) => problems.push(problem),
        }
    }
    if authorities.is_empty() && problems.is_empty() {
        problems.push(InvalidBundle::Empty);
    }
    if problems.is_empty() {
        Ok(authorities.into_iter().map(|(_, authority)| authority).collect())
    } else {
        Err(problems)
    }
}

#[cfg(test)]
mod tests;
