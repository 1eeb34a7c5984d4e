//! Workflows: what a machine goes through in each transient state, step by step. Pure.

pub(super) mod power;

use shared::api::metal::MetalState;

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Reads what the BMC and its machine are.
    Identify,
    /// Reads what is in the machine.
    Inspect,
    /// Takes out an image, and lets the machine start from where it does by itself.
    Clear,
    /// Off, by the system if it does so in time.
    PowerOff,
}

impl Step {
    /// Every step.
    const ALL: [Self; 4] = [Self::Identify, Self::Inspect, Self::Clear, Self::PowerOff];

    /// As the view and the store say it.
    #[must_use]
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Identify => "identify",
            Self::Inspect => "inspect",
            Self::Clear => "clear",
            Self::PowerOff => "powerOff",
        }
    }

    /// How long it may take, in seconds, its attempts and waits included.
    #[must_use]
    pub(super) const fn seconds(self) -> i64 {
        match self {
            Self::Identify | Self::Inspect | Self::Clear => 900,
            Self::PowerOff => power::SHUTDOWN_SECONDS + 5 * power::SETTLE_SECONDS,
        }
    }
}

/// The steps of a transient state, in order; none of any other.
#[must_use]
pub(super) const fn steps(state: MetalState) -> &'static [Step] {
    match state {
        MetalState::Enrolling => &[Step::Identify],
        MetalState::Inspecting => &[Step::Identify, Step::Inspect],
        MetalState::Retiring => &[Step::Clear, Step::PowerOff],
        _ => &[],
    }
}

/// The step that a machine in this state is at, by the name that the store has; the first where it has none.
#[must_use]
pub(super) fn at(state: MetalState, stored: Option<&str>) -> Option<Step> {
    let steps = steps(state);
    match stored {
        None => steps.first().copied(),
        Some(name) => Step::ALL.into_iter().find(|step| step.as_str() == name && steps.contains(step)),
    }
}

/// The step after this one; `None` after the last.
#[must_use]
pub(super) fn after(state: MetalState, step: Step) -> Option<Step> {
    let mut rest = steps(state).iter().skip_while(|it| **it != step);
    rest.nth(1).copied()
}

/// The wait before the next attempt at a step, in seconds: it doubles from five seconds up to two minutes.
#[must_use]
pub(super) fn wait_seconds(attempt: i64) -> u32 {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(0).min(5);
    (5_u32 << doublings).min(120)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workflow_goes_from_its_first_step_to_its_last() {
        for state in MetalState::ALL {
            let mut step = at(state, None);
            let mut gone = Vec::new();
            while let Some(here) = step {
                assert_eq!(at(state, Some(here.as_str())), Some(here));
                gone.push(here);
                step = after(state, here);
            }
            assert_eq!(gone, steps(state));
        }
        assert_eq!(at(MetalState::Enrolling, Some("inspect")), None, "a step of another workflow");
        assert_eq!((1..=8).map(wait_seconds).collect::<Vec<_>>(), [5, 10, 20, 40, 80, 120, 120, 120]);
    }
}
