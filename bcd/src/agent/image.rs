//! An image from a stream onto a disk: unpacked, hashed, bounded by the disk, read back.
//!
//! The stream is hostile until its hash is known, and that is at its end. Whatever it says, nothing is written behind the end
//! of the disk, what is unpacked is never kept in memory, and the disk of an image that failed does not boot: its
//! beginning and its end are zeros. qcow2 is no stream: the file is put at the end of the disk, judged by its hash there, and
//! unpacked from there to the beginning.

use super::{
    fault::{Fault, StepFault, disk, fault},
    qcow2,
    target::{CHUNK, Sink, Target, fill, finish, len},
    work::Work,
};
use aws_lc_rs::digest::{Context, SHA256};
use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder, errors::FrameDecoderError};
use shared::{api::steps::ImageFormat, hex};
use std::{
    fmt,
    io::{self, BufReader, Read},
};

/// How much of a disk's beginning and end is written over where an image failed, in bytes.
const SPOILT: u64 = 1 << 20;
/// How much longer than the disk a packed image may be: what can't be packed grows by less.
const PACKED_SLACK: u64 = 1 << 20;
/// Where the file of a qcow2 image begins is a multiple of this.
const ALIGNMENT: u64 = 1 << 20;

/// What came of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Written {
    /// Bytes that were fetched.
    pub(crate) fetched: u64,
    /// Bytes of the disk.
    pub(crate) bytes: u64,
    /// SHA-256 of those, read back.
    pub(crate) sha256: [u8; 32],
}

/// An image to be written.
pub(crate) struct Image<R> {
    /// The file as it comes.
    pub(crate) source: R,
    /// How long it is, if its server says so.
    pub(crate) length: Option<u64>,
    /// SHA-256 that it must have, in hexadecimal.
    pub(crate) sha256: String,
    pub(crate) format: ImageFormat,
}

/// Writes an image onto a disk, and reads it back.
///
/// # Errors
/// The image's, the disk's, the source's; the step was given up. The disk does not boot then.
pub(crate) fn write<R: Read>(image: Image<R>, target: &Target, work: &Work) -> Result<Written, Fault> {
    work.begin(image.length.unwrap_or(0));
    #[expect(clippy::redundant_closure, reason = "of its own, zstd is not general enough in its lifetimes")]
    let written = match image.format {
        ImageFormat::Raw => unpack(image, target, work, |source, sink| plain(source, sink)),
        ImageFormat::RawGz => {
            unpack(image, target, work, |source, sink| plain(&mut MultiGzDecoder::new(source), sink))
        }
        ImageFormat::RawZst => unpack(image, target, work, |source, sink| zstd(source, sink)),
        ImageFormat::Qcow2 => unpack_qcow2(image, target, work),
    };
    if written.is_err() {
        spoil(target);
    }
    written
}

/// Half an image must not boot.
fn spoil(target: &Target) {
    let work = Work::default();
    let last = target.bytes.saturating_sub(SPOILT);
    let done = target.zero(0, SPOILT, &work).and_then(|()| target.zero(last, SPOILT, &work));
    if let Err(error) = done.and_then(|()| target.sync()) {
        tracing::warn!(%error, "the beginning of the half-written disk could not be erased");
    }
}

/// What is fetched, as it comes: counted, bounded and hashed.
struct Fetched<'a, R> {
    source: R,
    work: &'a Work,
    bytes: u64,
    most: u64,
    hash: Context,
    /// Why it could not be read on: what unpacks it says so in words of its own.
    failed: Option<Fault>,
}

impl<'a, R: Read> Fetched<'a, R> {
    fn new(source: R, most: u64, work: &'a Work) -> Self {
        Self { source, work, bytes: 0, most, hash: Context::new(&SHA256), failed: None }
    }

    /// The hash, once the source is at its end.
    fn judge(mut self, expected: &str) -> Result<u64, Fault> {
        let mut rest = [0; 1];
        if self.read(&mut rest).map_err(unreadable)? > 0 {
            return Err(fault(StepFault::BadImage, "the image goes on behind its own end"));
        }
        let seen = hex::encode(&finish(self.hash));
        if seen == expected {
            return Ok(self.bytes);
        }
        let message = format!("the image's SHA-256 is {seen}, and {expected} was asked for");
        Err(fault(StepFault::DigestMismatch, message))
    }
}

impl<R: Read> Fetched<'_, R> {
    fn fetch(&mut self, buffer: &mut [u8]) -> Result<usize, Fault> {
        let more = loop {
            match self.source.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(fault(StepFault::Fetch, format!("fetching the image: {error}"))),
                Ok(more) => break more,
            }
        };
        let part = buffer.get(..more).unwrap_or_default();
        self.bytes = self.bytes.saturating_add(len(part));
        if self.bytes > self.most {
            return Err(fault(StepFault::ImageTooLarge, "the image's file is larger than the disk"));
        }
        self.hash.update(part);
        self.work.add(len(part))?;
        Ok(more)
    }
}

impl<R: Read> Read for Fetched<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.fetch(buffer).map_err(|failed| {
            self.failed = Some(failed.clone());
            io::Error::other(failed)
        })
    }
}

/// The fault of an image that can't be read on.
#[expect(clippy::needless_pass_by_value, reason = "it is what map_err calls")]
fn unreadable(error: io::Error) -> Fault {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<Fault>()) {
        Some(inner) => inner.clone(),
        None => broken(&error),
    }
}

fn broken(why: &dyn fmt::Display) -> Fault {
    fault(StepFault::BadImage, format!("the image is not of its format, or cut off: {why}"))
}

/// A stream that is written as it is unpacked.
fn unpack<R: Read>(
    image: Image<R>,
    target: &Target,
    work: &Work,
    unpack: impl FnOnce(&mut BufReader<Fetched<'_, R>>, &mut Sink<'_>) -> Result<(), Fault>,
) -> Result<Written, Fault> {
    let most = target.bytes.saturating_add(target.bytes / 64).saturating_add(PACKED_SLACK);
    let mut source = BufReader::with_capacity(1 << 20, Fetched::new(image.source, most, work));
    let mut sink = Sink::new(target, target.bytes, work);
    let unpacked = unpack(&mut source, &mut sink);
    if let Some(failed) = source.get_mut().failed.take() {
        return Err(failed);
    }
    unpacked?;
    if !source.buffer().is_empty() {
        return Err(fault(StepFault::BadImage, "the image goes on behind its own end"));
    }
    let fetched = source.into_inner().judge(&image.sha256)?;
    let (bytes, sha256) = sink.finish()?;
    Ok(Written { fetched, bytes, sha256 })
}

/// Whatever comes, to its end.
fn plain(source: &mut impl Read, sink: &mut Sink<'_>) -> Result<(), Fault> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let filled = fill(source, &mut buffer).map_err(unreadable)?;
        if filled == 0 {
            return Ok(());
        }
        sink.write(buffer.get(..filled).unwrap_or_default())?;
    }
}

/// Zstandard frames, one after the other. A frame's window is bounded by the library; its checksum says nothing that the
/// image's hash does not.
fn zstd<R: Read>(source: &mut BufReader<R>, sink: &mut Sink<'_>) -> Result<(), Fault> {
    let mut buffer = vec![0; CHUNK];
    let mut frame = FrameDecoder::new();
    while !at_end(source)? {
        match frame.reset(&mut *source) {
            Ok(()) => {}
            Err(FrameDecoderError::ReadFrameHeaderError(skip)) => {
                skip_frame(source, &skip).map_err(|error| error.unwrap_or_else(|| broken(&skip)))?;
                continue;
            }
            Err(error) => return Err(broken(&error)),
        }
        loop {
            let strategy = BlockDecodingStrategy::UptoBytes(CHUNK);
            let over = frame.decode_blocks(&mut *source, strategy).map_err(|error| broken(&error))?;
            while frame.can_collect() > 0 {
                let more = frame.read(&mut buffer).map_err(unreadable)?;
                sink.write(buffer.get(..more).unwrap_or_default())?;
            }
            if over {
                break;
            }
        }
    }
    Ok(())
}

fn at_end<R: Read>(source: &mut BufReader<R>) -> Result<bool, Fault> {
    use io::BufRead as _;
    Ok(source.fill_buf().map_err(unreadable)?.is_empty())
}

/// Passes over a frame that holds nothing of the image; `Err(None)` if it is none.
fn skip_frame<R: Read>(
    source: &mut BufReader<R>,
    why: &ruzstd::decoding::errors::ReadFrameHeaderError,
) -> Result<(), Option<Fault>> {
    let ruzstd::decoding::errors::ReadFrameHeaderError::SkipFrame { length, .. } = why else {
        return Err(None);
    };
    let skipped = io::copy(&mut source.by_ref().take(u64::from(*length)), &mut io::sink());
    match skipped.map_err(|error| Some(unreadable(error)))? == u64::from(*length) {
        true => Ok(()),
        false => Err(None),
    }
}

/// The file goes to the end of the disk first.
fn unpack_qcow2<R: Read>(image: Image<R>, target: &Target, work: &Work) -> Result<Written, Fault> {
    let Some(length) = image.length else {
        return Err(fault(
            StepFault::Fetch,
            "the server of a qcow2 image must say how long it is (Content-Length)",
        ));
    };
    let start = target.bytes.checked_sub(length).map(|start| start / ALIGNMENT * ALIGNMENT);
    let start =
        start.ok_or_else(|| fault(StepFault::ImageTooLarge, "the image's file is larger than the disk"))?;
    let mut source = Fetched::new(image.source, length, work);
    let mut buffer = vec![0; CHUNK];
    let mut at = start;
    loop {
        let filled = fill(&mut source, &mut buffer).map_err(unreadable)?;
        let part = buffer.get(..filled).unwrap_or_default();
        if part.is_empty() {
            break;
        }
        std::os::unix::fs::FileExt::write_all_at(&target.file, part, at)
            .map_err(disk(format!("writing at byte {at}")))?;
        at += len(part);
    }
    let fetched = source.judge(&image.sha256)?;
    let file = qcow2::Part { file: &target.file, start, bytes: fetched };
    let qcow2 = qcow2::Qcow2::open(file)?;
    if qcow2.bytes() > start {
        let message = format!(
            "a qcow2 image of {} bytes and its file of {fetched} need a disk that has room for both: choose a larger one, or a raw image",
            qcow2.bytes()
        );
        return Err(fault(StepFault::ImageTooLarge, message));
    }
    work.begin(qcow2.bytes());
    let mut sink = Sink::new(target, start, work);
    qcow2.read_through(|part| {
        sink.write(part)?;
        work.add(len(part))
    })?;
    // Nothing of the file stays.
    target.zero(start, target.bytes - start, &Work::default())?;
    let (bytes, sha256) = sink.finish()?;
    Ok(Written { fetched, bytes, sha256 })
}

#[cfg(test)]
mod tests;
