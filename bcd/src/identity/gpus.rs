//! GPU UUIDs by NVML, NVIDIA's management library, which is looked for at run time.
//!
//! No library, no driver and no GPU all mean "none". The library is foreign code that may stall for minutes on a sick
//! GPU, so it is asked in a thread of its own, and after a stall never again in this process.

use nvml_wrapper::{Nvml, error::NvmlError};
use shared::hardware::MAX_LISTED;
use std::{
    ffi::OsStr,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
};

/// The library's name where no development package is installed.
const LIBRARY: &str = "libnvidia-ml.so.1";
/// How long an answer may take. A driver without persistence mode sets every GPU up first.
const PATIENCE: Duration = Duration::from_secs(20);

/// Set after a stall.
static STALLED: AtomicBool = AtomicBool::new(false);

/// `GPU-…` UUIDs, sorted; empty where there is no GPU or no answer in time.
#[must_use]
pub fn uuids() -> Vec<String> {
    if STALLED.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let (send, receive) = mpsc::sync_channel(1);
    let asked = thread::Builder::new().name("nvml".into()).spawn(move || send.send(ask()));
    if asked.is_err() {
        return Vec::new();
    }
    match receive.recv_timeout(PATIENCE) {
        Ok(Ok(uuids)) => uuids,
        Ok(Err(NvmlError::LibloadingError(_) | NvmlError::LibraryNotFound | NvmlError::DriverNotLoaded)) => {
            Vec::new()
        }
        Ok(Err(error)) => {
            tracing::warn!(%error, "NVML does not answer: this machine's GPUs are left out of its identity");
            Vec::new()
        }
        Err(_) => {
            STALLED.store(true, Ordering::Relaxed);
            tracing::warn!(
                seconds = PATIENCE.as_secs(),
                "NVML stalls: it is not asked again before a restart"
            );
            Vec::new()
        }
    }
}

fn ask() -> Result<Vec<String>, NvmlError> {
    let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init()?;
    let count = nvml.device_count()?.min(u32::try_from(MAX_LISTED).unwrap_or(0));
    // One GPU that fell off the bus must not hide the others.
    let mut uuids: Vec<String> =
        (0..count).filter_map(|index| nvml.device_by_index(index).and_then(|gpu| gpu.uuid()).ok()).collect();
    uuids.sort();
    Ok(uuids)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_the_library_answers_at_once() {
        let begin = std::time::Instant::now();
        assert!(uuids().iter().all(|uuid| uuid.starts_with("GPU-")));
        assert!(begin.elapsed() < PATIENCE);
        assert!(!STALLED.load(Ordering::Relaxed));
    }
}
