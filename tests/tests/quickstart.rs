//! The quickstart on a machine that has a relay for real: whatever the operator's shell says of it, it is left alone.
#![expect(clippy::unwrap_used, reason = "a story that stumbles fails")]

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};
use tests::program;

/// The folder of the built programs, as the quickstart looks for them: `CARGO_TARGET_DIR/debug`.
fn target() -> String {
    let relay = program("relay");
    Path::new(relay.get_program()).parent().unwrap().parent().unwrap().display().to_string()
}

#[test]
fn it_heeds_no_setting_of_a_relay_for_real() {
    let folder = tempfile::tempdir().unwrap();
    // The programs are built: cargo has nothing to do, and nothing is installed.
    let cargo = folder.path().join("cargo");
    fs::write(&cargo, "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(&cargo, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let real = folder.path().join("real");
    fs::create_dir(&real).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("packaging/quickstart");
    let output = Command::new(script)
        .env("PATH", path)
        .env("CARGO_TARGET_DIR", target())
        .env("RELAY_URL", "https://127.0.0.1:1")
        .env("RELAY_TOKEN_FILE", real.join("token"))
        .env("RELAY_CA_FILE", real.join("ca"))
        .env("RELAY_DATABASE_URL", format!("sqlite://{}/relay.db", real.display()))
        .env("RELAY_MASTER_KEY_FILE", real.join("master.key"))
        .env("RELAY_CONFIG", real.join("relay.toml"))
        .env("RELAY_TENANT", "acme")
        .env("BCD_RELAY", "https://127.0.0.1:1")
        .env("BCD_JOIN_TOKEN", "bcjt_of_the_real_one")
        .env("BCD_LOG", "nonsense")
        .env("CREDENTIALS_DIRECTORY", &real)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (said, warned) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{said}\n{warned}");
    assert!(said.contains("after: serial="), "{said}");
    assert!(said.contains("unknownEndorsementKey"), "a machine with a TPM waits and is approved: {said}");
    assert_eq!(fs::read_dir(&real).unwrap().count(), 0, "nothing was made where the real relay is");
}
