//! The state on disk: `state.json` and its folder, with one writer.
//!
//! `state.json` is the one truth; `node.crt` and `ca.crt` are written out of it for others to use. Beside it are the key and,
//! while a join waits for a person, the token whose use its request holds. Every write goes to a
//! temporary file, fsync, rename, fsync of the folder, so that a crash leaves the old or the new and never half of one.
//!
//! The folder says whose the files are: where it is another user's, as the units' is, and root is at work in it, what root writes
//! is that user's, and no link that this user has put there leads root elsewhere.
//! A state of a higher version is refused and left as it is.

use super::{Noted, State, Stored, VERSION};
use crate::files;
use nix::fcntl::{Flock, FlockArg};
use serde::Deserialize;
use shared::access::Use;
use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

/// The most bytes of a file in the folder.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

pub(super) const STATE: &str = "state.json";
const LOCK: &str = "lock";
/// What is tried with the folder itself.
const MAKING: &str = "cannot make";
/// The node's key, where it is a file.
pub const KEY: &str = "node.key";
/// The node's key, where it is in a TPM: what only that TPM can load.
pub const TPM_KEY: &str = "node.tpm";
/// The token of a join that waits for a person, as long as it waits.
pub const TOKEN: &str = "join-token";
/// The node's certificate and its issuing CA, PEM.
pub const CERTIFICATE: &str = "node.crt";
/// The roots that verify the relay, PEM.
pub const CA_BUNDLE: &str = "ca.crt";

/// Why the state cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another bcd has it.
    #[error(
        "another bcd is at work in {0} (`bcd status` shows how far it is); stop it (systemctl stop bcd), or give another \
         folder (state_dir in /etc/bcd/bcd.toml, or --state-dir)"
    )]
    Busy(PathBuf),
    /// Written by a newer bcd.
    #[error(
        "{path} has version {found}, this bcd knows {VERSION}: install the newer bcd again, or `bcd reset`"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
    /// Not what bcd writes.
    #[error("{0} is damaged ({1}): `bcd reset --keep-key` begins anew with the same key")]
    Damaged(PathBuf, String),
    /// The folder or a file cannot be used.
    #[error("{action} {path}: {source}{}", remedy(action, path, source))]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
}

/// What helps where the reason alone does not say it.
fn remedy(action: &str, path: &Path, source: &io::Error) -> String {
    let wants = if action == MAKING { Use::Folder } else { Use::Keep };
    match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "; give another folder (state_dir in /etc/bcd/bcd.toml, or --state-dir)".to_owned()
        }
        io::ErrorKind::StorageFull => "; make room on this disk".to_owned(),
        _ => files::remedy(path, wants, source),
    }
}

fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StateError {
    move |source| StateError::Io { action, path: path.to_owned(), source }
}

/// The folder, locked for this process.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: Flock<File>,
    /// How many more writes succeed, for tests of crashes.
    #[cfg(test)]
    pub(crate) writes_left: std::cell::Cell<usize>,
}

impl StateDir {
    /// Opens the folder, making it (0700) if need be, and takes its lock.
    ///
    /// # Errors
    /// It can't be made or written, or another bcd has it.
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700).create(path).map_err(io_error(MAKING, path))?;
        let lock = path.join(LOCK);
        let file = open_lock(path, &lock).map_err(io_error("cannot open", &lock))?;
        let lock = Flock::lock(file, FlockArg::LockExclusiveNonblock)
            .map_err(|_| StateError::Busy(path.to_owned()))?;
        let dir = Self {
            path: path.to_owned(),
            _lock: lock,
            #[cfg(test)]
            writes_left: std::cell::Cell::new(usize::MAX),
        };
        dir.remove_unfinished()?;
        Ok(dir)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is remembered. Whoever finds it good brings the files beside it in line by [`StateDir::export`].
    ///
    /// # Errors
    /// The state is damaged or newer.
    pub fn load(&self) -> Result<Stored, StateError> {
        read(&self.path)
    }

    /// Remembers this.
    ///
    /// # Errors
    /// A file can't be written; what was remembered before still is.
    pub fn save(&self, stored: &Stored) -> Result<(), StateError> {
        self.write_state(stored)?;
        self.export(stored)
    }

    fn write_state(&self, stored: &Stored) -> Result<(), StateError> {
        let text = serde_json::to_vec_pretty(stored).map_err(|error| StateError::Io {
            action: "cannot write",
            path: self.path.join(STATE),
            source: error.into(),
        })?;
        self.write(STATE, &text, 0o600)
    }

    /// The bytes of a file in the folder; `None` if there is none.
    ///
    /// # Errors
    /// It can't be read.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        read_file(&self.path.join(name))
    }

    /// Writes a file in the folder so that a crash leaves the old or the new one.
    ///
    /// # Errors
    /// It can't be written.
    pub fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), StateError> {
        #[cfg(test)]
        self.count_down()?;
        let path = self.path.join(name);
        write_atomically(&self.path, name, bytes, mode).map_err(io_error("cannot write", &path))
    }

    /// Forgets everything but, if asked, the key.
    ///
    /// # Errors
    /// A file can't be removed.
    pub fn forget(&self, keep_key: bool) -> Result<(), StateError> {
        // The state first: without it the others are leftovers; the keys last, so that a crash between never leaves a
        // state whose key is gone.
        let names = [STATE, TOKEN, CERTIFICATE, CA_BUNDLE]
            .into_iter()
            .chain([KEY, TPM_KEY].into_iter().filter(|_| !keep_key));
        for name in names {
            self.remove(name)?;
        }
        self.remove_unfinished()?;
        sync_folder(&self.path).map_err(io_error("cannot sync", &self.path))
    }

    /// Brings the files beside the state in line with it. Those of a node that is over stay as evidence.
    ///
    /// # Errors
    /// A file can't be written or removed.
    pub fn export(&self, stored: &Stored) -> Result<(), StateError> {
        if !matches!(stored.state, State::Waiting(_)) {
            self.remove(TOKEN)?;
        }
        let State::Enrolled(node) = &stored.state else { return Ok(()) };
        for (name, text, mode) in
            [(CERTIFICATE, &node.certificate, 0o644), (CA_BUNDLE, &node.ca_bundle, 0o644)]
        {
            if self.read(name)?.as_deref() != Some(text.as_bytes()) {
                self.write(name, text.as_bytes(), mode)?;
            }
        }
        Ok(())
    }

    /// Removes what a crash left of writes that it cut short: keys and tokens among them.
    fn remove_unfinished(&self) -> Result<(), StateError> {
        let unfinished = [STATE, TOKEN, CERTIFICATE, CA_BUNDLE, KEY, TPM_KEY].map(unfinished);
        unfinished.iter().try_for_each(|name| self.remove(name))
    }

    fn remove(&self, name: &str) -> Result<(), StateError> {
        let path = self.path.join(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(io_error("cannot remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    #[cfg(test)]
    fn count_down(&self) -> Result<(), StateError> {
        match self.writes_left.get() {
            0 => Err(io_error("killed before", &self.path)(io::Error::other("test"))),
            left => {
                self.writes_left.set(left - 1);
                Ok(())
            }
        }
    }
}

/// Whether a key of this machine is kept in this folder, be it as a file or as what the TPM takes back.
///
/// # Errors
/// That can't be seen.
pub(crate) fn has_key(folder: &Path) -> Result<bool, StateError> {
    for file in [KEY, TPM_KEY] {
        let path = folder.join(file);
        if path.try_exists().map_err(io_error("cannot look for", &path))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The error for a state in this folder that is not what bcd writes.
pub(crate) fn damaged(folder: &Path, what: String) -> StateError {
    StateError::Damaged(folder.join(STATE), what)
}

/// What is remembered in this folder; without the lock, for looking only.
///
/// # Errors
/// It can't be read, is damaged or newer.
pub fn read(folder: &Path) -> Result<Stored, StateError> {
    /// The part that every version has.
    #[derive(Deserialize)]
    struct Versioned {
        version: u64,
    }
    let path = folder.join(STATE);
    let Some(bytes) = read_file(&path)? else { return Ok(Stored::default()) };
    let damaged = |error: serde_json::Error| StateError::Damaged(path.clone(), error.to_string());
    let Versioned { version } = serde_json::from_slice(&bytes).map_err(damaged)?;
    if version > VERSION {
        return Err(StateError::Newer { path, found: version });
    }
    serde_json::from_slice(&bytes).map_err(damaged)
}

/// Remembers in this folder why bcd came to nothing before it had its state; nothing else is changed. What is over, and what
/// is noted already, is left as it is.
///
/// # Errors
/// The state can't be read or written, or another bcd has it.
pub fn note(folder: &Path, noted: Noted) -> Result<(), StateError> {
    let dir = StateDir::open(folder)?;
    let stored = dir.load()?;
    let is_said = stored
        .last_failure
        .as_ref()
        .is_some_and(|last| (last.exit, &last.message) == (noted.exit, &noted.message));
    if is_said || matches!(stored.state, State::Final(_)) {
        return Ok(());
    }
    dir.write_state(&Stored { last_failure: Some(noted), ..stored })
}

/// Whose file keeps bcd, as a service, from its state, if one does.
#[must_use]
pub fn locked(folder: &Path) -> Option<String> {
    files::locked(folder, &[LOCK, STATE, TOKEN, CERTIFICATE, CA_BUNDLE, KEY, TPM_KEY])
}

/// The file system that is in memory.
pub const IN_MEMORY: &str = "tmpfs";

/// Whether the folder is lost with its container or at the next boot, and on what it is.
#[must_use]
pub fn volatile_filesystem(folder: &Path) -> Option<&'static str> {
    use nix::sys::statfs::{OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, statfs};
    match statfs(folder).ok()?.filesystem_type() {
        TMPFS_MAGIC => Some(IN_MEMORY),
        OVERLAYFS_SUPER_MAGIC => Some("an overlay"),
        _ => None,
    }
}

/// The bytes of a file; `None` if there is none.
pub(crate) fn read_file(path: &Path) -> Result<Option<Vec<u8>>, StateError> {
    match files::read_own(path, MAX_FILE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error("cannot read", path)(error)),
    }
}

/// What a file is called until it is whole.
fn unfinished(name: &str) -> String {
    format!(".{name}.new")
}

/// The lock, made if need be. One that is there is only opened: whoever put it there has it.
fn open_lock(folder: &Path, path: &Path) -> io::Result<File> {
    if let Ok(metadata) = fs::symlink_metadata(path) {
        files::only_file(&metadata)?;
    }
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    let file = match options.clone().create_new(true).open(path) {
        Ok(file) => {
            if let Err(error) = give_to_owner(folder, &file) {
                drop(fs::remove_file(path));
                return Err(error);
            }
            file
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => options.open(path)?,
        Err(error) => return Err(error),
    };
    files::only_file(&file.metadata()?)?;
    Ok(file)
}

/// A file that has just been made is the folder's owner's, where that is another user and root is who made it.
fn give_to_owner(folder: &Path, file: &File) -> io::Result<()> {
    let (folder, made) = (fs::metadata(folder)?, file.metadata()?);
    if made.uid() == 0 && folder.uid() != 0 {
        std::os::unix::fs::fchown(file, Some(folder.uid()), Some(folder.gid()))?;
    }
    Ok(())
}

fn write_atomically(folder: &Path, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
    let temporary = folder.join(unfinished(name));
    // Left over from a crash, perhaps with another mode.
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
    let written =
        give_to_owner(folder, &file).and_then(|()| file.write_all(bytes)).and_then(|()| file.sync_all());
    if let Err(error) = written.and_then(|()| fs::rename(&temporary, folder.join(name))) {
        drop(fs::remove_file(&temporary));
        return Err(error);
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
