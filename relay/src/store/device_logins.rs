//! The table `device_logins`: logins that a person confirms on another device, until the provider has decided. Whichever
//! relay is asked goes on with one, and of several that are asked at once one asks the provider.

use super::{Row, StoreError, Tx};
use shared::{time::Timestamp, token::SecretDigest};

const INSERT: &str = "INSERT INTO device_logins (handle_sha256, challenge, device_code, nonce, begun_at, interval_seconds, \
    ask_at, expires_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
const COUNT: &str = "SELECT COUNT(*) AS count FROM device_logins WHERE expires_at > $1";
const FIND: &str = "SELECT challenge, device_code, nonce, begun_at, interval_seconds, ask_at, expires_at FROM device_logins \
    WHERE handle_sha256 = $1";
const WAIT: &str = "UPDATE device_logins SET interval_seconds = $2, ask_at = $3 WHERE handle_sha256 = $1";
const TAKE: &str = "DELETE FROM device_logins WHERE handle_sha256 = $1";
const FORGET: &str = "DELETE FROM device_logins WHERE handle_sha256 IN \
    (SELECT handle_sha256 FROM device_logins WHERE expires_at < $1 LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[INSERT, COUNT, FIND, WAIT, TAKE, FORGET];

/// A login that waits for its person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLogin {
    /// S256 of what its program knows.
    pub challenge: String,
    /// The provider's device code, sealed.
    pub device_code: String,
    /// What an ID token of it may name.
    pub nonce: String,
    /// When it began.
    pub begun_at: Timestamp,
    /// How often the provider may be asked, in seconds.
    pub interval_seconds: i64,
    /// From when on it may be asked again.
    pub ask_at: Timestamp,
    /// Until when it waits.
    pub expires_at: Timestamp,
}

/// Writes a login under its handle's digest.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, handle: SecretDigest, new: &DeviceLogin) -> Result<(), StoreError> {
    let digest = handle.to_hex();
    let row = [
        digest.as_str().into(),
        (&new.challenge).into(),
        (&new.device_code).into(),
        (&new.nonce).into(),
        new.begun_at.into(),
        new.interval_seconds.into(),
        new.ask_at.into(),
        new.expires_at.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// How many wait.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, now: Timestamp) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[now.into()]).await?.integer("count")
}

/// The login of a handle, locked.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, handle: SecretDigest) -> Result<Option<DeviceLogin>, StoreError> {
    let digest = handle.to_hex();
    tx.lock_optional(FIND, &[digest.as_str().into()]).await?.map(|row| login(&row)).transpose()
}

/// Notes when the provider may be asked again, and how often from then on.
///
/// # Errors
/// The store's.
pub async fn wait(
    tx: &mut Tx<'_>,
    handle: SecretDigest,
    interval_seconds: i64,
    ask_at: Timestamp,
) -> Result<(), StoreError> {
    let digest = handle.to_hex();
    tx.execute(WAIT, &[digest.as_str().into(), interval_seconds.into(), ask_at.into()]).await.map(drop)
}

/// Removes a login; answers whether it was there.
///
/// # Errors
/// The store's.
pub async fn take(tx: &mut Tx<'_>, handle: SecretDigest) -> Result<bool, StoreError> {
    let digest = handle.to_hex();
    Ok(tx.execute(TAKE, &[digest.as_str().into()]).await? == 1)
}

/// Forgets at most `most` logins that ended before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn login(row: &Row) -> Result<DeviceLogin, StoreError> {
    Ok(DeviceLogin {
        challenge: row.text("challenge")?,
        device_code: row.text("device_code")?,
        nonce: row.text("nonce")?,
        begun_at: row.time("begun_at")?,
        interval_seconds: row.integer("interval_seconds")?,
        ask_at: row.time("ask_at")?,
        expires_at: row.time("expires_at")?,
    })
}
