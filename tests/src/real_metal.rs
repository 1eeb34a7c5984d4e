//! A BMC that others have written, and a machine that does what it says: sushy-tools' emulator with its fake driver, whose notifier
//! tells what the machine is to be, and a virtual machine that is so before the notifier gets its answer.
//!
//! Two things that emulator can't: it says Off some seconds after it was asked, in whatever way, so the machine's power button is
//! pressed first each time; and it does not learn of a machine that goes off by itself.

use crate::{
    BMC_USER,
    metal_vm::{MetalHardware, MetalVm, StartFrom, free_port},
    programs::Running,
};
use rcgen::{CertificateParams, KeyPair};
use serde_json::Value;
use std::{
    error::Error,
    fs,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    thread,
    time::Duration,
};

/// [`BMC_PASSWORD`](crate::BMC_PASSWORD) by bcrypt.
const HASH: &str = "$2b$04$UVtfXHKpO.qTNW5NtkSM2umWg6Fg7KmkAkC8EUNyQqER/CMIobWyq";
/// How long a system may take to shut itself down: less than a caller waits for the BMC's answer.
const LONGEST_SHUTDOWN: Duration = Duration::from_secs(45);
/// How long a notification may take to come, and how large it may be.
const LONGEST_READ: Duration = Duration::from_secs(10);
const MAX_BODY: u64 = 64 * 1024;

/// A running emulator with one machine, which is off. It is killed when this value goes.
pub struct Emulator {
    /// The port of 127.0.0.1 that it serves Redfish at, over TLS, to [`BMC_USER`].
    pub port: u16,
    /// Its certificate, as a file in PEM.
    pub certificate: PathBuf,
    _running: Running,
}

impl Emulator {
    /// Starts it with what it keeps in this folder. It tells the port `notified` of each change of its machine, if there is one.
    ///
    /// # Panics
    /// It does not come up, or is missing (`tests/install-deps`).
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its BMC fails")]
    pub fn start(folder: &Path, (uuid, mac): (&str, &str), notified: Option<u16>) -> Self {
        let port = free_port();
        let settings = match settings(folder, port, (uuid, mac), notified) {
            Ok(settings) => settings,
            Err(error) => panic!("an emulator's settings in {}: {error}", folder.display()),
        };
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bmc-tools/bin/sushy-emulator");
        assert!(program.is_file(), "{} is missing; run tests/install-deps", program.display());
        let mut command = Command::new(program);
        // It keeps there what is inserted.
        command.arg("--config").arg(settings).current_dir(folder).env("TMPDIR", folder);
        let mut running = Running::start(command, &folder.join("emulator.log"));
        running.wait_for("emulator", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
        Self { port, certificate: folder.join("certificate.pem"), _running: running }
    }
}

/// Writes down what an emulator goes by; answers the file that it reads.
fn settings(
    folder: &Path,
    port: u16,
    (uuid, mac): (&str, &str),
    notified: Option<u16>,
) -> Result<PathBuf, Box<dyn Error>> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()])?.self_signed(&key)?;
    fs::write(folder.join("key.pem"), key.serialize_pem())?;
    fs::write(folder.join("certificate.pem"), certificate.pem())?;
    fs::write(folder.join("htpasswd"), format!("{BMC_USER}:{HASH}\n"))?;
    let notifies = if notified.is_some() { "True" } else { "False" };
    let (place, url) = (folder.display(), format!("http://127.0.0.1:{}", notified.unwrap_or_default()));
    let text = format!(
        "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
         SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_STATE_DIR = '{place}/state'\n\
         SUSHY_EMULATOR_AUTH_FILE = '{place}/htpasswd'\nSUSHY_EMULATOR_SSL_CERT = '{place}/certificate.pem'\n\
         SUSHY_EMULATOR_SSL_KEY = '{place}/key.pem'\nEXTERNAL_NOTIFICATION_URL = '{url}'\n\
         SUSHY_EMULATOR_FAKE_SYSTEMS = [{{'uuid': '{uuid}', 'name': 'node', 'power_state': 'Off', \
         'external_notifier': {notifies}, 'nics': [{{'mac': '{mac}', 'ip': '10.0.2.15'}}]}}]\n"
    );
    let path = folder.join("settings");
    fs::write(&path, text)?;
    Ok(path)
}

/// A machine and its BMC. Both are gone when this value is.
pub struct RealMetal {
    // In this order they go: first nobody tells the machine anything any more, and the folder outlives what runs in it.
    emulator: Emulator,
    machine: Shared,
    _folder: tempfile::TempDir,
}

/// The machine, which the notifier's thread may have in hand too.
struct Shared(Arc<Mutex<Chassis>>);

impl Drop for Shared {
    fn drop(&mut self) {
        locked(&self.0).vm.power_off();
    }
}

/// The machine, as its BMC last said that it is to be.
struct Chassis {
    vm: MetalVm,
    told: Value,
    is_on: bool,
    starts: Vec<&'static str>,
}

impl RealMetal {
    /// A machine that is off, and its BMC on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// They can't be made.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its machine fails")]
    pub fn new(hardware: MetalHardware) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("a folder: {error}"));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.unwrap_or_else(|error| panic!("a port: {error}"));
        let notified = listener.local_addr().map(|address| address.port()).ok();
        let (uuid, mac) = (hardware.uuid.clone(), hardware.mac.clone());
        let vm = MetalVm::new(hardware);
        let chassis = Chassis { vm, told: Value::Null, is_on: false, starts: Vec::new() };
        let chassis = Arc::new(Mutex::new(chassis));
        let listens = Arc::downgrade(&chassis);
        thread::spawn(move || listen(&listener, &listens));
        let emulator = Emulator::start(folder.path(), (&uuid, &mac), notified);
        Self { emulator, machine: Shared(chassis), _folder: folder }
    }

    /// Its BMC.
    #[must_use]
    pub fn emulator(&self) -> &Emulator {
        &self.emulator
    }

    /// What its BMC last told: `power_state`, `boot_device`, `boot_image` and what else the emulator keeps.
    #[must_use]
    pub fn told(&self) -> Value {
        locked(&self.machine.0).told.clone()
    }

    /// What it was started from, each time: `cd` or `disk`.
    #[must_use]
    pub fn starts(&self) -> Vec<&'static str> {
        locked(&self.machine.0).starts.clone()
    }

    /// Does something with the machine itself, and nobody else meanwhile.
    pub fn with<T>(&self, act: impl FnOnce(&mut MetalVm) -> T) -> T {
        act(&mut locked(&self.machine.0).vm)
    }
}

impl Chassis {
    /// Does to the machine what its BMC says.
    fn follow(&mut self, told: Value) {
        let text = |path: &str| told.pointer(path).and_then(Value::as_str);
        let is_on = text("/power_state") == Some("On");
        if is_on && !self.is_on {
            let inserted = text("/boot_image/Cd/0").filter(|_| text("/boot_device") == Some("Cd"));
            let from = inserted.map_or(StartFrom::Disk, |image| StartFrom::Cd(Path::new(image)));
            self.starts.push(if inserted.is_some() { "cd" } else { "disk" });
            self.vm.power_on(from);
        } else if !is_on && self.is_on {
            self.vm.shut_down(LONGEST_SHUTDOWN);
        }
        self.is_on = is_on;
        self.told = told;
    }
}

/// Follows what the emulator's notifier tells, one thing after another, as long as there is a machine.
fn listen(listener: &TcpListener, chassis: &Weak<Mutex<Chassis>>) {
    for stream in listener.incoming().flatten() {
        let Some(chassis) = chassis.upgrade() else { return };
        if let Ok(told) = received(&stream) {
            locked(&chassis).follow(told);
        }
        // Who went away meanwhile needs no answer.
        drop((&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
    }
}

/// The JSON of one request.
fn received(stream: &TcpStream) -> io::Result<Value> {
    stream.set_read_timeout(Some(LONGEST_READ))?;
    let mut reader = BufReader::new(stream.take(MAX_BODY));
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let Some((name, value)) = line.split_once(':') else {
            if line.trim().is_empty() {
                break;
            }
            continue;
        };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = String::new();
    reader.take(length).read_to_string(&mut body)?;
    Ok(serde_json::from_str(&body)?)
}

fn locked(chassis: &Mutex<Chassis>) -> MutexGuard<'_, Chassis> {
    chassis.lock().unwrap_or_else(PoisonError::into_inner)
}
