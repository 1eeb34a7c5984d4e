//! The disks of the machine, as Linux shows them, and which of them is meant.
//!
//! What can be taken out or is no disk of the machine's own is left out: CDs and sticks (a BMC's virtual media are among
//! them), what is made of other disks or of memory. Nothing is written here.

use super::fault::{Fault, StepFault, fault};
use shared::{
    api::steps::DiskHint,
    bounded::{Int, Label},
};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Where Linux shows them.
pub(crate) const SYSFS: &str = "/sys/block";
/// The most disks that are looked at.
const MAX_DISKS: usize = 256;
/// Names of what is made of memory or of other disks, or has a medium that is changed.
const NOT_DISKS: [&str; 9] = ["loop", "ram", "zram", "sr", "dm-", "md", "fd", "nbd", "drbd"];
/// The kernel counts sectors of this many bytes, whatever the disk's are.
const SECTOR_BYTES: u64 = 512;
const GIB: u64 = 1 << 30;

/// A disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Disk {
    /// The kernel's name for it.
    pub(crate) name: String,
    /// Its device.
    pub(crate) device: PathBuf,
    pub(crate) bytes: u64,
    pub(crate) model: Option<String>,
    pub(crate) serial: Option<String>,
    pub(crate) wwn: Option<String>,
    /// Its partitions: first byte and length.
    pub(crate) partitions: Vec<(u64, u64)>,
}

/// All disks, by name.
pub(crate) fn all(sysfs: &Path) -> Vec<Disk> {
    let Ok(entries) = fs::read_dir(sysfs) else { return Vec::new() };
    let mut disks: Vec<Disk> = entries.flatten().filter_map(|entry| look(&entry.path())).collect();
    disks.sort_by(|one, other| one.name.cmp(&other.name));
    disks.truncate(MAX_DISKS);
    disks
}

/// The disk that a hint means, of at least so many bytes.
///
/// # Errors
/// None fits.
pub(crate) fn choose<'a>(disks: &'a [Disk], hint: &DiskHint, least_bytes: u64) -> Result<&'a Disk, Fault> {
    let least = hint.min_size_gib.map_or(0, |gib| u64::try_from(gib.get()).unwrap_or(0).saturating_mul(GIB));
    let named: Vec<&Disk> = disks.iter().filter(|disk| is_meant(disk, hint)).collect();
    let chosen = named.iter().copied().filter(|disk| disk.bytes >= least.max(least_bytes));
    chosen.min_by_key(|disk| (disk.bytes, &disk.name)).ok_or_else(|| {
        let seen: Vec<String> = disks.iter().map(Disk::describe).collect();
        let seen = if seen.is_empty() { "none".to_owned() } else { seen.join(", ") };
        let least = least.max(least_bytes);
        fault(
            if named.is_empty() { StepFault::NoDisk } else { StepFault::ImageTooLarge },
            format!("choosing a disk: none fits the hint and has {least} bytes; the machine has: {seen}"),
        )
    })
}

fn is_meant(disk: &Disk, hint: &DiskHint) -> bool {
    let same = |wanted: Option<&Label>, seen: Option<&str>| {
        wanted.is_none_or(|wanted| seen.is_some_and(|seen| seen.eq_ignore_ascii_case(wanted.as_str().trim())))
    };
    let model = hint.model.as_ref().map(|part| part.as_str().to_lowercase());
    let has_model =
        |part: &String| disk.model.as_ref().is_some_and(|model| model.to_lowercase().contains(part));
    same(hint.serial.as_ref(), disk.serial.as_deref())
        && same(hint.wwn.as_ref(), disk.wwn.as_deref())
        && model.as_ref().is_none_or(has_model)
}

impl Disk {
    /// Its line for people.
    pub(crate) fn describe(&self) -> String {
        format!("{} ({} bytes, {})", self.name, self.bytes, self.model.as_deref().unwrap_or("no model"))
    }

    /// Its line in a hardware report.
    pub(crate) fn summary(&self) -> String {
        let gib = self.bytes / GIB;
        let size = if gib > 0 { format!("{gib} GiB") } else { format!("{} MiB", self.bytes >> 20) };
        format!("{}, {size}", self.model.as_deref().unwrap_or(&self.name))
    }
}

/// A number of bytes as the wire has it.
pub(crate) fn bytes(count: u64) -> Option<Int<0, { i64::MAX }>> {
    i64::try_from(count).ok()?.try_into().ok()
}

fn look(folder: &Path) -> Option<Disk> {
    let name = folder.file_name()?.to_str()?.to_owned();
    let read = |file: &str| text(&folder.join(file));
    let number = |file: &str| read(file).and_then(|text| text.parse::<u64>().ok());
    let bytes = number("size")?.checked_mul(SECTOR_BYTES)?;
    let place = fs::canonicalize(folder).ok()?.to_string_lossy().into_owned();
    let is_disk = !NOT_DISKS.iter().any(|kind| name.starts_with(kind))
        && bytes > 0
        && number("ro") != Some(1)
        && number("removable") != Some(1)
        && !place.contains("/usb")
        // One path of several, or a part of a drive's firmware.
        && !name.contains("boot")
        && number("hidden") != Some(1);
    is_disk.then(|| Disk {
        device: Path::new("/dev").join(&name),
        bytes,
        model: read("device/model"),
        serial: read("device/serial").or_else(|| read("serial")).or_else(|| page_80(folder)),
        wwn: read("wwid").or_else(|| read("device/wwid")),
        partitions: partitions(folder, &name),
        name,
    })
}

/// A SCSI disk's serial number (VPD page 80h): four bytes, then the text.
fn page_80(folder: &Path) -> Option<String> {
    let page = fs::read(folder.join("device/vpd_pg80")).ok()?;
    let length = usize::from(u16::from_be_bytes([*page.get(2)?, *page.get(3)?]));
    let text = String::from_utf8_lossy(page.get(4..)?.get(..length)?).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn partitions(folder: &Path, name: &str) -> Vec<(u64, u64)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found: Vec<(u64, u64)> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(name))
        .filter_map(|entry| {
            let number = |file: &str| text(&entry.path().join(file))?.parse::<u64>().ok();
            Some((number("start")?.checked_mul(SECTOR_BYTES)?, number("size")?.checked_mul(SECTOR_BYTES)?))
        })
        .collect();
    found.sort_unstable();
    found
}

/// A one-line file, trimmed; `None` if it is absent or empty.
pub(super) fn text(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text =
        String::from_utf8_lossy(&text).trim_matches(|c: char| c.is_whitespace() || c == '\0').to_owned();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, place in the tree, files.
    type Shown<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

    /// A folder like `/sys/block` with these disks.
    fn sysfs(disks: &[Shown<'_>]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("block")).unwrap();
        for (name, place, files) in disks {
            let folder = root.path().join(place).join(name);
            for (file, text) in *files {
                let path = folder.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            std::os::unix::fs::symlink(&folder, root.path().join("block").join(name)).unwrap();
        }
        root
    }

    const NVME: &[(&str, &str)] = &[
        ("size", "3750748848"),
        ("device/model", "SAMSUNG MZQL21T9HCJR-00A07   "),
        ("device/serial", "S64GNE0R123456      "),
        ("wwid", "eui.36344730523123450025384500000001"),
        ("queue/rotational", "0"),
        ("nvme0n1p1/start", "2048"),
        ("nvme0n1p1/size", "1048576"),
    ];
    const HDD: &[(&str, &str)] =
        &[("size", "7814037168"), ("device/model", "ST4000NM000A"), ("queue/rotational", "1")];
    const SMALL: &[(&str, &str)] = &[("size", "1000215216"), ("serial", "VIRT1"), ("queue/rotational", "1")];

    fn three() -> tempfile::TempDir {
        sysfs(&[
            ("nvme0n1", "pci/nvme/nvme0", NVME),
            ("sda", "pci/ata1/host0", HDD),
            ("vda", "pci/virtio0", SMALL),
            ("sr0", "pci/ata2", &[("size", "100000"), ("removable", "1")]),
            ("sdb", "pci/usb1/1-1", &[("size", "100000")]),
            ("loop0", "virtual", &[("size", "100000")]),
            ("sdc", "pci/ata3", &[("size", "0")]),
            ("sdd", "pci/ata4", &[("size", "100"), ("ro", "1")]),
            ("mmcblk0boot0", "pci/mmc0", &[("size", "100")]),
        ])
    }

    fn found() -> Vec<Disk> {
        all(&three().path().join("block"))
    }

    #[test]
    fn the_machines_own_disks_and_no_others() {
        let disks = found();
        assert_eq!(
            disks.iter().map(|disk| disk.name.as_str()).collect::<Vec<_>>(),
            ["nvme0n1", "sda", "vda"]
        );
        let nvme = &disks[0];
        assert_eq!((nvme.bytes, nvme.serial.as_deref()), (1_920_383_410_176, Some("S64GNE0R123456")));
        assert_eq!(nvme.partitions, [(1_048_576, 536_870_912)]);
        assert_eq!(disks[2].serial.as_deref(), Some("VIRT1"));
        assert_eq!(nvme.summary(), "SAMSUNG MZQL21T9HCJR-00A07, 1788 GiB");
    }

    #[test]
    fn the_disk_that_is_meant_is_the_smallest_that_fits() {
        let disks = found();
        let hint = |text: &str| serde_json::from_str::<DiskHint>(text).unwrap();
        for (text, least, expected) in [
            ("{}", 0, Ok("vda")),
            ("{}", 600_000_000_000, Ok("nvme0n1")),
            (r#"{"model": "ST4000"}"#, 600_000_000_000, Ok("sda")),
            (r#"{"serial": "s64gne0r123456"}"#, 0, Ok("nvme0n1")),
            (r#"{"model": "samsung"}"#, 0, Ok("nvme0n1")),
            (r#"{"minSizeGib": 2000}"#, 0, Ok("sda")),
            (r#"{"serial": "OTHER"}"#, 0, Err(StepFault::NoDisk)),
            (r#"{"serial": "VIRT1"}"#, 600_000_000_000, Err(StepFault::ImageTooLarge)),
            ("{}", u64::MAX, Err(StepFault::ImageTooLarge)),
        ] {
            let chosen = choose(&disks, &hint(text), least).map(|disk| disk.name.as_str());
            assert_eq!(chosen.map_err(|fault| fault.code), expected, "{text} {least}");
        }
        assert_eq!(choose(&[], &hint("{}"), 0).unwrap_err().code, StepFault::NoDisk);
    }
}
