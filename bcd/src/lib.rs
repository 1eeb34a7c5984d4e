//! bcd, the daemon on the node: says what the machine is, joins a pool with a key of its own, renews, sends heartbeats.
//!
//! [`identity`] looks at the machine, [`config`] and [`token`] at what it was told, [`state`] remembers. [`key`] is the
//! node's key, in a file or by [`tpm`] in the chip. [`trust`] judges the relay, [`client`] calls it; [`join`], [`renew`],
//! [`heartbeat`], [`secrets`] and [`ban`] are its calls. [`daemon`] does them
//! in time, [`cli`] by hand. [`agent`] is bcd as the agent in a metal machine.

pub mod agent;
pub mod backoff;
pub mod ban;
pub mod cli;
pub mod client;
pub mod config;
pub mod csr;
pub mod daemon;
pub mod failure;
pub mod files;
pub mod heartbeat;
pub mod host;
pub mod identity;
pub mod join;
pub mod key;
pub mod modes;
pub mod node;
pub mod notify;
pub mod proof;
pub mod renew;
pub mod secrets;
pub mod state;
pub mod status;
#[cfg(test)]
mod testing;
mod timer;
pub mod token;
pub mod tpm;
pub mod trust;
