//! An operator's day by the built program: mint a token into a file, read lists, be refused, ask the doctor. What the
//! verbs ask for is the same on every database, so this runs on the relay's own default.

use serde_json::Value;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};
use tests::{Finished, RelayProcess, program};

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
}
