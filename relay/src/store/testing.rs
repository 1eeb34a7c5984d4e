//! Databases for tests: an SQLite file in a directory of its own, and a PostgreSQL database of its own.

use super::Store;
use futures_util::FutureExt as _;
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _};
use std::{
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, resume_unwind},
    pin::pin,
    sync::atomic::{AtomicU32, Ordering},
    task::Poll,
};

/// Names the variable with the URL of a PostgreSQL server whose user may create databases.
const SERVER: &str = "TEST_POSTGRES_URL";

/// Runs `test` on an empty SQLite database, then on an empty PostgreSQL one.
pub(crate) async fn on_both(test: impl AsyncFn(Store)) {
    on_sqlite(&test).await;
    on_postgres(&test).await;
}

/// As [`on_both`], with this binary's schema.
pub(crate) async fn on_both_migrated(test: impl AsyncFn(Store)) {
    on_both(async |store| {
        store.migrate().await.expect("the migrations run");
        test(store).await;
    })
    .await;
}

/// Runs a future until it was polled so often, then drops it, as whoever hangs up or is killed does: `None` if it had not
/// ended.
pub(crate) async fn killed_after<T>(polls: usize, work: impl Future<Output = T>) -> Option<T> {
    let mut work = pin!(work);
    let mut left = polls;
    poll_fn(move |context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}

/// Runs `test` on an empty SQLite database.
pub(crate) async fn on_sqlite(test: impl AsyncFn(Store)) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let store = Store::open(&format!("sqlite://{}/relay.db", directory.path().display()))
        .await
        .expect("SQLite opens");
    test(store.clone()).await;
    store.close().await;
}

/// Runs `test` on an empty PostgreSQL database, which is dropped whatever becomes of the test.
pub(crate) async fn on_postgres(test: impl AsyncFn(Store)) {
    on_postgres_url(async |url| {
        let store = Store::open(&url).await.expect("PostgreSQL opens");
        test(store.clone()).await;
        store.close().await;
    })
    .await;
}

/// Gives `test` the URL of an empty PostgreSQL database.
pub(crate) async fn on_postgres_url(test: impl AsyncFn(String)) {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let server = std::env::var(SERVER).unwrap_or_else(|_| {
        panic!(
            "{SERVER} is not set: it must be postgres://superuser@host:port/postgres (tests/run starts one)"
        )
    });
    let name = format!("relay_test_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
    on_server(&server, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    on_server(&server, format!("CREATE DATABASE {name}")).await;
    let (base, _) = server.rsplit_once('/').expect("a URL with a database");
    let outcome = AssertUnwindSafe(test(format!("{base}/{name}"))).catch_unwind().await;
    on_server(&server, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")).await;
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
}

async fn on_server(server: &str, sql: String) {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(server).await.expect("the test's PostgreSQL server answers");
    sqlx::query(AssertSqlSafe(sql))
        .persistent(false)
        .execute(&mut connection)
        .await
        .expect("the server obeys");
    connection.close().await.expect("the connection closes");
}
