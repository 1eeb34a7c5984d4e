//! The relay's certificate authority, in memory: two roots, four issuing CAs, and what they issue.
//!
//! Two roots with two trust domains, so that a service can trust one and never the other. A record is a CA as
//! it is stored; [`Authority::open`] believes none of it before it has checked it. Only the public key is ever
//! taken from whoever asks for a certificate. No store, no clock and no network here; whoever has stored
//! records opens them, and never makes new ones because opening failed.

mod certificate;
mod create;
mod crl;
mod issue;
mod keys;
mod name;
mod opened;
mod own_root;
mod peer;
mod profile;
mod rotate;
#[cfg(test)]
mod tests;

pub use create::{RootSource, Roots, create};
pub use crl::{CRL_SECONDS, Revoked};
pub use issue::{Issued, ServerCertificate};
pub use keys::{COLUMN, TABLE};
pub use name::{
    CaName, CaState, Domain, InvalidTrustDomain, MAX_TRUST_DOMAIN_BYTES, Profile, TrustDomain, UnknownWord,
};
pub(crate) use own_root::pem_of;
pub use own_root::{PendingCa, SignedRoots, install, requests};
pub use peer::{PeerCertificate, PeerRefused, Trust};
pub use profile::{BACKDATE_SECONDS, ISSUER_SECONDS, RELAY_SECONDS, ROOT_SECONDS, SERIAL_BYTES};
pub use rotate::{ANNOUNCE_SECONDS, Change, Demand, OVERLAP_SECONDS, Rotation, SETTLE_SECONDS, rotate};

use crate::{
    random::Random,
    seal::{KeyRing, SealError},
};
use opened::Ca;
use sha2::{Digest as _, Sha256};
use shared::{hex, time::Timestamp};

/// A CA as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CaRecord {
    /// Its name and 16 digits of its key's digest: `node-0123456789abcdef`. Unique.
    pub id: String,
    /// Which of the two domains it belongs to.
    pub domain: Domain,
    /// What it is for.
    pub name: CaName,
    /// Its certificate, one PEM block.
    pub certificate_pem: String,
    /// Its private key, sealed to this row; `None` for an offline root.
    pub sealed_key: Option<String>,
    /// The certificate's first second.
    pub not_before: Timestamp,
    /// The certificate's last second.
    pub not_after: Timestamp,
    /// What it does now.
    pub state: CaState,
}

/// Why the CA can't do what it was asked. No variant holds a secret.
#[derive(Debug, thiserror::Error)]
pub enum CaError {
    /// A stored CA is not what it must be.
    #[error("open CA {id}: not so: {rule}; restore the store from a backup")]
    Record {
        /// The record's id.
        id: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// A set of stored CAs is not complete.
    #[error(
        "open the CA: there must be exactly one active {name} CA in the {domain} domain; restore the store from a backup"
    )]
    Incomplete {
        /// The domain.
        domain: Domain,
        /// The name that is absent or there twice.
        name: CaName,
    },
    /// A certificate that was handed in does not fit.
    #[error("check the certificate of {what}: not so: {rule}")]
    Certificate {
        /// What it should be for.
        what: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The key file of a root of your own holds no usable key.
    #[error(
        "read the root's key: must be one unencrypted PEM key on P-256 or P-384; for any other, keep it offline and \
         sign the issuing CAs' requests with it"
    )]
    RootKeyForm,
    /// A key could not be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The CA's own certificate does not hold now.
    #[error("issue by CA {id}: {}", not_valid(*not_before, *not_after, *now))]
    NotValidNow {
        /// The CA.
        id: String,
        /// Its first second.
        not_before: Timestamp,
        /// Its last second.
        not_after: Timestamp,
        /// When it was asked.
        now: Timestamp,
    },
    /// There is no such issuing CA.
    #[error("no issuing CA is called {name}")]
    UnknownIssuer {
        /// What was asked for.
        name: String,
    },
    /// A revoked serial number is not one that this CA can have given.
    #[error("write the CRL: {serial} is not a serial number of 16 bytes in hex")]
    Serial {
        /// The text.
        serial: String,
    },
    /// A certificate could not be encoded or signed.
    #[error("write a certificate: {0}")]
    Encode(#[from] rcgen::Error),
    /// The crypto provider failed at what can't fail.
    #[error("{operation}: the crypto provider failed")]
    Provider {
        /// What it was asked to do.
        operation: &'static str,
    },
}

/// The CAs of one relay, opened: keys in memory, every record checked.
pub struct Authority {
    trust_domain: TrustDomain,
    roots: Vec<Ca>,
    issuers: Vec<Ca>,
    random: Random,
}

impl Authority {
    /// Opens stored CAs and checks all of it: form, key, path to a root of the same domain.
    ///
    /// # Errors
    /// The first record that is not what it must be, or a missing one, or a key that does not open.
    pub fn open(
        trust_domain: &TrustDomain,
        records: Vec<CaRecord>,
        ring: &KeyRing,
        random: &Random,
    ) -> Result<Self, CaError> {
        let (roots, issuers) = opened::open_all(trust_domain, records, ring)?;
        for domain in Domain::ALL {
            one_active(&roots, domain, CaName::Root)?;
        }
        for name in CaName::ISSUING {
            if let Some(domain) = name.domain() {
                one_active(&issuers, domain, name)?;
            }
        }
        Ok(Self { trust_domain: trust_domain.clone(), roots, issuers, random: random.clone() })
    }

    /// The platform's trust domain.
    #[must_use]
    pub fn trust_domain(&self) -> &TrustDomain {
        &self.trust_domain
    }

    /// The roots of a domain in PEM: the active one first, then those that are announced or overlap.
    #[must_use]
    pub fn bundle(&self, domain: Domain) -> String {
        let mut roots: Vec<_> = self.roots_of(domain).map(|root| &root.record).collect();
        roots.sort_by_key(|record| record.state != CaState::Active);
        roots.into_iter().map(|record| record.certificate_pem.as_str()).collect()
    }

    /// The issuing CAs, active and overlapping: what the trust bundle names, each with its CRL.
    pub fn issuers(&self) -> impl Iterator<Item = &CaRecord> {
        self.issuers.iter().map(|ca| &ca.record)
    }

    /// The pin of the active platform root: `sha256:` and the hex of its SubjectPublicKeyInfo's SHA-256.
    ///
    /// # Errors
    /// None that [`Authority::open`] has not excluded.
    pub fn pin(&self) -> Result<String, CaError> {
        one_active(&self.roots, Domain::Platform, CaName::Root).map(pin_of)
    }

    /// The pins of all platform roots that are trusted, the active one first.
    #[must_use]
    pub fn pins(&self) -> Vec<String> {
        let mut roots: Vec<_> = self.roots_of(Domain::Platform).collect();
        roots.sort_by_key(|root| root.record.state != CaState::Active);
        roots.into_iter().map(pin_of).collect()
    }

    /// The earliest end of a CA that is active.
    #[must_use]
    pub fn not_after(&self) -> Option<Timestamp> {
        let all = self.roots.iter().chain(&self.issuers).map(|ca| &ca.record);
        all.filter(|record| record.state == CaState::Active).map(|record| record.not_after).min()
    }

    fn roots_of(&self, domain: Domain) -> impl Iterator<Item = &Ca> {
        self.roots.iter().filter(move |root| root.record.domain == domain)
    }

    /// The active CA of that name.
    fn active(&self, name: CaName) -> Result<&Ca, CaError> {
        let found = self.issuers.iter().find(|ca| ca.record.name == name && ca.is_active());
        found.ok_or_else(|| CaError::UnknownIssuer { name: name.to_string() })
    }

    /// The CA of that name that signs for machines: the active one once every relay can know it, till then the newest
    /// that they do know.
    fn settled(&self, name: CaName, now: Timestamp) -> Result<&Ca, CaError> {
        let known = |ca: &Ca| ca.record.not_before.plus_seconds(BACKDATE_SECONDS + SETTLE_SECONDS) <= now;
        self.holding(name, now, known).map_or_else(|| self.signing(name, now), Ok)
    }

    /// The CA of that name that signs: the active one, or, where that begins in the future because it was made by a clock
    /// that stood ahead, the newest that holds now.
    fn signing(&self, name: CaName, now: Timestamp) -> Result<&Ca, CaError> {
        self.holding(name, now, |_| true).map_or_else(|| self.active(name), Ok)
    }

    /// Of those that can sign now and are so, the active one, else the newest.
    fn holding(&self, name: CaName, now: Timestamp, so: impl Fn(&Ca) -> bool) -> Option<&Ca> {
        let usable =
            self.issuers.iter().filter(|ca| ca.record.name == name && ca.signer_at(now).is_ok() && so(ca));
        usable.max_by_key(|ca| (ca.is_active(), ca.record.not_before))
    }

    /// An issuing CA by its id, or the active one by its name.
    fn issuer(&self, which: &str) -> Result<&Ca, CaError> {
        let fits = |ca: &&Ca| ca.record.id == which || (ca.is_active() && ca.record.name.as_str() == which);
        self.issuers.iter().find(fits).ok_or_else(|| CaError::UnknownIssuer { name: which.to_owned() })
    }
}

/// The one active CA of a name in a domain.
fn one_active(cas: &[Ca], domain: Domain, name: CaName) -> Result<&Ca, CaError> {
    let mut found =
        cas.iter().filter(|ca| ca.record.domain == domain && ca.record.name == name && ca.is_active());
    match (found.next(), found.next()) {
        (Some(ca), None) => Ok(ca),
        _ => Err(CaError::Incomplete { domain, name }),
    }
}

/// What is wrong with a CA's dates, and the remedy for either cause: nobody can tell a wrong clock from a wrong CA.
fn not_valid(not_before: Timestamp, not_after: Timestamp, now: Timestamp) -> String {
    if now < not_before {
        return format!(
            "it begins {not_before}, and this clock says {now}: if the clock is behind, set it; if it is right, the CA was \
             made by one that stood ahead: run `relay ca rotate`, which replaces what does not hold now"
        );
    }
    format!(
        "it ended {not_after}, and this clock says {now}: if the clock is ahead, set it; if it is right, run `relay ca \
         rotate`, which replaces what does not hold now"
    )
}

fn pin_of(root: &Ca) -> String {
    format!("sha256:{}", hex::encode(&Sha256::digest(&root.certificate.spki)))
}
