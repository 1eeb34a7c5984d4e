//! Every SQL statement of the store is in its file's `STATEMENTS`, which a test prepares on both databases.

use crate::{
    scan::{code, production, without_comments, words},
    tree::Tree,
};

/// How a statement begins.
const VERBS: &[&str] = &["SELECT", "INSERT", "UPDATE", "DELETE", "WITH"];

/// Where a statement may stand in place: what talks to one database alone, and the store's own ping.
const IN_PLACE: &[&str] = &["relay/src/store/dialect.rs", STORE];

/// The file that lists every family's `STATEMENTS`.
const STORE: &str = "relay/src/store/mod.rs";

/// A statement that is not listed, or whose list is not, is never prepared by the test.
pub(crate) fn statements(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let families = tree.get(STORE).map(|file| code(&file.text)).unwrap_or_default();
    for file in tree.rust().filter(|file| file.path.starts_with("relay/src/store/") && !file.is_test()) {
        let code = code(&file.text);
        let code = production(&code);
        let text = without_comments(&file.text);
        let (named, listed) = (constants(code, &text), list_of(code));
        for name in named.iter().filter(|name| words(listed, name).is_empty()) {
            findings.push(format!("{}: {name} is not in STATEMENTS", file.path));
        }
        if literals(text.get(..code.len()).unwrap_or_default()) > named.len()
            && !IN_PLACE.contains(&file.path.as_str())
        {
            findings.push(format!("{} has a statement that is no constant; make it one", file.path));
        }
        let family = file.path.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        if !named.is_empty() && !families.contains(&format!("{family}::STATEMENTS")) {
            findings.push(format!("{}: its STATEMENTS are not in FAMILIES", file.path));
        }
    }
    findings
}

/// How many literals begin as a statement does.
fn literals(text: &str) -> usize {
    VERBS.iter().map(|verb| text.matches(&format!("\"{verb} ")).count()).sum()
}

/// What stands between `STATEMENTS` and the end of its declaration.
fn list_of(code: &str) -> &str {
    words(code, "STATEMENTS")
        .into_iter()
        .find(|at| code.get(..*at).is_some_and(|before| before.trim_end().ends_with("const")))
        .and_then(|at| code.get(at..))
        .and_then(|rest| rest.split_once('='))
        .and_then(|(_, rest)| rest.split_once(';'))
        .map_or("", |(list, _)| list)
}

/// The constants whose text is a statement. `code` and `text` have the same positions.
fn constants<'a>(code: &'a str, text: &str) -> Vec<&'a str> {
    let statement = |at: usize| {
        let rest = code.get(at + "const".len()..)?;
        let (name, _) = rest.split_once(':')?;
        let equals = rest.split(';').next()?.find('=')?;
        let value = text.get(at + "const".len() + equals + 1..)?;
        let value = value
            .trim_start()
            .trim_start_matches(['r', '#'])
            .strip_prefix('"')?
            .trim_start_matches(['\\', '\n', ' ']);
        VERBS.iter().any(|verb| value.starts_with(verb)).then(|| name.trim())
    };
    words(code, "const").into_iter().filter_map(statement).collect()
}

#[test]
fn an_unlisted_statement_is_found() {
    let text = "const A: &str = \"SELECT 1\";\nconst B: &str =\n    r\"UPDATE b SET c = 1\";\nconst C: &str = \"c\";\n\
                pub const STATEMENTS: &[&str] = &[A];\n";
    let tree = Tree::sample(&[
        ("relay/src/store/mod.rs", "const FAMILIES: &[&[&str]] = &[nodes::STATEMENTS];"),
        ("relay/src/store/nodes.rs", text),
        ("relay/src/store/pools.rs", "const A: &str = \"SELECT 1\"; const STATEMENTS: &[&str] = &[A];"),
        ("relay/src/store/sites.rs", "// \"SELECT 1\"\nfn x() { query(\"DELETE FROM sites\") }"),
        ("relay/src/store/tests.rs", text),
        ("relay/src/api/nodes.rs", text),
    ]);
    let expected = [
        "relay/src/store/nodes.rs: B is not in STATEMENTS",
        "relay/src/store/pools.rs: its STATEMENTS are not in FAMILIES",
        "relay/src/store/sites.rs has a statement that is no constant; make it one",
    ];
    assert_eq!(statements(&tree), expected);
}
