//! An operator's day by the built program: mint a token into a file, read lists, be refused, ask the doctor. What the
//! verbs ask for is the same on every database, so this runs on the relay's own default.

use serde_json::{Value, json};
use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::Path,
};
use tests::{Finished, RelayProcess, finish, program};

/// Runs `relay` with these words and these variables.
fn relay(words: &str, env: &[(&str, &str)]) -> Finished {
    let output = program("relay").args(words.split(' ')).envs(env.iter().copied()).output().unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

fn start(home: &Path) -> RelayProcess {
    RelayProcess::start(home, None, &["--metrics-listen", "127.0.0.1:0"])
}

#[test]
fn a_token_goes_into_its_file_once() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let local = [("RELAY_DATA_DIR", running.data_dir().to_str().unwrap())];
    let file = home.path().join("token");
    let mint = format!(
        "join-tokens create --pool default --ttl 1h --idempotency-key k --token-out {}",
        file.display()
    );

    let minted = relay(&mint, &local);
    assert_eq!(minted.code, Some(0), "{minted}");
    let token = fs::read_to_string(&file).unwrap();
    assert!(token.starts_with("bcjt_") && token.ends_with('\n'), "one line");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(
        !minted.stdout.contains(token.trim()) && !minted.stderr.contains(token.trim()),
        "only the file has it"
    );

    let again = relay(&mint, &local);
    assert_eq!(again.code, Some(1), "it is shown once: {again}");
    assert_eq!(fs::read_to_string(&file).unwrap(), token, "the file that has it is left alone");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 3, "relay, relay.log, token");

    let listed = relay("join-tokens list --pool default -o json", &local);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["joinTokens"].as_array().unwrap().len(), 1);
    assert_eq!(listed["joinTokens"][0]["maxUses"], 1);
}

#[test]
fn lists_of_many_pages_come_whole() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let local = [("RELAY_DATA_DIR", running.data_dir().to_str().unwrap())];
    for name in ["a", "b", "c"] {
        let made = relay(&format!("tenants create {name}"), &local);
        assert_eq!(made.code, Some(0), "{made}");
    }
    let page = relay("tenants list --limit 2", &local);
    assert!(page.stderr.contains("--cursor b"), "{page}");
    assert_eq!(page.stdout.lines().count(), 3, "{page}");
    let rest = relay("tenants list --limit 2 --cursor b -o json", &local);
    let rest: Value = serde_json::from_str(&rest.stdout).unwrap();
    assert_eq!(rest["tenants"][0]["tenantId"], "c");
    assert_eq!(
        relay("tenants list", &local).stdout.lines().count(),
        5,
        "a line of heads, three and the provider"
    );
}

#[test]
fn machines_are_imported_whole_or_not_at_all() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let local = [("RELAY_DATA_DIR", running.data_dir().to_str().unwrap())];
    let file = home.path().join("machines.csv");
    let import = format!("inventory import {} --pool default", file.display());
    let known = || {
        let listed = relay("inventory list --pool default -o json", &local);
        let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
        let entries = listed["entries"].as_array().unwrap().clone();
        entries.iter().map(|entry| entry["entryId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };

    fs::write(&file, "entryId,serial,mac\nrack-1,SN-1,\nrack-2,Default-string,\nrack-3,,00:1a\n").unwrap();
    let bad = relay(&import, &local);
    assert_eq!(bad.code, Some(2), "{bad}");
    assert!(bad.stderr.contains("line 3: serial: ") && bad.stderr.contains("line 4: mac: "), "{bad}");
    assert!(known().is_empty(), "nothing was sent");

    fs::write(&file, "entryId,serial,mac\nrack-1,SN-1,\nrack-2,\"SN-2\",00:1A:2B:3C:4D:5E\n").unwrap();
    for _ in 0..2 {
        let done = relay(&import, &local);
        assert_eq!(done.code, Some(0), "{done}");
        let lines: Vec<Vec<&str>> =
            done.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1..], [["2", "rack-1", "written"], ["3", "rack-2", "written"]], "{done}");
        assert_eq!(known(), ["rack-1", "rack-2"]);
    }
    let nowhere = relay(&import.replace("default", "nowhere"), &local);
    assert_eq!(nowhere.code, Some(4), "the first refusal that meets all ends it: {nowhere}");
    assert_eq!(relay("inventory remove rack-1 --pool default", &local).code, Some(0));
    assert_eq!(known(), ["rack-2"]);
    assert_eq!(relay("inventory import /nonexistent.csv --pool default", &local).code, Some(2));
}

#[test]
fn authorities_come_from_a_file() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let local = [("RELAY_DATA_DIR", running.data_dir().to_str().unwrap())];
    // Any CA does; the relay's own root is at hand.
    let bundle = running.data_dir().join("trust-bundle.pem");
    let add = format!("endorsement-authorities add --pool default --certificates-file {}", bundle.display());
    let added = relay(&add, &local);
    assert_eq!(added.code, Some(0), "{added}");
    let listed = relay("endorsement-authorities list --pool default -o json", &local);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap();
    let id = listed["endorsementAuthorities"][0]["id"].as_str().unwrap();
    assert!(id.starts_with("ea_"));
    let removed = relay(&format!("endorsement-authorities remove {id} --pool default"), &local);
    assert_eq!(removed.code, Some(0), "{removed}");
    let unmatched = relay("endorsement-keys list-unmatched --pool default", &local);
    assert_eq!(unmatched.code, Some(0), "{unmatched}");
    assert!(unmatched.stdout.starts_with("EK SHA256"), "{unmatched}");
}

#[test]
fn exits_are_those_of_the_contract() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let dir = running.data_dir().to_owned();
    let local = [("RELAY_DATA_DIR", dir.to_str().unwrap())];
    let wrong = home.path().join("wrong");
    fs::write(&wrong, "rt_wrong\n").unwrap();
    let viewer = dir.join("bootstrap/admin_viewer_token");
    let address = running.url();
    for (words, code, said) in [
        ("pools list".to_owned(), 0, ""),
        (format!("tenants create x --token-file {}", viewer.display()), 1, "PERMISSION_DENIED"),
        ("pools lst".to_owned(), 2, "lst"),
        ("join-tokens create --pool default --ttl 10s".to_owned(), 2, "--ttl: must be at least 60"),
        (format!("pools list --token-file {}", wrong.display()), 3, "UNAUTHENTICATED"),
        ("pools get nothing".to_owned(), 4, "NOT_FOUND"),
        (format!("pools list --relay {address}"), 3, "--token-file"),
        (format!("pools list --relay {address} --token-file {}", viewer.display()), 1, "--ca-file"),
    ] {
        let finished = relay(&words, &local);
        assert_eq!(finished.code, Some(code), "{words}: {finished}");
        assert!(finished.stderr.contains(said), "{words}: {finished}");
    }
    let bundle = fs::read(running.ca_bundle()).unwrap();
    drop(running);
    let there = format!("--relay {address} --token-file {}", viewer.display());
    fs::write(dir.join("trust-bundle.pem"), bundle).unwrap();
    let gone = relay(&format!("pools list {there} --ca-file {}/trust-bundle.pem", dir.display()), &[]);
    assert_eq!(gone.code, Some(75), "{gone}");
}

#[test]
fn the_doctor_finds_what_is_wrong_and_the_pin_stays() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let healthy = running.command(&["doctor"]);
    assert_eq!(healthy.code, Some(0), "{healthy}");
    assert!(healthy.stdout.contains("trust domain: 127.0.0.1"), "{healthy}");
    let moved = running.command(&["doctor", "--trust-domain", "other.example"]);
    assert!(moved.code == Some(1) && moved.stdout.contains("other.example"), "{moved}");
    assert!(healthy.stdout.contains("it opens the store"), "{healthy}");

    let pin = running.pin();
    let rotated = running.command(&["ca", "rotate", "node"]);
    assert_eq!(rotated.code, Some(0), "{rotated}");
    assert!(rotated.stdout.contains("overlap"), "{rotated}");
    assert_eq!(running.pin(), pin, "an issuing CA is not what machines pin");

    let key = running.data_dir().join("master.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let sick = running.command(&["doctor"]);
    assert_eq!(sick.code, Some(1), "{sick}");
    assert!(sick.stdout.contains("chmod 600"), "{sick}");
    fs::rename(&key, home.path().join("kept.key")).unwrap();
    let lost = running.command(&["doctor"]);
    let said: Vec<&str> = lost.stdout.lines().filter(|line| line.contains(" master key: ")).collect();
    assert!(said.len() == 1 && said[0].starts_with("WRONG"), "one truth about a key that is gone: {lost}");
    assert_eq!(lost.code, Some(1), "{lost}");
}

#[test]
fn a_first_start_that_is_refused_leaves_neither_key_nor_database() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let serve =
        format!("serve --data-dir {} --listen 0.0.0.0:0 --metrics-listen 127.0.0.1:0", data.display());
    let refused = relay(&serve, &[]);
    assert!(refused.code == Some(1) && refused.stderr.contains("url"), "{refused}");
    assert!(!data.join("master.key").exists() && !data.join("relay.db").exists());

    // One that an earlier release left behind is pointed at where another one is in use.
    let running = start(home.path());
    let kept = home.path().join("kept.key");
    let key = running.data_dir().join("master.key");
    fs::rename(&key, &kept).unwrap();
    fs::write(&key, "11".repeat(32)).unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let told = running.command(&["doctor", "--master-key-file", kept.to_str().unwrap()]);
    assert!(told.code == Some(0) && told.stdout.contains("is not the one in use"), "{told}");
}

#[tokio::test]
async fn a_backup_of_a_relay_that_runs_is_whole_and_overwrites_nothing() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let live = tests::Database::file(&running.data_dir().join("relay.db"));
    let file = home.path().join("copy/relay.db");
    fs::create_dir(home.path().join("copy")).unwrap();
    let back_up =
        |more: &[&str]| running.command(&[&["backup", "--out", file.to_str().unwrap()], more].concat());
    running.join_token(1).await;
    let done = back_up(&[]);
    assert!(done.code == Some(0) && done.stderr.contains("master.key"), "{done}");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(home.path().join("copy")).unwrap().count(), 1, "nothing else is left");
    // What was changed last is in the log beside the file, and in the copy.
    let tokens = "SELECT CAST(COUNT(*) AS BIGINT) FROM join_tokens";
    let copy = tests::Database::file(&file);
    assert_eq!((live.number(tokens).await, copy.number(tokens).await), (1, 1));

    running.join_token(1).await;
    let before = fs::read(&file).unwrap();
    let again = back_up(&[]);
    assert!(again.code == Some(1) && again.stderr.contains("overwrites nothing"), "{again}");
    assert!(
        fs::read(&file).unwrap() == before && fs::read_dir(home.path().join("copy")).unwrap().count() == 1
    );
    let server = back_up(&["--database-url", "postgres://relay:secret@127.0.0.1:1/relay"]);
    assert!(server.code == Some(1) && server.stderr.contains("pg_dump"), "{server}");
    assert!(!server.stderr.contains("secret"), "{server}");
    let nothing = home.path().join("nothing");
    let absent = relay(&format!("backup --data-dir {} --out x", nothing.display()), &[]);
    assert!(absent.code == Some(4) && !nothing.exists(), "{absent}");
    let nowhere = running.command(&["backup", "--out", "/nonexistent/x"]);
    assert!(nowhere.code == Some(1) && nowhere.stderr.contains("/nonexistent/x"), "{nowhere}");

    let key = running.data_dir().join("master.key");
    let words = ["doctor", "--data-dir", home.path().join("copy").to_str().unwrap()].join(" ");
    let content = relay(&format!("{words} --master-key-file {}", key.display()), &[]);
    assert!(content.code == Some(0) && content.stdout.contains("it opens the store"), "{content}");
    let alone = relay(&words, &[]);
    assert_eq!(alone.code, Some(1), "the master key is not in it: {alone}");
}

#[test]
fn the_doctor_finds_a_password_that_everybody_may_read() {
    let home = tempfile::tempdir().unwrap();
    let settings = home.path().join("relay.toml");
    let data = home.path().join("data").display().to_string();
    let url = "postgres://relay:hunter2@127.0.0.1:1/relay";
    fs::write(&settings, format!("data_dir = '{data}'\ndatabase_url = '{url}'\n")).unwrap();
    let found = |mode: u32| {
        fs::set_permissions(&settings, fs::Permissions::from_mode(mode)).unwrap();
        let said = relay(&format!("doctor --config {}", settings.display()), &[]).stdout;
        assert!(!said.contains("hunter2"), "{said}");
        said.contains(&format!("chmod 640 {}", settings.display()))
    };
    assert!(found(0o644) && !found(0o640));
}

#[test]
fn a_trust_domain_is_never_the_address_of_nobody_and_never_another() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("relay");
    let begin = |more: &str| {
        relay(&format!("serve --data-dir {} --metrics-listen 127.0.0.1:0 {more}", dir.display()), &[])
    };
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let refused = begin(&format!("--listen {listen}"));
        assert!(refused.code == Some(1) && refused.stderr.contains("--url"), "{listen}: {refused}");
    }
    let running = start(home.path());
    assert_eq!(running.terminate(), Some(0));
    let refused = begin("--listen 127.0.0.1:0 --trust-domain other.example");
    assert!(refused.code == Some(1) && refused.stderr.contains("other.example"), "{refused}");
}

/// Behaviour 74.
#[tokio::test]
async fn the_provider_tenant_is_named_at_the_first_start_for_good() {
    let home = tempfile::tempdir().unwrap();
    let running = RelayProcess::start(home.path(), None, &["--provider-tenant", "acme"]);
    let tenants = running.call("iam/tenants/list", &json!({})).await;
    let ids: Vec<&Value> =
        tenants["tenants"].as_array().unwrap().iter().map(|one| &one["tenantId"]).collect();
    assert_eq!(ids, ["acme"]);
    let data = running.data_dir().to_owned();
    let found = relay(&format!("doctor --data-dir {} --provider-tenant other", data.display()), &[]);
    assert!(found.code == Some(1) && found.stdout.contains("provider_tenant is acme"), "{found}");
    assert_eq!(running.terminate(), Some(0));
    let begin = |more: &str| {
        let data = data.display();
        relay(
            &format!("serve --data-dir {data} --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0 {more}"),
            &[],
        )
    };
    let refused = begin("--provider-tenant other");
    assert!(
        refused.code == Some(1) && refused.stderr.contains("provider_tenant is acme for good"),
        "{refused}"
    );
    let wrong = begin("--provider-tenant a/b");
    assert_eq!(wrong.code, Some(2), "{wrong}");
}

#[test]
fn a_start_that_fails_says_whether_another_may_do() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let begin = |data: &Path, more: &str| {
        relay(&format!("serve --data-dir {} --metrics-listen 127.0.0.1:0 {more}", data.display()), &[])
    };
    let running = start(home.path());
    let taken = running.url().replace("https://", "");
    fs::write(at("other.key"), "ab".repeat(32)).unwrap();
    fs::set_permissions(at("other.key"), fs::Permissions::from_mode(0o600)).unwrap();
    for (data, more, code, said) in [
        (running.data_dir().to_owned(), "--listen 127.0.0.1:0".to_owned(), 75, "another relay runs on"),
        (at("a"), format!("--listen {taken}"), 75, "is another program listening there?"),
        (
            at("b"),
            "--listen 127.0.0.1:0 --database-url postgres://relay@127.0.0.1:1/relay".to_owned(),
            75,
            "can't be reached",
        ),
        (at("c"), "--listen 0.0.0.0:0".to_owned(), 1, "--url https://HOST:PORT"),
        (at("d"), "--listen 0.0.0.0".to_owned(), 2, "must be an IP address and a port"),
        (at("e"), "--bootstrap-secret relay-admin".to_owned(), 2, "no Kubernetes cluster"),
    ] {
        let ended = begin(&data, &more);
        assert!(ended.code == Some(code) && ended.stderr.contains(said), "{more}: {ended}");
    }
    let data = running.data_dir().to_owned();
    assert_eq!(running.terminate(), Some(0));
    let wrong = format!("--listen 127.0.0.1:0 --master-key-file {}", at("other.key").display());
    for (more, said) in [
        (wrong.as_str(), "sealed by master key"),
        (
            "--listen 127.0.0.1:0 --master-key-file /nonexistent",
            "put the one that belongs to this store there",
        ),
    ] {
        let ended = begin(&data, more);
        assert!(ended.code == Some(1) && ended.stderr.contains(said), "{more}: {ended}");
    }
}

#[tokio::test]
async fn a_store_of_a_newer_relay_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let running = start(home.path());
    let data = running.data_dir().to_owned();
    assert_eq!(running.terminate(), Some(0));
    let database = tests::Database::file(&data.join("relay.db"));
    database.number("INSERT INTO schema_version (version, name) VALUES (999, 'x') RETURNING version").await;
    let ended = relay(&format!("serve --data-dir {} --listen 127.0.0.1:0", data.display()), &[]);
    assert!(ended.code == Some(1) && ended.stderr.contains("a relay at least as new"), "{ended}");
}

#[test]
fn the_doctor_does_not_take_what_it_may_not_see_for_absent() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let running = start(home.path());
    // Root sees everything, so root asks as nobody, by a program where nobody can reach it.
    let built = program("relay");
    let reachable = home.path().join("program");
    fs::copy(built.get_program(), &reachable).unwrap();
    let mut doctor = std::process::Command::new(&reachable);
    doctor.args(["doctor", "--data-dir"]).arg(running.data_dir()).env_clear().current_dir("/");
    if nix::unistd::geteuid().is_root() {
        doctor.uid(65_534).gid(65_534);
    } else {
        fs::set_permissions(running.data_dir(), fs::Permissions::from_mode(0o000)).unwrap();
    }
    let found = finish(doctor);
    fs::set_permissions(running.data_dir(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(found.code, Some(1), "{found}");
    assert!(found.stdout.contains("Permission denied") && !found.stdout.contains("not there yet"), "{found}");
}

#[test]
fn a_token_in_the_wrong_place_is_not_shown() {
    let home = tempfile::tempdir().unwrap();
    let secret = "k".repeat(52);
    let token = format!("bcjt_{0}.{secret}", "0".repeat(26));
    for words in [
        format!("pools list --relay https://127.0.0.1:1 --token-file {token}"),
        format!("pools list {token}"),
        format!(
            "secrets put x --pool p --value-file {token} --relay https://127.0.0.1:1 --token-file {token}"
        ),
        format!("doctor --config {token}"),
    ] {
        let refused = relay(&words, &[]);
        assert!(refused.code != Some(0) && !refused.to_string().contains(&secret), "{refused}");
    }
    for words in [
        format!("join --token-file {token}"),
        format!("join {token}"),
        format!("run --ca-file {token} --relay https://127.0.0.1:1"),
        format!("config show --token-file {token}"),
    ] {
        let mut bcd = program("bcd");
        bcd.args(words.split(' ')).args(["--state-dir"]).arg(home.path().join("bcd"));
        let refused = finish(bcd);
        assert!(!refused.to_string().contains(&secret), "{words}: {refused}");
    }
}
