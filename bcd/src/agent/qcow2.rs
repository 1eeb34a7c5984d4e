//! QEMU's disk format, versions 2 and 3, as far as it is a plain image: no backing file, no data file, no encryption, no
//! snapshots, no extended L2 entries. By `docs/interop/qcow2.txt` of QEMU.
//!
//! The file's hash is known, and still it is read as hostile: every offset must lie in the file, every table is bounded, what
//! is unpacked is exactly a cluster, and what comes out is as long as the header says, cluster by cluster.

use super::{
    fault::{Fault, StepFault, disk, fault},
    target::at_most,
};
use flate2::{Decompress, FlushDecompress, Status};
use ruzstd::decoding::StreamingDecoder;
use std::{fs::File, io::Read as _, os::unix::fs::FileExt as _};

/// "QFI" and 0xfb.
const MAGIC: u32 = 0x5146_49fb;
/// Clusters of 512 bytes to 2 MiB.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// The most bytes of the L1 table: as QEMU has it.
const MAX_L1_BYTES: u64 = 32 << 20;
/// The bits of an offset in a table.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// An L2 entry of a cluster that is packed.
const PACKED: u64 = 1 << 62;
/// An L2 entry of a cluster that reads as zeros.
const ZERO: u64 = 1;
/// Incompatible features that change nothing here: the reference counts may be wrong (bit 0), another way of packing (bit 3).
const KNOWN_FEATURES: u64 = 1 | 1 << 3;
/// The extension that names a data file.
const DATA_FILE: u32 = 0x4441_5441;

/// Where the file is.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) file: &'a File,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl Part<'_> {
    fn read(&self, at: u64, buffer: &mut [u8]) -> Result<(), Fault> {
        let end = at.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(bad("it names a place behind its end"));
        }
        self.file.read_exact_at(buffer, self.start + at).map_err(disk("reading the image's file"))
    }
}

/// How clusters are packed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Packing {
    Deflate,
    Zstd,
}

/// An image.
pub(crate) struct Qcow2<'a> {
    part: Part<'a>,
    bytes: u64,
    cluster_bits: u32,
    packing: Packing,
    l1: Vec<u64>,
}

impl<'a> Qcow2<'a> {
    /// Reads and judges the header and the first table.
    ///
    /// # Errors
    /// It is no image, or none of the kind that is taken.
    pub(crate) fn open(part: Part<'a>) -> Result<Self, Fault> {
        let mut header = [0; 112];
        let known = usize::try_from(part.bytes).unwrap_or(usize::MAX).min(header.len());
        part.read(0, header.get_mut(..known).unwrap_or_default())?;
        let header = Header(&header);
        let cluster_bits = header.judge()?;
        if header.u32(4) == 3 {
            judge_extensions(part, header.u32(100))?;
        }
        let bytes = header.u64(24);
        let cluster = 1_u64 << cluster_bits;
        let entries = bytes.div_ceil(cluster).div_ceil(cluster / 8);
        let listed = u64::from(header.u32(36));
        if listed < entries || entries * 8 > MAX_L1_BYTES {
            return Err(bad("its first table is too short or too long for its size"));
        }
        let mut table = vec![0; usize::try_from(entries * 8).unwrap_or(0)];
        part.read(header.u64(40), &mut table)?;
        let packing = match header.features() & 1 << 3 {
            0 => Packing::Deflate,
            _ if header.0[104] == 1 => Packing::Zstd,
            _ => return Err(bad("it is packed in a way that is not known")),
        };
        Ok(Self { part, bytes, cluster_bits, packing, l1: words(&table).collect() })
    }

    /// How long the disk is.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hands on the disk, from its first byte to its last, a cluster at a time.
    ///
    /// # Errors
    /// It is broken; whatever `take` says.
    pub(crate) fn read_through(&self, mut take: impl FnMut(&[u8]) -> Result<(), Fault>) -> Result<(), Fault> {
        let size = 1_usize << self.cluster_bits;
        let (mut cluster, mut table, mut packed) = (vec![0; size], vec![0; size], Vec::new());
        let mut left = self.bytes;
        for entry in &self.l1 {
            let at = entry & OFFSET;
            match at {
                0 => table.fill(0),
                _ => self.part.read(at, &mut table)?,
            }
            for entry in words(&table) {
                if left == 0 {
                    return Ok(());
                }
                self.cluster(entry, &mut cluster, &mut packed)?;
                let part = at_most(&cluster, left);
                take(part)?;
                left -= part.len() as u64;
            }
        }
        match left {
            0 => Ok(()),
            _ => Err(bad("its first table is too short for its size")),
        }
    }

    fn cluster(&self, entry: u64, cluster: &mut [u8], packed: &mut Vec<u8>) -> Result<(), Fault> {
        if entry & PACKED != 0 {
            return self.packed(entry, cluster, packed);
        }
        match entry & OFFSET {
            _ if entry & ZERO != 0 => cluster.fill(0),
            0 => cluster.fill(0),
            at => {
                // The last cluster of a file may be cut off at the end of the image.
                let there = self.part.bytes.saturating_sub(at).min(cluster.len() as u64);
                cluster.fill(0);
                let there = usize::try_from(there).unwrap_or(0);
                if there == 0 {
                    return Err(bad("it names a place behind its end"));
                }
                self.part.read(at, cluster.get_mut(..there).unwrap_or_default())?;
            }
        }
        Ok(())
    }

    /// A cluster of its own length: where its bytes begin and how many sectors they take is in the entry.
    fn packed(&self, entry: u64, cluster: &mut [u8], packed: &mut Vec<u8>) -> Result<(), Fault> {
        let bits = 62 - (self.cluster_bits - 8);
        let at = entry & ((1 << bits) - 1);
        let sectors = (entry & (PACKED - 1)) >> bits;
        let length = (sectors + 1) * 512 - at % 512;
        let length = length.min(self.part.bytes.saturating_sub(at));
        packed.resize(usize::try_from(length).unwrap_or(0), 0);
        self.part.read(at, packed)?;
        let whole = match self.packing {
            Packing::Deflate => inflate(packed, cluster),
            Packing::Zstd => StreamingDecoder::new(packed.as_slice())
                .is_ok_and(|mut frame| frame.read_exact(cluster).is_ok()),
        };
        if whole { Ok(()) } else { Err(bad("a cluster can't be unpacked")) }
    }
}

fn inflate(packed: &[u8], cluster: &mut [u8]) -> bool {
    let mut stream = Decompress::new(false);
    let unpacked = stream.decompress(packed, cluster, FlushDecompress::Finish);
    let is_over = matches!(unpacked, Ok(Status::StreamEnd | Status::Ok | Status::BufError));
    is_over && stream.total_out() == cluster.len() as u64
}

/// The header, big-endian.
struct Header<'a>(&'a [u8; 112]);

impl Header<'_> {
    fn u32(&self, at: usize) -> u32 {
        let bytes = self.0.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
        u32::from_be_bytes(bytes.unwrap_or_default())
    }

    fn u64(&self, at: usize) -> u64 {
        u64::from(self.u32(at)) << 32 | u64::from(self.u32(at + 4))
    }

    /// The incompatible features; version 2 has none.
    fn features(&self) -> u64 {
        if self.u32(4) == 3 { self.u64(72) } else { 0 }
    }

    /// The number of bits of a cluster's size.
    fn judge(&self) -> Result<u32, Fault> {
        let version = self.u32(4);
        let features = self.features();
        let cluster_bits = self.u32(20);
        let rules = [
            (self.u32(0) == MAGIC && matches!(version, 2 | 3), "it is no qcow2 of version 2 or 3"),
            (
                self.u64(8) == 0 && self.u32(16) == 0,
                "it has a backing file: flatten it first (qemu-img convert)",
            ),
            (self.u32(32) == 0, "it is encrypted"),
            (self.u32(60) == 0, "it has snapshots: flatten it first (qemu-img convert)"),
            (
                features & !KNOWN_FEATURES == 0,
                "it has a data file, is corrupt, or of a kind that is not taken",
            ),
            (version == 2 || (104..=1 << 16).contains(&self.u32(100)), "its header has no length of its own"),
            (CLUSTER_BITS.contains(&cluster_bits), "its clusters are too small or too large"),
            (self.u64(24) > 0 && self.u64(24) < 1 << 60, "its size is none"),
        ];
        match rules.iter().find(|(holds, _)| !holds) {
            Some((_, rule)) => Err(bad(rule)),
            None => Ok(cluster_bits),
        }
    }
}

/// No extension may name a data file.
fn judge_extensions(part: Part<'_>, header_length: u32) -> Result<(), Fault> {
    let mut at = u64::from(header_length);
    // As many as fit into a small cluster; QEMU writes three.
    for _ in 0..64 {
        let mut extension = [0; 8];
        if at + 8 > part.bytes {
            return Ok(());
        }
        part.read(at, &mut extension)?;
        let [a, b, c, d, e, f, g, h] = extension;
        match u32::from_be_bytes([a, b, c, d]) {
            0 => return Ok(()),
            DATA_FILE => return Err(bad("it has a data file: flatten it first (qemu-img convert)")),
            _ => at += 8 + u64::from(u32::from_be_bytes([e, f, g, h])).next_multiple_of(8),
        }
    }
    Ok(())
}

fn words(table: &[u8]) -> impl Iterator<Item = u64> {
    table.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word))
}

fn bad(rule: &str) -> Fault {
    fault(StepFault::BadImage, format!("the qcow2 image is not taken: {rule}"))
}
