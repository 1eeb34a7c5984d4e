//! The crypto ceiling: how fast a relay could be on these cores that did the cryptography of a join or a renewal and
//! nothing else: no sockets, no HTTP, no JSON, no store.
//!
//! A join is the server's side of a TLS 1.3 handshake (X25519MLKEM768, the relay's own configuration and chain of
//! three), reading and verifying the certificate request, and issuing the certificate. A renewal has a handshake in
//! which the client's certificate is verified too. Each is measured on all cores at once, in CPU time, so that other
//! programs on the machine do not count; the clients' side of the handshakes is measured beside it, because here it runs
//! on the same cores.

use super::{LoadError, machines, wire};
use nix::time::{ClockId, clock_gettime};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use relay::{
    ca::{self, Authority, Domain, Profile, Roots},
    clock::Clock,
    csr,
    http::tls::Tls,
    random::Random,
    seal::{KeyRing, MasterKey},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection,
    pki_types::{CertificateDer, IpAddr, PrivateKeyDer, ServerName, pem::PemObject as _},
};
use serde::Serialize;
use shared::{
    csr::CertificateRequest,
    id::{NodeId, PoolUid},
};
use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

/// How long each step is measured.
const MEASURED: Duration = Duration::from_millis(400);
/// The most flights of a handshake.
const MOST_FLIGHTS: usize = 8;
/// The life of the certificates issued, in seconds.
const TTL_SECONDS: u32 = 86_400;

/// The mean CPU time of each step, in microseconds, all cores busy.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ceiling {
    /// Cores, as the system counts them.
    pub cores: usize,
    /// The relay's side of a handshake.
    pub handshake_micros: f64,
    /// The same with a client certificate.
    pub mutual_handshake_micros: f64,
    /// The machine's side of a handshake.
    pub client_handshake_micros: f64,
    /// The same with its certificate.
    pub client_mutual_handshake_micros: f64,
    /// Reading a certificate request and verifying its signature.
    pub request_micros: f64,
    /// Issuing a certificate.
    pub issue_micros: f64,
}

impl Ceiling {
    /// Joins a second of a relay that has the cores to itself.
    #[must_use]
    pub fn joins_per_second(&self) -> f64 {
        self.per_second(self.handshake_micros + self.request_micros + self.issue_micros)
    }

    /// Renewals a second of a relay that has the cores to itself.
    #[must_use]
    pub fn renewals_per_second(&self) -> f64 {
        self.per_second(self.mutual_handshake_micros + self.request_micros + self.issue_micros)
    }

    /// Joins a second where the machines' handshakes take their part of the same cores.
    #[must_use]
    pub fn shared_joins_per_second(&self) -> f64 {
        let relay = self.handshake_micros + self.request_micros + self.issue_micros;
        self.per_second(relay + self.client_handshake_micros)
    }

    /// Renewals a second where the machines' handshakes take their part of the same cores.
    #[must_use]
    pub fn shared_renewals_per_second(&self) -> f64 {
        let relay = self.mutual_handshake_micros + self.request_micros + self.issue_micros;
        self.per_second(relay + self.client_mutual_handshake_micros)
    }

    fn per_second(&self, micros: f64) -> f64 {
        let cores = u32::try_from(self.cores).map_or(1.0, f64::from);
        cores * 1e6 / micros
    }
}

/// Measures it. Nothing else should run meanwhile.
pub(super) fn measure() -> Result<Ceiling, LoadError> {
    let bench = Bench::new()?;
    let (handshake, client_handshake) = bench.on_all_cores(|bench| bench.handshake(&bench.plain))?;
    let (mutual, client_mutual) = bench.on_all_cores(|bench| bench.handshake(&bench.mutual))?;
    let (request, _) = bench.on_all_cores(Bench::request)?;
    let (issue, _) = bench.on_all_cores(Bench::issue)?;
    Ok(Ceiling {
        cores: machines::cores(),
        handshake_micros: handshake,
        mutual_handshake_micros: mutual,
        client_handshake_micros: client_handshake,
        client_mutual_handshake_micros: client_mutual,
        request_micros: request,
        issue_micros: issue,
    })
}

/// A CA, a server and a machine, all in memory.
struct Bench {
    clock: Clock,
    authority: Authority,
    server: Arc<ServerConfig>,
    plain: Arc<ClientConfig>,
    mutual: Arc<ClientConfig>,
    name: ServerName<'static>,
    csr: String,
    parsed: CertificateRequest,
    pool: PoolUid,
    node: NodeId,
}

/// CPU time of the relay's part and of the machine's.
type Parts = (Duration, Duration);

impl Bench {
    fn new() -> Result<Self, LoadError> {
        let (clock, random) = (Clock::system(), Random::system());
        let now = clock.now();
        let authority = authority(&clock, &random)?;
        let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::from([127, 0, 0, 1])));
        let certificate =
            authority.issue_relay(std::slice::from_ref(&name), now).map_err(fail("issuing for the relay"))?;
        let tls = Tls::new(certificate, authority.trust(), &clock).map_err(fail("setting up TLS"))?;
        let mut roots = RootCertStore::empty();
        let bundle = authority.bundle(Domain::Platform);
        let bundle: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(bundle.as_bytes()).collect();
        roots.add_parsable_certificates(bundle.map_err(fail("reading a bundle"))?);
        let base = wire::base(roots)?;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(fail("making a key"))?;
        let csr = machines::request(&key, "ceiling")?;
        let parsed = CertificateRequest::parse(&csr).map_err(fail("reading a certificate request"))?;
        let (pool, node) = (PoolUid::draw(now, random.bytes()), NodeId::draw(now, random.bytes()));
        let issued = authority
            .issue_node(Profile::Node, &parsed.key, &pool, &node, now, TTL_SECONDS)
            .map_err(fail("issuing for a machine"))?;
        let key = PrivateKeyDer::try_from(key.serialize_der()).map_err(fail("writing a key"))?;
        let pem = format!("{}{}", issued.certificate_pem, issued.chain_pem);
        let certified = machines::certified(&pem, machines::signing(key)?)?;
        Ok(Self {
            server: tls.config(),
            plain: wire::showing(&base, None),
            mutual: wire::showing(&base, Some(&certified)),
            clock,
            authority,
            name,
            csr,
            parsed,
            pool,
            node,
        })
    }

    /// The mean of a step over all cores, in microseconds.
    fn on_all_cores(
        &self,
        step: impl Fn(&Self) -> Result<Parts, LoadError> + Sync,
    ) -> Result<(f64, f64), LoadError> {
        let sums: Result<Vec<(Parts, u32)>, LoadError> = thread::scope(|scope| {
            let threads: Vec<_> =
                (0..machines::cores()).map(|_| scope.spawn(|| repeat(|| step(self)))).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        let (mut relay, mut machine, mut count) = (0.0, 0.0, 0.0);
        for (parts, steps) in sums? {
            relay += parts.0.as_secs_f64() * 1e6;
            machine += parts.1.as_secs_f64() * 1e6;
            count += f64::from(steps);
        }
        Ok((relay / count, machine / count))
    }

    /// One handshake in memory, until the server has the machine's last word.
    fn handshake(&self, client: &Arc<ClientConfig>) -> Result<Parts, LoadError> {
        let mut spent = (Duration::ZERO, Duration::ZERO);
        let clock = cpu();
        let mut client =
            ClientConnection::new(client.clone(), self.name.clone()).map_err(fail("a handshake"))?;
        spent.1 += cpu().saturating_sub(clock);
        let clock = cpu();
        let mut server = ServerConnection::new(self.server.clone()).map_err(fail("a handshake"))?;
        spent.0 += cpu().saturating_sub(clock);
        let (mut up, mut down) = (Vec::new(), Vec::new());
        for _ in 0..MOST_FLIGHTS {
            if !client.is_handshaking() && !server.is_handshaking() {
                return Ok(spent);
            }
            let clock = cpu();
            turn(&mut client, &mut down, &mut up)?;
            let between = cpu();
            turn(&mut server, &mut up, &mut down)?;
            spent.1 += between.saturating_sub(clock);
            spent.0 += cpu().saturating_sub(between);
        }
        Err(fail("a handshake")("it does not end"))
    }

    fn request(&self) -> Result<Parts, LoadError> {
        let clock = cpu();
        let parsed = CertificateRequest::parse(&self.csr).map_err(fail("reading a certificate request"))?;
        csr::verify_request(&parsed).map_err(fail("verifying a certificate request"))?;
        Ok((cpu().saturating_sub(clock), Duration::ZERO))
    }

    fn issue(&self) -> Result<Parts, LoadError> {
        let clock = cpu();
        let key = &self.parsed.key;
        self.authority
            .issue_node(Profile::Node, key, &self.pool, &self.node, self.clock.now(), TTL_SECONDS)
            .map_err(fail("issuing for a machine"))?;
        Ok((cpu().saturating_sub(clock), Duration::ZERO))
    }
}

fn authority(clock: &Clock, random: &Random) -> Result<Authority, LoadError> {
    let folder = tempfile::tempdir().map_err(fail("making a folder"))?;
    let key =
        MasterKey::create(&folder.path().join("master.key"), random).map_err(fail("making a master key"))?;
    let ring = KeyRing::new(key, Vec::new());
    let domain = "load.example".parse().map_err(fail::<ca::InvalidTrustDomain>("reading a trust domain"))?;
    let records =
        ca::create(&domain, Roots::drawn(), clock.now(), &ring, random).map_err(fail("making a CA"))?;
    Authority::open(&domain, records, &ring, random).map_err(fail("opening a CA"))
}

/// One side's turn: takes what came, answers what is to go.
fn turn<D>(
    side: &mut impl std::ops::DerefMut<Target = rustls::ConnectionCommon<D>>,
    input: &mut Vec<u8>,
    output: &mut Vec<u8>,
) -> Result<(), LoadError> {
    let mut rest = input.as_slice();
    while !rest.is_empty() {
        side.read_tls(&mut rest).map_err(fail("a handshake"))?;
        side.process_new_packets().map_err(fail("a handshake"))?;
    }
    input.clear();
    while side.wants_write() {
        side.write_tls(output).map_err(fail("a handshake"))?;
    }
    Ok(())
}

/// Repeats a step for a while; answers the sum and how often.
fn repeat(step: impl Fn() -> Result<Parts, LoadError>) -> Result<(Parts, u32), LoadError> {
    let (mut sum, mut count, begun) = ((Duration::ZERO, Duration::ZERO), 0_u32, Instant::now());
    while count == 0 || begun.elapsed() < MEASURED {
        let parts = step()?;
        sum = (sum.0 + parts.0, sum.1 + parts.1);
        count += 1;
    }
    Ok((sum, count))
}

/// The CPU time of this thread; zero on a system without that clock.
fn cpu() -> Duration {
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}

fn fail<E: Into<Box<dyn std::error::Error + Send + Sync>>>(
    what: &'static str,
) -> impl FnOnce(E) -> LoadError {
    LoadError::prepare(what)
}
