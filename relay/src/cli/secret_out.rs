//! A file for a secret that is shown once: made before it is asked for, mode 0600, and there whole or not at all.

use crate::random::Random;
use serde_json::Value;
use shared::hex;
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    ops::Deref,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};
use zeroize::Zeroize as _;

/// A file that waits for its secret. Without one nothing is left behind.
pub(super) struct SecretOut {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

/// An answer that may hold a secret: its texts are wiped when it is dropped.
pub(super) struct Wiped(pub(super) Value);

impl Deref for Wiped {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

/// No deeper than a parser reads, which has its bound.
fn wipe(value: &mut Value) {
    match value {
        Value::String(text) => text.zeroize(),
        Value::Array(items) => items.iter_mut().for_each(wipe),
        Value::Object(members) => members.values_mut().for_each(wipe),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl SecretOut {
    /// Makes a file beside `path`, for its owner only.
    ///
    /// # Errors
    /// There is no room for it, or `path` names no file.
    pub(super) fn prepare(path: &Path, random: &Random) -> io::Result<Self> {
        let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?.to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}", hex::encode(&random.bytes::<8>())));
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        Ok(Self { path: path.to_owned(), temporary, file })
    }

    /// Where the secret will be.
    #[must_use]
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the secret, one line, in place of what was there.
    ///
    /// # Errors
    /// The disk's.
    pub(super) fn finish(mut self, secret: &str) -> io::Result<()> {
        self.file.write_all(secret.as_bytes())?;
        self.file.write_all(b"\n")?;
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }
}

impl Drop for SecretOut {
    fn drop(&mut self) {
        // Gone already where it was renamed.
        let _ = fs::remove_file(&self.temporary);
    }
}
