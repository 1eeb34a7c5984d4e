//! The client's side of TLS: what is trusted, what is shown, and our own verdict back out of a failed handshake.

use super::CallError;
use crate::{
    config::TrustSettings,
    files,
    host::{Host, RelayClock},
    trust::{Anchors, Policy, RelayVerifier},
};
use rustls::{
    ClientConfig,
    client::{ResolvesClientCert, Resumption},
    pki_types::{CertificateDer, pem::PemObject as _},
    sign::SingleCertAndKey,
};
use shared::access::Use;
use std::{io, path::Path, sync::Arc};
use tokio_rustls::TlsConnector;

/// The most bytes of a file of CA certificates.
const MAX_CA_BYTES: u64 = 4 * 1024 * 1024;
/// Where distributions keep the roots that they trust.
const SYSTEM_ROOTS: [&str; 2] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"];

/// TLS 1.3 to a relay that this policy finds good, showing this certificate.
pub(super) fn connector(
    policy: &Policy,
    certificate: Option<Arc<SingleCertAndKey>>,
    clock: &Arc<RelayClock>,
    host: &Arc<dyn Host>,
) -> Result<(Arc<RelayVerifier>, TlsConnector), CallError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (clock, host) = (Arc::clone(clock), Arc::clone(host));
    let now = Box::new(move || clock.clocks(&*host));
    let verifier =
        Arc::new(RelayVerifier::new(policy.clone(), provider.signature_verification_algorithms, now));
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::clone(&verifier) as _);
    let mut config = match certificate {
        Some(certificate) => builder.with_client_cert_resolver(certificate as Arc<dyn ResolvesClientCert>),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok((verifier, TlsConnector::from(Arc::new(config))))
}

/// What the settings say that the relay is recognised by.
pub(super) fn anchors(trust: &TrustSettings, known: Option<&[u8]>) -> Result<Anchors, CallError> {
    match trust {
        TrustSettings::Pins(pins) => {
            let known = known.and_then(|pem| certificates(pem).ok()).unwrap_or_default();
            Ok(Anchors::Pinned { pins: pins.clone(), known })
        }
        TrustSettings::CaFile(path) => read_certificates(path).map(Anchors::Given),
        TrustSettings::SystemRoots => {
            let path = SYSTEM_ROOTS.iter().map(Path::new).find(|path| path.exists());
            let path = path.unwrap_or(Path::new(SYSTEM_ROOTS[0]));
            read_certificates(path).map(Anchors::System)
        }
    }
}

/// Whether the files that the settings name can be used.
///
/// # Errors
/// One can't.
pub(crate) fn check_trust(trust: &TrustSettings) -> Result<(), CallError> {
    anchors(trust, None).map(drop)
}

fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CallError> {
    let failed = |error: String| CallError::CaFile(path.to_owned(), error);
    let pem = files::read(path, MAX_CA_BYTES)
        .map_err(|error| failed(format!("{error}{}", files::remedy(path, Use::Read, &error))))?;
    match certificates(&pem) {
        Ok(list) if list.is_empty() => Err(failed("there is no PEM block CERTIFICATE".into())),
        Ok(list) => Ok(list),
        Err(error) => Err(failed(error.to_string())),
    }
}

/// The certificates of a PEM text.
pub(crate) fn certificates(
    pem: &[u8],
) -> Result<Vec<CertificateDer<'static>>, rustls::pki_types::pem::Error> {
    CertificateDer::pem_slice_iter(pem).collect()
}

/// Our own error, out of the wrapping in which it travels through rustls and I/O: what we found wrong with the relay, or
/// our key.
pub(super) fn cause<E: std::error::Error + Clone + 'static>(error: &io::Error) -> Option<E> {
    let other = match error.get_ref()?.downcast_ref::<rustls::Error>()? {
        rustls::Error::InvalidCertificate(rustls::CertificateError::Other(other)) => other,
        rustls::Error::Other(other) => other,
        _ => return None,
    };
    other.0.downcast_ref::<E>().cloned()
}
