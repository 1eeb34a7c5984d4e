//! The only file that knows which database it is: session settings, the start of a transaction, row locks, column
//! types, and what the drivers' errors mean.
//!
//! Everything else is SQL that both read the same. No statement of a table family belongs here.

use super::error::{Fault, StoreError};
use sqlx::{
    AnyConnection, AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _, SqlSafeStr as _, SqlStr,
    any::{AnyConnectOptions, AnyPoolOptions},
    error::DatabaseError,
};
use std::{borrow::Cow, path::Path, time::Duration};

/// The databases there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Embedded, in one file, with one writer.
    Sqlite,
    /// A server, shared by several relays.
    Postgres,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The one connection that writes, where there is one: SQLite.
    Writer,
    /// A connection of the pool: SQLite's readers, all of PostgreSQL's.
    Pooled,
}

/// SQLite's side of the shared commit, see `writer`. IMMEDIATE, because a transaction that only asks for the write
/// lock at its first write fails at once if another has written since it read.
pub(super) const WRITER_BEGIN: &str = "BEGIN IMMEDIATE";
/// Ends the shared transaction well.
pub(super) const WRITER_COMMIT: &str = "COMMIT";
/// Ends the shared transaction without a trace.
pub(super) const WRITER_ROLLBACK: &str = "ROLLBACK";
/// Fails while a transaction is open.
pub(super) const WRITER_IS_IDLE: &str = "BEGIN; ROLLBACK";
/// Begins one member of it.
pub(super) const MEMBER_BEGIN: &str = "SAVEPOINT member";
/// Keeps what the member did. Fails if SQLite itself has ended the transaction.
pub(super) const MEMBER_KEEP: &str = "RELEASE member";
/// Undoes what the member did. Fails if SQLite itself has ended the transaction.
pub(super) const MEMBER_UNDO: &str = "ROLLBACK TO member; RELEASE member";

/// SQLite's copy of one committed state into a file, beside writers.
pub(super) const COPY_INTO: &str = "VACUUM INTO $1";

const SQLITE_READERS: u32 = 4;
const POSTGRES_CONNECTIONS: u32 = 16;
const LONGEST_WAIT_FOR_CONNECTION: Duration = Duration::from_secs(5);
/// A pooled connection that rested longer than this is tried before it is used.
const TRUSTED_WHILE_IDLE: Duration = Duration::from_secs(1);

// FULL syncs the log at every commit: an answered change survives a power cut. In memory, not in a file below /var/tmp:
// what a savepoint would undo, which is rows as they were. A shared commit fits into 8 MiB of pages; a log of 16 MiB
// is copied into the database at a time.
const SQLITE_WRITER_SETTINGS: &[&str] = &[
    "PRAGMA busy_timeout = 5000",
    "PRAGMA journal_mode = WAL",
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA temp_store = MEMORY",
    "PRAGMA cache_size = -8192",
    "PRAGMA wal_autocheckpoint = 4000",
];
const SQLITE_READER_SETTINGS: &[&str] =
    &["PRAGMA busy_timeout = 5000", "PRAGMA query_only = ON", "PRAGMA temp_store = MEMORY"];
// Every wait has an end. A server that answers before its log is on disk would break what `transact` promises;
// stronger settings than `on` stay.
const POSTGRES_SETTINGS: &[&str] = &[
    "SET lock_timeout = '5s'",
    "SET statement_timeout = '30s'",
    "SET idle_in_transaction_session_timeout = '60s'",
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'",
];
// Held to the end of the transaction; the number is "relay" in ASCII.
const POSTGRES_MIGRATION_LOCK: &[&str] = &[
    "SET LOCAL lock_timeout = 0",
    "SET LOCAL statement_timeout = 0",
    "SELECT pg_advisory_xact_lock(491260666233)",
];

/// A database's address, understood.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) dialect: Dialect,
    options: AnyConnectOptions,
    /// SQLite's file.
    file: Option<String>,
}

impl Address {
    /// Reads `sqlite://PATH` (PATH is taken literally) or `postgres://…`.
    pub(super) fn parse(url: &str) -> Result<Self, StoreError> {
        sqlx::any::install_default_drivers();
        if let Some(path) = url.strip_prefix("sqlite://") {
            return Self::of_file(path);
        }
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(bad_url("has an unknown scheme"));
        }
        let options: AnyConnectOptions = url.parse().map_err(|_| bad_url("can't be read"))?;
        Ok(Self { dialect: Dialect::Postgres, options: options.disable_statement_logging(), file: None })
    }

    fn of_file(path: &str) -> Result<Self, StoreError> {
        if path.is_empty() || path.starts_with(':') || path.ends_with('/') {
            return Err(bad_url("names no file"));
        }
        let absolute = std::path::absolute(path).map_err(|_| bad_url("names no file"))?;
        let absolute = absolute.to_str().ok_or_else(|| bad_url("is not UTF-8"))?.to_owned();
        let url = format!("sqlite://{}", percent_encode(&absolute));
        let options: AnyConnectOptions = url.parse().map_err(|_| bad_url("can't be read"))?;
        Ok(Self {
            dialect: Dialect::Sqlite,
            options: options.disable_statement_logging(),
            file: Some(absolute),
        })
    }

    /// SQLite's file.
    pub(super) fn file(&self) -> Option<&Path> {
        self.file.as_deref().map(Path::new)
    }

    /// One connection outside of any pool.
    pub(super) async fn connect(&self, role: Role) -> Result<AnyConnection, StoreError> {
        let classify = |error| self.dialect.classify(error);
        let mut connection = AnyConnection::connect_with(&self.options).await.map_err(classify)?;
        self.dialect.set_up(&mut connection, role).await.map_err(classify)?;
        if role == Role::Writer {
            let row =
                sqlx::query("PRAGMA journal_mode").fetch_one(&mut connection).await.map_err(classify)?;
            if row.try_get::<String, _>(0).map_err(classify)? != "wal" {
                let rule = "this file system can't hold SQLite's shared log: use a local disk, or PostgreSQL";
                return Err(StoreError::Unreachable(Fault::new(rule)));
            }
        }
        Ok(connection)
    }

    /// The pool: SQLite's readers, or all connections to PostgreSQL. Fails if the first connection does.
    pub(super) async fn pool(&self) -> Result<sqlx::AnyPool, StoreError> {
        let dialect = self.dialect;
        // The pool would try again until its time is up, and then not say why.
        let probe = self.connect(Role::Pooled).await?;
        probe.close().await.map_err(|error| dialect.classify(error))?;
        let size = match dialect {
            Dialect::Sqlite => SQLITE_READERS,
            Dialect::Postgres => POSTGRES_CONNECTIONS,
        };
        AnyPoolOptions::new()
            .max_connections(size)
            .acquire_timeout(LONGEST_WAIT_FOR_CONNECTION)
            .test_before_acquire(false)
            .before_acquire(move |connection, use_so_far| {
                Box::pin(async move {
                    if dialect == Dialect::Postgres && use_so_far.idle_for > TRUSTED_WHILE_IDLE {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .after_connect(move |connection, _| {
                Box::pin(async move { dialect.set_up(connection, Role::Pooled).await })
            })
            .connect_with(self.options.clone())
            .await
            .map_err(|error| dialect.classify(error))
    }
}

impl super::Store {
    /// Whether this is the embedded database, which one relay has for itself.
    #[must_use]
    pub fn is_sqlite(&self) -> bool {
        self.inner.dialect == Dialect::Sqlite
    }
}

impl Dialect {
    /// Whether all writes go through one connection, which shares its commits.
    pub(super) fn has_one_writer(self) -> bool {
        self == Self::Sqlite
    }

    /// Starts a transaction that writes, on a pooled connection.
    pub(super) fn begin(self) -> &'static str {
        match self {
            Self::Sqlite => WRITER_BEGIN,
            Self::Postgres => "BEGIN",
        }
    }

    /// Starts a transaction that sees one state of the database and can't write.
    pub(super) fn begin_read(self) -> &'static str {
        match self {
            Self::Sqlite => "BEGIN",
            Self::Postgres => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
        }
    }

    /// The SELECT that also locks its rows until the transaction ends. SQLite's one writer needs no lock.
    pub(super) fn locking(self, select: &'static str) -> SqlStr {
        match self {
            Self::Sqlite => select.into_sql_str(),
            Self::Postgres => AssertSqlSafe(format!("{select} FOR UPDATE")).into_sql_str(),
        }
    }

    /// The SELECT that also locks its rows until the transaction ends, and leaves out those that another has locked.
    /// SQLite's one writer has them all.
    pub(super) fn locking_free(self, select: &'static str) -> SqlStr {
        match self {
            Self::Sqlite => select.into_sql_str(),
            Self::Postgres => AssertSqlSafe(format!("{select} FOR UPDATE SKIP LOCKED")).into_sql_str(),
        }
    }

    /// The type of an `ID` column, compared and ordered by bytes.
    pub(super) fn id_type(self) -> &'static str {
        match self {
            Self::Sqlite => "TEXT",
            Self::Postgres => "TEXT COLLATE \"C\"",
        }
    }

    /// What a transaction runs before it makes a table that may be there: that this one is, is nothing to log.
    pub(super) fn quietly(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &[],
            Self::Postgres => &["SET LOCAL client_min_messages = warning"],
        }
    }

    /// The time by the database's clock, in milliseconds since 1970, at the moment of the statement.
    pub(super) fn time(self) -> &'static str {
        match self {
            Self::Sqlite => "SELECT CAST(ROUND(unixepoch('subsec') * 1000) AS BIGINT) AS now",
            Self::Postgres => {
                "SELECT CAST(FLOOR(EXTRACT(EPOCH FROM clock_timestamp()) * 1000) AS BIGINT) AS now"
            }
        }
    }

    /// What a transaction runs first so that it is the only one that migrates.
    pub(super) fn migration_lock(self) -> &'static [&'static str] {
        match self {
            Self::Sqlite => &[],
            Self::Postgres => POSTGRES_MIGRATION_LOCK,
        }
    }

    /// What the driver's error means. Nothing of it goes on that may hold a value.
    pub(super) fn classify(self, error: sqlx::Error) -> StoreError {
        match error {
            sqlx::Error::Database(database) => self.classify_database(database.as_ref()),
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::PoolClosed => {
                StoreError::Unreachable(Fault::of_connection("the connection failed", error))
            }
            sqlx::Error::PoolTimedOut => {
                StoreError::Unreachable(Fault::new("no connection could be had within 5 seconds"))
            }
            sqlx::Error::Protocol(_) | sqlx::Error::BeginFailed => {
                StoreError::Unreachable(Fault::new("the connection is in a state that can't be"))
            }
            sqlx::Error::Configuration(_) => bad_url("can't be used as it is"),
            sqlx::Error::RowNotFound => StoreError::Other(Fault::new("no row, where there must be one")),
            sqlx::Error::AnyDriverError(_) => {
                StoreError::Other(Fault::new("a column has a type that is neither text nor a 64-bit integer"))
            }
            _ => StoreError::Other(Fault::new("the driver could not read or write a value")),
        }
    }

    fn classify_database(self, error: &dyn DatabaseError) -> StoreError {
        let code = error.code().unwrap_or(Cow::Borrowed("none"));
        match self {
            Self::Sqlite => classify_sqlite(&code, Fault::new(format!("SQLite {code}: {}", error.message()))),
            Self::Postgres => classify_postgres(&code, postgres_fault(&code, error)),
        }
    }

    async fn set_up(self, connection: &mut AnyConnection, role: Role) -> Result<(), sqlx::Error> {
        let settings = match (self, role) {
            (Self::Sqlite, Role::Writer) => SQLITE_WRITER_SETTINGS,
            (Self::Sqlite, Role::Pooled) => SQLITE_READER_SETTINGS,
            (Self::Postgres, _) => POSTGRES_SETTINGS,
        };
        for setting in settings {
            sqlx::query(*setting).execute(&mut *connection).await?;
        }
        Ok(())
    }
}

/// <https://www.sqlite.org/rescode.html>: the low byte is the primary code, the whole is the extended one.
fn classify_sqlite(code: &str, fault: Fault) -> StoreError {
    const BUSY: i32 = 5;
    const LOCKED: i32 = 6;
    const READONLY: i32 = 8;
    const IOERR: i32 = 10;
    const FULL: i32 = 13;
    const CANTOPEN: i32 = 14;
    const CONSTRAINT_PRIMARYKEY: i32 = 1555;
    const CONSTRAINT_UNIQUE: i32 = 2067;
    let extended = code.parse::<i32>().unwrap_or(0);
    match (extended, extended & 0xff) {
        (CONSTRAINT_PRIMARYKEY | CONSTRAINT_UNIQUE, _) => StoreError::Unique(fault),
        (_, BUSY | LOCKED) => StoreError::Busy(fault),
        (_, FULL) => StoreError::Full(fault),
        (_, READONLY | IOERR | CANTOPEN) => StoreError::Unreachable(fault),
        _ => StoreError::Other(fault),
    }
}

/// <https://www.postgresql.org/docs/current/errcodes-appendix.html>
fn classify_postgres(code: &str, fault: Fault) -> StoreError {
    match code {
        "40001" | "40P01" => StoreError::Serialization(fault),
        "55P03" => StoreError::Busy(fault),
        "23505" => StoreError::Unique(fault),
        "53100" => StoreError::Full(fault),
        // Connection exceptions, resources, a server that stops, starts or cuts us off; no login, no database.
        "25P03" | "3D000" => StoreError::Unreachable(fault),
        _ if ["08", "28", "53", "57"].iter().any(|class| code.starts_with(class)) => {
            StoreError::Unreachable(fault)
        }
        _ => StoreError::Other(fault),
    }
}

/// PostgreSQL's messages of class 22 (data exceptions) quote the value, as its details do everywhere.
fn postgres_fault(code: &str, error: &dyn DatabaseError) -> Fault {
    if code.starts_with("22") {
        return Fault::new(format!(
            "PostgreSQL {code}: a value does not fit (the message may hold it: not shown)"
        ));
    }
    Fault::new(format!("PostgreSQL {code}: {}", error.message()))
}

fn bad_url(rule: &str) -> StoreError {
    StoreError::Url(format!("{rule}; it must be sqlite:///path/to/file or postgres://user@host/database"))
}

/// For the path of a URL: what would end it or be decoded.
fn percent_encode(path: &str) -> String {
    path.replace('%', "%25").replace('?', "%3F").replace('#', "%23").replace('\\', "%5C")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(error: &StoreError) -> String {
        format!("{error:?}").split(['(', ' ']).next().unwrap_or_default().to_owned()
    }

    #[test]
    fn sqlite_codes_have_their_kinds() {
        for (code, kind) in [
            ("5", "Busy"),
            ("517", "Busy"),
            ("6", "Busy"),
            ("262", "Busy"),
            ("13", "Full"),
            ("1555", "Unique"),
            ("2067", "Unique"),
            ("787", "Other"),
            ("1299", "Other"),
            ("1", "Other"),
            ("11", "Other"),
            ("14", "Unreachable"),
            ("1034", "Unreachable"),
            ("none", "Other"),
        ] {
            assert_eq!(name(&classify_sqlite(code, Fault::new("x"))), kind, "code {code}");
        }
    }

    #[test]
    fn postgres_codes_have_their_kinds() {
        for (code, kind) in [
            ("40001", "Serialization"),
            ("40P01", "Serialization"),
            ("55P03", "Busy"),
            ("23505", "Unique"),
            ("23503", "Other"),
            ("53100", "Full"),
            ("53300", "Unreachable"),
            ("57P01", "Unreachable"),
            ("57P03", "Unreachable"),
            ("57014", "Unreachable"),
            ("08006", "Unreachable"),
            ("28P01", "Unreachable"),
            ("3D000", "Unreachable"),
            ("25P03", "Unreachable"),
            ("25006", "Other"),
            ("42P01", "Other"),
        ] {
            assert_eq!(name(&classify_postgres(code, Fault::new("x"))), kind, "code {code}");
        }
    }

    #[test]
    fn addresses_are_understood_or_refused_without_being_quoted() {
        for url in [
            "",
            "mysql://a/b",
            "sqlite://",
            "sqlite://:memory:",
            "sqlite://dir/",
            "postgres://u:hunter2@[::/x",
        ] {
            let error = Address::parse(url).expect_err(url);
            assert!(matches!(error, StoreError::Url(_)), "{url}: {error:?}");
            assert!(!format!("{error:?} {error}").contains("hunter2"));
        }
        assert_eq!(Address::parse("sqlite:///a b%20?c#d").unwrap().file.as_deref(), Some("/a b%20?c#d"));
        assert_eq!(Address::parse("postgresql://u@h/d").unwrap().dialect, Dialect::Postgres);
    }
}
