//! Files that are never seen half-written: temporary file, fsync, rename, fsync of the directory.

use std::{
    fs::{DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

/// The mode of what only the owner may read.
pub const SECRET: u32 = 0o600;
/// The mode of what everybody may read.
pub const PUBLIC: u32 = 0o644;

/// Writes a file whole, replacing one that is there.
///
/// # Errors
/// The file system's; the old file is then unchanged.
pub fn write(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.new"));
    // What an earlier crash left there may have another mode.
    match std::fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}

/// Makes a directory that only its owner may enter, and those above it; one that is there is left as it is.
///
/// # Errors
/// The file system's.
pub fn directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}
