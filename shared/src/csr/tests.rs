//! Forms of requests. Whether a signature verifies is tested in relay, which has a crypto provider.

use super::*;

/// A P-256 key that asks for an IP address; signed with SHA-256.
const P256: &[u8] = include_bytes!("../../testdata/csr/sanip.der");
const P256_SHA384: &[u8] = include_bytes!("../../testdata/csr/p256sha384.der");
const P384_SHA256: &[u8] = include_bytes!("../../testdata/csr/p384sha256.der");
const P384_SHA384: &[u8] = include_bytes!("../../testdata/csr/p384sha384.der");

fn pem(der: &[u8]) -> String {
    format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(der))
}

fn refusal(text: &str) -> InvalidRequest {
    CertificateRequest::parse(text).map(|_| ()).unwrap_err()
}

/// A DER element.
fn der(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
    let head = match (high, low) {
        (0, 0..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [head.as_slice(), content].concat()
}

/// A request with a key of our choice and `attributes` in place of the golden one's.
fn request_with(spki: &[u8], attributes: &[u8]) -> Vec<u8> {
    let info = [&[0x02, 1, 0], der(0x30, &[]).as_slice(), spki, &der(0xa0, attributes)].concat();
    let ecdsa_sha256 = der(0x30, &[0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]);
    der(0x30, &[der(0x30, &info), ecdsa_sha256, der(0x03, &[0, 1, 2, 3])].concat())
}

/// One attribute of an unknown kind, with `length` bytes in it.
fn attribute(length: usize) -> Vec<u8> {
    let value = der(0x31, &der(0x04, &vec![7; length]));
    der(0x30, &[&[0x06, 3, 0x2a, 3, 4], value.as_slice()].concat())
}

fn key() -> PublicKey {
    CertificateRequest::parse(&pem(P256)).unwrap().key
}

#[test]
fn each_curve_and_digest_is_read_as_what_it_is() {
    for (der, curve, hash) in [
        (P256, Curve::P256, Hash::Sha256),
        (P256_SHA384, Curve::P256, Hash::Sha384),
        (P384_SHA256, Curve::P384, Hash::Sha256),
        (P384_SHA384, Curve::P384, Hash::Sha384),
    ] {
        let request = CertificateRequest::parse(&pem(der)).unwrap();
        assert_eq!((request.key.curve(), request.hash), (curve, hash));
        // The signed part is the first piece of the request, byte for byte.
        let header = if der[1] == 0x81 { 3 } else { 4 };
        assert!(der[header..].starts_with(&request.info_der));
        assert!(der.ends_with(&request.signature));
    }
}

#[test]
fn other_keys_and_signatures_are_refused() {
    use InvalidRequest::{Key, SignatureAlgorithm};
    for (der, rule) in [
        (&include_bytes!("../../testdata/csr/rsa1024.der")[..], SignatureAlgorithm),
        (include_bytes!("../../testdata/csr/rsa2048.der"), SignatureAlgorithm),
        (include_bytes!("../../testdata/csr/rsapss.der"), SignatureAlgorithm),
        (include_bytes!("../../testdata/csr/ed25519.der"), SignatureAlgorithm),
        (include_bytes!("../../testdata/csr/p521.der"), SignatureAlgorithm),
    ] {
        assert_eq!(refusal(&pem(der)), rule);
    }
    let spki = key().spki_der();
    let mut compressed = [&spki[..26], &[2], &spki[27..59]].concat();
    (compressed[1], compressed[24]) = (0x39, 0x22);
    let mut hybrid = spki.clone();
    hybrid[26] = 6;
    // secp256k1: 1.3.132.0.10
    let k1 = der(
        0x30,
        &[&der(0x30, &[&spki[4..13], &[6, 5, 0x2b, 0x81, 4, 0, 10]].concat()), &spki[23..]].concat(),
    );
    for spki in [compressed, hybrid, k1] {
        assert_eq!(refusal(&pem(&request_with(&spki, &[]))), Key);
    }
}

#[test]
fn what_surrounds_the_block_is_ignored_before_it_and_refused_after_it() {
    let text = pem(P256);
    let name = CertificateRequest::parse(&text).unwrap().digest();
    for same in [
        format!("Certificate Request:\n    Data:\n{text}"),
        format!("\u{feff}é\0{text}"),
        text.replace('\n', "\r\n"),
        format!("{text}\n\n \t"),
        text.trim_end().to_owned(),
    ] {
        assert_eq!(CertificateRequest::parse(&same).unwrap().digest(), name, "{same:?}");
    }
    for bad in [
        format!("{text}x"),
        format!("{text}{text}"),
        format!("{text}-----BEGIN CERTIFICATE-----"),
        format!("{BEGIN}\n{text}"),
        text.replace(END, ""),
        text.replace(BEGIN, "-----BEGIN NEW CERTIFICATE REQUEST-----"),
        text.replacen("MII", "M*I", 1).replacen("MIH", "M*H", 1),
        text.replacen('\n', "\nProc-Type: 4,ENCRYPTED\n\n", 1),
        String::new(),
        pem(&[]).replace('\n', ""),
    ] {
        assert!(matches!(refusal(&bad), InvalidRequest::Pem | InvalidRequest::Der), "{bad:?}");
    }
    assert_eq!(refusal(&format!("{text}{text}")), InvalidRequest::Pem);
}

#[test]
fn length_is_bounded_at_16_kib_of_pem_attributes_or_not() {
    let fitting = pem(&request_with(&key().spki_der(), &attribute(10_000)));
    assert_eq!(CertificateRequest::parse(&fitting).unwrap().key, key());
    let padded = format!("{}{fitting}", " ".repeat(MAX_BYTES - fitting.len()));
    assert!(CertificateRequest::parse(&padded).is_ok());
    assert_eq!(refusal(&format!(" {padded}")), InvalidRequest::TooLong);
    let huge = pem(&request_with(&key().spki_der(), &attribute(65_000)));
    assert_eq!(refusal(&huge), InvalidRequest::TooLong);
}

#[test]
fn trailing_or_missing_bytes_are_refused() {
    for length in 0..P256.len() {
        assert!(CertificateRequest::parse(&pem(&P256[..length])).is_err(), "{length}");
    }
    for extra in [&[0][..], &[0, 0], P256] {
        assert_eq!(refusal(&pem(&[P256, extra].concat())), InvalidRequest::Der);
    }
    let inside = request_with(&[key().spki_der(), vec![5, 0]].concat(), &[]);
    assert_eq!(refusal(&pem(&inside)), InvalidRequest::Der);
}

#[test]
fn a_request_is_named_by_its_signed_part_alone() {
    let one = CertificateRequest::parse(&pem(P256)).unwrap();
    let mut other = P256.to_vec();
    *other.last_mut().unwrap() ^= 1;
    let other = CertificateRequest::parse(&pem(&other)).unwrap();
    assert_ne!(one.signature, other.signature);
    assert_eq!(one.digest(), other.digest());
    let mut changed = P256.to_vec();
    let at = P256.windows(32).position(|window| window == &one.key.point()[1..33]).unwrap();
    changed[at] ^= 1;
    assert_ne!(CertificateRequest::parse(&pem(&changed)).unwrap().digest(), one.digest());
}

#[test]
fn no_flipped_bit_panics_and_none_in_the_signed_part_keeps_the_name() {
    let name = CertificateRequest::parse(&pem(P256)).unwrap().digest();
    let signed = 3..157;
    assert_eq!(CertificateRequest::parse(&pem(P256)).unwrap().info_der, P256[signed.clone()]);
    for bit in 0..P256.len() * 8 {
        let mut flipped = P256.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(request) = CertificateRequest::parse(&pem(&flipped)) {
            assert!(!signed.contains(&(bit / 8)) || request.digest() != name, "bit {bit}");
        }
    }
}

#[test]
fn a_public_key_has_one_spki_and_comes_back_from_it() {
    for der in [P256, P384_SHA384] {
        let key = CertificateRequest::parse(&pem(der)).unwrap().key;
        let spki = key.spki_der();
        assert!(der.windows(spki.len()).any(|window| window == spki), "as OpenSSL writes it");
        assert_eq!(PublicKey::from_spki_der(&spki), Some(key));
        assert_eq!(PublicKey::from_spki_der(&spki[1..]), None);
        assert_eq!(PublicKey::from_spki_der(&[&spki, &[0][..]].concat()), None);
    }
    assert_eq!(PublicKey::from_point(Curve::P256, &[4; 64]), None);
    assert_eq!(PublicKey::from_point(Curve::P384, &[4; 65]), None);
    assert_eq!(PublicKey::from_point(Curve::P256, &[2; 65]), None);
}
