//! The files of the repository as the rules see them: path, text, whether it may be executed.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// Folders that hold nothing written by hand.
const SKIPPED: &[&str] = &["target", ".git", "artifacts", "corpus"];

/// One text file.
pub(crate) struct File {
    /// From the root of the repository, with `/`.
    pub(crate) path: String,
    /// The whole text.
    pub(crate) text: String,
    /// Whether its owner may execute it.
    pub(crate) executable: bool,
}

impl File {
    /// Whether it is Rust source.
    pub(crate) fn is_rust(&self) -> bool {
        Path::new(&self.path).extension().is_some_and(|extension| extension == "rs")
    }

    /// Whether only tests are built from it: `tests.rs`, `testing.rs` (their helpers), and what lies under `tests/`
    /// beside them.
    pub(crate) fn is_test(&self) -> bool {
        let nested = self.path.strip_prefix("tests/").unwrap_or(&self.path);
        nested.starts_with("tests/")
            || nested.contains("/tests/")
            || nested.ends_with("/tests.rs")
            || nested.ends_with("/testing.rs")
    }
}

/// All text files, sorted by path.
pub(crate) struct Tree(Vec<File>);

impl Tree {
    /// The repository that this test was built from.
    pub(crate) fn read() -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."));
        let mut files = Vec::new();
        collect(root, "", &mut files);
        files.sort_by(|a, b| a.path.cmp(&b.path));
        Self(files)
    }

    /// A made-up tree of (path, text); a text that begins with `#!` is executable.
    pub(crate) fn sample(files: &[(&str, &str)]) -> Self {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
            executable: text.starts_with("#!/"),
        };
        Self(files.iter().map(file).collect())
    }

    /// Every file.
    pub(crate) fn files(&self) -> &[File] {
        &self.0
    }

    /// Rust sources.
    pub(crate) fn rust(&self) -> impl Iterator<Item = &File> {
        self.0.iter().filter(|file| file.is_rust())
    }

    /// The file of this path.
    pub(crate) fn get(&self, path: &str) -> Option<&File> {
        self.0.iter().find(|file| file.path == path)
    }
}

/// Adds what lies under a folder. What is no UTF-8 is not text.
fn collect(folder: &Path, prefix: &str, files: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}/{name}") };
        let Ok(kind) = entry.file_type() else { continue };
        if SKIPPED.contains(&name.as_str()) {
            continue;
        }
        if kind.is_dir() {
            collect(&entry.path(), &path, files);
        } else if kind.is_file()
            && let (Ok(text), Ok(metadata)) = (fs::read_to_string(entry.path()), entry.metadata())
        {
            files.push(File { path, text, executable: metadata.permissions().mode() & 0o100 != 0 });
        }
    }
}
