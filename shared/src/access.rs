//! Why a file can't be used, for people: whose it is, its mode, who asks, and what helps. What the file system says comes
//! from the caller; nothing here looks or changes.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
};

/// What a file's metadata says of its owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Type and permission bits, as `st_mode` has them.
    pub mode: u32,
}

impl Stat {
    /// The permission bits.
    #[must_use]
    pub const fn permissions(self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether it is a folder.
    #[must_use]
    pub const fn is_folder(self) -> bool {
        self.mode & 0o170_000 == 0o040_000
    }

    /// Whether it is a file with content on a disk: no FIFO, device, socket or folder.
    #[must_use]
    pub const fn is_file(self) -> bool {
        self.mode & 0o170_000 == 0o100_000
    }

    /// Whether its bits let this user do all of `bits` (4 read, 2 write, 1 search). No privilege, no further group and no
    /// access list is thought of.
    #[must_use]
    pub const fn lets(self, uid: u32, gid: u32, bits: u32) -> bool {
        let shift = match (self.uid == uid, self.gid == gid) {
            (true, _) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        (self.mode >> shift) & bits == bits
    }
}

/// The machine that is asked.
pub trait System {
    /// What is at this path, links followed; `None` if nothing that can be seen.
    fn stat(&self, path: &Path) -> Option<Stat>;
    /// The user's name, if it has one.
    fn user(&self, uid: u32) -> Option<String>;
    /// The group's name, if it has one.
    fn group(&self, gid: u32) -> Option<String>;
    /// The user and group that this process acts as.
    fn asks(&self) -> (u32, u32);
}

/// Which program asks, as its package runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// The user of its unit.
    pub user: &'static str,
    /// Its unit, without the suffix.
    pub unit: &'static str,
}

/// What stood in the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Barrier {
    /// EACCES or EPERM.
    Denied,
    /// EROFS.
    ReadOnly,
}

impl Barrier {
    /// The barrier of an error of this kind, if it is one.
    #[must_use]
    pub const fn of(kind: ErrorKind) -> Option<Self> {
        match kind {
            ErrorKind::PermissionDenied => Some(Self::Denied),
            ErrorKind::ReadOnlyFilesystem => Some(Self::ReadOnly),
            _ => None,
        }
    }
}

/// What a program wants of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// To read a file that a person writes: it stays that person's.
    Read,
    /// A file of the program's own.
    Keep,
    /// A folder of its own.
    Folder,
}

impl Use {
    /// The permission bits that it needs.
    const fn bits(self) -> u32 {
        match self {
            Self::Read => 4,
            Self::Keep => 6,
            Self::Folder => 7,
        }
    }
}

/// What a failed operation was about.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The file or folder; it may be absent.
    pub path: &'a Path,
    /// What it is for.
    pub wants: Use,
    /// Who asked.
    pub service: Service,
}

/// Whose the thing in the way is, who asks, and what helps.
#[must_use]
pub fn explain(system: &dyn System, attempt: &Attempt<'_>, barrier: Barrier) -> String {
    match barrier {
        Barrier::Denied => denied(system, attempt),
        Barrier::ReadOnly => read_only(attempt),
    }
}

/// `relay:relay`, by number where there is no name.
#[must_use]
pub fn names(system: &dyn System, uid: u32, gid: u32) -> String {
    let user = system.user(uid).unwrap_or_else(|| uid.to_string());
    let group = system.group(gid).unwrap_or_else(|| gid.to_string());
    format!("{user}:{group}")
}

fn denied(system: &dyn System, attempt: &Attempt<'_>) -> String {
    let (uid, gid) = system.asks();
    let asks = names(system, uid, gid);
    let Some((at, stat)) = in_the_way(system, attempt, uid, gid) else {
        return format!("{asks} asks, and may not even look there");
    };
    let bits = if at == attempt.path { attempt.wants.bits() } else { 7 };
    let shown = at.display();
    let owner = names(system, stat.uid, stat.gid);
    let found = format!("{shown} is of {owner}, mode {:04o}, and {asks} asks", stat.permissions());
    if is_hidden_by_systemd(&at, stat) {
        let rule =
            "systemd hides it from a unit with ProtectHome=: take a folder elsewhere, such as below /srv";
        return format!("{found}; {rule}");
    }
    let named = |id: u32, name: &str| system.user(id).is_some_and(|known| known == name);
    let remedy = if stat.uid == uid {
        match stat.lets(uid, gid, bits) {
            false => format!("run: chmod {} {shown}", if stat.is_folder() { "u+rwx" } else { "u+rw" }),
            true => "that would do, so something else forbids it: a security module (SELinux, AppArmor; see the journal), or \
                     an attribute (lsattr)"
                .to_owned(),
        }
    } else if named(stat.uid, attempt.service.user) || is_for_the_service(system, attempt, stat) {
        // The service itself can use it: a person asks.
        format!("ask as {} or as root", attempt.service.user)
    } else if uid == 0 {
        // Root without its privileges, as in a container: what is others' it takes as a whole or not at all.
        format!("this root has no privileges: chown -hR root:root {shown}, or give it CAP_DAC_OVERRIDE")
    } else if attempt.wants == Use::Read || !is_its_own(&at, attempt) {
        // It stays whose it is: a service that owns where its settings are could exchange them.
        let group = system.group(gid).unwrap_or_else(|| gid.to_string());
        let bits = if stat.is_folder() { "g+x" } else { "g+r" };
        format!("run: chgrp {group} {shown} && chmod {bits} {shown}")
    } else {
        let Service { user, unit } = attempt.service;
        match named(uid, user) {
            true => format!("run: chown -h {asks} {shown}"),
            false => format!(
                "ask as {}, or, if {unit} is to run as this user: chown -h {asks} {shown}",
                first(&owner)
            ),
        }
    };
    format!("{found}; {remedy}")
}

/// Whether somebody has let the service's group do what is wanted.
fn is_for_the_service(system: &dyn System, attempt: &Attempt<'_>, stat: Stat) -> bool {
    let bits = if stat.is_folder() { 1 } else { 4 };
    attempt.wants == Use::Read
        && (stat.mode >> 3) & bits == bits
        && system.group(stat.gid).is_some_and(|group| group == attempt.service.user)
}

/// Whether this is the program's own to have: what it wants to keep, and the folder that it keeps it in.
fn is_its_own(at: &Path, attempt: &Attempt<'_>) -> bool {
    at == attempt.path || (attempt.wants == Use::Keep && Some(at) == attempt.path.parent())
}

fn first(names: &str) -> &str {
    names.split(':').next().unwrap_or(names)
}

/// The first on the way whose bits don't let this user pass; else the thing itself, or the last that is there.
fn in_the_way(system: &dyn System, attempt: &Attempt<'_>, uid: u32, gid: u32) -> Option<(PathBuf, Stat)> {
    let Attempt { path, wants, .. } = *attempt;
    let mut last = None;
    let folders: Vec<&Path> =
        path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()).collect();
    for folder in folders.into_iter().rev() {
        let Some(stat) = system.stat(folder) else { break };
        if !stat.lets(uid, gid, 1) {
            return Some((folder.to_owned(), stat));
        }
        last = Some((folder.to_owned(), stat));
    }
    let Some(own) = system.stat(path) else { return last };
    let is_kept = wants == Use::Keep && own.lets(uid, gid, wants.bits());
    match last {
        // To put another one in its place the folder must be written to.
        Some((folder, stat)) if is_kept && !stat.lets(uid, gid, 3) => Some((folder, stat)),
        _ => Some((path.to_owned(), own)),
    }
}

/// What ProtectHome=yes leaves of these folders.
fn is_hidden_by_systemd(path: &Path, stat: Stat) -> bool {
    let is_home = ["/home", "/root", "/run/user"].iter().any(|home| path == Path::new(home));
    is_home && stat.permissions() & 0o777 == 0
}

fn read_only(attempt: &Attempt<'_>) -> String {
    let Service { user, unit } = attempt.service;
    let folder = if attempt.wants == Use::Folder { Some(attempt.path) } else { attempt.path.parent() };
    let folder = folder.unwrap_or(attempt.path).display();
    format!(
        "it is on a file system that is read-only for this process: if systemd started it, its unit lets it write nowhere but \
         into its own folder (ProtectSystem=strict). For another one: install -d -m 700 -o {user} -g {user} {folder}, then \
         `systemctl edit {unit}` with the lines [Service] and ReadWritePaths={folder}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const SERVICE: Service = Service { user: "relay", unit: "relay" };
    const FOLDER: u32 = 0o040_000;
    const FILE: u32 = 0o100_000;

    struct Fake {
        files: HashMap<&'static str, Stat>,
        asks: u32,
    }

    impl System for Fake {
        fn stat(&self, path: &Path) -> Option<Stat> {
            self.files.get(path.to_str()?).copied()
        }
        fn user(&self, uid: u32) -> Option<String> {
            [(0, "root"), (998, "relay"), (1000, "alice")]
                .into_iter()
                .find_map(|(id, name)| (id == uid).then(|| name.to_owned()))
        }
        fn group(&self, gid: u32) -> Option<String> {
            self.user(gid)
        }
        fn asks(&self) -> (u32, u32) {
            (self.asks, self.asks)
        }
    }

    /// What is said where `asks` wants to use `/srv/relay/relay.db`.
    fn said(asks: u32, folder: (u32, u32), file: Option<(u32, u32)>) -> String {
        let stat = |(id, mode): (u32, u32), kind: u32| Stat { uid: id, gid: id, mode: kind | mode };
        let open = stat((0, 0o755), FOLDER);
        let mut files = HashMap::from([("/", open), ("/srv", open), ("/srv/relay", stat(folder, FOLDER))]);
        files.extend(file.map(|file| ("/srv/relay/relay.db", stat(file, FILE))));
        let path = Path::new("/srv/relay/relay.db");
        explain(&Fake { files, asks }, &Attempt { path, wants: Use::Keep, service: SERVICE }, Barrier::Denied)
    }

    #[test]
    fn what_stands_in_the_way_is_named_with_owner_mode_asker_and_remedy() {
        let own = (998, 0o700);
        for (text, parts) in [
            (
                said(998, own, Some((0, 0o600))),
                "/srv/relay/relay.db is of root:root, mode 0600, and relay:relay asks; run: chown -h relay:relay \
                 /srv/relay/relay.db",
            ),
            (said(998, (0, 0o700), None), "; run: chown -h relay:relay /srv/relay"),
            (said(998, (0, 0o755), None), "; run: chown -h relay:relay /srv/relay"),
            (said(998, (0, 0o755), Some((998, 0o600))), "; run: chown -h relay:relay /srv/relay"),
            (said(998, (1000, 0o700), None), "; run: chown -h relay:relay /srv/relay"),
            (said(998, (998, 0o500), None), "mode 0500, and relay:relay asks"),
            (said(998, own, Some((998, 0o400))), "; run: chmod u+rw /srv/relay/relay.db"),
            (said(998, (998, 0o600), None), "; run: chmod u+rwx /srv/relay"),
            (said(998, own, Some((998, 0o600))), "something else forbids it"),
            // A person is not to take the service's files.
            (said(1000, own, None), "and alice:alice asks; ask as relay or as root"),
            (
                said(4711, (5, 0o700), None),
                "of 5:5, mode 0700, and 4711:4711 asks; ask as 5, or, if relay is to run as this user: chown -h 4711:4711",
            ),
        ] {
            assert!(text.contains(parts), "{text}\nhas not: {parts}");
        }
        assert!(!said(1000, own, None).contains("chown"));
    }

    #[test]
    fn a_home_that_systemd_hides_and_a_disk_that_is_read_only_have_remedies_of_their_own() {
        let stat = |mode| Stat { uid: 0, gid: 0, mode: FOLDER | mode };
        let files = HashMap::from([("/", stat(0o755)), ("/run", stat(0o755)), ("/run/user", stat(0))]);
        let attempt = |path, wants| Attempt { path: Path::new(path), wants, service: SERVICE };
        let fake = Fake { files, asks: 998 };
        let text = explain(&fake, &attempt("/run/user/5/relay", Use::Folder), Barrier::Denied);
        assert!(text.contains("ProtectHome=") && !text.contains("chown"), "{text}");
        for (path, wants) in [("/srv/relay", Use::Folder), ("/srv/relay/relay.db", Use::Keep)] {
            let text = explain(&fake, &attempt(path, wants), Barrier::ReadOnly);
            let edit = "`systemctl edit relay` with the lines [Service] and ReadWritePaths=/srv/relay";
            assert!(text.ends_with(edit) && text.contains("-o relay -g relay /srv/relay,"), "{text}");
        }
    }

    /// As in bcd.service.
    #[test]
    fn root_without_privileges_is_a_user_like_others() {
        let stat = |uid, mode| Stat { uid, gid: uid, mode: FOLDER | mode };
        let files = HashMap::from([("/", stat(0, 0o755)), ("/state", stat(1000, 0o700))]);
        let service = Service { user: "root", unit: "bcd" };
        let attempt = Attempt { path: Path::new("/state/lock"), wants: Use::Keep, service };
        let text = explain(&Fake { files, asks: 0 }, &attempt, Barrier::Denied);
        assert!(
            text.contains("and root:root asks; this root has no privileges: chown -hR root:root /state"),
            "{text}"
        );
    }

    #[test]
    fn settings_stay_a_persons_and_are_read_by_their_group() {
        let stat = |kind, mode| Stat { uid: 0, gid: 0, mode: kind | mode };
        let path = Path::new("/relay.toml");
        let files = HashMap::from([("/", stat(FOLDER, 0o755)), ("/relay.toml", stat(FILE, 0o600))]);
        let attempt = Attempt { path, wants: Use::Read, service: SERVICE };
        let text = explain(&Fake { files, asks: 998 }, &attempt, Barrier::Denied);
        assert!(text.ends_with("; run: chgrp relay /relay.toml && chmod g+r /relay.toml"), "{text}");
        // It is as it is to be: who asks is not whom it is for.
        let given = Stat { uid: 0, gid: 998, mode: FILE | 0o640 };
        let files = HashMap::from([("/", stat(FOLDER, 0o755)), ("/relay.toml", given)]);
        let text = explain(&Fake { files, asks: 1000 }, &attempt, Barrier::Denied);
        assert!(text.ends_with("; ask as relay or as root"), "{text}");
    }

    #[test]
    fn only_three_errors_are_barriers() {
        assert_eq!(Barrier::of(ErrorKind::PermissionDenied), Some(Barrier::Denied));
        assert_eq!(Barrier::of(ErrorKind::ReadOnlyFilesystem), Some(Barrier::ReadOnly));
        assert_eq!(Barrier::of(ErrorKind::NotFound), None);
        let stat = Stat { uid: 0, gid: 0, mode: 0o010_600 };
        assert!(!stat.is_file() && !stat.is_folder());
    }
}
