//! What a store that came from a backup must not serve: whatever somebody may have taken back since. No table is this
//! file's own.

use super::{StoreError, Tx};
use shared::time::Timestamp;

const REVOKE_JOIN_TOKENS: &str = "UPDATE join_tokens SET revoked_at = COALESCE(revoked_at, $1), pending = 0 \
    WHERE revoked_at IS NULL OR pending > 0";
const DENY_JOIN_REQUESTS: &str = "UPDATE join_requests SET state = 'denied', decided_at = $1, decided_by = $2 \
    WHERE state IN ('pending', 'approved')";
const END_CREDENTIALS: &str = "DELETE FROM credentials";
const END_LOGINS: &str = "DELETE FROM logins";
const END_DEVICE_LOGINS: &str = "DELETE FROM device_logins";
const END_INVITES: &str = "DELETE FROM invites";
const END_LEASES: &str = "DELETE FROM leases";

pub(super) const STATEMENTS: &[&str] = &[
    REVOKE_JOIN_TOKENS,
    DENY_JOIN_REQUESTS,
    END_CREDENTIALS,
    END_LOGINS,
    END_DEVICE_LOGINS,
    END_INVITES,
    END_LEASES,
];

/// How many have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forgotten {
    /// Join tokens that were not revoked.
    pub join_tokens: u64,
    /// Join requests that waited, or were approved.
    pub join_requests: u64,
    /// API tokens and tokens of logins.
    pub credentials: u64,
    /// Invites.
    pub invites: u64,
}

/// Revokes all join tokens, denies in the name of `by` what waits for one or may use one, and ends credentials, logins under
/// way, invites and leases. What has ended already stays as it is.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, by: &str, now: Timestamp) -> Result<Forgotten, StoreError> {
    let join_tokens = tx.execute(REVOKE_JOIN_TOKENS, &[now.into()]).await?;
    let join_requests = tx.execute(DENY_JOIN_REQUESTS, &[now.into(), by.into()]).await?;
    let credentials = tx.execute(END_CREDENTIALS, &[]).await?;
    let invites = tx.execute(END_INVITES, &[]).await?;
    for rest in [END_LOGINS, END_DEVICE_LOGINS, END_LEASES] {
        tx.execute(rest, &[]).await?;
    }
    Ok(Forgotten { join_tokens, join_requests, credentials, invites })
}
