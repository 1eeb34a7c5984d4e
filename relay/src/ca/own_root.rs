//! A root of your own whose key stays offline: requests go out, signed issuing CAs come in.
//!
//! What comes in is held to the same rules as our own CAs. Such a root must be dedicated to this relay and to
//! one of its two domains: it is what machines pin.

use super::{
    CaError, CaRecord,
    certificate::CaCertificate,
    create::{mark_of, not_fit},
    keys::CaKey,
    name::{CaName, CaState, Domain, TrustDomain},
    opened::{self, Ca, id_of},
    profile::{self, Validity},
};
use crate::{random::Random, seal::KeyRing};
use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use shared::time::Timestamp;

/// The most certificates that are read from one bundle.
const MAX_SIGNED: usize = 32;

/// An issuing CA whose certificate is still to be signed. Store it until it is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCa {
    /// The id that the CA will have.
    pub id: String,
    /// The domain whose root must sign it.
    pub domain: Domain,
    /// What it will be for.
    pub name: CaName,
    /// The request, one PEM block: what the root's keeper is given.
    pub request_pem: String,
    /// Its private key, sealed to the row of the CA that it will be.
    pub sealed_key: String,
}

/// The certificates of the offline roots, one PEM block each.
#[derive(Clone, Copy, Debug)]
pub struct SignedRoots<'a> {
    /// The platform's.
    pub platform: &'a str,
    /// The tenants'.
    pub tenant: &'a str,
}

/// Draws keys for issuing CAs and makes the requests that their root has to sign.
///
/// # Errors
/// The provider fails, or a name in `names` is the root's.
pub fn requests(
    trust_domain: &TrustDomain,
    names: &[CaName],
    now: Timestamp,
    ring: &KeyRing,
    random: &Random,
) -> Result<Vec<PendingCa>, CaError> {
    let one = |name: &CaName| {
        let domain = name.domain().ok_or_else(|| CaError::UnknownIssuer { name: name.to_string() })?;
        let key = CaKey::generate()?;
        let id = id_of(*name, &key.public().spki_der());
        let validity = Validity::starting(now, profile::ISSUER_SECONDS);
        let mut params = profile::ca(trust_domain, domain, *name, &mark_of(&key), validity)?;
        // A request can't carry one; the root's keeper adds it.
        params.use_authority_key_identifier_extension = false;
        Ok(PendingCa {
            domain,
            name: *name,
            request_pem: params.serialize_request(&key)?.pem()?,
            sealed_key: key.seal(ring, &id, random)?,
            id,
        })
    };
    names.iter().map(one).collect()
}

/// Installs signed issuing CAs: answers all records, the new ones active and those that they replace
/// overlapping. `signed` is a PEM bundle in any order; each certificate belongs to the pending CA of its key.
///
/// # Errors
/// A pending CA has no certificate in the bundle, or one that breaks a rule: its root, CA:TRUE, pathLen 0,
/// keyCertSign and cRLSign, identifiers, the pending key, a validity that holds now and ends with its root's.
pub fn install(
    trust_domain: &TrustDomain,
    existing: Vec<CaRecord>,
    pending: &[PendingCa],
    roots: SignedRoots<'_>,
    signed: &str,
    now: Timestamp,
    ring: &KeyRing,
) -> Result<Vec<CaRecord>, CaError> {
    let platform = offline_root(Domain::Platform, roots.platform, now)?;
    let tenant = offline_root(Domain::Tenant, roots.tenant, now)?;
    if platform.certificate.spki == tenant.certificate.spki {
        let rule = "it has a key of its own, other than the platform root's";
        return Err(not_fit(Domain::Tenant, CaName::Root, rule));
    }
    let signed = bundle(signed)?;
    let mut records = existing;
    for one in pending {
        let root = if one.domain == Domain::Tenant { &tenant } else { &platform };
        let record = installed(trust_domain, one, root, &signed, now, ring)?;
        add(&mut records, record);
    }
    for root in [platform, tenant] {
        if !records.iter().any(|record| record.id == root.record.id) {
            add(&mut records, root.record);
        }
    }
    // Nothing is answered that a later start would refuse.
    opened::open_all(trust_domain, records.clone(), ring)?;
    Ok(records)
}

/// Adds a record; the active one that it replaces overlaps.
fn add(records: &mut Vec<CaRecord>, new: CaRecord) {
    let replaced = |old: &&mut CaRecord| {
        old.name == new.name && old.domain == new.domain && old.state == CaState::Active
    };
    for old in records.iter_mut().filter(replaced) {
        old.state = CaState::Overlap;
    }
    records.push(new);
}

fn offline_root(domain: Domain, pem: &str, now: Timestamp) -> Result<Ca, CaError> {
    let refuse = |rule| not_fit(domain, CaName::Root, rule);
    let certificate = CaCertificate::parse(pem, CaName::Root).map_err(refuse)?;
    if !certificate.validity.holds(now) {
        return Err(refuse("it holds now"));
    }
    let record = CaRecord {
        id: id_of(CaName::Root, &certificate.spki),
        domain,
        name: CaName::Root,
        certificate_pem: pem.to_owned(),
        sealed_key: None,
        not_before: certificate.validity.not_before,
        not_after: certificate.validity.not_after,
        state: CaState::Active,
    };
    Ca::new(record, certificate, None)
}

fn bundle(signed: &str) -> Result<Vec<CertificateDer<'static>>, CaError> {
    let rule = "they are 1 to 32 PEM blocks CERTIFICATE";
    let refuse = || CaError::Certificate { what: "the signed issuing CAs".to_owned(), rule };
    let blocks: Result<Vec<_>, _> =
        CertificateDer::pem_slice_iter(signed.as_bytes()).take(MAX_SIGNED + 1).collect();
    blocks.ok().filter(|blocks| (1..=MAX_SIGNED).contains(&blocks.len())).ok_or_else(refuse)
}

/// The record of one pending CA, from whichever signed certificate has its key.
fn installed(
    trust_domain: &TrustDomain,
    pending: &PendingCa,
    root: &Ca,
    signed: &[CertificateDer<'static>],
    now: Timestamp,
    ring: &KeyRing,
) -> Result<CaRecord, CaError> {
    let refuse = |rule| not_fit(pending.domain, pending.name, rule);
    let key = CaKey::open(ring, &pending.id, &pending.sealed_key)?;
    let spki = key.public().spki_der();
    let der = signed.iter().find(|der| spki_of(der).as_deref() == Some(spki.as_slice()));
    let der = der.ok_or_else(|| refuse("one of the signed certificates has its key"))?;
    let certificate = CaCertificate::from_der(der.clone(), pending.name).map_err(refuse)?;
    if !certificate.validity.holds(now) {
        return Err(refuse("it holds now"));
    }
    let record = CaRecord {
        id: pending.id.clone(),
        domain: pending.domain,
        name: pending.name,
        certificate_pem: pem_of(der),
        sealed_key: Some(pending.sealed_key.clone()),
        not_before: certificate.validity.not_before,
        not_after: certificate.validity.not_after,
        state: CaState::Active,
    };
    let ca = Ca::new(record, certificate, Some(key))?;
    if !ca.is_signed_by(root) {
        return Err(refuse("its authority key identifier is its root's subject key identifier"));
    }
    opened::prove(&ca, root, trust_domain).map_err(refuse)?;
    Ok(ca.record)
}

fn spki_of(der: &CertificateDer<'_>) -> Option<Vec<u8>> {
    let parsed = webpki::EndEntityCert::try_from(der).ok()?;
    Some(parsed.subject_public_key_info().as_ref().to_vec())
}

/// A certificate as one PEM block.
pub(crate) fn pem_of(der: &[u8]) -> String {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let text = STANDARD.encode(der);
    let lines = (0..text.len()).step_by(64).filter_map(|at| text.get(at..text.len().min(at + 64)));
    let body: String = lines.flat_map(|line| [line, "\n"]).collect();
    format!("-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n")
}
