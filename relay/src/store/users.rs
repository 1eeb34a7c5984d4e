//! The table `users`: people that have logged in, and services. A user is never removed: records name it.

use super::{Row, StoreError, Tx};
use shared::api::users::User;

const FIND: &str =
    "SELECT id, issuer, display_name, service, created_at, created_by FROM users WHERE id = $1";
const KNOWN: &str = "SELECT id, issuer, display_name, service, created_at, created_by FROM users \
    WHERE issuer = $1 AND issuer_subject = $2";
const PAGE: &str = "SELECT id, issuer, display_name, service, created_at, created_by FROM users \
    WHERE id > $1 ORDER BY id LIMIT $2";
const INSERT: &str = "INSERT INTO users (id, issuer, issuer_subject, display_name, service, created_at, created_by) \
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING";

const RENAME: &str = "UPDATE users SET display_name = $2 WHERE id = $1";

pub(super) const STATEMENTS: &[&str] = &[FIND, KNOWN, PAGE, INSERT, RENAME];

/// The issuer of services: this relay.
const SERVICES: &str = "relay";

/// The user of this id.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &str) -> Result<Option<User>, StoreError> {
    tx.fetch_optional(FIND, &[id.into()]).await?.map(|row| user(&row)).transpose()
}

/// The user whom an identity provider knows as `subject`.
///
/// # Errors
/// The store's.
pub async fn known(tx: &mut Tx<'_>, issuer: &str, subject: &str) -> Result<Option<User>, StoreError> {
    tx.fetch_optional(KNOWN, &[issuer.into(), subject.into()]).await?.map(|row| user(&row)).transpose()
}

/// At most `limit` users behind `after`, in order of id.
///
/// # Errors
/// The store's.
pub async fn page(tx: &mut Tx<'_>, after: &str, limit: i64) -> Result<Vec<User>, StoreError> {
    tx.fetch_all(PAGE, &[after.into(), limit.into()]).await?.iter().map(user).collect()
}

/// Writes a new user, known to its issuer as `subject` (a service by its id); `false` if either is taken.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &User, subject: &str) -> Result<bool, StoreError> {
    let row = [
        (&new.user_id).into(),
        new.issuer.as_deref().unwrap_or(SERVICES).into(),
        subject.into(),
        (&new.display_name).into(),
        new.service.into(),
        new.created_at.into(),
        (&new.created_by).into(),
    ];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// Writes a user's name for people.
///
/// # Errors
/// The store's.
pub async fn rename(tx: &mut Tx<'_>, id: &str, display_name: &str) -> Result<(), StoreError> {
    tx.execute(RENAME, &[id.into(), display_name.into()]).await.map(drop)
}

fn user(row: &Row) -> Result<User, StoreError> {
    let service = row.flag("service")?;
    Ok(User {
        user_id: row.text("id")?,
        display_name: row.text("display_name")?,
        service,
        issuer: if service { None } else { row.maybe_text("issuer")? },
        created_at: row.time("created_at")?,
        created_by: row.text("created_by")?,
    })
}
