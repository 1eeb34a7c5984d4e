//! The life of a join request. Pure: every pair of decision, expiry and admission has one outcome, by [`decide`] and
//! [`next`].
//!
//! A request that is pending or approved holds one of its token's uses. Its content is frozen: what differs from it is
//! another join. So are its reasons and the nodes that they are about, but what falls away of them is no other join: a
//! request whose incumbent is gone still admits its machine, and an approval against one node never counts against another.

use shared::{
    api::join_requests::{DeferReason, JoinRequestState},
    id::{JoinRequestId, NodeId},
    problem::{Code, Problem, Reason},
    time::Timestamp,
};

/// How long an approval waits for its machine, in seconds (one day).
pub const APPROVAL_SECONDS: i64 = 86_400;
/// The most requests that a token holds open.
pub const MAX_OPEN: i64 = 32;

/// What a person wants of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Admit the machine at its next retry.
    Approve,
    /// Refuse it.
    Deny,
}

/// What a decision makes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is in this state now.
    Becomes(JoinRequestState),
    /// It was decided so before.
    Unchanged,
}

/// A request as decisions are judged by.
#[derive(Clone, Copy, Debug)]
pub struct RequestState {
    /// As stored.
    pub state: JoinRequestState,
    /// When it ends if nothing happens.
    pub expires_at: Timestamp,
    /// Whether a person has decided it.
    pub decided: bool,
}

impl RequestState {
    /// The state at that time: what is open ends by itself.
    #[must_use]
    pub fn at(self, now: Timestamp) -> JoinRequestState {
        if self.state.is_open() && self.expires_at <= now { JoinRequestState::Expired } else { self.state }
    }
}

/// What a decision makes of a request now. The same decision again changes nothing.
///
/// # Errors
/// INVALID_STATE, naming the state and the moves that it allows.
pub fn decide(
    request: RequestState,
    decision: Decision,
    token_revoked: bool,
    now: Timestamp,
) -> Result<Outcome, Problem> {
    use JoinRequestState::{Approved, Consumed, Denied, Expired, Pending};
    match (decision, request.at(now)) {
        (Decision::Approve, Pending) if token_revoked => {
            Err(refusal("Its join token was revoked: nothing can be admitted by it. Mint another token."))
        }
        (Decision::Approve, Pending) => Ok(Outcome::Becomes(Approved)),
        (Decision::Deny, Pending | Approved) => Ok(Outcome::Becomes(Denied)),
        (Decision::Approve, Approved) | (Decision::Deny, Denied) => Ok(Outcome::Unchanged),
        // What was admitted without anybody's decision was never approved.
        (Decision::Approve, Consumed) if request.decided => Ok(Outcome::Unchanged),
        (_, Consumed) => Err(refusal(
            "The join request is consumed: its machine is a node, which can be banned or released.",
        )),
        (Decision::Approve, Denied) => {
            Err(refusal("The join request is denied, which is final; the machine may ask anew (bcd join)."))
        }
        (_, Expired) => {
            Err(refusal("The join request is expired, which is final; the machine may ask anew (bcd join)."))
        }
    }
}

fn refusal(detail: &str) -> Problem {
    Problem::new(Code::InvalidState, detail)
}

/// What an earlier request of the same join says about it now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It waits on.
    Waits,
    /// These reasons ask nobody any more.
    Waived,
    /// It is about something else: judge as if it were not there.
    Other,
}

/// Judges a join by an earlier request of the same token, certificate request and content. It covers what is the same or
/// less: a reason that is not its own, or a node that came since to stand in the way, is for another request.
fn standing(
    request: &Earlier,
    about: About<'_>,
    now_given: &[DeferReason],
    now: Timestamp,
) -> Result<Standing, Problem> {
    let covered = now_given.iter().all(|reason| request.reasons.contains(reason))
        && about.incumbents.iter().all(|node| request.incumbents.contains(node));
    match request.state.at(now) {
        JoinRequestState::Denied => {
            let detail = "A person denied this machine's join request, or its token was revoked.";
            Err(Problem::refused(Reason::RequestDenied, detail))
        }
        JoinRequestState::Expired if covered => {
            let detail = "The join request expired before the machine was admitted; join anew (bcd join).";
            Err(Problem::refused(Reason::RequestExpired, detail))
        }
        JoinRequestState::Approved if covered => Ok(Standing::Waived),
        JoinRequestState::Pending if now_given.is_empty() => Ok(Standing::Waived),
        JoinRequestState::Pending if covered => Ok(Standing::Waits),
        JoinRequestState::Approved
        | JoinRequestState::Pending
        | JoinRequestState::Expired
        | JoinRequestState::Consumed => Ok(Standing::Other),
    }
}

/// An earlier request of the same join.
#[derive(Clone, Debug)]
pub struct Earlier {
    /// Its id.
    pub id: JoinRequestId,
    /// What it is about: SHA-256 over identity and pool.
    pub content_sha256: String,
    /// The endorsement key that was proved.
    pub ek_sha256: Option<String>,
    /// Why a person is asked.
    pub reasons: Vec<DeferReason>,
    /// The nodes that those reasons are about.
    pub incumbents: Vec<NodeId>,
    /// Where it stands.
    pub state: RequestState,
}

/// What a join is about.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// SHA-256 over identity and pool.
    pub content_sha256: &'a str,
    /// The endorsement key that was proved.
    pub ek_sha256: Option<&'a str>,
    /// The nodes that its reasons are about.
    pub incumbents: &'a [NodeId],
}

/// What a join comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is admitted, by the request if there is one, with the use that the request holds.
    Admit(Option<JoinRequestId>),
    /// That request waits on.
    Wait(JoinRequestId),
    /// A person must be asked, by a request of its own.
    Ask,
}

/// What a join with this content and these reasons comes to, after the requests that it made `earlier`: one that admits
/// it counts before one that waits, one that waits before one that was denied, and that before one whose time is over. So
/// the decision about the latest question counts, in whatever order they are given.
///
/// # Errors
/// `requestDenied`, `requestExpired`.
pub fn next(
    earlier: &[Earlier],
    about: About<'_>,
    reasons: &[DeferReason],
    now: Timestamp,
) -> Result<Next, Problem> {
    let (mut waits, mut denied, mut over) = (None, None, None);
    let same = |request: &&Earlier| request.content_sha256 == about.content_sha256;
    for request in earlier.iter().filter(same).filter(|one| one.ek_sha256.as_deref() == about.ek_sha256) {
        match standing(request, about, reasons, now) {
            Ok(Standing::Waived) => return Ok(Next::Admit(Some(request.id.clone()))),
            Ok(Standing::Waits) => waits = Some(Next::Wait(request.id.clone())),
            Ok(Standing::Other) => {}
            Err(refusal) if refusal.reason == Some(Reason::RequestDenied) => denied = Some(refusal),
            Err(refusal) => over = Some(refusal),
        }
    }
    match (waits, denied.or(over)) {
        (Some(waits), _) => Ok(waits),
        (None, Some(refusal)) => Err(refusal),
        (None, None) if reasons.is_empty() => {
            // A key of the TPM that holds the same node key: another one, or the first that it was asked to prove. It may be
            // the one that is listed now.
            let open = |one: &&Earlier| one.state.at(now).is_open();
            let kin = earlier.iter().filter(same).find(|one| about.ek_sha256.is_some() && open(one));
            Ok(Next::Admit(kin.map(|request| request.id.clone())))
        }
        (None, None) => Ok(Next::Ask),
    }
}

/// Whether a token may hold one more request open.
///
/// # Errors
/// `tooManyPending`.
pub fn has_room(pending: i64) -> Result<(), Problem> {
    if pending < MAX_OPEN {
        return Ok(());
    }
    let detail = format!(
        "{MAX_OPEN} join requests of this token wait for a person; decide them (relay join-requests list), or use another token."
    );
    Err(Problem::refused(Reason::TooManyPending, detail).retry_after(300))
}

#[cfg(test)]
mod tests {
    use super::*;
    use JoinRequestState::{Approved, Consumed, Denied, Expired, Pending};

    const NOW: Timestamp = Timestamp::from_seconds(1_000);

    fn request(state: JoinRequestState, decided: bool, ends: i64) -> RequestState {
        RequestState { state, expires_at: Timestamp::from_seconds(ends), decided }
    }

    #[test]
    fn every_pair_of_decision_and_state_has_one_outcome() {
        use Decision::{Approve, Deny};
        let (changed, same) = (|state| Some(Outcome::Becomes(state)), Some(Outcome::Unchanged));
        for (state, decided, ends, approve, deny) in [
            (Pending, false, 1_001, changed(Approved), changed(Denied)),
            (Pending, false, 1_000, None, None),
            (Approved, true, 1_001, same, changed(Denied)),
            (Approved, true, 1_000, None, None),
            (Consumed, true, 0, same, None),
            (Consumed, false, 0, None, None),
            (Denied, true, 0, None, same),
            (Expired, false, 0, None, None),
            (Expired, true, 0, None, None),
        ] {
            let request = request(state, decided, ends);
            assert_eq!(decide(request, Approve, false, NOW).ok(), approve, "{request:?}");
            assert_eq!(decide(request, Deny, false, NOW).ok(), deny, "{request:?}");
        }
        let refused = decide(request(Pending, false, 2_000), Approve, true, NOW).unwrap_err();
        assert_eq!(refused.code, Code::InvalidState);
        assert!(decide(request(Pending, false, 2_000), Deny, true, NOW).is_ok());
    }

    fn asked(seed: u8, state: JoinRequestState, reasons: &[DeferReason], content: &str) -> Earlier {
        Earlier {
            id: JoinRequestId::derive(&[seed; 32]),
            content_sha256: content.into(),
            ek_sha256: None,
            reasons: reasons.to_vec(),
            incumbents: Vec::new(),
            state: request(state, false, 2_000),
        }
    }

    fn about(content_sha256: &str) -> About<'_> {
        About { content_sha256, ek_sha256: None, incumbents: &[] }
    }

    #[test]
    fn a_retry_is_the_request_that_froze_its_reasons_or_another_join() {
        use DeferReason::{IncumbentAlive as Alive, UnknownMachine as Unknown};
        let judged = |state, frozen: &[DeferReason], given: &[DeferReason]| {
            standing(&asked(1, state, frozen, "c"), about("c"), given, NOW).map_err(|problem| problem.reason)
        };
        assert_eq!(judged(Pending, &[Unknown], &[Unknown]), Ok(Standing::Waits));
        assert_eq!(judged(Pending, &[Unknown], &[]), Ok(Standing::Waived), "what it waited for is settled");
        for given in [&[][..], &[Unknown]] {
            assert_eq!(judged(Approved, &[Unknown], given), Ok(Standing::Waived));
            assert_eq!(judged(Expired, &[Unknown], given), Err(Some(Reason::RequestExpired)));
        }
        for state in [Pending, Approved, Expired] {
            assert_eq!(judged(state, &[Unknown], &[Unknown, Alive]), Ok(Standing::Other));
        }
        assert_eq!(judged(Denied, &[Unknown], &[Alive]), Err(Some(Reason::RequestDenied)));
        assert_eq!(judged(Consumed, &[Unknown], &[Unknown]), Ok(Standing::Other));
    }

    #[test]
    fn a_request_is_about_the_nodes_that_stood_in_the_way() {
        use DeferReason::{IdentityDisputed as Disputed, IncumbentAlive as Alive};
        let [x, y] = [1, 2].map(|seed: u8| NodeId::derive(&[seed; 32]));
        for (state, reasons, incumbents, expected) in [
            (Pending, &[Alive][..], &[&x][..], Next::Wait(JoinRequestId::derive(&[1; 32]))),
            (Approved, &[Alive], &[&x], Next::Admit(Some(JoinRequestId::derive(&[1; 32])))),
            // Another node took its place, or came beside it.
            (Pending, &[Alive], &[&y], Next::Ask),
            (Approved, &[Alive], &[&y], Next::Ask),
            (Approved, &[Disputed, Alive], &[&x, &y], Next::Ask),
            (Expired, &[Alive], &[&y], Next::Ask),
            // It is gone: the request admits its machine with the use that it holds.
            (Pending, &[], &[], Next::Admit(Some(JoinRequestId::derive(&[1; 32])))),
            (Approved, &[], &[], Next::Admit(Some(JoinRequestId::derive(&[1; 32])))),
        ] {
            let earlier = Earlier { incumbents: vec![x.clone()], ..asked(1, state, &[Disputed, Alive], "c") };
            let incumbents: Vec<NodeId> = incumbents.iter().map(|node| (*node).clone()).collect();
            let about = About { incumbents: &incumbents, ..about("c") };
            assert_eq!(next(&[earlier], about, reasons, NOW), Ok(expected), "{state:?} {incumbents:?}");
        }
    }

    #[test]
    fn a_request_that_admits_counts_before_one_that_waits_or_is_over() {
        use DeferReason::{IncumbentAlive as Alive, UnknownMachine as Unknown};
        let id = |seed: u8| JoinRequestId::derive(&[seed; 32]);
        let all = [
            asked(1, Expired, &[Unknown], "c"),
            asked(2, Pending, &[Unknown, Alive], "c"),
            asked(3, Approved, &[Unknown], "other"),
        ];
        assert_eq!(next(&all, about("c"), &[Unknown], NOW), Ok(Next::Wait(id(2))));
        assert_eq!(next(&all, about("c"), &[], NOW), Ok(Next::Admit(Some(id(2)))));
        assert_eq!(next(&all, about("other"), &[Unknown], NOW), Ok(Next::Admit(Some(id(3)))));
        assert_eq!(next(&all, about("other"), &[Alive], NOW), Ok(Next::Ask));
        assert_eq!(next(&all, about("new"), &[Alive], NOW), Ok(Next::Ask));
        assert_eq!(next(&all, about("new"), &[], NOW), Ok(Next::Admit(None)));
        let both = [asked(4, Approved, &[Unknown], "c"), asked(5, Pending, &[Unknown, Alive], "c")];
        for order in [[0, 1], [1, 0]] {
            let all = order.map(|at: usize| both[at].clone());
            assert_eq!(next(&all, about("c"), &[Unknown], NOW), Ok(Next::Admit(Some(id(4)))));
            assert_eq!(next(&all, about("c"), &[Unknown, Alive], NOW), Ok(Next::Wait(id(5))));
        }
        // Another endorsement key of a TPM that waits; not a machine that has proved none.
        let mut waiting = asked(6, Pending, &[Unknown], "c");
        waiting.ek_sha256 = Some("one".into());
        let proved = |ek| About { ek_sha256: ek, ..about("c") };
        for (ek, reasons, expected) in [
            (Some("other"), &[][..], Next::Admit(Some(id(6)))),
            (Some("other"), &[Unknown], Next::Ask),
            (Some("one"), &[Unknown], Next::Wait(id(6))),
            (None, &[], Next::Admit(None)),
        ] {
            let next = next(std::slice::from_ref(&waiting), proved(ek), reasons, NOW);
            assert_eq!(next, Ok(expected), "{ek:?} {reasons:?}");
        }
        let over = next(&all[..1], about("c"), &[Unknown], NOW).unwrap_err();
        assert_eq!(over.reason, Some(Reason::RequestExpired));
    }

    #[test]
    fn a_token_holds_a_bounded_number_of_requests_open() {
        assert!(has_room(MAX_OPEN - 1).is_ok());
        let refused = has_room(MAX_OPEN).unwrap_err();
        assert_eq!((refused.reason, refused.code), (Some(Reason::TooManyPending), Code::ResourceExhausted));
    }
}
