//! Which of a machine's endorsement keys is taken, and what is to be said of each.

use super::{
    authorities::Authority,
    certificate::{Certificate, InvalidCertificate, TpmClaims},
    chain::{self, Untrusted},
    roca,
};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, ECDSA_P384_SHA384_ASN1, ParsedPublicKey};
use shared::{
    csr::Curve,
    hex,
    problem::{Problem, Reason},
    time::Timestamp,
    tpm::{EndorsementKey, EndorsementPublic, InvalidEndorsementKey},
};

/// An endorsement key that may be taken. That the machine holds it is yet to be proved.
#[derive(Clone, Debug)]
pub struct Offered {
    /// The key.
    pub public: EndorsementPublic,
    /// SHA-256 of its SubjectPublicKeyInfo: what is pinned, listed and bound.
    pub digest: [u8; 32],
    /// Who vouches for it.
    pub voucher: Voucher,
}

impl Offered {
    /// `ekSha256`, 64 hex digits.
    #[must_use]
    pub fn ek_sha256(&self) -> String {
        hex::encode(&self.digest)
    }

    /// What the certificate says of the TPM: a claim, unless an authority vouches for the key.
    #[must_use]
    pub fn claims(&self) -> Option<&TpmClaims> {
        match &self.voucher {
            Voucher::Trusted { claims, .. } | Voucher::Untrusted { claims, .. } => Some(claims),
            Voucher::None | Voucher::Unreadable(_) => None,
        }
    }

    /// The authority that vouches for it, by its place: a genuine TPM's, and no more than that.
    #[must_use]
    pub fn authority(&self) -> Option<usize> {
        match self.voucher {
            Voucher::Trusted { authority, .. } => Some(authority),
            Voucher::None | Voucher::Unreadable(_) | Voucher::Untrusted { .. } => None,
        }
    }
}

/// What an endorsement key's certificate is worth.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Voucher {
    /// There is none.
    None,
    /// It can't be read, so that it counts as none.
    Unreadable(InvalidCertificate),
    /// It is for this key, and no authority stands behind it.
    Untrusted {
        /// What it says.
        claims: TpmClaims,
        /// Why no authority does.
        why: Untrusted,
    },
    /// An authority vouches for the key.
    Trusted {
        /// What it says.
        claims: TpmClaims,
        /// The place of the authority among those that were given.
        authority: usize,
    },
}

/// Why an endorsement key is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadEndorsementKey {
    /// Not of a template.
    #[error("it {0}")]
    Template(#[from] InvalidEndorsementKey),
    /// ROCA.
    #[error("its private key follows from the public one (ROCA, CVE-2017-15361); update the TPM's firmware")]
    Weak,
    /// No point of its curve, or no RSA key.
    #[error("it is no key of its kind")]
    NoKey,
    /// The certificate is another key's.
    #[error("the certificate that came with it is for another key")]
    OtherCertificate,
    /// Nothing was offered.
    #[error("none was offered")]
    None,
}

impl BadEndorsementKey {
    /// As the machine is told.
    #[must_use]
    pub fn refusal(self) -> Problem {
        let detail = format!("The TPM has no endorsement key that can be taken; of the first: {self}.");
        Problem::refused(Reason::BadEndorsementKey, detail)
    }
}

/// Judges an endorsement key as it was offered: its TPMT_PUBLIC, and certificates in DER, its own first.
///
/// # Errors
/// It can't be taken, whoever vouches for it.
pub fn judge_offer(
    tpmt_public: &[u8],
    certificates: &[&[u8]],
    authorities: &[Authority],
    now: Timestamp,
) -> Result<Offered, BadEndorsementKey> {
    let public = EndorsementPublic::parse(tpmt_public)?;
    let is_key = match public.key() {
        EndorsementKey::Rsa(modulus) if roca::has_fingerprint(modulus.as_bytes()) => {
            return Err(BadEndorsementKey::Weak);
        }
        EndorsementKey::Rsa(_) => true,
        EndorsementKey::Ec(key) => match key.curve() {
            Curve::P256 => ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.point()),
            Curve::P384 => ParsedPublicKey::new(&ECDSA_P384_SHA384_ASN1, key.point()),
        }
        .is_ok(),
    };
    if !is_key {
        return Err(BadEndorsementKey::NoKey);
    }
    let voucher = voucher_of(&public, certificates, authorities, now)?;
    Ok(Offered { digest: public.digest(), public, voucher })
}

fn voucher_of(
    public: &EndorsementPublic,
    certificates: &[&[u8]],
    authorities: &[Authority],
    now: Timestamp,
) -> Result<Voucher, BadEndorsementKey> {
    let Some((own, others)) = certificates.split_first() else { return Ok(Voucher::None) };
    let leaf = match Certificate::parse(own) {
        Ok(leaf) => leaf,
        Err(error) => return Ok(Voucher::Unreadable(error)),
    };
    if !leaf.is_for(public) {
        return Err(BadEndorsementKey::OtherCertificate);
    }
    // What can't be read leads nowhere; another CA may.
    let intermediates: Vec<Certificate> =
        others.iter().filter_map(|der| Certificate::parse(der).ok()).collect();
    let claims = leaf.claims().clone();
    Ok(match chain::verify(&leaf, &intermediates, authorities, now) {
        Ok(authority) => Voucher::Trusted { claims, authority },
        Err(why) => Voucher::Untrusted { claims, why },
    })
}

/// What a relay knows of the endorsement keys that a machine offers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Known<'a> {
    /// Those that a ban covers at the site.
    pub banned: &'a [[u8; 32]],
    /// The one that the token is pinned to.
    pub pinned: Option<[u8; 32]>,
    /// Those that a node has proved, or that the machine was approved with.
    pub bound: &'a [[u8; 32]],
    /// Those on the pool's list.
    pub listed: &'a [[u8; 32]],
    /// Those that the machine waits for a person with.
    pub waiting: &'a [[u8; 32]],
    /// Whether it is admitted by an authority that vouches for its key.
    pub asks_authorities: bool,
}

/// Takes one of the keys that a machine offers, and answers its place. A banned one first: another key of the same TPM is
/// no way around the ban. Then the pinned one, one that the machine is known by, a listed one; one that it waits with, since
/// with another it would be another join (but where an authority admits, one that an authority vouches for goes before);
/// one that an authority vouches for; the first that can be taken.
///
/// A pin that none of them matches is not judged here: only a proven key is matched.
///
/// # Errors
/// None can be taken: why the first can't.
pub fn choose<'a>(
    offers: &'a [Result<Offered, BadEndorsementKey>],
    known: Known<'_>,
) -> Result<(usize, &'a Offered), BadEndorsementKey> {
    let rank = |offered: &Offered| match offered {
        key if known.banned.contains(&key.digest) => 0,
        key if known.pinned == Some(key.digest) => 1,
        key if known.bound.contains(&key.digest) => 2,
        key if known.listed.contains(&key.digest) => 3,
        key if known.asks_authorities && key.authority().is_some() => 4,
        key if known.waiting.contains(&key.digest) => 5,
        key if key.authority().is_some() => 6,
        _ => 7,
    };
    let usable = offers.iter().enumerate().filter_map(|(place, offer)| Some((place, offer.as_ref().ok()?)));
    let refusal = || offers.iter().find_map(|offer| offer.as_ref().err().copied());
    usable
        .min_by_key(|(place, offered)| (rank(offered), *place))
        .ok_or_else(|| refusal().unwrap_or(BadEndorsementKey::None))
}

#[cfg(test)]
mod tests;
