//! What others on this machine may do with files of ours, by their permission bits. It is said and not refused: a machine
//! that stops for a chmod is worse off than one whose log says what to put right.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// What a path is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The node's key: nobody else's business.
    Key,
    /// The state's folder: whoever may write there can put another state or key in the place of ours.
    Folder,
    /// The join token. Whoever may read it may join in this machine's place, and whoever may write it chooses its pool. In
    /// memory that others may read it is not said: a Kubernetes Secret is mounted there as 0644 and a systemd credential as
    /// 0440, each where nobody else is.
    Token {
        /// Whether it is in memory, and not on a disk.
        in_memory: bool,
    },
}

impl Kind {
    /// The bits that should not be set, what they let others do, and the remedy.
    const fn rule(self) -> (u32, &'static str, &'static str) {
        match self {
            Self::Key => (
                0o077,
                "others may use the node key in",
                "chmod 600; if somebody may have, `bcd reset` and join with a fresh token",
            ),
            Self::Folder => (0o022, "others may put files of theirs into", "chmod 700"),
            Self::Token { in_memory: true } => {
                (0o002, "everybody may put another join token into", "chmod o-w")
            }
            Self::Token { in_memory: false } => {
                (0o006, "everybody may read, or exchange, the join token in", "chmod o-rw")
            }
        }
    }

    /// What to say of a path with this mode, if anything.
    fn warning(self, path: &Path, mode: u32) -> Option<String> {
        let (mask, what, remedy) = self.rule();
        let mode = mode & 0o7777;
        (mode & mask != 0).then(|| format!("{what} {} (mode {mode:04o}): {remedy}", path.display()))
    }
}

/// Says so if others may do with it what they should not. What is not there, or is no file or folder, is passed over.
pub fn warn_if_open(kind: Kind, path: &Path) {
    if let Some(warning) = warning_of(kind, path) {
        tracing::warn!("{warning}");
    }
}

fn warning_of(kind: Kind, path: &Path) -> Option<String> {
    let metadata = fs::metadata(path).ok()?;
    let is_kind = if kind == Kind::Folder { metadata.is_dir() } else { metadata.is_file() };
    kind.warning(path, metadata.permissions().mode()).filter(|_| is_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_do_is_said_at_its_edges() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "x").unwrap();
        let said = |kind: Kind, path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
            warning_of(kind, path)
        };
        for mode in [0o600, 0o400] {
            assert_eq!(said(Kind::Key, &file, mode), None, "{mode:o}");
        }
        for mode in [0o644, 0o640, 0o620, 0o601] {
            let text = said(Kind::Key, &file, mode).unwrap();
            assert!(text.contains(&format!("(mode {mode:04o}): chmod 600")), "{text}");
        }
        let (secret, on_disk) = (Kind::Token { in_memory: true }, Kind::Token { in_memory: false });
        for mode in [0o400, 0o440, 0o600, 0o644, 0o660] {
            assert_eq!(said(secret, &file, mode), None, "{mode:o}");
            assert_eq!(said(on_disk, &file, mode).is_some(), mode == 0o644, "{mode:o}");
        }
        for mode in [0o666, 0o602] {
            assert!(said(secret, &file, mode).unwrap().contains("chmod o-w"), "{mode:o}");
            assert!(said(on_disk, &file, mode).unwrap().contains("chmod o-rw"), "{mode:o}");
        }
        for (mode, is_said) in [(0o777, true), (0o770, true), (0o755, false), (0o700, false)] {
            assert_eq!(said(Kind::Folder, folder.path(), mode).is_some(), is_said, "{mode:o}");
        }
        assert_eq!(warning_of(secret, Path::new("/dev/zero")), None);
        assert_eq!(warning_of(Kind::Key, Path::new("/nonexistent")), None);
    }
}
