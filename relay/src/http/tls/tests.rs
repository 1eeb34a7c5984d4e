//! Real handshakes between rustls and rustls, over buffers.

use super::*;
use crate::{
    ca::{
        Authority, CaName, CaRecord, Demand, Domain, Issued, Profile, Roots, SETTLE_SECONDS, TrustDomain,
        create, rotate,
    },
    random::Random,
    seal::{KeyRing, MasterKey},
};
use rcgen::{CertificateParams, KeyPair, PublicKeyData as _};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, ProtocolVersion, RootCertStore, ServerConnection,
    pki_types::{PrivatePkcs8KeyDer, ServerName, pem::PemObject as _},
    version::TLS12,
};
use shared::{
    csr::PublicKey,
    id::{NodeId, PoolUid},
};
use std::time::Duration;
use zeroize::Zeroizing;

struct World {
    records: Vec<CaRecord>,
    authority: Authority,
    clock: Clock,
    tls: Arc<Tls>,
}

/// A machine with its key and what it was issued.
struct Machine {
    key: KeyPair,
    issued: Issued,
}

fn ring() -> KeyRing {
    KeyRing::new(MasterKey::from_bytes(Zeroizing::new([1; 32])), vec![])
}

fn random() -> Random {
    Random::seeded(3)
}

fn trust_domain() -> TrustDomain {
    "td.example".parse().unwrap()
}

fn open(records: &[CaRecord]) -> Authority {
    Authority::open(&trust_domain(), records.to_vec(), &ring(), &random()).unwrap()
}

impl World {
    fn new() -> Self {
        let clock = Clock::manual(Timestamp::parse("2026-03-01T12:00:00Z").unwrap());
        let records = create(&trust_domain(), Roots::drawn(), clock.now(), &ring(), &random()).unwrap();
        let authority = open(&records);
        let tls = Arc::new(Tls::new(server(&authority, &clock), authority.trust(), &clock).unwrap());
        Self { records, authority, clock, tls }
    }

    fn machine(&self, profile: Profile, ttl_seconds: u32) -> Machine {
        issue(&self.authority, profile, self.clock.now(), ttl_seconds)
    }

    /// A client that trusts the platform's root and the relay's clock.
    fn client(&self, machine: Option<&Machine>) -> ClientConfig {
        let chain = machine.map(|machine| {
            let chain = [&machine.issued.certificate_pem, &machine.issued.chain_pem].map(|pem| der(pem));
            (chain.to_vec(), machine.key.serialize_der())
        });
        self.client_with(chain)
    }

    fn client_with(&self, chain: Option<(Vec<CertificateDer<'static>>, Vec<u8>)>) -> ClientConfig {
        client(&self.authority.bundle(Domain::Platform), &self.clock, chain)
    }

    fn connect(&self, client: ClientConfig) -> Result<(ClientConnection, ServerConnection), Error> {
        connect(client, self.tls.config())
    }

    fn peer(&self, client: ClientConfig) -> Result<Option<Arc<PeerCertificate>>, Error> {
        let (_, server) = self.connect(client)?;
        Ok(self.tls.peer(server.peer_certificates()).now())
    }
}

fn issue(authority: &Authority, profile: Profile, now: Timestamp, ttl_seconds: u32) -> Machine {
    let key = KeyPair::generate().unwrap();
    let public = PublicKey::from_spki_der(&key.subject_public_key_info()).unwrap();
    let (pool, node) = (PoolUid::derive(&[1; 32]), NodeId::derive(&[2; 32]));
    let issued = authority.issue_node(profile, &public, &pool, &node, now, ttl_seconds).unwrap();
    Machine { key, issued }
}

fn server(authority: &Authority, clock: &Clock) -> ServerCertificate {
    let names = [ServerName::try_from("localhost").unwrap(), ServerName::try_from("127.0.0.1").unwrap()];
    authority.issue_relay(&names, clock.now()).unwrap()
}

fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

fn client(
    bundle: &str,
    clock: &Clock,
    chain: Option<(Vec<CertificateDer<'static>>, Vec<u8>)>,
) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let time = Arc::new(ClockTime(clock.clone()));
    let builder = ClientConfig::builder_with_details(Arc::new(aws_lc_rs::default_provider()), time)
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match chain {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            builder.with_client_auth_cert(chain, PrivatePkcs8KeyDer::from(key).into()).unwrap()
        }
    };
    config.alpn_protocols = vec![b"h2".to_vec()];
    config
}

/// Runs a handshake to its end; the error is the one of whoever refused.
fn connect(
    client: ClientConfig,
    server: Arc<ServerConfig>,
) -> Result<(ClientConnection, ServerConnection), Error> {
    let name = ServerName::try_from("localhost").unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name).unwrap();
    let mut server = ServerConnection::new(server).unwrap();
    for _ in 0..10 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        server.read_tls(&mut bytes.as_slice()).unwrap();
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let mut bytes = bytes.as_slice();
        while !bytes.is_empty() {
            client.read_tls(&mut bytes).unwrap();
            client.process_new_packets()?;
        }
        if !client.is_handshaking() && !server.is_handshaking() && !client.wants_write() {
            return Ok((client, server));
        }
    }
    panic!("the handshake does not end")
}

fn is_certificate_error(verdict: &Result<Option<Arc<PeerCertificate>>, Error>) -> bool {
    matches!(verdict, Err(Error::InvalidCertificate(_)))
}

#[test]
fn a_client_without_a_certificate_is_served_by_tls_1_3_and_h2() {
    let world = World::new();
    let (client, server) = world.connect(world.client(None)).unwrap();
    assert_eq!(server.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    assert_eq!(server.alpn_protocol(), Some(&b"h2"[..]));
    assert_eq!(world.tls.peer(server.peer_certificates()).now(), None);
    // Leaf, issuing CA and root, so that a machine that knows only the pin can build the path.
    assert_eq!(client.peer_certificates().unwrap().len(), 3);
    let group = client.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, rustls::NamedGroup::X25519MLKEM768);
}

#[test]
fn tls_1_2_is_refused() {
    let world = World::new();
    let mut roots = RootCertStore::empty();
    roots.add(der(&world.authority.bundle(Domain::Platform))).unwrap();
    let old = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let refused = world.connect(old).map(|_| ()).unwrap_err();
    assert!(matches!(refused, Error::PeerIncompatible(_)), "{refused}");
}

#[test]
fn nothing_is_resumed() {
    use std::io::Read as _;
    let world = World::new();
    // Clones share one store of sessions.
    let config = world.client(None);
    for _ in 0..2 {
        let (mut client, server) = world.connect(config.clone()).unwrap();
        assert_eq!(server.handshake_kind(), Some(HandshakeKind::Full));
        assert_eq!(client.tls13_tickets_received(), 0);
        assert!(client.early_data().is_none());
        assert!(client.reader().read(&mut [0; 8]).is_err());
    }
    let server = world.tls.config();
    assert_eq!((server.send_tls13_tickets, server.max_early_data_size), (0, 0));
    assert!(!server.session_storage.can_cache() && !server.ticketer.enabled());
}

#[test]
fn a_machine_of_each_kind_is_known_by_its_certificate() {
    let world = World::new();
    for profile in Profile::ALL {
        let machine = world.machine(profile, 3600);
        let peer = world.peer(world.client(Some(&machine))).unwrap().unwrap();
        assert_eq!((peer.kind, &peer.serial), (profile, &machine.issued.serial));
        assert_eq!(peer.issuer, machine.issued.issuer);
    }
}

#[test]
fn an_expired_certificate_comes_through_and_says_when_it_ended() {
    let world = World::new();
    let machine = world.machine(Profile::Node, 3600);
    let config = world.client(Some(&machine));
    world.clock.advance(Duration::from_secs(7 * 86_400));
    let peer = world.peer(config).unwrap().unwrap();
    assert!(peer.not_after < world.clock.now());
    assert_eq!(peer.not_after, machine.issued.not_after);
}

#[test]
fn a_certificate_from_the_future_is_refused_until_then() {
    let world = World::new();
    let later = world.clock.now().plus_seconds(600);
    let machine = issue(&world.authority, Profile::Node, later, 3600);
    let refused = world.peer(world.client(Some(&machine))).unwrap_err();
    assert_eq!(refused, Error::InvalidCertificate(CertificateError::NotValidYet));
    world.clock.advance(Duration::from_secs(300));
    assert!(world.peer(world.client(Some(&machine))).unwrap().is_some());
}

#[test]
fn expired_and_made_by_itself_or_by_another_relay_is_refused() {
    let world = World::new();
    let machine = world.machine(Profile::Node, 3600);
    let other = World::new().machine(Profile::Node, 3600);
    let key = KeyPair::generate().unwrap();
    let mut own = CertificateParams::default();
    own.not_after = world.clock.now().plus_seconds(3600).to_offset_date_time();
    let own = own.self_signed(&key).unwrap();
    world.clock.advance(Duration::from_secs(86_400));
    assert!(world.peer(world.client(Some(&machine))).is_ok());
    assert!(is_certificate_error(&world.peer(world.client(Some(&other)))));
    let chain = vec![own.der().clone(), der(&machine.issued.chain_pem)];
    assert!(is_certificate_error(&world.peer(world.client_with(Some((chain, key.serialize_der()))))));
}

#[test]
fn the_relays_own_certificate_is_no_client() {
    let world = World::new();
    let server = server(&world.authority, &world.clock);
    let chain = Some((server.chain, server.key.secret_der().to_vec()));
    assert!(is_certificate_error(&world.peer(world.client_with(chain))));
}

#[test]
fn somebody_elses_certificate_without_its_key_is_refused() {
    let world = World::new();
    let machine = world.machine(Profile::Node, 3600);
    let thief = KeyPair::generate().unwrap();
    let mut config = world.client(None);
    let key =
        aws_lc_rs::sign::any_ecdsa_type(&PrivatePkcs8KeyDer::from(thief.serialize_der()).into()).unwrap();
    let chain = [&machine.issued.certificate_pem, &machine.issued.chain_pem].map(|pem| der(pem)).to_vec();
    // `with_client_auth_cert` would notice the mismatch; a thief would not ask it.
    config.client_auth_cert_resolver =
        Arc::new(SingleCertAndKey::from(Arc::new(CertifiedKey::new(chain, key))));
    for days in [0, 2] {
        world.clock.advance(Duration::from_secs(days * 86_400));
        let refused = world.peer(config.clone()).unwrap_err();
        assert_eq!(refused, Error::InvalidCertificate(CertificateError::BadSignature));
    }
}

#[test]
fn the_servers_certificate_is_exchanged_while_it_runs() {
    let world = World::new();
    let (before, _) = world.connect(world.client(None)).unwrap();
    world.tls.replace_certificate(server(&world.authority, &world.clock)).unwrap();
    let (after, _) = world.connect(world.client(None)).unwrap();
    assert_ne!(before.peer_certificates(), after.peer_certificates());
    assert_eq!(before.peer_certificates().unwrap()[1..], after.peer_certificates().unwrap()[1..]);
}

#[test]
fn trust_is_exchanged_while_it_runs_and_both_exchanges_last() {
    let world = World::new();
    let old = world.machine(Profile::Node, 3600);
    let turned = rotate(
        &trust_domain(),
        world.records.clone(),
        Demand::Issuer(CaName::Node),
        world.clock.now(),
        &ring(),
        &random(),
    )
    .unwrap();
    let rotated = open(&turned.records);
    world.clock.advance(Duration::from_secs(SETTLE_SECONDS.unsigned_abs()));
    let new = issue(&rotated, Profile::Node, world.clock.now(), 3600);
    assert!(is_certificate_error(&world.peer(world.client(Some(&new)))));
    world.tls.replace_trust(rotated.trust()).unwrap();
    world.tls.replace_certificate(server(&rotated, &world.clock)).unwrap();
    for machine in [&old, &new] {
        let peer = world.peer(world.client(Some(machine))).unwrap().unwrap();
        assert_eq!(peer.issuer, machine.issued.issuer);
    }
    // A connection that was made before its CA was dropped is nobody's afterwards.
    let (_, open) = world.connect(world.client(Some(&old))).unwrap();
    let peer = world.tls.peer(open.peer_certificates());
    assert_eq!(peer.now().unwrap().issuer, old.issued.issuer);
    world.tls.replace_trust(World::new().authority.trust()).unwrap();
    assert_eq!(peer.now(), None);
    world.tls.replace_trust(rotated.trust()).unwrap();
    assert_eq!(peer.now().unwrap().issuer, old.issued.issuer);
}

#[test]
fn a_key_that_is_not_the_certificates_is_not_served() {
    let world = World::new();
    let mut wrong = server(&world.authority, &world.clock);
    wrong.key = server(&world.authority, &world.clock).key;
    assert!(world.tls.replace_certificate(wrong).is_err());
    assert!(world.connect(world.client(None)).is_ok());
}
