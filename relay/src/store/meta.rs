//! The table `meta`: what the installation as a whole must remember.

use super::{StoreError, Tx};

const FIND: &str = "SELECT value FROM meta WHERE name = $1";
const INSERT: &str = "INSERT INTO meta (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";

pub(super) const STATEMENTS: &[&str] = &[FIND, INSERT];

/// What is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// The platform's trust domain.
    TrustDomain,
    /// The provider tenant's id.
    ProviderTenant,
    /// What only the right master key opens.
    KeyCheck,
}

impl Name {
    const fn as_str(self) -> &'static str {
        match self {
            Self::TrustDomain => "trust_domain",
            Self::ProviderTenant => "provider_tenant",
            Self::KeyCheck => "key_check",
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
