//! relay: admits machines to pools and names them by certificates.
#![forbid(unsafe_code)]

pub mod ca;
pub mod clock;
pub mod csr;
pub mod http;
pub mod random;
pub mod seal;
pub mod store;
