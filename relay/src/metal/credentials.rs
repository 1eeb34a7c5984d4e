//! A BMC's user and password: sealed before they reach the store, opened by the reconciler alone; and passwords that are drawn.

use super::facts::Credentials;
use crate::{
    fault::Fault,
    random::Random,
    seal::{KeyRing, Place},
    store::metal::{CANDIDATE_COLUMN, COLUMN, TABLE},
};
use shared::{id::NodeId, secret::Secret};
use zeroize::Zeroizing;

/// Which of a machine's credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Those that hold.
    Credentials,
    /// Those that a rotation has given to the BMC, and that nobody has seen to hold.
    Candidate,
}

const UPPER: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZ";
const LOWER: &[u8] = b"abcdefghijkmnpqrstuvwxyz";
const DIGITS: &[u8] = b"23456789";
const MARKS: &[u8] = b"-_.";
/// Letters and digits that nobody takes for one another.
const ANY: &[u8] = b"ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnpqrstuvwxyz23456789";

/// What each place of a drawn password is taken from. Sixteen bytes, since IPMI 1.5 takes no more and IPMI 2.0 takes 20; one of each
/// class, since services ask for that; marks that need quoting nowhere. It is one of 2^83.
const PLACES: [&[u8]; 16] =
    [ANY, ANY, ANY, UPPER, ANY, ANY, ANY, DIGITS, ANY, MARKS, ANY, ANY, LOWER, ANY, ANY, ANY];

/// A password that nobody knows.
#[must_use]
pub fn drawn(random: &Random) -> Secret {
    let bytes = Zeroizing::new(random.bytes::<64>());
    let mut password = String::with_capacity(PLACES.len());
    for (from, bytes) in PLACES.iter().zip(bytes.chunks_exact(4)) {
        // Of four bytes, the bias is below 2^-26.
        let drawn = bytes.iter().fold(0_usize, |sum, byte| (sum << 8) | usize::from(*byte));
        password.extend(from.get(drawn % from.len()).copied().map(char::from));
    }
    Secret::new(password)
}

/// The credentials, sealed to their machine's row and their column.
///
/// # Errors
/// They can't be sealed.
pub fn seal(
    keys: &KeyRing,
    random: &Random,
    (node, column): (&NodeId, Column),
    credentials: &Credentials,
) -> Result<String, Fault> {
    // No user's name has a line break in it: it is a label.
    let plain =
        Zeroizing::new(format!("{}\n{}", credentials.username, credentials.password.expose()).into_bytes());
    keys.seal(place(node, column), &plain, random).map_err(Fault::internal("sealing a BMC's credentials"))
}

/// The credentials of a machine's row.
///
/// # Errors
/// They were not sealed to this row and column, or by another key.
pub fn open(keys: &KeyRing, node: &NodeId, column: Column, sealed: &str) -> Result<Credentials, Fault> {
    let opened =
        keys.open(place(node, column), sealed).map_err(Fault::internal("opening a BMC's credentials"))?;
    let odd = || Fault::internal("opening a BMC's credentials")("they are no user and password");
    let text = std::str::from_utf8(&opened).map_err(|_| odd())?;
    let (username, password) = text.split_once('\n').ok_or_else(odd)?;
    Ok(Credentials { username: username.to_owned(), password: Secret::new(password.to_owned()) })
}

fn place(node: &NodeId, column: Column) -> Place<'_> {
    let column = match column {
        Column::Credentials => COLUMN,
        Column::Candidate => CANDIDATE_COLUMN,
    };
    Place { table: TABLE, row: node.as_str(), column }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn a_drawn_password_is_one_that_every_bmc_takes_and_nobody_guesses() {
        let random = Random::seeded(1);
        let drawn: HashSet<String> = (0..1_000).map(|_| drawn(&random).expose().to_owned()).collect();
        assert_eq!(drawn.len(), 1_000);
        for password in &drawn {
            assert_eq!(password.len(), 16, "IPMI takes 20 bytes at most, old ones 16: {password}");
            for class in [UPPER, LOWER, DIGITS, MARKS] {
                assert!(password.bytes().any(|byte| class.contains(&byte)), "{password}");
            }
            assert!(password.bytes().all(|byte| ANY.contains(&byte) || MARKS.contains(&byte)), "{password}");
        }
        let bits: f64 = PLACES.iter().map(|from| (from.len() as f64).log2()).sum();
        assert!(bits > 83.0, "{bits}");
    }
}
