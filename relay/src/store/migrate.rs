//! The schema's versions: `relay/migrations/NNNN_*.sql`, in order, each in one transaction with its record.
//!
//! The files are SQL that both databases read the same, but for the column type `ID` (text ordered by bytes), which
//! is replaced here. A statement ends with `;` at the end of a line; a comment has a line of its own.

use super::{Store, error::StoreError, tx::Tx};

/// One version of the schema.
pub(super) struct Migration {
    /// From 1, without gaps.
    version: i64,
    name: &'static str,
    sql: &'static str,
}

/// All versions, in order. Only ever appended to.
pub(super) const MIGRATIONS: &[Migration] = &[
    Migration {
        version: 1,
        name: "0001_foundation",
        sql: include_str!("../../migrations/0001_foundation.sql"),
    },
    Migration {
        version: 2,
        name: "0002_attestation",
        sql: include_str!("../../migrations/0002_attestation.sql"),
    },
    Migration {
        version: 3,
        name: "0003_suspended",
        sql: include_str!("../../migrations/0003_suspended.sql"),
    },
    Migration {
        version: 4,
        name: "0004_request_incumbents",
        sql: include_str!("../../migrations/0004_request_incumbents.sql"),
    },
    Migration { version: 5, name: "0005_vouched", sql: include_str!("../../migrations/0005_vouched.sql") },
    Migration { version: 6, name: "0006_leases", sql: include_str!("../../migrations/0006_leases.sql") },
    Migration { version: 7, name: "0007_access", sql: include_str!("../../migrations/0007_access.sql") },
    Migration {
        version: 8,
        name: "0008_event_numbers",
        sql: include_str!("../../migrations/0008_event_numbers.sql"),
    },
    Migration { version: 9, name: "0009_audit", sql: include_str!("../../migrations/0009_audit.sql") },
    Migration { version: 10, name: "0010_logins", sql: include_str!("../../migrations/0010_logins.sql") },
    Migration { version: 11, name: "0011_tasks", sql: include_str!("../../migrations/0011_tasks.sql") },
    Migration { version: 12, name: "0012_webhooks", sql: include_str!("../../migrations/0012_webhooks.sql") },
    Migration {
        version: 13,
        name: "0013_device_logins",
        sql: include_str!("../../migrations/0013_device_logins.sql"),
    },
    Migration {
        version: 14,
        name: "0014_audit_marks",
        sql: include_str!("../../migrations/0014_audit_marks.sql"),
    },
    Migration { version: 15, name: "0015_chains", sql: include_str!("../../migrations/0015_chains.sql") },
    Migration { version: 16, name: "0016_metal", sql: include_str!("../../migrations/0016_metal.sql") },
    Migration { version: 17, name: "0017_rotation", sql: include_str!("../../migrations/0017_rotation.sql") },
];

/// What a migration did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The database's version before; 0 if it was empty.
    pub from: i64,
    /// Its version now.
    pub to: i64,
}

const CREATE_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT PRIMARY KEY, name TEXT NOT NULL)";
const VERSION: &str = "SELECT CAST(COALESCE(MAX(version), 0) AS BIGINT) AS version FROM schema_version";
const RECORD: &str = "INSERT INTO schema_version (version, name) VALUES ($1, $2)";

/// What the test of all statements prepares.
pub(super) const STATEMENTS: &[&str] = &[VERSION, RECORD];

/// Brings the database to the last of `migrations`. Several relays may do so at once.
pub(super) async fn migrate(store: &Store, migrations: &[Migration]) -> Result<Applied, StoreError> {
    let known = migrations.last().map_or(0, |last| last.version);
    let from = store.transact("store.schemaVersion", known, |tx, known| Box::pin(read(tx, *known))).await?;
    for migration in migrations {
        store.transact("store.migrate", migration, |tx, migration| Box::pin(apply(tx, migration))).await?;
    }
    Ok(Applied { from, to: known })
}

/// What [`migrate`] would do, by reading alone.
pub(super) async fn pending(store: &Store, migrations: &[Migration]) -> Result<Applied, StoreError> {
    let known = migrations.last().map_or(0, |last| last.version);
    let from = store.read("store.schemaVersion", known, |tx, known| Box::pin(found(tx, *known))).await?;
    Ok(Applied { from, to: known })
}

async fn read(tx: &mut Tx<'_>, known: i64) -> Result<i64, StoreError> {
    lock(tx).await?;
    for statement in tx.dialect().quietly() {
        tx.execute(statement, &[]).await?;
    }
    tx.execute(CREATE_TABLE, &[]).await?;
    found(tx, known).await
}

async fn found(tx: &mut Tx<'_>, known: i64) -> Result<i64, StoreError> {
    let found = tx.fetch_one(VERSION, &[]).await?.integer("version")?;
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    Ok(found)
}

async fn apply(tx: &mut Tx<'_>, migration: &Migration) -> Result<(), StoreError> {
    lock(tx).await?;
    if tx.fetch_one(VERSION, &[]).await?.integer("version")? >= migration.version {
        return Ok(());
    }
    for statement in statements(migration.sql, tx.dialect().id_type()) {
        tx.define(statement).await?;
    }
    tx.execute(RECORD, &[migration.version.into(), migration.name.into()]).await?;
    Ok(())
}

async fn lock(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    for statement in tx.dialect().migration_lock() {
        tx.execute(statement, &[]).await?;
    }
    Ok(())
}

fn statements(sql: &str, id_type: &str) -> Vec<String> {
    let lines = sql.lines().map(str::trim_end).filter(|line| !line.trim_start().starts_with("--"));
    let mut statements = vec![String::new()];
    for line in lines {
        let (line, ends) = line.strip_suffix(';').map_or((line, false), |line| (line, true));
        if let Some(statement) = statements.last_mut() {
            statement.push_str(&with_id_type(line, id_type));
            statement.push('\n');
        }
        if ends {
            statements.push(String::new());
        }
    }
    statements.retain(|statement| !statement.trim().is_empty());
    statements
}

/// Replaces the word `ID`, in capitals; column names are in small letters.
fn with_id_type(line: &str, id_type: &str) -> String {
    let words = line.split_inclusive(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words
        .map(|word| match word.strip_prefix("ID") {
            Some(rest)
                if !rest.starts_with(|letter: char| letter.is_ascii_alphanumeric() || letter == '_') =>
            {
                format!("{id_type}{rest}")
            }
            _ => word.to_owned(),
        })
        .collect()
}

#[cfg(test)]
mod tests;
