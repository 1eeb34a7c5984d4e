//! Services and tools that others have written: sushy-tools' emulator, OpenIPMI's simulator, and DMTF's validator of the protocol, which
//! judges the fake BMC. `tests/install-deps` installs them.

use super::{credentials, networks, reach};
use relay::metal::{
    bmc::{Bmc, BmcError, Reason},
    facts::{Asked, Reach, TlsTrust},
};
use shared::api::metal::{BmcProtocol, PowerState};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tests::{BMC_PASSWORD, BMC_USER, Emulator, PERSONAS, program};

const UUID: &str = "4c4c4544-0035-3410-8050-c6c04f314733";
/// A password that IPMI can carry.
const IPMI_PASSWORD: &str = "calvin-17";

/// A program that is killed when this value goes.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn tool(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/bmc-tools/bin").join(name);
    assert!(path.is_file(), "{} is missing; run tests/install-deps", path.display());
    path
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn until(what: &str, is: impl Fn() -> bool) {
    let started = Instant::now();
    while !is() {
        assert!(started.elapsed() < Duration::from_secs(60), "{what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// Serves a few bytes to whoever asks; answers the URL.
fn image() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ =
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\nboot");
        }
    });
    format!("http://127.0.0.1:{port}/agent.iso")
}

/// sushy-tools' emulator with one machine, and how it is reached.
fn emulator(folder: &Path) -> (Emulator, Reach) {
    let emulator = Emulator::start(folder, (UUID, "52:54:00:12:34:56"), None);
    let certificate = fs::read_to_string(&emulator.certificate).unwrap();
    let reach = reach(format!("127.0.0.1:{}", emulator.port), TlsTrust::Ca(certificate));
    (emulator, reach)
}

/// Asks, and reads until it is so.
async fn switched(open: &impl AsyncFn(&str) -> Result<Bmc, BmcError>, asked: Asked, to: PowerState) {
    open(BMC_PASSWORD).await.ok().unwrap().ask(asked).await.unwrap();
    for _ in 0..40 {
        if open(BMC_PASSWORD).await.ok().unwrap().power() == to {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("it does not become {to:?}");
}

/// OpenIPMI's simulator of one BMC, and how it is reached.
fn simulator(folder: &Path) -> (Running, Reach) {
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = folder.display();
    let chassis = format!(
        "#!/bin/sh\n# The chassis: its power in a file.\ncd '{place}' || exit 1\n\
         case $1 in 0x*) shift ;; esac\ncommand=$1\nshift\ncase $command in\n\
         get) echo \"$1:$(cat \"$1\" 2>/dev/null || echo 0)\" ;;\n\
         set) echo \"$2\" >\"$1\" ;;\ncheck) ;;\n*) exit 1 ;;\nesac\n"
    );
    let script = folder.join("chassis");
    fs::write(&script, chassis).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    fs::set_permissions(&script, mode).unwrap();
    let settings = format!(
        "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n    \
         guid a123456789abcdefa123456789abcdef\n  endlan\n  chassis_control \"{place}/chassis\"\n  \
         user 2 true \"{BMC_USER}\" \"{IPMI_PASSWORD}\" admin 10 none md5\n"
    );
    fs::write(folder.join("lan.conf"), settings).unwrap();
    let commands = "mc_setbmc 0x20\nmc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02\n\
                    sel_enable 0x20 1000 0x0a\nmc_enable 0x20\n";
    fs::write(folder.join("sim.emu"), commands).unwrap();
    fs::create_dir(folder.join("state")).unwrap();
    let mut command = Command::new("ipmi_sim");
    command.args(["-c", "lan.conf", "-f", "sim.emu", "-s", "state", "-n"]).current_dir(folder);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let running = Running(child);
    thread::sleep(Duration::from_secs(1));
    let address = format!("127.0.0.1:{port}");
    let reach = Reach { address, protocol: BmcProtocol::Ipmi, cipher_suite: 3, tls: TlsTrust::Insecure };
    (running, reach)
}

mod slow {
    use super::*;

    #[tokio::test]
    async fn sushy_tools_emulator_is_enrolled_inspected_switched_and_booted() {
        let folder = tempfile::tempdir().unwrap();
        let (_running, reach) = emulator(folder.path());
        let open = async |password: &str| Bmc::open(&reach, credentials(password), &networks()).await;
        assert_eq!(open("wrong").await.err().map(|error| error.reason), Some(Reason::Unauthorized));

        let bmc = open(BMC_PASSWORD).await.ok().unwrap();
        let said = bmc.identity().await.unwrap();
        assert_eq!(said.identity.product_uuid.as_deref(), Some(UUID));
        assert_eq!(said.identity.macs, ["52:54:00:12:34:56"]);
        assert!(said.virtual_media && said.vendor.is_some(), "{said:?}");
        bmc.inspect().await.unwrap();
        assert_eq!(bmc.power(), PowerState::Off);

        let image = image();
        bmc.clear().await.unwrap();
        bmc.insert(&image).await.unwrap();
        bmc.boot_media_once().await.unwrap();
        switched(&open, Asked::On, PowerState::On).await;
        let state = |member: &str| -> String {
            let system = format!("/redfish/v1/Systems/{UUID}{member}");
            let url = format!("https://{}{system}", reach.address);
            let user = format!("{BMC_USER}:{BMC_PASSWORD}");
            let read = Command::new("curl")
                .args(["--silent", "--insecure", "--user", &user, &url])
                .output()
                .unwrap();
            String::from_utf8(read.stdout).unwrap()
        };
        assert!(state("").contains("\"BootSourceOverrideTarget\": \"Cd\""), "{}", state(""));
        assert!(state("/VirtualMedia/Cd").contains("\"Inserted\": true"), "{}", state("/VirtualMedia/Cd"));

        switched(&open, Asked::ForceOff, PowerState::Off).await;
        open(BMC_PASSWORD).await.ok().unwrap().clear().await.unwrap();
        assert!(!state("").contains("\"BootSourceOverrideTarget\": \"Cd\""), "{}", state(""));
        assert!(state("/VirtualMedia/Cd").contains("\"Inserted\": false"), "{}", state("/VirtualMedia/Cd"));
    }

    #[tokio::test]
    async fn openipmis_simulator_is_enrolled_and_switched() {
        let folder = tempfile::tempdir().unwrap();
        let (running, reach) = simulator(folder.path());
        let open =
            async |reach: &Reach, password: &str| Bmc::open(reach, credentials(password), &networks()).await;
        let refused =
            async |reach: &Reach, password: &str| open(reach, password).await.err().map(|it| it.reason);
        assert_eq!(refused(&reach, "wrong-17").await, Some(Reason::Unauthorized));
        let longest = "x".repeat(21);
        assert_eq!(refused(&reach, &longest).await, Some(Reason::Unsupported));
        let other = Reach { cipher_suite: 17, ..reach.clone() };
        assert_eq!(refused(&other, IPMI_PASSWORD).await, Some(Reason::Unsupported), "it knows no suite 17");

        let bmc = open(&reach, IPMI_PASSWORD).await.ok().unwrap();
        assert_eq!(bmc.power(), PowerState::Off);
        let said = bmc.identity().await.unwrap();
        assert!(said.identity.product_uuid.is_some() && said.firmware.is_some(), "{said:?}");
        assert!(!said.virtual_media);
        assert_eq!(bmc.insert("http://127.0.0.1/x").await.unwrap_err().reason, Reason::NoVirtualMedia);
        bmc.clear().await.unwrap();
        for (asked, power) in [(Asked::On, PowerState::On), (Asked::ForceOff, PowerState::Off)] {
            open(&reach, IPMI_PASSWORD).await.ok().unwrap().ask(asked).await.unwrap();
            assert_eq!(open(&reach, IPMI_PASSWORD).await.ok().unwrap().power(), power);
        }
        drop(running);
        assert_eq!(refused(&reach, IPMI_PASSWORD).await, Some(Reason::Unreachable));
    }

    /// What is judged is what follows DSP0266 to the letter: makers' habits do not.
    #[test]
    fn the_fake_bmc_is_judged_by_the_protocols_own_validator() {
        let folder = tempfile::tempdir().unwrap();
        let strict = PERSONAS.iter().find(|persona| persona.name == "supermicro").unwrap();
        let port = free_port();
        let certificate = folder.path().join("certificate.pem");
        let mut command = program("fake-bmc");
        command.args(["--persona", strict.name, "--listen", &format!("127.0.0.1:{port}")]);
        command.arg("--certificate").arg(&certificate).stdout(Stdio::null());
        let _running = Running(command.spawn().unwrap());
        until("fake-bmc starts", || {
            certificate.is_file() && TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        let mut validator = Command::new(tool("rf_protocol_validator"));
        validator.current_dir(folder.path()).stdin(Stdio::null());
        validator.args(["--user", BMC_USER, "--password", BMC_PASSWORD, "--avoid-http-redirect"]);
        validator.args(["--rhost", &format!("https://127.0.0.1:{port}"), "--report-type", "tsv"]);
        // Each of its ways to connect reads another setting.
        validator.arg("--ca-bundle").arg(&certificate).env("REQUESTS_CA_BUNDLE", &certificate);
        let ran = validator.env("SSL_CERT_FILE", &certificate).output().unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
        let reports = fs::read_dir(folder.path().join("reports")).expect(&said);
        let report = reports
            .flatten()
            .map(|entry| entry.path())
            .find(|path| path.extension().is_some_and(|it| it == "tsv"));
        let report = fs::read_to_string(report.expect(&said)).unwrap();
        let count =
            |verdict: &str| report.lines().filter(|line| line.split('\t').nth(4) == Some(verdict)).count();
        let failed: Vec<&str> =
            report.lines().filter(|line| line.split('\t').nth(4) == Some("FAIL")).collect();
        assert!(failed.is_empty(), "{}", failed.join("\n"));
        assert!(
            count("PASS") >= 250,
            "{} passed, {} not tested:\n{said}",
            count("PASS"),
            count("NOT_TESTED")
        );
    }
}
