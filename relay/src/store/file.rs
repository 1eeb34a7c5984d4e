//! SQLite's file and those beside it: made for their owner only, and looked at before SQLite does. Its own word for a file
//! that it may not write is that the database can't be opened, which could pass; and it is silent on whose the file is.

use super::error::{Fault, StoreError};
use crate::access::{self, FileError};
use nix::{
    fcntl::OFlag,
    unistd::{AccessFlags, eaccess},
};
use shared::access::Use;
use std::{
    fs::{self, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// What SQLite keeps beside a file, by the end of its name.
const BESIDE: [&str; 3] = ["-wal", "-shm", "-journal"];

/// Makes the file (0600) if there is none yet, and finds out whether this process may use it and what is beside it.
///
/// # Errors
/// [`StoreError::File`] if it may not, and another try would come to the same.
pub(super) fn prepare(file: &Path) -> Result<(), StoreError> {
    make(file).map_err(|error| refused("opening the database", file, Use::Keep, error))?;
    for path in BESIDE.map(|end| PathBuf::from(format!("{}{end}", file.display()))) {
        match may(&path, AccessFlags::R_OK | AccessFlags::W_OK) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(refused("opening a file of the database", &path, Use::Keep, error));
            }
            _ => {}
        }
    }
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    may(folder, AccessFlags::W_OK | AccessFlags::X_OK)
        .map_err(|error| refused("writing into the database's folder", folder, Use::Folder, error))
}

fn make(file: &Path) -> io::Result<()> {
    if let Ok(metadata) = fs::metadata(file) {
        access::only_file(&metadata)?;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    options.custom_flags(OFlag::O_NONBLOCK.bits()).open(file).map(drop)
}

fn may(path: &Path, flags: AccessFlags) -> io::Result<()> {
    eaccess(path, flags).map_err(io::Error::from)
}

fn refused(operation: &'static str, path: &Path, wants: Use, error: io::Error) -> StoreError {
    if access::is_lasting(&error) {
        return StoreError::File(Arc::new(FileError::of(operation, path, wants)(error)));
    }
    let text = format!("{operation} {}: {error}", path.display());
    StoreError::Unreachable(Fault::of_connection(text, error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn it_is_made_for_its_owner_only_and_what_is_no_file_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relay.db");
        prepare(&file).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        prepare(&file).unwrap();
        let absent = prepare(&folder.path().join("nowhere/relay.db")).unwrap_err().to_string();
        assert!(absent.contains("nowhere/relay.db: No such file"), "{absent}");
        nix::unistd::mkfifo(&folder.path().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        for odd in ["fifo", "."] {
            let error = prepare(&folder.path().join(odd)).unwrap_err();
            assert!(matches!(&error, StoreError::File(_)), "{odd}: {error}");
        }
    }

    #[test]
    fn what_a_person_must_put_right_is_no_database_that_is_down() {
        let said = |kind: io::ErrorKind| refused("opening", Path::new("/d/relay.db"), Use::Keep, kind.into());
        for kind in
            [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::NotFound]
        {
            let error = said(kind);
            assert!(matches!(&error, StoreError::File(_)) && !error.is_transient(), "{error}");
        }
        let passing = said(io::ErrorKind::Interrupted);
        assert!(matches!(&passing, StoreError::Unreachable(_)) && passing.is_transient(), "{passing}");
    }
}
