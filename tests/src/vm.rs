//! Machines that boot: QEMU without KVM, the disk that `tests/vm-image` made, a TPM of its own, an SMBIOS as it is told.
//!
//! What differs from machine to machine is on the kernel's command line (settings of bcd) and in SMBIOS (UUID, serial, the
//! join token as an OEM string); all share one disk, and write into a file of their own. They reach this host's loopback as
//! 10.0.2.2, and nothing else.

use crate::{programs::Running, relay::RelayProcess};
use std::{
    fs,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// This host, as a machine sees it.
pub const HOST: &str = "10.0.2.2";
/// How long anything may take that a machine does: it is emulated, several at a time.
const LONGEST: Duration = Duration::from_secs(600);

/// What a machine is.
#[derive(Clone, Debug)]
pub struct Hardware {
    /// SMBIOS type 1: the product UUID.
    pub uuid: String,
    /// SMBIOS type 1: the serial number.
    pub serial: String,
    /// The last byte of its address on the network.
    pub number: u8,
    /// Whether it has a TPM.
    pub has_tpm: bool,
    /// What its clock says at power-on; the host's time if it is none.
    pub rtc: Option<&'static str>,
    /// The name of the credential that its SMBIOS passes the join token as.
    pub credential: &'static str,
    /// More for the kernel's command line.
    pub kernel: String,
}

impl Hardware {
    /// The machine of that number, with a TPM and a UUID and serial of its own.
    #[must_use]
    pub fn new(number: u8) -> Self {
        Self {
            uuid: format!("4c4c4544-0043-3010-8052-b4c04f4e31{number:02x}"),
            serial: format!("SN-VM-{number}"),
            number,
            has_tpm: true,
            rtc: None,
            credential: "bcd.join-token",
            kernel: String::new(),
        }
    }
}

/// A machine that is on, or off with its disk and TPM kept.
pub struct Vm {
    folder: tempfile::TempDir,
    hardware: Hardware,
    kernel: String,
    token: String,
    qemu: Option<Running>,
    tpm: Option<Running>,
}

impl Vm {
    /// A new machine, powered on, that bcd is to make a node of this relay by this token.
    ///
    /// # Panics
    /// QEMU, swtpm or the disk is missing (`tests/install-deps`, `tests/vm-image`).
    #[must_use]
    pub fn start(hardware: Hardware, relay: &RelayProcess, token: &str) -> Self {
        let folder = tempfile::tempdir().unwrap_or_else(|error| fail(&format!("a folder: {error}")));
        let port = relay.url().rsplit(':').next().unwrap_or_default().to_owned();
        let kernel = format!(
            "root=/dev/vda rw console=ttyS0 systemd.journald.forward_to_console=1 \
             systemd.setenv=BCD_RELAY=https://{HOST}:{port} systemd.setenv=BCD_CA_PINS={} {}",
            relay.pin(),
            hardware.kernel
        );
        let disk = folder.path().join("disk.qcow2");
        let mut make = Command::new("qemu-img");
        make.args(["create", "-q", "-f", "qcow2", "-F", "raw", "-b"]).arg(image("root.img")).arg(&disk);
        assert!(
            make.status().is_ok_and(|made| made.success()),
            "{make:?} fails; tests/install-deps installs it"
        );
        let mut vm = Self { folder, hardware, kernel, token: token.to_owned(), qemu: None, tpm: None };
        vm.power_on();
        vm
    }

    /// Everything that its console has shown, over all its boots.
    #[must_use]
    pub fn console(&self) -> String {
        fs::read(self.path("console.log"))
            .map_or_else(|_| String::new(), |text| String::from_utf8_lossy(&text).into_owned())
    }

    /// Waits until the console has shown this text that many times.
    ///
    /// # Panics
    /// It takes too long; the panic shows the console.
    pub fn wait_for(&self, text: &str, times: usize) {
        let started = Instant::now();
        while self.console().matches(text).count() < times {
            assert!(started.elapsed() < LONGEST, "{text:?} is not there {times} times:\n{}", self.console());
            thread::sleep(Duration::from_millis(200));
        }
    }

    /// Presses the power button, waits until it is off, and powers it on again.
    ///
    /// # Panics
    /// It does not go off in time.
    pub fn reboot(&mut self) {
        let pressed = press_power_button(&self.path("qmp.sock"));
        assert!(pressed.is_ok(), "the power button: {pressed:?}");
        let ended = self.qemu.take().map(|qemu| qemu.wait(LONGEST));
        assert_eq!(ended, Some(Some(0)), "{}", self.console());
        self.power_on();
    }

    fn power_on(&mut self) {
        let mut qemu = Command::new("qemu-system-x86_64");
        qemu.args([
            "-machine",
            "q35,accel=tcg",
            "-cpu",
            "max",
            "-m",
            "512",
            "-display",
            "none",
            "-no-reboot",
        ]);
        qemu.arg("-kernel").arg(image("vmlinuz")).arg("-initrd").arg(image("initrd"));
        qemu.args(["-append", &self.kernel]);
        qemu.arg("-drive").arg(format!("file={},if=virtio,format=qcow2", self.path("disk.qcow2").display()));
        let address = format!("virtio-net-pci,netdev=net,mac=52:54:00:12:34:{:02x}", self.hardware.number);
        qemu.args(["-netdev", "user,id=net", "-device", &address]);
        qemu.args([
            "-smbios",
            &format!("type=1,uuid={},serial={}", self.hardware.uuid, self.hardware.serial),
        ]);
        qemu.arg("-smbios").arg(format!("type=11,path={}", self.secret("token", &self.token).display()));
        if let Some(rtc) = self.hardware.rtc {
            qemu.args(["-rtc", &format!("base={rtc}")]);
        }
        if self.hardware.has_tpm {
            self.tpm = Some(self.power_tpm());
            qemu.arg("-chardev").arg(format!("socket,id=tpm,path={}", self.path("tpm.sock").display()));
            qemu.args(["-tpmdev", "emulator,id=tpm0,chardev=tpm", "-device", "tpm-tis,tpmdev=tpm0"]);
        }
        let console = format!("file,id=console,path={},append=on", self.path("console.log").display());
        qemu.args(["-chardev", &console, "-serial", "chardev:console"]);
        qemu.arg("-qmp").arg(format!("unix:{},server=on,wait=off", self.path("qmp.sock").display()));
        self.qemu = Some(Running::start(qemu, &self.path("qemu.log")));
    }

    /// Its TPM, which goes off with it.
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

    /// A file with the credential: what is in a command line is for everybody to see.
    fn secret(&self, name: &str, token: &str) -> PathBuf {
        let path = self.path(name);
        let written = fs::write(&path, format!("io.systemd.credential:{}={token}", self.hardware.credential));
        assert!(written.is_ok(), "writing {}", path.display());
        path
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Presses the power button of the machine whose QEMU listens here.
pub(crate) fn press_power_button(qmp: &Path) -> io::Result<()> {
    let socket = UnixStream::connect(qmp)?;
    let mut lines = BufReader::new(socket.try_clone()?);
    let mut line = String::new();
    for command in ["qmp_capabilities", "system_powerdown"] {
        lines.read_line(&mut line)?;
        writeln!(&socket, "{{\"execute\": \"{command}\"}}")?;
    }
    lines.read_line(&mut line).map(drop)
}

/// The image of a whole disk with bcd, zstd, as `tests/vm-image` made it.
///
/// # Panics
/// It has not been made.
#[must_use]
pub fn disk_image() -> PathBuf {
    image("disk.raw.zst")
}

/// A file that `tests/vm-image` made.
fn image(name: &str) -> PathBuf {
    let program = crate::programs::program("bcd");
    let debug = Path::new(program.get_program()).parent().unwrap_or(Path::new("."));
    let path = debug.with_file_name("vm").join(name);
    assert!(path.is_file(), "{} is missing; run packaging/build --debug and tests/vm-image", path.display());
    path
}

fn fail(why: &str) -> ! {
    assert!(why.is_empty(), "{why}");
    unreachable!("a failure says why")
}
