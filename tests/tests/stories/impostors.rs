//! Certificates that lie, shown to a running relay. Each is refused in the handshake or at the next request, and none
//! is ever given a 200.

use super::{World, outcome};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType, date_time_ymd,
};
use relay::ca::{CaName, CaState};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tests::{
    Database, LocalRelay, Machine,
    client::{Identity, client},
    on_both_databases, try_post,
};

on_both_databases!(
    a_forged_certificate_is_refused_also_an_expired_one,
    a_certificate_of_another_relay_is_refused,
    the_relays_own_certificate_is_no_nodes,
    a_certificate_without_its_key_is_refused,
    a_superseded_certificate_is_refused_on_a_kept_connection,
    an_expired_certificate_is_refused_on_a_kept_connection,
);

const METHODS: [&str; 3] = ["node/heartbeat", "node/secrets", "node/renew"];

fn input(method: &str) -> Value {
    if method == "node/renew" { json!({"csr": Machine::new(7).csr}) } else { json!({}) }
}

/// What the relay says to this identity: `handshake` where it does not come to a word.
async fn told(relay: &LocalRelay, identity: impl Fn() -> Identity) -> Vec<String> {
    let mut told = Vec::new();
    for method in METHODS {
        let client = client(&relay.ca_bundle(), &relay.clock, Some(identity()));
        let answer = try_post(&client, &relay.url(), None, method, &input(method)).await;
        told.push(answer.map_or_else(|error| refusal(&error), |answer| outcome(&answer)));
    }
    told
}

/// `handshake` if it is the relay that ends the connection; its alert may be lost with the connection.
fn refusal(error: &reqwest::Error) -> String {
    let text = relay::fault::chain(error);
    let by_the_relay = ["received fatal alert", "reset by peer", "Broken pipe", "closed before"];
    if by_the_relay.iter().any(|sign| text.contains(sign)) { "handshake".to_owned() } else { text }
}

/// A machine that is a node, and its id.
async fn joined(relay: &LocalRelay, number: u32) -> (Machine, String) {
    let mut machine = Machine::new(number);
    let answer = machine.join(relay, &relay.mint(json!({})).await).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    (machine, answer.body["nodeId"].as_str().unwrap().to_owned())
}

fn identity(machine: &Machine) -> Identity {
    Identity::from_pem(machine.certificate().unwrap(), &machine.key_pem())
}

fn p256() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn key_of(pair: &KeyPair) -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(pair.serialize_der()).into()
}

/// The issuing CA that signs nodes' certificates now, as the relay publishes it.
fn issuing_ca(relay: &LocalRelay) -> CertificateDer<'static> {
    let ca = relay.context.ca.load();
    let node = ca.issuers().find(|ca| ca.name == CaName::Node && ca.state == CaState::Active).unwrap();
    CertificateDer::from_pem_slice(node.certificate_pem.as_bytes()).unwrap()
}

/// A CA with the names of the relay's own, and a key of the forger's.
fn forged_ca(names: &CertificateDer<'_>) -> (CertificateDer<'static>, Issuer<'static, KeyPair>) {
    let (_, parsed) = x509_parser::parse_x509_certificate(names).unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for name in parsed.subject().iter_common_name() {
        params.distinguished_name.push(DnType::CommonName, name.as_str().unwrap());
    }
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = date_time_ymd(2020, 1, 1);
    params.not_after = date_time_ymd(2040, 1, 1);
    let key = p256();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    (certificate, Issuer::new(params, key))
}

/// A leaf that says what the true one says, but for its end and its signature.
fn forged_leaf(
    truth: &CertificateDer<'_>,
    key: &KeyPair,
    (year, month, day): (i32, u8, u8),
    by: &Issuer<'_, KeyPair>,
) -> CertificateDer<'static> {
    let (_, parsed) = x509_parser::parse_x509_certificate(truth).unwrap();
    let names = parsed.subject_alternative_name().unwrap().unwrap();
    let uri = names.value.general_names.iter().find_map(|name| match name {
        x509_parser::extensions::GeneralName::URI(uri) => Some((*uri).to_owned()),
        _ => None,
    });
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    for name in parsed.subject().iter_common_name() {
        params.distinguished_name.push(DnType::CommonName, name.as_str().unwrap());
    }
    params.subject_alt_names = vec![SanType::URI(uri.unwrap().as_str().try_into().unwrap())];
    params.serial_number = Some(parsed.raw_serial().to_vec().into());
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(2025, 1, 1);
    params.not_after = date_time_ymd(year, month, day);
    params.signed_by(key, by).unwrap().der().clone()
}

async fn a_forged_certificate_is_refused_also_an_expired_one(database: Database) {
    let world = World::new(database).await;
    let (machine, _) = joined(&world.relay, 1).await;
    assert_eq!(told(&world.relay, || identity(&machine)).await, ["200"; 3], "the true one is taken");
    let truth = identity(&machine).chain.swap_remove(0);
    let real_ca = issuing_ca(&world.relay);
    let (false_ca, issuer) = forged_ca(&real_ca);
    let key = p256();
    // The relay's day is 28 May 2026: one has years to go, one ended within the grace, one long before.
    for ends in [(2030, 1, 1), (2026, 5, 27), (2026, 1, 1)] {
        let leaf = forged_leaf(&truth, &key, ends, &issuer);
        for chain in [
            vec![leaf.clone()],
            vec![leaf.clone(), false_ca.clone()],
            vec![leaf.clone(), real_ca.clone()],
            vec![leaf.clone(), false_ca.clone(), real_ca.clone()],
        ] {
            let shown = || Identity { chain: chain.clone(), key: key_of(&key) };
            assert_eq!(
                told(&world.relay, shown).await,
                ["handshake"; 3],
                "ends {ends:?}, chain of {}",
                chain.len()
            );
        }
    }
    let own = CertificateParams::default().self_signed(&key).unwrap().der().clone();
    let shown = || Identity { chain: vec![own.clone()], key: key_of(&key) };
    assert_eq!(told(&world.relay, shown).await, ["handshake"; 3]);
}

async fn a_certificate_of_another_relay_is_refused(database: Database) {
    let world = World::new(database).await;
    // The same trust domain and names all over, another store: another relay.
    let other = World::new(Database::sqlite()).await;
    let (machine, _) = joined(&other.relay, 1).await;
    assert_eq!(told(&other.relay, || identity(&machine)).await, ["200"; 3]);
    assert_eq!(told(&world.relay, || identity(&machine)).await, ["handshake"; 3]);
    let mut with_our_ca = identity(&machine).chain;
    with_our_ca.push(issuing_ca(&world.relay));
    let key = machine.key_pem();
    let shown = || Identity { chain: with_our_ca.clone(), ..Identity::from_pem("", &key) };
    assert_eq!(told(&world.relay, shown).await, ["handshake"; 3]);
}

async fn the_relays_own_certificate_is_no_nodes(database: Database) {
    let world = World::new(database).await;
    let names = ["127.0.0.1".try_into().unwrap()];
    let ca = world.relay.context.ca.load_full();
    let server = ca.issue_relay(&names, world.clock.now()).unwrap();
    let shown = || Identity { chain: server.chain.clone(), key: server.key.clone_key() };
    assert_eq!(told(&world.relay, shown).await, ["handshake"; 3]);
}

async fn a_certificate_without_its_key_is_refused(database: Database) {
    let world = World::new(database).await;
    let (machine, _) = joined(&world.relay, 1).await;
    let (thief, _) = joined(&world.relay, 2).await;
    let shown = || Identity { chain: identity(&machine).chain, key: identity(&thief).key };
    assert_eq!(told(&world.relay, shown).await, ["handshake"; 3]);
}

async fn a_superseded_certificate_is_refused_on_a_kept_connection(database: Database) {
    let world = World::new(database).await;
    let (mut machine, _) = joined(&world.relay, 1).await;
    let (kept, url) = (machine.client(&world.relay), world.relay.url());
    let told = async |method| outcome(&try_post(&kept, &url, None, method, &input(method)).await.unwrap());
    assert_eq!(told("node/heartbeat").await, "200");
    assert_eq!(machine.renew(&world.relay).await.status, 200);
    assert_eq!(told("node/heartbeat").await, "200", "the new one has not been used");
    assert_eq!(machine.call(&world.relay, "node/heartbeat", &json!({})).await.status, 200);
    for method in METHODS {
        assert_eq!(told(method).await, "superseded", "{method}");
    }
}

async fn an_expired_certificate_is_refused_on_a_kept_connection(database: Database) {
    let world = World::new(database).await;
    let (machine, _) = joined(&world.relay, 1).await;
    let (kept, url) = (machine.client(&world.relay), world.relay.url());
    let beat = async || outcome(&try_post(&kept, &url, None, "node/heartbeat", &json!({})).await.unwrap());
    assert_eq!(beat().await, "200");
    world.pass(86_401);
    assert_eq!(beat().await, "UNAUTHENTICATED");
}
