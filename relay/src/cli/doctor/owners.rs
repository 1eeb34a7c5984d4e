//! Whose the files are: all that the relay keeps must be its user's, which is the owner of its folder. Root's own files come
//! there by commands that root ran, or by a backup that was put back.

use super::judge::Finding;
use crate::access;
use shared::access::Stat;
use std::{
    collections::VecDeque,
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

/// The most that is looked at, and how many of what is wrong are named.
const MAX_LOOKED: usize = 10_000;
const MAX_NAMED: usize = 8;

/// The folder that all is measured by.
#[derive(Clone, Copy)]
pub(super) struct Home<'a> {
    pub(super) path: &'a Path,
    pub(super) stat: Stat,
}

impl<'a> Home<'a> {
    pub(super) fn of(path: &'a Path) -> Option<Self> {
        access::stat(path).map(|stat| Self { path, stat })
    }

    /// Its user and group, which are the relay's.
    fn names(&self) -> String {
        access::names(self.stat.uid, self.stat.gid)
    }

    /// What helps who may not look at something: it is the file's fault only where the relay's own user asks.
    pub(super) fn remedy_for(&self, asker: u32) -> Option<String> {
        let user = self.names().split(':').next().unwrap_or_default().to_owned();
        (asker != self.stat.uid && asker != 0).then(|| format!("run the doctor as {user}, or as root"))
    }
}

/// What is wrong with the owners and modes in the folder, and of these other files that the relay keeps.
pub(super) fn look(home: Home<'_>, beside: &[PathBuf]) -> Vec<Finding> {
    let outside = beside.iter().filter(|path| !path.starts_with(home.path)).cloned();
    let mut found = within(home.path);
    found.extend(
        outside.filter_map(|path| Some((access::stat(&path)?, path))).map(|(stat, path)| (path, stat)),
    );
    judge(home, &found)
}

/// A finding if the relay's user may not read its settings; a group of its own is all that is thought of.
pub(super) fn settings(home: Home<'_>, file: &Path) -> Option<Finding> {
    let stat = access::stat(file)?;
    let (uid, gid) = (home.stat.uid, home.stat.gid);
    if uid == 0 || stat.lets(uid, gid, 4) {
        return None;
    }
    let (shown, names) = (file.display(), home.names());
    let owner = access::names(stat.uid, stat.gid);
    let group = names.split(':').next_back().unwrap_or_default();
    let text = format!(
        "{shown} is of {owner}, mode {:04o}: the relay, as {names} like its folder, may not read it",
        stat.permissions()
    );
    Some(Finding::wrong("settings", text, format!("run: chgrp {group} {shown} && chmod 640 {shown}")))
}

/// All that is in the folder, links not followed.
fn within(folder: &Path) -> Vec<(PathBuf, Stat)> {
    let (mut found, mut folders) = (Vec::new(), VecDeque::from([folder.to_owned()]));
    while let Some(folder) = folders.pop_front() {
        // What can't be listed has been found already: it is another's, or of an odd mode.
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.path().symlink_metadata() else { continue };
            if metadata.is_symlink() {
                continue;
            }
            if found.len() == MAX_LOOKED {
                return found;
            }
            if metadata.is_dir() {
                folders.push_back(entry.path());
            }
            let stat = Stat { uid: metadata.uid(), gid: metadata.gid(), mode: metadata.mode() };
            found.push((entry.path(), stat));
        }
    }
    found
}

fn judge(home: Home<'_>, found: &[(PathBuf, Stat)]) -> Vec<Finding> {
    let foreign: Vec<&(PathBuf, Stat)> = found.iter().filter(|(_, stat)| stat.uid != home.stat.uid).collect();
    let bits = |stat: &Stat| if stat.is_folder() { 0o700 } else { 0o600 };
    let locked =
        found.iter().filter(|(_, stat)| stat.uid == home.stat.uid && stat.mode & bits(stat) != bits(stat));
    let locked: Vec<&(PathBuf, Stat)> = locked.collect();
    let names = home.names();
    let mut findings = Vec::new();
    if !foreign.is_empty() {
        let text = format!(
            "the relay, as {names} like its folder, can't use what is another's: {}",
            named(&foreign, |stat| access::names(stat.uid, stat.gid))
        );
        let remedy = match paths(&foreign) {
            Some(paths) => format!("run: chown -h {names} {paths}"),
            None => format!("run: chown -hR {names} {}", home.path.display()),
        };
        findings.push(Finding::wrong("files", text, remedy));
    }
    if !locked.is_empty() {
        let text = format!(
            "the relay may not read and write its own: {}",
            named(&locked, |stat| format!("mode {:04o}", stat.permissions()))
        );
        let remedy = match paths(&locked) {
            Some(paths) => format!("run: chmod u+rwX {paths}"),
            None => format!("run: chmod -R u+rwX {}", home.path.display()),
        };
        findings.push(Finding::wrong("files", text, remedy));
    }
    findings
}

fn named(found: &[&(PathBuf, Stat)], what: impl Fn(&Stat) -> String) -> String {
    let first = found.iter().take(MAX_NAMED);
    let mut text: Vec<String> =
        first.map(|(path, stat)| format!("{} ({})", path.display(), what(stat))).collect();
    if let Some(more) = found.len().checked_sub(MAX_NAMED).filter(|more| *more > 0) {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}

/// All of them for a command line; `None` if they are too many.
fn paths(found: &[&(PathBuf, Stat)]) -> Option<String> {
    let all: Vec<String> = found.iter().map(|(path, _)| path.display().to_string()).collect();
    (all.len() <= MAX_NAMED).then(|| all.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(uid: u32, mode: u32) -> Stat {
        Stat { uid, gid: uid, mode }
    }

    #[test]
    fn another_owner_and_a_mode_that_locks_the_relay_out_are_wrong() {
        let home = Home { path: Path::new("/srv/relay"), stat: stat(4711, 0o040_700) };
        let all = |found: &[(&str, Stat)]| {
            let found: Vec<(PathBuf, Stat)> =
                found.iter().map(|(path, stat)| (PathBuf::from(path), *stat)).collect();
            judge(home, &found).iter().map(ToString::to_string).collect::<String>()
        };
        let good =
            [("/srv/relay/relay.db", stat(4711, 0o100_600)), ("/srv/relay/bootstrap", stat(4711, 0o040_700))];
        assert_eq!(all(&good), "");
        let text = all(&[("/srv/relay/relay.db", stat(0, 0o100_644)), good[1]]);
        assert!(text.starts_with("WRONG") && text.contains("/srv/relay/relay.db (root:root)"), "{text}");
        assert!(text.contains("→ run: chown -h 4711:4711 /srv/relay/relay.db\n"), "{text}");
        let text =
            all(&[("/srv/relay/lock", stat(4711, 0o100_400)), ("/srv/relay/d", stat(4711, 0o040_600))]);
        assert!(text.contains("/srv/relay/lock (mode 0400), /srv/relay/d (mode 0600)"), "{text}");
        assert!(text.contains("→ run: chmod u+rwX /srv/relay/lock /srv/relay/d\n"), "{text}");
        let many: Vec<(&str, Stat)> = vec![("/srv/relay/x", stat(0, 0o100_600)); MAX_NAMED + 1];
        let text = all(&many);
        assert!(text.contains("and 1 more") && text.contains("chown -hR 4711:4711 /srv/relay\n"), "{text}");
    }

    #[test]
    fn settings_that_the_relays_user_may_not_read_are_wrong() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("relay.toml");
        fs::write(&file, "").unwrap();
        let said = |uid: u32, mode: u32| {
            fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
            let home = Home { path: Path::new("/srv/relay"), stat: stat(uid, 0o040_700) };
            settings(home, &file).map(|finding| finding.to_string())
        };
        let text = said(4711, 0o600).unwrap();
        let remedy = format!("chgrp 4711 {0} && chmod 640 {0}", file.display());
        assert!(text.starts_with("WRONG settings") && text.contains(&remedy), "{text}");
        // Readable by all, and by root, who may read everything.
        assert_eq!((said(4711, 0o644), said(0, 0o600)), (None, None));
    }

    #[test]
    fn links_are_not_followed_and_folders_are_looked_into() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bootstrap")).unwrap();
        fs::write(folder.path().join("bootstrap/token"), "x").unwrap();
        std::os::unix::fs::symlink("/", folder.path().join("root")).unwrap();
        let names: Vec<PathBuf> = within(folder.path()).into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, [folder.path().join("bootstrap"), folder.path().join("bootstrap/token")]);
    }

    #[test]
    fn who_is_not_the_relays_user_is_told_whom_to_ask_as() {
        let home = Home { path: Path::new("/srv/relay"), stat: stat(4711, 0o040_700) };
        assert_eq!(home.remedy_for(4712).unwrap(), "run the doctor as 4711, or as root");
        assert_eq!((home.remedy_for(4711), home.remedy_for(0)), (None, None));
    }
}
