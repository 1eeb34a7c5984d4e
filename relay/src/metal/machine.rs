//! The provision states' one table: which verb is legal from which state, through which transient state it leads, and where.
//! Pure.
//!
//! Whoever asks whether a move is legal asks [`judge`]; the reference page prints [`TABLE`].

use shared::api::metal::{
    MetalState::{self, *},
    MetalVerb, StatePhase,
};

/// What a verb was asked with, where that makes another move of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum With {
    /// Nothing.
    #[default]
    Nothing,
    /// `exit: true`, of a rescue.
    Exit,
    /// `rebuild: true`, of a deployment.
    Rebuild,
    /// `rotate: true`, of credentials.
    Rotate,
}

impl With {
    /// As the table prints it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Nothing => "",
            Self::Exit => "exit",
            Self::Rebuild => "rebuild",
            Self::Rotate => "rotate",
        }
    }
}

/// What becomes of a machine by a verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// A workflow begins in the first state, and ends in the second if all goes well.
    Workflow(MetalState, MetalState),
    /// The workflow that is at the machine ends at its next step's boundary, as a failed one.
    Abort,
    /// The state stays.
    Stay,
}

/// A row: from these states, this verb makes this move.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The verb.
    pub verb: MetalVerb,
    /// What it must be asked with.
    pub with: With,
    /// The states that it is legal from.
    pub from: &'static [MetalState],
    /// What comes of it.
    pub then: Move,
}

const fn row(verb: MetalVerb, with: With, from: &'static [MetalState], then: Move) -> Row {
    Row { verb, with, from, then }
}

/// Every legal move. Enroll is also legal for a machine that is not there yet.
#[rustfmt::skip]
pub const TABLE: &[Row] = {
    use MetalVerb as V;
    use Move::{Abort, Stay, Workflow};
    use With::{Exit, Nothing, Rebuild, Rotate};
    &[
        row(V::Enroll, Nothing, &[EnrollFailed], Workflow(Enrolling, Enrolled)),
        row(V::Inspect, Nothing, &[Enrolled, Inspected, InspectFailed], Workflow(Inspecting, Inspected)),
        // What was wiped stays so while somebody looks at it.
        row(V::Inspect, Nothing, &[Available], Workflow(Inspecting, Available)),
        row(V::Commission, Nothing, &[Inspected, Available, CommissionFailed, ReleaseFailed], Workflow(Commissioning, Available)),
        row(V::Deploy, Nothing, &[Available, DeployFailed], Workflow(Deploying, Deployed)),
        row(V::Deploy, Rebuild, &[Available, DeployFailed, Deployed], Workflow(Deploying, Deployed)),
        row(V::Rescue, Nothing, &[Deployed, RescueFailed, UnrescueFailed], Workflow(Rescuing, Rescued)),
        row(V::Rescue, Exit, &[Rescued, RescueFailed, UnrescueFailed], Workflow(Unrescuing, Deployed)),
        row(V::Release, Nothing, &[Deployed, Rescued, DeployFailed, RescueFailed, UnrescueFailed, ReleaseFailed], Workflow(Releasing, Available)),
        row(V::Retire, Nothing, &[Enrolled, Inspected, Available, EnrollFailed, InspectFailed, CommissionFailed, ReleaseFailed, RetireFailed], Workflow(Retiring, Retired)),
        row(V::Abort, Nothing, &[Enrolling, Inspecting, Commissioning, Deploying, Rescuing, Unrescuing, Releasing, Retiring], Abort),
        row(V::SetCredentials, Nothing, &[Enrolling, EnrollFailed, Enrolled, Inspecting, InspectFailed, Inspected, Commissioning, CommissionFailed, Available, Deploying, DeployFailed, Deployed, Rescuing, RescueFailed, Rescued, Unrescuing, UnrescueFailed, Releasing, ReleaseFailed, Retiring, RetireFailed], Stay),
        // One of the two passwords is in doubt meanwhile, so no workflow is at the machine.
        row(V::SetCredentials, Rotate, &[EnrollFailed, Enrolled, InspectFailed, Inspected, CommissionFailed, Available, DeployFailed, Deployed, RescueFailed, Rescued, UnrescueFailed, ReleaseFailed, RetireFailed], Stay),
        row(V::Power, Nothing, &[EnrollFailed, Enrolled, InspectFailed, Inspected, CommissionFailed, Available, DeployFailed, Deployed, RescueFailed, Rescued, UnrescueFailed, ReleaseFailed, RetireFailed], Stay),
    ]
};

/// What becomes of a machine in this state by this verb; `None` where that is no legal move.
#[must_use]
pub fn judge(state: MetalState, verb: MetalVerb, with: With) -> Option<Move> {
    let legal = |row: &&Row| row.verb == verb && row.with == with && row.from.contains(&state);
    TABLE.iter().find(legal).map(|row| row.then)
}

/// The verbs that are legal from this state, with whatever they must be asked with.
#[must_use]
pub fn allowed(state: MetalState) -> Vec<MetalVerb> {
    let legal = |verb: &MetalVerb| TABLE.iter().any(|row| row.verb == *verb && row.from.contains(&state));
    MetalVerb::ALL.into_iter().filter(legal).collect()
}

/// Where a workflow of this state ends if all goes well; `back` is where it began. `None` if it is no transient state.
#[must_use]
pub fn end(state: MetalState, back: MetalState) -> Option<MetalState> {
    let of = |row: &&Row| matches!(row.then, Move::Workflow(through, _) if through == state);
    let rows = || TABLE.iter().filter(of);
    let row = rows().find(|row| row.from.contains(&back)).or_else(|| rows().next())?;
    match row.then {
        Move::Workflow(_, end) if state.phase() == StatePhase::Transient => Some(end),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// metal.md's own table, in another form: from each state, the verbs, and where they lead.
    const EXPECTED: &[(MetalState, &str)] = &[
        (Enrolling, "abort setCredentials"),
        (EnrollFailed, "enroll>enrolled retire>retired setCredentials setCredentials+rotate power"),
        (Enrolled, "inspect>inspected retire>retired setCredentials setCredentials+rotate power"),
        (Inspecting, "abort setCredentials"),
        (InspectFailed, "inspect>inspected retire>retired setCredentials setCredentials+rotate power"),
        (
            Inspected,
            "inspect>inspected commission>available retire>retired setCredentials setCredentials+rotate power",
        ),
        (Commissioning, "abort setCredentials"),
        (CommissionFailed, "commission>available retire>retired setCredentials setCredentials+rotate power"),
        (
            Available,
            "inspect>available commission>available deploy>deployed deploy+rebuild>deployed retire>retired setCredentials setCredentials+rotate power",
        ),
        (Deploying, "abort setCredentials"),
        (
            DeployFailed,
            "deploy>deployed deploy+rebuild>deployed release>available setCredentials setCredentials+rotate power",
        ),
        (
            Deployed,
            "deploy+rebuild>deployed rescue>rescued release>available setCredentials setCredentials+rotate power",
        ),
        (Rescuing, "abort setCredentials"),
        (
            RescueFailed,
            "rescue>rescued rescue+exit>deployed release>available setCredentials setCredentials+rotate power",
        ),
        (Rescued, "rescue+exit>deployed release>available setCredentials setCredentials+rotate power"),
        (Unrescuing, "abort setCredentials"),
        (
            UnrescueFailed,
            "rescue>rescued rescue+exit>deployed release>available setCredentials setCredentials+rotate power",
        ),
        (Releasing, "abort setCredentials"),
        (
            ReleaseFailed,
            "commission>available release>available retire>retired setCredentials setCredentials+rotate power",
        ),
        (Retiring, "abort setCredentials"),
        (RetireFailed, "retire>retired setCredentials setCredentials+rotate power"),
        (Retired, ""),
    ];

    #[test]
    fn every_verb_from_every_state_is_as_the_design_has_it() {
        let expected: BTreeMap<&str, &str> =
            EXPECTED.iter().map(|(state, verbs)| (state.as_str(), *verbs)).collect();
        assert_eq!(expected.len(), MetalState::ALL.len());
        for state in MetalState::ALL {
            let mut found = Vec::new();
            for verb in MetalVerb::ALL {
                for with in [With::Nothing, With::Rebuild, With::Exit, With::Rotate] {
                    let Some(then) = judge(state, verb, with) else { continue };
                    let with =
                        if with == With::Nothing { String::new() } else { format!("+{}", with.as_str()) };
                    let end = match then {
                        Move::Workflow(_, end) => format!(">{}", end.as_str()),
                        Move::Abort | Move::Stay => String::new(),
                    };
                    found.push(format!("{}{with}{end}", verb.as_str()));
                }
            }
            assert_eq!(found.join(" "), expected[state.as_str()], "{}", state.as_str());
        }
    }

    #[test]
    fn a_workflow_goes_through_a_transient_state_and_ends_where_its_verb_says() {
        for row in TABLE {
            if let Move::Workflow(through, ends) = row.then {
                assert_eq!(through.phase(), StatePhase::Transient, "{row:?}");
                assert_eq!(ends.phase(), StatePhase::Stable, "{row:?}");
                assert!(row.from.iter().all(|from| from.phase() != StatePhase::Transient), "{row:?}");
                for from in row.from {
                    assert_eq!(end(through, *from), Some(ends), "{row:?}");
                }
                assert_eq!(through.failed().map(MetalState::phase), Some(StatePhase::Failed), "{row:?}");
                // A workflow that failed can be begun again.
                let failed = through.failed().unwrap();
                assert!(
                    TABLE.iter().any(|again| again.from.contains(&failed) && again.then == row.then)
                        || ends == Available
                );
            }
        }
        assert_eq!(end(Enrolled, Enrolled), None);
        assert_eq!(end(Enrolling, Enrolling), Some(Enrolled), "a machine that was not there before");
    }

    #[test]
    fn nothing_becomes_available_from_a_tenants_hands_but_through_releasing_or_commissioning() {
        for row in TABLE.iter().filter(|row| matches!(row.then, Move::Workflow(_, Available))) {
            let Move::Workflow(through, _) = row.then else { unreachable!() };
            let erased = matches!(through, Releasing | Commissioning);
            assert!(erased || row.from == [Available], "{row:?}");
        }
        for state in [Deployed, DeployFailed, Rescued, RescueFailed, UnrescueFailed] {
            assert!(judge(state, MetalVerb::Retire, With::Nothing).is_none(), "{}", state.as_str());
        }
    }
}
