//! An X.509 certificate as a TPM vendor writes it, taken apart by one strict reading.
//!
//! Strict where a second reading would matter: nothing after the certificate, no extension twice, no critical
//! extension that is not in the table below. Lenient where vendors are odd and it doesn't: serial numbers of any
//! form, empty subjects, RSAES-OAEP keys. This file follows no path and verifies no signature.

use super::signature::{Key, Scheme};
use shared::{
    api::node::MAX_EK_CERTIFICATE_BYTES,
    csr,
    tpm::{EndorsementKey, EndorsementPublic},
};
use x509_parser::{
    certificate::X509Certificate,
    der_parser::{Oid, oid},
    extensions::{GeneralName, ParsedExtension, SubjectAlternativeName},
    oid_registry::{
        OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER, OID_X509_EXT_BASIC_CONSTRAINTS,
        OID_X509_EXT_CERTIFICATE_POLICIES, OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
        OID_X509_EXT_EXTENDED_KEY_USAGE, OID_X509_EXT_KEY_USAGE, OID_X509_EXT_SUBJECT_ALT_NAME,
    },
    prelude::FromDer as _,
    public_key::RSAPublicKey,
    x509::X509Version,
};

/// tcg-kp-EKCertificate (TCG EK Credential Profile 2.5, 3.2.16).
const EK_CERTIFICATE_USAGE: Oid<'static> = oid!(2.23.133.8.1);
/// subjectDirectoryAttributes, in which vendors say the TPM's specification.
const SUBJECT_DIRECTORY_ATTRIBUTES: Oid<'static> = oid!(2.5.29.9);

/// The extensions that may be critical: those that are judged here, and such as narrow nothing that is trusted.
/// A critical nameConstraints, policyConstraints or unknown one is refused.
const ACCEPTED_CRITICAL: [Oid<'static>; 8] = [
    SUBJECT_DIRECTORY_ATTRIBUTES,
    OID_X509_EXT_KEY_USAGE,
    OID_X509_EXT_SUBJECT_ALT_NAME,
    OID_X509_EXT_BASIC_CONSTRAINTS,
    OID_X509_EXT_CRL_DISTRIBUTION_POINTS,
    OID_X509_EXT_CERTIFICATE_POLICIES,
    OID_X509_EXT_AUTHORITY_KEY_IDENTIFIER,
    OID_X509_EXT_EXTENDED_KEY_USAGE,
];

/// What a TPM's maker says of it, in the subject alternative name (same profile, 3.2.9): for people, cut to
/// [`MAX_CLAIM_CHARS`] characters, without control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TpmClaims {
    /// The vendor's id such as `INTC`, or what stands in its place.
    pub manufacturer: Option<String>,
    /// The part.
    pub model: Option<String>,
    /// The firmware, as the vendor writes it.
    pub version: Option<String>,
}

/// The longest claim that is kept.
pub const MAX_CLAIM_CHARS: usize = 64;

/// A certificate, taken apart.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// Names as their DER, which is how paths compare them.
    pub(super) subject: Vec<u8>,
    pub(super) issuer: Vec<u8>,
    /// The subject for people.
    pub(super) subject_text: String,
    /// First and last second, from the epoch.
    pub(super) validity: (i64, i64),
    /// `None` for a key that no path takes.
    pub(super) key: Option<Key>,
    /// basicConstraints' cA.
    pub(super) is_ca: bool,
    pub(super) path_len: Option<u32>,
    /// Absent where there is no keyUsage.
    pub(super) usage: Option<Usage>,
    /// Whether extendedKeyUsage has tcg-kp-EKCertificate; absent where there is none.
    pub(super) for_endorsement: Option<bool>,
    pub(super) claims: TpmClaims,
    /// What was signed, how (`None` for what no path takes), and the signature.
    pub(super) signed: Vec<u8>,
    pub(super) scheme: Option<Scheme>,
    pub(super) signature: Vec<u8>,
}

/// keyUsage, as far as it is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) signs_certificates: bool,
    /// keyEncipherment or keyAgreement.
    pub(super) takes_secrets: bool,
}

/// Why bytes are no certificate that is read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidCertificate {
    /// Longer than any.
    #[error("must be at most {MAX_EK_CERTIFICATE_BYTES} bytes")]
    TooLong,
    /// Not X.509 in DER.
    #[error("must be an X.509 certificate of version 3 in DER")]
    Form,
    /// Something follows: the padding of a TPM's memory, which is to be cut before.
    #[error("must be one certificate with nothing after it; {0} bytes follow")]
    Trailing(usize),
    /// The signed part names another algorithm than the signature.
    #[error("must name one signature algorithm in both places")]
    Algorithms,
    /// An extension that is there twice.
    #[error("must have every extension once; {0} is there again")]
    Repeated(String),
    /// A critical extension that nobody here understands.
    #[error("must have no critical extension but those that are judged; it has {0}")]
    Critical(String),
    /// An extension that is judged, or critical, and can't be read.
    #[error("must have extensions that can be read; {0} can't")]
    Extension(String),
}

impl Certificate {
    /// Reads a certificate.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(der: &[u8]) -> Result<Self, InvalidCertificate> {
        if der.len() > MAX_EK_CERTIFICATE_BYTES {
            return Err(InvalidCertificate::TooLong);
        }
        let (rest, parsed) = X509Certificate::from_der(der).map_err(|_| InvalidCertificate::Form)?;
        if !rest.is_empty() {
            return Err(InvalidCertificate::Trailing(rest.len()));
        }
        if parsed.version != X509Version::V3 || parsed.signature_value.unused_bits != 0 {
            return Err(InvalidCertificate::Form);
        }
        if parsed.tbs_certificate.signature != parsed.signature_algorithm {
            return Err(InvalidCertificate::Algorithms);
        }
        let mut certificate = Self {
            subject: parsed.subject().as_raw().to_vec(),
            issuer: parsed.issuer().as_raw().to_vec(),
            subject_text: printable(&parsed.subject().to_string(), 256),
            validity: (parsed.validity().not_before.timestamp(), parsed.validity().not_after.timestamp()),
            key: Key::read(parsed.public_key()),
            is_ca: false,
            path_len: None,
            usage: None,
            for_endorsement: None,
            claims: TpmClaims::default(),
            signed: parsed.tbs_certificate.as_ref().to_vec(),
            scheme: Scheme::read(&parsed.signature_algorithm),
            signature: parsed.signature_value.data.to_vec(),
        };
        certificate.read_extensions(&parsed)?;
        Ok(certificate)
    }

    /// Whether this certificate is for that key. RSA keys are compared by modulus and exponent, others by point.
    #[must_use]
    pub fn is_for(&self, ek: &EndorsementPublic) -> bool {
        match (&self.key, ek.key()) {
            (Some(Key::Rsa { der, .. }), EndorsementKey::Rsa(modulus)) => match RSAPublicKey::from_der(der) {
                Ok(([], key)) => {
                    key.try_exponent() == Ok(65537)
                        && key.modulus.strip_prefix(&[0]).unwrap_or(key.modulus) == modulus.as_bytes()
                }
                _ => false,
            },
            (Some(Key::Ec { curve, point }), EndorsementKey::Ec(key)) => {
                let same_curve = matches!(
                    (curve, key.curve()),
                    (super::signature::Curve::P256, csr::Curve::P256)
                        | (super::signature::Curve::P384, csr::Curve::P384)
                );
                same_curve && point == key.point()
            }
            _ => false,
        }
    }

    /// What the maker says of the TPM. Claims, until a path has been verified.
    #[must_use]
    pub fn claims(&self) -> &TpmClaims {
        &self.claims
    }

    fn read_extensions(&mut self, parsed: &X509Certificate<'_>) -> Result<(), InvalidCertificate> {
        let mut seen: Vec<&Oid<'_>> = Vec::new();
        for extension in parsed.extensions() {
            let oid = || extension.oid.to_id_string();
            if seen.contains(&&extension.oid) {
                return Err(InvalidCertificate::Repeated(oid()));
            }
            seen.push(&extension.oid);
            if extension.critical && !ACCEPTED_CRITICAL.contains(&extension.oid) {
                return Err(InvalidCertificate::Critical(oid()));
            }
            match extension.parsed_extension() {
                ParsedExtension::ParseError { .. } if extension.critical || is_judged(&extension.oid) => {
                    return Err(InvalidCertificate::Extension(oid()));
                }
                ParsedExtension::BasicConstraints(constraints) => {
                    self.is_ca = constraints.ca;
                    self.path_len = constraints.path_len_constraint;
                }
                ParsedExtension::KeyUsage(usage) => {
                    self.usage = Some(Usage {
                        signs_certificates: usage.key_cert_sign(),
                        takes_secrets: usage.key_encipherment() || usage.key_agreement(),
                    });
                }
                ParsedExtension::ExtendedKeyUsage(usage) => {
                    self.for_endorsement = Some(usage.other.contains(&EK_CERTIFICATE_USAGE));
                }
                ParsedExtension::SubjectAlternativeName(names) => self.claims = claims_of(names),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The extensions whose content decides something here.
fn is_judged(oid: &Oid<'_>) -> bool {
    [
        OID_X509_EXT_BASIC_CONSTRAINTS,
        OID_X509_EXT_KEY_USAGE,
        OID_X509_EXT_EXTENDED_KEY_USAGE,
        OID_X509_EXT_SUBJECT_ALT_NAME,
    ]
    .contains(oid)
}

/// tcg-at-tpmManufacturer, tcg-at-tpmModel and tcg-at-tpmVersion of the directory names.
fn claims_of(names: &SubjectAlternativeName<'_>) -> TpmClaims {
    let mut claims = TpmClaims::default();
    for name in &names.general_names {
        let GeneralName::DirectoryName(name) = name else { continue };
        for attribute in name.iter_attributes() {
            let value = attribute.as_str().ok().map(|text| printable(text.trim(), MAX_CLAIM_CHARS));
            match attribute.attr_type() {
                oid if *oid == oid!(2.23.133.2.1) => claims.manufacturer = value.map(vendor_name),
                oid if *oid == oid!(2.23.133.2.2) => claims.model = value,
                oid if *oid == oid!(2.23.133.2.3) => claims.version = value,
                _ => {}
            }
        }
    }
    claims
}

/// `id:494E5443` is the vendor id `INTC` (TCG TPM Vendor ID Registry); anything else stays as it is.
fn vendor_name(text: String) -> String {
    let id = text.strip_prefix("id:").and_then(shared::hex::decode::<4>);
    let name = id.map(|id| String::from_utf8_lossy(&id).trim_matches(['\0', ' ']).to_owned());
    name.filter(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic())).unwrap_or(text)
}

/// At most `max` characters of a text, none of them a control character.
fn printable(text: &str, max: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::attest::tpm::testing::EK_RSA_CERTIFICATE;
    use rcgen::{CertificateParams, CustomExtension, KeyPair};

    fn parse_with(extensions: Vec<CustomExtension>) -> Result<Certificate, InvalidCertificate> {
        let mut params = CertificateParams::default();
        params.custom_extensions = extensions;
        Certificate::parse(params.self_signed(&KeyPair::generate().unwrap()).unwrap().der())
    }

    fn extension(oid: &[u64], critical: bool, content: &[u8]) -> CustomExtension {
        let mut extension = CustomExtension::from_oid_content(oid, content.to_vec());
        extension.set_criticality(critical);
        extension
    }

    #[test]
    fn extensions_are_read_once_and_only_where_they_decide() {
        let twice = || extension(&[2, 5, 29, 15], false, &[3, 2, 5, 0x20]);
        let repeated = InvalidCertificate::Repeated("2.5.29.15".to_owned());
        assert_eq!(parse_with(vec![twice(), twice()]).map(|_| ()), Err(repeated));
        // One that is judged, or critical, must be readable; another may be whatever it is.
        for (oid, critical) in [(&[2, 5, 29, 19], false), (&[2, 5, 29, 35], true)] {
            let read = parse_with(vec![extension(oid, critical, &[0xff])]).map(|_| ());
            assert!(matches!(read, Err(InvalidCertificate::Extension(_))), "{oid:?}: {read:?}");
        }
        assert!(parse_with(vec![extension(&[2, 5, 29, 35], false, &[0xff])]).is_ok());
        assert!(parse_with(vec![extension(&[1, 2, 3, 4], false, &[0xff])]).is_ok());
        let unknown = InvalidCertificate::Critical("1.2.3.4".to_owned());
        assert_eq!(parse_with(vec![extension(&[1, 2, 3, 4], true, &[5, 0])]).map(|_| ()), Err(unknown));
    }

    #[test]
    fn a_vendors_id_is_shown_as_its_letters() {
        for (text, shown) in [
            ("id:494E5443", "INTC"),
            ("id:49465800", "IFX"),
            ("id:53544d20", "STM"),
            ("id:00001014", "id:00001014"),
            ("id:00000000", "id:00000000"),
            ("id:494E54", "id:494E54"),
            ("Vendor", "Vendor"),
        ] {
            assert_eq!(vendor_name(text.to_owned()), shown);
        }
        assert_eq!(printable("a\u{1b}[31m\nb", 64), "a[31mb");
        assert_eq!(printable(&"é".repeat(100), 64).chars().count(), 64);
    }

    #[test]
    fn a_cut_certificate_is_none() {
        for length in 0..EK_RSA_CERTIFICATE.len() {
            assert!(Certificate::parse(&EK_RSA_CERTIFICATE[..length]).is_err(), "{length}");
        }
        let long = [EK_RSA_CERTIFICATE, &[0; MAX_EK_CERTIFICATE_BYTES]].concat();
        assert_eq!(Certificate::parse(&long).map(|_| ()), Err(InvalidCertificate::TooLong));
    }
}
