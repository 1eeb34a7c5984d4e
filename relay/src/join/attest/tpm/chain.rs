//! Whether an endorsement key's certificate leads to an authority that a pool trusts.
//!
//! Our own path rules (RFC 5280, 6.1, as far as TPM vendors use it), because the usual verifiers refuse what vendors
//! write. An authority, root or intermediate, is trusted as it was given: nobody looks above it. Revocation is not
//! checked: the vendors' lists are on the network. No path makes anybody admitted by a certificate's bytes; it only
//! says who vouches for the key.

use super::{authorities::Authority, certificate::Certificate};
use shared::time::Timestamp;

/// The most CAs of a path, the authority among them.
const MAX_CAS: usize = 5;
/// The most signatures that are checked for one certificate: a bound on what a machine's CAs can cost.
const MAX_SIGNATURES: usize = 32;

/// Why no authority vouches for an endorsement key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is a CA's.
    #[error("the endorsement key's certificate is one of a CA")]
    LeafIsCa,
    /// extendedKeyUsage has no tcg-kp-EKCertificate.
    #[error("the certificate's extendedKeyUsage is not that of an endorsement key (2.23.133.8.1)")]
    ExtendedKeyUsage,
    /// keyUsage has neither keyEncipherment nor keyAgreement.
    #[error("the certificate's keyUsage has neither keyEncipherment nor keyAgreement")]
    KeyUsage,
    /// A certificate of the path has expired or is not yet valid.
    #[error("a certificate of the path is not valid now")]
    NotValidNow,
    /// SHA-1, or something rarer.
    #[error("a certificate of the path is signed by an algorithm that is not taken (SHA-1 is none)")]
    Algorithm,
    /// Nobody at hand has the issuer's name.
    #[error("no certificate of its issuer is at hand, and none of the pool's authorities is its issuer")]
    NoIssuer,
    /// The issuer is no CA.
    #[error("a certificate of the path is issued by what is no CA")]
    NotCa,
    /// The issuer may not sign certificates.
    #[error("a CA of the path has a keyUsage without keyCertSign")]
    MayNotSign,
    /// The issuer's pathLenConstraint is exceeded.
    #[error("a CA of the path has more CAs below it than its pathLen allows")]
    PathLen,
    /// The issuer's key did not make the signature.
    #[error("a signature of the path does not hold")]
    Signature,
    /// Longer than any vendor's.
    #[error("the path has more than {MAX_CAS} CAs")]
    TooLong,
    /// Too many candidates.
    #[error("finding the path takes more than {MAX_SIGNATURES} signatures")]
    TooCostly,
}

/// Follows the path from an endorsement key's certificate to one of the authorities, over the intermediates that
/// the machine sent; answers which authority, by its place.
///
/// # Errors
/// Why there is no path; where several were tried, why the last of them fails.
pub fn verify(
    leaf: &Certificate,
    intermediates: &[Certificate],
    authorities: &[Authority],
    now: Timestamp,
) -> Result<usize, Untrusted> {
    if leaf.is_ca || leaf.usage.is_some_and(|usage| usage.signs_certificates) {
        return Err(Untrusted::LeafIsCa);
    }
    if leaf.for_endorsement == Some(false) {
        return Err(Untrusted::ExtendedKeyUsage);
    }
    if leaf.usage.is_some_and(|usage| !usage.takes_secrets) {
        return Err(Untrusted::KeyUsage);
    }
    let mut search =
        Search { intermediates, authorities, now: now.seconds(), path: Vec::new(), signatures: 0 };
    search.follow(leaf)
}

struct Search<'a> {
    intermediates: &'a [Certificate],
    authorities: &'a [Authority],
    now: i64,
    /// Places of the intermediates below; none is in a path twice.
    path: Vec<usize>,
    signatures: usize,
}

impl Search<'_> {
    /// From a certificate at the upper end of the path so far.
    fn follow(&mut self, certificate: &Certificate) -> Result<usize, Untrusted> {
        self.valid_now(certificate)?;
        if certificate.scheme.is_none() {
            return Err(Untrusted::Algorithm);
        }
        let mut why = Untrusted::NoIssuer;
        let authorities = self.authorities;
        for (place, authority) in authorities.iter().enumerate() {
            match self.issued(certificate, authority.certificate()) {
                Ok(true) => return Ok(place),
                Ok(false) => {}
                Err(Untrusted::TooCostly) => return Err(Untrusted::TooCostly),
                Err(refusal) => why = refusal,
            }
        }
        let intermediates = self.intermediates;
        for (place, candidate) in intermediates.iter().enumerate() {
            if self.path.contains(&place) {
                continue;
            }
            let found = match self.issued(certificate, candidate) {
                Ok(true) => self.follow_over(place, candidate),
                Ok(false) => continue,
                Err(refusal) => Err(refusal),
            };
            match found {
                Ok(place) => return Ok(place),
                Err(Untrusted::TooCostly) => return Err(Untrusted::TooCostly),
                Err(refusal) => why = refusal,
            }
        }
        Err(why)
    }

    /// From an intermediate that issued the end of the path so far.
    fn follow_over(&mut self, place: usize, intermediate: &Certificate) -> Result<usize, Untrusted> {
        // The authority is one more.
        if self.path.len() + 2 > MAX_CAS {
            return Err(Untrusted::TooLong);
        }
        self.path.push(place);
        let found = self.follow(intermediate);
        self.path.pop();
        found
    }

    /// Whether `issuer` issued the certificate; `false` if its name is not even the issuer's.
    fn issued(&mut self, certificate: &Certificate, issuer: &Certificate) -> Result<bool, Untrusted> {
        if issuer.subject != certificate.issuer {
            return Ok(false);
        }
        if !issuer.is_ca {
            return Err(Untrusted::NotCa);
        }
        if issuer.usage.is_some_and(|usage| !usage.signs_certificates) {
            return Err(Untrusted::MayNotSign);
        }
        if issuer.path_len.is_some_and(|most| usize::try_from(most).is_ok_and(|most| most < self.path.len()))
        {
            return Err(Untrusted::PathLen);
        }
        self.valid_now(issuer)?;
        if self.signatures == MAX_SIGNATURES {
            return Err(Untrusted::TooCostly);
        }
        self.signatures += 1;
        let (Some(scheme), Some(key)) = (certificate.scheme, &issuer.key) else {
            return Err(Untrusted::Algorithm);
        };
        if scheme.verifies(key, &certificate.signed, &certificate.signature) {
            Ok(true)
        } else {
            Err(Untrusted::Signature)
        }
    }

    fn valid_now(&self, certificate: &Certificate) -> Result<(), Untrusted> {
        let (first, last) = certificate.validity;
        if first <= self.now && self.now <= last { Ok(()) } else { Err(Untrusted::NotValidNow) }
    }
}

#[cfg(test)]
mod tests;
