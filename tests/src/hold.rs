//! A statement that does not end: whoever comes to it is in the middle of its transaction for as long as a test wants, so that
//! it can be killed there.
//!
//! It is a trigger of the database. On PostgreSQL it waits for a lock that the test has; on SQLite, where nothing waits, it
//! counts without end.

use crate::{Database, Kind};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _};
use std::time::{Duration, Instant};

/// How long it may take until somebody is held.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// How long a database that nobody else writes to is never locked.
const HELD_SURELY: Duration = Duration::from_millis(1_500);

/// Statements that are held. They are until [`Hold::lift`].
pub struct Hold<'a> {
    database: &'a Database,
    table: &'a str,
    /// On PostgreSQL the session that has the lock.
    connection: AnyConnection,
}

impl<'a> Hold<'a> {
    /// Holds every statement that does `event` (`UPDATE`) to a row of `table`, where `when` holds of it (`NEW.state = 'x'`).
    ///
    /// # Panics
    /// The database does not take the trigger.
    pub async fn on(database: &'a Database, event: &str, table: &'a str, when: &str) -> Self {
        let mut connection = connect(database).await;
        let head = format!("CREATE TRIGGER story_hold BEFORE {event} ON {table} FOR EACH ROW WHEN ({when})");
        let statements = match database.kind() {
            Kind::Sqlite => {
                vec![format!("{head} BEGIN SELECT COUNT(*) FROM {}; END", ["sqlite_master"; 9].join(", "))]
            }
            Kind::Postgres => vec![
                "CREATE FUNCTION story_hold() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
                 WHILE NOT pg_try_advisory_xact_lock(7) LOOP PERFORM pg_sleep(0.02); END LOOP; RETURN NEW; END $$"
                    .to_owned(),
                "SELECT pg_advisory_lock(7)".to_owned(),
                format!("{head} EXECUTE FUNCTION story_hold()"),
            ],
        };
        for statement in statements {
            run(&mut connection, statement).await;
        }
        Self { database, table, connection }
    }

    /// Waits until somebody is held.
    ///
    /// # Panics
    /// Nobody is for half a minute.
    pub async fn wait(&mut self) {
        let started = Instant::now();
        let mut locked_since = None;
        loop {
            assert!(started.elapsed() < LONGEST_WAIT, "nobody comes to the statement on {}", self.table);
            if self.somebody_is_there().await {
                let since = *locked_since.get_or_insert_with(Instant::now);
                if self.database.kind() == Kind::Postgres || since.elapsed() > HELD_SURELY {
                    return;
                }
            } else {
                locked_since = None;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends it. Whoever is held must have been killed: on SQLite it would have the database for itself.
    ///
    /// # Panics
    /// The database does not let it go.
    pub async fn lift(self) {
        // The lock ends with its session.
        drop(self.connection.close().await);
        let mut connection = connect(self.database).await;
        let statement = match self.database.kind() {
            Kind::Sqlite => "DROP TRIGGER story_hold".to_owned(),
            Kind::Postgres => "DROP FUNCTION story_hold CASCADE".to_owned(),
        };
        run(&mut connection, statement).await;
    }

    async fn somebody_is_there(&mut self) -> bool {
        match self.database.kind() {
            Kind::Sqlite => {
                let locked = self.connection.execute("BEGIN IMMEDIATE").await.is_err();
                if !locked {
                    run(&mut self.connection, "ROLLBACK".to_owned()).await;
                }
                locked
            }
            Kind::Postgres => {
                let sleeps = "SELECT COUNT(*) FROM pg_stat_activity \
                    WHERE datname = current_database() AND wait_event = 'PgSleep'";
                self.database.number(sleeps).await > 0
            }
        }
    }
}

#[expect(clippy::panic, reason = "a test without its database fails")]
async fn connect(database: &Database) -> AnyConnection {
    sqlx::any::install_default_drivers();
    let connected = AnyConnection::connect(database.url()).await;
    let mut connection = connected.unwrap_or_else(|error| panic!("a connection: {error}"));
    if database.kind() == Kind::Sqlite {
        run(&mut connection, "PRAGMA busy_timeout = 20".to_owned()).await;
    }
    connection
}

#[expect(clippy::panic, reason = "a test without its database fails")]
async fn run(connection: &mut AnyConnection, statement: String) {
    let shown = statement.clone();
    let started = Instant::now();
    // On SQLite somebody may be writing.
    while let Err(error) = connection.execute(AssertSqlSafe(statement.clone())).await {
        if started.elapsed() > LONGEST_WAIT {
            panic!("{shown}: {error}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
