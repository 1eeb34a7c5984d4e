//! The record of calls in the log: every change by an operator and every refusal that is final, each with its request
//! id, so that the id that a person was shown leads to a line. Never a body, a detail, a credential or a name of a
//! caller who did not prove it.
//!
//! What is told to wait (429, 503) is no news, and faults of ours are logged where they become a problem.

use crate::call::Caller;
use shared::{
    api::{Kind, Method},
    problem::{Code, Problem},
    time::Timestamp,
};
use std::sync::{Mutex, PoisonError};

/// The most refusals that are logged in a minute: strangers can cause them. Those beyond are counted.
const MAX_REFUSALS_PER_MINUTE: u32 = 600;

/// Bounds the lines of refusals.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    minute: i64,
    count: u32,
}

/// What became of a line.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// Whether it is logged.
    logged: bool,
    /// How many of an earlier minute were not.
    left_out: u32,
}

impl Refusals {
    fn place(&self, now: Timestamp) -> Place {
        let minute = now.seconds().div_euclid(60);
        let mut window = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let left_out = if window.minute == minute {
            0
        } else {
            let before = std::mem::replace(&mut *window, Window { minute, count: 0 });
            before.count.saturating_sub(MAX_REFUSALS_PER_MINUTE)
        };
        window.count = window.count.saturating_add(1);
        Place { logged: window.count <= MAX_REFUSALS_PER_MINUTE, left_out }
    }

    /// Records a refusal, if it is final.
    pub(super) fn refused(&self, method: &str, request_id: &str, problem: &Problem, now: Timestamp) {
        if !is_final(problem) {
            return;
        }
        let Place { logged, left_out } = self.place(now);
        if left_out > 0 {
            tracing::info!(left_out, "refusals beyond {MAX_REFUSALS_PER_MINUTE} a minute were not logged");
        }
        if logged {
            let reason = problem.reason.map(reason_word);
            tracing::info!(method, request_id, code = problem.code.as_str(), reason, "refused");
        }
    }
}

/// Records a change that somebody made by an API credential.
pub(super) fn changed(method: &Method, request_id: &str, caller: &Caller) {
    if let (Kind::Mutation, Caller::Credential(principal)) = (method.kind, caller) {
        let method = method.name;
        tracing::info!(method, request_id, actor = principal.subject, "changed");
    }
}

fn reason_word(reason: shared::problem::Reason) -> String {
    serde_json::to_value(reason).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}

/// Whether trying the same again is of no use.
fn is_final(problem: &Problem) -> bool {
    !matches!(problem.code, Code::ResourceExhausted | Code::Unavailable | Code::Internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_or_is_logged_elsewhere_is_no_refusal() {
        let finals = Code::ALL.into_iter().filter(|code| is_final(&Problem::new(*code, "x"))).count();
        assert_eq!(finals, Code::ALL.len() - 3);
        assert_eq!(reason_word(shared::problem::Reason::TokenExhausted), "tokenExhausted");
    }

    #[test]
    fn a_flood_is_cut_and_counted() {
        let (refusals, now) = (Refusals::default(), Timestamp::from_seconds(600));
        let logged = (0..700).filter(|_| refusals.place(now).logged).count();
        assert_eq!(logged, 600);
        assert_eq!(refusals.place(now.plus_seconds(60)), Place { logged: true, left_out: 100 });
        assert_eq!(refusals.place(now.plus_seconds(119)), Place { logged: true, left_out: 0 });
        assert_eq!(refusals.place(now.plus_seconds(180)), Place { logged: true, left_out: 0 });
    }
}
