//! relay
#![forbid(unsafe_code)]

pub mod store;
