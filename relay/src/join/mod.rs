//! Joining and staying joined: the rules are pure functions of loaded facts, [`submit`] and [`renew`] apply them.
//!
//! **Why a join happens exactly once.** Nothing is consumed before everything is judged, and everything is judged
//! inside the one transaction that admits, after locking token, requests, identities and node in that order. That
//! transaction counts the use, writes the node, its certificate, the join (token, digest of the request's signed
//! part) and the event; it commits as a whole or not at all, and the answer leaves only after the commit. A retry
//! with the same request finds the join and is given the same certificate. Two joins of one identity meet at the
//! primary key of `identities`: the loser's transaction is run again and then sees the winner. A join that waits for a
//! person holds a use of its token; the transaction that admits it turns that into the use that it counts.

mod admit;
pub mod agent;
pub mod attest;
mod evidence;
pub mod heartbeats;
pub mod identity;
pub mod issue;
pub mod lookups;
pub mod queue;
pub mod renew;
pub mod requests;
pub mod signs;
pub mod standing;
pub mod submit;
pub mod tokens;
pub mod trust;
