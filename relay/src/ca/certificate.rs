//! The certificate of a CA, read from PEM and held to the rules for its kind.
//!
//! Reading says nothing of the path: `opened.rs` proves that by use.

use super::{name::CaName, profile::Validity};
use rustls::pki_types::{CertificateDer, TrustAnchor, pem::PemObject as _};
use shared::time::Timestamp;
use x509_parser::{
    certificate::X509Certificate,
    extensions::{KeyUsage, ParsedExtension},
    prelude::FromDer as _,
    x509::X509Version,
};

/// The longest certificate, in bytes of DER. Ours take less than 700.
const MAX_DER_BYTES: usize = 16 * 1024;
/// The longest key identifier, in bytes (RFC 5280 suggests 20).
const MAX_KEY_ID_BYTES: usize = 64;

/// What this relay needs to know of a CA certificate.
pub(super) struct CaCertificate {
    pub(super) der: CertificateDer<'static>,
    pub(super) anchor: TrustAnchor<'static>,
    /// SubjectPublicKeyInfo in DER.
    pub(super) spki: Vec<u8>,
    /// Its subject key identifier.
    pub(super) key_id: Vec<u8>,
    /// The key identifier of whoever signed it.
    pub(super) signer_key_id: Option<Vec<u8>>,
    pub(super) validity: Validity,
}

impl CaCertificate {
    /// Reads the one certificate in `pem`, for the CA `name`. The error is the rule that it breaks.
    pub(super) fn parse(pem: &str, name: CaName) -> Result<Self, &'static str> {
        let mut blocks = CertificateDer::pem_slice_iter(pem.as_bytes());
        let (Some(Ok(der)), None) = (blocks.next(), blocks.next()) else {
            return Err("it is exactly one PEM block CERTIFICATE");
        };
        Self::from_der(der, name)
    }

    /// As [`CaCertificate::parse`], from DER.
    pub(super) fn from_der(der: CertificateDer<'static>, name: CaName) -> Result<Self, &'static str> {
        if der.len() > MAX_DER_BYTES {
            return Err("it is at most 16 KiB");
        }
        let (rest, parsed) = X509Certificate::from_der(&der).map_err(|_| "it is DER X.509")?;
        if !rest.is_empty() || parsed.version != X509Version::V3 {
            return Err("it is one X.509 certificate of version 3");
        }
        check_ca(&parsed, name)?;
        check_signer(&parsed, name)?;
        let anchor = webpki::anchor_from_trusted_cert(&der).map_err(|_| "webpki can read it")?.to_owned();
        let (key_id, signer_key_id) = key_ids(&parsed);
        let fits = |id: &Vec<u8>| (1..=MAX_KEY_ID_BYTES).contains(&id.len());
        let key_id = key_id.filter(fits).ok_or("it has a subject key identifier")?;
        if name != CaName::Root && signer_key_id.is_none() {
            return Err("it has an authority key identifier");
        }
        let validity = Validity {
            not_before: Timestamp::from_seconds(parsed.validity().not_before.timestamp()),
            not_after: Timestamp::from_seconds(parsed.validity().not_after.timestamp()),
        };
        let spki = parsed.public_key().raw.to_vec();
        Ok(Self { anchor, spki, key_id, signer_key_id, validity, der })
    }
}

/// What makes a certificate one of a CA of this kind.
fn check_ca(parsed: &X509Certificate<'_>, name: CaName) -> Result<(), &'static str> {
    let constraints = parsed.basic_constraints().ok().flatten().ok_or("it has basicConstraints")?;
    if !constraints.critical || !constraints.value.ca {
        return Err("its basicConstraints are critical and say CA:TRUE");
    }
    match (name, constraints.value.path_len_constraint) {
        (CaName::Root, None | Some(1..)) => {}
        (CaName::Root, Some(0)) => return Err("its pathLen leaves room for an issuing CA"),
        (_, Some(0)) => {}
        (_, _) => return Err("its pathLen is 0"),
    }
    let usage = parsed.key_usage().ok().flatten().ok_or("it has keyUsage")?;
    let signs = |usage: &KeyUsage| usage.key_cert_sign() && (name == CaName::Root || usage.crl_sign());
    if !usage.critical || !signs(usage.value) {
        return Err("its keyUsage is critical and has keyCertSign, and cRLSign below the root");
    }
    match parsed.name_constraints() {
        Ok(None) => Ok(()),
        _ => Err("it has no nameConstraints (they would refuse every SPIFFE id)"),
    }
}

/// A root is signed by itself; nothing else is.
fn check_signer(parsed: &X509Certificate<'_>, name: CaName) -> Result<(), &'static str> {
    let itself = parsed.subject().as_raw() == parsed.issuer().as_raw();
    match name {
        CaName::Root if !itself || parsed.verify_signature(None).is_err() => Err("it is signed by itself"),
        CaName::Root => Ok(()),
        _ if itself => Err("it is signed by its root"),
        _ => Ok(()),
    }
}

/// Subject and authority key identifier.
fn key_ids(parsed: &X509Certificate<'_>) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    let (mut subject, mut authority) = (None, None);
    for extension in parsed.extensions() {
        match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => subject = Some(id.0.to_vec()),
            ParsedExtension::AuthorityKeyIdentifier(id) => {
                authority = id.key_identifier.as_ref().map(|id| id.0.to_vec());
            }
            _ => {}
        }
    }
    (subject, authority)
}
