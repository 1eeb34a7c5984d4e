//! relay: admits machines to pools and names them by certificates.
#![forbid(unsafe_code)]

pub mod ca;
pub mod clock;
pub mod config;
pub mod csr;
pub mod http;
pub mod log;
pub mod random;
pub mod seal;
pub mod store;
