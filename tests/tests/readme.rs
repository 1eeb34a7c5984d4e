//! The README says what is true: every setting and exit code that there is, and no file that there is not.

use std::{collections::BTreeSet, fs, path::Path};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

fn readme() -> String {
    fs::read_to_string(root().join("README.md")).unwrap_or_default()
}

/// What stands between back-ticks.
fn quoted(text: &str) -> BTreeSet<&str> {
    text.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect()
}

/// The lines of one section.
fn section<'a>(readme: &'a str, title: &str) -> &'a str {
    let (_, rest) = readme.split_once(&format!("\n## {title}\n")).unwrap_or_default();
    rest.split("\n## ").next().unwrap_or_default()
}

#[test]
fn every_setting_is_named() {
    let readme = readme();
    let settings = section(&readme, "Settings");
    let named = quoted(settings);
    let says = |name: &str| {
        let last = name.rsplit('.').next().unwrap_or(name);
        named.contains(name) || (name.starts_with("limits.") && named.contains(last))
    };
    let bcd = bcd::config::fragment::KEYS.iter().map(|key| key.name);
    let relay = relay::config::KEYS.iter().map(|key| key.name);
    let missing: Vec<&str> = bcd.chain(relay).filter(|name| !says(name)).collect();
    assert!(missing.is_empty(), "not in the README's settings: {missing:?}");
    assert!(!says("no_such_setting"));
}

#[test]
fn the_exit_codes_are_those_of_bcd() {
    use bcd::failure::Exit::{
        Banned, Broken, Clock, Denied, Done, Identity, NotTrusted, Released, Token, Tpm, Transient, Usage,
        Waiting,
    };
    let all = [
        Done, Broken, Waiting, Denied, Token, Identity, NotTrusted, Banned, Clock, Released, Tpm, Usage,
        Transient,
    ];
    let readme = readme();
    let rows = section(&readme, "Exit codes of bcd").lines().filter_map(|line| line.strip_prefix("| "));
    let listed: BTreeSet<u8> = rows.filter_map(|row| row.split(' ').next()?.parse().ok()).collect();
    assert_eq!(listed, all.map(bcd::failure::Exit::code).into_iter().collect());
}

#[test]
fn every_file_that_it_names_is_there() {
    let readme = readme();
    let folders = ["tests/", "packaging/", ".ci/", "relay/", "bcd/", "shared/", "systemd/"];
    let named: Vec<&str> = readme
        .split(|c: char| c.is_whitespace() || "`()[]".contains(c))
        .map(|word| word.trim_end_matches(['.', ',', ';', ':', '/']))
        .filter(|word| folders.iter().any(|folder| word.starts_with(folder)))
        .collect();
    assert!(named.contains(&"tests/run"));
    let missing: Vec<&&str> = named.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "the README names what is not there: {missing:?}");
}
