//! How many refusals are recorded: a credential that is refused in a loop must not fill the disk. What is left out is
//! counted, and the next record of that subject says how many there were.

use shared::time::Timestamp;
use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

/// The most records a minute of the refusals of one subject.
const EACH_PER_MINUTE: u32 = 60;
/// The most records a minute of all refusals, at each relay.
const ALL_PER_MINUTE: u32 = 600;
/// The most subjects that are kept apart. Beyond, those that were not refused in this minute are forgotten.
const MAX_SUBJECTS: usize = 10_000;

/// Bounds the records of refusals.
#[derive(Debug, Default)]
pub struct Denials(Mutex<Windows>);

#[derive(Debug, Default)]
struct Windows {
    all: Window,
    each: BTreeMap<String, Window>,
}

/// A minute, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    minute: i64,
    count: u32,
    left_out: i64,
}

impl Window {
    /// Whether one more fits into this minute.
    fn fits(&mut self, minute: i64, most: u32) -> bool {
        if self.minute != minute {
            (self.minute, self.count) = (minute, 0);
        }
        self.count = self.count.saturating_add(1);
        self.count <= most
    }
}

impl Denials {
    /// How many refusals of this subject were left out before this one; `None` if this one is too.
    #[must_use]
    pub fn admit(&self, subject: &str, now: Timestamp) -> Option<i64> {
        let minute = now.seconds().div_euclid(60);
        let mut windows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Windows { all, each } = &mut *windows;
        if each.len() >= MAX_SUBJECTS && !each.contains_key(subject) {
            each.retain(|_, window| window.minute == minute);
            if each.len() >= MAX_SUBJECTS {
                return None;
            }
        }
        let own = each.entry(subject.to_owned()).or_default();
        if own.fits(minute, EACH_PER_MINUTE) && all.fits(minute, ALL_PER_MINUTE) {
            Some(std::mem::take(&mut own.left_out))
        } else {
            own.left_out = own.left_out.saturating_add(1);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_seconds(600);

    fn admitted(denials: &Denials, subject: &str, times: u32, now: Timestamp) -> usize {
        (0..times).filter(|_| denials.admit(subject, now).is_some()).count()
    }

    #[test]
    fn one_in_a_loop_is_cut_and_counted_and_costs_others_nothing() {
        let denials = Denials::default();
        assert_eq!(admitted(&denials, "loop", 100_000, NOW), 60);
        assert_eq!(denials.admit("other", NOW), Some(0));
        assert_eq!(denials.admit("loop", NOW.plus_seconds(60)), Some(99_940));
        assert_eq!(denials.admit("loop", NOW.plus_seconds(60)), Some(0));
    }

    #[test]
    fn many_together_are_bounded_too() {
        let denials = Denials::default();
        let all: usize = (0..100).map(|n| admitted(&denials, &format!("s{n}"), 20, NOW)).sum();
        assert_eq!(all, 600);
        for n in 0..30_000 {
            let _ = denials.admit(&format!("t{n}"), NOW);
        }
        assert!(denials.0.lock().unwrap().each.len() <= MAX_SUBJECTS);
        assert_eq!(denials.admit("s99", NOW.plus_seconds(60)), Some(20));
        assert!(denials.admit("new", NOW.plus_seconds(60)).is_some(), "room again");
    }
}
