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
fn every_type_of_events_is_named() {
    let readme = readme();
    let named = quoted(section(&readme, "Webhooks"));
    let all = relay::events::Kind::ALL.map(relay::events::Kind::as_str);
    let missing: Vec<&str> = all.into_iter().filter(|name| !named.contains(name)).collect();
    assert!(missing.is_empty(), "not in the README's webhooks: {missing:?}");
}

/// The members of a JSON object, by path.
fn flat(value: &serde_json::Value, path: &str, into: &mut BTreeSet<(String, String)>) {
    match value.as_object() {
        Some(members) => {
            for (name, value) in members {
                flat(value, &format!("{path}{}{name}", if path.is_empty() { "" } else { "." }), into);
            }
        }
        None => {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            into.insert((path.to_owned(), text));
        }
    }
}

#[test]
fn a_pools_policy_is_what_a_new_one_has() {
    let mut policy = BTreeSet::new();
    flat(&serde_json::to_value(shared::api::pools::Policy::default()).unwrap(), "", &mut policy);
    let readme = readme();
    let rows = section(&readme, "Pool policy").lines().filter_map(|line| line.strip_prefix("| `"));
    let told = rows.filter_map(|row| {
        let (path, rest) = row.split_once("` | `")?;
        Some((path.to_owned(), rest.split_once('`')?.0.to_owned()))
    });
    assert_eq!(told.collect::<BTreeSet<_>>(), policy);
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

/// The TOML of the README, in its order.
fn samples(readme: &str) -> Vec<&str> {
    readme.split("\n```toml\n").skip(1).filter_map(|rest| rest.split("\n```").next()).collect()
}

#[test]
fn its_sample_settings_are_valid_and_enough() {
    let readme = readme();
    let [relay, bcd] = samples(&readme).try_into().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("relay.toml");
    fs::write(&file, relay).unwrap();
    let settings = relay::config::Settings::load(&relay::config::Sources {
        file: Some(file),
        default_file: Path::new("/nonexistent"),
        env: &|_| None,
        flags: &|_| None,
    });
    assert_eq!(
        settings.unwrap().trust_domain_at("[::]:1".parse().unwrap()).unwrap().as_str(),
        "relay.example.com"
    );

    let bcd = bcd.replace("PIN", &"ab".repeat(32));
    fs::create_dir_all(folder.path().join("etc/bcd")).unwrap();
    fs::write(folder.path().join("etc/bcd/bcd.toml"), bcd).unwrap();
    let merged =
        bcd::config::read(folder.path(), |_| None, bcd::config::fragment::Fragment::from_flags(vec![]));
    let settings = bcd::config::Settings::parse(&merged.unwrap()).unwrap();
    assert!(settings.relay.is_some() && settings.trust.is_some() && settings.token_file.is_some());
}

#[test]
fn the_reasons_that_it_explains_are_those_of_the_wire() {
    let words: BTreeSet<String> = shared::problem::Reason::ALL
        .iter()
        .filter_map(|reason| Some(serde_json::to_value(reason).ok()?.as_str()?.to_owned()))
        .collect();
    let readme = readme();
    let looked_up =
        section(&readme, "At 3 a.m.").lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let looked_up: Vec<&str> = looked_up.collect();
    assert!(looked_up.contains(&"tokenExhausted"), "{looked_up:?}");
    assert!(looked_up.iter().all(|word| words.contains(*word)), "{looked_up:?}");
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
