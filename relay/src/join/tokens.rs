//! Whether a join token still admits. Pure. What it demands of the machine is `attest::token`.

use crate::facts::TokenFacts;
use shared::{
    problem::{Problem, Reason},
    time::Timestamp,
};

/// Whether the token admits one more machine now.
///
/// # Errors
/// `tokenRevoked`, `tokenExpired` or `tokenExhausted`.
pub fn admits(token: &TokenFacts, now: Timestamp) -> Result<(), Problem> {
    not_revoked(token)?;
    if now >= token.expires_at {
        let detail = format!("The join token expired at {}; ask for a new one.", token.expires_at);
        return Err(Problem::refused(Reason::TokenExpired, detail));
    }
    if token.uses.saturating_add(token.pending) >= token.max_uses {
        let detail = match token.pending {
            0 if token.max_uses == 1 => {
                "The join token was good for one use, which is spent; ask for a new one.".to_owned()
            }
            0 => format!("All {} uses of the join token are spent; ask for a new one.", token.max_uses),
            1 if token.max_uses == 1 => {
                "The one use of the join token is held by a join request that waits for a person or \
                for its machine; ask for a new one."
                    .to_owned()
            }
            held => format!(
                "All {} uses of the join token are spent or held by join requests ({held}) that wait for a person or for \
                 their machine; ask for a new one.",
                token.max_uses
            ),
        };
        return Err(Problem::refused(Reason::TokenExhausted, detail));
    }
    Ok(())
}

/// Whether a join may be judged by the token. One that `has_asked` may hold a use by its open request, which neither time nor
/// other machines take away, and is told of an ended one by its own name: whoever then needs a free use is judged by
/// [`admits`].
///
/// # Errors
/// As [`admits`]; with an earlier request only `tokenRevoked`.
pub fn hears(token: &TokenFacts, has_asked: bool, now: Timestamp) -> Result<(), Problem> {
    if has_asked { not_revoked(token) } else { admits(token, now) }
}

/// Whether the token was not revoked: what also a replay needs.
///
/// # Errors
/// `tokenRevoked`.
pub fn not_revoked(token: &TokenFacts) -> Result<(), Problem> {
    match token.revoked_at {
        None => Ok(()),
        Some(at) => {
            let detail = format!("The join token was revoked at {at}; ask for a new one.");
            Err(Problem::refused(Reason::TokenRevoked, detail))
        }
    }
}
