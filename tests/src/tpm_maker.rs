//! Who makes TPMs, as far as a join sees it: a CA, and certificates of endorsement keys that it signs. Anybody can be one,
//! and say any name: what a name is worth depends on who believes the CA.

use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    PKCS_ECDSA_P256_SHA256, PublicKeyData, SignatureAlgorithm,
};

/// id-ce-subjectAltName.
const SUBJECT_ALT_NAME: [u64; 4] = [2, 5, 29, 17];
/// tcg-at-tpmManufacturer, 2.23.133.2.1, as a DER object identifier.
const TPM_MANUFACTURER: [u8; 7] = [0x06, 0x05, 0x67, 0x81, 0x05, 0x02, 0x01];

/// The CA.
pub struct TpmMaker {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    manufacturer: String,
}

impl TpmMaker {
    /// A CA of its own, whose certificates say this of who made the TPM (`id:494E5443` is Intel).
    ///
    /// # Panics
    /// There is no key or no certificate.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its CA fails")]
    pub fn new(manufacturer: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.distinguished_name.push(rcgen::DnType::CommonName, crate::unique("maker"));
        let made = KeyPair::generate().and_then(|key| {
            let pem = params.self_signed(&key)?.pem();
            Ok(Self { issuer: Issuer::new(params, key), pem, manufacturer: manufacturer.to_owned() })
        });
        made.unwrap_or_else(|error| panic!("a CA of a TPM's maker: {error}"))
    }

    /// Its certificate, PEM.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate in DER for an endorsement key on P-256, by its public point.
    ///
    /// # Panics
    /// It can't be signed.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its certificate fails")]
    pub fn certify(&self, point: &[u8]) -> Vec<u8> {
        let mut params = CertificateParams::default();
        params.key_usages = vec![KeyUsagePurpose::KeyAgreement];
        params.custom_extensions = vec![CustomExtension::from_oid_content(&SUBJECT_ALT_NAME, self.names())];
        let signed = params.signed_by(&Point(point.to_vec()), &self.issuer);
        signed.map_or_else(
            |error| panic!("an endorsement key's certificate: {error}"),
            |one| one.der().to_vec(),
        )
    }

    /// GeneralNames with a directory name that says who made the TPM.
    fn names(&self) -> Vec<u8> {
        let text = der(0x0c, self.manufacturer.as_bytes());
        let attribute = der(0x30, &[&TPM_MANUFACTURER[..], &text].concat());
        let name = der(0x30, &der(0x31, &attribute));
        der(0x30, &der(0xa4, &name))
    }
}

/// Something short in DER.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = u8::try_from(content.len()).unwrap_or(u8::MAX);
    assert!(length < 0x80, "longer than a test needs");
    [&[tag, length], content].concat()
}

/// A public point on P-256.
struct Point(Vec<u8>);

impl PublicKeyData for Point {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ECDSA_P256_SHA256
    }
}
