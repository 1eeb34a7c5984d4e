//! The table `logins`: what a provider has vouched for, until the program that began it takes it. Taking removes the
//! row, so that a code is good once, whichever relay is asked.

use super::{Row, StoreError, Tx};
use crate::facts::Vouched;
use shared::{api::access::AdminRole, time::Timestamp, token::SecretDigest};

const INSERT: &str = "INSERT INTO logins (code_sha256, challenge, issuer, issuer_subject, login, display_name, admin_role, \
    logged_in_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const TAKE: &str = "DELETE FROM logins WHERE code_sha256 = $1 \
    RETURNING challenge, issuer, issuer_subject, login, display_name, admin_role, logged_in_at, expires_at";
const FORGET: &str = "DELETE FROM logins WHERE code_sha256 IN \
    (SELECT code_sha256 FROM logins WHERE expires_at < $1 LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[INSERT, TAKE, FORGET];

/// A login that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Login {
    /// S256 of what its program knows.
    pub challenge: String,
    /// Who logged in.
    pub who: Vouched,
    /// The admin role that was asked for.
    pub admin_role: Option<AdminRole>,
    /// When the provider vouched.
    pub logged_in_at: Timestamp,
    /// Until when it waits.
    pub expires_at: Timestamp,
}

/// Writes a login under its code's digest.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, code: SecretDigest, new: &Login) -> Result<(), StoreError> {
    let digest = code.to_hex();
    let row = [
        digest.as_str().into(),
        (&new.challenge).into(),
        (&new.who.issuer).into(),
        (&new.who.subject).into(),
        (&new.who.login).into(),
        (&new.who.display_name).into(),
        new.admin_role.map(AdminRole::as_str).into(),
        new.logged_in_at.into(),
        new.expires_at.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Takes a login, by its code's digest; it is gone then.
///
/// # Errors
/// The store's.
pub async fn take(tx: &mut Tx<'_>, code: SecretDigest) -> Result<Option<Login>, StoreError> {
    let digest = code.to_hex();
    tx.fetch_optional(TAKE, &[digest.as_str().into()]).await?.map(|row| login(&row)).transpose()
}

/// Forgets at most `most` logins that ended before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn login(row: &Row) -> Result<Login, StoreError> {
    Ok(Login {
        challenge: row.text("challenge")?,
        who: Vouched {
            issuer: row.text("issuer")?,
            subject: row.text("issuer_subject")?,
            login: row.text("login")?,
            display_name: row.text("display_name")?,
        },
        admin_role: row.maybe_word("admin_role")?,
        logged_in_at: row.time("logged_in_at")?,
        expires_at: row.time("expires_at")?,
    })
}
