//! The TPM proof, without a TPM and without a TPM library.
//!
//! The machine offers its endorsement keys and the public area of its node key. The relay judges them
//! ([`judge_offer`], [`judge_node_key`]), takes one ([`choose`]), wraps a secret that only the TPM with that
//! endorsement key and this node key can open ([`challenge::issue`]), and later judges what comes back
//! ([`challenge::judge_proof`]). Nothing of it is stored.
//!
//! What is matched, pinned, listed and bound is always the digest of the endorsement key itself, and only after
//! its TPM has proved that it holds it. A certificate may say who made the TPM; its bytes never name anybody:
//! they are malleable, and one key has any number of certificates.

pub mod authorities;
pub mod certificate;
pub mod chain;
pub mod challenge;
pub mod choice;
pub mod credential;
mod kdf;
mod roca;
mod signature;
#[cfg(test)]
mod testing;

pub use choice::{BadEndorsementKey, Known, Offered, Voucher, choose, judge_offer};

use shared::{
    csr::PublicKey,
    problem::{Problem, Reason},
    tpm::{InvalidNodeKey, NodeKeyPublic},
};

/// Why a public area is not that of a node key in a TPM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyNotTpm {
    /// A rule on node keys is broken.
    #[error("the node key {0}")]
    Rule(#[from] InvalidNodeKey),
    /// It is another key than the one that the certificate is for.
    #[error("the node key must be the one that the certificate request is for")]
    OtherKey,
}

impl KeyNotTpm {
    /// As the machine is told.
    #[must_use]
    pub fn refusal(self) -> Problem {
        let detail = format!("The TPM's key is not as demanded: {self}. Make a new one and join again.");
        Problem::refused(Reason::KeyNotTpm, detail)
    }
}

/// Reads the public area of the node key, `csr_key` being the key that the certificate request was signed with.
///
/// # Errors
/// A rule on node keys is broken, or it is another key.
pub fn judge_node_key(tpmt_public: &[u8], csr_key: &PublicKey) -> Result<NodeKeyPublic, KeyNotTpm> {
    let node_key = NodeKeyPublic::parse(tpmt_public)?;
    if node_key.key() == csr_key { Ok(node_key) } else { Err(KeyNotTpm::OtherKey) }
}

#[cfg(test)]
mod tests;
