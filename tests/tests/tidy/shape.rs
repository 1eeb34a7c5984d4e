//! Rules on one file by itself: its length, its module doc, words and paths that it may not hold.

use crate::{
    scan::{code, production},
    tree::{File, Tree},
};

/// Lines of a source file, its tests not counted.
const MAX_LINES: usize = 400;

/// Files over [`MAX_LINES`], each with its length. The list only shrinks: a file that became shorter must be
/// lowered here, one that fits must go.
const LONGER: &[(&str, usize)] = &[];

/// No source file is longer than it may be.
pub(crate) fn lengths(tree: &Tree) -> Vec<String> {
    lengths_but(tree, LONGER)
}

fn lengths_but(tree: &Tree, longer: &[(&str, usize)]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let lines = production(&code(&file.text)).lines().count();
        let allowed = longer.iter().find(|(path, _)| *path == file.path).map_or(MAX_LINES, |row| row.1);
        if lines > allowed {
            findings.push(format!(
                "{} has {lines} lines without its tests; split it ({allowed} allowed)",
                file.path
            ));
        } else if allowed > MAX_LINES && lines < allowed {
            findings.push(format!("{} is down to {lines} lines; lower or drop its row in LONGER", file.path));
        }
    }
    for (path, _) in longer.iter().filter(|(path, _)| tree.get(path).is_none()) {
        findings.push(format!("{path} is gone; drop its row in LONGER"));
    }
    findings
}

/// Every source file opens with a module doc.
pub(crate) fn module_docs(tree: &Tree) -> Vec<String> {
    let opens = |file: &&File| !file.text.starts_with("//! ");
    tree.rust()
        .filter(opens)
        .map(|file| format!("{} does not open with //! and what it owns", file.path))
        .collect()
}

/// What no source holds, and what to do instead.
const BANNED: &[(&str, &str)] = &[
    ("#[allow(", "use #[expect(lint, reason = \"…\")]"),
    ("#![allow(", "use #[expect(lint, reason = \"…\")] where it is needed"),
    ("todo!", "finish it"),
    ("unimplemented!", "finish it"),
    ("dbg!", "use tracing, or drop it"),
];

/// No source holds a banned word.
pub(crate) fn banned_words(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.rust() {
        let code = code(&file.text);
        for (word, remedy) in BANNED.iter().filter(|(word, _)| code.contains(word)) {
            findings.push(format!("{} has {word}; {remedy}", file.path));
        }
    }
    findings
}

/// Folders that only one machine has.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/ro", "ot/"), concat!("/wo", "rk/"), concat!("/Us", "ers/")];

/// No text names a folder of the machine that it was written on.
pub(crate) fn machine_paths(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.files() {
        for (number, line) in file.text.lines().enumerate() {
            if MACHINE_PATHS.iter().any(|path| begins_path(line, path)) {
                findings.push(format!("{}:{} names a folder of one machine", file.path, number + 1));
            }
        }
    }
    findings
}

/// Whether the path stands in the line as the beginning of a path.
fn begins_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().last());
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-/}*".contains(c))
    })
}

#[test]
fn a_long_file_is_found_and_its_tests_do_not_count() {
    let long = "//! Doc.\n".repeat(401);
    let tested = format!("//! Doc.\n#[cfg(test)]\nmod tests {{\n{}}}\n", "// x\n".repeat(500));
    let tree = Tree::sample(&[("relay/src/a.rs", &long), ("relay/src/b.rs", &tested)]);
    assert_eq!(lengths_but(&tree, &[]).len(), 1);
    assert_eq!(lengths_but(&tree, &[("relay/src/a.rs", 401)]).len(), 0);
    // Rows that are not needed any more: shorter, short enough, gone.
    assert_eq!(lengths_but(&tree, &[("relay/src/a.rs", 402)]).len(), 1);
    assert_eq!(lengths_but(&tree, &[("relay/src/a.rs", 401), ("relay/src/b.rs", 500)]).len(), 1);
    assert_eq!(lengths_but(&tree, &[("relay/src/a.rs", 401), ("relay/src/c.rs", 500)]).len(), 1);
}

#[test]
fn bad_words_docs_and_paths_are_found() {
    let path = format!("// {}x/y", MACHINE_PATHS.first().unwrap());
    let tree = Tree::sample(&[
        ("a.rs", "fn a() {}"),
        ("b.rs", "//! B.\n#[allow(dead_code)]\nfn b() { todo!() }"),
        ("c.rs", "//! No todo!() here, nor in \"dbg!\".\nconst C: &str = \"dbg!\";"),
        ("d.sh", &path),
    ]);
    assert_eq!(module_docs(&tree).len(), 1);
    assert_eq!(banned_words(&tree).len(), 2);
    assert_eq!(machine_paths(&tree), ["d.sh:1 names a folder of one machine"]);
}
