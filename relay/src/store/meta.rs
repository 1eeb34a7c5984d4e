//! The table `meta`: what the installation as a whole must remember.

use super::{StoreError, Tx};

const FIND: &str = "SELECT value FROM meta WHERE name = $1";
const INSERT: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

const PUT: &str =
    "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2";
const REMOVE: &str = "DELETE FROM meta WHERE name = $1";

pub(super) const STATEMENTS: &[&str] = &[FIND, INSERT, PUT, REMOVE];

/// What is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The platform's trust domain.
    TrustDomain,
    /// The provider tenant's id.
    ProviderTenant,
    /// What only the right master key opens.
    KeyCheck,
    /// The last number that was given to an event.
    LastEventNumber,
    /// Where the audit's chain begins, signed.
    AuditBase,
    /// Where the audit's chain ends, signed.
    AuditHead,
    /// The address that the relay was last told to be reached at.
    Url,
    /// Nothing: a row that comes and goes to see whether there is room for one.
    SpaceProbe,
}

impl Name {
    const fn as_str(self) -> &'static str {
        match self {
            Self::TrustDomain => "trust_domain",
            Self::ProviderTenant => "provider_tenant",
            Self::KeyCheck => "key_check",
            Self::LastEventNumber => "last_event_number",
            Self::AuditBase => "audit_base",
            Self::AuditHead => "audit_head",
            Self::Url => "url",
            Self::SpaceProbe => "space_probe",
        }
    }
}

/// What is remembered under a name.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, name: Name) -> Result<Option<String>, StoreError> {
    tx.fetch_optional(FIND, &[name.as_str().into()]).await?.map(|row| row.text("value")).transpose()
}

/// What is remembered under a name, locked.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, name: Name) -> Result<Option<String>, StoreError> {
    tx.lock_optional(FIND, &[name.as_str().into()]).await?.map(|row| row.text("value")).transpose()
}

/// Remembers a value, for good.
///
/// # Errors
/// The store's; [`StoreError::Race`] if there is one already.
pub async fn insert(tx: &mut Tx<'_>, name: Name, value: &str) -> Result<(), StoreError> {
    if tx.execute(INSERT, &[name.as_str().into(), value.into()]).await? == 1 {
        Ok(())
    } else {
        Err(StoreError::Race)
    }
}

/// Puts a value in the place of whatever was there.
///
/// # Errors
/// The store's.
pub async fn put(tx: &mut Tx<'_>, name: Name, value: &str) -> Result<(), StoreError> {
    tx.execute(PUT, &[name.as_str().into(), value.into()]).await.map(drop)
}

/// Removes a value, if there is one.
///
/// # Errors
/// The store's.
pub async fn remove(tx: &mut Tx<'_>, name: Name) -> Result<(), StoreError> {
    tx.execute(REMOVE, &[name.as_str().into()]).await.map(drop)
}
