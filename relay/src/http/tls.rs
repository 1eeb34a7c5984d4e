//! TLS on the one HTTPS port: 1.3 only, aws-lc-rs only, no tickets, no resumption, no 0-RTT.
//!
//! Client certificates are optional. One that is presented must be ours; that it has expired does not end the
//! handshake (`ca::Trust` says how that is judged), because a refusal has to be a problem that its holder can
//! read. Ask [`Tls::config`] for every connection: certificate and trust are exchanged while the relay runs.

use crate::{
    ca::{PeerCertificate, PeerRefused, ServerCertificate, Trust},
    clock::Clock,
};
use arc_swap::{ArcSwap, ArcSwapOption};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, ServerConfig,
    SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, aws_lc_rs, verify_tls13_signature},
    pki_types::{CertificateDer, UnixTime},
    server::{
        NoServerSessionStorage,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::{CertifiedKey, SingleCertAndKey},
    time_provider::TimeProvider,
    version::{TLS12, TLS13},
};
use shared::time::Timestamp;
use std::sync::Arc;

/// What clients may ask for by ALPN, the preferred first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The server side of TLS, with a certificate and a trust that can be exchanged.
pub struct Tls {
    provider: Arc<CryptoProvider>,
    clock: Clock,
    current: ArcSwap<Current>,
}

struct Current {
    certificate: Arc<CertifiedKey>,
    trust: Arc<Trust>,
    config: Arc<ServerConfig>,
}

/// The server's own certificate and key don't work.
#[derive(Debug, thiserror::Error)]
#[error("set up TLS: {0}")]
pub struct TlsError(#[from] Error);

impl Tls {
    /// TLS with this certificate and this trust; `clock` says what has expired.
    ///
    /// # Errors
    /// The key is not the certificate's.
    pub fn new(certificate: ServerCertificate, trust: Trust, clock: &Clock) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certificate = certified(certificate, &provider)?;
        let current = Current::build(certificate, Arc::new(trust), &provider, clock)?;
        Ok(Self { provider, clock: clock.clone(), current: ArcSwap::from_pointee(current) })
    }

    /// The configuration for the next connection.
    #[must_use]
    pub fn config(&self) -> Arc<ServerConfig> {
        self.current.load().config.clone()
    }

    /// The configuration for clients that are asked for no certificate, and may know no TLS 1.3: BMCs.
    #[must_use]
    pub fn for_old_clients(&self) -> Arc<ServerConfig> {
        let current = self.current.load();
        let time = Arc::new(ClockTime(self.clock.clone()));
        let builder = ServerConfig::builder_with_details(self.provider.clone(), time)
            .with_protocol_versions(&[&TLS13, &TLS12]);
        let Ok(builder) = builder else { return current.config.clone() };
        let mut config = builder
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(current.certificate.clone())));
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Arc::new(config)
    }

    /// Presents another certificate from the next connection on.
    ///
    /// # Errors
    /// The key is not the certificate's; the old one stays.
    pub fn replace_certificate(&self, certificate: ServerCertificate) -> Result<(), TlsError> {
        let certificate = certified(certificate, &self.provider)?;
        self.exchange(|current| (certificate.clone(), current.trust.clone()))
    }

    /// Trusts other roots and issuing CAs from the next connection on, and in [`Peer::now`] at once.
    ///
    /// # Errors
    /// None that [`Tls::new`] has not excluded.
    pub fn replace_trust(&self, trust: Trust) -> Result<(), TlsError> {
        let trust = Arc::new(trust);
        self.exchange(|current| (current.certificate.clone(), trust.clone()))
    }

    /// Who is at the other end of a connection of ours. Give it what the connection's `peer_certificates` answers.
    #[must_use]
    pub fn peer(self: &Arc<Self>, certificates: Option<&[CertificateDer<'_>]>) -> Peer {
        let certificate = certificates.and_then(<[_]>::first).map(|leaf| leaf.clone().into_owned());
        Peer { tls: self.clone(), certificate, read: ArcSwapOption::empty() }
    }

    /// Builds the next state from the current one; two exchanges at once both take effect.
    fn exchange(&self, next: impl Fn(&Current) -> (Arc<CertifiedKey>, Arc<Trust>)) -> Result<(), TlsError> {
        loop {
            let seen = self.current.load();
            let (certificate, trust) = next(&seen);
            let built = Arc::new(Current::build(certificate, trust, &self.provider, &self.clock)?);
            let before = self.current.compare_and_swap(&*seen, built);
            if Arc::ptr_eq(&before, &seen) {
                return Ok(());
            }
        }
    }
}

/// The other end of a connection: whom its certificate names, for as long as the CA that issued it is trusted.
pub struct Peer {
    tls: Arc<Tls>,
    certificate: Option<CertificateDer<'static>>,
    /// What was read last, and by which trust.
    read: ArcSwapOption<(Arc<Trust>, Option<Arc<PeerCertificate>>)>,
}

impl Peer {
    /// Its certificate, judged by what is trusted now; `None` without one, or if that CA is trusted no more.
    #[must_use]
    pub fn now(&self) -> Option<Arc<PeerCertificate>> {
        let certificate = self.certificate.as_ref()?;
        let trust = self.tls.current.load().trust.clone();
        if let Some(read) = &*self.read.load()
            && Arc::ptr_eq(&read.0, &trust)
        {
            return read.1.clone();
        }
        let peer = trust.read(certificate).ok().map(Arc::new);
        self.read.store(Some(Arc::new((trust, peer.clone()))));
        peer
    }
}

impl Current {
    fn build(
        certificate: Arc<CertifiedKey>,
        trust: Arc<Trust>,
        provider: &Arc<CryptoProvider>,
        clock: &Clock,
    ) -> Result<Self, TlsError> {
        let verifier = Arc::new(Verifier::new(trust.clone(), provider.clone()));
        let time = Arc::new(ClockTime(clock.clone()));
        let mut config = ServerConfig::builder_with_details(provider.clone(), time)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certificate.clone())));
        config.alpn_protocols = ALPN.iter().map(|name| name.to_vec()).collect();
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.max_early_data_size = 0;
        Ok(Self { certificate, trust, config: Arc::new(config) })
    }
}

fn certified(
    certificate: ServerCertificate,
    provider: &CryptoProvider,
) -> Result<Arc<CertifiedKey>, TlsError> {
    Ok(Arc::new(CertifiedKey::from_der(certificate.chain, certificate.key, provider)?))
}

/// The relay's clock as rustls reads it, so that a test's clock rules the handshake too.
#[derive(Debug)]
struct ClockTime(Clock);

impl TimeProvider for ClockTime {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.0.now().seconds()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

/// Judges client certificates by [`Trust`]; without one the handshake goes on.
#[derive(Debug)]
struct Verifier {
    trust: Arc<Trust>,
    hints: Vec<DistinguishedName>,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(trust: Arc<Trust>, provider: Arc<CryptoProvider>) -> Self {
        let hints = trust.subjects().map(DistinguishedName::in_sequence).collect();
        Self { trust, hints, provider }
    }
}

impl ClientCertVerifier for Verifier {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.hints
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let now = Timestamp::from_seconds(i64::try_from(now.as_secs()).unwrap_or(i64::MAX));
        match self.trust.judge(end_entity, intermediates, now) {
            Ok(_) => Ok(ClientCertVerified::assertion()),
            Err(refused) => Err(Error::InvalidCertificate(alert(refused))),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// The refusal as rustls knows it: it chooses the alert.
fn alert(refused: PeerRefused) -> CertificateError {
    match refused {
        PeerRefused::Path(webpki::Error::CertNotValidYet { .. }) => CertificateError::NotValidYet,
        PeerRefused::Path(webpki::Error::UnknownIssuer) | PeerRefused::Issuer => {
            CertificateError::UnknownIssuer
        }
        other => CertificateError::Other(OtherError(Arc::new(other))),
    }
}

#[cfg(test)]
mod tests;
