//! A TPM in software for one test: swtpm on two free ports of 127.0.0.1, with a state of its own, ended by its process id.
//!
//! Like a TPM without a resource manager it has three slots for keys and takes one client at a time. bcd's own tests use
//! this file too, so that it uses nothing of this crate.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    fs::{self, File, OpenOptions},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// How long swtpm and socat may take until they are there.
const LONGEST_START: Duration = Duration::from_secs(20);
/// How long the tool that issues certificates may take.
const LONGEST_SETUP: Duration = Duration::from_secs(120);
/// How often other ports are tried, if somebody was faster.
const MAX_TRIES: u32 = 20;

/// How the TPM left its maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// With certificates for its RSA-2048 and P-384 endorsement keys, by a CA of its own (`swtpm_localca`).
    WithCertificates,
    /// Without certificates.
    Bare,
    /// As a TPM 1.2.
    Tpm12,
}

/// A running swtpm. It is killed when this value goes.
pub struct Swtpm {
    folder: tempfile::TempDir,
    made: Made,
    port: u16,
    child: Child,
}

impl Swtpm {
    /// A fresh TPM, powered on.
    ///
    /// # Panics
    /// swtpm or its tools are not installed (`tests/install-deps`), or don't start.
    #[must_use]
    pub fn start(made: Made) -> Self {
        let folder =
            tempfile::tempdir().unwrap_or_else(|error| fail(&format!("a folder for swtpm: {error}")));
        if made == Made::WithCertificates {
            certify(folder.path());
        }
        let (port, child) = power_on(folder.path(), made);
        Self { folder, made, port, child }
    }

    /// bcd's setting `tcti` for it.
    #[must_use]
    pub fn tcti(&self) -> String {
        format!("swtpm:host=127.0.0.1,port={}", self.port)
    }

    /// The CA certificates that its own chain to, PEM: the root, and the one that issues.
    #[must_use]
    pub fn authorities(&self) -> [PathBuf; 2] {
        ["swtpm-localca-rootca-cert.pem", "issuercert.pem"]
            .map(|name| self.folder.path().join("ca").join(name))
    }

    /// Off and on again: keys and sessions in its memory are gone, what is in NV is there. The ports are others.
    ///
    /// # Panics
    /// It does not start.
    pub fn restart(&mut self) {
        self.end();
        (self.port, self.child) = power_on(self.folder.path(), self.made);
    }

    /// Off.
    pub fn stop(&mut self) {
        self.end();
    }

    /// The TPM as a character device, as a kernel would show it. While this is there, nobody else reaches the TPM.
    ///
    /// # Panics
    /// socat is not installed (`tests/install-deps`), or does not start.
    #[must_use]
    pub fn device(&self) -> Device {
        Device::start(&self.folder.path().join("tpmrm0"), self.port)
    }

    /// Its state is on disk as soon as a command is answered: SIGTERM is only more polite than SIGKILL.
    fn end(&mut self) {
        terminate(&mut self.child);
    }
}

impl Drop for Swtpm {
    fn drop(&mut self) {
        self.end();
    }
}

/// A pseudo terminal that leads to swtpm. socat is killed when this value goes.
pub struct Device {
    path: PathBuf,
    /// Without anybody who has it open, the pseudo terminal would end between two clients.
    _open: File,
    child: Child,
}

impl Device {
    /// bcd's setting `tcti` for it.
    #[must_use]
    pub fn tcti(&self) -> String {
        format!("device:{}", self.path.display())
    }

    fn start(path: &Path, port: u16) -> Self {
        let mut socat = Command::new("socat");
        socat.arg(format!("PTY,link={},rawer,echo=0", path.display())).arg(format!("TCP:127.0.0.1:{port}"));
        let mut child = spawn(socat, path);
        let started = Instant::now();
        loop {
            if let Ok(open) = OpenOptions::new().read(true).write(true).open(path) {
                return Self { path: path.to_owned(), _open: open, child };
            }
            if started.elapsed() > LONGEST_START || !matches!(child.try_wait(), Ok(None)) {
                terminate(&mut child);
                fail(&format!("socat makes no {}", path.display()));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        terminate(&mut self.child);
    }
}

/// swtpm on two free ports, one behind the other, as the TSS expects them.
fn power_on(folder: &Path, made: Made) -> (u16, Child) {
    let state = folder.join("state");
    let ready = folder.join("pid");
    if let Err(error) = fs::create_dir_all(&state) {
        fail(&format!("making {}: {error}", state.display()));
    }
    for _ in 0..MAX_TRIES {
        drop(fs::remove_file(&ready));
        let Some(port) = two_free_ports() else { continue };
        let mut swtpm = Command::new("swtpm");
        swtpm.arg("socket").args((made != Made::Tpm12).then_some("--tpm2"));
        swtpm.arg("--tpmstate").arg(format!("dir={}", state.display()));
        swtpm.args(["--flags", "not-need-init,startup-clear"]);
        swtpm.arg("--pid").arg(format!("file={}", ready.display()));
        swtpm.arg("--server").arg(format!("type=tcp,bindaddr=127.0.0.1,port={port}"));
        swtpm.arg("--ctrl").arg(format!("type=tcp,bindaddr=127.0.0.1,port={}", port + 1));
        let mut child = spawn(swtpm, &folder.join("swtpm.log"));
        let started = Instant::now();
        while matches!(child.try_wait(), Ok(None)) {
            // Its id is written once it listens.
            if fs::read_to_string(&ready).is_ok_and(|id| id.trim() == child.id().to_string()) {
                return (port, child);
            }
            if started.elapsed() > LONGEST_START {
                terminate(&mut child);
                fail(&format!("swtpm is not ready after {LONGEST_START:?}\n{}", log(folder)));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    fail(&format!("swtpm does not start\n{}", log(folder)));
}

fn two_free_ports() -> Option<u16> {
    let first = TcpListener::bind("127.0.0.1:0").ok()?;
    let port = first.local_addr().ok()?.port();
    TcpListener::bind(("127.0.0.1", port.checked_add(1)?)).ok()?;
    Some(port)
}

/// Has the TPM's maker write certificates into it, by a CA in this folder.
fn certify(folder: &Path) {
    let (state, ca) = (folder.join("state"), folder.join("ca"));
    let (setup_conf, ca_conf, options) =
        (folder.join("setup.conf"), folder.join("localca.conf"), folder.join("localca.options"));
    let show = |path: &Path| path.display().to_string();
    let ca = show(&ca);
    let files = [
        (
            &setup_conf,
            format!(
                "create_certs_tool=swtpm_localca\ncreate_certs_tool_config={}\ncreate_certs_tool_options={}\nactive_pcr_banks=sha256\n",
                show(&ca_conf),
                show(&options)
            ),
        ),
        (
            &ca_conf,
            format!(
                "statedir={ca}\nsigningkey={ca}/signkey.pem\nissuercert={ca}/issuercert.pem\ncertserial={ca}/certserial\n"
            ),
        ),
        (
            &options,
            "--platform-manufacturer Example\n--platform-version 1.0\n--platform-model Machine\n".to_owned(),
        ),
    ];
    let written = files.iter().try_for_each(|(path, text)| fs::write(path, text));
    if let Err(error) =
        written.and_then(|()| fs::create_dir_all(&ca)).and_then(|()| fs::create_dir_all(&state))
    {
        fail(&format!("writing into {}: {error}", folder.display()));
    }
    let mut setup = Command::new("swtpm_setup");
    setup.args(["--tpm2", "--create-ek-cert", "--tpm-state"]).arg(&state).arg("--config").arg(&setup_conf);
    let mut child = spawn(setup, &folder.join("swtpm.log"));
    let started = Instant::now();
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            _ if started.elapsed() > LONGEST_SETUP => {
                terminate(&mut child);
                fail(&format!("swtpm_setup takes longer than {LONGEST_SETUP:?}\n{}", log(folder)));
            }
            _ => thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success(), "swtpm_setup ends with {status}\n{}", log(folder));
}

/// Starts it with its output at the end of `log`.
fn spawn(mut command: Command, log: &Path) -> Child {
    let log = log.with_extension("log");
    let file = || OpenOptions::new().create(true).append(true).open(&log);
    let child = file()
        .and_then(|out| Ok((out, file()?)))
        .and_then(|(out, err)| command.stdin(Stdio::null()).stdout(out).stderr(err).spawn());
    child.unwrap_or_else(|error| {
        fail(&format!("starting {command:?}: {error}; tests/install-deps installs it"))
    })
}

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("swtpm.log")).unwrap_or_default()
}

/// SIGTERM, and SIGKILL after a second.
fn terminate(child: &mut Child) {
    if let Ok(process) = i32::try_from(child.id()).map(Pid::from_raw)
        && matches!(child.try_wait(), Ok(None))
    {
        let _ = kill(process, Signal::SIGTERM);
    }
    for _ in 0..200 {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    drop(child.kill());
    drop(child.wait());
}

/// A test without its TPM fails. Not by panic!, which is allowed in bcd's tests and wants a reason here.
fn fail(why: &str) -> ! {
    assert!(why.is_empty(), "{why}");
    unreachable!("a failure says why")
}
