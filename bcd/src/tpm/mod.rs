//! The machine's TPM 2.0: its endorsement keys, a node key that cannot leave it, and the answer to a challenge.
//!
//! Every piece of work opens the TPM, does one thing, flushes what it loaded and closes it again. Nothing is held
//! between two of them, so that others can use the TPM, a suspension loses nothing, and no handle leaks over restarts.
//! A client that was killed may have left objects behind in a TPM without a resource manager: they are flushed when they
//! are in the way, and only then.
//!
//! The C library blocks, and a chip may stall: the work is done on a thread of its own, one piece at a time, and whoever
//! waits for it stops waiting after a bound. `TSS2_LOG` keeps the library from writing to standard error, and must be in
//! the environment before it starts: see [`quiet`].
//!
//! [`crate::key`] decides whether the key is here or in a file.

mod activate;
mod chip;
mod ek;
mod error;
mod key;
mod quiet;
mod report;
mod tcti;

pub use self::{
    ek::{Endorsement, Found},
    error::TpmError,
    key::TpmKey,
    quiet::quiet,
    report::{EndorsementReport, TpmReport},
    tcti::{DEFAULT_TCTI, Tcti},
};

use self::chip::Chip;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::sync_channel,
    },
    thread,
    time::Duration,
};

/// How long looking at everything may take: an RSA key takes a slow chip half a minute.
const LOOK_LIMIT: Duration = Duration::from_secs(90);
/// How long a piece of work waits for its turn and looks again, and how often.
const TURN_PAUSE: Duration = Duration::from_millis(20);
/// The pauses between attempts at a TPM that is busy, in milliseconds: five seconds in all.
const BUSY_PAUSES_MS: [u64; 6] = [50, 150, 400, 900, 1500, 2000];

/// The way to the TPM. Clones share their turn at it.
#[derive(Clone, Debug)]
pub struct Tpm {
    tcti: Tcti,
    is_taken: Arc<AtomicBool>,
}

impl Tpm {
    /// The TPM that is reached this way; nothing is opened yet.
    #[must_use]
    pub fn new(tcti: Tcti) -> Self {
        Self { tcti, is_taken: Arc::default() }
    }

    /// Who made it, and its endorsement keys with the certificates that it holds.
    ///
    /// # Errors
    /// There is no TPM, or it does not do as it should.
    pub fn look(&self) -> Result<Found, TpmError> {
        self.run(LOOK_LIMIT, ek::find)
    }

    /// Does the work on a thread of its own, again if the TPM is busy. After `limit` nobody waits for it any more; while
    /// that thread is stuck, there is no other.
    fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        work: impl Fn(&mut Chip) -> Result<T, TpmError> + Send + 'static,
    ) -> Result<T, TpmError> {
        let turn = self.take_turn(limit)?;
        let tcti = self.tcti.clone();
        let (tell, told) = sync_channel(1);
        let work = move || {
            let result = with_retries(&tcti, &work);
            drop(turn);
            // Nobody may be there any more.
            let _ = tell.send(result);
        };
        thread::Builder::new()
            .name("tpm".into())
            .spawn(work)
            .map_err(|error| TpmError::Failed { step: "starting a thread", why: error.to_string() })?;
        told.recv_timeout(limit).map_err(|_| TpmError::Silent(limit))?
    }

    fn take_turn(&self, limit: Duration) -> Result<Turn, TpmError> {
        let mut waited = Duration::ZERO;
        while self.is_taken.swap(true, Ordering::Acquire) {
            if waited >= limit {
                return Err(TpmError::Silent(limit));
            }
            thread::sleep(TURN_PAUSE);
            waited += TURN_PAUSE;
        }
        Ok(Turn(Arc::clone(&self.is_taken)))
    }
}

/// Gives the turn back, also when the work panics.
struct Turn(Arc<AtomicBool>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A fresh context for each attempt: what the last one loaded went with it.
fn with_retries<T>(tcti: &Tcti, work: &impl Fn(&mut Chip) -> Result<T, TpmError>) -> Result<T, TpmError> {
    let mut pauses = BUSY_PAUSES_MS.into_iter();
    let mut is_full = false;
    loop {
        let result = Chip::open(tcti).and_then(|mut chip| {
            if is_full {
                chip.flush_leftovers();
            }
            work(&mut chip)
        });
        let Err(error @ (TpmError::Busy | TpmError::Full)) = result else { return result };
        let Some(pause) = pauses.next() else { return Err(error) };
        is_full |= error == TpmError::Full;
        thread::sleep(Duration::from_millis(pause));
    }
}

#[cfg(test)]
mod tests;
