//! Images onto files in a disk's place, by the programs that others make them with.

use super::*;
use aws_lc_rs::digest::digest;
use flate2::{Compression, write::GzEncoder};
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

const MIB: usize = 1 << 20;

/// A disk of this size that is full of an old system.
fn disk_of(folder: &Path, bytes: usize) -> PathBuf {
    let path = folder.join("disk");
    fs::write(&path, vec![0x5a; bytes]).unwrap();
    path
}

/// Bytes that can't be packed, with a hole in them.
fn content(bytes: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut all = vec![0; bytes];
    let hole = bytes / 3..bytes / 2;
    for (at, byte) in all.iter_mut().enumerate() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if !hole.contains(&at) {
            *byte = state.to_be_bytes()[0];
        }
    }
    all
}

fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes).as_ref())
}

fn image(file: &[u8], format: ImageFormat) -> Image<&[u8]> {
    Image { source: file, length: Some(file.len() as u64), sha256: sha256(file), format }
}

/// Writes onto a fresh disk; what the disk has then.
fn written(image: Image<&[u8]>, disk_bytes: usize) -> (Result<Written, Fault>, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let path = disk_of(folder.path(), disk_bytes);
    let result = write(image, &Target::open(&path).unwrap(), &Work::default());
    (result, fs::read(path).unwrap())
}

fn code(result: Result<Written, Fault>) -> StepFault {
    result.unwrap_err().code
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// What a program makes of a file.
fn made(bytes: &[u8], program: &str, arguments: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::write(&from, bytes).unwrap();
    let mut command = Command::new(program);
    command.args(arguments).arg(&from);
    if program == "zstd" {
        command.arg("-o");
    }
    let ended = command.arg(&to).output();
    assert!(ended.as_ref().is_ok_and(|ended| ended.status.success()), "{command:?}: {ended:?}");
    fs::read(to).unwrap()
}

fn zst(bytes: &[u8], arguments: &[&str]) -> Vec<u8> {
    made(bytes, "zstd", &[&["-q", "-f"], arguments].concat())
}

fn qcow2(bytes: &[u8], arguments: &[&str]) -> Vec<u8> {
    made(bytes, "qemu-img", &[&["convert", "-f", "raw", "-O", "qcow2"], arguments].concat())
}

#[test]
fn each_format_gives_the_same_disk_and_leaves_what_is_behind_it() {
    let bytes = content(5 * MIB + 512);
    for (file, format) in [
        (bytes.clone(), ImageFormat::Raw),
        (gz(&bytes), ImageFormat::RawGz),
        ([gz(&bytes[..MIB]), gz(&bytes[MIB..])].concat(), ImageFormat::RawGz),
        (zst(&bytes, &["-3"]), ImageFormat::RawZst),
        (zst(&bytes, &["-19", "--no-check"]), ImageFormat::RawZst),
        ([zst(&bytes[..MIB], &[]), SKIPPED.to_vec(), zst(&bytes[MIB..], &[])].concat(), ImageFormat::RawZst),
    ] {
        let (result, disk) = written(image(&file, format), 8 * MIB);
        let result = result.unwrap();
        assert_eq!((result.fetched, result.bytes), (file.len() as u64, bytes.len() as u64), "{format:?}");
        assert_eq!(hex::encode(&result.sha256), sha256(&bytes), "{format:?}");
        assert!(disk[..bytes.len()] == bytes, "{format:?}");
        assert!(disk[bytes.len()..].iter().all(|byte| *byte == 0x5a), "{format:?}");
    }
}

/// A skippable frame of four bytes (RFC 8878, 3.1.2).
const SKIPPED: [u8; 12] = [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, b'n', b'o', b't', b'e'];

#[test]
fn qcow2_of_every_kind_that_is_taken() {
    let bytes = content(6 * MIB + 512);
    for arguments in [
        &[][..],
        &["-c"],
        &["-c", "-o", "compression_type=zstd"],
        &["-o", "compat=0.10"],
        &["-c", "-o", "compat=0.10"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=2M,preallocation=full"],
        &["-c", "-o", "cluster_size=4k"],
        &["-S", "0"],
    ] {
        let file = qcow2(&bytes, arguments);
        let (result, disk) = written(image(&file, ImageFormat::Qcow2), 40 * MIB);
        let result = result.unwrap_or_else(|fault| panic!("{arguments:?}: {fault}"));
        assert_eq!(hex::encode(&result.sha256), sha256(&bytes), "{arguments:?}");
        assert!(disk[..bytes.len()] == bytes, "{arguments:?}");
        let start = (40 * MIB - file.len()) / MIB * MIB;
        assert!(disk[start..].iter().all(|byte| *byte == 0), "{arguments:?}: something of the file stays");
    }
}

#[test]
fn qcow2_that_names_other_files_or_is_broken_is_refused() {
    let bytes = content(MIB);
    let folder = tempfile::tempdir().unwrap();
    let base = folder.path().join("base");
    fs::write(&base, &bytes).unwrap();
    let create = |name: &str, arguments: &[&str]| {
        let path = folder.path().join(name);
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-f", "qcow2"]).args(arguments).arg(&path).arg("1M");
        assert!(command.status().unwrap().success(), "{command:?}");
        fs::read(path).unwrap()
    };
    let base = base.to_str().unwrap();
    let data = format!("data_file={base}.raw,data_file_raw=on");
    let good = qcow2(&bytes, &[]);
    let broken = |at: usize, with: &[u8]| {
        let mut file = good.clone();
        file[at..at + with.len()].copy_from_slice(with);
        file
    };
    for (what, file) in [
        ("backing file", create("backed", &["-F", "raw", "-b", base])),
        ("data file", create("data", &["-o", &data])),
        ("extended L2", create("extended", &["-o", "extended_l2=on,cluster_size=16k"])),
        ("no qcow2", bytes.clone()),
        ("empty", Vec::new()),
        ("cut off", good[..70].to_vec()),
        ("encrypted", broken(32, &1_u32.to_be_bytes())),
        ("snapshots", broken(60, &1_u32.to_be_bytes())),
        ("clusters of 2^40", broken(20, &40_u32.to_be_bytes())),
        ("clusters of 1", broken(20, &0_u32.to_be_bytes())),
        ("L1 behind the end", broken(40, &(1_u64 << 50).to_be_bytes())),
        ("a table of the first cluster", broken(36, &0_u32.to_be_bytes())),
        ("an exbibyte", broken(24, &(1_u64 << 59).to_be_bytes())),
        ("unknown feature", broken(72, &(1_u64 << 60).to_be_bytes())),
    ] {
        let (result, disk) = written(image(&file, ImageFormat::Qcow2), 40 * MIB);
        assert_eq!(code(result), StepFault::BadImage, "{what}");
        assert!(disk[..MIB].iter().all(|byte| *byte == 0), "{what}: the disk may boot");
    }
    let (result, _) = written(image(&qcow2(&content(9 * MIB), &[]), ImageFormat::Qcow2), 12 * MIB);
    assert_eq!(code(result), StepFault::ImageTooLarge, "no room for both");
}

/// Every byte of the tables turned, one after the other: an error or other bytes, and never a panic or an endless loop.
#[test]
fn a_qcow2_with_any_byte_turned_ends() {
    let good = qcow2(&content(64 * 1024), &["-c", "-o", "cluster_size=4k"]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    for at in (0..112).chain((112..good.len()).step_by(97)) {
        for with in [0x00, 0x80, 0xff] {
            let mut file = good.clone();
            file[at] = with;
            fs::write(&path, &file).unwrap();
            let opened = fs::File::open(&path).unwrap();
            let part = qcow2::Part { file: &opened, start: 0, bytes: file.len() as u64 };
            let mut seen = 0;
            let _ = qcow2::Qcow2::open(part).and_then(|image| {
                image.read_through(|part| {
                    seen += part.len();
                    if seen > 4 * MIB { Err(fault(StepFault::ImageTooLarge, "enough")) } else { Ok(()) }
                })
            });
        }
    }
}

#[test]
fn an_image_that_does_not_fit_its_disk_or_its_hash_leaves_nothing_that_boots() {
    let bytes = content(3 * MIB);
    let mut cut = zst(&bytes, &[]);
    cut.truncate(cut.len() / 2);
    let wrong = |format| Image { sha256: "0".repeat(64), ..image(&bytes, format) };
    for (what, result, expected) in [
        ("another hash", written(wrong(ImageFormat::Raw), 4 * MIB), StepFault::DigestMismatch),
        ("larger than the disk", written(image(&bytes, ImageFormat::Raw), 2 * MIB), StepFault::ImageTooLarge),
        (
            "unpacked larger",
            written(image(&gz(&bytes), ImageFormat::RawGz), 2 * MIB),
            StepFault::ImageTooLarge,
        ),
        (
            "unpacked larger",
            written(image(&zst(&bytes, &[]), ImageFormat::RawZst), 2 * MIB),
            StepFault::ImageTooLarge,
        ),
        ("cut off", written(image(&cut, ImageFormat::RawZst), 4 * MIB), StepFault::BadImage),
        ("cut off", written(image(&gz(&bytes)[..MIB], ImageFormat::RawGz), 4 * MIB), StepFault::BadImage),
        ("not packed", written(image(&bytes, ImageFormat::RawZst), 4 * MIB), StepFault::BadImage),
        ("not packed", written(image(&bytes, ImageFormat::RawGz), 4 * MIB), StepFault::BadImage),
        (
            "behind its end",
            written(image(&[gz(&bytes), vec![1; 9]].concat(), ImageFormat::RawGz), 4 * MIB),
            StepFault::BadImage,
        ),
        ("another hash", written(wrong(ImageFormat::Qcow2), 12 * MIB), StepFault::DigestMismatch),
    ] {
        let (result, disk) = result;
        assert_eq!(code(result), expected, "{what}");
        assert!(disk[..MIB].iter().chain(&disk[disk.len() - MIB..]).all(|byte| *byte == 0), "{what}");
    }
}

/// Gigabytes in kilobytes: it ends at the disk's end, and takes no memory.
#[test]
fn a_bomb_ends_at_the_end_of_the_disk() {
    let zeros = vec![0; 64 * MIB];
    let once = zst(&zeros, &["-19"]);
    assert!(once.len() < 16 * 1024);
    let many: Vec<u8> = std::iter::repeat_n(once, 256).flatten().collect();
    let (result, disk) = written(image(&many, ImageFormat::RawZst), 8 * MIB);
    assert_eq!((code(result), disk.len()), (StepFault::ImageTooLarge, 8 * MIB));
    let once = gz(&zeros);
    let many: Vec<u8> = std::iter::repeat_n(once, 64).flatten().collect();
    assert_eq!(code(written(image(&many, ImageFormat::RawGz), 8 * MIB).0), StepFault::ImageTooLarge);
    let window = made(&content(MIB), "zstd", &["-q", "-f", "--ultra", "-22", "--long=31"]);
    let result = written(image(&window, ImageFormat::RawZst), 4 * MIB).0;
    assert!(result.is_ok() || code(result) == StepFault::BadImage, "a window of 2 GiB");
}

/// A source that breaks off, and a step that is given up, are told from a broken image.
#[test]
fn what_is_wrong_with_the_source_is_said_as_such() {
    struct Breaks(usize);
    impl Read for Breaks {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 == 0 {
                return Err(io::Error::other("reset"));
            }
            let more = buffer.len().min(self.0);
            buffer[..more].copy_from_slice(&zst(&content(MIB), &[])[..more]);
            self.0 -= more;
            Ok(more)
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let target = Target::open(&disk_of(folder.path(), 4 * MIB)).unwrap();
    let image =
        || Image { source: Breaks(5000), length: None, sha256: "0".repeat(64), format: ImageFormat::RawZst };
    assert_eq!(code(write(image(), &target, &Work::default())), StepFault::Fetch);
    let work = Work::default();
    work.give_up();
    assert_eq!(code(write(image(), &target, &work)), StepFault::Timeout);
}
