//! relay, the control plane: it judges what machines claim and prove, and issues their certificates.
//!
//! Inside, the arrows point down only: `http`, `cli` → `api` → flows (`join`) → `store` → pure rules → `shared`;
//! `server` is the one place where everything is wired.
#![forbid(unsafe_code)]

pub mod access;
pub mod api;
pub mod audit;
pub mod auth;
pub mod boot;
pub mod ca;
pub mod call;
pub mod claim;
pub mod cli;
pub mod clock;
pub mod config;
pub mod context;
pub mod crls;
pub mod csr;
pub mod events;
pub mod facts;
pub mod fault;
pub mod files;
pub mod first_start;
pub mod http;
pub mod join;
pub mod kubernetes;
pub mod log;
pub mod metal;
pub mod metrics;
pub mod nearest;
pub mod outside;
pub mod random;
pub mod rotation;
pub mod seal;
pub mod server;
pub mod store;
pub mod tasks;
pub mod trusting;
pub mod webhooks;
