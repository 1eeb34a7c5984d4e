//! Whether the other end is our relay: a decision over certificates, with no network in it.
//!
//! With pins, the pinned certificate is the sole trust anchor of a full path validation. A chain that merely contains it
//! is refused, and so is a certificate of a node: it carries no URI whose path is `/relay`, nor may it serve.
//!
//! An anchor's own end counts too. RFC 5280 (6.1.1) leaves that to whoever trusts it, and webpki doesn't look: but a root
//! that is over is one that nobody guards any more, and its owner wants to hear of it while there is time. It costs
//! nothing: no CA of a relay outlives its root. For a pin it is a guard against mistakes and not against thieves, since
//! a pin is of a key, and whoever has that can sign it a later end.
//!
//! Dates are judged by two clocks, the machine's and the relay's: [`Clocks`] has the rule and its reason. Where a date does
//! not hold, both are told; which of them is wrong is said only where that is known.

mod error;

pub use error::TrustError;

use crate::host::Clocks;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime},
};
use shared::{hex, time::Timestamp};
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert, spki_for_anchor};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer as _};

/// The most certificates of a chain that are looked at.
const MAX_CHAIN: usize = 10;
/// The path of the relay's URI.
const RELAY_PATH: &str = "/relay";

/// What the relay is recognised by.
#[derive(Clone, Debug)]
pub enum Anchors {
    /// A CA with one of these keys (SHA-256 of the SubjectPublicKeyInfo); its certificate comes with the chain, or is
    /// one of those known from before.
    Pinned {
        /// The pins.
        pins: Vec<[u8; 32]>,
        /// Certificates that were kept: `ca.crt`.
        known: Vec<CertificateDer<'static>>,
    },
    /// These certificates.
    Given(Vec<CertificateDer<'static>>),
    /// The roots that this system trusts; then the host's name suffices.
    System(Vec<CertificateDer<'static>>),
}

/// A certificate that a path may end at.
struct Root<'a> {
    anchor: TrustAnchor<'a>,
    not_after: Timestamp,
}

impl<'a> Root<'a> {
    /// `None` if it can't be one.
    fn read(certificate: &'a CertificateDer<'_>) -> Option<Self> {
        let anchor = anchor_from_trusted_cert(certificate).ok()?;
        // A root of the system's that only webpki can read has no end that we know of.
        let not_after = X509Certificate::from_der(certificate).map_or(Timestamp::MAX, |(_, read)| {
            Timestamp::from_seconds(read.validity().not_after.timestamp())
        });
        Some(Self { anchor, not_after })
    }
}

/// What a relay is judged by.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Whose certificates count.
    pub anchors: Anchors,
    /// The trust domain of the first join.
    pub trust_domain: Option<String>,
}

impl Policy {
    /// Judges a chain; answers the relay's trust domain (`None` with the system's roots).
    ///
    /// # Errors
    /// The rule that it breaks. A clock that is behind is blamed only if nothing else is wrong.
    pub fn judge(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        clocks: Clocks,
        algorithms: &WebPkiSupportedAlgorithms,
    ) -> Result<Option<String>, TrustError> {
        let rest = rest.get(..MAX_CHAIN).unwrap_or(rest);
        let anchors = living(self.anchors.choose(rest)?, clocks)?;
        let judge_at = |time: Timestamp| {
            verify_path(leaf, rest, &anchors, (time, clocks), algorithms)?;
            verify_name(leaf, host)?;
            self.verify_relay(leaf)
        };
        let mut verdict = judge_at(clocks.earliest());
        let mut begins = clocks.earliest();
        // Each certificate of the path may begin later than the one before it.
        for _ in 0..MAX_CHAIN {
            let Err(TrustError::ClockBehind { not_before: later, .. }) = verdict else { break };
            begins = later;
            verdict = judge_at(later);
        }
        match verdict {
            Ok(_) if begins > clocks.latest() => Err(TrustError::ClockBehind { clocks, not_before: begins }),
            verdict => verdict,
        }
    }

    fn verify_relay(&self, leaf: &CertificateDer<'_>) -> Result<Option<String>, TrustError> {
        if matches!(self.anchors, Anchors::System(_)) {
            return Ok(None);
        }
        let uris = names(leaf)?.1;
        let Some(seen) = uris.iter().find_map(|uri| trust_domain_of_relay(uri)) else {
            return Err(TrustError::NotARelay(if uris.is_empty() { vec!["none".into()] } else { uris }));
        };
        match &self.trust_domain {
            Some(joined) if *joined != seen => {
                Err(TrustError::OtherTrustDomain { joined: joined.clone(), seen })
            }
            _ => Ok(Some(seen)),
        }
    }
}

impl Anchors {
    /// The certificates that a path may end at. The leaf is never one of them.
    fn choose<'a>(&'a self, rest: &'a [CertificateDer<'_>]) -> Result<Vec<Root<'a>>, TrustError> {
        let (pins, known) = match self {
            Self::Given(roots) | Self::System(roots) => {
                return Ok(roots.iter().filter_map(Root::read).collect());
            }
            Self::Pinned { pins, known } => (pins, known),
        };
        let authorities = || rest.iter().chain(known).filter(|certificate| is_authority(certificate));
        let anchors: Vec<_> = authorities()
            .filter_map(Root::read)
            .filter(|root| pins.contains(&pin_of(&root.anchor)))
            .collect();
        if !anchors.is_empty() {
            return Ok(anchors);
        }
        let offered = rest.last().and_then(|certificate| anchor_from_trusted_cert(certificate).ok());
        Err(TrustError::PinMismatch {
            pinned: pins.iter().map(show_pin).collect(),
            offered: offered.map(|anchor| show_pin(&pin_of(&anchor))),
        })
    }
}

/// Those that have not ended.
fn living<'a>(roots: Vec<Root<'a>>, clocks: Clocks) -> Result<Vec<TrustAnchor<'a>>, TrustError> {
    let last = roots.iter().map(|root| root.not_after).max();
    let living = roots.into_iter().filter(|root| root.not_after >= clocks.earliest());
    let living: Vec<_> = living.map(|root| root.anchor).collect();
    match last {
        Some(not_after) if living.is_empty() => Err(TrustError::AnchorExpired { clocks, not_after }),
        _ => Ok(living),
    }
}

/// SHA-256 of the SubjectPublicKeyInfo.
fn pin_of(anchor: &TrustAnchor<'_>) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &spki_for_anchor(anchor));
    digest.as_ref().try_into().unwrap_or_default()
}

fn show_pin(pin: &[u8; 32]) -> String {
    format!("sha256:{}", hex::encode(pin))
}

fn is_authority(certificate: &CertificateDer<'_>) -> bool {
    X509Certificate::from_der(certificate)
        .is_ok_and(|(rest, parsed)| rest.is_empty() && parsed.tbs_certificate.is_ca())
}

fn verify_path(
    leaf: &CertificateDer<'_>,
    rest: &[CertificateDer<'_>],
    anchors: &[TrustAnchor<'_>],
    (at, clocks): (Timestamp, Clocks),
    algorithms: &WebPkiSupportedAlgorithms,
) -> Result<(), TrustError> {
    let certificate = EndEntityCert::try_from(leaf).map_err(|e| TrustError::Unreadable(e.to_string()))?;
    let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.seconds()).unwrap_or(0)));
    certificate
        .verify_for_usage(algorithms.all, anchors, rest, time, KeyUsage::server_auth(), None, None)
        .map(|_| ())
        .map_err(|error| match error {
            webpki::Error::CertNotValidYet { not_before, .. } => {
                TrustError::ClockBehind { clocks, not_before: timestamp(not_before) }
            }
            webpki::Error::CertExpired { not_after, .. } => {
                TrustError::Expired { clocks, not_after: timestamp(not_after) }
            }
            other => TrustError::NoPath(format!("{other:?}")),
        })
}

fn verify_name(leaf: &CertificateDer<'_>, host: &ServerName<'_>) -> Result<(), TrustError> {
    let certificate = EndEntityCert::try_from(leaf).map_err(|e| TrustError::Unreadable(e.to_string()))?;
    if certificate.verify_is_valid_for_subject_name(host).is_ok() {
        return Ok(());
    }
    Err(TrustError::NameMismatch { wanted: host.to_str().into_owned(), named: names(leaf)?.0 })
}

fn timestamp(time: UnixTime) -> Timestamp {
    Timestamp::from_seconds(i64::try_from(time.as_secs()).unwrap_or(i64::MAX))
}

/// The names of hosts, for showing, and the URIs.
fn names(leaf: &CertificateDer<'_>) -> Result<(Vec<String>, Vec<String>), TrustError> {
    let unreadable = |error: &dyn fmt::Display| TrustError::Unreadable(error.to_string());
    let (_, certificate) = X509Certificate::from_der(leaf).map_err(|e| unreadable(&e))?;
    let extension = certificate.subject_alternative_name().map_err(|e| unreadable(&e))?;
    let (mut hosts, mut uris) = (Vec::new(), Vec::new());
    for name in extension.iter().flat_map(|extension| &extension.value.general_names) {
        match name {
            GeneralName::DNSName(name) => hosts.push((*name).to_owned()),
            GeneralName::IPAddress(bytes) => hosts.push(show_address(bytes)),
            GeneralName::URI(uri) => uris.push((*uri).to_owned()),
            _ => {}
        }
    }
    Ok((hosts, uris))
}

fn show_address(bytes: &[u8]) -> String {
    if let Ok(four) = <[u8; 4]>::try_from(bytes) {
        return std::net::Ipv4Addr::from(four).to_string();
    }
    <[u8; 16]>::try_from(bytes)
        .map_or("?".to_owned(), |sixteen| std::net::Ipv6Addr::from(sixteen).to_string())
}

/// The trust domain, if this is `spiffe://<trust domain>/relay` and nothing more.
fn trust_domain_of_relay(uri: &str) -> Option<String> {
    let rest = uri.strip_prefix("spiffe://")?;
    let domain = rest.strip_suffix(RELAY_PATH)?;
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b".-_".contains(&b);
    (!domain.is_empty() && domain.bytes().all(allowed)).then(|| domain.to_owned())
}

/// A [`Policy`] as rustls asks it, before anything of ours is sent.
pub struct RelayVerifier {
    policy: Policy,
    algorithms: WebPkiSupportedAlgorithms,
    clocks: Box<dyn Fn() -> Clocks + Send + Sync>,
    seen: Mutex<Option<String>>,
}

impl RelayVerifier {
    /// By this policy and these clocks. The handshake's own idea of the time is not used: it is the wall clock's.
    #[must_use]
    pub fn new(
        policy: Policy,
        algorithms: WebPkiSupportedAlgorithms,
        clocks: Box<dyn Fn() -> Clocks + Send + Sync>,
    ) -> Self {
        Self { policy, algorithms, clocks, seen: Mutex::new(None) }
    }

    /// The trust domain of the relay that was last found good.
    #[must_use]
    pub fn trust_domain(&self) -> Option<String> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl fmt::Debug for RelayVerifier {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("RelayVerifier").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl ServerCertVerifier for RelayVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        _ocsp: &[u8],
        _wall: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match self.policy.judge(leaf, rest, host, (self.clocks)(), &self.algorithms) {
            Ok(domain) => {
                *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = domain;
                Ok(ServerCertVerified::assertion())
            }
            Err(error) => {
                Err(Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(error)))))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}

#[cfg(test)]
mod tests;
