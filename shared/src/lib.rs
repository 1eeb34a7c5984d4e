//! What bcd and relay must agree on: the words of the wire and the rules that both sides apply.
//!
//! This crate does no I/O, is never async and reads no clock: every function here is a function of its
//! arguments. It knows nothing of HTTP, of a database or of a TPM device.
#![forbid(unsafe_code)]

pub mod access;
pub mod api;
pub mod base32;
pub mod binary;
pub mod boot;
pub mod bounded;
pub mod csr;
pub mod hardware;
pub mod hex;
pub mod id;
pub mod outside;
pub mod problem;
pub mod secret;
pub mod terminal;
pub mod time;
pub mod token;
pub mod tpm;
