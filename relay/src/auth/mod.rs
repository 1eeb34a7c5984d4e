//! Who calls, and what they may do.

pub mod bootstrap;
pub mod holdings;
pub mod jwt;
pub mod keys;
pub mod login;
pub mod oidc;
pub mod policy;
pub mod principal;
pub mod tokens;

pub use principal::{Grant, Powers, Principal};
