//! Randomness as a parameter: the system's in `serve`, a repeatable stream in tests.
//!
//! Key pairs are the exception: aws-lc-rs draws those itself.

use aws_lc_rs::rand;
use sha2::{Digest as _, Sha256};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Where random bytes come from. Clones of a seeded source share one stream.
#[derive(Clone, Debug)]
pub struct Random(Source);

#[derive(Clone, Debug)]
enum Source {
    System,
    Seeded(Arc<(u64, AtomicU64)>),
}

impl Random {
    /// The system's generator, by aws-lc-rs.
    #[must_use]
    pub fn system() -> Self {
        Self(Source::System)
    }

    /// A stream that `seed` determines. For tests: anybody can foresee it.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded(Arc::new((seed, AtomicU64::new(0)))))
    }

    /// `N` random bytes.
    #[must_use]
    pub fn bytes<const N: usize>(&self) -> [u8; N] {
        let mut bytes = [0; N];
        self.fill(&mut bytes);
        bytes
    }

    /// Fills `bytes`. Ends the process if the system has no randomness to give: whatever went on
    /// without it would look like a secret and be none.
    pub fn fill(&self, bytes: &mut [u8]) {
        match &self.0 {
            Source::System => {
                if rand::fill(bytes).is_err() {
                    std::process::abort();
                }
            }
            Source::Seeded(stream) => {
                let (seed, block) = &**stream;
                for chunk in bytes.chunks_mut(32) {
                    let count = block.fetch_add(1, Ordering::SeqCst);
                    let mut digest = Sha256::new();
                    digest.update(seed.to_be_bytes());
                    digest.update(count.to_be_bytes());
                    chunk.iter_mut().zip(digest.finalize()).for_each(|(slot, byte)| *slot = byte);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_and_a_stream_does_not() {
        let (one, same, other) = (Random::seeded(1), Random::seeded(1), Random::seeded(2));
        let first = one.bytes::<40>();
        assert_eq!(first, same.bytes::<40>());
        assert_ne!(first, one.bytes::<40>());
        assert_ne!(first, other.bytes::<40>());
        assert_ne!(first[..8], first[32..]);
    }

    #[test]
    fn the_system_gives_other_bytes_each_time() {
        let random = Random::system();
        assert_ne!(random.bytes::<16>(), random.bytes::<16>());
    }
}
