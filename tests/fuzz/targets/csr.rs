//! The certificate request as the relay takes it apart: one reading, and a name that the bytes around the signed
//! part cannot change. An input that begins with a zero byte is DER, to be wrapped; any other is PEM as it is.
#![no_main]

use base64::{Engine as _, engine::general_purpose::STANDARD};
use libfuzzer_sys::fuzz_target;
use relay::csr::verify_request;
use sha2::{Digest as _, Sha256};
use shared::csr::{CertificateRequest, Curve, MAX_BYTES, PublicKey};

fuzz_target!(|data: &[u8]| match data {
    [0, der @ ..] => der_request(der),
    text => {
        if let Ok(text) = std::str::from_utf8(text) {
            pem_request(text);
        }
    }
});

fn der_request(der: &[u8]) {
    let pem = pem(der);
    let Some(request) = pem_request(&pem) else { return };
    // The signed part is a piece of what came, and nothing may follow the request.
    assert!(der.windows(request.info_der.len()).any(|window| window == request.info_der));
    let trailing = [der, &[0]].concat();
    assert!(CertificateRequest::parse(&self::pem(&trailing)).is_err());
    // Text before the block changes nothing; text after it is refused.
    if pem.len() + 2 <= MAX_BYTES {
        let before =
            CertificateRequest::parse(&format!("x\n{pem}")).expect("text before the block is ignored");
        assert_eq!(before.digest(), request.digest());
        assert!(CertificateRequest::parse(&format!("{pem}x")).is_err());
    }
}

fn pem_request(text: &str) -> Option<CertificateRequest> {
    let request = CertificateRequest::parse(text).ok()?;
    assert!(text.len() <= MAX_BYTES);
    assert_eq!(request.digest(), <[u8; 32]>::from(Sha256::digest(&request.info_der)));
    let point = request.key.point();
    let length = match request.key.curve() {
        Curve::P256 => 65,
        Curve::P384 => 97,
    };
    assert!(point.len() == length && point[0] == 4);
    assert!(PublicKey::from_point(request.key.curve(), point).is_some_and(|key| key == request.key));
    assert!(request.key.spki_der().ends_with(point));
    // The key that a certificate would be made for is the key of the signed part.
    assert!(request.info_der.windows(point.len()).any(|window| window == point));
    proof_of_possession(&request);
    Some(request)
}

/// A signature that holds is over every bit of the signed part.
fn proof_of_possession(request: &CertificateRequest) {
    if verify_request(request).is_err() {
        return;
    }
    let middle = request.info_der.len() / 2;
    for at in [0, middle, request.info_der.len() - 1] {
        let mut changed = request.clone();
        changed.info_der[at] ^= 1;
        assert!(verify_request(&changed).is_err());
    }
}

fn pem(der: &[u8]) -> String {
    let body = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE REQUEST-----\n{body}\n-----END CERTIFICATE REQUEST-----\n")
}
