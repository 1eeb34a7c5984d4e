//! A disk that is written from its beginning: never behind its end, hashed as it goes, read back when it is done.

use super::{
    fault::{Fault, StepFault, disk, fault},
    work::Work,
};
use aws_lc_rs::digest::{Context, SHA256};
use nix::fcntl::{FallocateFlags, PosixFadviseAdvice, fallocate, posix_fadvise};
use std::{
    fs::{File, OpenOptions},
    io::{self, Seek as _, SeekFrom},
    os::unix::fs::FileExt as _,
    path::Path,
};

/// How much is read or written at a time, in bytes.
pub(crate) const CHUNK: usize = 4 << 20;

/// A disk, or a file in its place.
pub(crate) struct Target {
    pub(crate) file: File,
    /// Its size.
    pub(crate) bytes: u64,
}

impl Target {
    /// Opens a device for writing; nobody else may have it mounted or open so.
    ///
    /// # Errors
    /// It can't be opened.
    pub(crate) fn open(device: &Path) -> Result<Self, Fault> {
        let failed = || disk(format!("opening {}", device.display()));
        // On a device, O_EXCL without O_CREAT fails where it is mounted or a part of another one.
        let flags = if device.starts_with("/dev") { libc::O_EXCL } else { 0 };
        let mut options = OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(options.read(true).write(true), flags);
        let mut file = options.open(device).map_err(failed())?;
        let bytes = file.seek(SeekFrom::End(0)).map_err(failed())?;
        Ok(Self { file, bytes })
    }

    /// Writes zeros, by the disk's own means where it has them.
    ///
    /// # Errors
    /// The disk's; the step was given up.
    pub(crate) fn zero(&self, from: u64, length: u64, work: &Work) -> Result<(), Fault> {
        let zeros = vec![0; CHUNK];
        let end = from.saturating_add(length).min(self.bytes);
        let mut at = from;
        while at < end {
            let part = at_most(&zeros, end - at);
            self.file.write_all_at(part, at).map_err(disk(format!("writing zeros at byte {at}")))?;
            at += len(part);
            work.add(len(part))?;
        }
        Ok(())
    }

    /// Has the disk forget all blocks, so that they read as zeros; `false` where it can't.
    pub(crate) fn discard(&self) -> bool {
        let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        i64::try_from(self.bytes).is_ok_and(|bytes| fallocate(&self.file, flags, 0, bytes).is_ok())
    }

    /// All that was written is on the disk, and what is read from now on comes from there.
    ///
    /// # Errors
    /// The disk's.
    pub(crate) fn sync(&self) -> Result<(), Fault> {
        self.file.sync_all().map_err(disk("writing the disk's cache back"))?;
        let advice = PosixFadviseAdvice::POSIX_FADV_DONTNEED;
        posix_fadvise(&self.file, 0, 0, advice)
            .map_err(|error| disk("dropping what is in memory")(error.into()))
    }

    /// Reads so many bytes from the beginning and hands them on.
    ///
    /// # Errors
    /// The disk's; whatever `look` says.
    pub(crate) fn read_through(
        &self,
        length: u64,
        work: &Work,
        mut look: impl FnMut(u64, &[u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let mut buffer = vec![0; CHUNK];
        let mut at = 0;
        while at < length {
            let most = usize::try_from(length - at).unwrap_or(CHUNK).min(CHUNK);
            let part = buffer.get_mut(..most).unwrap_or_default();
            self.file.read_exact_at(part, at).map_err(disk(format!("reading back at byte {at}")))?;
            look(at, part)?;
            at += len(part);
            work.add(len(part))?;
        }
        Ok(())
    }

    /// SHA-256 of its first bytes, as they are on the disk.
    ///
    /// # Errors
    /// The disk's; the step was given up.
    pub(crate) fn read_back(&self, length: u64, work: &Work) -> Result<[u8; 32], Fault> {
        let mut hash = Context::new(&SHA256);
        self.read_through(length, work, |_, part| {
            hash.update(part);
            Ok(())
        })?;
        Ok(finish(hash))
    }
}

/// What is written onto a target from its beginning, in order.
pub(crate) struct Sink<'a> {
    target: &'a Target,
    work: &'a Work,
    /// The first byte that must not be written.
    end: u64,
    at: u64,
    hash: Context,
}

impl<'a> Sink<'a> {
    /// At the beginning; nothing is written from `end` on.
    pub(crate) fn new(target: &'a Target, end: u64, work: &'a Work) -> Self {
        Self { target, work, end: end.min(target.bytes), at: 0, hash: Context::new(&SHA256) }
    }

    /// Writes what comes next.
    ///
    /// # Errors
    /// There is no room for it; the disk's; the step was given up.
    pub(crate) fn write(&mut self, part: &[u8]) -> Result<(), Fault> {
        if len(part) > self.end - self.at {
            let room = self.end;
            let message = format!(
                "the image is larger than the {room} bytes that the disk has for it: choose a larger one"
            );
            return Err(fault(StepFault::ImageTooLarge, message));
        }
        let at = self.at;
        self.target.file.write_all_at(part, at).map_err(disk(format!("writing at byte {at}")))?;
        self.hash.update(part);
        self.at += len(part);
        self.work.wanted()
    }

    /// Syncs, reads all of it back, and compares. Answers how much it is, and its SHA-256.
    ///
    /// # Errors
    /// What was read is not what was written; the disk's.
    pub(crate) fn finish(self) -> Result<(u64, [u8; 32]), Fault> {
        self.target.sync()?;
        let written = finish(self.hash);
        self.work.begin(self.at);
        if self.target.read_back(self.at, self.work)? != written {
            let message = "what was read back from the disk is not what was written: the disk is broken";
            return Err(fault(StepFault::ReadBack, message));
        }
        Ok((self.at, written))
    }
}

/// The hash as an array.
pub(crate) fn finish(hash: Context) -> [u8; 32] {
    hash.finish().as_ref().try_into().unwrap_or_default()
}

/// A length as disks count.
pub(crate) fn len(part: &[u8]) -> u64 {
    u64::try_from(part.len()).unwrap_or(u64::MAX)
}

/// The beginning of a buffer, if it is longer.
pub(crate) fn at_most(part: &[u8], most: u64) -> &[u8] {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(part.len());
    part.get(..most).unwrap_or(part)
}

/// Reads until the buffer is full or the source at its end; how much it is.
pub(crate) fn fill(source: &mut impl io::Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match source.read(rest) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
