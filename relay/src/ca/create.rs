//! The first CA of a relay: two roots, drawn or given, and the issuing CAs under them.

use super::{
    CaError, CaRecord,
    certificate::CaCertificate,
    keys::CaKey,
    name::{CaName, CaState, Domain, TrustDomain},
    opened::{self, Ca, id_of},
    profile::{self, ISSUER_SECONDS, ROOT_SECONDS, Validity},
};
use crate::{random::Random, seal::KeyRing};
use shared::{secret::Secret, time::Timestamp};

/// Where a root comes from.
pub enum RootSource {
    /// A new one is drawn, and its key sealed.
    Drawn,
    /// A root of your own with its key; the key is sealed. It must be dedicated to this relay and this domain:
    /// it is what machines pin.
    Given {
        /// The certificate, one PEM block.
        certificate_pem: String,
        /// The key in PEM, not encrypted, on P-256 or P-384.
        key_pem: Secret,
    },
}

/// The two roots of a relay.
pub struct Roots {
    /// The platform's.
    pub platform: RootSource,
    /// The tenants'.
    pub tenant: RootSource,
}

impl Roots {
    /// Two new roots.
    #[must_use]
    pub const fn drawn() -> Self {
        Self { platform: RootSource::Drawn, tenant: RootSource::Drawn }
    }
}

/// Makes all CAs of a new relay. Store them, all or none.
///
/// # Errors
/// A given root does not fit, or its key is not its certificate's, or both domains were given the same key.
pub fn create(
    trust_domain: &TrustDomain,
    roots: Roots,
    now: Timestamp,
    ring: &KeyRing,
    random: &Random,
) -> Result<Vec<CaRecord>, CaError> {
    let maker = Maker { trust_domain, now, ring, random };
    let platform = maker.root_from(Domain::Platform, roots.platform)?;
    let tenant = maker.root_from(Domain::Tenant, roots.tenant)?;
    if platform.certificate.spki == tenant.certificate.spki {
        let rule = "it has a key of its own, other than the platform root's";
        return Err(CaError::Certificate { what: "the tenant root".to_owned(), rule });
    }
    let mut records = Vec::new();
    for name in CaName::ISSUING {
        let root = if name.domain() == Some(Domain::Tenant) { &tenant } else { &platform };
        records.push(maker.issuing(name, root)?.record);
    }
    records.splice(0..0, [platform.record, tenant.record]);
    Ok(records)
}

/// Makes CAs for one relay at one time.
pub(super) struct Maker<'a> {
    pub(super) trust_domain: &'a TrustDomain,
    pub(super) now: Timestamp,
    pub(super) ring: &'a KeyRing,
    pub(super) random: &'a Random,
}

impl Maker<'_> {
    /// A new root, active.
    pub(super) fn root(&self, domain: Domain) -> Result<Ca, CaError> {
        let key = CaKey::generate()?;
        let validity = Validity::starting(self.now, ROOT_SECONDS);
        let mark = mark_of(&key);
        let mut params = profile::ca(self.trust_domain, domain, CaName::Root, &mark, validity)?;
        profile::number(&mut params, self.random);
        let pem = params.self_signed(&key)?.pem();
        self.ca(domain, CaName::Root, pem, key)
    }

    /// The same root, key and name, with a certificate that begins now and ends as the one before; `None` where the key
    /// is not here, or the name is not of our making.
    pub(super) fn root_again(&self, root: &Ca) -> Result<Option<Ca>, CaError> {
        let Some(sealed) = &root.record.sealed_key else { return Ok(None) };
        let key = CaKey::open(self.ring, &root.record.id, sealed)?;
        let not_after = root.validity().not_after;
        let validity = Validity { not_after, ..Validity::starting(self.now, 0) };
        let domain = root.record.domain;
        let mut params = profile::ca(self.trust_domain, domain, CaName::Root, &mark_of(&key), validity)?;
        profile::number(&mut params, self.random);
        let again = self.ca(domain, CaName::Root, params.self_signed(&key)?.pem(), key)?;
        // What was issued under the old one must lead to this one.
        Ok((again.certificate.anchor.subject == root.certificate.anchor.subject).then_some(again))
    }

    /// A new issuing CA under `root`, active.
    pub(super) fn issuing(&self, name: CaName, root: &Ca) -> Result<Ca, CaError> {
        let domain = root.record.domain;
        let key = CaKey::generate()?;
        let validity = Validity::starting(self.now, ISSUER_SECONDS).within(root.validity());
        let mark = mark_of(&key);
        let mut params = profile::ca(self.trust_domain, domain, name, &mark, validity)?;
        profile::number(&mut params, self.random);
        let pem = params.signed_by(&key, root.signer_at(self.now)?)?.pem();
        let made = self.ca(domain, name, pem, key)?;
        let what = || format!("the {name} CA");
        opened::prove(&made, root, self.trust_domain)
            .map_err(|rule| CaError::Certificate { what: what(), rule })?;
        Ok(made)
    }

    fn root_from(&self, domain: Domain, source: RootSource) -> Result<Ca, CaError> {
        let RootSource::Given { certificate_pem, key_pem } = source else { return self.root(domain) };
        let key = CaKey::from_pem(&key_pem)?;
        let root = self.ca(domain, CaName::Root, certificate_pem, key)?;
        if !root.validity().holds(self.now) {
            return Err(not_fit(domain, CaName::Root, "it holds now"));
        }
        Ok(root)
    }

    /// A CA from its certificate and key, sealed.
    fn ca(&self, domain: Domain, name: CaName, pem: String, key: CaKey) -> Result<Ca, CaError> {
        let certificate = CaCertificate::parse(&pem, name).map_err(|rule| not_fit(domain, name, rule))?;
        if key.public().spki_der() != certificate.spki {
            return Err(not_fit(domain, name, "its key is the given one"));
        }
        let id = id_of(name, &certificate.spki);
        let record = CaRecord {
            domain,
            name,
            certificate_pem: pem,
            sealed_key: Some(key.seal(self.ring, &id, self.random)?),
            not_before: certificate.validity.not_before,
            not_after: certificate.validity.not_after,
            state: CaState::Active,
            id,
        };
        Ca::new(record, certificate, Some(key))
    }
}

/// The error for a certificate that does not fit a CA.
pub(super) fn not_fit(domain: Domain, name: CaName, rule: &'static str) -> CaError {
    CaError::Certificate { what: format!("the {domain} domain's {name} CA"), rule }
}

/// Tells CAs of one name apart in their subject: 32 bits of the key's digest.
pub(super) fn mark_of(key: &CaKey) -> String {
    let mut mark = shared::hex::encode(&key.public().digest());
    mark.truncate(8);
    mark
}
