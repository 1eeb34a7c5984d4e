//! House rules that no compiler holds: the shape of files, the edges between modules, nothing orphaned.
//!
//! Every rule is a function of a [`tree::Tree`], so that each is shown to fail on a bad sample beside the one
//! test that runs it on the real sources. A finding says the file, the rule and the remedy.

mod behaviours;
mod edges;
mod modules;
mod scan;
mod scripts;
mod shape;
mod statements;
mod tree;

use tree::Tree;

/// A rule: what it finds wrong.
type Rule = fn(&Tree) -> Vec<String>;

/// Every rule, by name.
const RULES: &[(&str, Rule)] = &[
    ("file length", shape::lengths),
    ("module docs", shape::module_docs),
    ("banned words", shape::banned_words),
    ("machine paths", shape::machine_paths),
    ("orphaned sources", modules::orphans),
    ("module edges", edges::edges),
    ("foreign crates", edges::foreign_crates),
    ("database names", edges::database_names),
    ("crate edges", edges::crate_edges),
    ("scripts", scripts::scripts),
    ("statements", statements::statements),
    ("behaviours", behaviours::behaviours),
];

#[test]
fn the_tree_keeps_every_rule() {
    let tree = Tree::read();
    assert!(tree.files().len() > 20, "the tree was not found");
    let findings: Vec<String> = RULES
        .iter()
        .flat_map(|(name, rule)| rule(&tree).into_iter().map(move |finding| format!("{name}: {finding}")))
        .collect();
    assert!(findings.is_empty(), "{} findings\n{}", findings.len(), findings.join("\n"));
}
