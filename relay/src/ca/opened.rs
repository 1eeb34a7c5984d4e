//! One CA opened: its record, its certificate, its key, and the proof that they belong together.

use super::{
    CaError, CaRecord,
    certificate::CaCertificate,
    keys::CaKey,
    name::{CaName, CaState, TrustDomain},
    profile::{self, Validity},
};
use crate::seal::KeyRing;
use rcgen::{CertificateParams, IsCa, Issuer, KeyUsagePurpose, SerialNumber};
use rustls::pki_types::UnixTime;
use sha2::{Digest as _, Sha256};
use shared::{hex, time::Timestamp};
use std::time::Duration;
use webpki::{EndEntityCert, KeyUsage};

/// A CA whose record has been checked.
pub(super) struct Ca {
    pub(super) record: CaRecord,
    pub(super) certificate: CaCertificate,
    /// Its key and name, to sign with; `None` for an offline root.
    pub(super) signer: Option<Issuer<'static, CaKey>>,
}

impl Ca {
    /// A new CA from its parts; the id follows from name and key.
    pub(super) fn new(
        record: CaRecord,
        certificate: CaCertificate,
        key: Option<CaKey>,
    ) -> Result<Self, CaError> {
        let signer = key.map(|key| Issuer::from_ca_cert_der(&certificate.der, key)).transpose()?;
        Ok(Self { record, certificate, signer })
    }

    pub(super) fn is_active(&self) -> bool {
        self.record.state == CaState::Active
    }

    pub(super) fn validity(&self) -> Validity {
        self.certificate.validity
    }

    /// The signer, where the CA's certificate holds now.
    pub(super) fn signer_at(&self, now: Timestamp) -> Result<&Issuer<'static, CaKey>, CaError> {
        let Validity { not_before, not_after } = self.validity();
        if !self.validity().holds(now) {
            return Err(CaError::NotValidNow { id: self.record.id.clone(), not_before, not_after, now });
        }
        self.signer().ok_or_else(|| self.broken("this relay holds its key"))
    }

    pub(super) fn signer(&self) -> Option<&Issuer<'static, CaKey>> {
        self.signer.as_ref()
    }

    /// Whether `root` signed this CA, by key identifier.
    pub(super) fn is_signed_by(&self, root: &Self) -> bool {
        self.certificate.signer_key_id.as_ref() == Some(&root.certificate.key_id)
    }

    fn broken(&self, rule: &'static str) -> CaError {
        CaError::Record { id: self.record.id.clone(), rule }
    }
}

/// The id of a CA: its name and 64 bits of its key's digest.
pub(super) fn id_of(name: CaName, spki: &[u8]) -> String {
    let mut digest = hex::encode(&Sha256::digest(spki));
    digest.truncate(16);
    format!("{name}-{digest}")
}

/// Opens and checks records; answers roots and issuing CAs.
pub(super) fn open_all(
    trust_domain: &TrustDomain,
    records: Vec<CaRecord>,
    ring: &KeyRing,
) -> Result<(Vec<Ca>, Vec<Ca>), CaError> {
    let opened = records.into_iter().map(|record| open_one(record, ring)).collect::<Result<Vec<_>, _>>()?;
    let (roots, issuers): (Vec<_>, Vec<_>) =
        opened.into_iter().partition(|ca| ca.record.name == CaName::Root);
    for issuer in &issuers {
        let root = root_of(issuer, &roots).ok_or_else(|| issuer.broken("its root is in the store"))?;
        prove(issuer, root, trust_domain).map_err(|rule| issuer.broken(rule))?;
    }
    Ok((roots, issuers))
}

/// The root of the same domain that signed `issuer`.
pub(super) fn root_of<'a>(issuer: &Ca, roots: &'a [Ca]) -> Option<&'a Ca> {
    roots.iter().find(|root| root.record.domain == issuer.record.domain && issuer.is_signed_by(root))
}

/// Proves that `issuer` can issue under `root`, by issuing a throw-away certificate with its key and having
/// webpki verify the path, as every machine will. The error is the rule that does not hold.
pub(super) fn prove(issuer: &Ca, root: &Ca, trust_domain: &TrustDomain) -> Result<(), &'static str> {
    const PATH: &str = "its key issues certificates that its root verifies";
    if issuer.validity().not_after > root.validity().not_after {
        return Err("it ends no later than its root");
    }
    let signer = issuer.signer().ok_or("this relay holds its key")?;
    let probe = probe(issuer, trust_domain).map_err(|_| PATH)?.signed_by(signer.key(), signer);
    let probe = probe.map_err(|_| PATH)?;
    let usage = match issuer.record.name {
        CaName::Relay => KeyUsage::server_auth(),
        _ => KeyUsage::client_auth(),
    };
    let anchors = std::slice::from_ref(&root.certificate.anchor);
    let intermediates = std::slice::from_ref(&issuer.certificate.der);
    let time = unix_time(issuer.validity().not_before);
    let leaf = EndEntityCert::try_from(probe.der()).map_err(|_| PATH)?;
    leaf.verify_for_usage(webpki::ALL_VERIFICATION_ALGS, anchors, intermediates, time, usage, None, None)
        .map(|_| ())
        .map_err(|_| PATH)
}

/// A time as webpki wants it; what lies before 1970 becomes 1970.
pub(super) fn unix_time(at: Timestamp) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.seconds()).unwrap_or(0)))
}

fn probe(issuer: &Ca, trust_domain: &TrustDomain) -> Result<CertificateParams, CaError> {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = profile::ca_usages(issuer.record.name);
    params.subject_alt_names = vec![rcgen::SanType::URI(trust_domain.uri(issuer.record.domain).try_into()?)];
    params.serial_number = Some(SerialNumber::from(1u64));
    params.not_before = issuer.validity().not_before.to_offset_date_time();
    params.not_after = issuer.validity().not_after.to_offset_date_time();
    Ok(params)
}

fn open_one(record: CaRecord, ring: &KeyRing) -> Result<Ca, CaError> {
    let broken = |rule| CaError::Record { id: record.id.clone(), rule };
    if record.name.domain().is_some_and(|domain| domain != record.domain) {
        return Err(broken("its domain is its name's"));
    }
    if record.state == CaState::Announced && record.name != CaName::Root {
        return Err(broken("only a root is announced"));
    }
    let certificate = CaCertificate::parse(&record.certificate_pem, record.name).map_err(broken)?;
    let stored = Validity { not_before: record.not_before, not_after: record.not_after };
    if record.id != id_of(record.name, &certificate.spki) || stored != certificate.validity {
        return Err(broken("its id and dates are its certificate's"));
    }
    let key = match &record.sealed_key {
        None if record.name == CaName::Root => None,
        None => return Err(broken("this relay holds its key")),
        Some(sealed) => Some(CaKey::open(ring, &record.id, sealed)?),
    };
    if key.as_ref().is_some_and(|key| key.public().spki_der() != certificate.spki) {
        return Err(broken("its key is its certificate's"));
    }
    Ca::new(record, certificate, key)
}
