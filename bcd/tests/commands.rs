//! The built program by its command line: what each command prints, and with which code it ends, without any relay.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "helpers of a test fail as a test does: by a panic")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// bcd in an empty environment, with its files of settings under this folder.
fn bcd(root: &Path, arguments: &[&str]) -> Output {
    command(root, arguments).output().unwrap()
}

fn command(root: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bcd"));
    command.env_clear().args(arguments).arg("--config-root").arg(root);
    command.arg("--state-dir").arg(root.join("state"));
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Its exit code and what it says to people.
fn fails(root: &Path, arguments: &[&str]) -> (i32, String) {
    let output = bcd(root, arguments);
    (output.status.code().unwrap(), text(&output.stderr))
}

fn write(root: &Path, path: &str, content: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn identity_prints_the_tables_of_a_folder_and_needs_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "dmi/smbios_entry_point", include_bytes!("../testdata/dmi/entry.32"));
    write(root.path(), "dmi/DMI", include_bytes!("../testdata/dmi/DMI.32"));
    let dmi = root.path().join("dmi").display().to_string();
    let output = bcd(root.path(), &["identity", "--json", "--dmi-dir", &dmi, "--net-dir", "/nonexistent"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["productUuid"], "00112233-4455-6677-8899-aabbccddeeff");
    assert_eq!((json["serial"].as_str(), json["macs"].as_array().unwrap().len()), (Some("SN-0042"), 0));
    assert!(json.get("tpm").is_none());
    let output = bcd(root.path(), &["identity", "--dmi-dir", &dmi]);
    assert!(text(&output.stdout).contains("SN-0042") && output.status.success());
    assert!(!root.path().join("state").exists(), "it leaves no trace");
}

#[test]
fn settings_are_shown_with_their_origin_and_the_token_is_not() {
    let root = tempfile::tempdir().unwrap();
    write(root.path(), "etc/bcd/bcd.toml", b"relay = 'https://a.example'\nlog = 'warn'\n");
    let mut command = command(root.path(), &["config", "show", "--origin", "--log", "error"]);
    let output = command.env("BCD_JOIN_TOKEN", "bcjt_hush").env("BCD_TPM", "off").output().unwrap();
    let shown = text(&output.stdout);
    for line in [
        format!("relay = \"https://a.example\"  # {}", root.path().join("etc/bcd/bcd.toml").display()),
        "log = \"error\"  # flag".to_owned(),
        "tpm = \"off\"  # environment".to_owned(),
        "# a join token is in BCD_JOIN_TOKEN (not shown)".to_owned(),
    ] {
        assert!(shown.contains(&line), "{line}: {shown}");
    }
    assert!(!shown.contains("hush"));
}

#[test]
fn a_check_says_everything_that_is_wrong() {
    let root = tempfile::tempdir().unwrap();
    let (code, said) = fails(root.path(), &["config", "check"]);
    assert!(
        code == 64 && said.contains("--relay") && said.contains("--ca-pin"),
        "not enough to join: {said}"
    );
    let pin = format!("sha256:{}", "00".repeat(32));
    let good = bcd(root.path(), &["config", "check", "--relay", "https://r.example", "--ca-pin", &pin]);
    assert_eq!(good.status.code(), Some(0));
    assert!(text(&good.stdout).contains("valid") && text(&good.stderr).contains("no join token"));
    write(root.path(), "etc/bcd/bcd.toml.d/1.toml", b"tpm = 'maybe'\nrelay = 'http://x'\n");
    let (code, said) = fails(root.path(), &["config", "check"]);
    assert_eq!(code, 64);
    assert!(said.contains("1.toml: tpm must") && said.contains("relay must"), "{said}");
    write(root.path(), "etc/bcd/bcd.toml.d/2.toml", b"token = 'bcjt_hush'\n");
    let (code, said) = fails(root.path(), &["join"]);
    assert!(code == 64 && said.contains("2.toml") && !said.contains("hush"), "{said}");
}

#[test]
fn every_way_to_be_short_of_something_has_its_code_and_label() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let relay = ["--relay", "https://127.0.0.1:9"];
    let pin = format!("sha256:{}", "00".repeat(32));
    let with = |more: &[&'static str]| [&["join"], &relay[..], more].concat();
    for (arguments, code, label) in [
        (vec!["join"], 64, "(final"),
        (with(&[]), 64, "(final"),
        (with(&["--ca-file", "/nonexistent"]), 64, "(final"),
        (with(&["--ca-pin", "x"]), 64, "(final"),
    ] {
        let (ended, said) = fails(root, &arguments);
        assert!(ended == code && said.contains(label), "{arguments:?}: {ended} {said}");
    }
    let pinned = [&["join", "--ca-pin", &pin], &relay[..]].concat();
    let (code, said) = fails(root, &pinned);
    assert!(code == 12 && said.contains("no join token"), "{said}");
    let token = root.join("token");
    let id = shared::id::JoinTokenId::derive(&[1; 32]);
    fs::write(&token, shared::token::JoinToken::mint(id, &[2; 32]).0.bearer().expose()).unwrap();
    let with_token = ["--token-file", token.to_str().unwrap()];
    let required =
        [&pinned[..], &with_token, &["--tpm", "required", "--tcti", "device:/nonexistent"]].concat();
    let (code, said) = fails(root, &required);
    assert!(code == 20 && said.contains("/nonexistent"), "{said}");
    let (code, _) = fails(root, &["join", "--no-such-flag"]);
    assert_eq!(code, 64);
    let mut command = command(root, &pinned);
    let output = command.env("BCD_JOIN_TOKEN", "bcjt_hush.hush").output().unwrap();
    assert_eq!(output.status.code(), Some(12));
    assert!(!text(&output.stderr).contains("hush"));
    let mut command = self::command(root, &pinned);
    let said = text(&command.env("BCD_JOIN_TOKEN", "hush").output().unwrap().stderr);
    assert!(said.contains("must begin with bcjt_ as") && !said.contains("hush"), "{said}");
}

#[test]
fn status_and_reset_work_without_a_daemon() {
    let root = tempfile::tempdir().unwrap();
    let status = || {
        let output = bcd(root.path(), &["status", "--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        json["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(status(), "new");
    let banned =
        br#"{"version":1,"state":"final","exit":15,"message":"banned","since":"2026-01-02T03:04:05.678Z"}"#;
    write(root.path(), "state/state.json", banned);
    write(root.path(), "state/node.key", b"key");
    assert_eq!(status(), "final");
    let text = text(&bcd(root.path(), &["status"]).stdout);
    assert!(text.contains("banned") && text.contains("relay nodes unban"), "{text}");
    let reset = bcd(root.path(), &["reset", "--keep-key"]);
    assert!(reset.status.success() && String::from_utf8_lossy(&reset.stdout).contains("its key is kept"));
    assert_eq!(status(), "new");
    assert!(root.path().join("state/node.key").exists());
    let state = fs::File::create(root.path().join("state/lock")).unwrap();
    state.lock().unwrap();
    let (code, said) = fails(root.path(), &["reset"]);
    assert!(code == 64 && said.contains("systemctl stop bcd"), "{said}");
    drop(state);
    assert!(bcd(root.path(), &["reset"]).status.success());
    assert!(!root.path().join("state/node.key").exists());
    write(root.path(), "state/state.json", br#"{"version":9,"state":"beyond"}"#);
    let (code, said) = fails(root.path(), &["status"]);
    assert!(code == 1 && said.contains("version 9"), "{said}");
}

/// What `bcd status` says: state, reason, next.
fn told(root: &Path, more: &[&str]) -> (String, String, String) {
    let output = bcd(root, &[&["status", "--json"], more].concat());
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let part = |name: &str| json.get(name).and_then(|part| part.as_str()).unwrap_or_default().to_owned();
    (part("state"), part("reason"), part("next"))
}

#[test]
fn whatever_ended_it_is_said_by_status() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let (state, reason, next) = told(root, &[]);
    assert!(
        state == "new" && reason.contains("which relay?") && next.contains("put right"),
        "{reason}; {next}"
    );
    let pin = format!("sha256:{}", "00".repeat(32));
    let token = token_file(root);
    let settings =
        format!("relay = 'https://127.0.0.1:9'\nca_pins = ['{pin}']\ntcti = 'device:/nonexistent'\n");
    for (more, code, said) in [
        ("ca_file = '/nonexistent.pem'\n", 64, "/nonexistent.pem"),
        (&format!("tpm = 'required'\ntoken_file = '{token}'\n"), 20, "/nonexistent does not exist"),
        ("token_file = '/nonexistent.token'\n", 12, "/nonexistent.token"),
        ("socket = '/nonexistent/bcd.sock'\n", 64, "/nonexistent/bcd.sock"),
    ] {
        let text = if code == 64 && more.starts_with("ca_file") {
            format!("relay = 'https://127.0.0.1:9'\n{more}")
        } else {
            format!("{settings}{more}")
        };
        fs::remove_dir_all(root.join("state")).ok();
        write(root, "etc/bcd/bcd.toml", text.as_bytes());
        let command = if code == 64 { "run" } else { "join" };
        let (ended, stderr) = fails(root, &[command]);
        assert!(ended == code && stderr.contains(said), "{more}: {ended} {stderr}");
        let (_, reason, next) = told(root, &[]);
        assert!(reason.contains(said) && reason.contains("(tried "), "{more}: {reason}");
        assert_eq!(next.contains("put right"), code == 64, "{more}: {next}");
    }
}

/// A token of the right form, in a file, that no relay knows.
fn token_file(root: &Path) -> String {
    use shared::{id::JoinTokenId, token::JoinToken};
    let token = JoinToken::mint(JoinTokenId::derive(&[1; 32]), &[1; 32]).0;
    write(root, "token", token.bearer().expose().as_bytes());
    root.join("token").display().to_string()
}

#[test]
fn a_setting_that_contradicts_the_key_is_final() {
    let root = tempfile::tempdir().unwrap();
    let token = token_file(root.path());
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap().serialize_pem();
    write(root.path(), "state/node.key", key.as_bytes());
    let pin = format!("sha256:{}", "00".repeat(32));
    let words = ["join", "--relay", "https://127.0.0.1:9", "--ca-pin", &pin, "--token-file", &token];
    let run = |tpm: &str| fails(root.path(), &[&words[..], &["--tpm", tpm]].concat());
    assert_eq!(run("off").0, 75, "nobody answers there");
    let (code, said) = run("required");
    assert!(code == 64 && said.contains("(final"), "{code} {said}");
    for part in ["node.key", "tpm = \"auto\"", "bcd reset", "--allow-reclaim"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let (_, reason, next) = told(root.path(), &["--tpm", "required"]);
    assert!(reason.contains("cannot be met") && next.contains("what the reason says"), "{reason}; {next}");
}

#[test]
fn what_is_no_token_and_no_file_is_said_by_the_code_of_a_wrong_token() {
    let root = tempfile::tempdir().unwrap();
    let pin = format!("sha256:{}", "00".repeat(32));
    let token = root.path().join("token");
    let join = || {
        let file = token.display().to_string();
        fails(
            root.path(),
            &["join", "--relay", "https://127.0.0.1:9", "--ca-pin", &pin, "--token-file", &file],
        )
    };
    fs::write(&token, [0xff, 0xfe, 0x00]).unwrap();
    let (code, said) = join();
    assert!(code == 12 && said.contains(token.to_str().unwrap()), "{code} {said}");
    fs::remove_file(&token).unwrap();
    nix::unistd::mkfifo(&token, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (code, said) = join();
    assert!(code == 12 && said.contains("it is a FIFO"), "{code} {said}");
    fs::remove_file(&token).unwrap();
    fs::create_dir(&token).unwrap();
    let (code, said) = join();
    assert!(code == 12 && said.contains("it is a folder"), "{code} {said}");
}

/// As bcd.service has it: a user without any privilege over the files of others.
#[test]
fn a_state_of_another_user_is_final_and_named_with_owner_mode_and_remedy() {
    use std::os::unix::{
        fs::{PermissionsExt as _, chown},
        process::CommandExt as _,
    };
    const NOBODY: u32 = 65_534;
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = root.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_bcd"), &program).unwrap();
    let state = root.path().join("state");
    fs::create_dir(&state).unwrap();
    write(root.path(), "state/state.json", br#"{"version":1,"state":"new"}"#);
    let state_file = state.join("state.json");
    for path in [&state, &state_file] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
    }
    let join = || {
        let mut command = Command::new(&program);
        command.args(["join", "--relay", "https://127.0.0.1:9", "--system-roots", "--state-dir"]).arg(&state);
        command.arg("--config-root").arg(root.path()).env_clear().current_dir("/").uid(NOBODY).gid(NOBODY);
        let output = command.output().unwrap();
        (output.status.code().unwrap(), text(&output.stderr))
    };
    for (folder, file, at) in [(0, 0, &state), (NOBODY, 0, &state_file)] {
        chown(&state, Some(folder), Some(folder)).unwrap();
        chown(&state_file, Some(file), Some(file)).unwrap();
        let (code, said) = join();
        assert!(code == 64 && said.contains("(final"), "{code} {said}");
        let found = format!("{} is of root:root, mode 0700, and nobody:nogroup asks", at.display());
        assert!(said.contains(&found), "{said}");
    }
    // The other way round: for root as a service, whose look nothing stops.
    fs::remove_file(state.join("lock")).unwrap();
    chown(&state_file, Some(NOBODY), Some(NOBODY)).unwrap();
    chown(&state, Some(0), Some(0)).unwrap();
    let (_, reason, _) = told(root.path(), &[]);
    assert!(reason.contains(&format!("chown -h root:root {}", state_file.display())), "{reason}");
    // A link is no file of bcd's, whoever's it leads to: nobody is told to give that away.
    fs::rename(&state_file, root.path().join("others")).unwrap();
    std::os::unix::fs::symlink(root.path().join("others"), &state_file).unwrap();
    let looked = bcd(root.path(), &["status"]);
    let said = [text(&looked.stdout), text(&looked.stderr)].concat();
    assert!(said.contains("link") && !said.contains("chown"), "{said}");
}
