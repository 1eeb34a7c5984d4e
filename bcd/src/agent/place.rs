//! Files put into the system that was written to a disk: the credential that it joins with, settings, a tenant's user data.
//!
//! The file system is found by its `etc/os-release`, mounted, and left again. Its own links lead nowhere outside of it: paths
//! are resolved within it by the kernel. Nothing of the files is logged.

use super::{
    disks::{self, Disk, text},
    fault::{Fault, StepFault, disk as disk_fault, fault},
};
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2},
    mount::{MntFlags, MsFlags, mount, umount2},
    sys::stat::{Mode, fchmod, mkdirat},
    unistd::{fsync, syncfs},
};
use shared::secret::Secret;
use std::{
    fs::{self, File},
    io::{Read as _, Write as _},
    os::fd::{AsFd, OwnedFd},
    path::{Component, Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Where a file system is mounted meanwhile.
const MOUNT: &str = "/run/bcd-agent/system";
/// The file systems that a system may be on, as the kernel names them.
const FILE_SYSTEMS: [&str; 3] = ["ext4", "xfs", "btrfs"];
/// How often partitions are looked for after their table was written, and the time between.
const LOOKS: u32 = 20;
const BETWEEN: Duration = Duration::from_millis(500);
/// What shows that it is a system.
const OS_RELEASE: &str = "etc/os-release";
/// The most bytes of that that are read.
const MAX_OS_RELEASE: u64 = 16 * 1024;

/// A file of root's, in folders that are made where they are absent.
pub(crate) struct PlacedFile {
    /// Its absolute path, without `..`.
    pub(crate) path: &'static str,
    /// Its permissions.
    pub(crate) mode: u32,
    /// What is in it.
    pub(crate) content: Secret,
}

/// What the installed bcd joins by, and what its system is to find beside that: as systemd passes credentials on, as bcd reads
/// settings, and as cloud-init finds a seed (NoCloud).
pub(crate) fn credential(
    (relay, ca_pin): (&str, &str),
    token: Secret,
    user_data: Option<Secret>,
) -> Vec<PlacedFile> {
    let settings = format!("relay = {relay:?}\nca_pins = [{ca_pin:?}]\n");
    let file = |path, mode, content| PlacedFile { path, mode, content };
    let mut files = vec![
        file("/etc/credstore/bcd.join-token", 0o600, token),
        file("/etc/bcd/bcd.toml.d/50-metal.toml", 0o644, Secret::new(settings)),
    ];
    if let Some(user_data) = user_data {
        files.push(file("/var/lib/cloud/seed/nocloud/user-data", 0o600, user_data));
        let meta = Secret::new("instance-id: bcd-metal\n".to_owned());
        files.push(file("/var/lib/cloud/seed/nocloud/meta-data", 0o600, meta));
    }
    files
}

/// Puts files into the system on one of these disks: the first that has one. Answers its partition and its name.
///
/// # Errors
/// There is no system; it can't be written.
pub(crate) fn place(candidates: &[Disk], files: &[PlacedFile]) -> Result<(PathBuf, String), Fault> {
    for disk in candidates {
        read_table_again(&disk.device);
        for partition in partitions(disk) {
            for kind in FILE_SYSTEMS {
                let Some(mounted) = Mounted::open(&partition, kind) else { continue };
                let root = mounted.root()?;
                let Some(system) = system(&root) else { break };
                for file in files {
                    put(&root, file)?;
                }
                syncfs(&root).map_err(|error| disk_fault("writing files back")(error.into()))?;
                drop(root);
                mounted.close()?;
                return Ok((partition, system));
            }
        }
    }
    let names: Vec<String> = candidates.iter().map(Disk::describe).collect();
    let message = format!(
        "no partition of {} holds a system (ext4, xfs or btrfs with etc/os-release)",
        names.join(", ")
    );
    Err(fault(StepFault::NoSystem, message))
}

/// Has the kernel look at the disk's partitions once more.
fn read_table_again(device: &Path) {
    let mut blockdev = Command::new("/bin/busybox");
    blockdev.args(["blockdev", "--rereadpt"]).arg(device).stdin(Stdio::null()).stdout(Stdio::null());
    if !blockdev.status().is_ok_and(|status| status.success()) {
        tracing::warn!(device = %device.display(), "the kernel did not read the partition table again");
    }
}

/// The devices of a disk's partitions, and the disk itself at last: some images have no table.
fn partitions(disk: &Disk) -> Vec<PathBuf> {
    let folder = Path::new(disks::SYSFS).join(&disk.name);
    let list = || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let is_one =
            |name: &String| name.starts_with(&disk.name) && text(&folder.join(name).join("start")).is_some();
        let mut devices: Vec<PathBuf> =
            names.filter(is_one).map(|name| Path::new("/dev").join(name)).collect();
        devices.sort();
        devices
    };
    for _ in 0..LOOKS {
        let found = list();
        if !found.is_empty() && found.iter().all(|device| device.exists()) {
            return found.into_iter().chain([disk.device.clone()]).collect();
        }
        thread::sleep(BETWEEN);
    }
    vec![disk.device.clone()]
}

/// A file system that is mounted; it is left when this goes.
struct Mounted(bool);

impl Mounted {
    fn open(device: &Path, kind: &str) -> Option<Self> {
        fs::create_dir_all(MOUNT).ok()?;
        let flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
        mount(Some(device), MOUNT, Some(kind), flags, None::<&str>).ok().map(|()| Self(true))
    }

    fn root(&self) -> Result<OwnedFd, Fault> {
        open(MOUNT, OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|error| disk_fault("opening the system's root")(error.into()))
    }

    fn close(mut self) -> Result<(), Fault> {
        self.0 = false;
        umount2(MOUNT, MntFlags::empty()).map_err(|error| disk_fault("leaving the file system")(error.into()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.0
            && let Err(error) = umount2(MOUNT, MntFlags::MNT_DETACH)
        {
            tracing::warn!(%error, "a file system stays mounted");
        }
    }
}

/// A path within a folder, wherever its links lead.
fn within(root: &OwnedFd, path: &Path, flags: OFlag, mode: u32) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(Mode::from_bits_truncate(mode))
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_XDEV);
    openat2(root, path, how)
}

/// The name of the system under this root, empty where it says none; `None` if there is no system.
fn system(root: &OwnedFd) -> Option<String> {
    let file = within(root, Path::new(OS_RELEASE), OFlag::O_RDONLY, 0).ok()?;
    let mut text = String::new();
    File::from(file).take(MAX_OS_RELEASE).read_to_string(&mut text).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    Some(line.unwrap_or_default().trim_matches(['"', '\'']).to_owned())
}

/// Puts one file there, and its folders.
fn put(root: &OwnedFd, file: &PlacedFile) -> Result<(), Fault> {
    let path = relative(file.path)?;
    let failed = |error: Errno| disk_fault(format!("writing {}", file.path))(error.into());
    let (folder, name) = (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default());
    let mut at = PathBuf::from(".");
    for part in folder.components() {
        let parent = within(root, &at, OFlag::O_DIRECTORY | OFlag::O_RDONLY, 0).map_err(failed)?;
        match mkdirat(&parent, part.as_os_str(), Mode::from_bits_truncate(0o755)) {
            Ok(()) | Err(Errno::EEXIST) => at.push(part),
            Err(error) => return Err(failed(error)),
        }
    }
    let mode = file.mode;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_TRUNC | OFlag::O_NOFOLLOW;
    let opened = within(root, &at.join(name), flags, mode).map_err(failed)?;
    fchmod(opened.as_fd(), Mode::from_bits_truncate(mode)).map_err(failed)?;
    let mut opened = File::from(opened);
    let written = opened.write_all(file.content.expose().as_bytes());
    written.map_err(disk_fault(format!("writing {}", file.path)))?;
    fsync(&opened).map_err(failed)
}

/// An absolute path, as it lies under a root.
fn relative(path: &str) -> Result<PathBuf, Fault> {
    let mut parts = Path::new(path).components();
    let is_absolute = parts.next() == Some(Component::RootDir);
    let rest = parts.as_path();
    let plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
    if is_absolute && plain && rest.file_name().is_some() && !path.ends_with('/') {
        return Ok(rest.to_owned());
    }
    Err(fault(StepFault::NoSystem, format!("{path} is no absolute path of a file, without dots")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    fn file(path: &'static str, content: &str) -> PlacedFile {
        PlacedFile { path, mode: 0o600, content: Secret::new(content.into()) }
    }

    #[test]
    fn the_settings_that_are_placed_are_those_that_bcd_reads() {
        let pin = format!("sha256:{}", "a".repeat(64));
        let files = credential(("https://relay.example:8443", &pin), Secret::new("t".into()), None);
        let folder = tempfile::tempdir().unwrap();
        for file in &files {
            put(&root(folder.path()), file).unwrap();
        }
        let merged = crate::config::read(
            folder.path(),
            |_| None,
            crate::config::fragment::Fragment::from_flags(Vec::new()),
        );
        let settings = crate::config::Settings::parse(&merged.unwrap()).unwrap();
        assert_eq!(settings.relay.unwrap().authority(), "relay.example:8443");
        assert_eq!(settings.trust, Some(crate::config::TrustSettings::Pins(vec![[0xaa; 32]])));
        assert_eq!(credential(("", ""), Secret::new("t".into()), Some(Secret::new("u".into()))).len(), 4);
    }

    fn root(folder: &Path) -> OwnedFd {
        open(folder, OFlag::O_DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_file_is_put_where_it_belongs_with_its_mode_and_nothing_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("etc")).unwrap();
        for content in ["a longer one", "short"] {
            put(&root(folder.path()), &file("/etc/credstore/bcd.join-token", content)).unwrap();
            let path = folder.path().join("etc/credstore/bcd.join-token");
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn links_of_the_system_lead_nowhere_outside_of_it() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let inside = folder.path();
        fs::create_dir_all(inside.join("usr/etc")).unwrap();
        symlink("/usr/etc", inside.join("etc")).unwrap();
        put(&root(inside), &file("/etc/file", "x")).unwrap();
        assert!(inside.join("usr/etc/file").exists());
        symlink(other.path(), inside.join("out")).unwrap();
        assert!(put(&root(inside), &file("/out/file", "x")).is_err());
        fs::write(other.path().join("victim"), "old").unwrap();
        symlink(other.path().join("victim"), inside.join("usr/etc/link")).unwrap();
        assert!(put(&root(inside), &file("/etc/link", "x")).is_err());
        assert_eq!(fs::read_to_string(other.path().join("victim")).unwrap(), "old");
        assert_eq!(fs::read_dir(other.path()).unwrap().count(), 1);
    }

    #[test]
    fn odd_paths_are_refused() {
        for path in ["etc/x", "/", "", "/etc/../x", "/etc/", "/./x/..", ".."] {
            assert!(relative(path).is_err(), "{path:?}");
        }
        assert_eq!(relative("/etc/./x").unwrap(), Path::new("etc/./x"));
    }
}
