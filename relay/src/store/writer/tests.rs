//! The shared commit: who shares, what one member's failure does to the others, what a vanished one leaves.
//!
//! The tests run on one thread, so that the line at the desk is exactly as they queue it.

use super::*;
use crate::store::{
    Store, StoreFault as _, Tx,
    testing::on_sqlite,
    tests::{Refusal, consume, one_counter, uses},
};
use futures_util::{FutureExt as _, future::BoxFuture};
use std::time::{Duration, Instant};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinHandle,
};

const ADD: &str = "INSERT INTO counters (id, uses, note) VALUES ($1, 0, $2)";
const COUNT: &str = "SELECT COUNT(*) AS n FROM counters";
/// A reference to nothing is found out at the commit.
const CHILDREN: &str =
    "CREATE TABLE children (parent TEXT NOT NULL REFERENCES counters (id) DEFERRABLE INITIALLY DEFERRED)";
const ORPHAN: &str = "INSERT INTO children (parent) VALUES ('nobody')";

type Member = JoinHandle<Result<i64, Refusal>>;

/// Begins a change in a task of its own.
fn member<W>(store: &Store, work: W) -> Member
where
    W: for<'a> Fn(&'a mut Tx<'_>) -> BoxFuture<'a, Result<i64, Refusal>> + Send + Sync + 'static,
{
    let store = store.clone();
    tokio::spawn(async move { store.transact("test.member", work, |tx, work| work(tx)).await })
}

/// A member that holds the desk until it is told to go on; its retries don't wait again.
async fn holder(store: &Store) -> (Member, Arc<Semaphore>) {
    let (entered, go) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (tell, wait) = (Arc::clone(&entered), Arc::clone(&go));
    let task = member(store, move |tx| {
        let (tell, wait) = (Arc::clone(&tell), Arc::clone(&wait));
        Box::pin(async move {
            tx.execute(ADD, &["holder".into(), None::<&str>.into()]).await?;
            tell.notify_one();
            let _permit = wait.acquire().await;
            Ok(0)
        })
    });
    entered.notified().await;
    (task, go)
}

/// Lets all tasks run until they wait in line.
async fn queued() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn count(store: &Store) -> i64 {
    let rows: Result<i64, StoreError> = store
        .read("test.count", (), |tx, ()| {
            Box::pin(async move { tx.fetch_one(COUNT, &[]).await?.integer("n") })
        })
        .await;
    rows.unwrap()
}

async fn execute(store: &Store, sql: &'static str) {
    let done: Result<u64, StoreError> = store
        .transact("test.execute", sql, |tx, sql| Box::pin(async move { tx.execute(sql, &[]).await }))
        .await;
    done.unwrap();
}

#[tokio::test]
async fn those_who_wait_in_line_share_one_commit() {
    on_sqlite(async |store| {
        one_counter(&store).await;
        let before = store.shared_commits().unwrap();
        let (first, go) = holder(&store).await;
        let others: Vec<Member> =
            (0..20).map(|_| member(&store, |tx| Box::pin(consume(tx, "t1", 100)))).collect();
        queued().await;
        go.add_permits(1);
        first.await.unwrap().unwrap();
        for (other, turn) in others.into_iter().zip(1..) {
            assert_eq!(other.await.unwrap().unwrap(), turn, "the line is fair");
        }
        assert_eq!(store.shared_commits().unwrap() - before, 1);
        assert_eq!(uses(&store).await, 20);
    })
    .await;
}

#[tokio::test]
async fn a_refusal_waits_for_the_change_that_it_has_seen() {
    on_sqlite(async |store| {
        one_counter(&store).await;
        execute(&store, CHILDREN).await;
        let (first, go) = holder(&store).await;
        // Uses up what the next one wants, and can't be committed.
        let doomed = member(&store, |tx| {
            Box::pin(async move {
                tx.execute(ORPHAN, &[]).await?;
                consume(tx, "t1", 100).await
            })
        });
        queued().await;
        let refused = member(&store, |tx| Box::pin(consume(tx, "t1", 1)));
        queued().await;
        go.add_permits(1);
        let error = doomed.await.unwrap().unwrap_err();
        assert!(matches!(error, Refusal::Store(StoreError::Other(_))), "alone it fails by itself: {error:?}");
        assert_eq!(refused.await.unwrap().expect("the use that it saw never was"), 1);
        first.await.unwrap().expect("it shared a commit that failed, and was tried again");
        assert_eq!((uses(&store).await, count(&store).await), (1, 2));
        assert_eq!(store.retries().batch_lost.load(Ordering::Relaxed), 3);
    })
    .await;
}

#[tokio::test]
async fn a_member_that_fails_is_undone_alone() {
    on_sqlite(async |store| {
        one_counter(&store).await;
        let (first, go) = holder(&store).await;
        let failing = member(&store, |tx| {
            Box::pin(async move {
                tx.execute(ADD, &["failing".into(), None::<&str>.into()]).await?;
                tx.execute(ADD, &["holder".into(), None::<&str>.into()]).await?;
                Ok(0)
            })
        });
        let last = member(&store, |tx| Box::pin(consume(tx, "t1", 1)));
        queued().await;
        go.add_permits(1);
        first.await.unwrap().unwrap();
        let error = failing.await.unwrap().unwrap_err();
        assert!(matches!(error.store_error(), Some(StoreError::Unique(_))), "{error:?}");
        last.await.unwrap().unwrap();
        assert_eq!((uses(&store).await, count(&store).await), (1, 2));
        assert_eq!(store.retries().batch_lost.load(Ordering::Relaxed), 0);
    })
    .await;
}

#[tokio::test]
async fn a_member_that_vanishes_takes_nobody_along() {
    on_sqlite(async |store| {
        one_counter(&store).await;
        for panics in [false, true] {
            let before = count(&store).await;
            let (first, go) = holder(&store).await;
            let vanishing = member(&store, move |tx| {
                Box::pin(async move {
                    tx.execute(ADD, &["vanishing".into(), None::<&str>.into()]).await?;
                    assert!(!panics, "a panic in the work");
                    std::future::pending().await
                })
            });
            let last = member(&store, |tx| Box::pin(consume(tx, "t1", 9)));
            queued().await;
            go.add_permits(1);
            // The next in line comes to the desk only when this one is gone.
            tokio::time::sleep(Duration::from_millis(50)).await;
            vanishing.abort();
            assert!(vanishing.await.is_err());
            first.await.unwrap().unwrap();
            last.await.unwrap().unwrap();
            assert_eq!(count(&store).await, before + 1, "what the vanished one wrote is gone");
            execute(&store, "DELETE FROM counters WHERE id = 'holder'").await;
        }
        assert_eq!(uses(&store).await, 2);
        assert_eq!(store.retries().batch_lost.load(Ordering::Relaxed), 0);
    })
    .await;
}

#[tokio::test]
async fn a_member_that_vanishes_alone_leaves_no_lock() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/relay.db", directory.path().display());
    let (store, other) = (Store::open(&url).await.unwrap(), Store::open(&url).await.unwrap());
    one_counter(&store).await;
    let (first, _go) = holder(&store).await;
    first.abort();
    assert!(first.await.unwrap_err().is_cancelled());
    // Another process, such as a command of the operator, must not have to wait for the next change here.
    let begun = Instant::now();
    let admitted = other.transact("test.other", (), |tx, ()| Box::pin(consume(tx, "t1", 1))).await;
    assert_eq!(admitted.unwrap(), 1);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert_eq!(count(&store).await, 1);
    store.close().await;
    other.close().await;
}

#[tokio::test]
async fn where_the_database_ends_the_transaction_the_others_try_again() {
    on_sqlite(async |store| {
        one_counter(&store).await;
        let (first, go) = holder(&store).await;
        let before = member(&store, |tx| Box::pin(consume(tx, "t1", 9)));
        // As SQLite may do by itself when the disk is full.
        let ending = member(&store, |tx| {
            Box::pin(async move {
                tx.execute("ROLLBACK", &[]).await?;
                Ok(0)
            })
        });
        let after = member(&store, |tx| Box::pin(consume(tx, "t1", 9)));
        queued().await;
        go.add_permits(1);
        first.await.unwrap().unwrap();
        let mut admitted = [before.await.unwrap().unwrap(), after.await.unwrap().unwrap()];
        admitted.sort_unstable();
        assert_eq!(admitted, [1, 2]);
        assert!(ending.await.unwrap().is_err());
        assert_eq!((uses(&store).await, count(&store).await), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn a_full_disk_fails_who_needs_space_and_passes() {
    on_sqlite(async |store| {
        one_counter(&store).await;
        execute(&store, "PRAGMA max_page_count = 60").await;
        let (first, go) = holder(&store).await;
        let big = member(&store, |tx| {
            Box::pin(async move {
                let megabyte = "x".repeat(1 << 20);
                tx.execute(ADD, &["big".into(), (&megabyte).into()]).await?;
                Ok(0)
            })
        });
        let small = member(&store, |tx| Box::pin(consume(tx, "t1", 9)));
        queued().await;
        go.add_permits(1);
        first.await.unwrap().unwrap();
        let error = big.await.unwrap().unwrap_err();
        assert!(matches!(error, Refusal::Store(StoreError::Full(_))), "{error:?}");
        assert_eq!(small.await.unwrap().unwrap(), 1);
        assert_eq!((uses(&store).await, count(&store).await), (1, 2));
    })
    .await;
}

#[tokio::test]
async fn closing_commits_what_is_pending() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}/relay.db", directory.path().display());
    let store = Store::open(&url).await.unwrap();
    one_counter(&store).await;
    let (first, go) = holder(&store).await;
    let closing = tokio::spawn({
        let store = store.clone();
        async move { store.close().await }
    });
    queued().await;
    let late = member(&store, |tx| Box::pin(consume(tx, "t1", 9)));
    queued().await;
    go.add_permits(1);
    first.await.unwrap().unwrap();
    closing.await.unwrap();
    let late = i64::from(late.await.unwrap().is_ok());
    let again = Store::open(&url).await.unwrap();
    assert_eq!((uses(&again).await, count(&again).await), (late, 2), "what was answered is there");
    again.close().await;
}

/// A desk of its own, with one member pending and no commit queued.
async fn desk_with_one_pending(directory: &tempfile::TempDir) -> (Writer, Pending) {
    let url = format!("sqlite://{}/relay.db", directory.path().display());
    let address = Address::parse(&url).unwrap();
    crate::store::file::prepare(address.file().unwrap()).unwrap();
    let writer = Writer::open(address).await.unwrap();
    let mut desk = writer.desk.lock().await;
    desk.begin_member().await.unwrap();
    desk.run("CREATE TABLE done (id TEXT PRIMARY KEY)").await.unwrap();
    desk.end_member(true).await.unwrap();
    let (answer, pending) = oneshot::channel();
    desk.batch.push(answer);
    drop(desk);
    (writer, Pending(Some(pending)))
}

#[tokio::test]
async fn an_interrupted_commit_is_told_as_unknown_and_the_desk_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, pending) = desk_with_one_pending(&directory).await;
    {
        let mut desk = writer.desk.lock().await;
        assert!(desk.commit().now_or_never().is_none(), "it is on its way");
        assert_eq!(desk.phase, Phase::Unsure);
    }
    assert!(matches!(pending.committed().await, Err(StoreError::OutcomeUnknown(_))));
    let mut turn = writer.enter(false).await.unwrap();
    turn.desk.run("CREATE TABLE next (id TEXT PRIMARY KEY)").await.unwrap();
    turn.leave(true).await.unwrap().committed().await.unwrap();
    writer.close().await;
}

#[tokio::test]
async fn a_lost_connection_is_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let (writer, pending) = desk_with_one_pending(&directory).await;
    writer.desk.lock().await.connection = None;
    let mut turn = writer.enter(true).await.unwrap();
    let answer = pending.committed().await;
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown(_))), "{answer:?}");
    turn.desk.run("CREATE TABLE done (id TEXT PRIMARY KEY)").await.expect("what was pending is gone");
    turn.leave(true).await.unwrap().committed().await.unwrap();
    writer.close().await;
}

#[test]
fn a_failed_commit_is_tried_again_unless_it_may_have_happened() {
    let fault = || Fault::new("x");
    assert!(matches!(verdict(StoreError::Unreachable(fault()), 1), StoreError::OutcomeUnknown(_)));
    assert!(matches!(verdict(StoreError::Unreachable(fault()), 9), StoreError::OutcomeUnknown(_)));
    assert!(matches!(verdict(StoreError::Full(fault()), 9), StoreError::BatchLost));
    assert!(matches!(verdict(StoreError::Full(fault()), 1), StoreError::Full(_)));
    assert!(matches!(verdict(StoreError::Busy(fault()), 1), StoreError::Busy(_)));
}
