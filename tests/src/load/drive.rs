//! A number of operations over a number of workers, each timed by itself.

use super::{progress::Progress, wire::Trouble};
use futures_util::future::BoxFuture;
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::task::JoinSet;

/// After so many failures a phase is given up.
const MOST_FAILURES: usize = 20;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// What an operation is called, in the plural.
    pub(super) name: &'static str,
    /// How many operations.
    pub(super) count: usize,
    /// When no further one is begun.
    pub(super) longest: Duration,
}

/// What was done.
#[derive(Debug)]
pub(super) struct Driven<T> {
    /// From the first beginning to the last end.
    pub(super) took: Duration,
    /// How long each operation took that went well.
    pub(super) latencies: Vec<Duration>,
    /// What they answered, each with its number.
    pub(super) answers: Vec<(usize, T)>,
    /// How many went wrong.
    pub(super) failed: usize,
    /// Why the first one did.
    pub(super) first_failure: Option<Trouble>,
}

/// Does operations 0, 1, 2, … by as many workers as there are `states`; each worker has one to itself.
pub(super) async fn drive<S, T, F>(work: Work, states: Vec<S>, operation: F) -> Driven<T>
where
    S: Send + 'static,
    T: Send + 'static,
    F: for<'a> Fn(&'a mut S, usize) -> BoxFuture<'a, Result<T, Trouble>> + Send + Sync + 'static,
{
    let (operation, next, failed) = (Arc::new(operation), Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let (failed, progress) = (Arc::new(failed), Progress::start(work.name, work.count));
    let begun = Instant::now();
    let mut workers = JoinSet::new();
    for mut state in states {
        let (operation, next, failed) = (operation.clone(), next.clone(), failed.clone());
        let counter = progress.counter();
        workers.spawn(async move {
            let mut own = Driven::empty();
            while begun.elapsed() < work.longest && failed.load(Ordering::Relaxed) < MOST_FAILURES {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= work.count {
                    break;
                }
                let started = Instant::now();
                match operation(&mut state, at).await {
                    Ok(answer) => {
                        own.latencies.push(started.elapsed());
                        own.answers.push((at, answer));
                    }
                    Err(trouble) => {
                        failed.fetch_add(1, Ordering::Relaxed);
                        own.failed += 1;
                        own.first_failure.get_or_insert(trouble);
                    }
                }
                counter.fetch_add(1, Ordering::Relaxed);
            }
            own
        });
    }
    let mut all = Driven::empty();
    while let Some(worker) = workers.join_next().await {
        match worker {
            Ok(own) => all.add(own),
            Err(error) => {
                all.failed += 1;
                all.first_failure.get_or_insert(Trouble::Worker(error.to_string()));
            }
        }
    }
    all.took = begun.elapsed();
    all
}

impl<T> Driven<T> {
    fn empty() -> Self {
        let (latencies, answers) = (Vec::new(), Vec::new());
        Self { took: Duration::ZERO, latencies, answers, failed: 0, first_failure: None }
    }

    fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.answers.extend(other.answers);
        self.failed += other.failed;
        self.first_failure = self.first_failure.take().or(other.first_failure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORK: Work = Work { name: "steps", count: 100, longest: Duration::from_secs(10) };

    #[tokio::test]
    async fn each_operation_is_done_once() {
        let driven = drive(WORK, vec![(); 7], |(), at| Box::pin(async move { Ok(at * 2) })).await;
        let mut answers = driven.answers;
        answers.sort_unstable();
        assert_eq!(answers, (0..100).map(|at| (at, at * 2)).collect::<Vec<_>>());
        assert_eq!((driven.latencies.len(), driven.failed), (100, 0));
    }

    #[tokio::test]
    async fn a_phase_ends_by_its_time_and_by_its_failures() {
        let over = Work { longest: Duration::ZERO, ..WORK };
        let driven = drive(over, vec![()], |(), at| Box::pin(async move { Ok(at) })).await;
        assert!(driven.answers.is_empty());
        let fail = |at: usize| Trouble::Worker(at.to_string());
        let driven =
            drive(WORK, vec![()], move |(), at| Box::pin(async move { Err::<(), _>(fail(at)) })).await;
        assert_eq!(driven.failed, MOST_FAILURES);
        assert_eq!(driven.first_failure.map(|trouble| trouble.to_string()).as_deref(), Some("0"));
    }
}
