//! Whether a certificate request was signed by the key that it names: the proof of possession.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P384_SHA256_ASN1, ECDSA_P384_SHA384_ASN1,
    UnparsedPublicKey,
};
use shared::csr::{CertificateRequest, Curve, Hash};

/// The request's signature is not its key's, or the key is no point of its curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be signed by the key that it is for")]
pub struct BadSignature;

/// Checks the request's signature over its signed part.
///
/// # Errors
/// It does not verify.
pub fn verify_request(request: &CertificateRequest) -> Result<(), BadSignature> {
    let algorithm = match (request.key.curve(), request.hash) {
        (Curve::P256, Hash::Sha256) => &ECDSA_P256_SHA256_ASN1,
        (Curve::P256, Hash::Sha384) => &ECDSA_P256_SHA384_ASN1,
        (Curve::P384, Hash::Sha256) => &ECDSA_P384_SHA256_ASN1,
        (Curve::P384, Hash::Sha384) => &ECDSA_P384_SHA384_ASN1,
    };
    UnparsedPublicKey::new(algorithm, request.key.point())
        .verify(&request.info_der, &request.signature)
        .map_err(|_| BadSignature)
}

#[cfg(test)]
mod tests;
