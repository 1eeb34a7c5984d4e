//! Files that people name or that bcd keeps: opened only if they are files, read only up to a bound, and if that fails, whose
//! they are, who asks and what helps. It never waits for a FIFO or a device, and changes nothing.

use nix::{
    fcntl::OFlag,
    unistd::{Gid, Group, Uid, User, getegid, geteuid},
};
use shared::access::{Attempt, Barrier, Service, Stat, System, Use, explain, names};
use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

/// bcd, as its package runs it.
const BCD: Service = Service { user: "bcd", unit: "bcd" };

/// Whether a file stays out of reach until somebody changes a setting, a mode, an owner or the file itself.
#[must_use]
pub fn is_lasting(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::AlreadyExists
            | io::ErrorKind::FileTooLarge
            | io::ErrorKind::InvalidData
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::NotADirectory
            | io::ErrorKind::NotFound
            | io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
    )
}

/// Whose the file is and what helps, to be put behind an error's text; empty where it is not about that.
#[must_use]
pub fn remedy(path: &Path, wants: Use, error: &io::Error) -> String {
    let barrier = Barrier::of(error.kind());
    let said = barrier.map(|barrier| explain(&Machine, &Attempt { path, wants, service: BCD }, barrier));
    said.map(|said| format!("; {said}")).unwrap_or_default()
}

/// What a shell gives as a file and is a pipe, as `<(…)` does: whoever names it writes to it.
const OF_THE_SHELL: [&str; 3] = ["/dev/fd/", "/dev/stdin", "/proc/self/fd/"];

/// Opens a file for reading. What is no file is refused, and not waited for, unless a shell has made it.
///
/// # Errors
/// The file system's; it is a folder, a FIFO, a socket or a device.
pub fn open(path: &Path) -> io::Result<File> {
    if path.to_str().is_some_and(|path| OF_THE_SHELL.iter().any(|shell| path.starts_with(shell))) {
        return File::open(path);
    }
    // Before it is opened: to open a device may do something.
    only_file(&fs::metadata(path)?)?;
    open_as(path, OFlag::O_NONBLOCK)
}

fn open_as(path: &Path, flags: OFlag) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(path)?;
    only_file(&file.metadata()?)?;
    Ok(file)
}

/// The bytes of a file.
///
/// # Errors
/// As [`open`]; it has more than `max_bytes`.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_whole(open(path)?, max_bytes)
}

/// The bytes of a file that bcd has written, and not of what a link in its place leads to.
///
/// # Errors
/// As [`read`]; it is a link.
pub fn read_own(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    only_file(&fs::symlink_metadata(path)?)?;
    read_whole(open_as(path, OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW)?, max_bytes)
}

fn read_whole(file: File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > max_bytes {
        let text = format!("it has more than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    Ok(bytes)
}

/// Whether this is a file with content.
///
/// # Errors
/// It is something else; the text says what.
pub fn only_file(metadata: &Metadata) -> io::Result<()> {
    let kind = metadata.file_type();
    let what = match () {
        () if kind.is_file() => return Ok(()),
        () if kind.is_symlink() => "a link",
        () if kind.is_dir() => "a folder",
        () if kind.is_fifo() => "a FIFO",
        () if kind.is_socket() => "a socket",
        () => "a device",
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, format!("it is {what}, and must be a file")))
}

/// What is in this folder, or the folder itself, that its user may not use; said for who only looks, perhaps as root, whom
/// nothing stops. bcd's own user is the folder's owner.
#[must_use]
pub fn locked(folder: &Path, files: &[&str]) -> Option<String> {
    let home = stat(folder)?;
    let (uid, gid) = (home.uid, home.gid);
    let own = names(&Machine, uid, gid);
    let paths = files.iter().map(|file| folder.join(file));
    if let Some(link) = paths.clone().find(|path| path.is_symlink()) {
        return Some(format!("{} is a link, and bcd makes none: remove it", link.display()));
    }
    let found = [folder.to_owned()].into_iter().chain(paths).find_map(|path| {
        let stat = stat(&path)?;
        let bits = if stat.is_folder() { 7 } else { 6 };
        (stat.uid != uid || !stat.lets(uid, gid, bits)).then_some((path, stat))
    });
    let (path, stat) = found?;
    let (shown, owner) = (path.display(), names(&Machine, stat.uid, stat.gid));
    let remedy = if stat.uid == uid { "chmod u+rwX".to_owned() } else { format!("chown -h {own}") };
    Some(format!(
        "{shown} is of {owner}, mode {:04o}, and bcd as {own} may not use it (as a service it has no privileges); run: {remedy} \
         {shown}",
        stat.permissions()
    ))
}

/// Why the user of bcd's unit may not read this file, and what helps; `None` where it may, or where there is no such user.
#[must_use]
pub fn kept_from_the_unit(path: &Path) -> Option<String> {
    let user = User::from_name(BCD.user).ok().flatten()?;
    kept_from(&As { uid: user.uid.as_raw(), gid: user.gid.as_raw() }, path)
}

fn kept_from(user: &As, path: &Path) -> Option<String> {
    let bits_of = |at: &Path| if at == path { 4 } else { 1 };
    let passes = |at: &Path| stat(at).is_none_or(|stat| stat.lets(user.uid, user.gid, bits_of(at)));
    if path.ancestors().filter(|at| !at.as_os_str().is_empty()).all(passes) {
        return None;
    }
    Some(explain(user, &Attempt { path, wants: Use::Read, service: BCD }, Barrier::Denied))
}

fn stat(path: &Path) -> Option<Stat> {
    fs::metadata(path).ok().map(|found| Stat { uid: found.uid(), gid: found.gid(), mode: found.mode() })
}

/// This machine, asked by another user.
struct As {
    uid: u32,
    gid: u32,
}

impl System for As {
    fn stat(&self, path: &Path) -> Option<Stat> {
        stat(path)
    }
    fn user(&self, uid: u32) -> Option<String> {
        Machine.user(uid)
    }
    fn group(&self, gid: u32) -> Option<String> {
        Machine.group(gid)
    }
    fn asks(&self) -> (u32, u32) {
        (self.uid, self.gid)
    }
}

/// This machine and this process.
struct Machine;

impl System for Machine {
    fn stat(&self, path: &Path) -> Option<Stat> {
        stat(path)
    }
    fn user(&self, uid: u32) -> Option<String> {
        User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name)
    }
    fn group(&self, gid: u32) -> Option<String> {
        Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name)
    }
    fn asks(&self) -> (u32, u32) {
        (geteuid().as_raw(), getegid().as_raw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::{sys::stat::Mode, unistd::mkfifo};
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_no_file_is_said_and_never_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let fifo = folder.path().join("fifo");
        mkfifo(&fifo, Mode::S_IRUSR).unwrap();
        for (path, what) in
            [(fifo.as_path(), "a FIFO"), (folder.path(), "a folder"), (Path::new("/dev/zero"), "a device")]
        {
            let error = read(path, 10).unwrap_err();
            assert_eq!(error.to_string(), format!("it is {what}, and must be a file"));
            assert!(is_lasting(&error));
        }
        let file = folder.path().join("file");
        fs::write(&file, "12345").unwrap();
        assert_eq!(read(&file, 5).unwrap(), b"12345");
        assert!(read(&file, 4).unwrap_err().to_string().contains("more than 4 bytes"));
    }

    #[test]
    fn what_the_unit_may_not_read_is_named_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let file = folder.path().join("token");
        fs::write(&file, "x").unwrap();
        let said = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            kept_from(&As { uid: 4711, gid: 4712 }, &file)
        };
        assert_eq!(said(0o644), None);
        let text = said(0o640).unwrap();
        let remedy = format!("4711:4712 asks; run: chgrp 4712 {0} && chmod g+r {0}", file.display());
        assert!(text.contains("mode 0640") && text.ends_with(&remedy), "{text}");
        assert_eq!(kept_from(&As { uid: 4711, gid: 4712 }, &folder.path().join("absent")), None);
    }

    #[test]
    fn what_is_locked_is_named_with_its_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("state.json");
        fs::write(&file, "{}").unwrap();
        let said = |mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            locked(folder.path(), &["absent", "state.json"])
        };
        assert_eq!(said(0o600), None);
        let text = said(0o400).unwrap();
        assert!(
            text.contains("mode 0400") && text.ends_with(&format!("chmod u+rwX {}", file.display())),
            "{text}"
        );
        if geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(4711), Some(4711)).unwrap();
            let text = said(0o600).unwrap();
            assert!(text.contains("of 4711:4711") && text.contains("run: chown -h root:root "), "{text}");
        }
    }
}
