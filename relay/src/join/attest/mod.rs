//! What attestors say of a join: pure verdicts over loaded facts. One that refuses outweighs all that defer, one that
//! defers all that admit. They know nothing of each other.

pub mod bmc;
pub mod discovery;
pub mod endorsement;
pub mod placeholders;
pub mod token;
pub mod tpm;

use shared::{api::join_requests::DeferReason, problem::Problem};

/// What one attestor says, or all of them together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing speaks against it.
    Admit,
    /// A person must look at it, for these reasons, in order and each once.
    Defer(Vec<DeferReason>),
    /// It can't be.
    Refuse(Box<Problem>),
}

impl Verdict {
    /// A deferral for one reason.
    #[must_use]
    pub fn defer(reason: DeferReason) -> Self {
        Self::Defer(vec![reason])
    }

    /// Both together. Of two refusals the first counts.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (refused @ Self::Refuse(_), _) | (_, refused @ Self::Refuse(_)) => refused,
            (Self::Defer(mut reasons), Self::Defer(more)) => {
                reasons.extend(more);
                reasons.sort();
                reasons.dedup();
                Self::Defer(reasons)
            }
            (deferred @ Self::Defer(_), Self::Admit) | (Self::Admit, deferred) => deferred,
        }
    }

    /// The reasons to ask a person, empty where there is none.
    ///
    /// # Errors
    /// The refusal.
    pub fn reasons(self) -> Result<Vec<DeferReason>, Problem> {
        match self {
            Self::Admit => Ok(Vec::new()),
            Self::Defer(reasons) => Ok(reasons),
            Self::Refuse(problem) => Err(*problem),
        }
    }
}

impl From<Result<(), Problem>> for Verdict {
    fn from(judged: Result<(), Problem>) -> Self {
        judged.map_or_else(|problem| Self::Refuse(Box::new(problem)), |()| Self::Admit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::problem::Reason;

    #[test]
    fn a_refusal_outweighs_a_deferral_and_that_an_admission() {
        use DeferReason::{PlaceholderIdentifiers as P, UnknownMachine as U};
        let refuse = |reason| Verdict::Refuse(Box::new(Problem::refused(reason, "")));
        let no = refuse(Reason::TpmRequired);
        for (one, other, both) in [
            (Verdict::Admit, Verdict::Admit, Verdict::Admit),
            (Verdict::Admit, Verdict::defer(U), Verdict::defer(U)),
            (Verdict::defer(U), Verdict::Admit, Verdict::defer(U)),
            (Verdict::defer(U), Verdict::defer(P), Verdict::Defer(vec![P, U])),
            (Verdict::defer(U), Verdict::defer(U), Verdict::defer(U)),
            (Verdict::defer(U), no.clone(), no.clone()),
            (no.clone(), Verdict::Admit, no.clone()),
            (no.clone(), refuse(Reason::BadProof), no.clone()),
        ] {
            assert_eq!(one.clone().and(other.clone()), both, "{one:?} and {other:?}");
        }
    }
}
