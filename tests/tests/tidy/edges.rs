//! Who may use whom: the arrows of the architecture, which point down only. One table says each module's layer,
//! one says what of the outside world a layer may not touch, one says the same of whole crates.

use crate::{
    modules::module_path,
    scan::{code, paths, production, without_comments},
    tree::{File, Tree},
};

/// The layers of relay, lowest first. A module uses its own layer and those below.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Layer {
    /// Decisions and words: functions of their arguments.
    Rules,
    /// The database, and settings from disk.
    Store,
    /// What loads, decides and saves: the join, credentials.
    Flow,
    /// One handler for each method.
    Api,
    /// What a client talks to.
    Edge,
    /// What puts it all together.
    Wiring,
}

/// The layer of each module of relay; the longest prefix wins.
const LAYERS: &[(&str, Layer)] = &[
    ("", Layer::Wiring),
    ("main", Layer::Wiring),
    ("server", Layer::Wiring),
    ("http", Layer::Edge),
    ("http::limits", Layer::Flow),
    ("boot", Layer::Edge),
    ("console", Layer::Edge),
    ("cli", Layer::Edge),
    ("api", Layer::Api),
    ("audit", Layer::Flow),
    ("auth", Layer::Flow),
    ("call", Layer::Flow),
    ("context", Layer::Flow),
    ("crls", Layer::Flow),
    ("first_start", Layer::Flow),
    ("kubernetes", Layer::Flow),
    ("metrics", Layer::Flow),
    ("join", Layer::Flow),
    ("rotation", Layer::Flow),
    ("metal", Layer::Flow),
    ("outside", Layer::Flow),
    ("tasks", Layer::Flow),
    ("webhooks", Layer::Flow),
    ("store", Layer::Store),
    ("config", Layer::Store),
    ("fault", Layer::Store),
    ("files", Layer::Store),
    ("claim", Layer::Store),
    ("log", Layer::Store),
    ("access", Layer::Rules),
    ("audit::chain", Layer::Rules),
    ("audit::named", Layer::Rules),
    ("auth::policy", Layer::Rules),
    ("auth::principal", Layer::Rules),
    ("ca", Layer::Rules),
    ("clock", Layer::Rules),
    ("csr", Layer::Rules),
    ("events", Layer::Rules),
    ("facts", Layer::Rules),
    ("join::attest", Layer::Rules),
    ("join::identity", Layer::Rules),
    ("join::requests", Layer::Rules),
    ("join::tokens", Layer::Rules),
    ("join::trust", Layer::Rules),
    ("metal::bmc::error", Layer::Rules),
    ("metal::bmc::ipmi::words", Layer::Rules),
    ("metal::bmc::quirks", Layer::Rules),
    ("metal::bmc::redact", Layer::Rules),
    ("metal::causes", Layer::Rules),
    ("metal::facts", Layer::Rules),
    ("metal::reach", Layer::Rules),
    ("metal::view", Layer::Rules),
    ("metal::workflow", Layer::Rules),
    ("metal::machine", Layer::Rules),
    ("nearest", Layer::Rules),
    ("random", Layer::Rules),
    ("seal", Layer::Rules),
    ("trusting", Layer::Rules),
    ("webhooks::sign", Layer::Rules),
];

/// What touches the network, a runtime or a database.
const WORLD: &[&str] = &[
    "axum",
    "http",
    "http_body_util",
    "hyper",
    "hyper_util",
    "reqwest",
    "sqlx",
    "tokio",
    "tokio_rustls",
    "tower",
];

/// What a layer may not touch.
const FOREIGN: &[(Layer, &[&str])] = &[
    (Layer::Rules, WORLD),
    (Layer::Store, &["axum", "http", "hyper", "hyper_util", "reqwest", "tower"]),
    (Layer::Flow, &["axum", "sqlx"]),
    (Layer::Api, &["sqlx"]),
    (Layer::Edge, &["sqlx"]),
];

/// What `shared` may not touch beside [`WORLD`]: it does no I/O and reads no clock.
const SHARED_NEVER: &[&str] = &[
    "std::env",
    "std::fs",
    "std::net",
    "std::process",
    "std::thread",
    "std::time::Instant",
    "std::time::SystemTime",
];

/// Crates that a member of the workspace may not depend on: `bcd → shared ← relay`.
const NEVER_DEPENDS: &[(&str, &[&str])] = &[
    (
        "shared",
        &[
            "aws-lc-rs",
            "axum",
            "bcd",
            "http",
            "hyper",
            "relay",
            "reqwest",
            "rustls",
            "sqlx",
            "tests",
            "tokio",
            "tss-esapi",
        ],
    ),
    ("bcd", &["axum", "relay", "reqwest", "sqlx", "tests"]),
    ("relay", &["bcd", "tests", "tss-esapi"]),
];

/// The only file that knows which database it talks to.
const DIALECT: &str = "relay/src/store/dialect.rs";
/// Where the address of a database is read as people write it.
const DATABASE_SETTING: &str = "relay/src/config/database.rs";

fn layer_of(module: &str) -> Option<Layer> {
    let covers = |prefix: &str| prefix == module || module.starts_with(&format!("{prefix}::"));
    LAYERS.iter().filter(|(prefix, _)| covers(prefix)).max_by_key(|(prefix, _)| prefix.len()).map(|row| row.1)
}

/// The product's files of relay, each with its module path. Files of tests alone are none of them.
fn relay_modules(tree: &Tree) -> Vec<(String, &File)> {
    let module = |file: &'_ File| module_path(&file.path, "relay/src");
    tree.rust().filter(|file| !file.is_test()).filter_map(|file| Some((module(file)?, file))).collect()
}

/// No module of relay uses a layer above its own.
pub(crate) fn edges(tree: &Tree) -> Vec<String> {
    let modules = relay_modules(tree);
    let mut findings = Vec::new();
    for (module, file) in &modules {
        let Some(layer) = layer_of(module) else {
            findings.push(format!("{}: give {module} a row in LAYERS", file.path));
            continue;
        };
        for target in uses(module, &code(&file.text)) {
            let target = longest_module(&modules, &target);
            if let Some(above) = layer_of(target).filter(|other| *other > layer) {
                findings
                    .push(format!("{} ({layer:?}) uses {target} ({above:?}); arrows point down", file.path));
            }
        }
    }
    findings.dedup();
    findings
}

/// The paths inside relay that this code names, from the root of the crate.
fn uses(module: &str, code: &str) -> Vec<String> {
    let code = production(code);
    let mut found = paths(code, "crate");
    if module == "main" {
        found.extend(paths(code, "relay"));
    }
    for path in paths(code, "super") {
        let (mut base, mut path) = (parent(module), path.as_str());
        while let Some(rest) = path.strip_prefix("super::") {
            (base, path) = (parent(base), rest);
        }
        found.push(if base.is_empty() { path.to_owned() } else { format!("{base}::{path}") });
    }
    found
}

fn parent(module: &str) -> &str {
    module.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// The module that a path leads into; what follows is an item of it.
fn longest_module<'a>(modules: &[(String, &File)], path: &'a str) -> &'a str {
    let mut at = path;
    while !at.is_empty() && !modules.iter().any(|(module, _)| module == at) {
        at = parent(at);
    }
    at
}

/// No layer touches what is not its business.
pub(crate) fn foreign_crates(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (module, file) in relay_modules(tree) {
        let layer = layer_of(&module);
        for (_, never) in FOREIGN.iter().filter(|(of, _)| Some(*of) == layer) {
            findings.extend(touched(file, never));
        }
    }
    for file in tree.rust().filter(|file| file.path.starts_with("shared/src/")) {
        findings.extend(touched(file, WORLD).into_iter().chain(touched(file, SHARED_NEVER)));
    }
    findings
}

fn touched(file: &File, never: &[&str]) -> Vec<String> {
    let code = code(&file.text);
    let code = production(&code);
    let touches = |foreign: &&&str| {
        let (first, rest) = foreign.split_once("::").unwrap_or((foreign, ""));
        paths(code, first).iter().any(|path| {
            path.strip_prefix(rest)
                .is_some_and(|end| rest.is_empty() || end.is_empty() || end.starts_with("::"))
        })
    };
    never.iter().filter(touches).map(|foreign| format!("{} may not use {foreign}", file.path)).collect()
}

/// Only one file names a database.
pub(crate) fn database_names(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    let knows = |file: &File| file.path == DIALECT || file.path == DATABASE_SETTING;
    for (_, file) in relay_modules(tree).into_iter().filter(|(_, file)| !knows(file)) {
        let text = without_comments(&file.text);
        let length = production(&code(&file.text)).len();
        for (number, line) in text.get(..length).unwrap_or_default().lines().enumerate() {
            let line = line.to_lowercase();
            if line.contains("sqlite") || line.contains("postgres") {
                findings.push(format!("{}:{} names a database; ask {DIALECT}", file.path, number + 1));
            }
        }
    }
    findings
}

/// No crate of the workspace depends on what it may not.
pub(crate) fn crate_edges(tree: &Tree) -> Vec<String> {
    let mut findings = Vec::new();
    for (member, never) in NEVER_DEPENDS {
        let manifest = format!("{member}/Cargo.toml");
        let Some(file) = tree.get(&manifest) else { continue };
        for name in file.text.lines().filter_map(|line| line.split(['.', ' ', '=']).next()) {
            if never.contains(&name) {
                findings.push(format!("{manifest} may not depend on {name}"));
            }
        }
    }
    findings
}

#[test]
fn an_arrow_that_points_up_is_found() {
    let tree = Tree::sample(&[
        ("relay/src/lib.rs", "pub mod api; mod strange;"),
        ("relay/src/strange.rs", ""),
        ("relay/src/store/mod.rs", "use crate::{join::tokens::Judge, api};"),
        ("relay/src/api/mod.rs", "use crate::store::transact; #[cfg(test)] mod tests { use crate::http; }"),
        ("relay/src/api/tests.rs", "use crate::http;"),
        ("relay/src/http/mod.rs", "use crate::api;"),
        ("relay/src/join/tokens.rs", "use super::submit::join; // crate::store"),
        (
            "relay/src/join/submit.rs",
            "use super::tokens; use super::super::store; fn x() { crate::server::y() }",
        ),
        ("relay/src/server.rs", ""),
    ]);
    let expected = [
        "relay/src/strange.rs: give strange a row in LAYERS",
        "relay/src/store/mod.rs (Store) uses api (Api); arrows point down",
        "relay/src/join/tokens.rs (Rules) uses join::submit (Flow); arrows point down",
        "relay/src/join/submit.rs (Flow) uses server (Wiring); arrows point down",
    ];
    assert_eq!(edges(&tree), expected);
}

#[test]
fn what_a_layer_may_not_touch_is_found() {
    let tree = Tree::sample(&[
        ("relay/src/auth/policy.rs", "use tokio::sync::Mutex; fn x(_: crate::http::Y) {}"),
        (
            "relay/src/api/nodes.rs",
            "async fn x() { sqlx::query(\"\") }\n#[cfg(test)]\nmod tests { use sqlx::Any; }",
        ),
        ("relay/src/store/nodes.rs", "use sqlx::Row;"),
        ("shared/src/time.rs", "use std::{fmt, time::SystemTime}; use std::time::Duration;"),
    ]);
    let expected = [
        "relay/src/auth/policy.rs may not use tokio",
        "relay/src/api/nodes.rs may not use sqlx",
        "shared/src/time.rs may not use std::time::SystemTime",
    ];
    assert_eq!(foreign_crates(&tree), expected);
}

#[test]
fn a_database_named_elsewhere_and_a_wrong_dependency_are_found() {
    let tree = Tree::sample(&[
        (DIALECT, "const A: &str = \"sqlite://\";"),
        ("relay/src/store/nodes.rs", "// SQLite\nfn is_postgres() {}"),
        ("relay/src/store/testing.rs", "fn on_sqlite() {}"),
        ("bcd/Cargo.toml", "[dependencies]\nrelay.workspace = true\ntokio = \"1\"\n"),
    ]);
    assert_eq!(
        database_names(&tree),
        [format!("relay/src/store/nodes.rs:2 names a database; ask {DIALECT}")]
    );
    assert_eq!(crate_edges(&tree), ["bcd/Cargo.toml may not depend on relay"]);
}
