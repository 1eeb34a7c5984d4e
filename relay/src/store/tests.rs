//! The store on both databases: exactness, atomicity, retries, what comes back, what errors say.

use super::{testing::*, *};
use std::sync::atomic::{AtomicU32, Ordering};

mod values;

const CREATE: &str = "CREATE TABLE counters (id TEXT PRIMARY KEY, uses BIGINT NOT NULL, note TEXT)";
const ADD: &str = "INSERT INTO counters (id, uses, note) VALUES ($1, $2, $3)";
const LOAD: &str = "SELECT uses, note FROM counters WHERE id = $1";
const SAVE: &str = "UPDATE counters SET uses = $2 WHERE id = $1";
const CONSUME: &str = "UPDATE counters SET uses = uses + 1 WHERE id = $1 AND uses < $2 RETURNING uses";

#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
    #[error("exhausted at {0}")]
    Exhausted(i64),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoreFault for Refusal {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Exhausted(_) => None,
        }
    }
}

/// Makes the table with one counter, `t1`, at 0.
pub(super) async fn one_counter(store: &Store) {
    let made: Result<(), StoreError> = store
        .transact("test.create", (), |tx, ()| {
            Box::pin(async move {
                tx.execute(CREATE, &[]).await?;
                tx.execute(ADD, &["t1".into(), 0.into(), None::<&str>.into()]).await?;
                Ok(())
            })
        })
        .await;
    made.expect("the table is made");
}

pub(super) async fn uses(store: &Store) -> i64 {
    let uses: Result<i64, StoreError> = store
        .read("test.uses", (), |tx, ()| {
            Box::pin(async move { tx.fetch_one(LOAD, &["t1".into()]).await?.integer("uses") })
        })
        .await;
    uses.expect("the counter is there")
}

/// Read, then write: the way that loses updates where rows are not locked.
pub(super) async fn consume(tx: &mut Tx<'_>, id: &str, max: i64) -> Result<i64, Refusal> {
    let row = tx.lock_optional(LOAD, &[id.into()]).await?.ok_or(StoreError::Race)?;
    let uses = row.integer("uses")?;
    if uses >= max {
        return Err(Refusal::Exhausted(uses));
    }
    tx.execute(SAVE, &[id.into(), (uses + 1).into()]).await?;
    Ok(uses + 1)
}

/// All that can be had out of an error.
fn chain(error: &StoreError) -> String {
    let mut text = format!("{error:?}");
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = next {
        text.push_str(&format!(" / {error}"));
        next = error.source();
    }
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn fifty_concurrent_consumes_of_ten_admit_ten() {
    on_both(async |store| {
        one_counter(&store).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let store = store.clone();
            tasks.spawn(async move {
                let id = String::from("t1");
                store
                    .transact("test.consume", (&id, 10), |tx, (id, max)| Box::pin(consume(tx, id, *max)))
                    .await
            });
        }
        let results = tasks.join_all().await;
        let mut admitted: Vec<i64> =
            results.iter().filter_map(|result| result.as_ref().ok().copied()).collect();
        admitted.sort_unstable();
        assert_eq!(admitted, (1..=10).collect::<Vec<_>>());
        let refused = results.iter().filter(|result| matches!(result, Err(Refusal::Exhausted(10)))).count();
        assert_eq!(refused, 40, "{results:?}");
        assert_eq!(uses(&store).await, 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_statement_consumes_exactly_too() {
    on_both(async |store| {
        one_counter(&store).await;
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..50 {
            let store = store.clone();
            tasks.spawn(async move {
                let admitted: Result<bool, StoreError> = store
                    .transact("test.consume", (), |tx, ()| {
                        Box::pin(async move {
                            let row = tx.fetch_optional(CONSUME, &["t1".into(), 10.into()]).await?;
                            Ok(row.is_some())
                        })
                    })
                    .await;
                admitted.expect("nobody fails")
            });
        }
        assert_eq!(tasks.join_all().await.iter().filter(|admitted| **admitted).count(), 10);
        assert_eq!(uses(&store).await, 10);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_relays_on_one_postgresql_are_exact_together() {
    on_postgres_url(async |url| {
        let stores = [Store::open(&url).await.unwrap(), Store::open(&url).await.unwrap()];
        one_counter(&stores[0]).await;
        let mut tasks = tokio::task::JoinSet::new();
        for turn in 0..40 {
            let store = stores[turn % 2].clone();
            tasks.spawn(async move {
                store.transact("test.consume", (), |tx, ()| Box::pin(consume(tx, "t1", 10))).await.is_ok()
            });
        }
        assert_eq!(tasks.join_all().await.iter().filter(|admitted| **admitted).count(), 10);
        assert_eq!(uses(&stores[0]).await, 10);
        for store in stores {
            store.close().await;
        }
    })
    .await;
}

/// Adds to the counter and writes a row of its own, with time to be cut off in between.
async fn count_and_note(tx: &mut Tx<'_>, id: &str) -> Result<(), Refusal> {
    consume(tx, "t1", i64::MAX).await?;
    tokio::task::yield_now().await;
    tx.execute(ADD, &[id.into(), 0.into(), None::<&str>.into()]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_that_hang_up_anywhere_leave_all_or_nothing() {
    on_both(async |store| {
        one_counter(&store).await;
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..300_u64 {
            let store = store.clone();
            tasks.spawn(async move {
                let id = format!("caller-{number}");
                let change = store.transact("test.hangUp", &id, |tx, id| Box::pin(count_and_note(tx, id)));
                let patience = std::time::Duration::from_micros(number * 997 % 20_000);
                (id.clone(), tokio::time::timeout(patience, change).await.map(Result::unwrap).is_ok())
            });
        }
        let answered: Vec<String> =
            tasks.join_all().await.into_iter().filter_map(|(id, answered)| answered.then_some(id)).collect();
        // Whoever waited last has seen the end of all.
        store.transact("test.last", (), |tx, ()| Box::pin(count_and_note(tx, "last"))).await.unwrap();
        let noted: Result<Vec<String>, StoreError> = store
            .read("test.notes", (), |tx, ()| {
                Box::pin(async move {
                    let rows = tx.fetch_all("SELECT id FROM counters WHERE id <> 't1'", &[]).await?;
                    rows.iter().map(|row| row.text("id")).collect()
                })
            })
            .await;
        let noted = noted.unwrap();
        assert_eq!(uses(&store).await, i64::try_from(noted.len()).unwrap());
        assert!(answered.iter().all(|id| noted.contains(id)), "an answer means that it is stored");
    })
    .await;
}

/// A BEGIN that is under way when its caller hangs up is begun all the same; no connection with it goes back to the pool.
#[tokio::test]
async fn readers_that_hang_up_anywhere_leave_no_transaction_behind() {
    on_postgres(async |store| {
        one_counter(&store).await;
        let read = || {
            store.read("test.hangUp", (), |tx, ()| {
                Box::pin(async move { tx.fetch_all("SELECT id FROM counters", &[]).await.map(drop) })
            })
        };
        // A connection that rests: the next one begins at once.
        read().await.unwrap();
        // A server may answer so soon that a read ends at its first poll: then that one says nothing.
        let mut hung_up = 0;
        for _ in 0..1000 {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let ended = killed_after(hung_up + 1, read()).await.is_some();
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            let open = "SELECT COUNT(*) AS n FROM pg_stat_activity WHERE datname = current_database() \
                AND state LIKE 'idle in transaction%'";
            let open: Result<i64, StoreError> = store
                .glance("test.open", (), |tx, ()| {
                    Box::pin(async move { tx.fetch_one(open, &[]).await?.integer("n") })
                })
                .await;
            assert_eq!(open.unwrap(), 0, "after {} polls", hung_up + 1);
            match (ended, hung_up) {
                (true, 0) => {}
                (true, _) => return,
                (false, _) => hung_up += 1,
            }
        }
        panic!("{hung_up} hung up, and none read to its end");
    })
    .await;
}

#[tokio::test]
async fn an_error_rolls_everything_back() {
    on_both(async |store| {
        one_counter(&store).await;
        let result: Result<(), Refusal> = store
            .transact("test.refuse", (), |tx, ()| {
                Box::pin(async move {
                    tx.execute(SAVE, &["t1".into(), 7.into()]).await?;
                    Err(Refusal::Exhausted(7))
                })
            })
            .await;
        assert!(matches!(result, Err(Refusal::Exhausted(7))), "{result:?}");
        assert_eq!(uses(&store).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_failed_statement_ends_the_transaction_whatever_the_work_says() {
    on_both(async |store| {
        one_counter(&store).await;
        let result: Result<(), StoreError> = store
            .transact("test.swallow", (), |tx, ()| {
                Box::pin(async move {
                    tx.execute(SAVE, &["t1".into(), 7.into()]).await?;
                    let twice = tx.execute(ADD, &["t1".into(), 0.into(), None::<&str>.into()]).await;
                    assert!(matches!(twice, Err(StoreError::Unique(_))), "{twice:?}");
                    let after = tx.execute(SAVE, &["t1".into(), 8.into()]).await;
                    assert!(matches!(after, Err(StoreError::Unique(_))), "{after:?}");
                    Ok(())
                })
            })
            .await;
        assert!(matches!(result, Err(StoreError::Unique(_))), "{result:?}");
        assert_eq!(uses(&store).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_race_is_tried_again_and_counted() {
    on_both(async |store| {
        one_counter(&store).await;
        let tries = AtomicU32::new(0);
        let result: Result<u32, StoreError> = store
            .transact("test.race", &tries, |tx, tries| {
                Box::pin(async move {
                    tx.execute(SAVE, &["t1".into(), 3.into()]).await?;
                    match tries.fetch_add(1, Ordering::Relaxed) {
                        0 | 1 => Err(StoreError::Race),
                        third => Ok(third),
                    }
                })
            })
            .await;
        assert_eq!(result.unwrap(), 2);
        assert_eq!(store.retries().race.load(Ordering::Relaxed), 2);

        let tries = AtomicU32::new(0);
        let result: Result<(), StoreError> = store
            .transact("test.race", &tries, |_, tries| {
                Box::pin(async move {
                    tries.fetch_add(1, Ordering::Relaxed);
                    Err(StoreError::Race)
                })
            })
            .await;
        assert!(matches!(result, Err(StoreError::Race)));
        assert_eq!(tries.load(Ordering::Relaxed), 11, "one try and ten retries");
        assert_eq!(
            store.retries().by_reason(),
            [("busy", 0), ("serialization", 0), ("race", 12), ("batch_lost", 0)]
        );
    })
    .await;
}

#[tokio::test]
async fn a_reader_can_not_write() {
    on_both(async |store| {
        one_counter(&store).await;
        let result: Result<u64, StoreError> = store
            .read("test.write", (), |tx, ()| {
                Box::pin(async move { tx.execute(SAVE, &["t1".into(), 9.into()]).await })
            })
            .await;
        assert!(result.is_err());
        assert_eq!(uses(&store).await, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn four_readers_at_once_see_what_is_committed_beside_a_writer() {
    on_both(async |store| {
        one_counter(&store).await;
        let gate = tokio::sync::Barrier::new(5);
        let write = store.transact("test.write", &gate, |tx, gate| {
            Box::pin(async move {
                tx.execute(SAVE, &["t1".into(), 5.into()]).await?;
                gate.wait().await;
                gate.wait().await;
                Ok::<(), StoreError>(())
            })
        });
        let read = || {
            store.read("test.read", &gate, |tx, gate| {
                Box::pin(async move {
                    gate.wait().await;
                    let seen = tx.fetch_one(LOAD, &["t1".into()]).await?.integer("uses");
                    gate.wait().await;
                    seen
                })
            })
        };
        let all = async { tokio::join!(write, read(), read(), read(), read()) };
        let (written, a, b, c, d) = tokio::time::timeout(std::time::Duration::from_secs(20), all)
            .await
            .expect("none waits for another");
        written.unwrap();
        for seen in [a, b, c, d] {
            assert_eq!(seen.unwrap(), 0);
        }
        assert_eq!(uses(&store).await, 5);
    })
    .await;
}

#[tokio::test]
async fn a_closed_store_refuses() {
    on_both(async |store| {
        one_counter(&store).await;
        store.ping().await.expect("it answers");
        store.close().await;
        assert!(matches!(store.ping().await, Err(StoreError::Unreachable(_))));
        let result = store.transact("test.late", (), |tx, ()| Box::pin(consume(tx, "t1", 10))).await;
        assert!(matches!(result, Err(Refusal::Store(StoreError::Unreachable(_)))), "{result:?}");
    })
    .await;
}

#[tokio::test]
async fn what_can_not_be_reached_is_told_without_its_password() {
    let directory = tempfile::tempdir().unwrap();
    let nowhere = format!("sqlite://{}/absent/relay.db", directory.path().display());
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = closed.local_addr().unwrap().port();
    drop(closed);
    for url in [nowhere, format!("postgres://relay:hunter2@127.0.0.1:{port}/relay")] {
        let error = Store::open(&url).await.err().expect("there is none");
        // A folder that is not there comes by no waiting.
        let is_file = url.starts_with("sqlite");
        assert!(matches!(error, StoreError::File(_)) == is_file, "{error:?}");
        assert!(matches!(error, StoreError::Unreachable(_)) != is_file, "{error:?}");
        let source = chain(&error);
        assert!(!source.contains("hunter2"), "{source}");
        assert!(
            source.contains("Connection refused") || source.contains("No such file or directory"),
            "the reason is chained: {source}"
        );
    }
}

#[tokio::test]
async fn sqlite_is_for_its_owner_only_and_syncs_every_commit() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("odd %3f name?.db");
    let url = format!("sqlite://{}", path.display());
    let store = Store::open(&url).await.unwrap();
    one_counter(&store).await;
    for suffix in ["", "-wal", "-shm"] {
        let file = format!("{}{suffix}", path.display());
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{file}");
    }
    for (pragma, column, value) in [
        ("PRAGMA synchronous", "synchronous", 2),
        ("PRAGMA temp_store", "temp_store", 2),
        ("PRAGMA foreign_keys", "foreign_keys", 1),
        ("PRAGMA busy_timeout", "timeout", 5000),
    ] {
        let found: Result<i64, StoreError> = store
            .transact("test.pragma", (pragma, column), |tx, (pragma, column)| {
                Box::pin(async move { tx.fetch_one(pragma, &[]).await?.integer(column) })
            })
            .await;
        assert_eq!(found.unwrap(), value, "{pragma}");
    }
    store.close().await;
    let again = Store::open(&url).await.unwrap();
    assert_eq!(uses(&again).await, 0);
    again.close().await;
}

#[tokio::test]
async fn every_statement_is_one_that_both_databases_can_run() {
    on_both_migrated(async |store| {
        let mut connection = store.inner.pool.acquire().await.unwrap();
        for sql in statements() {
            if let Err(error) =
                sqlx::Executor::prepare(&mut *connection, sqlx::SqlSafeStr::into_sql_str(sql)).await
            {
                panic!("{:?} can't prepare {sql}: {error}", store.inner.dialect);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_glance_is_one_select() {
    on_both(async |store| {
        one_counter(&store).await;
        let seen: Result<i64, StoreError> = store
            .glance("test.glance", (), |tx, ()| {
                Box::pin(async move { tx.fetch_one(LOAD, &["t1".into()]).await?.integer("uses") })
            })
            .await;
        assert_eq!(seen.unwrap(), 0);
        let twice: Result<(), StoreError> = store
            .glance("test.glance", (), |tx, ()| {
                Box::pin(async move {
                    tx.fetch_one(LOAD, &["t1".into()]).await?;
                    tx.fetch_one(LOAD, &["t1".into()]).await.map(drop)
                })
            })
            .await;
        assert!(matches!(twice, Err(StoreError::Other(_))), "{twice:?}");
        let change: Result<u64, StoreError> = store
            .glance("test.glance", (), |tx, ()| {
                Box::pin(async move { tx.execute(SAVE, &["t1".into(), 5.into()]).await })
            })
            .await;
        assert!(matches!(change, Err(StoreError::Other(_))), "{change:?}");
        assert_eq!(uses(&store).await, 0);
    })
    .await;
}

#[tokio::test]
async fn a_full_store_says_so_until_there_is_room_and_not_only_until_something_fits() {
    on_sqlite(async |store| {
        store.migrate().await.unwrap();
        one_counter(&store).await;
        let run = async |sql: &'static str, note: Option<String>| -> Result<(), StoreError> {
            let run = store.transact("test", (sql, note), |tx, (sql, note)| {
                Box::pin(async move {
                    let values: Vec<Value<'_>> = note.iter().map(|note| note.as_str().into()).collect();
                    tx.execute(sql, &values).await.map(drop)
                })
            });
            run.await
        };
        run("PRAGMA max_page_count = 1", None).await.unwrap();
        store.seek_space().await.unwrap();
        store.ready().await.unwrap();
        let large = Some("x".repeat(1 << 20));
        let full = run("UPDATE counters SET note = $1", large.clone()).await;
        assert!(matches!(full, Err(StoreError::Full(_))), "{full:?}");
        run("UPDATE counters SET note = $1", Some("small".into())).await.unwrap();
        assert!(matches!(store.ready().await, Err(StoreError::Full(_))));
        assert!(matches!(store.seek_space().await, Err(StoreError::Full(_))));
        assert!(store.is_full());
        run("PRAGMA max_page_count = 1000000", None).await.unwrap();
        store.seek_space().await.unwrap();
        store.ready().await.unwrap();
        let probe = store.read("test", (), |tx, ()| Box::pin(meta::find(tx, meta::Name::SpaceProbe))).await;
        assert!(probe.is_ok_and(|left: Option<String>| left.is_none()), "it leaves nothing behind");
        run("UPDATE counters SET note = $1", large).await.unwrap();
    })
    .await;
}

/// How SQLite finds the rows of a statement, a line each.
async fn plan(store: &Store, sql: &str) -> Vec<String> {
    let mut connection = store.inner.pool.acquire().await.unwrap();
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}"));
    let rows = sqlx::query(explain).persistent(false).fetch_all(&mut *connection).await.unwrap();
    rows.iter().map(|row| sqlx::Row::try_get(row, "detail").unwrap()).collect()
}

#[tokio::test]
async fn what_a_join_asks_of_identities_bans_and_inventory_is_found_by_whole_keys() {
    on_sqlite(async |store| {
        store.migrate().await.unwrap();
        let anchored = inventory::STATEMENTS.iter().filter(|sql| sql.contains("anchor_value = a"));
        for sql in identities::STATEMENTS.iter().filter(|sql| sql.starts_with("SELECT")).chain(anchored) {
            let plan = plan(&store, sql).await;
            // The values that a machine brings are read one by one; tables are not.
            let is_table = |line: &&String| !line.contains("VALUES CLAUSE") && *line != "SCAN a";
            let reads = plan.iter().filter(|line| line.starts_with("SEARCH") || line.starts_with("SCAN"));
            let reads: Vec<_> = reads.filter(is_table).collect();
            assert!(!reads.is_empty(), "{plan:?}: {sql}");
            for line in reads {
                // By the site or pool alone, a join would read all machines that are there.
                let found = ["value=?", "node_id=?", "(id=?"].iter().any(|key| line.contains(key));
                assert!(found, "{line}: {sql}");
            }
        }
    })
    .await;
}
