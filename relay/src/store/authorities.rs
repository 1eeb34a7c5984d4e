//! The table `authorities`: roots and issuing CAs.

use super::{StoreError, Tx};
use crate::ca::CaRecord;

const ALL: &str = "SELECT id, domain, name, certificate, sealed_key, state, not_before, not_after FROM authorities \
    ORDER BY id";
// Rows that are replaced are no lock for who comes second: one row that always stays is.
const LOCK: &str = "SELECT value FROM meta WHERE name = 'key_check'";
const INSERT: &str = "INSERT INTO authorities (id, domain, name, certificate, sealed_key, state, not_before, \
    not_after) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const DELETE_ALL: &str = "DELETE FROM authorities";

pub(super) const STATEMENTS: &[&str] = &[ALL, LOCK, INSERT, DELETE_ALL];

/// Every CA; nobody else changes them before the transaction ends.
///
/// # Errors
/// The store's.
pub async fn lock_all(tx: &mut Tx<'_>) -> Result<Vec<CaRecord>, StoreError> {
    tx.lock_optional(LOCK, &[]).await?;
    all(tx).await
}

/// Every CA.
///
/// # Errors
/// The store's.
pub async fn all(tx: &mut Tx<'_>) -> Result<Vec<CaRecord>, StoreError> {
    read(&tx.fetch_all(ALL, &[]).await?)
}

/// Replaces all CAs by these.
///
/// # Errors
/// The store's.
pub async fn replace(tx: &mut Tx<'_>, records: &[CaRecord]) -> Result<(), StoreError> {
    tx.execute(DELETE_ALL, &[]).await?;
    for record in records {
        let row = [
            (&record.id).into(),
            record.domain.as_str().into(),
            record.name.as_str().into(),
            (&record.certificate_pem).into(),
            (&record.sealed_key).into(),
            record.state.as_str().into(),
            record.not_before.into(),
            record.not_after.into(),
        ];
        tx.execute(INSERT, &row).await?;
    }
    Ok(())
}

fn read(rows: &[super::Row]) -> Result<Vec<CaRecord>, StoreError> {
    let record = |row: &super::Row| {
        Ok(CaRecord {
            id: row.text("id")?,
            domain: row.parsed("domain")?,
            name: row.parsed("name")?,
            certificate_pem: row.text("certificate")?,
            sealed_key: row.maybe_text("sealed_key")?,
            state: row.parsed("state")?,
            not_before: row.time("not_before")?,
            not_after: row.time("not_after")?,
        })
    };
    rows.iter().map(record).collect()
}
