//! Files that people name or keep for the relay: opened only if they are files, read only up to a bound, and if that fails,
//! whose they are, who asks and what helps. It never waits for a FIFO or a device, and changes nothing.

use nix::{
    fcntl::OFlag,
    unistd::{Gid, Group, Uid, User, getegid, geteuid},
};
use shared::access::{Attempt, Barrier, Service, Stat, System, Use, explain};
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The relay, as its package runs it.
const RELAY: Service = Service { user: "relay", unit: "relay" };

/// What could not be done with a file or folder, and what helps.
#[derive(Debug, thiserror::Error)]
#[error("{operation} {}: {source}{remedy}", path.display())]
pub struct FileError {
    operation: &'static str,
    path: PathBuf,
    source: io::Error,
    remedy: String,
}

impl FileError {
    /// The error of an operation on what `wants` says.
    pub fn of(operation: &'static str, path: &Path, wants: Use) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| {
            let remedy = remedy(&path, wants, &source);
            Self { operation, path, source, remedy }
        }
    }

    /// Whether it stays so until somebody changes something.
    #[must_use]
    pub fn is_lasting(&self) -> bool {
        is_lasting(&self.source)
    }
}

/// Whether a file stays so: full disks empty, and devices come back.
#[must_use]
pub fn is_lasting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::AlreadyExists
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// What helps, to be put behind an error's text; empty where the text says it.
#[must_use]
pub fn remedy(path: &Path, wants: Use, error: &io::Error) -> String {
    let helps = match (Barrier::of(error.kind()), error.kind()) {
        (Some(barrier), _) => explain(&Machine, &Attempt { path, wants, service: RELAY }, barrier),
        (None, io::ErrorKind::NotFound) => match path.parent().filter(|folder| !folder.exists()) {
            Some(folder) => format!("there is no folder {}", folder.display()),
            None => return String::new(),
        },
        (None, io::ErrorKind::StorageFull) => "free some space on its disk".to_owned(),
        (None, _) => return String::new(),
    };
    format!("; {helps}")
}

/// Opens a file for reading. What is no file is refused, and not waited for.
///
/// # Errors
/// The file system's; it is a folder, a FIFO, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    // Before it is opened: to open a device may do something.
    only_file(&fs::metadata(path)?)?;
    let file = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open(path)?;
    only_file(&file.metadata()?)?;
    Ok(file)
}

/// The bytes of a file.
///
/// # Errors
/// As [`open`]; it has more than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    bounded(open(path)?, max_bytes)
}

fn bounded(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, format!("it is over {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// The text of a file.
///
/// # Errors
/// As [`read`]; it is no UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    text_of(read(path, max_bytes)?)
}

fn text_of(bytes: Vec<u8>) -> io::Result<String> {
    // Not the error itself, which holds the bytes.
    String::from_utf8(bytes).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is no text (UTF-8)"))
}

/// The text of a file that a person names on a command line: also of a pipe that the shell hands over, `<(…)` or
/// /dev/stdin, which has a writer.
///
/// # Errors
/// As [`read_text`].
pub fn read_given(path: &Path, max_bytes: u64) -> io::Result<String> {
    if !["/dev/fd", "/dev/stdin", "/proc/self/fd"].iter().any(|place| path.starts_with(place)) {
        return read_text(path, max_bytes);
    }
    text_of(bounded(File::open(path)?, max_bytes)?)
}

/// Whether this is a file with content.
///
/// # Errors
/// It is something else; the text says what.
pub fn only_file(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, and must be a file")))
}

/// What is known of a path's owner and mode; `None` if it can't be seen.
#[must_use]
pub fn stat(path: &Path) -> Option<Stat> {
    fs::metadata(path).ok().map(|found| Stat { uid: found.uid(), gid: found.gid(), mode: found.mode() })
}

/// The user and group with these numbers, by name: `relay:relay`.
#[must_use]
pub fn names(uid: u32, gid: u32) -> String {
    shared::access::names(&Machine, uid, gid)
}

/// This machine and this process.
struct Machine;

impl System for Machine {
    fn stat(&self, path: &Path) -> Option<Stat> {
        stat(path)
    }
    fn user(&self, uid: u32) -> Option<String> {
        User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
    }
    fn group(&self, gid: u32) -> Option<String> {
        Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
    }
    fn asks(&self) -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::{sys::stat::Mode, unistd::mkfifo};

    #[test]
    fn what_is_no_file_is_said_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR).unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&fifo, &link).unwrap();
        for (path, what) in [
            (fifo.as_path(), "a FIFO"),
            (&link, "a FIFO"),
            (folder.path(), "a folder"),
            (Path::new("/dev/zero"), "a device"),
        ] {
            let error = read(path, 10).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {what}, and must be a file"));
            assert!(is_lasting(&error));
        }
    }

    #[test]
    fn files_are_read_up_to_their_bound() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read_text(&file, 5).unwrap(), "12345");
        assert_eq!(read(&file, 4).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        fs::write(&file, [0xff]).unwrap();
        assert_eq!(read_text(&file, 5).unwrap_err().to_string(), "it is no text (UTF-8)");
    }

    #[test]
    fn an_error_of_a_file_names_owner_and_asker_where_that_is_what_it_is_about() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relay.db");
        let of = |kind: io::ErrorKind| FileError::of("opening", &file, Use::Keep)(kind.into());
        let denied = of(io::ErrorKind::PermissionDenied);
        assert!(denied.is_lasting() && denied.to_string().contains(" asks"), "{denied}");
        let read_only = of(io::ErrorKind::ReadOnlyFilesystem);
        let line = format!("ReadWritePaths={}", folder.path().display());
        assert!(read_only.is_lasting() && read_only.to_string().ends_with(&line), "{read_only}");
        let full = of(io::ErrorKind::StorageFull);
        assert!(!full.is_lasting() && full.to_string().contains("free some space"), "{full}");
    }
}
