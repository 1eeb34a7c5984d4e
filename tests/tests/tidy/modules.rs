//! The module tree as the compiler would walk it, and the sources that it never reaches.

use crate::{
    scan::{code, words},
    tree::Tree,
};
use std::collections::BTreeSet;

/// Every Rust source is reached from the root of a crate by `mod` declarations.
pub(crate) fn orphans(tree: &Tree) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut queue: Vec<String> =
        tree.rust().map(|file| file.path.clone()).filter(|path| is_crate_root(path)).collect();
    while let Some(path) = queue.pop() {
        let Some(file) = tree.get(&path) else { continue };
        if reached.insert(path.clone()) {
            queue.extend(declared(&file.text).into_iter().flat_map(|name| places(&path, &name)));
        }
    }
    tree.rust()
        .filter(|file| !reached.contains(&file.path))
        .map(|file| format!("{} belongs to no crate; declare it with mod, or delete it", file.path))
        .collect()
}

/// Where cargo looks for crates by itself, and the fuzz targets.
fn is_crate_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(
        parts.as_slice(),
        [.., "src", "lib.rs" | "main.rs"]
            | [.., "src", "bin", _]
            | [.., "build.rs"]
            | [_, "tests" | "benches" | "examples", _]
            | [_, "tests" | "benches" | "examples", _, "main.rs"]
            | ["tests", "fuzz", "targets", _]
    )
}

/// The names of `mod name;` in this source.
fn declared(text: &str) -> Vec<String> {
    let code = code(text);
    let name = |at: usize| {
        let rest = code.get(at + "mod".len()..)?.trim_start();
        let (name, _) = rest.split_once(';')?;
        let name = name.trim();
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_').then(|| name.to_owned())
    };
    words(&code, "mod").into_iter().filter_map(name).collect()
}

/// The two places where a module of this file may be.
fn places(path: &str, name: &str) -> [String; 2] {
    let (folder, file) = path.rsplit_once('/').unwrap_or(("", path));
    let stem = file.trim_end_matches(".rs");
    let folder =
        if is_crate_root(path) || stem == "mod" { folder.to_owned() } else { format!("{folder}/{stem}") };
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
}

/// A file of a crate as a module path: `relay/src/store/mod.rs` is `store`; the roots are the empty path.
pub(crate) fn module_path(path: &str, source_folder: &str) -> Option<String> {
    let inner = path.strip_prefix(source_folder)?.trim_start_matches('/').strip_suffix(".rs")?;
    let inner = inner.strip_suffix("/mod").unwrap_or(inner);
    Some(match inner {
        "lib" => String::new(),
        inner => inner.replace('/', "::"),
    })
}

#[test]
fn an_orphan_is_found() {
    let tree = Tree::sample(&[
        ("relay/src/lib.rs", "//! R.\npub mod a;\n// mod d;\nmod b { }"),
        ("relay/src/a.rs", "mod c;"),
        ("relay/src/a/c.rs", ""),
        ("relay/src/d.rs", ""),
        ("tests/tests/story.rs", ""),
        ("tests/tests/tidy/main.rs", "mod scan;"),
        ("tests/tests/tidy/scan.rs", ""),
    ]);
    let findings = orphans(&tree);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings.first().unwrap().starts_with("relay/src/d.rs "));
}

#[test]
fn a_file_has_one_module_path() {
    let path = |file| module_path(file, "relay/src");
    assert_eq!(path("relay/src/lib.rs").unwrap(), "");
    assert_eq!(path("relay/src/join/attest/mod.rs").unwrap(), "join::attest");
    assert_eq!(path("bcd/src/lib.rs"), None);
}
