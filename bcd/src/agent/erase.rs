//! Disks made blank: of their tables and signatures only, or of everything.
//!
//! A disk counts as erased only when all of it was read back as zeros. What a drive says of itself is tried first, since it
//! reaches what can't be written over (spare blocks), and is not believed: the next way is taken where it does not read as
//! zeros. One that is not blank is reported as such, and the relay lets the machine go nowhere.

use super::{
    disks::Disk,
    fault::{Fault, StepFault, fault, label},
    target::Target,
    work::Work,
};
use shared::api::steps::DiskReport;
use std::{
    path::Path,
    process::{Command, ExitStatus, Stdio},
};

/// How much is written over at the beginning and the end of a disk, and of each partition: tables (GPT at both ends), and
/// what RAID, LVM and file systems are known by (MD 1.0 at the end, ZFS at both).
const ENDS: u64 = 4 << 20;
/// nvme-cli, in the agent's image.
const NVME: &str = "/usr/sbin/nvme";

/// How a disk was made blank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EraseMethod {
    /// The drive erased all user data itself (NVMe Format, Secure Erase Settings 1).
    NvmeFormat,
    /// All blocks were discarded, and read as zeros.
    Discard,
    /// Zeros were written.
    Overwrite,
    /// Only the tables and signatures were written over.
    Wipe,
    /// Nothing worked.
    None,
}

impl EraseMethod {
    /// As it is reported.
    const fn as_str(self) -> &'static str {
        match self {
            Self::NvmeFormat => "nvmeFormat",
            Self::Discard => "discard",
            Self::Overwrite => "overwrite",
            Self::Wipe => "wipe",
            Self::None => "none",
        }
    }
}

/// Takes tables and signatures off all disks. A disk that can't be written is reported as not done.
///
/// # Errors
/// The step was given up.
pub(crate) fn wipe_metadata(disks: &[Disk], work: &Work) -> Result<Vec<DiskReport>, Fault> {
    each(disks, |disk| {
        let target = Target::open(&disk.device)?;
        let parts = disk.partitions.iter().copied().chain([(0, target.bytes)]);
        for (start, length) in parts {
            target.zero(start, ENDS.min(length), work)?;
            target.zero((start + length).saturating_sub(ENDS.min(length)), ENDS.min(length), work)?;
        }
        target.sync()?;
        Ok(EraseMethod::Wipe)
    })
}

/// Erases all disks. A disk that is not blank is reported as not done.
///
/// # Errors
/// The step was given up.
pub(crate) fn erase(disks: &[Disk], work: &Work) -> Result<Vec<DiskReport>, Fault> {
    each(disks, |disk| {
        tracing::info!(disk = disk.describe(), "erasing");
        erase_one(&disk.device, work)
    })
}

/// By the first way after which all of it reads as zeros; answers that way.
fn erase_one(device: &Path, work: &Work) -> Result<EraseMethod, Fault> {
    // Nobody may have it open meanwhile, the drive's own tool neither.
    let formatted = is_nvme(device) && format_nvme(device);
    let target = Target::open(device)?;
    if formatted && is_blank(&target, work)? {
        return Ok(EraseMethod::NvmeFormat);
    }
    if target.discard() && is_blank(&target, work)? {
        return Ok(EraseMethod::Discard);
    }
    work.begin(target.bytes);
    target.zero(0, target.bytes, work)?;
    match is_blank(&target, work)? {
        true => Ok(EraseMethod::Overwrite),
        false => Err(fault(
            StepFault::ReadBack,
            "it was written over and does not read as zeros: the disk is broken",
        )),
    }
}

/// Does this to every disk, whatever becomes of the others.
fn each(
    disks: &[Disk],
    mut act: impl FnMut(&Disk) -> Result<EraseMethod, Fault>,
) -> Result<Vec<DiskReport>, Fault> {
    let mut reports = Vec::with_capacity(disks.len());
    for disk in disks {
        let done = match act(disk) {
            Err(error) if error.code == StepFault::Timeout => return Err(error),
            done => done,
        };
        if let Err(error) = &done {
            tracing::error!(disk = disk.describe(), %error, "a disk is not erased");
        }
        reports.push(DiskReport {
            name: label(&disk.name),
            serial: disk.serial.as_deref().map(label),
            method: label(done.as_ref().map_or(EraseMethod::None, |method| *method).as_str()),
            done: done.is_ok(),
        });
    }
    Ok(reports)
}

/// Whether all of a disk reads as zeros.
fn is_blank(target: &Target, work: &Work) -> Result<bool, Fault> {
    target.sync()?;
    work.begin(target.bytes);
    let zeros = vec![0; super::target::CHUNK];
    let mut blank = true;
    let looked = target.read_through(target.bytes, work, |at, part| {
        blank = zeros.get(..part.len()) == Some(part);
        if blank {
            Ok(())
        } else {
            Err(fault(StepFault::ReadBack, format!("there is something at byte {at}")))
        }
    });
    if !blank {
        return Ok(false);
    }
    looked.map(|()| true)
}

fn is_nvme(device: &Path) -> bool {
    device.file_name().is_some_and(|name| name.to_string_lossy().starts_with("nvme"))
        && Path::new(NVME).exists()
}

/// Has the drive erase all user data of a namespace.
fn format_nvme(device: &Path) -> bool {
    let mut nvme = Command::new(NVME);
    nvme.arg("format").arg(device).args(["--ses=1", "--force"]).stdin(Stdio::null()).stdout(Stdio::null());
    let formatted = nvme.status();
    let done = formatted.as_ref().is_ok_and(ExitStatus::success);
    if !done {
        tracing::warn!(device = %device.display(), ?formatted, "nvme format did not work; another way is taken");
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, path::PathBuf};

    fn disk(path: &Path) -> Disk {
        Disk {
            name: "vda".into(),
            device: path.to_owned(),
            bytes: fs::metadata(path).map_or(0, |file| file.len()),
            model: None,
            serial: Some("S1".into()),
            wwn: None,
            partitions: vec![(8 << 20, 9 << 20)],
        }
    }

    fn full(folder: &Path, name: &str, bytes: usize) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, vec![0xa5; bytes]).unwrap();
        path
    }

    #[test]
    fn what_is_erased_is_blank_to_the_last_byte() {
        let folder = tempfile::tempdir().unwrap();
        let path = full(folder.path(), "disk", (9 << 20) + 777);
        let report = erase(&[disk(&path)], &Work::default()).unwrap();
        assert!(fs::read(&path).unwrap().iter().all(|byte| *byte == 0));
        let [only] = &*report else { panic!("one disk") };
        assert!(only.done && matches!(only.method.as_str(), "discard" | "overwrite"), "{only:?}");
    }

    #[test]
    fn metadata_goes_at_both_ends_of_the_disk_and_of_its_partitions_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = full(folder.path(), "disk", 32 << 20);
        wipe_metadata(&[disk(&path)], &Work::default()).unwrap();
        let bytes = fs::read(&path).unwrap();
        let blank = |from: usize, to: usize| bytes[from << 20..to << 20].iter().all(|byte| *byte == 0);
        let kept = |from: usize, to: usize| bytes[from << 20..to << 20].iter().all(|byte| *byte == 0xa5);
        assert!(blank(0, 4) && kept(4, 8) && blank(8, 12) && kept(12, 13) && blank(13, 17) && kept(17, 28));
        assert!(blank(28, 32));
    }

    #[test]
    fn one_disk_that_is_not_erased_is_told_and_the_others_are_erased_all_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let good = full(folder.path(), "good", 1 << 20);
        let mut gone = disk(&good);
        gone.device = folder.path().join("gone");
        let reports = erase(&[gone, disk(&good)], &Work::default()).unwrap();
        let told: Vec<_> =
            reports.iter().map(|report| (report.done, report.method.as_str() == "none")).collect();
        assert_eq!(told, [(false, true), (true, false)]);
        assert!(fs::read(&good).unwrap().iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_step_that_is_given_up_ends() {
        let folder = tempfile::tempdir().unwrap();
        let path = full(folder.path(), "disk", 64 << 20);
        let work = Work::default();
        work.give_up();
        assert_eq!(erase(&[disk(&path)], &work).unwrap_err().code, StepFault::Timeout);
    }
}
