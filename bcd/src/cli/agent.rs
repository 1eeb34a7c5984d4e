//! `bcd agent`: the agent in a metal machine, as the image that was booted starts it.

use super::{on_runtime, start_log};
use crate::{
    agent,
    failure::{Exit, Failure},
    host::System,
    tpm,
};
use std::{path::Path, sync::Arc};

/// Runs the agent by what the relay wrote into this file.
///
/// # Errors
/// As [`agent::run`].
pub(super) fn run(file: &Path) -> Result<Exit, Failure> {
    let boot = agent::read_boot(file)?;
    let settings = agent::settings(&boot)?;
    start_log(&settings);
    if let Err(error) = tpm::quiet(&settings.tcti) {
        tracing::debug!(%error, "the TPM's library may write to standard error");
    }
    agent::set_clock(&boot, &System);
    on_runtime(agent::run(settings, boot, Arc::new(System)))?
}
