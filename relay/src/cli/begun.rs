//! A file that has its name only once it is whole.

use crate::{files, random::Random};
use shared::hex;
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// A file beside the one that is to be, for its owner only; gone when this is dropped.
pub(super) struct Begun<'a> {
    name: &'a Path,
    temporary: PathBuf,
    file: File,
}

impl<'a> Begun<'a> {
    /// # Errors
    /// There is a file of that name, or none can be made.
    pub(super) fn new(path: &'a Path, random: &Random) -> io::Result<Self> {
        if path.symlink_metadata().is_ok() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}", hex::encode(&random.bytes::<8>())));
        let file = OpenOptions::new().write(true).create_new(true).mode(files::SECRET).open(&temporary)?;
        Ok(Self { name: path, temporary, file })
    }

    /// Where it is until it is kept.
    pub(super) fn path(&self) -> &Path {
        &self.temporary
    }

    /// To write it, where nobody else does.
    pub(super) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it its name: by a second one and not by renaming, which would replace a file that came meanwhile.
    ///
    /// # Errors
    /// There is a file of that name by now, or the disk fails.
    pub(super) fn keep(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::hard_link(&self.temporary, self.name)?;
        let folder = self.name.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.temporary);
    }
}
