//! The table `crls`: the revocation list of each issuing CA as it was published last. What it says is derived from the nodes,
//! so that losing it loses nothing.

use super::{StoreError, Tx};
use shared::time::Timestamp;

const FIND: &str = "SELECT number, der, made_at FROM crls WHERE issuer = $1";
const NUMBER: &str = "SELECT number FROM crls WHERE issuer = $1";
const PUT: &str = "INSERT INTO crls (issuer, number, der, made_at) VALUES ($1, $2, $3, $4) \
    ON CONFLICT (issuer) DO UPDATE SET number = excluded.number, der = excluded.der, made_at = excluded.made_at \
    WHERE crls.number = $5";
const FORGET: &str = "DELETE FROM crls WHERE made_at < $1";

pub(super) const STATEMENTS: &[&str] = &[FIND, NUMBER, PUT, FORGET];

/// A list as it was published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    /// Its CRL number (RFC 5280, 5.2.3): each later list of the same CA has a higher one.
    pub number: i64,
    /// The list, DER in base64.
    pub der: String,
    /// When it was made, by the clock of the relay that made it.
    pub made_at: Timestamp,
}

/// The list of an issuing CA.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, issuer: &str) -> Result<Option<Published>, StoreError> {
    let row = tx.fetch_optional(FIND, &[issuer.into()]).await?;
    row.map(|row| {
        Ok(Published { number: row.integer("number")?, der: row.text("der")?, made_at: row.time("made_at")? })
    })
    .transpose()
}

/// The number of the list of an issuing CA; 0 if there is none.
///
/// # Errors
/// The store's.
pub async fn number(tx: &mut Tx<'_>, issuer: &str) -> Result<i64, StoreError> {
    let row = tx.fetch_optional(NUMBER, &[issuer.into()]).await?;
    row.map_or(Ok(0), |row| row.integer("number"))
}

/// Publishes a list in the place of the one of the number `before`; `false`, and nothing is written, if another one came
/// between.
///
/// # Errors
/// The store's.
pub async fn put(tx: &mut Tx<'_>, issuer: &str, list: &Published, before: i64) -> Result<bool, StoreError> {
    let row = [issuer.into(), list.number.into(), (&list.der).into(), list.made_at.into(), before.into()];
    Ok(tx.execute(PUT, &row).await? == 1)
}

/// Forgets lists that were made before `before`: their CAs are gone.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into()]).await
}
