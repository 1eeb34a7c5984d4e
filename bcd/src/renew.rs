//! The renewal: when it is due, and one attempt at it.
//!
//! The relay takes the old certificate until the new one was used once, so a lost answer is harmless; the request is kept
//! until it ends, so that a retry is the same renewal.

use crate::{
    failure::{Exit, Failure},
    node::Node,
    proof::{self, Offer},
    state::{Enrolled, State},
};
use shared::{
    api::node::{JoinAnswer, RENEW, RenewInput},
    time::Timestamp,
};

/// Never more often than this, in seconds.
pub const MIN_INTERVAL_SECONDS: i64 = 60;

/// When to renew: between a half and three quarters of the lifetime, at a point that differs from node to node and stays
/// the same over restarts, and not before the relay wants it.
#[must_use]
pub fn due(node: &Enrolled) -> Timestamp {
    let (issued, ends) = (node.issued_at.millis(), node.expires_at.millis());
    let quarter = ends.saturating_sub(issued).max(0) / 4;
    let latest = issued.saturating_add(quarter.saturating_mul(3));
    let earliest = node.renew_after.millis().clamp(issued.saturating_add(quarter.saturating_mul(2)), latest);
    let jitter = (latest - earliest).saturating_mul(i64::from(share(&node.serial))) / 256;
    Timestamp::from_millis(earliest.saturating_add(jitter))
        .max(node.issued_at.plus_seconds(MIN_INTERVAL_SECONDS))
}

/// The last byte of the random serial: 0 to 255.
fn share(serial: &str) -> u8 {
    let digits = serial.get(serial.len().saturating_sub(2)..).unwrap_or_default();
    u8::from_str_radix(digits, 16).unwrap_or(128)
}

/// One attempt. When it answers, the new certificate is written down and is the one that is shown.
///
/// # Errors
/// Refused, or not reached. A final refusal is written down.
pub async fn attempt(node: &mut Node) -> Result<(), Failure> {
    let mut input = RenewInput { csr: prepare(node).await?, tpm: None, proof: None };
    let mut offer: Option<Offer> = None;
    // The first round offers nothing: with the key that it has, a node is taken as it is.
    for _ in 0..=proof::MAX_CHALLENGES + 1 {
        let challenge = match node.client.call(&RENEW, &input, None).await {
            Ok(JoinAnswer::Issued(issued)) => return node.admit(issued),
            Ok(JoinAnswer::Challenge(challenge)) => Some(challenge),
            Ok(JoinAnswer::Deferred(_)) => {
                return Err(Failure::new(Exit::Transient, "the relay defers a renewal, which no relay does"));
            }
            Err(error) => {
                let failure = Failure::of_call(&error, true);
                if offer.is_some() || !asks_for_proof(node, &failure) {
                    node.finish(&failure)?;
                    return Err(failure);
                }
                None
            }
        };
        match (&offer, challenge) {
            (Some(offer), Some(challenge)) => input.proof = Some(offer.prove(challenge).await?),
            _ => {
                let made = proof::offer(node).await?.ok_or_else(proof::nothing_offered)?;
                input.tpm = Some(made.tpm.clone());
                offer = Some(made);
            }
        }
    }
    Err(proof::without_end())
}

/// Whether the relay wants to see the TPM, and there is one.
fn asks_for_proof(node: &Node, failure: &Failure) -> bool {
    failure.exit == Exit::Tpm && failure.code.is_some() && node.key().is_ok_and(|key| key.in_tpm().is_some())
}

async fn prepare(node: &mut Node) -> Result<String, Failure> {
    let State::Enrolled(enrolled) = &node.stored.state else {
        return Err(Failure::new(Exit::Transient, "there is no certificate to renew"));
    };
    if let Some(csr) = &enrolled.renewal_csr {
        return Ok(csr.clone());
    }
    let csr = proof::request(node).await?;
    let enrolled = Enrolled { renewal_csr: Some(csr.clone()), ..enrolled.clone() };
    node.save(State::Enrolled(enrolled))?;
    Ok(csr)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::tests::enrolled;

    fn node(serial: &str, renew_after: i64, ends: i64) -> Enrolled {
        Enrolled {
            serial: serial.into(),
            issued_at: Timestamp::from_seconds(0),
            renew_after: Timestamp::from_seconds(renew_after),
            expires_at: Timestamp::from_seconds(ends),
            ..enrolled()
        }
    }

    #[test]
    fn it_lies_between_a_half_and_three_quarters_and_differs_between_nodes() {
        let at = |serial: &str| due(&node(serial, 500, 1000)).seconds();
        assert_eq!(at("ab00"), 500);
        assert_eq!(at("ab80"), 625);
        assert_eq!(at("abff"), 749);
        for byte in 0..=255u8 {
            assert!((500..=750).contains(&at(&format!("{byte:02x}"))));
        }
    }

    #[test]
    fn what_the_relay_wants_counts_within_those_bounds_only() {
        for (renew_after, from) in [(600, 600), (0, 500), (-5, 500), (990, 750), (i64::MAX / 2000, 750)] {
            assert_eq!(due(&node("00", renew_after, 1000)).seconds(), from, "{renew_after}");
        }
    }

    #[test]
    fn a_short_or_senseless_lifetime_makes_no_loop() {
        for ends in [10, 0, -1000] {
            assert_eq!(due(&node("ff", 5, ends)).seconds(), MIN_INTERVAL_SECONDS, "{ends}");
        }
    }
}
