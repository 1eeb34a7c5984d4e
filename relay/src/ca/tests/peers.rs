//! Client certificates, real, expired, altered and forged: who is known, and who is nobody.

use super::*;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};

/// The real `node` CA with its key, to sign what the relay never would.
fn node_ca(records: &[CaRecord]) -> (Issuer<'static, keys::CaKey>, CertificateDer<'static>) {
    ca_of(records, CaName::Node)
}

fn ca_of(records: &[CaRecord], name: CaName) -> (Issuer<'static, keys::CaKey>, CertificateDer<'static>) {
    let record = records.iter().find(|record| record.name == name).unwrap();
    let key = keys::CaKey::open(&ring(), &record.id, record.sealed_key.as_ref().unwrap()).unwrap();
    let certificate = der(&record.certificate_pem);
    (Issuer::from_ca_cert_der(&certificate, key).unwrap(), certificate)
}

/// A leaf as the relay would issue it, to be changed.
fn leaf(profile: Profile) -> CertificateParams {
    let validity =
        profile::Validity { not_before: now().plus_seconds(-3600), not_after: now().plus_seconds(-60) };
    let mut params = profile::machine(&trust_domain(), profile, &pool(), &node(), validity).unwrap();
    profile::number(&mut params, &random());
    params
}

/// What the trust says of a leaf that is expired, changed, and signed by the real `node` CA.
fn judged(
    records: &[CaRecord],
    change: impl Fn(&mut CertificateParams),
) -> Result<PeerCertificate, PeerRefused> {
    let mut params = leaf(Profile::Node);
    change(&mut params);
    let (issuer, certificate) = node_ca(records);
    let leaf = params.signed_by(&KeyPair::generate().unwrap(), &issuer).unwrap();
    open(records.to_vec()).unwrap().trust().judge(leaf.der(), &[certificate], now())
}

#[test]
fn a_certificate_of_each_kind_is_read_as_what_it_is() {
    let authority = authority();
    let trust = authority.trust();
    for profile in Profile::ALL {
        let pair = KeyPair::generate().unwrap();
        let issued = authority.issue_node(profile, &key_of(&pair), &pool(), &node(), now(), 600).unwrap();
        let leaf = der(&issued.certificate_pem);
        let expected = PeerCertificate {
            serial: issued.serial.clone(),
            kind: profile,
            pool: pool(),
            node: node(),
            not_before: issued.not_before,
            not_after: issued.not_after,
            key_digest: key_of(&pair).digest(),
            issuer: issued.issuer.clone(),
        };
        let chain = [der(&issued.chain_pem)];
        // Long expired it is still read: as of its own last second.
        for at in [
            now().plus_seconds(-300),
            now(),
            issued.not_after.plus_seconds(1),
            now().plus_seconds(9000 * DAY),
        ] {
            assert_eq!(trust.judge(&leaf, &chain, at).as_ref(), Ok(&expected));
        }
        assert_eq!(trust.read(&leaf), Ok(expected));
        let early = trust.judge(&leaf, &chain, now().plus_seconds(-301));
        assert!(matches!(early, Err(PeerRefused::Path(webpki::Error::CertNotValidYet { .. }))), "{early:?}");
        // A root in the chain does no harm; a missing or foreign issuing CA, or too many of them, does.
        let root = der(&authority.bundle(profile.domain()));
        assert!(trust.judge(&leaf, &[chain[0].clone(), root], now()).is_ok());
        assert!(trust.judge(&leaf, &[], now()).is_err());
        assert_eq!(trust.judge(&leaf, &[(); 5].map(|()| chain[0].clone()), now()), Err(PeerRefused::TooMany));
    }
}

#[test]
fn expired_hides_no_other_fault() {
    let records = records();
    assert!(judged(&records, |_| {}).is_ok(), "expired and nothing else");
    let refuse = |what: &str, change: &dyn Fn(&mut CertificateParams)| {
        let verdict = judged(&records, change);
        assert!(verdict.is_err(), "{what}: {verdict:?}");
    };
    refuse("serverAuth", &|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]);
    refuse("no EKU", &|params| params.extended_key_usages = vec![]);
    refuse("any EKU", &|params| params.extended_key_usages = vec![ExtendedKeyUsagePurpose::Any]);
    refuse("a second EKU", &|params| params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth));
    refuse("a CA", &|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    refuse("no basicConstraints", &|params| params.is_ca = IsCa::NoCa);
    refuse("keyCertSign", &|params| params.key_usages.push(KeyUsagePurpose::KeyCertSign));
    refuse("no keyUsage", &|params| params.key_usages = vec![]);
    refuse("no AKI", &|params| params.use_authority_key_identifier_extension = false);
    refuse("no SAN", &|params| params.subject_alt_names = vec![]);
    refuse("a DNS name beside", &|params| {
        params.subject_alt_names.push(SanType::DnsName("x".try_into().unwrap()));
    });
    refuse("two URIs", &|params| {
        let again = params.subject_alt_names[0].clone();
        params.subject_alt_names.push(again);
    });
    for uri in [
        "spiffe://td.example/relay".to_owned(),
        "spiffe://td.example".to_owned(),
        trust_domain().node_uri(Profile::Agent, &pool(), &node()),
        trust_domain().node_uri(Profile::NodeTenant, &pool(), &node()),
        trust_domain().node_uri(Profile::Node, &pool(), &node()).replace("td.example", "other.example"),
        trust_domain().node_uri(Profile::Node, &pool(), &NodeId::derive(&[3; 32])),
    ] {
        refuse(&uri.clone(), &|params| {
            params.subject_alt_names = vec![SanType::URI(uri.clone().try_into().unwrap())];
        });
    }
    refuse("another CN", &|params| params.distinguished_name.push(DnType::CommonName, "x"));
    refuse("no CN", &|params| params.distinguished_name = DistinguishedName::new());
    refuse("more than a CN", &|params| params.distinguished_name.push(DnType::OrganizationName, "x"));
    refuse("a short serial", &|params| params.serial_number = Some(SerialNumber::from(7u64)));
    refuse("a long serial", &|params| params.serial_number = Some(SerialNumber::from_slice(&[0x41; 17])));
    refuse("one more extension", &|params| {
        params.custom_extensions = vec![CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0])];
    });
    refuse("ends before it begins", &|params| {
        params.not_after = params.not_before - std::time::Duration::from_secs(1);
    });
    refuse("before 1970", &|params| {
        params.not_before = Timestamp::from_seconds(-10 * DAY).to_offset_date_time();
        params.not_after = Timestamp::from_seconds(-DAY).to_offset_date_time();
    });
}

/// Refused at two times, when it has expired and while it holds.
fn refuse(trust: &Trust, what: &str, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) {
    for at in [now(), now().plus_seconds(-120)] {
        let verdict = trust.judge(leaf, chain, at);
        assert!(verdict.is_err(), "{what}: {verdict:?}");
    }
}

/// As [`refuse`], for a leaf that is right in form, so that only the signatures can refuse it.
fn refuse_path(trust: &Trust, what: &str, leaf: &CertificateDer<'_>, chain: &[CertificateDer<'_>]) {
    assert!(trust.read(leaf).is_ok(), "{what}");
    for at in [now(), now().plus_seconds(-120)] {
        let verdict = trust.judge(leaf, chain, at);
        assert!(matches!(verdict, Err(PeerRefused::Path(_))), "{what}: {verdict:?}");
    }
}

/// What a CA says that poses as `real`: its subject and its key identifier.
fn posing_as(real: &CertificateDer<'_>) -> CertificateParams {
    let validity =
        profile::Validity { not_before: now().plus_seconds(-DAY), not_after: now().plus_seconds(DAY) };
    let mut params = profile::ca(&trust_domain(), Domain::Platform, CaName::Node, "x", validity).unwrap();
    let subject = parsed(real).subject().iter_common_name().next().unwrap().as_str().unwrap().to_owned();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, subject);
    params.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(key_id(real));
    params
}

#[test]
fn expired_and_made_by_itself_is_refused() {
    let records = records();
    let trust = open(records.clone()).unwrap().trust();
    let (_, real_ca) = node_ca(&records);
    let beside = std::slice::from_ref(&real_ca);
    let pair = KeyPair::generate().unwrap();
    let own = leaf(Profile::Node).self_signed(&pair).unwrap();
    refuse(&trust, "alone", own.der(), &[]);
    refuse(&trust, "the real CA beside it", own.der(), beside);
    refuse(&trust, "itself as CA", own.der(), &[own.der().clone()]);
    let mut posing = leaf(Profile::Node);
    posing.key_identifier_method = rcgen::KeyIdMethod::PreSpecified(key_id(&real_ca));
    let posing = posing.self_signed(&pair).unwrap();
    refuse_path(&trust, "naming the real CA's key", posing.der(), beside);
}

#[test]
fn expired_and_signed_by_a_forged_ca_is_refused() {
    let records = records();
    let trust = open(records.clone()).unwrap().trust();
    let (issuer, real_ca) = node_ca(&records);
    let beside = std::slice::from_ref(&real_ca);
    let pair = KeyPair::generate().unwrap();
    // A CA of the same name and key identifier with another key.
    let forged = Issuer::from_ca_cert_der(&real_ca, KeyPair::generate().unwrap()).unwrap();
    let forged_ca = posing_as(&real_ca).self_signed(forged.key()).unwrap();
    let by_forged = leaf(Profile::Node).signed_by(&pair, &forged).unwrap();
    refuse_path(&trust, "the real CA beside it", by_forged.der(), beside);
    refuse_path(&trust, "the forged CA beside it", by_forged.der(), &[forged_ca.der().clone()]);
    refuse_path(&trust, "both", by_forged.der(), &[forged_ca.der().clone(), real_ca.clone()]);

    let real = leaf(Profile::Node).signed_by(&pair, &issuer).unwrap();
    assert!(trust.judge(real.der(), beside, now()).is_ok());
    let mut broken = real.der().to_vec();
    *broken.last_mut().unwrap() ^= 1;
    refuse_path(&trust, "a broken signature", &broken.into(), beside);
    refuse(&trust, "a trailing byte", &[real.der().as_ref(), &[0]].concat().into(), beside);
    // A machine's certificate is no CA.
    let leaf_as_ca = Issuer::new(leaf(Profile::Node), KeyPair::generate().unwrap());
    let below = leaf(Profile::Node).signed_by(&pair, &leaf_as_ca).unwrap();
    refuse(&trust, "below a leaf", below.der(), &[real.der().clone(), real_ca.clone()]);
}

#[test]
fn certificates_of_the_ca_itself_and_of_other_relays_are_no_machines() {
    let records = records();
    let authority = open(records.clone()).unwrap();
    let trust = authority.trust();
    let (_, real_ca) = node_ca(&records);
    refuse(&trust, "an issuing CA", &real_ca, &[]);
    refuse(&trust, "a root", &der(&authority.bundle(Domain::Platform)), &[]);
    let server = authority.issue_relay(&[], now()).unwrap();
    refuse(&trust, "the relay's own", &server.chain[0], &server.chain[1..]);
    let foreign = issue(&super::authority(), Profile::Node);
    refuse(&trust, "another relay's", &der(&foreign.certificate_pem), &[der(&foreign.chain_pem)]);
}

#[test]
fn no_ca_can_vouch_outside_its_kind() {
    let records = records();
    let trust = open(records.clone()).unwrap().trust();
    let pair = KeyPair::generate().unwrap();
    for profile in Profile::ALL {
        for name in CaName::ISSUING {
            let (issuer, certificate) = ca_of(&records, name);
            let leaf = leaf(profile).signed_by(&pair, &issuer).unwrap();
            let verdict = trust.judge(leaf.der(), &[certificate], now());
            assert_eq!(verdict.is_ok(), profile.issuer() == name, "{profile} by {name}: {verdict:?}");
        }
    }
    // Signed by the tenants' CA, naming the platform's as its issuer, with both in the chain.
    let (tenant, tenant_ca) = ca_of(&records, CaName::NodeTenant);
    let (_, node_ca) = node_ca(&records);
    let posing = Issuer::from_ca_cert_der(&node_ca, tenant.key()).unwrap();
    let leaf = leaf(Profile::Node).signed_by(&pair, &posing).unwrap();
    for chain in [vec![node_ca.clone()], vec![tenant_ca.clone()], vec![node_ca, tenant_ca]] {
        assert!(trust.judge(leaf.der(), &chain, now()).is_err());
    }
}

#[test]
fn a_sub_ca_that_the_root_signed_for_somebody_else_vouches_for_nobody() {
    let records = records();
    let trust = open(records.clone()).unwrap().trust();
    let root = &records[0];
    let root_key = keys::CaKey::open(&ring(), &root.id, root.sealed_key.as_ref().unwrap()).unwrap();
    let root_issuer = Issuer::from_ca_cert_der(&der(&root.certificate_pem), root_key).unwrap();
    let (_, real_ca) = node_ca(&records);
    // Same subject and the same key identifier as the real `node` CA, truly signed by the root.
    let params = posing_as(&real_ca);
    let sub_key = KeyPair::generate().unwrap();
    let sub_ca = params.signed_by(&sub_key, &root_issuer).unwrap();
    let sub_issuer = Issuer::from_ca_cert_der(sub_ca.der(), sub_key).unwrap();
    let leaf = leaf(Profile::Node).signed_by(&KeyPair::generate().unwrap(), &sub_issuer).unwrap();
    assert_eq!(trust.judge(leaf.der(), &[sub_ca.der().clone()], now()), Err(PeerRefused::Issuer));
}

#[test]
fn no_flipped_bit_of_a_leaf_is_accepted() {
    let authority = authority();
    let trust = authority.trust();
    let issued = issue(&authority, Profile::Node);
    let (leaf, chain) = (der(&issued.certificate_pem), [der(&issued.chain_pem)]);
    let expected = trust.judge(&leaf, &chain, now()).unwrap();
    for bit in 0..leaf.len() * 8 {
        let mut flipped = leaf.to_vec();
        flipped[bit / 8] ^= 1 << (bit % 8);
        if let Ok(peer) = trust.judge(&flipped.into(), &chain, now()) {
            assert_eq!(peer, expected, "bit {bit}");
        }
    }
}

fn key_id(certificate: &CertificateDer<'_>) -> Vec<u8> {
    let find = |extension: &x509_parser::extensions::X509Extension<'_>| match extension.parsed_extension() {
        ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0.to_vec()),
        _ => None,
    };
    parsed(certificate).extensions().iter().find_map(find).unwrap()
}
