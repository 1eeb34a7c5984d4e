//! What becomes of a task. Pure.

use super::{Attempt, Ended, Failure, Kind, Manner};
use shared::{
    api::tasks::{Task, TaskState},
    time::Timestamp,
    token::without_tokens,
};

/// The most attempts: the first, and ten more.
pub const MAX_ATTEMPTS: i64 = 11;
/// The wait after the first failure, in seconds; each further one is twice as long.
const FIRST_WAIT_SECONDS: u32 = 10;
/// The longest wait, in seconds (one hour).
const LONGEST_WAIT_SECONDS: u32 = 3_600;
/// The longest text that is kept of a failure, in bytes.
const MAX_ERROR_BYTES: usize = 1_024;

/// Why a task is archived that nobody began in time.
const EXPIRED: &str = "no worker took it before its deadline; it was not begun";
/// Why a task is archived whose one worker died.
const UNKNOWN: &str =
    "its worker ended before it said what became of it: it may have been done; look before you ask again";
/// Why a task is archived whose last worker died.
const WORKERS_DIED: &str = "its worker ended before it said what became of it, at the last attempt";

/// A task after an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// Its state.
    pub state: TaskState,
    /// Its attempts.
    pub attempts: i64,
    /// Why the attempt failed.
    pub error: Option<String>,
    /// How long it waits, in seconds; `None` where it has ended.
    pub wait_seconds: Option<u32>,
    /// Whether it ended, or was done and comes again.
    pub ended: bool,
}

/// What an attempt makes of a task. `jitter` is random, so that what failed together is not tried together.
#[must_use]
pub fn after(kind: &Kind, attempts: i64, attempt: &Attempt, jitter: u16) -> Next {
    let waiting = |state, attempts, error, seconds| Next {
        state,
        attempts,
        error,
        wait_seconds: Some(seconds),
        ended: false,
    };
    match (attempt, kind.manner) {
        (Ok(Ended::Later(seconds)), _) => waiting(
            TaskState::Pending,
            attempts.saturating_sub(1),
            None,
            (*seconds).clamp(1, LONGEST_WAIT_SECONDS),
        ),
        (Ok(_), Manner::Every { seconds }) => {
            Next { ended: true, ..waiting(TaskState::Pending, 0, None, seconds) }
        }
        (Ok(_), _) => {
            Next { state: TaskState::Completed, attempts, error: None, wait_seconds: None, ended: true }
        }
        // What comes again and again is one task: it waits with its error for whoever mends it.
        (Err(Failure::Again(error)), manner)
            if !kind.is_once() && (attempts < MAX_ATTEMPTS || matches!(manner, Manner::Every { .. })) =>
        {
            let wait = wait_seconds(attempts, jitter);
            let wait = if let Manner::Every { seconds } = manner { wait.min(seconds) } else { wait };
            waiting(TaskState::Retry, attempts, Some(bounded(error)), wait)
        }
        (Err(Failure::Again(error) | Failure::Never(error)), _) => Next {
            state: TaskState::Archived,
            attempts,
            error: Some(bounded(error)),
            wait_seconds: None,
            ended: true,
        },
    }
}

/// Why a task that is due can't be tried any more, if so.
#[must_use]
pub(super) fn too_late(
    kind: &Kind,
    task: &Task,
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Option<&'static str> {
    let died = task.state == TaskState::Active;
    if died && (task.once || kind.is_once()) {
        return Some(UNKNOWN);
    }
    if died && task.attempts >= MAX_ATTEMPTS && !matches!(kind.manner, Manner::Every { .. }) {
        return Some(WORKERS_DIED);
    }
    deadline.is_some_and(|deadline| deadline < now).then_some(EXPIRED)
}

/// The wait after so many attempts: from three quarters of it up.
fn wait_seconds(attempts: i64, jitter: u16) -> u32 {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0);
    let whole = FIRST_WAIT_SECONDS.saturating_mul(1_u32.checked_shl(doublings).unwrap_or(u32::MAX));
    let whole = u64::from(whole.min(LONGEST_WAIT_SECONDS));
    let less = whole / 4 * u64::from(jitter) / u64::from(u16::MAX);
    u32::try_from(whole - less).unwrap_or(LONGEST_WAIT_SECONDS)
}

/// The text of a failure, cut, on one line, and without what looks like a token.
pub(super) fn bounded(error: &str) -> String {
    let mut text = without_tokens(error).replace(|c: char| c.is_control(), " ");
    let cut = (0..=MAX_ERROR_BYTES).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.truncate(cut);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::Queue;

    static QUEUE: Queue = Queue { name: "q", at_a_time: 1 };

    const fn kind(manner: Manner) -> Kind {
        Kind { name: "k", queue: &QUEUE, manner, lease_seconds: 60 }
    }
    const RETRIED: Kind = kind(Manner::Retried);
    const ONCE: Kind = kind(Manner::Once { within_seconds: 30 });
    const EVERY: Kind = kind(Manner::Every { seconds: 60 });

    fn again() -> Attempt {
        Err(Failure::Again("no".into()))
    }

    #[test]
    fn waits_double_up_to_an_hour_and_end() {
        let waits: Vec<Option<u32>> =
            (1..=11).map(|attempts| after(&RETRIED, attempts, &again(), 0).wait_seconds).collect();
        let whole = [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600].map(Some);
        assert_eq!(waits[..10], whole);
        assert_eq!(waits[10], None);
        // All of it is over within hours: what can't work is told to somebody on the same day.
        assert!(whole.iter().flatten().sum::<u32>() < 3 * 3600);
        for (wait, whole) in waits.iter().zip(whole) {
            let attempts = waits.iter().position(|other| other == wait).unwrap() as i64 + 1;
            let least = after(&RETRIED, attempts, &again(), u16::MAX).wait_seconds.unwrap();
            assert!(least < whole.unwrap() && least >= whole.unwrap() / 4 * 3, "{attempts}: {least}");
        }
    }

    #[test]
    fn every_manner_ends_as_it_says() {
        use TaskState::{Archived, Completed, Pending, Retry};
        let never = || Err(Failure::Never("no".into()));
        for (kind, attempts, attempt, state, kept, wait) in [
            (RETRIED, 3, Ok(Ended::Done), Completed, 3, None),
            (RETRIED, 3, Ok(Ended::Later(5)), Pending, 2, Some(5)),
            (RETRIED, 3, Ok(Ended::Later(0)), Pending, 2, Some(1)),
            (RETRIED, 3, again(), Retry, 3, Some(40)),
            (RETRIED, MAX_ATTEMPTS, again(), Archived, MAX_ATTEMPTS, None),
            (RETRIED, 1, never(), Archived, 1, None),
            (ONCE, 1, Ok(Ended::Done), Completed, 1, None),
            (ONCE, 1, again(), Archived, 1, None),
            (EVERY, 3, Ok(Ended::Done), Pending, 0, Some(60)),
            (EVERY, 9, again(), Retry, 9, Some(60)),
            (EVERY, MAX_ATTEMPTS, again(), Retry, MAX_ATTEMPTS, Some(60)),
            (EVERY, 1_000, again(), Retry, 1_000, Some(60)),
            (EVERY, 1, never(), Archived, 1, None),
        ] {
            let next = after(&kind, attempts, &attempt, 0);
            assert_eq!(
                (next.state, next.attempts, next.wait_seconds),
                (state, kept, wait),
                "{kind:?} {attempt:?}"
            );
            assert_eq!(next.error.is_some(), attempt.is_err());
        }
    }

    #[test]
    fn a_task_is_too_late_only_where_it_can_not_be_tried() {
        let now = Timestamp::from_seconds(100);
        let task = |state, attempts, once| Task {
            id: shared::id::TaskId::draw(now, [1; 10]),
            queue: "q".into(),
            task_type: "k".into(),
            state,
            once,
            attempts,
            last_error: None,
            created_at: now,
            due_at: Some(now),
            ended_at: None,
        };
        let passed = Some(Timestamp::from_seconds(99));
        for (kind, task, deadline, why) in [
            (RETRIED, task(TaskState::Active, 10, false), None, None),
            (RETRIED, task(TaskState::Active, 11, false), None, Some(WORKERS_DIED)),
            (RETRIED, task(TaskState::Retry, 11, false), None, None),
            (ONCE, task(TaskState::Pending, 0, true), Some(now), None),
            (ONCE, task(TaskState::Pending, 0, true), passed, Some(EXPIRED)),
            (ONCE, task(TaskState::Active, 1, true), Some(now), Some(UNKNOWN)),
            (RETRIED, task(TaskState::Active, 1, true), None, Some(UNKNOWN)),
        ] {
            assert_eq!(too_late(&kind, &task, deadline, now), why, "{task:?}");
        }
    }

    #[test]
    fn an_error_is_short_and_shows_no_token() {
        let token = format!("bcjt_{}.{}", "0".repeat(26), "k".repeat(52));
        let text = bounded(&format!("it said\n{token}: {}", "é".repeat(2000)));
        assert!(text.len() <= MAX_ERROR_BYTES && text.len() > MAX_ERROR_BYTES - 2);
        assert!(!text.contains("kkk") && !text.contains('\n'), "{text}");
    }
}
