//! The attestor of TPMs: what it means for a pool that a machine has proved an endorsement key, or has none.
//!
//! That an authority vouches for a key says "a genuine TPM", not "one of ours": it admits alone only where the policy
//! says so. Lists are of public keys, never of certificates.

use super::Verdict;
use shared::{
    api::{
        join_requests::DeferReason,
        pools::{Policy, TpmMode, UnknownKeys},
    },
    problem::{Problem, Reason},
};

/// What is known of a proven endorsement key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endorsement {
    /// The token is pinned to it.
    pub pinned: bool,
    /// It is on the pool's list.
    pub listed: bool,
    /// Its certificate leads to one of the pool's authorities.
    pub endorsed: bool,
}

/// Judges a machine by the endorsement key that it has proved, if it has.
#[must_use]
pub fn judge(policy: &Policy, proven: Option<Endorsement>) -> Verdict {
    match (policy.attestors.tpm, proven) {
        (TpmMode::Required, None) => Verdict::Refuse(Box::new(required("The pool's policy"))),
        (_, None) => Verdict::Admit,
        (TpmMode::Off, Some(_)) => Verdict::Admit,
        (_, Some(key)) => {
            let known = key.pinned || key.listed || (key.endorsed && policy.tpm.authority_admits);
            if known || policy.unknown_endorsement_keys == UnknownKeys::Accept {
                Verdict::Admit
            } else {
                Verdict::defer(DeferReason::UnknownEndorsementKey)
            }
        }
    }
}

/// `tpmRequired`; `who` asks for it.
#[must_use]
pub fn required(who: &str) -> Problem {
    let detail = format!(
        "{who} demands a TPM, and the machine offers none: see `bcd identity`, and its settings tpm and tcti."
    );
    Problem::refused(Reason::TpmRequired, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::api::pools::{Attestors, TpmPolicy};

    #[test]
    fn every_policy_on_every_kind_of_key() {
        let none = Endorsement::default();
        let (pinned, listed) = (Endorsement { pinned: true, ..none }, Endorsement { listed: true, ..none });
        let endorsed = Endorsement { endorsed: true, ..none };
        let wait = || Verdict::defer(DeferReason::UnknownEndorsementKey);
        for (key, plain, authority_admits, accept) in [
            (pinned, Verdict::Admit, Verdict::Admit, Verdict::Admit),
            (listed, Verdict::Admit, Verdict::Admit, Verdict::Admit),
            (endorsed, wait(), Verdict::Admit, Verdict::Admit),
            (none, wait(), wait(), Verdict::Admit),
        ] {
            for tpm in [TpmMode::Optional, TpmMode::Required] {
                let attestors = Attestors { tpm, ..Attestors::default() };
                let policy = Policy { attestors, ..Policy::default() };
                assert_eq!(judge(&policy, Some(key)), plain, "{tpm:?} {key:?}");
                let admitting = Policy { tpm: TpmPolicy { authority_admits: true }, ..policy.clone() };
                assert_eq!(judge(&admitting, Some(key)), authority_admits, "{tpm:?} {key:?}");
                let accepting = Policy { unknown_endorsement_keys: UnknownKeys::Accept, ..policy };
                assert_eq!(judge(&accepting, Some(key)), accept, "{tpm:?} {key:?}");
            }
        }
    }

    #[test]
    fn a_machine_without_a_tpm_goes_on_unless_one_is_demanded() {
        for (tpm, refused) in [(TpmMode::Off, false), (TpmMode::Optional, false), (TpmMode::Required, true)] {
            let policy = Policy { attestors: Attestors { tpm, ..Attestors::default() }, ..Policy::default() };
            let reason = judge(&policy, None).reasons().err().and_then(|problem| problem.reason);
            assert_eq!(reason, refused.then_some(Reason::TpmRequired), "{tpm:?}");
        }
    }
}
