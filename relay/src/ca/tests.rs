//! What the CA makes and issues, taken apart again, and which stored records do not open.

mod offline;
mod peers;
mod rotation;

use super::*;
use crate::seal::MasterKey;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use shared::{
    csr::{CertificateRequest, Curve, PublicKey},
    id::{NodeId, PoolUid},
};
use x509_parser::{
    certificate::X509Certificate,
    extensions::{GeneralName, ParsedExtension},
    prelude::FromDer as _,
    revocation_list::CertificateRevocationList,
};
use zeroize::Zeroizing;

const DAY: i64 = 86_400;

fn now() -> Timestamp {
    Timestamp::parse("2026-03-01T12:00:00.500Z").unwrap()
}

fn trust_domain() -> TrustDomain {
    "td.example".parse().unwrap()
}

fn ring() -> KeyRing {
    KeyRing::new(MasterKey::from_bytes(Zeroizing::new([1; 32])), vec![])
}

fn random() -> Random {
    Random::seeded(7)
}

fn records() -> Vec<CaRecord> {
    create(&trust_domain(), Roots::drawn(), now(), &ring(), &random()).unwrap()
}

fn open(records: Vec<CaRecord>) -> Result<Authority, CaError> {
    Authority::open(&trust_domain(), records, &ring(), &random())
}

fn authority() -> Authority {
    open(records()).unwrap()
}

fn pool() -> PoolUid {
    PoolUid::derive(&[1; 32])
}

fn node() -> NodeId {
    NodeId::derive(&[2; 32])
}

fn key_of(pair: &rcgen::KeyPair) -> PublicKey {
    PublicKey::from_spki_der(&rcgen::PublicKeyData::subject_public_key_info(pair)).unwrap()
}

fn key() -> PublicKey {
    key_of(&rcgen::KeyPair::generate().unwrap())
}

fn issue(authority: &Authority, profile: Profile) -> Issued {
    authority.issue_node(profile, &key(), &pool(), &node(), now(), 86_400).unwrap()
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn parsed(der: &[u8]) -> X509Certificate<'_> {
    let (rest, parsed) = X509Certificate::from_der(der).unwrap();
    assert!(rest.is_empty());
    parsed
}

/// What a certificate's extensions say: name, whether critical, value.
fn extensions(certificate: &X509Certificate<'_>) -> Vec<(&'static str, bool, String)> {
    let describe = |extension: &x509_parser::extensions::X509Extension<'_>| {
        let (name, value) = match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(_) => ("aki", String::new()),
            ParsedExtension::SubjectKeyIdentifier(_) => ("ski", String::new()),
            ParsedExtension::BasicConstraints(value) => {
                ("basicConstraints", format!("{} {:?}", value.ca, value.path_len_constraint))
            }
            ParsedExtension::KeyUsage(value) => ("keyUsage", value.to_string()),
            ParsedExtension::ExtendedKeyUsage(value) => {
                ("eku", format!("server {} client {}", value.server_auth, value.client_auth))
            }
            ParsedExtension::SubjectAlternativeName(value) => {
                let names = value.general_names.iter().map(|name| match name {
                    GeneralName::IPAddress(bytes) => format!("IP {bytes:?}"),
                    other => other.to_string(),
                });
                ("san", names.collect::<Vec<_>>().join(" "))
            }
            other => panic!("{other:?}"),
        };
        (name, extension.critical, value)
    };
    let mut all: Vec<_> = certificate.extensions().iter().map(describe).collect();
    all.sort();
    all
}

fn said(name: &'static str, critical: bool, value: &str) -> (&'static str, bool, String) {
    (name, critical, value.to_owned())
}

#[test]
fn a_new_ca_has_two_roots_and_four_issuing_cas_of_the_profile() {
    let records = records();
    let names: Vec<_> = records.iter().map(|record| (record.domain, record.name)).collect();
    assert_eq!(
        names,
        [
            (Domain::Platform, CaName::Root),
            (Domain::Tenant, CaName::Root),
            (Domain::Platform, CaName::Relay),
            (Domain::Platform, CaName::Node),
            (Domain::Platform, CaName::Agent),
            (Domain::Tenant, CaName::NodeTenant),
        ]
    );
    for record in &records {
        let der = der(&record.certificate_pem);
        let certificate = parsed(&der);
        let root = record.name == CaName::Root;
        let eku = match record.name {
            CaName::Root => None,
            CaName::Relay => Some("server true client false"),
            _ => Some("server false client true"),
        };
        let uri = format!(
            "URI(spiffe://{}td.example)",
            if record.domain == Domain::Tenant { "tenant." } else { "" }
        );
        let mut expected = vec![
            said("aki", false, ""),
            said("basicConstraints", true, if root { "true None" } else { "true Some(0)" }),
            said("keyUsage", true, "Key Cert Sign, CRL Sign"),
            said("san", false, &uri),
            said("ski", false, ""),
        ];
        expected.extend(eku.map(|eku| said("eku", false, eku)));
        expected.sort();
        assert_eq!(extensions(&certificate), expected, "{}", record.id);
        let subject = certificate.subject().to_string();
        let start =
            if root { format!("CN={} root ", record.domain) } else { format!("CN={} CA ", record.name) };
        assert!(subject.starts_with(&start), "{subject}");
        let life = record.not_after.seconds() - now().seconds();
        assert_eq!(life, if root { ROOT_SECONDS } else { ISSUER_SECONDS });
        assert_eq!(record.not_before, Timestamp::from_seconds(now().seconds() - BACKDATE_SECONDS));
        assert_eq!(record.state, CaState::Active);
        assert_eq!(certificate.raw_serial().len(), SERIAL_BYTES);
    }
}

#[test]
fn a_machine_gets_exactly_its_profile() {
    let authority = authority();
    for (profile, uri) in [
        (Profile::Node, "spiffe://td.example/node"),
        (Profile::Agent, "spiffe://td.example/agent"),
        (Profile::NodeTenant, "spiffe://tenant.td.example/node-tenant"),
    ] {
        let pair = rcgen::KeyPair::generate().unwrap();
        let issued = authority.issue_node(profile, &key_of(&pair), &pool(), &node(), now(), 3600).unwrap();
        let leaf = der(&issued.certificate_pem);
        let certificate = parsed(&leaf);
        let uri = format!("URI({uri}/{}/{})", pool(), node());
        let mut expected = vec![
            said("aki", false, ""),
            said("basicConstraints", true, "false None"),
            said("eku", false, "server false client true"),
            said("keyUsage", true, "Digital Signature"),
            said("san", false, &uri),
            said("ski", false, ""),
        ];
        expected.sort();
        assert_eq!(extensions(&certificate), expected);
        assert_eq!(certificate.subject().to_string(), format!("CN={}", node()));
        assert_eq!(certificate.public_key().raw, key_of(&pair).spki_der());
        assert_eq!(hex::encode(certificate.raw_serial()), issued.serial);
        assert_eq!(certificate.validity().not_before.timestamp(), now().seconds() - 300);
        assert_eq!(certificate.validity().not_after.timestamp(), now().seconds() + 3600);
        assert_eq!(issued.not_before.seconds(), now().seconds() - 300);
        assert_eq!(issued.not_after.seconds(), now().seconds() + 3600);
        let issuer = authority.issuers().find(|record| record.id == issued.issuer).unwrap();
        assert_eq!((issuer.name, &issuer.certificate_pem), (profile.issuer(), &issued.chain_pem));
        let chain = der(&issued.chain_pem);
        certificate.verify_signature(Some(parsed(&chain).public_key())).unwrap();
    }
}

#[test]
fn a_request_is_granted_nothing_but_its_key() {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
    params.subject_alt_names = vec![rcgen::SanType::DnsName("relay.example".try_into().unwrap())];
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ECDSA_P384_SHA384] {
        let pair = rcgen::KeyPair::generate_for(algorithm).unwrap();
        let pem = params.serialize_request(&pair).unwrap().pem().unwrap();
        let request = CertificateRequest::parse(&pem).unwrap();
        let issued =
            authority().issue_node(Profile::Node, &request.key, &pool(), &node(), now(), 3600).unwrap();
        let leaf = der(&issued.certificate_pem);
        let certificate = parsed(&leaf);
        assert!(!certificate.is_ca());
        assert_eq!(certificate.public_key().raw, request.key.spki_der());
        let names = extensions(&certificate).into_iter().find(|one| one.0 == "san").unwrap().2;
        assert_eq!(names.matches("URI").count(), 1);
        assert!(!names.contains("relay.example"));
    }
    // OpenSSL's P-384 key in a request that is signed with SHA-256 keeps its curve.
    let golden = include_bytes!("../../../shared/testdata/csr/p384sha256.der");
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, golden);
    let pem = format!("-----BEGIN CERTIFICATE REQUEST-----\n{text}\n-----END CERTIFICATE REQUEST-----");
    let request = CertificateRequest::parse(&pem).unwrap();
    assert_eq!(request.key.curve(), Curve::P384);
    let issued = authority().issue_node(Profile::Node, &request.key, &pool(), &node(), now(), 3600).unwrap();
    assert_eq!(parsed(&der(&issued.certificate_pem)).public_key().raw, request.key.spki_der());
}

#[test]
fn serial_numbers_are_16_bytes_positive_and_differ() {
    let authority = authority();
    let serials: Vec<_> = (0..300).map(|_| issue(&authority, Profile::Node).serial).collect();
    for serial in &serials {
        let bytes = hex::decode::<16>(serial).unwrap();
        assert!((0x40..0x80).contains(&bytes[0]), "{serial}");
    }
    let mut unique = serials.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), serials.len());
}

#[test]
fn nothing_outlives_or_predates_its_issuer() {
    let authority = authority();
    let ca = authority.issuers().find(|record| record.name == CaName::Node).unwrap().clone();
    let late = ca.not_after.plus_seconds(-600);
    let issued = authority.issue_node(Profile::Node, &key(), &pool(), &node(), late, 86_400).unwrap();
    assert_eq!(issued.not_after, ca.not_after);
    let early = ca.not_before.plus_seconds(10);
    let issued = authority.issue_node(Profile::Node, &key(), &pool(), &node(), early, 86_400).unwrap();
    assert_eq!(issued.not_before, ca.not_before);
    for at in [ca.not_before.plus_seconds(-1), ca.not_after.plus_seconds(1)] {
        let refused = authority.issue_node(Profile::Node, &key(), &pool(), &node(), at, 86_400);
        assert!(matches!(refused, Err(CaError::NotValidNow { .. })), "{refused:?}");
    }
}

#[test]
fn the_relays_certificate_names_it_and_comes_with_its_chain() {
    let authority = authority();
    let names: Vec<_> = ["localhost", "127.0.0.1", "::1", "relay.example"]
        .map(|name| ServerName::try_from(name).unwrap())
        .into();
    let certificate = authority.issue_relay(&names, now()).unwrap();
    let leaf = parsed(&certificate.chain[0]);
    let mut expected = vec![
        said("aki", false, ""),
        said("basicConstraints", true, "false None"),
        said("eku", false, "server true client false"),
        said("keyUsage", true, "Digital Signature"),
        said(
            "san",
            false,
            "URI(spiffe://td.example/relay) DNSName(localhost) IP [127, 0, 0, 1] \
             IP [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1] DNSName(relay.example)",
        ),
        said("ski", false, ""),
    ];
    expected.sort();
    assert_eq!(extensions(&leaf), expected);
    assert_eq!(certificate.chain.len(), 3);
    let root = parsed(&certificate.chain[2]);
    leaf.verify_signature(Some(parsed(&certificate.chain[1]).public_key())).unwrap();
    parsed(&certificate.chain[1]).verify_signature(Some(root.public_key())).unwrap();
    let pin = format!("sha256:{}", hex::encode(&Sha256::digest(root.public_key().raw)));
    assert_eq!(authority.pin().unwrap(), pin);
    assert_eq!(authority.pins(), [pin]);
    assert!(!certificate.is_due(now().plus_seconds(19 * DAY)));
    assert!(certificate.is_due(now().plus_seconds(20 * DAY)));
}

#[test]
fn the_bundles_hold_each_domains_own_root() {
    let (records, authority) = (records(), authority());
    assert_eq!(authority.bundle(Domain::Platform).matches("BEGIN CERTIFICATE").count(), 1);
    assert_ne!(authority.bundle(Domain::Platform), authority.bundle(Domain::Tenant));
    let authority = open(records.clone()).unwrap();
    assert_eq!(authority.bundle(Domain::Platform), records[0].certificate_pem);
    assert_eq!(authority.bundle(Domain::Tenant), records[1].certificate_pem);
    assert_eq!(authority.issuers().count(), 4);
    assert_eq!(authority.not_after(), Some(records[2].not_after));
}

#[test]
fn a_crl_is_signed_numbered_and_dated() {
    let authority = authority();
    let serial = issue(&authority, Profile::Node).serial;
    let revoked = [Revoked { serial: serial.clone(), at: now() }];
    let node_ca = authority.issuers().find(|record| record.name == CaName::Node).unwrap();
    let by_name = authority.crl("node", &revoked, now(), 7).unwrap();
    let by_id = authority.crl(&node_ca.id, &[], now().plus_seconds(1), 8).unwrap();
    let ca = der(&node_ca.certificate_pem);
    let ca = parsed(&ca);
    let (_, list) = CertificateRevocationList::from_der(&by_name).unwrap();
    list.verify_signature(ca.public_key()).unwrap();
    assert_eq!(list.issuer().as_raw(), ca.subject().as_raw());
    let entries: Vec<_> = list.iter_revoked_certificates().collect();
    assert_eq!(entries.len(), 1);
    assert_eq!(hex::encode(entries[0].raw_serial()), serial);
    assert_eq!(list.next_update().unwrap().timestamp(), now().seconds() + CRL_SECONDS);
    let (_, later) = CertificateRevocationList::from_der(&by_id).unwrap();
    assert_eq!(later.iter_revoked_certificates().count(), 0);
    assert!(later.crl_number() > list.crl_number());
    for extension in list.extensions() {
        if let ParsedExtension::AuthorityKeyIdentifier(id) = extension.parsed_extension() {
            let key_id = ca.extensions().iter().find_map(|one| match one.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
                _ => None,
            });
            assert_eq!(id.key_identifier.as_ref().map(|id| id.0), key_id);
        }
    }
    for bad in ["", "zz", &serial[2..], &format!("{serial}00")] {
        let refused = authority.crl("node", &[Revoked { serial: bad.to_owned(), at: now() }], now(), 7);
        assert!(matches!(refused, Err(CaError::Serial { .. })), "{bad}");
    }
    assert!(matches!(authority.crl("root", &[], now(), 7), Err(CaError::UnknownIssuer { .. })));
}

#[test]
fn no_altered_or_misplaced_record_opens() {
    let good = records();
    assert!(open(good.clone()).is_ok());
    let position = |name| good.iter().position(|record| record.name == name).unwrap();
    let (relay, node, tenant) =
        (position(CaName::Relay), position(CaName::Node), position(CaName::NodeTenant));
    let refused = |what: &str, change: &dyn Fn(&mut Vec<CaRecord>)| {
        let mut records = good.clone();
        change(&mut records);
        assert!(open(records).is_err(), "{what}");
    };
    refused("another id", &|all| all[node].id = "node-0123456789abcdef".to_owned());
    refused("another domain", &|all| all[node].domain = Domain::Tenant);
    refused("roots exchanged", &|all| {
        all[0].domain = Domain::Tenant;
        all[1].domain = Domain::Platform;
    });
    refused("another end", &|all| all[node].not_after = all[node].not_after.plus_seconds(1));
    refused("another begin", &|all| all[node].not_before = all[node].not_before.plus_seconds(1));
    refused("another certificate", &|all| all[node].certificate_pem = all[relay].certificate_pem.clone());
    refused("another key", &|all| all[node].sealed_key = all[relay].sealed_key.clone());
    refused("no key", &|all| all[node].sealed_key = None);
    refused("announced", &|all| all[node].state = CaState::Announced);
    refused("none active", &|all| all[node].state = CaState::Overlap);
    refused("no root active", &|all| all[1].state = CaState::Overlap);
    refused("one absent", &|all| drop(all.remove(tenant)));
    refused("one twice", &|all| all.push(all[node].clone()));
    refused("a root absent", &|all| drop(all.remove(0)));
    refused("two blocks", &|all| {
        let again = all[node].certificate_pem.clone();
        all[node].certificate_pem.push_str(&again);
    });
    refused("renamed", &|all| {
        all[node].name = CaName::Agent;
        all[node].id = all[node].id.replace("node", "agent");
    });
    refused("not PEM", &|all| all[node].certificate_pem = "x".to_owned());
    refused("a signature that is not its root's", &|all| {
        let mut bytes = der(&all[node].certificate_pem).to_vec();
        *bytes.last_mut().unwrap() ^= 1;
        all[node].certificate_pem = pem_of(&bytes);
    });
    let other = create(&trust_domain(), Roots::drawn(), now(), &ring(), &random()).unwrap();
    refused("roots of another relay", &|all| all[0] = other[0].clone());
    refused("an issuing CA of another relay", &|all| all[node] = other[node].clone());
}

#[test]
fn an_offline_root_needs_no_key_and_a_wrong_master_key_opens_nothing() {
    let mut offline = records();
    offline[0].sealed_key = None;
    offline[1].sealed_key = None;
    let authority = open(offline).unwrap();
    issue(&authority, Profile::NodeTenant);
    let other = KeyRing::new(MasterKey::from_bytes(Zeroizing::new([2; 32])), vec![]);
    let refused = Authority::open(&trust_domain(), records(), &other, &random());
    assert!(matches!(refused, Err(CaError::Seal(SealError::UnknownKey { .. }))));
}
