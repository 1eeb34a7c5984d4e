//! A certificate request (PKCS#10, RFC 2986) taken apart: the public key, the signed part and the signature.
//!
//! Nothing else of it counts. What a request asks for (names, extensions, attributes) is never read, so it can
//! never be granted. The signature is checked where a crypto provider is at hand (`relay`); this file only
//! makes sure that what it hands over has one reading. The bytes around the signed part are malleable, so a
//! request is named by the digest of its CertificationRequestInfo.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use x509_parser::{
    certification_request::X509CertificationRequest,
    oid_registry::{
        OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384,
    },
    prelude::FromDer as _,
};

/// The longest request, in bytes of PEM.
pub const MAX_BYTES: usize = 16 * 1024;

const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// The curve of a node key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
}

impl Curve {
    /// What comes before the point in a SubjectPublicKeyInfo.
    const fn spki_head(self) -> &'static [u8] {
        match self {
            Self::P256 => &[
                0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08,
                0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
            ],
            Self::P384 => &[
                0x30, 0x76, 0x30, 0x10, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x05,
                0x2b, 0x81, 0x04, 0x00, 0x22, 0x03, 0x62, 0x00,
            ],
        }
    }
}

/// The digest of an ECDSA signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
}

/// A public key on a known curve, as an uncompressed point. That the point is on the curve is the verifier's to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PublicKey {
    curve: Curve,
    point: Vec<u8>,
}

impl PublicKey {
    /// A key from its SEC 1 point; `None` unless it is uncompressed and of the curve's length.
    #[must_use]
    pub fn from_point(curve: Curve, point: &[u8]) -> Option<Self> {
        let coordinate = match curve {
            Curve::P256 => 32,
            Curve::P384 => 48,
        };
        let fits = point.len() == 1 + 2 * coordinate && point.first() == Some(&4);
        fits.then(|| Self { curve, point: point.to_vec() })
    }

    /// A key from the one DER form of its SubjectPublicKeyInfo, the one that [`PublicKey::spki_der`] writes.
    #[must_use]
    pub fn from_spki_der(spki: &[u8]) -> Option<Self> {
        [Curve::P256, Curve::P384]
            .into_iter()
            .find_map(|curve| Self::from_point(curve, spki.strip_prefix(curve.spki_head())?))
    }

    /// The curve.
    #[must_use]
    pub fn curve(&self) -> Curve {
        self.curve
    }

    /// The uncompressed SEC 1 point: 4, x, y.
    #[must_use]
    pub fn point(&self) -> &[u8] {
        &self.point
    }

    /// The one DER form of the SubjectPublicKeyInfo (named curve, RFC 5480).
    #[must_use]
    pub fn spki_der(&self) -> Vec<u8> {
        [self.curve.spki_head(), &self.point].concat()
    }

    /// SHA-256 of the SubjectPublicKeyInfo: the key's name everywhere.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.spki_der()).into()
    }
}

/// A request whose form is right. Its signature has not been checked.
#[derive(Clone, Debug)]
pub struct CertificateRequest {
    /// The key it asks a certificate for.
    pub key: PublicKey,
    /// The signed part, CertificationRequestInfo in DER.
    pub info_der: Vec<u8>,
    /// The digest that the signature is over.
    pub hash: Hash,
    /// The ECDSA signature in DER.
    pub signature: Vec<u8>,
}

/// Why a text is no request that a certificate can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRequest {
    /// Over [`MAX_BYTES`].
    #[error("must be at most {MAX_BYTES} bytes of PEM")]
    TooLong,
    /// Not exactly one PEM block.
    #[error("must hold exactly one PEM block CERTIFICATE REQUEST (PKCS#10), with nothing after it")]
    Pem,
    /// The block's content is not one DER PKCS#10.
    #[error("must be one DER PKCS#10 request without trailing bytes")]
    Der,
    /// The key is not EC on P-256 or P-384.
    #[error("must be for an EC key on P-256 or P-384, as an uncompressed point")]
    Key,
    /// The signature is not ECDSA with SHA-256 or SHA-384.
    #[error("must be signed by ECDSA with SHA-256 or SHA-384")]
    SignatureAlgorithm,
}

impl CertificateRequest {
    /// Reads one PEM request; text before the block is ignored.
    ///
    /// # Errors
    /// The first rule that the text breaks.
    pub fn parse(pem: &str) -> Result<Self, InvalidRequest> {
        if pem.len() > MAX_BYTES {
            return Err(InvalidRequest::TooLong);
        }
        Self::from_der(&pem_block(pem)?)
    }

    /// The name of the request: SHA-256 of its signed part.
    #[must_use]
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(&self.info_der).into()
    }

    fn from_der(der: &[u8]) -> Result<Self, InvalidRequest> {
        let (rest, request) = X509CertificationRequest::from_der(der).map_err(|_| InvalidRequest::Der)?;
        let info = &request.certification_request_info;
        if !rest.is_empty() || info.raw.is_empty() {
            return Err(InvalidRequest::Der);
        }
        let hash = match &request.signature_algorithm.algorithm {
            oid if *oid == OID_SIG_ECDSA_WITH_SHA256 => Hash::Sha256,
            oid if *oid == OID_SIG_ECDSA_WITH_SHA384 => Hash::Sha384,
            _ => return Err(InvalidRequest::SignatureAlgorithm),
        };
        let key = key_of(&info.subject_pki).ok_or(InvalidRequest::Key)?;
        if request.signature_value.unused_bits != 0 {
            return Err(InvalidRequest::Der);
        }
        let signature = request.signature_value.data.to_vec();
        Ok(Self { key, info_der: info.raw.to_vec(), hash, signature })
    }
}

/// The key in a SubjectPublicKeyInfo, where it is one that a node may have.
fn key_of(spki: &x509_parser::x509::SubjectPublicKeyInfo<'_>) -> Option<PublicKey> {
    if spki.algorithm.algorithm != OID_KEY_TYPE_EC_PUBLIC_KEY || spki.subject_public_key.unused_bits != 0 {
        return None;
    }
    let curve = match spki.algorithm.parameters.as_ref()?.as_oid().ok()? {
        oid if oid == OID_EC_P256 => Curve::P256,
        oid if oid == OID_NIST_EC_P384 => Curve::P384,
        _ => return None,
    };
    PublicKey::from_point(curve, &spki.subject_public_key.data)
}

/// The bytes of the one block.
fn pem_block(pem: &str) -> Result<Vec<u8>, InvalidRequest> {
    let (_, rest) = pem.split_once(BEGIN).ok_or(InvalidRequest::Pem)?;
    let (body, after) = rest.split_once(END).ok_or(InvalidRequest::Pem)?;
    if !after.trim().is_empty() {
        return Err(InvalidRequest::Pem);
    }
    let packed: String = body.split_ascii_whitespace().collect();
    STANDARD.decode(packed).map_err(|_| InvalidRequest::Pem)
}

#[cfg(test)]
mod tests;
