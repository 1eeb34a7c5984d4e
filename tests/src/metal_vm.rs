//! A machine that starts from the agent's image, or from its disk: QEMU without KVM, UEFI, a TPM of its own, an SMBIOS as its BMC
//! says it. It reaches this host's loopback as 10.0.2.2; one port of this host leads to its SSH.

use crate::{programs::Running, vm};
use std::{
    fs::{self, File},
    io::{self, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// The firmware, and what it keeps.
const OVMF: [&str; 2] = ["/usr/share/OVMF/OVMF_CODE_4M.fd", "/usr/share/OVMF/OVMF_VARS_4M.fd"];

/// What a machine is.
#[derive(Clone, Debug)]
pub struct MetalHardware {
    /// SMBIOS type 1: the product UUID.
    pub uuid: String,
    /// SMBIOS type 1: the serial number.
    pub serial: String,
    /// The address of its network card.
    pub mac: String,
    /// The disk's size, in MiB.
    pub disk_mib: u64,
    /// Whether it has a TPM.
    pub has_tpm: bool,
}

/// What a machine starts from.
#[derive(Clone, Copy, Debug)]
pub enum StartFrom<'path> {
    /// What is in its CD drive: this image.
    Cd(&'path Path),
    /// Its disk; there is nothing in its CD drive.
    Disk,
}

/// A machine that is off, or on.
pub struct MetalVm {
    folder: tempfile::TempDir,
    hardware: MetalHardware,
    ssh_port: u16,
    qemu: Option<Running>,
    tpm: Option<Running>,
}

impl MetalVm {
    /// A machine that is off, whose disk is full of an old system.
    ///
    /// # Panics
    /// Its disk can't be made.
    #[must_use]
    #[expect(clippy::panic, reason = "a test without its machine fails")]
    pub fn new(hardware: MetalHardware) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("a folder: {error}"));
        let ssh_port = free_port();
        let this = Self { folder, hardware, ssh_port, qemu: None, tpm: None };
        let full = filled(&this.disk(), this.hardware.disk_mib);
        assert!(full.is_ok(), "making a disk: {full:?}");
        assert!(
            fs::copy(OVMF[1], this.path("vars.fd")).is_ok(),
            "no {}; tests/install-deps installs it",
            OVMF[1]
        );
        this
    }

    /// Its disk, as a file.
    #[must_use]
    pub fn disk(&self) -> PathBuf {
        self.path("disk.img")
    }

    /// The port of this host that leads to its SSH.
    #[must_use]
    pub fn ssh_port(&self) -> u16 {
        self.ssh_port
    }

    /// What its console has shown, over all its boots.
    #[must_use]
    pub fn console(&self) -> String {
        fs::read(self.path("console.log"))
            .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether it is on.
    pub fn is_on(&mut self) -> bool {
        self.qemu.as_mut().is_some_and(Running::is_running)
    }

    /// Powers it on.
    ///
    /// # Panics
    /// QEMU, swtpm or the firmware is missing (`tests/install-deps`).
    pub fn power_on(&mut self, from: StartFrom<'_>) {
        let drive = |options: String| ["-drive".to_owned(), options];
        let file = |path: PathBuf| path.display().to_string();
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            "max",
            "-m",
            "1024",
            "-smp",
            "2",
            "-display",
            "none",
            "-no-reboot",
        ]);
        qemu.args(drive(format!("if=pflash,format=raw,readonly=on,file={}", OVMF[0])));
        qemu.args(drive(format!("if=pflash,format=raw,file={}", file(self.path("vars.fd")))));
        qemu.args(drive(format!("id=disk,if=none,format=raw,file={}", file(self.disk()))));
        qemu.args(["-device", "virtio-blk-pci,drive=disk,bootindex=1,serial=DISK-1"]);
        if let StartFrom::Cd(image) = from {
            let image = format!("id=cd,if=none,media=cdrom,readonly=on,format=raw,file={}", image.display());
            qemu.args(drive(image));
            qemu.args(["-device", "ide-cd,drive=cd,bootindex=0"]);
        }
        qemu.args(["-netdev", &format!("user,id=net,hostfwd=tcp:127.0.0.1:{}-:22", self.ssh_port)]);
        qemu.args(["-device", &format!("virtio-net-pci,netdev=net,romfile=,mac={}", self.hardware.mac)]);
        let identity = format!("type=1,uuid={},serial={}", self.hardware.uuid, self.hardware.serial);
        qemu.args(["-smbios", &identity]);
        if self.hardware.has_tpm {
            self.tpm = Some(self.power_tpm());
            qemu.args(["-chardev", &format!("socket,id=tpm,path={}", file(self.path("tpm.sock")))]);
            qemu.args(["-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0"]);
        }
        let console = format!("file,id=console,path={},append=on", file(self.path("console.log")));
        qemu.args(["-chardev", &console, "-serial", "chardev:console"]);
        qemu.arg("-qmp").arg(format!("unix:{},server=on,wait=off", file(self.path("qmp.sock"))));
        self.qemu = Some(Running::start(qemu, &self.path("qemu.log")));
    }

    /// Presses its power button, waits until it is off, and powers it off by force where that takes too long.
    pub fn shut_down(&mut self, longest: Duration) {
        let told = Instant::now();
        if self.is_on() && vm::press_power_button(&self.path("qmp.sock")).is_ok() {
            while self.is_on() && told.elapsed() < longest {
                thread::sleep(Duration::from_millis(100));
            }
        }
        self.power_off();
    }

    /// Powers it off, if it is on: by force, as a BMC does.
    pub fn power_off(&mut self) {
        self.qemu = None;
        self.tpm = None;
    }

    /// Its TPM, which keeps what it is over all boots.
    fn power_tpm(&self) -> Running {
        let (state, socket) = (self.path("tpm"), self.path("tpm.sock"));
        drop(fs::remove_file(&socket));
        assert!(fs::create_dir_all(&state).is_ok(), "making {}", state.display());
        let mut swtpm = Command::new("swtpm");
        swtpm.args(["socket", "--tpm2", "--terminate"]);
        swtpm.arg("--tpmstate").arg(format!("dir={}", state.display()));
        swtpm.arg("--ctrl").arg(format!("type=unixio,path={}", socket.display()));
        let mut running = Running::start(swtpm, &self.path("swtpm.log"));
        running.wait_for("swtpm's socket", || socket.exists().then_some(()));
        running
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Makes a file of so many MiB that says nothing but 0x5a.
fn filled(path: &Path, mib: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    let full = vec![0x5a; 1 << 20];
    (0..mib).try_for_each(|_| file.write_all(&full))
}

/// A port of this host that nobody has at this moment.
///
/// # Panics
/// There is none.
#[must_use]
#[expect(clippy::panic, reason = "a test without its port fails")]
pub fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    listener.unwrap_or_else(|error| panic!("a port: {error}")).port()
}

/// The agent's image, as `packaging/agent-image/build` made it.
///
/// # Panics
/// It has not been made.
#[must_use]
pub fn agent_image() -> PathBuf {
    let program = crate::programs::program("bcd");
    let debug = Path::new(program.get_program()).parent().unwrap_or(Path::new("."));
    let path = debug.with_file_name("agent-image").join("agent.iso");
    assert!(
        path.is_file(),
        "{} is missing; run packaging/build --debug and packaging/agent-image/build",
        path.display()
    );
    path
}
