//! The answers of one connection that are on their way, so that a peer who takes none of them is found out.
//!
//! An HTTP/2 peer may grant no window, and keep the connection alive meanwhile: what it asked for would lie in memory
//! for as long as it likes, and nothing below would call it idle.

use axum::body::Body;
use http_body_util::BodyExt as _;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How long a request may take from its header to the end of its answer: its body, its judgement, and a peer that reads.
const LONGEST: Duration = Duration::from_secs(120);

/// The answers that are on their way. Bounded by the streams of a connection.
#[derive(Default)]
pub(super) struct Answers {
    open: Mutex<Open>,
    begun: Notify,
}

#[derive(Default)]
struct Open {
    next: u64,
    since: BTreeMap<u64, Instant>,
}

/// Marks an answer that has no end, by its extensions.
#[derive(Clone, Copy)]
pub(super) struct Endless;

/// One answer: on its way until this is dropped.
pub(super) struct Begun {
    answers: Arc<Answers>,
    number: u64,
}

impl Answers {
    /// Notes that a request has come.
    pub(super) fn begin(self: &Arc<Self>) -> Begun {
        let number = {
            let mut open = self.open();
            let number = open.next;
            open.next += 1;
            open.since.insert(number, Instant::now());
            number
        };
        self.begun.notify_one();
        Begun { answers: self.clone(), number }
    }

    /// Resolves once an answer has been on its way for longer than [`LONGEST`].
    pub(super) async fn stuck(&self) {
        loop {
            let oldest =
                self.open().since.iter().map(|(number, since)| (*number, *since)).min_by_key(|of| of.1);
            let Some((number, since)) = oldest else {
                self.begun.notified().await;
                continue;
            };
            tokio::time::sleep_until(since + LONGEST).await;
            if self.open().since.get(&number) == Some(&since) {
                return;
            }
        }
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Begun {
    /// The body of an answer without an end, which is on its way anew with each part that the peer takes.
    pub(super) fn while_taken(self, body: Body) -> Body {
        Body::new(body.map_frame(move |frame| {
            self.answers.open().since.insert(self.number, Instant::now());
            frame
        }))
    }

    /// The body, which ends this when it is sent or dropped.
    pub(super) fn until_sent(self, body: Body) -> Body {
        Body::new(body.map_err(move |error| {
            let _on_its_way = &self;
            error
        }))
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        self.answers.open().since.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_nobody_takes_is_stuck_and_one_that_ends_is_not() {
        let answers = Arc::new(Answers::default());
        let step = Duration::from_secs(50);
        for _ in 0..5 {
            let taken = answers.begin();
            assert!(tokio::time::timeout(step, answers.stuck()).await.is_err());
            drop(taken.until_sent(Body::from("x")));
        }
        let kept = answers.begin().until_sent(Body::from("x"));
        let later = answers.begin();
        assert!(tokio::time::timeout(LONGEST * 2, answers.stuck()).await.is_ok());
        drop((kept, later));
        let mut endless =
            answers.begin().while_taken(Body::from_stream(futures_util::stream::repeat_with(|| {
                Ok::<_, std::convert::Infallible>("x")
            })));
        for _ in 0..5 {
            assert!(tokio::time::timeout(step, answers.stuck()).await.is_err());
            assert!(endless.frame().await.is_some());
        }
        assert!(tokio::time::timeout(LONGEST * 2, answers.stuck()).await.is_ok(), "nobody takes it any more");
        drop(endless);
        assert!(answers.open().since.is_empty());
        assert!(tokio::time::timeout(LONGEST * 2, answers.stuck()).await.is_err(), "none is on its way");
    }
}
