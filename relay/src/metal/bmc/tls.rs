//! How a BMC's certificate is judged: by a pin of its key, by a CA, by what it showed first, or not at all. Whatever judges it, the
//! handshake proves that the other side has the key.

use crate::{metal::facts::TlsTrust, trusting::trusting_by};
use rustls::{
    ClientConfig, DEFAULT_VERSIONS, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use sha2::{Digest as _, Sha256};
use shared::{hex, secret::same_bytes};
use std::sync::{Arc, Mutex, PoisonError};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// What was seen of a BMC's certificate.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen(Arc<Mutex<Shown>>);

#[derive(Debug, Default)]
struct Shown {
    pin: Option<String>,
    refused: bool,
}

impl Seen {
    /// SHA-256 of the SubjectPublicKeyInfo that was shown last.
    pub(super) fn pin(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pin.clone()
    }

    /// Whether a certificate was refused because it has another key than the pin.
    pub(super) fn is_refused(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).refused
    }

    fn note(&self, pin: &str, refused: bool) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.pin = Some(pin.to_owned());
        shown.refused |= refused;
    }
}

/// A client's TLS that judges so; `None` where nothing may be connected to, or the CA is none.
pub(super) fn config(trust: &TlsTrust, seen: &Seen) -> Option<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let judge = match trust {
        TlsTrust::Ca(pem) => return trusting_by(pem.as_bytes(), DEFAULT_VERSIONS).ok(),
        TlsTrust::Unsaid => return None,
        TlsTrust::Pin(pin) => {
            Judge { pin: Some(pin.clone()), seen: seen.clone(), provider: provider.clone() }
        }
        // What was shown first is read without a credential, and is a pin from then on.
        TlsTrust::FirstUse | TlsTrust::Insecure => {
            Judge { pin: None, seen: seen.clone(), provider: provider.clone() }
        }
    };
    let config =
        ClientConfig::builder_with_provider(provider).with_protocol_versions(DEFAULT_VERSIONS).ok()?;
    Some(config.dangerous().with_custom_certificate_verifier(Arc::new(judge)).with_no_client_auth())
}

/// Judges by the key alone.
#[derive(Debug)]
struct Judge {
    pin: Option<String>,
    seen: Seen,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Judge {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let (_, certificate) = X509Certificate::from_der(end_entity)
            .map_err(|_| Error::General("the certificate can't be read".to_owned()))?;
        let shown = hex::encode(&Sha256::digest(certificate.public_key().raw));
        let refused = self.pin.as_ref().is_some_and(|pin| !same_bytes(pin.as_bytes(), shown.as_bytes()));
        self.seen.note(&shown, refused);
        if refused {
            return Err(Error::General("the certificate has another key than the pin".to_owned()));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        None
    }
}
