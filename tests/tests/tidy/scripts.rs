//! Scripts can be run, say what they are for, and are named somewhere.

use crate::tree::{File, Tree};

/// Every script is executable, opens with a comment, and is named in a README or another script.
pub(crate) fn scripts(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for file in tree.files().iter().filter(|file| file.executable || is_script(file)) {
        if !file.executable {
            findings.push(format!("{} is a script but not executable; chmod +x", file.path));
        }
        if !is_script(file) {
            findings.push(format!("{} is executable but has no #! line; chmod -x", file.path));
        }
        if !file.text.lines().nth(1).is_some_and(|line| line.starts_with("# ")) {
            findings.push(format!("{} does not say in its second line what it is for", file.path));
        }
        if !tree.files().iter().any(|other| names(other, file)) {
            findings.push(format!("{} is named in no README and no other script", file.path));
        }
    }
    findings
}

fn is_script(file: &File) -> bool {
    file.text.starts_with("#!/")
}

fn names(other: &File, script: &File) -> bool {
    let tells = other.path.ends_with("README.md") || is_script(other);
    tells && other.path != script.path && other.text.contains(&script.path)
}

#[test]
fn a_script_that_nobody_names_is_found() {
    let good = "#!/bin/sh\n# Does.\n";
    let tree = Tree::sample(&[
        ("README.md", "run tests/a"),
        ("tests/a", good),
        ("tests/b", good),
        ("tests/c", "#!/bin/sh\ntests/b\n"),
    ]);
    let findings = scripts(&tree);
    assert_eq!(findings.len(), 2, "{findings:?}");
    assert!(findings.iter().all(|finding| finding.starts_with("tests/c ")));
}
