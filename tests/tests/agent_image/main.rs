//! The agent's image, booted: a virtual machine with UEFI and a TPM starts from what the relay serves, joins, does what it is told,
//! and goes off.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a story that stumbles fails")]

mod image_server;
mod slow;
