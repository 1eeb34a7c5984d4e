//! The agent's image, booted: a virtual machine with UEFI and a TPM starts from what the relay serves, joins, does what it is told,
//! and goes off.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a story that stumbles fails")]
#![expect(clippy::print_stderr, reason = "how long each workflow took is worth knowing")]

mod image_server;
mod real;
mod slow;
