//! The private keys of CAs: drawn, sealed, opened, and used to sign. Nothing else ever sees them.

use super::CaError;
use crate::{
    random::Random,
    seal::{KeyRing, Place},
};
use aws_lc_rs::{
    rand::SystemRandom,
    signature::{ECDSA_P256_SHA256_ASN1_SIGNING, ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _},
};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use shared::{
    csr::{Curve, PublicKey},
    secret::Secret,
};

/// The table that holds the CAs; part of what a sealed key is bound to.
pub const TABLE: &str = "authorities";
/// The column of it that holds the sealed key.
pub const COLUMN: &str = "sealed_key";

/// A CA's key pair. No `Debug`; the provider wipes it.
pub(super) struct CaKey {
    pair: EcdsaKeyPair,
    public: PublicKey,
}

impl CaKey {
    /// Draws a key on P-256.
    pub(super) fn generate() -> Result<Self, CaError> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)
            .map_err(|_| CaError::Provider { operation: "draw a key" })?;
        Self::new(pair, Curve::P256).ok_or(CaError::Provider { operation: "draw a key" })
    }

    /// A key from PEM (PKCS#8 or SEC 1, not encrypted), on P-256 or P-384.
    pub(super) fn from_pem(pem: &Secret) -> Result<Self, CaError> {
        let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes()).map_err(|_| CaError::RootKeyForm)?;
        Self::from_der(key.secret_der()).ok_or(CaError::RootKeyForm)
    }

    /// Opens the key of the CA `id`.
    pub(super) fn open(ring: &KeyRing, id: &str, sealed: &str) -> Result<Self, CaError> {
        let plain = ring.open(place(id), sealed)?;
        Self::from_der(&plain)
            .ok_or_else(|| CaError::Record { id: id.to_owned(), rule: "its sealed key is an EC key" })
    }

    /// Seals the key to the row of the CA `id`.
    pub(super) fn seal(&self, ring: &KeyRing, id: &str, random: &Random) -> Result<String, CaError> {
        let document = self.pkcs8()?;
        Ok(ring.seal(place(id), document.as_ref(), random)?)
    }

    /// The public half.
    pub(super) fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The key in PKCS#8 (version 1), wiped when dropped.
    pub(super) fn pkcs8(&self) -> Result<aws_lc_rs::pkcs8::Document, CaError> {
        self.pair.to_pkcs8v1().map_err(|_| CaError::Provider { operation: "write a key" })
    }

    fn from_der(der: &[u8]) -> Option<Self> {
        let on = |algorithm, curve| {
            let pair = EcdsaKeyPair::from_private_key_der(algorithm, der).ok()?;
            Self::new(pair, curve)
        };
        on(&ECDSA_P256_SHA256_ASN1_SIGNING, Curve::P256)
            .or_else(|| on(&ECDSA_P384_SHA384_ASN1_SIGNING, Curve::P384))
    }

    fn new(pair: EcdsaKeyPair, curve: Curve) -> Option<Self> {
        let public = PublicKey::from_point(curve, pair.public_key().as_ref())?;
        Some(Self { pair, public })
    }
}

impl rcgen::PublicKeyData for CaKey {
    fn der_bytes(&self) -> &[u8] {
        self.public.point()
    }
    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        algorithm(self.public.curve())
    }
}

impl rcgen::SigningKey for CaKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        let signature = self.pair.sign(&SystemRandom::new(), message);
        signature.map(|signature| signature.as_ref().to_vec()).map_err(|_| rcgen::Error::RemoteKeyError)
    }
}

/// A subject's key as rcgen wants it. Borrowed: nothing is parsed at issue.
pub(super) struct SubjectKey<'a>(pub(super) &'a PublicKey);

impl rcgen::PublicKeyData for SubjectKey<'_> {
    fn der_bytes(&self) -> &[u8] {
        self.0.point()
    }
    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        algorithm(self.0.curve())
    }
}

fn algorithm(curve: Curve) -> &'static rcgen::SignatureAlgorithm {
    match curve {
        Curve::P256 => &rcgen::PKCS_ECDSA_P256_SHA256,
        Curve::P384 => &rcgen::PKCS_ECDSA_P384_SHA384,
    }
}

fn place(id: &str) -> Place<'_> {
    Place { table: TABLE, row: id, column: COLUMN }
}
