//! Who calls, and what they may do.

pub mod bootstrap;
pub mod policy;
pub mod principal;
pub mod tokens;

pub use principal::{Grant, Principal};
