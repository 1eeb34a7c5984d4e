//! Paths: swtpm's, the odd certificates of vendors, and every rule by itself.

use super::*;
use crate::join::attest::tpm::{
    BadEndorsementKey, Offered, Voucher,
    authorities::parse_bundle,
    certificate::{InvalidCertificate, TpmClaims},
    judge_offer,
    testing::*,
};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};
use time::{Duration, OffsetDateTime};

fn authority(der: &[u8]) -> Authority {
    Authority::from_der(der).unwrap()
}

fn endorsement(area: &[u8], certificates: &[&[u8]], authorities: &[&[u8]]) -> Voucher {
    let authorities: Vec<Authority> = authorities.iter().map(|der| authority(der)).collect();
    judge_offer(area, certificates, &authorities, NOW).unwrap().voucher
}

fn why(endorsement: Voucher) -> Untrusted {
    match endorsement {
        Voucher::Untrusted { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_software_tpms_certificate_leads_to_each_of_its_cas() {
    let swtpm = |version: &str| TpmClaims {
        manufacturer: Some("id:00001014".to_owned()),
        model: Some("swtpm".to_owned()),
        version: Some(version.to_owned()),
    };
    for (area, own) in [(EK_RSA, EK_RSA_CERTIFICATE), (EK_P384, EK_P384_CERTIFICATE)] {
        let trusted = |place| Voucher::Trusted { claims: swtpm("id:20191023"), authority: place };
        assert_eq!(endorsement(area, &[own, INTERMEDIATE], &[ROOT]), trusted(0));
        assert_eq!(endorsement(area, &[own], &[ROOT, INTERMEDIATE]), trusted(1));
        assert_eq!(endorsement(area, &[own], &[INTERMEDIATE]), trusted(0));
        assert_eq!(endorsement(area, &[own, ROOT, INTERMEDIATE, own], &[ROOT]), trusted(0));
        assert_eq!(why(endorsement(area, &[own], &[ROOT])), Untrusted::NoIssuer);
        assert_eq!(why(endorsement(area, &[own, INTERMEDIATE], &[])), Untrusted::NoIssuer);
        // CAs that the machine sends vouch for nothing.
        assert_eq!(why(endorsement(area, &[own, INTERMEDIATE, ROOT], &[])), Untrusted::NoIssuer);
    }
    assert_eq!(endorsement(EK_RSA, &[], &[ROOT]), Voucher::None);
}

/// What is to come of an odd certificate.
enum Outcome {
    Trusted,
    Untrusted(Untrusted),
    Unreadable(InvalidCertificate),
}

macro_rules! odd {
    ($name:literal) => {
        include_bytes!(concat!("../../../../../testdata/tpm/odd/", $name)).as_slice()
    };
}

const EC_ROOT: &[u8] = odd!("root.pem");
const RSA_ROOT: &[u8] = odd!("rootrsa.pem");
const P521_ROOT: &[u8] = odd!("root521.pem");
const OK: &[u8] = odd!("ok.der");

/// What is odd, the certificate, the authority, and what is to come of it.
type Row = (&'static str, &'static [u8], &'static [u8], fn() -> Outcome);

/// The certificates of vendors are odd in each of these ways; all are for one RSA key.
const ODD: [Row; 17] = [
    ("as the profile wants it", OK, EC_ROOT, || Outcome::Trusted),
    ("no extendedKeyUsage", odd!("noeku.der"), EC_ROOT, || Outcome::Trusted),
    ("no basicConstraints", odd!("nobc.der"), EC_ROOT, || Outcome::Trusted),
    ("critical subjectDirectoryAttributes", odd!("critsda.der"), EC_ROOT, || Outcome::Trusted),
    ("critical certificatePolicies", odd!("critpol.der"), EC_ROOT, || Outcome::Trusted),
    ("critical extendedKeyUsage", odd!("criteku.der"), EC_ROOT, || Outcome::Trusted),
    ("negative serial number", odd!("negserial.der"), EC_ROOT, || Outcome::Trusted),
    ("serial number of 24 bytes", odd!("longserial.der"), EC_ROOT, || Outcome::Trusted),
    ("RSAES-OAEP key", odd!("oaep.der"), EC_ROOT, || Outcome::Trusted),
    ("RSASSA-PSS", odd!("pss.der"), RSA_ROOT, || Outcome::Trusted),
    ("P-521 with SHA-512", odd!("p521.der"), P521_ROOT, || Outcome::Trusted),
    ("P-256 with SHA-512", odd!("ec512.der"), EC_ROOT, || Outcome::Trusted),
    ("unknown critical extension", odd!("critunk.der"), EC_ROOT, || {
        Outcome::Unreadable(InvalidCertificate::Critical("1.2.3.4".to_owned()))
    }),
    ("padding behind it", odd!("padded.der"), EC_ROOT, || {
        Outcome::Unreadable(InvalidCertificate::Trailing(200))
    }),
    ("a CA", odd!("ca.der"), EC_ROOT, || Outcome::Untrusted(Untrusted::LeafIsCa)),
    ("expired", odd!("expired.der"), EC_ROOT, || Outcome::Untrusted(Untrusted::NotValidNow)),
    ("SHA-1", odd!("sha1.der"), RSA_ROOT, || Outcome::Untrusted(Untrusted::Algorithm)),
];

/// The endorsement key that the odd certificates are for.
fn odd_area() -> Vec<u8> {
    let certificate = Certificate::parse(OK).unwrap();
    let Some(crate::join::attest::tpm::signature::Key::Rsa { der, .. }) = certificate.key else {
        panic!("an RSA key")
    };
    // RSAPublicKey: two headers of four bytes and the zero before the modulus, then the exponent's five bytes.
    rsa_area(&der[9..der.len() - 5])
}

fn judge_odd(der: &[u8], root: &[u8]) -> Result<Offered, BadEndorsementKey> {
    let authorities = parse_bundle(std::str::from_utf8(root).unwrap()).unwrap();
    judge_offer(&odd_area(), &[der], &authorities, NOW)
}

#[test]
fn odd_certificates_come_out_as_in_the_table() {
    let intel = TpmClaims {
        manufacturer: Some("INTC".to_owned()),
        model: Some("XX".to_owned()),
        version: Some("id:00020000".to_owned()),
    };
    for (what, der, root, outcome) in ODD {
        let offered = judge_odd(der, root).unwrap();
        let expected = match outcome() {
            Outcome::Trusted => Voucher::Trusted { claims: intel.clone(), authority: 0 },
            Outcome::Untrusted(why) => Voucher::Untrusted { claims: intel.clone(), why },
            Outcome::Unreadable(error) => Voucher::Unreadable(error),
        };
        assert_eq!(offered.voucher, expected, "{what}");
        // Whatever the certificate, the key is itself.
        assert_eq!(offered.digest, judge_odd(OK, EC_ROOT).unwrap().digest, "{what}");
    }
}

#[test]
fn a_certificate_for_another_key_spoils_the_offer() {
    for own in [OK, EK_P384_CERTIFICATE] {
        let judged = judge_offer(EK_RSA, &[own], &[authority(ROOT)], NOW).map(|_| ());
        assert_eq!(judged, Err(BadEndorsementKey::OtherCertificate));
    }
    let judged = judge_offer(EK_P384, &[EK_RSA_CERTIFICATE], &[], NOW).map(|_| ());
    assert_eq!(judged, Err(BadEndorsementKey::OtherCertificate));
}

/// Flips every bit of a certificate in turn: it is for this key and has the key's digest, or it is nothing.
#[test]
fn no_bytes_of_a_certificate_are_a_key_of_trust() {
    let digest = judge_odd(OK, EC_ROOT).unwrap().digest;
    let authorities = parse_bundle(std::str::from_utf8(EC_ROOT).unwrap()).unwrap();
    let area = odd_area();
    for bit in 0..OK.len() * 8 {
        let mut altered = OK.to_vec();
        altered[bit / 8] ^= 1 << (bit % 8);
        match judge_offer(&area, &[&altered], &authorities, NOW) {
            Ok(offered) => assert_eq!(offered.digest, digest),
            Err(error) => assert_eq!(error, BadEndorsementKey::OtherCertificate, "{bit}"),
        }
    }
    // (r, s) and (r, n − s) are both the CA's signature: two certificates, one key.
    let other = with_the_other_signature(OK);
    assert_ne!(other, OK);
    let offered = judge_offer(&area, &[&other], &authorities, NOW).unwrap();
    assert!(offered.authority().is_some());
    assert_eq!(offered.digest, digest);
}

/// The certificate with n − s in place of s in its ECDSA signature on P-256.
fn with_the_other_signature(der: &[u8]) -> Vec<u8> {
    const ORDER: [u8; 32] = [
        0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xbc, 0xe6, 0xfa,
        0xad, 0xa7, 0x17, 0x9e, 0x84, 0xf3, 0xb9, 0xca, 0xc2, 0xfc, 0x63, 0x25, 0x51,
    ];
    let signature = Certificate::parse(der).unwrap().signature;
    let r_len = usize::from(signature[3]);
    let (r, s) = (&signature[2..4 + r_len], &signature[6 + r_len..]);
    let mut s = s.to_vec();
    while s.len() > 32 {
        s.remove(0);
    }
    while s.len() < 32 {
        s.insert(0, 0);
    }
    let (mut borrow, mut difference) = (0i16, [0u8; 32]);
    for at in (0..32).rev() {
        let digit = i16::from(ORDER[at]) - i16::from(s[at]) - borrow;
        borrow = i16::from(digit < 0);
        difference[at] = u8::try_from(digit.rem_euclid(256)).unwrap();
    }
    let mut integer: Vec<u8> = difference.iter().copied().skip_while(|byte| *byte == 0).collect();
    if integer[0] >= 0x80 {
        integer.insert(0, 0);
    }
    let element = |tag: u8, content: &[u8]| [&[tag, u8::try_from(content.len()).unwrap()], content].concat();
    let signature = element(0x30, &[r, &element(2, &integer)].concat());
    let bits = element(3, &[&[0], signature.as_slice()].concat());
    let algorithm_end = der.len() - Certificate::parse(der).unwrap().signature.len() - 3;
    let content = [&der[4..algorithm_end], &bits].concat();
    [&[0x30, 0x82], u16::try_from(content.len()).unwrap().to_be_bytes().as_slice(), &content].concat()
}

/// A CA that was made for a test, and what to sign with it.
struct Ca {
    der: Vec<u8>,
    issuer: Issuer<'static, KeyPair>,
}

fn ca_params(name: &str) -> CertificateParams {
    let mut params = leaf_params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn leaf_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.not_before = now() - Duration::days(1);
    params.not_after = now() + Duration::days(1);
    params
}

fn now() -> OffsetDateTime {
    NOW.to_offset_date_time()
}

fn root(params: CertificateParams) -> Ca {
    let key = KeyPair::generate().unwrap();
    let der = params.self_signed(&key).unwrap().der().to_vec();
    Ca { der, issuer: Issuer::new(params, key) }
}

fn below(ca: &Ca, params: CertificateParams) -> Ca {
    let key = KeyPair::generate().unwrap();
    let der = params.signed_by(&key, &ca.issuer).unwrap().der().to_vec();
    Ca { der, issuer: Issuer::new(params, key) }
}

fn leaf(ca: &Ca, params: &CertificateParams) -> Certificate {
    let certificate = params.signed_by(&KeyPair::generate().unwrap(), &ca.issuer).unwrap();
    Certificate::parse(certificate.der()).unwrap()
}

fn path(leaf: &Certificate, intermediates: &[&Ca], authority_der: &[u8]) -> Result<usize, Untrusted> {
    let intermediates: Vec<Certificate> =
        intermediates.iter().map(|ca| Certificate::parse(&ca.der).unwrap()).collect();
    verify(leaf, &intermediates, &[authority(authority_der)], NOW)
}

/// The verdict on a leaf under an intermediate with these changes, under a sound root.
fn with_intermediate(change: impl FnOnce(&mut CertificateParams)) -> Result<usize, Untrusted> {
    let top = root(ca_params("root"));
    let mut params = ca_params("middle");
    change(&mut params);
    let middle = below(&top, params);
    path(&leaf(&middle, &leaf_params("leaf")), &[&middle], &top.der)
}

#[test]
fn every_rule_on_an_intermediate_holds() {
    assert_eq!(with_intermediate(|_| {}), Ok(0));
    assert_eq!(with_intermediate(|ca| ca.is_ca = IsCa::ExplicitNoCa), Err(Untrusted::NotCa));
    assert_eq!(with_intermediate(|ca| ca.is_ca = IsCa::NoCa), Err(Untrusted::NotCa));
    let only_crls = |ca: &mut CertificateParams| ca.key_usages = vec![KeyUsagePurpose::CrlSign];
    assert_eq!(with_intermediate(only_crls), Err(Untrusted::MayNotSign));
    assert_eq!(with_intermediate(|ca| ca.key_usages = vec![]), Ok(0));
    let over = |ca: &mut CertificateParams| ca.not_after = now() - Duration::seconds(1);
    assert_eq!(with_intermediate(over), Err(Untrusted::NotValidNow));
    let ahead = |ca: &mut CertificateParams| ca.not_before = now() + Duration::seconds(1);
    assert_eq!(with_intermediate(ahead), Err(Untrusted::NotValidNow));
    let last_second = |ca: &mut CertificateParams| ca.not_after = now();
    assert_eq!(with_intermediate(last_second), Ok(0));
}

#[test]
fn an_authority_that_has_expired_vouches_for_nobody() {
    let mut params = ca_params("root");
    params.not_after = now() - Duration::seconds(1);
    let top = root(params);
    assert_eq!(path(&leaf(&top, &leaf_params("leaf")), &[], &top.der), Err(Untrusted::NotValidNow));
}

#[test]
fn what_a_ca_is_limited_to_holds() {
    let limited = |most| {
        let mut params = ca_params("root");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(most));
        let top = root(params);
        let middle = below(&top, ca_params("middle"));
        let direct = path(&leaf(&top, &leaf_params("leaf")), &[], &top.der);
        (direct, path(&leaf(&middle, &leaf_params("leaf")), &[&middle], &top.der))
    };
    assert_eq!(limited(0), (Ok(0), Err(Untrusted::PathLen)));
    assert_eq!(limited(1), (Ok(0), Ok(0)));
    // Name constraints are not followed: a CA that has them, critical, is not taken.
    let mut params = ca_params("root");
    let mut constraints = CustomExtension::from_oid_content(&[2, 5, 29, 30], vec![0x30, 0]);
    constraints.set_criticality(true);
    params.custom_extensions = vec![constraints];
    assert!(Authority::from_der(&root(params).der).is_err());
}

#[test]
fn a_leaf_is_for_endorsement_and_takes_secrets() {
    let top = root(ca_params("root"));
    let judged = |change: &dyn Fn(&mut CertificateParams)| {
        let mut params = leaf_params("leaf");
        change(&mut params);
        path(&leaf(&top, &params), &[], &top.der)
    };
    let usage = |purpose| move |leaf: &mut CertificateParams| leaf.extended_key_usages = vec![purpose];
    let endorsement = rcgen::ExtendedKeyUsagePurpose::Other(vec![2, 23, 133, 8, 1]);
    let attestation = rcgen::ExtendedKeyUsagePurpose::Other(vec![2, 23, 133, 8, 3]);
    let set =
        |leaf: &mut CertificateParams, purpose: &rcgen::ExtendedKeyUsagePurpose| usage(purpose.clone())(leaf);
    assert_eq!(judged(&|leaf| set(leaf, &endorsement)), Ok(0));
    assert_eq!(judged(&|leaf| set(leaf, &attestation)), Err(Untrusted::ExtendedKeyUsage));
    let server = rcgen::ExtendedKeyUsagePurpose::ServerAuth;
    assert_eq!(judged(&|leaf| set(leaf, &server)), Err(Untrusted::ExtendedKeyUsage));
    for (purpose, verdict) in [
        (KeyUsagePurpose::KeyEncipherment, Ok(0)),
        (KeyUsagePurpose::KeyAgreement, Ok(0)),
        (KeyUsagePurpose::DigitalSignature, Err(Untrusted::KeyUsage)),
        (KeyUsagePurpose::KeyCertSign, Err(Untrusted::LeafIsCa)),
    ] {
        assert_eq!(judged(&|leaf| leaf.key_usages = vec![purpose]), verdict);
    }
}

#[test]
fn a_ca_of_the_right_name_and_another_key_vouches_for_nobody() {
    let (real, forged) = (root(ca_params("root")), root(ca_params("root")));
    assert_eq!(path(&leaf(&forged, &leaf_params("leaf")), &[], &real.der), Err(Untrusted::Signature));
    assert_eq!(path(&leaf(&forged, &leaf_params("leaf")), &[&forged], &real.der), Err(Untrusted::Signature));
    // Of two of one name the right one is found.
    let authorities = [authority(&forged.der), authority(&real.der)];
    assert_eq!(verify(&leaf(&real, &leaf_params("leaf")), &[], &authorities, NOW), Ok(1));
}

#[test]
fn a_path_has_at_most_five_cas() {
    let mut cas = vec![root(ca_params("0"))];
    for depth in 1..6 {
        cas.push(below(&cas[depth - 1], ca_params(&depth.to_string())));
    }
    let judged = |last: usize| {
        let intermediates: Vec<&Ca> = cas[1..=last].iter().collect();
        path(&leaf(&cas[last], &leaf_params("leaf")), &intermediates, &cas[0].der)
    };
    assert_eq!(judged(4), Ok(0));
    assert_eq!(judged(5), Err(Untrusted::TooLong));
}

#[test]
fn cas_that_issue_each_other_cost_a_bounded_number_of_signatures() {
    let circle = root(ca_params("circle"));
    let stranger = root(ca_params("stranger"));
    let leaf = leaf(&circle, &leaf_params("leaf"));
    let verdict = path(&leaf, &[&circle; 7], &stranger.der);
    assert_eq!(verdict, Err(Untrusted::TooCostly));
}
