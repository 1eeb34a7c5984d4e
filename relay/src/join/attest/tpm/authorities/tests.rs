//! Bundles: what is taken, and everything that is wrong named at once.

use super::*;
use crate::join::attest::tpm::testing::{EK_RSA_CERTIFICATE, INTERMEDIATE, ROOT};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(der))
}

fn certificate(der: &[u8]) -> String {
    pem("CERTIFICATE", der)
}

fn a_ca(key: &KeyPair) -> Vec<u8> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.self_signed(key).unwrap().der().to_vec()
}

fn problems(pem: &str) -> Vec<InvalidBundle> {
    parse_bundle(pem).map(|_| ()).unwrap_err()
}

#[test]
fn a_bundle_is_its_certificates_in_order_whatever_stands_between_them() {
    let bundle =
        format!("# swtpm\n{}text\n\n{}", certificate(ROOT), certificate(INTERMEDIATE).replace('\n', "\r\n"));
    let authorities = parse_bundle(&bundle).unwrap();
    let ders: Vec<&[u8]> = authorities.iter().map(Authority::der).collect();
    assert_eq!(ders, [ROOT, INTERMEDIATE]);
    assert_eq!(authorities[1].subject(), "CN=swtpm-localca");
    assert_eq!(authorities[0].fingerprint().len(), 64);
    assert!(authorities[0].not_after() > Timestamp::from_seconds(1_798_761_600));
    assert_eq!(Authority::from_der(ROOT).unwrap().fingerprint(), authorities[0].fingerprint());
}

#[test]
fn cas_on_p521_are_taken_and_those_with_other_keys_are_not() {
    let p521 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P521_SHA512).unwrap();
    assert!(parse_bundle(&certificate(&a_ca(&p521))).is_ok());
    let ed25519 = KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    assert_eq!(problems(&certificate(&a_ca(&ed25519))), [InvalidBundle::Key(1)]);
}

#[test]
fn every_problem_is_named_and_nothing_of_the_bundle_is_shown() {
    let padded = [ROOT, &[0; 3]].concat();
    let bundle = [
        certificate(ROOT),
        certificate(EK_RSA_CERTIFICATE),
        pem("PRIVATE KEY", b"a secret that must not be shown"),
        certificate(&padded),
        certificate(ROOT),
        certificate(b"nonsense"),
        "-----BEGIN CERTIFICATE-----\n*secret*\n-----END CERTIFICATE-----\n".to_owned(),
    ];
    let problems = problems(&bundle.concat());
    let expected = [
        InvalidBundle::NotCa(2),
        InvalidBundle::Kind(3),
        InvalidBundle::Certificate(4, InvalidCertificate::Trailing(3)),
        InvalidBundle::Repeated(5, 1),
        InvalidBundle::Certificate(6, InvalidCertificate::Form),
        InvalidBundle::Pem(7),
    ];
    assert_eq!(problems, expected);
    let said: String = problems.iter().map(ToString::to_string).collect();
    assert!(!said.contains("secret") && !said.contains(&STANDARD.encode("a secret")));
}

#[test]
fn a_bundle_is_bounded_and_not_empty() {
    let many = |count: usize| -> String {
        (0..count).map(|_| certificate(&a_ca(&KeyPair::generate().unwrap()))).collect()
    };
    assert_eq!(parse_bundle(&many(MAX_AUTHORITIES)).unwrap().len(), MAX_AUTHORITIES);
    assert_eq!(problems(&many(MAX_AUTHORITIES + 1)), [InvalidBundle::TooMany]);
    for empty in ["", "text", "-----BEGIN NOTHING-----\nAAAA\n-----END NOTHING-----\n"] {
        assert_eq!(problems(empty), [InvalidBundle::Empty], "{empty:?}");
    }
    assert_eq!(problems(&"x".repeat(MAX_BUNDLE_BYTES + 1)), [InvalidBundle::TooLong]);
    let cut = certificate(ROOT).replace("-----END CERTIFICATE-----", "");
    assert_eq!(problems(&cut), [InvalidBundle::Pem(1)]);
}
