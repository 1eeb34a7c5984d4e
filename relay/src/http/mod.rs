//! The HTTPS port.

pub mod tls;
