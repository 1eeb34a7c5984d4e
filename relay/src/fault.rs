//! What a handler fails with: a problem for the caller, or a fault of ours that the caller learns nothing of.

use crate::store::{StoreError, StoreFault};
use shared::problem::{Code, Problem};
use std::error::Error;

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The caller is told.
    #[error("{0}")]
    Problem(Box<Problem>),
    /// The store failed.
    #[error("the store failed")]
    Store(#[from] StoreError),
    /// Something of ours failed that must not.
    #[error("{operation} failed")]
    Internal {
        /// What was being done.
        operation: &'static str,
        /// Why it failed.
        source: Box<dyn Error + Send + Sync>,
    },
}

impl Fault {
    /// Wraps a fault of ours with the operation that it stopped.
    pub fn internal<E: Into<Box<dyn Error + Send + Sync>>>(
        operation: &'static str,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Internal { operation, source: source.into() }
    }

    /// The problem that the caller is told. Faults of ours are logged here, once, with their whole chain.
    #[must_use]
    pub fn into_problem(self, method: &str, request_id: &str) -> Problem {
        match self {
            Self::Problem(problem) => *problem,
            Self::Store(error) if error.is_transient() => {
                tracing::warn!(method, request_id, error = chain(&error), "the store is not available");
                let detail = match error {
                    StoreError::OutcomeUnknown(_) => {
                        "The relay's store failed while it kept a change, so whether it did isn't known. \
                         Try again: every call may be sent again as it is."
                    }
                    _ => "The relay's store is not available now; nothing was changed. Try again.",
                };
                Problem::new(Code::Unavailable, detail).retry_after(2)
            }
            fault => {
                tracing::error!(method, request_id, error = chain(&fault), "a call failed");
                let detail = format!("The relay failed; its log says why under request {request_id}.");
                Problem::new(Code::Internal, detail)
            }
        }
    }
}

impl From<Problem> for Fault {
    fn from(problem: Problem) -> Self {
        Self::Problem(Box::new(problem))
    }
}

impl StoreFault for Fault {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Problem(_) | Self::Internal { .. } => None,
        }
    }
}

/// An error and its sources, in one line; a source that a text before it has told is not told again.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let told = source.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        next = source.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("read key: {source}; restore it")]
    struct Telling {
        source: std::io::Error,
    }

    #[test]
    fn a_source_is_told_once() {
        let telling = || Telling { source: std::io::Error::other("no such file") };
        assert_eq!(chain(&telling()), "read key: no such file; restore it");
        let fault = Fault::internal::<Telling>("getting the key")(telling());
        assert_eq!(chain(&fault), "getting the key failed: read key: no such file; restore it");
    }
}
