//! What to do next so that a machine is on, or off. Pure.
//!
//! A BMC's word that it took a request says nothing; what counts is the power state that is read. What was asked is written down
//! before it is asked ([`Intent`]), and a worker that comes after a crash goes by that: On and ForceOff it may ask again, a
//! shutdown by the system it does not, and a power cycle never.

use crate::metal::facts::{Asked, Intent};
use shared::{
    api::metal::{PowerState, PowerTarget},
    time::Timestamp,
};

/// How long a change may take to be seen, in seconds.
const SETTLE_SECONDS: i64 = 120;
/// How long a system may take to shut down, in seconds; then it is not asked any more.
const SHUTDOWN_SECONDS: i64 = 300;
/// How often On and ForceOff are asked at most.
const MAX_ASKS: u32 = 3;
/// How long it may take that a machine is on, or off, in seconds: a shutdown, and all that follows where nothing comes of it.
pub(crate) const LONGEST_SECONDS: i64 = SHUTDOWN_SECONDS + 5 * SETTLE_SECONDS;
/// How often it is looked while something is waited for, in seconds.
const LOOK_SECONDS: u32 = 5;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// The machine is as it is to be.
    Done,
    /// Write this down, then ask for it.
    Ask(Intent),
    /// Look again in so many seconds.
    Look(u32),
    /// Nothing came of it.
    Failed,
}

/// What to do, by what was read and what was asked before. `graceful` says whether the machine can be asked to shut itself down.
#[must_use]
pub(crate) fn next(
    target: PowerTarget,
    observed: PowerState,
    before: Option<Intent>,
    graceful: bool,
    now: Timestamp,
) -> Next {
    let wanted = if target == PowerTarget::On { PowerState::On } else { PowerState::Off };
    if observed == wanted {
        return Next::Done;
    }
    let first = match target {
        PowerTarget::On => Asked::On,
        PowerTarget::Off if graceful => Asked::GracefulShutdown,
        PowerTarget::Off | PowerTarget::ForceOff => Asked::ForceOff,
    };
    let anew = |asked| Next::Ask(Intent { asked, at: now, since: now, times: 1 });
    let Some(before) = before else { return anew(first) };
    let waited = now.seconds().saturating_sub(before.at.seconds());
    // A clock that was put back would have it wait for ever; two relays' clocks may differ by some seconds.
    let over = |seconds: i64| waited < -SETTLE_SECONDS || waited >= seconds;
    match before.asked {
        Asked::GracefulShutdown if over(SHUTDOWN_SECONDS) => anew(Asked::ForceOff),
        Asked::On | Asked::ForceOff if over(SETTLE_SECONDS) && before.times < MAX_ASKS => {
            Next::Ask(Intent { at: now, times: before.times.saturating_add(1), ..before })
        }
        // On was taken and nothing came of it, three times: some machines need their power taken away first.
        Asked::On if over(SETTLE_SECONDS) => anew(Asked::PowerCycle),
        Asked::ForceOff | Asked::PowerCycle if over(SETTLE_SECONDS) => Next::Failed,
        _ => Next::Look(LOOK_SECONDS),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_seconds(1_780_000_000 + seconds)
    }

    /// Everything that is asked of a machine that never changes, and when.
    fn asked(target: PowerTarget, observed: PowerState, graceful: bool) -> (Vec<(Asked, i64)>, i64) {
        let (mut before, mut all) = (None, Vec::new());
        for second in 0..5_000 {
            match next(target, observed, before, graceful, at(second)) {
                Next::Ask(intent) => {
                    all.push((intent.asked, second));
                    before = Some(intent);
                }
                Next::Look(_) => {}
                Next::Done | Next::Failed => return (all, second),
            }
        }
        panic!("it goes on for ever: {all:?}");
    }

    #[test]
    fn a_machine_that_does_nothing_is_asked_so_often_and_no_more() {
        use Asked::{ForceOff, GracefulShutdown, On, PowerCycle};
        let off = asked(PowerTarget::Off, PowerState::On, true);
        assert_eq!(off.0, [(GracefulShutdown, 0), (ForceOff, 300), (ForceOff, 420), (ForceOff, 540)]);
        assert_eq!(off.1, 660);
        let hard = asked(PowerTarget::ForceOff, PowerState::On, true);
        assert_eq!(hard.0, [(ForceOff, 0), (ForceOff, 120), (ForceOff, 240)]);
        assert_eq!(asked(PowerTarget::Off, PowerState::Unknown, false).0.len(), 3);
        let on = asked(PowerTarget::On, PowerState::Off, true);
        assert_eq!(on.0, [(On, 0), (On, 120), (On, 240), (PowerCycle, 360)], "a cycle once, and last");
        assert_eq!(on.1, 480);
    }

    #[test]
    fn nothing_is_asked_of_a_machine_that_is_as_it_is_to_be() {
        for before in [None, Some(Intent { asked: Asked::PowerCycle, at: at(0), since: at(0), times: 1 })] {
            assert_eq!(next(PowerTarget::On, PowerState::On, before, true, at(9)), Next::Done);
            assert_eq!(next(PowerTarget::Off, PowerState::Off, before, true, at(9)), Next::Done);
            assert_eq!(next(PowerTarget::ForceOff, PowerState::Off, before, true, at(9)), Next::Done);
        }
    }

    #[test]
    fn who_comes_after_a_crash_waits_for_what_was_asked() {
        let crashed = |asked, seconds| {
            let before = Intent { asked, at: at(0), since: at(0), times: 1 };
            next(PowerTarget::On, PowerState::Off, Some(before), true, at(seconds))
        };
        for asked in [Asked::On, Asked::PowerCycle] {
            assert_eq!(crashed(asked, 0), Next::Look(5), "{asked:?}");
            assert_eq!(crashed(asked, 119), Next::Look(5), "{asked:?}");
        }
        assert_eq!(crashed(Asked::PowerCycle, 120), Next::Failed, "it is never sent again");
        assert!(matches!(crashed(Asked::On, 120), Next::Ask(Intent { asked: Asked::On, times: 2, .. })));
    }
}
