//! Proofs of possession, golden and hostile.

use super::*;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    Attribute, BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PKCS_ECDSA_P384_SHA384,
    PublicKeyData as _, SanType,
};
use shared::csr::InvalidRequest;

fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}

fn verdict(der: &[u8]) -> Result<Result<(), BadSignature>, InvalidRequest> {
    CertificateRequest::parse(&pem(der)).map(|request| verify_request(&request))
}

/// Requests that OpenSSL has signed.
const GOLDEN: [&[u8]; 4] = [
    include_bytes!("../../../shared/testdata/csr/sanip.der"),
    include_bytes!("../../../shared/testdata/csr/p256sha384.der"),
    include_bytes!("../../../shared/testdata/csr/p384sha256.der"),
    include_bytes!("../../../shared/testdata/csr/p384sha384.der"),
];

#[test]
fn every_pair_of_curve_and_digest_verifies() {
    for der in GOLDEN {
        assert_eq!(verdict(der), Ok(Ok(())));
    }
}

#[test]
fn what_a_request_asks_for_is_neither_read_nor_in_the_way() {
    static UNKNOWN: &[u64] = &[1, 3, 6, 1, 4, 1, 59999, 3];
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "relay");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::Any];
    params.subject_alt_names = vec![
        SanType::DnsName("relay.example".try_into().unwrap()),
        SanType::URI("spiffe://td.example/relay".try_into().unwrap()),
    ];
    params.custom_extensions = vec![CustomExtension::from_oid_content(UNKNOWN, vec![5, 0])];
    for algorithm in [&PKCS_ECDSA_P256_SHA256, &PKCS_ECDSA_P384_SHA384] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let attribute = Attribute { oid: UNKNOWN, values: vec![0x31, 2, 5, 0] };
        let request = params.serialize_request_with_attributes(&key, vec![attribute]).unwrap();
        let parsed = CertificateRequest::parse(&request.pem().unwrap()).unwrap();
        assert_eq!(verify_request(&parsed), Ok(()));
        assert_eq!(parsed.key.point(), key.der_bytes());
        assert_eq!(parsed.key.spki_der(), key.subject_public_key_info());
    }
}

#[test]
fn an_altered_request_does_not_verify() {
    for der in GOLDEN {
        for bit in 0..der.len() * 8 {
            let mut flipped = der.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok(request) = CertificateRequest::parse(&pem(&flipped)) else { continue };
            let original = CertificateRequest::parse(&pem(der)).unwrap();
            if verify_request(&request).is_ok() {
                // Only the wrapping may differ; what is signed, and whose it is, may not.
                assert_eq!(request.info_der, original.info_der, "bit {bit}");
                assert_eq!(request.key, original.key, "bit {bit}");
            }
        }
    }
}

#[test]
fn a_signature_of_another_key_or_a_point_off_the_curve_does_not_verify() {
    let (one, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let request = |key| CertificateParams::default().serialize_request(key).unwrap().pem().unwrap();
    let mut parsed = CertificateRequest::parse(&request(&one)).unwrap();
    parsed.signature = CertificateRequest::parse(&request(&other)).unwrap().signature;
    assert_eq!(verify_request(&parsed), Err(BadSignature));

    let mut off = CertificateRequest::parse(&request(&one)).unwrap();
    let mut point = off.key.point().to_vec();
    point[64] ^= 1;
    off.key = shared::csr::PublicKey::from_point(Curve::P256, &point).unwrap();
    assert_eq!(verify_request(&off), Err(BadSignature));

    let mut empty = CertificateRequest::parse(&request(&one)).unwrap();
    for signature in [vec![], vec![0x30, 6, 2, 1, 0, 2, 1, 0], vec![0x30, 6, 2, 1, 1, 2, 1, 1]] {
        empty.signature = signature;
        assert_eq!(verify_request(&empty), Err(BadSignature));
    }
}

#[test]
fn weak_and_foreign_keys_are_refused_before_any_signature() {
    for der in [
        &include_bytes!("../../../shared/testdata/csr/rsa1024.der")[..],
        include_bytes!("../../../shared/testdata/csr/rsapss.der"),
        include_bytes!("../../../shared/testdata/csr/ed25519.der"),
        include_bytes!("../../../shared/testdata/csr/p521.der"),
    ] {
        assert_eq!(verdict(der), Err(InvalidRequest::SignatureAlgorithm));
    }
    // A Kerberos name as an alternative name: nothing that we read.
    assert_eq!(verdict(include_bytes!("../../../shared/testdata/csr/krb.der")), Ok(Ok(())));
}
