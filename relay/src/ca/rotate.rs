//! Rotation of CAs with overlap: a function of the stored records and the time.
//!
//! An issuing CA is replaced when two thirds of its life have passed; the old one signs on for [`SETTLE_SECONDS`], until
//! every relay has taken the new one over, and stays trusted until what it issued can't be renewed any more. A root is announced first (in every bundle, signing
//! nothing) until every machine must have seen it, then takes over. Roots whose key is offline are never
//! touched: what is due under them is answered as waiting.
//!
//! The time may be wrong, though callers ask for what is [`Demand::Due`] only by a clock that has held
//! ([`crate::clock::Watch`]). So a CA that begins in the future is left alone: either this clock is behind, or another was
//! ahead when it was made, and only a person knows which ([`Demand::Needed`]); meanwhile the one before it signs. And nothing
//! is dropped in the turn that replaces it: its successor must have been there for as long as the overlap is.

use super::{
    CaError, CaRecord,
    create::Maker,
    name::{CaName, CaState, Domain, TrustDomain},
    opened::{self, Ca, root_of},
    profile::BACKDATE_SECONDS,
};
use crate::{random::Random, seal::KeyRing};
use shared::time::Timestamp;

/// How long a replaced CA stays after its end, in seconds (30 days: the longest grace for renewals).
pub const OVERLAP_SECONDS: i64 = 30 * 86_400;
/// How long a root is announced before it signs, in seconds (60 days: the longest certificate and the longest
/// grace, after which every machine has been given the new bundle).
pub const ANNOUNCE_SECONDS: i64 = 60 * 86_400;

/// How long the CA before it still signs for machines once an issuing CA is made, in seconds: each relay looks for new
/// ones every minute, and must know the issuer of whatever certificate comes to it.
pub const SETTLE_SECONDS: i64 = 180;

/// What to rotate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// What is due.
    Due,
    /// What is due, and what begins in the future: whoever asks vouches for the clock.
    Needed,
    /// What is due, and this issuing CA at once.
    Issuer(CaName),
    /// What is due, and announce a new root of this domain at once.
    Root(Domain),
}

/// One thing that a rotation did, or could not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new issuing CA signs; the old one overlaps.
    Issued {
        /// The new CA.
        id: String,
    },
    /// A new root is announced.
    Announced {
        /// The new root.
        id: String,
    },
    /// A root that began in the future has another certificate, for the same key and name.
    Reissued {
        /// The root.
        id: String,
    },
    /// An announced root signs; the old one overlaps.
    Promoted {
        /// The root.
        id: String,
    },
    /// A CA is trusted no more.
    Dropped {
        /// The CA.
        id: String,
    },
    /// It is due, but the root's key is offline: make requests, sign and install them.
    Waiting {
        /// The CA that is due.
        name: CaName,
        /// Its domain.
        domain: Domain,
    },
}

/// The records after a rotation. Replace all stored ones in one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// All CAs.
    pub records: Vec<CaRecord>,
    /// What is different; empty if nothing was due.
    pub changes: Vec<Change>,
}

/// Rotates what is due, and what is demanded.
///
/// # Errors
/// A record does not open, or a certificate can't be made.
pub fn rotate(
    trust_domain: &TrustDomain,
    records: Vec<CaRecord>,
    demand: Demand,
    now: Timestamp,
    ring: &KeyRing,
    random: &Random,
) -> Result<Rotation, CaError> {
    let (roots, issuers) = opened::open_all(trust_domain, records, ring)?;
    let maker = Maker { trust_domain, now, ring, random };
    let mut round = Round { maker, demand, roots, issuers, changes: Vec::new() };
    for domain in Domain::ALL {
        round.begin_root(domain)?;
        round.root(domain)?;
    }
    for name in CaName::ISSUING {
        round.issuer(name)?;
    }
    round.drop_ended();
    let records = round.roots.into_iter().chain(round.issuers).map(|ca| ca.record).collect();
    Ok(Rotation { records, changes: round.changes })
}

struct Round<'a> {
    maker: Maker<'a>,
    demand: Demand,
    roots: Vec<Ca>,
    issuers: Vec<Ca>,
    changes: Vec<Change>,
}

impl Round<'_> {
    /// Lets a root begin now that was made while a clock stood ahead, if it is one of our making. Its pin stays.
    fn begin_root(&mut self, domain: Domain) -> Result<(), CaError> {
        let now = self.maker.now;
        let future =
            |ca: &&mut Ca| ca.record.domain == domain && ca.is_active() && ca.validity().not_before > now;
        if self.demand != Demand::Needed {
            return Ok(());
        }
        let Some(root) = self.roots.iter_mut().find(future) else { return Ok(()) };
        if let Some(again) = self.maker.root_again(root)? {
            *root = again;
            self.changes.push(Change::Reissued { id: root.record.id.clone() });
        }
        Ok(())
    }

    /// Announces a root that is due, or lets an announced one take over.
    fn root(&mut self, domain: Domain) -> Result<(), CaError> {
        let now = self.maker.now;
        let of = |state| move |ca: &&mut Ca| ca.record.domain == domain && ca.record.state == state;
        let announced = self.roots.iter_mut().find(of(CaState::Announced));
        if let Some(root) = announced {
            if now >= root.record.not_before.plus_seconds(BACKDATE_SECONDS + ANNOUNCE_SECONDS) {
                let id = root.record.id.clone();
                self.roots.iter_mut().filter(of(CaState::Active)).for_each(overlap);
                self.roots.iter_mut().filter(of(CaState::Announced)).for_each(activate);
                self.changes.push(Change::Promoted { id });
            }
            return Ok(());
        }
        let Some(active) = self.roots.iter_mut().find(of(CaState::Active)) else { return Ok(()) };
        if !active.validity().is_due(now) && self.demand != Demand::Root(domain) {
            return Ok(());
        }
        if active.signer().is_none() {
            self.changes.push(Change::Waiting { name: CaName::Root, domain });
            return Ok(());
        }
        let mut root = self.maker.root(domain)?;
        root.record.state = CaState::Announced;
        self.changes.push(Change::Announced { id: root.record.id.clone() });
        self.roots.push(root);
        Ok(())
    }

    /// Replaces an issuing CA that is due, demanded, needed, or not under the active root.
    fn issuer(&mut self, name: CaName) -> Result<(), CaError> {
        let Some(domain) = name.domain() else { return Ok(()) };
        let Some(root) = self.roots.iter().find(|ca| ca.record.domain == domain && ca.is_active()) else {
            return Ok(());
        };
        if self.keeps(name, root) {
            return Ok(());
        }
        if root.signer().is_none() {
            self.changes.push(Change::Waiting { name, domain });
            return Ok(());
        }
        let made = self.maker.issuing(name, root)?;
        let is_current = |ca: &&mut Ca| ca.record.name == name && ca.is_active();
        self.issuers.iter_mut().filter(is_current).for_each(overlap);
        self.changes.push(Change::Issued { id: made.record.id.clone() });
        self.issuers.push(made);
        Ok(())
    }

    /// Whether the active issuing CA of this name stays the active one.
    fn keeps(&self, name: CaName, root: &Ca) -> bool {
        let now = self.maker.now;
        let all = || self.issuers.iter().filter(|ca| ca.record.name == name);
        let Some(active) = all().find(|ca| ca.is_active()) else { return false };
        let has_begun = active.validity().not_before <= now;
        // Until it begins, the one before it signs.
        let before = || all().filter(|ca| ca.validity().holds(now)).max_by_key(|ca| ca.record.not_before);
        let signs = if has_begun { active } else { before().unwrap_or(active) };
        active.is_signed_by(root)
            && !signs.validity().is_due(now)
            && self.demand != Demand::Issuer(name)
            && (has_begun || self.demand != Demand::Needed)
    }

    /// Drops issuing CAs whose certificates are all past renewal, then roots with nothing left under them.
    fn drop_ended(&mut self) {
        let now = self.maker.now;
        let grown = |ca: &&Ca| ca.record.not_before.plus_seconds(BACKDATE_SECONDS + OVERLAP_SECONDS) <= now;
        let grown: Vec<CaRecord> = self.issuers.iter().filter(grown).map(|ca| ca.record.clone()).collect();
        let succeeds = |old: &CaRecord, new: &CaRecord| {
            new.name == old.name && new.not_before >= old.not_before && new.id != old.id
        };
        let ended = |ca: &mut Ca| {
            ca.record.state == CaState::Overlap
                && ca.record.not_after.plus_seconds(OVERLAP_SECONDS) < now
                && grown.iter().any(|other| succeeds(&ca.record, other))
        };
        let mut dropped: Vec<Ca> = self.issuers.extract_if(.., ended).collect();
        let issuers = &self.issuers;
        let roots = &self.roots;
        let idle: Vec<String> = roots
            .iter()
            .filter(|root| root.record.state == CaState::Overlap)
            .filter(|root| !issuers.iter().any(|ca| root_of(ca, std::slice::from_ref(root)).is_some()))
            .map(|root| root.record.id.clone())
            .collect();
        dropped.extend(self.roots.extract_if(.., |root| idle.contains(&root.record.id)));
        self.changes.extend(dropped.into_iter().map(|ca| Change::Dropped { id: ca.record.id }));
    }
}

fn overlap(ca: &mut Ca) {
    ca.record.state = CaState::Overlap;
}

fn activate(ca: &mut Ca) {
    ca.record.state = CaState::Active;
}
