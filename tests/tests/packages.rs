//! The packages as files: what is in them, and that what is in them runs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a story that stumbles fails")]

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use tests::program;

/// What each package has, beside its man pages.
const FILES: &[(&str, &[&str])] = &[
    (
        "bcd",
        &[
            "/usr/bin/bcd",
            "/usr/lib/sysusers.d/bcd.conf",
            "/usr/share/man/man1/bcd-join.1.gz",
            "/usr/lib/bcd/bcd.toml",
            "/etc/bcd/bcd.toml",
            "/usr/lib/systemd/system/bcd.service",
            "/usr/lib/systemd/system/bcd-join.service",
            "/usr/share/bash-completion/completions/bcd",
        ],
    ),
    (
        "relay",
        &[
            "/usr/bin/relay",
            "/usr/share/man/man1/relay-serve.1.gz",
            "/usr/lib/sysusers.d/relay.conf",
            "/etc/relay/relay.toml",
            "/usr/lib/systemd/system/relay.service",
            "/usr/share/bash-completion/completions/relay",
        ],
    ),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// What a command prints that goes well.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// systemd-analyze counts from 0 (nothing is open) to 10, and takes its bound times ten.
#[test]
fn units_leave_little_open() {
    for (unit, bound) in [("bcd", 30), ("bcd-join", 30), ("relay", 20)] {
        let mut analyze = Command::new("systemd-analyze");
        analyze.args(["security", "--offline=yes", "--no-pager", &format!("--threshold={bound}")]);
        printed(analyze.arg(root().join(format!("systemd/{unit}.service"))));
    }
}

/// systemd says of each line that it passes over, and still counts the unit as good.
#[test]
fn units_hold_nothing_that_systemd_ignores() {
    let folder = tempfile::tempdir().unwrap();
    for unit in ["bcd.service", "bcd-join.service", "relay.service"] {
        let text = std::fs::read_to_string(root().join("systemd").join(unit)).unwrap();
        let runs = |line: &str| match line.starts_with("ExecStart=") {
            true => "ExecStart=/bin/true".to_owned(),
            false => line.to_owned(),
        };
        let text: Vec<String> = text.lines().map(runs).collect();
        std::fs::write(folder.path().join(unit), text.join("\n")).unwrap();
        let mut verify = Command::new("systemd-analyze");
        let output = verify.args(["verify", "--man=no"]).arg(folder.path().join(unit)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        let of_it: Vec<&str> = said.lines().filter(|line| line.contains(unit)).collect();
        assert!(output.status.success() && of_it.is_empty(), "{said}");
    }
}

/// What an rpm's script makes before its files are there is what they say.
#[test]
fn users_are_made_as_their_files_say() {
    for name in ["bcd", "relay"] {
        let read = |path: String| std::fs::read_to_string(root().join("packaging").join(path)).unwrap();
        let script = read(format!("rpm/{name}-pre"));
        assert!(script.contains(&read(format!("defaults/{name}.sysusers"))), "{script}");
    }
}

/// Both units of bcd run it in one sandbox. The socket's folder is the daemon's alone: it goes with the unit that has it.
#[test]
fn a_join_at_boot_has_the_sandbox_of_the_daemon_but_not_its_socket() {
    let sandbox = |unit: &str| {
        let text = std::fs::read_to_string(root().join("systemd").join(unit)).unwrap();
        let (_, rest) = text.split_once("StateDirectory=").unwrap();
        rest.split_once("[Install]").unwrap().0.to_owned()
    };
    let (daemon, join) = (sandbox("bcd.service"), sandbox("bcd-join.service"));
    assert!(daemon.contains("\nRuntimeDirectory=bcd\n"), "{daemon}");
    assert_eq!(daemon.replace("RuntimeDirectory=bcd\n", ""), join);
}

mod slow {
    use super::*;

    /// The package that `packaging/build --debug` made.
    fn package(name: &str, end: &str) -> PathBuf {
        let program = program("bcd");
        let packages = Path::new(program.get_program()).parent().unwrap().with_file_name("packages");
        let is_it = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            file.starts_with(name) && file.ends_with(end)
        };
        let found = std::fs::read_dir(&packages).ok();
        let found = found.and_then(|mut files| files.find_map(|file| Some(file.ok()?.path()).filter(is_it)));
        found.unwrap_or_else(|| panic!("no {name}*{end} in target/packages; run packaging/build --debug"))
    }

    /// All files below, from there.
    fn below(folder: &Path, from: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        entries
            .flat_map(|path| match path.is_dir() {
                true => below(&path, from),
                false => vec![format!("/{}", path.strip_prefix(from).unwrap().display())],
            })
            .collect()
    }

    /// No root of Fedora is at hand: the rpm is unpacked, and what is in it runs where it was unpacked.
    fn unpacked(name: &str, end: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let package = package(name, end);
        if end == ".deb" {
            printed(Command::new("dpkg-deb").arg("--extract").arg(package).arg(folder.path()));
        } else {
            let mut unpack = Command::new("rpm2cpio").arg(package).stdout(Stdio::piped()).spawn().unwrap();
            let mut cpio = Command::new("cpio");
            cpio.args(["--extract", "--make-directories", "--quiet"]).current_dir(folder.path());
            printed(cpio.stdin(unpack.stdout.take().unwrap()));
            // cpio has what it wants before the end, which the other side may take amiss.
            drop(unpack.wait());
        }
        folder
    }

    #[test]
    fn each_has_its_files_and_its_program_runs() {
        for (name, files) in FILES {
            for end in [".deb", ".rpm"] {
                let folder = unpacked(&format!("{name}{}", if end == ".deb" { '_' } else { '-' }), end);
                let has = below(folder.path(), folder.path());
                for file in *files {
                    assert!(has.iter().any(|one| one == file), "{name}{end} has no {file}: {has:?}");
                }
                let (changelog, licenses) = match end {
                    ".deb" => ("doc/NAME/changelog.gz", "doc/NAME/THIRD-PARTY.gz"),
                    _ => ("doc/NAME/CHANGELOG.md", "licenses/NAME/THIRD-PARTY.gz"),
                };
                for file in ["man/man1/NAME.1.gz", changelog, licenses] {
                    let file = format!("/usr/share/{}", file.replace("NAME", name));
                    assert!(has.contains(&file), "{name}{end} has no {file}");
                }
                let texts = folder.path().join("usr/share").join(licenses.replace("NAME", name));
                let texts = printed(Command::new("gzip").args(["--decompress", "--stdout"]).arg(texts));
                for part in ["aws-lc-sys ", "tokio ", "TERMS AND CONDITIONS", "Permission is hereby granted"]
                {
                    assert!(texts.contains(part), "{name}{end}: {part}");
                }
                let binary = folder.path().join("usr/bin").join(name);
                let version = printed(Command::new(binary).arg("--version"));
                assert_eq!(version.trim(), format!("{name} {}", env!("CARGO_PKG_VERSION")));
                let units = folder.path().join("usr/lib/systemd/system");
                for unit in std::fs::read_dir(units).unwrap().map(|unit| unit.unwrap().path()) {
                    let ours = root().join("systemd").join(unit.file_name().unwrap());
                    assert_eq!(std::fs::read(&unit).unwrap(), std::fs::read(ours).unwrap());
                }
            }
        }
    }

    #[test]
    fn bcd_of_an_rpm_says_what_the_machine_is() {
        let folder = unpacked("bcd-", ".rpm");
        let identity = printed(Command::new(folder.path().join("usr/bin/bcd")).args(["identity", "--json"]));
        let identity: serde_json::Value = serde_json::from_str(&identity).unwrap();
        assert!(identity["macs"].is_array(), "{identity}");
    }

    /// A version, such as 2.36, in a form that can be compared.
    fn numbers(version: &str) -> Vec<u32> {
        version.split('.').map(|number| number.parse().unwrap()).collect()
    }

    #[test]
    fn a_deb_depends_on_the_glibc_that_its_program_needs() {
        for (name, _) in FILES {
            let deb = package(&format!("{name}_"), ".deb");
            let depends = printed(Command::new("dpkg-deb").arg("--field").arg(deb).arg("Depends"));
            let (_, claimed) = depends.split_once("libc6 (>= ").unwrap();
            let claimed = numbers(claimed.split_once(')').unwrap().0);
            let folder = unpacked(&format!("{name}_"), ".deb");
            let binary = folder.path().join("usr/bin").join(name);
            let versions = printed(Command::new("readelf").args(["--version-info", "--wide"]).arg(binary));
            let needed = versions.split("GLIBC_").skip(1).map(|rest| {
                let end = rest.find(|byte: char| !byte.is_ascii_digit() && byte != '.').unwrap_or(rest.len());
                numbers(&rest[..end])
            });
            let needed = needed.max().unwrap();
            assert!(needed > numbers("2.17") && needed <= claimed, "{name}: {needed:?}, and {depends}");
        }
    }

    /// What `tests/roots` says of a root that it has installed packages into.
    fn said(how: &str) -> String {
        printed(Command::new(root().join("tests/roots")).arg(how))
    }

    #[test]
    fn debs_install_on_the_next_debian() {
        let said = said("deb");
        for what in [
            "a person's account is not made the service's",
            "bcd says what the machine is",
            "bcd has its user",
            "relay has its user",
            "only root and the relay read its settings",
            "units are enabled",
            "a purge leaves nothing",
        ] {
            assert!(said.contains(&format!("roots: {what}\n")), "{what}\n{said}");
        }
    }

    #[test]
    fn rpms_are_installed_upgraded_and_erased() {
        let said = said("rpm");
        for what in [
            "a person's account is not made the service's",
            "presets are honoured",
            "all is as the package has it",
            "only root and the relay read its settings",
            "an upgrade keeps what was disabled and what was written",
            "an erasure keeps state and settings that were changed",
            "an erasure leaves no folder of its own",
        ] {
            assert!(said.contains(&format!("roots: {what}\n")), "{what}\n{said}");
        }
    }

    #[test]
    fn one_deb_of_bcd_goes_with_every_name_of_the_tss() {
        let depends =
            printed(Command::new("dpkg-deb").args(["--field"]).arg(package("bcd_", ".deb")).arg("Depends"));
        for library in ["libtss2-esys-3.0.2-0", "libtss2-tctildr0", "libtss2-tcti-device0"] {
            assert!(depends.contains(&format!("{library} | {library}t64")), "{depends}");
        }
        assert!(depends.contains("libtss2-mu0 | libtss2-mu-4.0.1-0t64"), "{depends}");
    }
}
