//! The signatures by which CAs of TPM vendors vouch: which there are, and whether one holds.
//!
//! SHA-1 and RSA keys under 2048 bits are not among them.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA384_ASN1, ECDSA_P256_SHA512_ASN1, ECDSA_P384_SHA256_ASN1,
    ECDSA_P384_SHA384_ASN1, ECDSA_P384_SHA512_ASN1, ECDSA_P521_SHA256_ASN1, ECDSA_P521_SHA384_ASN1,
    ECDSA_P521_SHA512_ASN1, RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_2048_8192_SHA384,
    RSA_PKCS1_2048_8192_SHA512, RSA_PSS_2048_8192_SHA256, RSA_PSS_2048_8192_SHA384, RSA_PSS_2048_8192_SHA512,
    UnparsedPublicKey, VerificationAlgorithm,
};
use x509_parser::{
    der_parser::{Oid, oid},
    oid_registry::{
        OID_EC_P256, OID_KEY_TYPE_EC_PUBLIC_KEY, OID_NIST_EC_P384, OID_NIST_EC_P521, OID_NIST_HASH_SHA256,
        OID_NIST_HASH_SHA384, OID_NIST_HASH_SHA512, OID_PKCS1_RSAENCRYPTION, OID_PKCS1_RSASSAPSS,
        OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA, OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256,
        OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
    },
    signature_algorithm::RsaSsaPssParams,
    x509::{AlgorithmIdentifier, SubjectPublicKeyInfo},
};

/// RSAES-OAEP as the algorithm of a key (RFC 4055): what some vendors write for an RSA endorsement key.
const RSAES_OAEP: Oid<'static> = oid!(1.2.840.113549.1.1.7);
/// The mask generation of RSASSA-PSS (RFC 8017, B.2.1).
const MGF1: Oid<'static> = oid!(1.2.840.113549.1.1.8);

/// The hash that is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
    Sha512,
}

/// The algorithm of a certificate's signature, as far as it is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Pkcs1(Hash),
    Pss(Hash),
    Ecdsa(Hash),
}

/// The curve of a certificate's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Curve {
    P256,
    P384,
    P521,
}

/// A certificate's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// RSAPublicKey in DER; whether it may sign (a key for RSAES-OAEP may not).
    Rsa { der: Vec<u8>, signs: bool },
    /// An uncompressed point.
    Ec { curve: Curve, point: Vec<u8> },
}

/// The algorithms of ECDSA and RSA over SHA-2.
const SCHEMES: [(Oid<'static>, Scheme); 6] = [
    (OID_PKCS1_SHA256WITHRSA, Scheme::Pkcs1(Hash::Sha256)),
    (OID_PKCS1_SHA384WITHRSA, Scheme::Pkcs1(Hash::Sha384)),
    (OID_PKCS1_SHA512WITHRSA, Scheme::Pkcs1(Hash::Sha512)),
    (OID_SIG_ECDSA_WITH_SHA256, Scheme::Ecdsa(Hash::Sha256)),
    (OID_SIG_ECDSA_WITH_SHA384, Scheme::Ecdsa(Hash::Sha384)),
    (OID_SIG_ECDSA_WITH_SHA512, Scheme::Ecdsa(Hash::Sha512)),
];

impl Scheme {
    /// Reads an AlgorithmIdentifier; `None` for what is not taken.
    pub(super) fn read(algorithm: &AlgorithmIdentifier<'_>) -> Option<Self> {
        if algorithm.algorithm == OID_PKCS1_RSASSAPSS {
            return pss(algorithm);
        }
        SCHEMES.into_iter().find(|(oid, _)| *oid == algorithm.algorithm).map(|(_, scheme)| scheme)
    }

    /// Whether this key made the signature.
    pub(super) fn verifies(self, key: &Key, message: &[u8], signature: &[u8]) -> bool {
        let (Some(algorithm), Key::Rsa { der: key, .. } | Key::Ec { point: key, .. }) =
            (self.algorithm(key), key)
        else {
            return false;
        };
        UnparsedPublicKey::new(algorithm, key).verify(message, signature).is_ok()
    }

    /// What verifies this scheme with such a key.
    fn algorithm(self, key: &Key) -> Option<&'static dyn VerificationAlgorithm> {
        Some(match (self, key) {
            (Self::Pkcs1(Hash::Sha256), Key::Rsa { signs: true, .. }) => &RSA_PKCS1_2048_8192_SHA256,
            (Self::Pkcs1(Hash::Sha384), Key::Rsa { signs: true, .. }) => &RSA_PKCS1_2048_8192_SHA384,
            (Self::Pkcs1(Hash::Sha512), Key::Rsa { signs: true, .. }) => &RSA_PKCS1_2048_8192_SHA512,
            (Self::Pss(Hash::Sha256), Key::Rsa { signs: true, .. }) => &RSA_PSS_2048_8192_SHA256,
            (Self::Pss(Hash::Sha384), Key::Rsa { signs: true, .. }) => &RSA_PSS_2048_8192_SHA384,
            (Self::Pss(Hash::Sha512), Key::Rsa { signs: true, .. }) => &RSA_PSS_2048_8192_SHA512,
            (Self::Ecdsa(Hash::Sha256), Key::Ec { curve: Curve::P256, .. }) => &ECDSA_P256_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), Key::Ec { curve: Curve::P256, .. }) => &ECDSA_P256_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), Key::Ec { curve: Curve::P256, .. }) => &ECDSA_P256_SHA512_ASN1,
            (Self::Ecdsa(Hash::Sha256), Key::Ec { curve: Curve::P384, .. }) => &ECDSA_P384_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), Key::Ec { curve: Curve::P384, .. }) => &ECDSA_P384_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), Key::Ec { curve: Curve::P384, .. }) => &ECDSA_P384_SHA512_ASN1,
            (Self::Ecdsa(Hash::Sha256), Key::Ec { curve: Curve::P521, .. }) => &ECDSA_P521_SHA256_ASN1,
            (Self::Ecdsa(Hash::Sha384), Key::Ec { curve: Curve::P521, .. }) => &ECDSA_P521_SHA384_ASN1,
            (Self::Ecdsa(Hash::Sha512), Key::Ec { curve: Curve::P521, .. }) => &ECDSA_P521_SHA512_ASN1,
            _ => return None,
        })
    }
}

/// RSASSA-PSS as it is used: MGF1 with the same hash, and a salt as long as that (RFC 4055, 3.1).
fn pss(algorithm: &AlgorithmIdentifier<'_>) -> Option<Scheme> {
    let parameters = RsaSsaPssParams::try_from(algorithm.parameters.as_ref()?).ok()?;
    let (hash, salt) = match parameters.hash_algorithm_oid() {
        oid if *oid == OID_NIST_HASH_SHA256 => (Hash::Sha256, 32),
        oid if *oid == OID_NIST_HASH_SHA384 => (Hash::Sha384, 48),
        oid if *oid == OID_NIST_HASH_SHA512 => (Hash::Sha512, 64),
        _ => return None,
    };
    let mask = parameters.mask_gen_algorithm().ok()?;
    let fits = mask.mgf == MGF1
        && mask.hash == *parameters.hash_algorithm_oid()
        && parameters.salt_length() == salt
        && parameters.trailer_field() == 1;
    fits.then_some(Scheme::Pss(hash))
}

impl Key {
    /// Reads a SubjectPublicKeyInfo; `None` for a key that is not taken.
    pub(super) fn read(spki: &SubjectPublicKeyInfo<'_>) -> Option<Self> {
        let bits = Some(&spki.subject_public_key).filter(|bits| bits.unused_bits == 0)?.data.to_vec();
        match &spki.algorithm.algorithm {
            oid if *oid == OID_PKCS1_RSAENCRYPTION => Some(Self::Rsa { der: bits, signs: true }),
            oid if *oid == RSAES_OAEP => Some(Self::Rsa { der: bits, signs: false }),
            oid if *oid == OID_KEY_TYPE_EC_PUBLIC_KEY => {
                let (curve, coordinate) = match spki.algorithm.parameters.as_ref()?.as_oid().ok()? {
                    oid if oid == OID_EC_P256 => (Curve::P256, 32),
                    oid if oid == OID_NIST_EC_P384 => (Curve::P384, 48),
                    oid if oid == OID_NIST_EC_P521 => (Curve::P521, 66),
                    _ => return None,
                };
                let uncompressed = bits.len() == 1 + 2 * coordinate && bits.first() == Some(&4);
                uncompressed.then_some(Self::Ec { curve, point: bits })
            }
            _ => None,
        }
    }
}
