//! A database of a test's own: a new SQLite file, or a new database on the PostgreSQL that `tests/run` started.

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _, PgConnection};
use std::{
    future::Future,
    path::Path,
    sync::{
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};
use tempfile::TempDir;

/// Where the server of the tests is; set by `tests/run`.
const SERVER: &str = "TEST_POSTGRES_URL";

/// How long a test waits for its database's end.
const DROP_WAIT: Duration = Duration::from_secs(2);

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

/// An empty database. It is gone when this value is.
pub struct Database {
    url: String,
    place: Place,
}

enum Place {
    Folder(TempDir),
    Server { url: String, name: String },
    Elsewhere,
}

impl Database {
    /// A file that does not exist yet, in a folder of its own.
    ///
    /// # Panics
    /// There is no temporary folder.
    #[must_use]
    pub fn sqlite() -> Self {
        let folder =
            tempfile::tempdir().unwrap_or_else(|error| fail(&format!("a temporary folder: {error}")));
        let url = format!("sqlite://{}", folder.path().join("relay.sqlite").display());
        Self { url, place: Place::Folder(folder) }
    }

    /// A file that somebody else makes and keeps.
    #[must_use]
    pub fn file(path: &Path) -> Self {
        Self { url: format!("sqlite://{}", path.display()), place: Place::Elsewhere }
    }

    /// A new database on the server of the tests.
    ///
    /// # Panics
    /// `TEST_POSTGRES_URL` names no server that lets us in.
    #[must_use]
    pub fn postgres() -> Self {
        let server = std::env::var(SERVER).unwrap_or_else(|_| {
            fail("TEST_POSTGRES_URL is not set; use tests/run, or tests/postgres start DIR")
        });
        let name = unused_name();
        execute(&server, vec![drop_database(&name), format!("CREATE DATABASE {name}")])
            .unwrap_or_else(|error| fail(&format!("creating a database at {SERVER}: {error}")));
        let (head, _) = server.rsplit_once('/').unwrap_or_else(|| fail("TEST_POSTGRES_URL has no path"));
        Self { url: format!("{head}/{name}"), place: Place::Server { url: server.clone(), name } }
    }

    /// How the relay is told of it: `sqlite://…` or `postgres://…`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where SQLite keeps its files.
    #[must_use]
    pub fn folder(&self) -> Option<&Path> {
        match &self.place {
            Place::Folder(folder) => Some(folder.path()),
            Place::Server { .. } | Place::Elsewhere => None,
        }
    }

    /// The number that a query answers, seen from outside of any relay: `SELECT COUNT(*) FROM joins`.
    ///
    /// # Panics
    /// It answers none.
    pub async fn number(&self, sql: &str) -> i64 {
        let answered = async {
            let mut connection = self.connect().await?;
            sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await
        };
        answered.await.unwrap_or_else(|error| fail(&format!("{sql}: {error}")))
    }

    /// Runs a statement, from outside of any relay.
    ///
    /// # Panics
    /// The database refuses.
    pub async fn change(&self, sql: &str) {
        let changed = async {
            let mut connection = self.connect().await?;
            connection.execute(AssertSqlSafe(sql.to_owned())).await.map(|_| ())
        };
        changed.await.unwrap_or_else(|error| fail(&format!("{sql}: {error}")));
    }

    /// Every row of every table as text.
    ///
    /// # Panics
    /// It can't be read.
    pub async fn dump(&self) -> String {
        self.rows().await.unwrap_or_else(|error| fail(&format!("reading it all: {error}"))).join("\n")
    }

    async fn rows(&self) -> Result<Vec<String>, sqlx::Error> {
        let mut connection = self.connect().await?;
        let tables = match self.kind() {
            Kind::Sqlite => {
                "SELECT name, (SELECT group_concat('quote(' || name || ')', ' || ') FROM pragma_table_info(t.name)) \
                 FROM sqlite_master t WHERE type = 'table'"
            }
            Kind::Postgres => {
                "SELECT table_name::TEXT, 't::TEXT' FROM information_schema.tables WHERE table_schema = 'public'"
            }
        };
        let tables: Vec<(String, String)> = sqlx::query_as(tables).fetch_all(&mut connection).await?;
        let mut all = Vec::new();
        for (table, columns) in tables {
            let sql = AssertSqlSafe(format!("SELECT {columns} FROM {table} t"));
            let rows: Vec<String> = sqlx::query_scalar(sql).fetch_all(&mut connection).await?;
            all.extend(rows);
        }
        Ok(all)
    }

    async fn connect(&self) -> Result<AnyConnection, sqlx::Error> {
        sqlx::any::install_default_drivers();
        AnyConnection::connect(&self.url).await
    }

    /// Which database it is.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.place {
            Place::Folder(_) | Place::Elsewhere => Kind::Sqlite,
            Place::Server { .. } => Kind::Postgres,
        }
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        match &self.place {
            Place::Folder(folder) => drop(std::fs::remove_dir_all(folder.path())),
            // The server itself goes at the end of the run; a failure here must not hide the test's own.
            Place::Server { url, name } => begin_and_wait(url.clone(), vec![drop_database(name)]),
            Place::Elsewhere => {}
        }
    }
}

fn drop_database(name: &str) -> String {
    format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")
}

/// No other test has it: each runs in a process of its own, or counts on.
fn unused_name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("test_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Runs statements one by one, outside of any transaction.
fn execute(url: &str, statements: Vec<String>) -> Result<(), sqlx::Error> {
    let url = url.to_owned();
    elsewhere(async move {
        let mut connection = PgConnection::connect(&url).await?;
        for statement in statements {
            connection.execute(AssertSqlSafe(statement)).await?;
        }
        connection.close().await
    })
}

/// Runs statements, and waits for them for [`DROP_WAIT`] at most: the server ends them without us. A connection of this
/// process that is half made, and that nobody goes on with while this waits, would hold them up for the minute that the
/// server gives it.
fn begin_and_wait(url: String, statements: Vec<String>) {
    let (ended, end) = mpsc::channel::<()>();
    thread::spawn(move || {
        drop(execute(&url, statements));
        drop(ended);
    });
    let _ = end.recv_timeout(DROP_WAIT);
}

/// Waits for a future on a thread of its own, so that this works inside and outside of a test's runtime.
fn elsewhere<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.unwrap_or_else(|error| fail(&format!("a runtime: {error}"))).block_on(future)
    };
    thread::spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[expect(clippy::panic, reason = "a test without its database fails")]
fn fail(reason: &str) -> ! {
    panic!("no database for this test: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_on_the_server_is_empty_and_gone_at_the_end() {
        let database = Database::postgres();
        let url = database.url().to_owned();
        let create = || vec!["CREATE TABLE t (a TEXT)".to_owned()];
        execute(&url, create()).unwrap();
        assert!(execute(&url, create()).is_err(), "the table was there already");
        execute(Database::postgres().url(), create()).unwrap();
        drop(database);
        assert!(execute(&url, create()).is_err(), "the database is still there");
    }

    #[test]
    fn a_file_is_gone_at_the_end() {
        let database = Database::sqlite();
        assert_eq!(database.kind(), Kind::Sqlite);
        let path = database.url().strip_prefix("sqlite://").unwrap().to_owned();
        std::fs::write(&path, "x").unwrap();
        drop(database);
        assert!(!Path::new(&path).exists());
    }
}
