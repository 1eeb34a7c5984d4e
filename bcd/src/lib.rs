//! bcd, the daemon on the node: says what the machine is, joins a pool with a key of its own, renews, sends heartbeats.

pub mod config;
pub mod identity;
pub mod token;
