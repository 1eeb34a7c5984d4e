//! Certificates that a machine sends with its endorsement key, and the bundle of authorities that an operator gives.
//! An input's first byte says what the rest is: the certificate of the RSA key (`0`), of the P-384 key (`1`), a CA
//! that the machine sends (`2`), or a bundle.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relay::join::attest::tpm::{
    BadEndorsementKey, Offered, Voucher,
    authorities::{Authority, MAX_AUTHORITIES, parse_bundle},
    certificate::{Certificate, MAX_CLAIM_CHARS},
    judge_offer,
};
use shared::time::Timestamp;
use std::sync::LazyLock;

const EK_RSA: &[u8] = include_bytes!("../../../shared/testdata/tpm/ek-rsa.pub");
const EK_P384: &[u8] = include_bytes!("../../../shared/testdata/tpm/ek-p384.pub");
const EK_RSA_CERTIFICATE: &[u8] = include_bytes!("../../../relay/testdata/tpm/ek-rsa.der");
const INTERMEDIATE: &[u8] = include_bytes!("../../../relay/testdata/tpm/inter.der");
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

static ROOT: LazyLock<Vec<Authority>> = LazyLock::new(|| {
    vec![Authority::from_der(include_bytes!("../../../relay/testdata/tpm/root.der")).expect("a CA")]
});

fuzz_target!(|data: &[u8]| match data {
    [b'0', der @ ..] => own_certificate(EK_RSA, der),
    [b'1', der @ ..] => own_certificate(EK_P384, der),
    [b'2', der @ ..] => intermediate(der),
    text => {
        if let Ok(text) = std::str::from_utf8(text) {
            bundle(text);
        }
    }
});

/// Whatever the certificate, the key is the machine's, and a path ends at what signed it.
fn own_certificate(area: &[u8], der: &[u8]) {
    let bare = judge_offer(area, &[], &ROOT, NOW).expect("a sound key");
    match judge_offer(area, &[der, INTERMEDIATE], &ROOT, NOW) {
        Ok(offered) => {
            assert_eq!(offered.digest, bare.digest);
            claims(&offered);
            let parsed = Certificate::parse(der);
            assert_eq!(parsed.is_err(), matches!(offered.voucher, Voucher::Unreadable(_)));
            assert!(parsed.map_or(true, |certificate| certificate.is_for(&offered.public)));
        }
        Err(error) => assert_eq!(error, BadEndorsementKey::OtherCertificate),
    }
    // Nothing that the machine sends makes an authority.
    if let Ok(offered) = judge_offer(area, &[der, der, INTERMEDIATE], &[], NOW) {
        assert!(offered.authority().is_none());
    }
}

fn claims(offered: &Offered) {
    let Some(claims) = offered.claims() else { return };
    for text in [&claims.manufacturer, &claims.model, &claims.version].into_iter().flatten() {
        assert!(text.chars().count() <= MAX_CLAIM_CHARS && !text.chars().any(char::is_control));
    }
}

/// A CA of the machine's own leads nowhere but to its issuer.
fn intermediate(der: &[u8]) {
    let offered = judge_offer(EK_RSA, &[EK_RSA_CERTIFICATE, der], &ROOT, NOW).expect("a sound key");
    if offered.authority().is_some() {
        assert!(Certificate::parse(der).is_ok());
    }
    let alone = judge_offer(EK_RSA, &[EK_RSA_CERTIFICATE, der], &[], NOW).expect("a sound key");
    assert!(alone.authority().is_none());
}

fn bundle(text: &str) {
    match parse_bundle(text) {
        Ok(authorities) => {
            assert!((1..=MAX_AUTHORITIES).contains(&authorities.len()));
            for authority in &authorities {
                let again = Authority::from_der(authority.der()).expect("read before");
                assert_eq!(again.fingerprint(), authority.fingerprint());
            }
        }
        Err(problems) => assert!(!problems.is_empty() && problems.len() <= MAX_AUTHORITIES + 1),
    }
}
