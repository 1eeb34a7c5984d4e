//! The agent's image as a file: where in it the relay writes what an agent is told, found once, at the start.

use crate::access::FileError;
use shared::{
    access::Use,
    boot::{REGION_BYTES, template},
};
use std::{
    fs::File,
    io::{self, Read as _},
    net::SocketAddr,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

/// How much is read at a time, in bytes.
pub(super) const CHUNK: usize = 256 * 1024;
/// The largest image, in bytes (1 GiB).
const MAX_BYTES: u64 = 1 << 30;

/// An image.
pub struct Image {
    file: File,
    /// How long it is.
    pub(super) bytes: u64,
    /// Where the region is.
    region: u64,
}

/// Why there is no image to serve.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The file can't be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// It is another file.
    #[error(
        "serve {path} to BMCs: it is no image of the agent: {rule}; install the package bcd-agent-image, or name one by \
         agent_image, or leave boot_listen out"
    )]
    Form {
        /// The file.
        path: PathBuf,
        /// What it lacks.
        rule: &'static str,
    },
    /// The address is taken, or not this machine's.
    #[error("listen on {address} for BMCs: {source}; give another address by boot_listen (or --boot-listen)")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
}

impl Image {
    /// Opens an image and finds its region. It stays the same file, also where its name is given to another one.
    ///
    /// # Errors
    /// It can't be read, or has no region, or several.
    pub fn open(path: &Path) -> Result<Self, ImageError> {
        let failed = || FileError::of("reading", path, Use::Read);
        let file = File::open(path).map_err(failed())?;
        let metadata = file.metadata().map_err(failed())?;
        let form = |rule| ImageError::Form { path: path.to_owned(), rule };
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Err(form("it is not a file of at most 1 GiB"));
        }
        match *regions(&file).map_err(failed())? {
            [region] => Ok(Self { file, bytes: metadata.len(), region }),
            [] => Err(form("there is no room in it for what the relay writes into it")),
            _ => Err(form("there is more than one place in it for what the relay writes into it")),
        }
    }

    /// So many bytes from here, with the region as it is given.
    pub(super) fn read(&self, at: u64, length: usize, region: &[u8]) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; length];
        self.file.read_exact_at(&mut buffer, at)?;
        let end = at + length as u64;
        let (from, to) = (at.max(self.region), end.min(self.region + region.len() as u64));
        if from < to {
            let place = |byte: u64, base: u64| usize::try_from(byte - base).unwrap_or(usize::MAX);
            let written = region.get(place(from, self.region)..place(to, self.region));
            let room = buffer.get_mut(place(from, at)..place(to, at));
            if let (Some(room), Some(written)) = (room, written) {
                room.copy_from_slice(written);
            }
        }
        Ok(buffer)
    }
}

/// Where the template of a region is, all of it.
fn regions(mut file: &File) -> io::Result<Vec<u64>> {
    let template = template();
    let head = template.get(..16).unwrap_or_default();
    let mut found = Vec::new();
    let (mut window, mut base) = (Vec::new(), 0_u64);
    loop {
        let more = file.by_ref().take(CHUNK as u64).read_to_end(&mut window)?;
        let last = window.len().saturating_sub(REGION_BYTES - 1);
        for (at, piece) in window.windows(head.len()).enumerate().take(last) {
            if piece == head && window.get(at..at + REGION_BYTES) == Some(&template) {
                found.push(base + at as u64);
            }
        }
        if more == 0 {
            return Ok(found);
        }
        // What a region may begin in stays.
        window.drain(..last);
        base += last as u64;
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// An image of this many bytes with a region there.
    pub(in crate::boot) fn image(bytes: usize, regions: &[usize]) -> (tempfile::NamedTempFile, Vec<u8>) {
        let mut content: Vec<u8> = (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
        for at in regions {
            content[*at..*at + REGION_BYTES].copy_from_slice(&template());
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), &content).unwrap();
        (file, content)
    }

    #[test]
    fn the_region_is_found_wherever_it_lies() {
        for at in [
            0,
            1,
            CHUNK - 1,
            CHUNK - REGION_BYTES,
            CHUNK - 100,
            CHUNK,
            2 * CHUNK + 77,
            3 * CHUNK - REGION_BYTES,
        ] {
            let (file, _) = image(3 * CHUNK, &[at]);
            assert_eq!(Image::open(file.path()).unwrap().region, at as u64);
        }
        for places in [&[][..], &[0, CHUNK], &[5000, 2 * CHUNK - 50]] {
            let (file, _) = image(3 * CHUNK, places);
            assert!(matches!(Image::open(file.path()), Err(ImageError::Form { .. })), "{places:?}");
        }
        let (file, mut content) = image(CHUNK, &[1000]);
        content[1000 + REGION_BYTES - 1] = b'#';
        std::fs::write(file.path(), content).unwrap();
        assert!(Image::open(file.path()).is_err(), "a part of one is none");
        assert!(matches!(Image::open(Path::new("/nonexistent")), Err(ImageError::File(_))));
    }

    #[test]
    fn every_range_has_the_region_as_it_was_given_and_the_rest_as_it_is() {
        let (file, content) = image(64 * 1024, &[10_000]);
        let image = Image::open(file.path()).unwrap();
        let region = vec![b'!'; REGION_BYTES];
        let mut whole = content;
        whole[10_000..10_000 + REGION_BYTES].copy_from_slice(&region);
        for (at, length) in [
            (0, 64 * 1024),
            (0, 10_000),
            (0, 10_001),
            (9_999, 2),
            (10_000, REGION_BYTES),
            (12_000, 100),
            (14_000, 500),
            (14_096, 1),
            (14_095, 2),
            (20_000, 0),
        ] {
            assert!(
                image.read(at as u64, length, &region).unwrap() == whole[at..at + length],
                "{at} {length}"
            );
        }
    }
}
