//! Metal: machines that are enrolled by their BMC, moved by verbs, worked on by the reconciler.

pub mod bmc;
pub mod credentials;
pub mod facts;
pub mod machine;
pub mod moves;
pub mod reach;
pub mod reconcile;
mod settle;
pub mod view;
mod workflow;
