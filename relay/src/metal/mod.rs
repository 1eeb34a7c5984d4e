//! Metal: machines that are enrolled by their BMC, moved by verbs, worked on by the reconciler.

mod at_bmc;
pub mod bmc;
pub mod boot;
pub mod causes;
pub mod credentials;
mod ends;
pub mod facts;
pub mod in_band;
pub mod machine;
pub mod moves;
pub mod reach;
pub mod reconcile;
pub mod restored;
mod rotate;
pub mod settle;
mod tokens;
pub mod view;
pub(crate) mod workflow;
