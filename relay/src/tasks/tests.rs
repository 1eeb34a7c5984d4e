//! Workers that are killed, late, or several, on both databases.

use super::{
    runner::{Handlers, Runner},
    *,
};
use crate::{
    api::tests::{Desk, at_a_desk},
    store::{Value as Arg, testing::killed_after},
};
use futures_util::FutureExt as _;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::sync::Notify;

static QUEUE: Queue = Queue { name: "errands", at_a_time: 4 };
static INSIDE: Kind = kind("errand.inside", Manner::Retried);
static OUTSIDE: Kind = kind("errand.outside", Manner::Retried);
static ONCE: Kind = kind("errand.once", Manner::Once { within_seconds: 60 });
static EVERY: Kind = kind("errand.every", Manner::Every { seconds: 60 });

const fn kind(name: &'static str, manner: Manner) -> Kind {
    Kind { name, queue: &QUEUE, manner, lease_seconds: 60 }
}

/// What is outside of the store: it takes each request, and does it once by its id.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<BTreeMap<String, usize>>>);

impl Outside {
    fn request(&self, id: &str) {
        *self.0.lock().unwrap().entry(id.to_owned()).or_default() += 1;
    }

    fn requests(&self) -> Vec<usize> {
        self.0.lock().unwrap().values().copied().collect()
    }
}

/// The manners of a handler: its effect is a row beside the completion, or a request that has an id.
fn handlers(outside: &Outside) -> Handlers {
    let of = |outside: &Outside| {
        let outside = outside.clone();
        move |_: Arc<Context>, claim: Claim| {
            let outside = outside.clone();
            async move {
                tokio::task::yield_now().await;
                outside.request(claim.id().as_str());
                tokio::task::yield_now().await;
                Ok(Ended::Done)
            }
        }
    };
    Handlers::default().on(&OUTSIDE, of(outside)).on(&ONCE, of(outside)).on(
        &INSIDE,
        |relay, claim| async move {
            let done = relay.store.transact("effect", &claim, |tx, claim| {
                Box::pin(async move {
                    tx.execute(
                        "INSERT INTO leases (name, holder, fence, until) VALUES ($1, '', 1, 0) \
                     ON CONFLICT (name) DO UPDATE SET fence = leases.fence + 1",
                        &[claim.id().as_str().into()],
                    )
                    .await?;
                    if claim.finish(tx).await? { Ok(()) } else { Err(Fault::from(StoreError::Race)) }
                })
            });
            done.await.map(|()| Ended::Finished).map_err(Failure::from)
        },
    )
}

fn runner(desk: &Desk, handlers: Handlers) -> Runner {
    Runner::new(desk.relay.clone(), Arc::new(handlers))
}

async fn ask(desk: &Desk, kind: &'static Kind, key: Option<&'static str>) -> Option<TaskId> {
    let work = (desk.relay.clone(), kind, key);
    let asked = desk.relay.store.transact("ask", work, |tx, (relay, kind, key)| {
        Box::pin(async move {
            let asked = Asked { key: *key, ..Asked::now(kind, &Value::Null) };
            enqueue(tx, &relay.random, &asked).await
        })
    });
    asked.await.unwrap()
}

async fn execute(desk: &Desk, sql: &'static str, args: &[Arg<'_>]) -> u64 {
    let done: Result<u64, StoreError> =
        desk.relay.store.transact("test", args, |tx, args| Box::pin(tx.execute(sql, args))).await;
    done.unwrap()
}

async fn number(desk: &Desk, sql: &'static str) -> i64 {
    let found = desk
        .relay
        .store
        .read("test", (), |tx, ()| Box::pin(async move { tx.fetch_one(sql, &[]).await?.integer("n") }));
    found.await.unwrap()
}

/// Lets every lease end and every wait be over.
async fn pass(desk: &Desk) {
    execute(desk, "UPDATE tasks SET due_at = 0 WHERE due_at IS NOT NULL", &[]).await;
}

async fn state(desk: &Desk, id: &TaskId) -> (TaskState, i64) {
    let found: Result<_, StoreError> =
        desk.relay.store.read("test", id, |tx, id| Box::pin(tasks::find(tx, id))).await;
    let task = found.unwrap().unwrap();
    (task.state, task.attempts)
}

/// How often it is tried to kill a worker in the middle.
const TIMES: usize = 50;

/// Kills a worker at each await of its way, and lets another one take over, until one comes through.
async fn killed_at_every_step(desk: &Desk, kind: &'static Kind) -> (usize, usize) {
    for polls in 1..2_000 {
        let outside = Outside::default();
        let id = ask(desk, kind, None).await.unwrap();
        let worker = runner(desk, handlers(&outside));
        let whole =
            killed_after(polls, worker.turn().map(|turn| assert!(turn.unwrap() <= 1))).await.is_some();
        drop(worker);
        for _ in 0..3 {
            pass(desk).await;
            runner(desk, handlers(&outside)).turn().await.unwrap();
        }
        let (state, attempts) = state(desk, &id).await;
        let requests = outside.requests();
        if kind.is_once() {
            // Once at most; where nobody knows, it says so.
            assert!(requests.iter().sum::<usize>() <= 1, "{polls}: {requests:?}");
            assert!(matches!(state, TaskState::Completed | TaskState::Archived), "{polls}: {state:?}");
            assert!(state == TaskState::Archived || requests == [1], "{polls}");
            assert!(attempts <= 1, "{polls}: {attempts}");
        } else {
            assert_eq!(state, TaskState::Completed, "{polls}");
            assert!(attempts <= 2, "{polls}: {attempts}");
            if kind.name == OUTSIDE.name {
                assert_eq!(requests.len(), 1, "{polls}: one id");
            } else {
                let sql = "SELECT COALESCE(MAX(fence), 0) AS n FROM leases WHERE name LIKE 'task_%'";
                assert_eq!(number(desk, sql).await, 1, "{polls}: the effect was kept once");
            }
        }
        if whole {
            let archived = number(desk, "SELECT COUNT(*) AS n FROM tasks WHERE state = 'archived'").await;
            return (polls, usize::try_from(archived).unwrap());
        }
    }
    panic!("no worker ever came through");
}

/// Behaviour 101.
#[tokio::test]
async fn a_worker_killed_at_every_step_leaves_the_work_done_as_if_once() {
    at_a_desk(async |desk| {
        // A store that answers at once lets a worker go several steps at a time: then there are few moments to kill it at.
        for kind in [&INSIDE, &OUTSIDE] {
            let mut most = 0;
            for _ in 0..TIMES {
                let (steps, archived) = killed_at_every_step(&desk, kind).await;
                assert_eq!(archived, 0);
                most = most.max(steps);
                if most > 3 {
                    break;
                }
            }
            assert!(most > 3, "{}: {most} steps", kind.name);
        }
        for _ in 0..TIMES {
            if killed_at_every_step(&desk, &ONCE).await.1 > 0 {
                return;
            }
        }
        panic!("no worker was killed while it was at it");
    })
    .await;
}

#[tokio::test]
async fn of_many_workers_one_is_at_a_task() {
    at_a_desk(async |desk| {
        let (at_once, done) = (Arc::new(AtomicUsize::new(0)), Outside::default());
        for _ in 0..20 {
            ask(&desk, &OUTSIDE, None).await.unwrap();
        }
        let worker = || {
            let (at_once, done) = (at_once.clone(), done.clone());
            let handlers = Handlers::default().on(&OUTSIDE, move |_, claim: Claim| {
                let (at_once, done) = (at_once.clone(), done.clone());
                async move {
                    at_once.fetch_add(1, Ordering::SeqCst);
                    done.request(claim.id().as_str());
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    at_once.fetch_sub(1, Ordering::SeqCst);
                    Ok(Ended::Done)
                }
            });
            runner(&desk, handlers)
        };
        let workers = [worker(), worker(), worker()];
        let all = async {
            while number(&desk, "SELECT COUNT(*) AS n FROM tasks WHERE state <> 'completed'").await > 0 {
                assert!(at_once.load(Ordering::SeqCst) <= 3 * QUEUE.at_a_time);
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = futures_util::future::join_all(workers.iter().map(Runner::run)) => panic!("it never ends"),
            done = tokio::time::timeout(Duration::from_secs(60), all) => done.unwrap(),
        }
        assert_eq!(done.requests(), vec![1; 20]);
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_waited_for_and_a_late_worker_changes_nothing() {
    at_a_desk(async |desk| {
        let id = ask(&desk, &OUTSIDE, None).await.unwrap();
        let (begun, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let late = {
            let (begun, go) = (begun.clone(), go.clone());
            Handlers::default().on(&OUTSIDE, move |_, _| {
                let (begun, go) = (begun.clone(), go.clone());
                async move {
                    begun.notify_one();
                    go.notified().await;
                    Err(Failure::Never("late".to_owned()))
                }
            })
        };
        let late = runner(&desk, late);
        let outside = Outside::default();
        let successor = runner(&desk, handlers(&outside));
        let takes_over = async {
            begun.notified().await;
            assert_eq!(successor.turn().await.unwrap(), 0, "the lease runs");
            pass(&desk).await;
            assert_eq!(successor.turn().await.unwrap(), 1);
            assert_eq!(state(&desk, &id).await, (TaskState::Completed, 2));
            go.notify_one();
        };
        let (turn, ()) = tokio::join!(late.turn(), takes_over);
        turn.unwrap();
        assert_eq!(state(&desk, &id).await, (TaskState::Completed, 2), "its word counts for nothing");
        assert!(desk.events().await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_takes_too_long_or_panics_has_failed() {
    static SHORT: Kind =
        Kind { name: "errand.short", queue: &QUEUE, manner: Manner::Retried, lease_seconds: 1 };
    at_a_desk(async |desk| {
        let (long, panics) = (ask(&desk, &SHORT, None).await.unwrap(), ask(&desk, &OUTSIDE, None).await.unwrap());
        let handlers = Handlers::default()
            .on(&SHORT, |_, _| std::future::pending())
            .on(&OUTSIDE, |_, _| async { panic!("oops") });
        assert_eq!(runner(&desk, handlers).turn().await.unwrap(), 2);
        for id in [long, panics] {
            assert_eq!(state(&desk, &id).await, (TaskState::Retry, 1));
        }
        let told = "SELECT COUNT(*) AS n FROM tasks WHERE last_error LIKE '%panicked%' OR last_error LIKE '%within%'";
        assert_eq!(number(&desk, told).await, 2);
    })
    .await;
}

/// Behaviours 101, 103.
#[tokio::test]
async fn what_fails_again_and_again_is_archived_told_and_can_be_brought_back() {
    at_a_desk(async |desk| {
        let id = ask(&desk, &OUTSIDE, Some("one")).await.unwrap();
        assert_eq!(ask(&desk, &OUTSIDE, Some("one")).await, None, "its key is taken");
        let broken = || {
            let failing = |_, _| async { Err(Failure::Again("no route".to_owned())) };
            runner(&desk, Handlers::default().on(&OUTSIDE, failing))
        };
        for attempts in 1..=next::MAX_ATTEMPTS {
            assert!(desk.events().await.is_empty());
            pass(&desk).await;
            assert_eq!(broken().turn().await.unwrap(), 1);
            assert_eq!(broken().turn().await.unwrap(), 0, "it waits first");
            let expected = if attempts < next::MAX_ATTEMPTS { TaskState::Retry } else { TaskState::Archived };
            assert_eq!(state(&desk, &id).await, (expected, attempts));
        }
        assert_eq!(desk.events().await, [("infra.task.archived".to_owned(), id.to_string())]);
        let told =
            json!({"queue": "errands", "type": "errand.outside", "attempts": 11, "lastError": "no route"});
        assert_eq!(desk.last_event().await, told);
        let outside = Outside::default();
        let well = runner(&desk, handlers(&outside));
        pass(&desk).await;
        assert_eq!(well.turn().await.unwrap(), 0, "it is given up");
        assert!(ask(&desk, &OUTSIDE, Some("one")).await.is_some(), "its key is free");
        let root = crate::api::tests::root();
        let refused = desk.ask(&root, "admin.tasks.retry", json!({"taskId": id})).await.unwrap_err();
        assert!(refused.detail.contains("asked for again since"), "one alone is open: {}", refused.detail);
        assert_eq!(well.turn().await.unwrap(), 1);
        desk.good(&root, "admin.tasks.retry", json!({"taskId": id})).await;
        assert_eq!(ask(&desk, &OUTSIDE, Some("one")).await, None, "its key is its own again");
        assert_eq!(well.turn().await.unwrap(), 1);
        assert_eq!(state(&desk, &id).await, (TaskState::Completed, 1));
        assert_eq!(outside.requests(), [1, 1]);
    })
    .await;
}

/// Behaviour 101: as a power command is.
#[tokio::test]
async fn what_is_tried_once_expires_unless_it_is_begun_in_time() {
    at_a_desk(async |desk| {
        let outside = Outside::default();
        let id = ask(&desk, &ONCE, None).await.unwrap();
        execute(&desk, "UPDATE tasks SET deadline = 1, due_at = 0", &[]).await;
        assert_eq!(runner(&desk, handlers(&outside)).turn().await.unwrap(), 0);
        assert_eq!(state(&desk, &id).await, (TaskState::Archived, 0));
        assert_eq!(desk.events().await.len(), 1);
        let id = ask(&desk, &ONCE, None).await.unwrap();
        let failing = |_, _| async { Err(Failure::Again("no answer".to_owned())) };
        assert_eq!(runner(&desk, Handlers::default().on(&ONCE, failing)).turn().await.unwrap(), 1);
        assert_eq!(state(&desk, &id).await, (TaskState::Archived, 1), "nobody knows what it did");
        pass(&desk).await;
        assert_eq!(runner(&desk, handlers(&outside)).turn().await.unwrap(), 0);
        assert!(outside.requests().is_empty());
    })
    .await;
}

#[tokio::test]
async fn what_comes_again_is_one_task_for_all_relays() {
    at_a_desk(async |desk| {
        let done = Arc::new(AtomicUsize::new(0));
        let worker = || {
            let done = done.clone();
            runner(&desk, Handlers::default().on(&EVERY, move |_, _| {
                let before = done.fetch_add(1, Ordering::SeqCst);
                async move { if before == 1 { Ok(Ended::Later(30)) } else { Ok(Ended::Done) } }
            }))
        };
        let (one, other) = (worker(), worker());
        for worker in [&one, &other, &one] {
            worker.ensure().await.unwrap();
        }
        assert_eq!(number(&desk, "SELECT COUNT(*) AS n FROM tasks").await, 1);
        assert_eq!((one.turn().await.unwrap(), other.turn().await.unwrap()), (1, 0));
        let waits = "SELECT COUNT(*) AS n FROM tasks WHERE state = 'pending' AND attempts = 0 AND due_at - ended_at = 60000";
        assert_eq!(number(&desk, waits).await, 1);
        pass(&desk).await;
        assert_eq!(other.turn().await.unwrap(), 1);
        let later = "SELECT COUNT(*) AS n FROM tasks WHERE attempts = 0 AND ended_at IS NOT NULL";
        assert_eq!(number(&desk, later).await, 1, "the time was not right, and it was done before");
        // Written while the database's clock was years ahead.
        execute(&desk, "UPDATE tasks SET due_at = 9000000000000", &[]).await;
        assert_eq!(one.turn().await.unwrap(), 0);
        one.ensure().await.unwrap();
        assert_eq!(one.turn().await.unwrap(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_task_is_there_with_the_change_that_asked_for_it_or_not_at_all() {
    at_a_desk(async |desk| {
        let relay = desk.relay.clone();
        let undone: Result<(), Fault> = desk
            .relay
            .store
            .transact("ask", relay, |tx, relay| {
                Box::pin(async move {
                    enqueue(tx, &relay.random, &Asked::now(&OUTSIDE, &Value::Null)).await?;
                    Err(Fault::internal("thinking again")("no"))
                })
            })
            .await;
        assert!(undone.is_err());
        let relay = desk.relay.clone();
        let long: Result<_, Fault> = desk
            .relay
            .store
            .transact("ask", relay, |tx, relay| {
                Box::pin(async move {
                    let payload = json!("x".repeat(MAX_PAYLOAD_BYTES));
                    enqueue(tx, &relay.random, &Asked::now(&OUTSIDE, &payload)).await
                })
            })
            .await;
        assert!(long.is_err());
        assert_eq!(number(&desk, "SELECT COUNT(*) AS n FROM tasks").await, 0);
    })
    .await;
}
