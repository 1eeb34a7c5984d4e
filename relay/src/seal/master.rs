//! The master key: 32 bytes from a file that only this relay may read, or from a systemd credential.
//!
//! The key leaves this type only towards the cipher. A file is made only by [`MasterKey::create`], and never
//! over another one.

use crate::{access, random::Random};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use shared::{access::Use, hex};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};
use zeroize::Zeroizing;

/// Its name among systemd's credentials.
pub const CREDENTIAL: &str = "relay.master-key";
/// Bytes of a master key.
const KEY_BYTES: usize = 32;
/// Characters of a key id.
pub(super) const ID_CHARS: usize = 16;
/// More than any encoding of a key takes; a longer file is none.
const MAX_FILE_BYTES: usize = 256;

/// A master key and its id. No `Debug`, wiped when dropped.
pub struct MasterKey {
    id: String,
    bytes: Zeroizing<[u8; KEY_BYTES]>,
}

/// Why there is no master key. Every text says what to do.
#[derive(Debug, thiserror::Error)]
pub enum MasterKeyError {
    /// There is no file, and nothing else was to be taken.
    #[error(
        "there is no master key: {path} does not exist, {}; put the one that belongs to this store there, or name its file \
         (master_key_file in relay.toml, or --master-key-file)", unseen(credential.as_deref())
    )]
    Absent {
        /// The file.
        path: PathBuf,
        /// Where systemd would have put it, if systemd gives this process credentials.
        credential: Option<PathBuf>,
    },
    /// The file can't be read.
    #[error("read master key {path}: {source}{}", access::remedy(path, Use::Keep, source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Others than the owner may use the file.
    #[error("read master key {path}: its mode is {mode:04o}, others may use it; run: chmod 600 {path}")]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The content is not one line of 32 bytes in hex or base64.
    #[error(
        "read master key {path}: must be one line, 32 bytes in hex (64 digits) or base64 (44 characters)"
    )]
    Form {
        /// The file.
        path: PathBuf,
    },
    /// The file could not be made.
    #[error("create master key {path}: {source}{}", access::remedy(path, Use::Keep, source))]
    Create {
        /// The file.
        path: PathBuf,
        /// The system's reason; `AlreadyExists` if there is a file.
        source: io::Error,
    },
}

/// What is known of the credential where there is no file.
fn unseen(credential: Option<&Path>) -> String {
    match credential {
        None => format!(
            "and no systemd credential {CREDENTIAL} can be seen here: this process was given none \
             ($CREDENTIALS_DIRECTORY is not set)"
        ),
        Some(path) if path.exists() => {
            format!("and the setting master_key_file goes before the credential {}", path.display())
        }
        Some(path) => format!("nor does the systemd credential {}", path.display()),
    }
}

impl MasterKey {
    /// Reads the key from `path`. Only its owner may be able to use the file; below `credentials`
    /// (systemd's `$CREDENTIALS_DIRECTORY`) the group may read, since systemd grants by an access list
    /// that shows there.
    ///
    /// # Errors
    /// The file can't be read, is open to others, or holds no key.
    pub fn load(path: &Path, credentials: Option<&Path>) -> Result<Self, MasterKeyError> {
        let read = |source| MasterKeyError::Read { path: path.to_owned(), source };
        let file = match access::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let credential = credentials.map(|folder| folder.join(CREDENTIAL));
                return Err(MasterKeyError::Absent { path: path.to_owned(), credential });
            }
            Err(error) => return Err(read(error)),
        };
        let metadata = file.metadata().map_err(read)?;
        let open_to_others = if credentials.is_some_and(|dir| is_below(path, dir)) { 0o037 } else { 0o077 };
        let mode = metadata.mode() & 0o7777;
        if mode & open_to_others != 0 {
            return Err(MasterKeyError::Mode { path: path.to_owned(), mode });
        }
        let form = || MasterKeyError::Form { path: path.to_owned() };
        if metadata.len() > MAX_FILE_BYTES as u64 {
            return Err(form());
        }
        let mut text = Zeroizing::new(String::with_capacity(MAX_FILE_BYTES));
        file.take(MAX_FILE_BYTES as u64).read_to_string(&mut text).map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => form(),
            _ => read(error),
        })?;
        Self::parse(text.strip_suffix('\n').unwrap_or(&text)).ok_or_else(form)
    }

    /// Draws a key and writes it to `path`, mode 0600. The file appears whole, is on disk when this
    /// returns, and never replaces another.
    ///
    /// # Errors
    /// The file exists, or can't be written.
    pub fn create(path: &Path, random: &Random) -> Result<Self, MasterKeyError> {
        let key = Self::from_bytes(Zeroizing::new(random.bytes()));
        let text = Zeroizing::new(hex::encode(key.expose()) + "\n");
        let suffix = hex::encode(&random.bytes::<8>());
        write_new(path, &suffix, text.as_bytes())
            .map_err(|source| MasterKeyError::Create { path: path.to_owned(), source })?;
        Ok(key)
    }

    /// The key of these bytes.
    #[must_use]
    pub fn from_bytes(bytes: Zeroizing<[u8; KEY_BYTES]>) -> Self {
        let mut digest = Sha256::new();
        digest.update(b"relay master key id\0");
        digest.update(bytes.as_slice());
        let mut id = hex::encode(&digest.finalize());
        id.truncate(ID_CHARS);
        Self { id, bytes }
    }

    /// The key's id: 16 hex digits of a digest of it.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    pub(super) fn expose(&self) -> &[u8] {
        self.bytes.as_slice()
    }

    fn parse(line: &str) -> Option<Self> {
        let bytes = if line.len() == KEY_BYTES * 2 {
            Zeroizing::new(hex::decode::<KEY_BYTES>(line)?)
        } else {
            let decoded = Zeroizing::new(STANDARD.decode(line).ok()?);
            Zeroizing::new(decoded.as_slice().try_into().ok()?)
        };
        Some(Self::from_bytes(bytes))
    }
}

/// Whether `path` is in `dir`, links resolved.
fn is_below(path: &Path, dir: &Path) -> bool {
    match (path.canonicalize(), dir.canonicalize()) {
        (Ok(path), Ok(dir)) => path.starts_with(dir),
        _ => false,
    }
}

/// Written beside, synced, then linked to its name: a link fails where a rename would replace.
fn write_new(path: &Path, suffix: &str, content: &[u8]) -> io::Result<()> {
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beside = dir.join(format!(".master-key-{suffix}"));
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
    let written =
        file.write_all(content).and_then(|()| file.sync_all()).and_then(|()| fs::hard_link(&beside, path));
    fs::remove_file(&beside)?;
    written?;
    File::open(dir)?.sync_all()
}
