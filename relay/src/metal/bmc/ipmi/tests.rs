//! IPMI by stubs in `ipmitool`'s place, which note how they were run.

use super::*;
use shared::secret::Secret;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::{Duration, Instant},
};

const SECRET: &str = "calvin-17";

fn stub(folder: &Path, script: &str) -> Tool {
    let program = folder.join("ipmitool");
    let noted = folder.join("noted").display().to_string();
    let all = format!("#!/bin/sh\necho \"$(date +%s%N) $IPMI_PASSWORD $*\" >>{noted}\n{script}\n");
    fs::write(&program, all).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
    let credentials = Credentials { username: "admin".to_owned(), password: Secret::new(SECRET.to_owned()) };
    let mut tool = Tool::to("127.0.0.1:6230".parse().unwrap(), 17, credentials);
    tool.program = program.into();
    tool
}

fn noted(folder: &Path) -> Vec<(u128, String)> {
    let text = fs::read_to_string(folder.join("noted")).unwrap();
    text.lines()
        .map(|line| {
            let (at, rest) = line.split_once(' ').unwrap();
            (at.parse().unwrap(), rest.to_owned())
        })
        .collect()
}

#[tokio::test]
async fn the_program_is_run_so_and_a_second_apart() {
    let folder = tempfile::tempdir().unwrap();
    let script = "case \"$*\" in *status) echo Chassis Power is off;; *guid) echo 'System GUID : A1B2' ;; *'mc info') echo 'Firmware Revision : 2.30';; *) exit 1;; esac";
    let bmc = Ipmi::by(stub(folder.path(), script)).await.ok().unwrap();
    assert_eq!(bmc.power(), PowerState::Off);
    let said = bmc.identity().await.unwrap();
    assert_eq!(said.identity.product_uuid.as_deref(), Some("a1b2"));
    assert_eq!((said.firmware.as_deref(), said.virtual_media), (Some("2.30"), false));
    assert_eq!(said.identity.serial, None, "a FRU that is refused is none");
    let noted = noted(folder.path());
    let flags = "-v -I lanplus -E -N 2 -R 1 -C 17 -U admin -H 127.0.0.1 -p 6230";
    assert_eq!(noted.first().unwrap().1, format!("{SECRET} {flags} chassis power status"));
    for pair in noted.windows(2) {
        assert!(pair[1].0 - pair[0].0 >= 1_000_000_000, "{noted:?}");
        assert!(!pair[1].1.replacen(SECRET, "", 1).contains(SECRET), "not among the arguments: {noted:?}");
    }
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_what_it_started() {
    let folder = tempfile::tempdir().unwrap();
    let mut tool = stub(folder.path(), "echo $$ >$0.pid; exec sleep 3600");
    tool.longest = Duration::from_millis(500);
    let started = Instant::now();
    assert_eq!(tool.run(&["chassis"]).await.unwrap_err().reason, Reason::Timeout);
    assert!(started.elapsed() < Duration::from_secs(10));
    let pid = fs::read_to_string(folder.path().join("ipmitool.pid")).unwrap();
    for _ in 0..100 {
        if !Path::new(&format!("/proc/{}", pid.trim())).exists() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{pid} lives");
}

#[tokio::test]
async fn what_goes_wrong_is_named_and_nothing_of_it_told() {
    let folder = tempfile::tempdir().unwrap();
    for (script, reason) in [
        (format!("echo 'RAKP 2 HMAC is invalid {SECRET}' >&2; exit 1"), Reason::Unauthorized),
        ("echo 'no matching cipher suite' >&2; exit 1".to_owned(), Reason::Unsupported),
        ("exit 1".to_owned(), Reason::Refused),
        ("yes".to_owned(), Reason::TooLarge),
        ("yes >&2".to_owned(), Reason::TooLarge),
    ] {
        let error = stub(folder.path(), &script).run(&["x"]).await.unwrap_err();
        assert_eq!(error.reason, reason, "{script}");
        assert!(!format!("{error:?} {error}").contains(SECRET));
    }
    let mut none = stub(folder.path(), "");
    none.program = folder.path().join("none").into();
    assert_eq!(none.run(&["x"]).await.unwrap_err().reason, Reason::ToolMissing);
}

#[tokio::test]
async fn a_machine_that_is_off_is_not_cycled_but_switched_on() {
    let folder = tempfile::tempdir().unwrap();
    let script = "case \"$*\" in *status) echo Chassis Power is off;; *cycle) exit 1;; esac";
    let bmc = Ipmi::by(stub(folder.path(), script)).await.ok().unwrap();
    bmc.ask(Asked::PowerCycle).await.unwrap();
    let words: Vec<String> =
        noted(folder.path()).iter().map(|(_, line)| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(words, ["status", "cycle", "status", "on"]);
}
