//! What the issuing CAs issue: certificates of machines and of the relay itself.

use super::{
    Authority, CaError,
    keys::{CaKey, SubjectKey},
    name::{CaName, Domain, Profile},
    opened::root_of,
    profile::{self, RELAY_SECONDS, Validity},
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use shared::{
    csr::PublicKey,
    id::{NodeId, PoolUid},
    time::Timestamp,
};

/// A machine's certificate, just issued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issued {
    /// The serial number, 32 lower-case hex digits.
    pub serial: String,
    /// The certificate, one PEM block.
    pub certificate_pem: String,
    /// The issuing CA's certificate, one PEM block, without the root.
    pub chain_pem: String,
    /// The first second.
    pub not_before: Timestamp,
    /// The last second.
    pub not_after: Timestamp,
    /// The id of the issuing CA.
    pub issuer: String,
}

/// The relay's own server certificate with its key. Kept in memory only; each start issues a new one.
pub struct ServerCertificate {
    /// Leaf, issuing CA, root: what the handshake sends.
    pub chain: Vec<CertificateDer<'static>>,
    /// The leaf's key.
    pub key: PrivateKeyDer<'static>,
    /// The first second.
    pub not_before: Timestamp,
    /// The last second.
    pub not_after: Timestamp,
}

impl ServerCertificate {
    /// Whether it is time for another one: two thirds of its life have passed.
    #[must_use]
    pub fn is_due(&self, now: Timestamp) -> bool {
        Validity { not_before: self.not_before, not_after: self.not_after }.is_due(now)
    }
}

impl Authority {
    /// Issues a machine's certificate for `key`, from 5 minutes before `now` for `ttl_seconds`, but never
    /// longer than the issuing CA lives. That somebody holds the key must have been proved before.
    ///
    /// # Errors
    /// The issuing CA's own certificate does not hold now.
    pub fn issue_node(
        &self,
        profile: Profile,
        key: &PublicKey,
        pool: &PoolUid,
        node: &NodeId,
        now: Timestamp,
        ttl_seconds: u32,
    ) -> Result<Issued, CaError> {
        let issuer = self.settled(profile.issuer(), now)?;
        let signer = issuer.signer_at(now)?;
        let validity = Validity::starting(now, i64::from(ttl_seconds)).within(issuer.validity());
        let mut params = profile::machine(&self.trust_domain, profile, pool, node, validity)?;
        let serial = profile::number(&mut params, &self.random);
        Ok(Issued {
            serial,
            certificate_pem: params.signed_by(&SubjectKey(key), signer)?.pem(),
            chain_pem: issuer.record.certificate_pem.clone(),
            not_before: validity.not_before,
            not_after: validity.not_after,
            issuer: issuer.record.id.clone(),
        })
    }

    /// Issues the relay's own server certificate for these names, with a new key.
    ///
    /// # Errors
    /// The issuing CA's own certificate does not hold now.
    pub fn issue_relay(
        &self,
        names: &[ServerName<'_>],
        now: Timestamp,
    ) -> Result<ServerCertificate, CaError> {
        let issuer = self.signing(CaName::Relay, now)?;
        let signer = issuer.signer_at(now)?;
        let root = root_of(issuer, &self.roots)
            .ok_or(CaError::Incomplete { domain: Domain::Platform, name: CaName::Root })?;
        let key = CaKey::generate()?;
        let validity = Validity::starting(now, RELAY_SECONDS).within(issuer.validity());
        let mut params = profile::relay(&self.trust_domain, names, validity)?;
        profile::number(&mut params, &self.random);
        let leaf = params.signed_by(&key, signer)?;
        Ok(ServerCertificate {
            chain: vec![leaf.into(), issuer.certificate.der.clone(), root.certificate.der.clone()],
            key: PrivatePkcs8KeyDer::from(key.pkcs8()?.as_ref().to_vec()).into(),
            not_before: validity.not_before,
            not_after: validity.not_after,
        })
    }
}
