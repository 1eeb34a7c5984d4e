//! Workflows: what a machine goes through in each transient state, step by step. Pure.
//!
//! Which steps those are follows from the state and from what does not change as long as it lasts ([`Plan`]); so whoever goes on with
//! a machine finds the same steps as whoever began, and the name of a step says where in them it is: none has a name twice.

pub(crate) mod power;

use super::facts::{Machine, Options};
use shared::api::metal::{MetalState, PowerTarget, WaitingFor};

/// A step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Reads what the BMC and its machine are.
    Identify,
    /// Reads what is in the machine.
    Inspect,
    /// Ends the certificate of the machine's node.
    Revoke,
    /// Off, before anything else.
    PowerOff,
    /// Takes out what is inserted, and lets the machine start from where it does by itself.
    Eject,
    /// Inserts the agent's image.
    Insert,
    /// Lets the machine start from that, once.
    BootMedia,
    /// On, from that.
    PowerOn,
    /// The agent joins.
    AwaitAgent,
    /// The agent looks the machine over.
    Hardware,
    /// The agent takes partition tables and signatures from all disks.
    Wipe,
    /// The agent erases all disks.
    Erase,
    /// The agent burns the machine in.
    BurnIn,
    /// The agent writes an image.
    Write,
    /// The agent puts what the installed bcd joins by in its place.
    Credential,
    /// The agent lets somebody in.
    Rescue,
    /// Off, after the agent's work.
    ShutDown,
    /// As [`Step::Eject`], after that.
    Clear,
    /// On, from the disk.
    StartSystem,
    /// The installed bcd joins.
    AwaitDaemon,
}

impl Step {
    /// Every step.
    const ALL: [Self; 20] = [
        Self::Identify,
        Self::Inspect,
        Self::Revoke,
        Self::PowerOff,
        Self::Eject,
        Self::Insert,
        Self::BootMedia,
        Self::PowerOn,
        Self::AwaitAgent,
        Self::Hardware,
        Self::Wipe,
        Self::Erase,
        Self::BurnIn,
        Self::Write,
        Self::Credential,
        Self::Rescue,
        Self::ShutDown,
        Self::Clear,
        Self::StartSystem,
        Self::AwaitDaemon,
    ];

    /// As the view and the store say it.
    #[must_use]
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Identify => "identify",
            Self::Inspect => "inspect",
            Self::Revoke => "revoke",
            Self::PowerOff => "powerOff",
            Self::Eject => "eject",
            Self::Insert => "insertMedia",
            Self::BootMedia => "bootMedia",
            Self::PowerOn => "powerOn",
            Self::AwaitAgent => "awaitAgent",
            Self::Hardware => "hardware",
            Self::Wipe => "wipe",
            Self::Erase => "erase",
            Self::BurnIn => "burnIn",
            Self::Write => "writeImage",
            Self::Credential => "placeCredential",
            Self::Rescue => "openRescue",
            Self::ShutDown => "shutDown",
            Self::Clear => "clear",
            Self::StartSystem => "startSystem",
            Self::AwaitDaemon => "awaitDaemon",
        }
    }

    /// How long it may take, in seconds, its attempts and waits included.
    #[must_use]
    pub(crate) const fn seconds(self) -> i64 {
        match self {
            Self::Identify | Self::Inspect | Self::Eject | Self::Insert | Self::BootMedia | Self::Clear => {
                900
            }
            Self::PowerOff | Self::PowerOn | Self::ShutDown | Self::StartSystem => power::LONGEST_SECONDS,
            Self::AwaitAgent | Self::AwaitDaemon => 1_800,
            Self::Revoke | Self::Hardware | Self::Wipe | Self::Credential | Self::Rescue => 600,
            Self::BurnIn | Self::Erase => 86_400,
            Self::Write => 14_400,
        }
    }

    /// What it waits for.
    #[must_use]
    pub(crate) const fn waits_for(self) -> Option<WaitingFor> {
        match self {
            Self::Revoke => None,
            Self::AwaitDaemon => Some(WaitingFor::Daemon),
            _ if self.is_agents() => Some(WaitingFor::Agent),
            _ => Some(WaitingFor::Bmc),
        }
    }

    /// Whether the agent does it, or is waited for.
    const fn is_agents(self) -> bool {
        matches!(self, Self::AwaitAgent) || self.is_agents_work()
    }

    /// Whether the agent does it.
    #[must_use]
    pub(crate) const fn is_agents_work(self) -> bool {
        matches!(
            self,
            Self::Hardware
                | Self::Wipe
                | Self::Erase
                | Self::BurnIn
                | Self::Write
                | Self::Credential
                | Self::Rescue
        )
    }

    /// What the machine is switched to, in this state.
    #[must_use]
    pub(crate) const fn target(self, state: MetalState) -> Option<PowerTarget> {
        match self {
            Self::PowerOn | Self::StartSystem => Some(PowerTarget::On),
            // Where a system goes on later, it is asked to shut itself down.
            Self::PowerOff => Some(match state {
                MetalState::Rescuing | MetalState::Unrescuing | MetalState::Retiring => PowerTarget::Off,
                _ => PowerTarget::ForceOff,
            }),
            Self::ShutDown => Some(if matches!(state, MetalState::Deploying) {
                PowerTarget::Off
            } else {
                PowerTarget::ForceOff
            }),
            _ => None,
        }
    }
}

/// What a workflow's steps follow from, beside its state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// An inspection with the agent.
    pub(crate) in_band: bool,
    /// A deployment that wipes all disks first.
    pub(crate) wipes: bool,
    /// Somebody's data may be on the disks.
    pub(crate) tainted: bool,
    /// Its enrollment failed: the BMC may be another machine's.
    pub(crate) unproven: bool,
}

impl Plan {
    /// The plan of a machine's workflow.
    #[must_use]
    pub(crate) fn of(machine: &Machine) -> Self {
        Self {
            in_band: machine.options == Options::InBand,
            wipes: matches!(machine.options, Options::Deploy { wipe: true, .. }),
            tainted: machine.tainted,
            unproven: machine.began_from == MetalState::EnrollFailed,
        }
    }
}

/// Off, and on with the agent.
const START_AGENT: [Step; 6] =
    [Step::PowerOff, Step::Eject, Step::Insert, Step::BootMedia, Step::PowerOn, Step::AwaitAgent];

/// The steps of a transient state, in order; none of any other.
#[must_use]
pub(crate) fn steps(state: MetalState, plan: Plan) -> Vec<Step> {
    use Step as S;
    let with_agent = |before: &[Step], after: &[Step]| [before, &START_AGENT, after].concat();
    match state {
        MetalState::Enrolling => vec![S::Identify],
        MetalState::Inspecting if plan.in_band => {
            with_agent(&[S::Identify, S::Inspect], &[S::Hardware, S::ShutDown, S::Clear])
        }
        MetalState::Inspecting => vec![S::Identify, S::Inspect],
        MetalState::Commissioning => {
            let clean = if plan.tainted { S::Erase } else { S::Wipe };
            with_agent(&[], &[S::Hardware, clean, S::BurnIn, S::ShutDown, S::Clear])
        }
        MetalState::Deploying => {
            let wipe: &[Step] = if plan.wipes { &[S::Wipe] } else { &[] };
            let rest =
                [S::Write, S::Credential, S::ShutDown, S::Clear, S::StartSystem, S::AwaitDaemon].as_slice();
            with_agent(&[S::Revoke], &[wipe, rest].concat())
        }
        MetalState::Rescuing => with_agent(&[], &[S::Rescue]),
        MetalState::Unrescuing => vec![S::PowerOff, S::Clear, S::StartSystem],
        MetalState::Releasing => with_agent(&[S::Revoke], &[S::Erase, S::ShutDown, S::Clear]),
        // Whose BMC it is was never found out: nothing is asked of it.
        MetalState::Retiring if plan.unproven => vec![S::Revoke],
        MetalState::Retiring => vec![S::Clear, S::PowerOff],
        _ => Vec::new(),
    }
}

/// Whether a workflow starts the agent, which takes virtual media.
#[must_use]
pub(crate) fn starts_agent(state: MetalState, plan: Plan) -> bool {
    steps(state, plan).contains(&Step::Insert)
}

/// The step that a machine is at, by the name that the store has; the first where it has none.
#[must_use]
pub(crate) fn at(machine: &Machine) -> Option<Step> {
    stored(machine.state, Plan::of(machine), machine.step.as_deref())
}

fn stored(state: MetalState, plan: Plan, name: Option<&str>) -> Option<Step> {
    let steps = steps(state, plan);
    match name {
        None => steps.first().copied(),
        Some(name) => Step::ALL.into_iter().find(|step| step.as_str() == name && steps.contains(step)),
    }
}

/// The step after this one; `None` after the last.
#[must_use]
pub(crate) fn after(state: MetalState, plan: Plan, step: Step) -> Option<Step> {
    steps(state, plan).into_iter().skip_while(|it| *it != step).nth(1)
}

/// The wait before the next attempt at a step, in seconds: it doubles from five seconds up to two minutes. `jitter` is random, so
/// that what failed together is not tried together.
#[must_use]
pub(crate) fn wait_seconds(attempt: i64, jitter: u8) -> u32 {
    let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(0).min(5);
    let whole = (5_u32 << doublings).min(120);
    whole - whole / 4 * u32::from(jitter) / 255
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    fn plans() -> impl Iterator<Item = Plan> {
        (0..16).map(|bits| Plan {
            in_band: bits & 1 > 0,
            wipes: bits & 2 > 0,
            tainted: bits & 4 > 0,
            unproven: bits & 8 > 0,
        })
    }

    #[test]
    fn a_workflow_goes_from_its_first_step_to_its_last() {
        let mut seen = Vec::new();
        for (state, plan) in
            MetalState::ALL.into_iter().flat_map(|state| plans().map(move |plan| (state, plan)))
        {
            let mut step = stored(state, plan, None);
            let mut gone = Vec::new();
            while let Some(here) = step {
                assert_eq!(stored(state, plan, Some(here.as_str())), Some(here));
                gone.push(here);
                step = after(state, plan, here);
            }
            assert_eq!(gone, steps(state, plan), "{}: no step is in it twice", state.as_str());
            seen.extend(gone);
        }
        assert!(Step::ALL.iter().all(|step| seen.contains(step)), "each step is one of a workflow");
        let names: HashSet<&str> = Step::ALL.iter().map(|step| step.as_str()).collect();
        assert_eq!(names.len(), Step::ALL.len());
        assert_eq!(
            stored(MetalState::Enrolling, Plan::default(), Some("inspect")),
            None,
            "another workflow's"
        );
    }

    #[test]
    fn nothing_that_somebody_had_becomes_available_unerased() {
        for plan in plans() {
            assert!(steps(MetalState::Releasing, plan).contains(&Step::Erase));
            let tainted = Plan { tainted: true, ..plan };
            assert!(steps(MetalState::Commissioning, tainted).contains(&Step::Erase));
        }
    }

    #[test]
    fn the_media_change_while_the_machine_is_off() {
        for (state, plan) in
            MetalState::ALL.into_iter().flat_map(|state| plans().map(move |plan| (state, plan)))
        {
            let mut is_off = state == MetalState::Retiring;
            for step in steps(state, plan) {
                match step {
                    Step::PowerOff | Step::ShutDown => is_off = true,
                    Step::PowerOn | Step::StartSystem => is_off = false,
                    Step::Eject | Step::Insert | Step::BootMedia | Step::Clear => {
                        assert!(is_off, "{} {step:?}", state.as_str());
                    }
                    _ => {}
                }
            }
        }
    }

    #[test]
    fn waits_double_up_to_two_minutes() {
        assert_eq!(
            (1..=8).map(|at| wait_seconds(at, 0)).collect::<Vec<_>>(),
            [5, 10, 20, 40, 80, 120, 120, 120]
        );
        assert_eq!((wait_seconds(1, 255), wait_seconds(9, 255)), (4, 90));
    }
}
