//! The TPM's part of a join: what is offered, and the answer to a challenge.
//!
//! A TPM takes its time, and the runtime has one thread, which also serves the status and feeds the watchdog: this work
//! is done on another one, which ends when it is done.

use crate::{
    csr,
    failure::{Exit, Failure},
    node::Node,
    tpm::{Found, TpmError, TpmKey},
};
use shared::api::node::{Challenge, Proof, Tpm};
use std::sync::Arc;

/// The most challenges in one attempt: the second is for one that came too late.
pub const MAX_CHALLENGES: usize = 2;

/// What a join sends of the TPM, and what answers challenges to it.
#[derive(Clone, Debug)]
pub struct Offer {
    /// As it goes on the wire.
    pub tpm: Tpm,
    key: TpmKey,
    found: Arc<Found>,
}

impl Offer {
    /// The answer to the relay's challenge.
    ///
    /// # Errors
    /// It is not for this TPM and this key, or the TPM does not do as it should.
    pub async fn prove(&self, challenge: Challenge) -> Result<Proof, Failure> {
        let (key, found) = (self.key.clone(), Arc::clone(&self.found));
        Ok(off_thread(move || key.prove(&found, &challenge)).await??)
    }
}

/// What to offer; `None` if the key is in a file. It is looked for once: a slow chip needs a minute for it, and a machine
/// that waits for a person asks again every few seconds.
///
/// # Errors
/// The TPM does not do as it should.
pub async fn offer(node: &mut Node) -> Result<Option<Offer>, Failure> {
    let Some(key) = node.key()?.in_tpm().cloned() else { return Ok(None) };
    let found = match &node.found {
        Some(found) => Arc::clone(found),
        None => {
            let tpm = key.tpm().clone();
            Arc::clone(node.found.insert(Arc::new(off_thread(move || tpm.look()).await??)))
        }
    };
    let tpm = key.offer(&found).ok_or(TpmError::Odd("keys that are too long"))?;
    Ok(Some(Offer { tpm, key, found }))
}

/// A fresh certificate request by the node's key.
///
/// # Errors
/// The key or the system's randomness fails.
pub async fn request(node: &Node) -> Result<String, Failure> {
    let (key, host) = (node.key()?, Arc::clone(&node.host));
    let is_in_tpm = key.in_tpm().is_some();
    let make = move || csr::make(&*key, &*host);
    if is_in_tpm { Ok(off_thread(make).await??) } else { Ok(make()?) }
}

/// A challenge to a machine that has offered no TPM.
pub(crate) fn nothing_offered() -> Failure {
    Failure::new(Exit::Tpm, "the relay challenges a TPM, and this machine's key is in none")
}

/// Every proof is answered by another challenge.
pub(crate) fn without_end() -> Failure {
    Failure::new(Exit::Tpm, "the relay challenges the TPM again and again, and takes no answer")
}

/// Work that blocks for as long as a TPM takes.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let failed = |error| Failure::new(Exit::Tpm, format!("the TPM's thread ended early: {error}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)
}

#[cfg(test)]
mod tests;
