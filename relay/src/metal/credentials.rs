//! A BMC's user and password: sealed before they reach the store, opened by the reconciler alone.

use super::facts::Credentials;
use crate::{
    fault::Fault,
    random::Random,
    seal::{KeyRing, Place},
    store::metal::{COLUMN, TABLE},
};
use shared::{id::NodeId, secret::Secret};
use zeroize::Zeroizing;

/// The credentials, sealed to their machine's row.
///
/// # Errors
/// They can't be sealed.
pub fn seal(
    keys: &KeyRing,
    random: &Random,
    node: &NodeId,
    credentials: &Credentials,
) -> Result<String, Fault> {
    // No user's name has a line break in it: it is a label.
    let plain =
        Zeroizing::new(format!("{}\n{}", credentials.username, credentials.password.expose()).into_bytes());
    keys.seal(place(node), &plain, random).map_err(Fault::internal("sealing a BMC's credentials"))
}

/// The credentials of a machine's row.
///
/// # Errors
/// They were not sealed to this row, or by another key.
pub fn open(keys: &KeyRing, node: &NodeId, sealed: &str) -> Result<Credentials, Fault> {
    let opened = keys.open(place(node), sealed).map_err(Fault::internal("opening a BMC's credentials"))?;
    let odd = || Fault::internal("opening a BMC's credentials")("they are no user and password");
    let text = std::str::from_utf8(&opened).map_err(|_| odd())?;
    let (username, password) = text.split_once('\n').ok_or_else(odd)?;
    Ok(Credentials { username: username.to_owned(), password: Secret::new(password.to_owned()) })
}

fn place(node: &NodeId) -> Place<'_> {
    Place { table: TABLE, row: node.as_str(), column: COLUMN }
}
