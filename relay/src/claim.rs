//! The data directory, which one process has at a time: whoever holds its lock may write what is in it.

use crate::{access::FileError, files};
use shared::access::Use;
use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
};

/// Why a process has not got the directory.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The directory or its lock can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Another relay runs on it.
    #[error("another relay runs on {}: stop it first, or take another folder (data_dir in relay.toml, or --data-dir)", .0.display())]
    Locked(PathBuf),
}

/// Takes the directory, which is made where there is none, for as long as the file that is given lives.
///
/// # Errors
/// Another relay has it, or it can't be made or locked.
pub fn claim(directory: &Path) -> Result<File, ClaimError> {
    files::directory(directory).map_err(FileError::of("making", directory, Use::Folder))?;
    let path = directory.join("lock");
    let lock = File::options().create(true).truncate(false).write(true).open(&path);
    let lock = lock.map_err(FileError::of("opening", &path, Use::Keep))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(ClaimError::Locked(directory.to_owned())),
        Err(TryLockError::Error(source)) => Err(FileError::of("locking", &path, Use::Keep)(source).into()),
    }
}
