//! What an agent does in a machine, by the verbs of the API: from enrollment to retirement. The BMC is the fake one, and the test does
//! to the machine what it is told. `tests/run --fast` leaves it out: it takes minutes.

use super::image_server::ImageServer;
use aws_lc_rs::digest::{SHA256, digest};
use relay::clock::Clock;
use serde_json::{Value, json};
use shared::hex;
use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};
use tests::{
    Answer, BMC_PASSWORD, BMC_USER, Database, FakeBmc, HOST, LocalRelay, Machine, MetalHardware, MetalVm,
    PERSONAS, Persona, StartFrom, agent_image, client, free_port, unique,
};

/// How long a workflow may take: all of it is emulated.
const LONGEST: Duration = Duration::from_secs(400);

/// A relay that has enrolled a machine.
struct Site {
    relay: LocalRelay,
    node: Value,
    vm: MetalVm,
    /// How often the machine was started, as the BMC says and as the test has done.
    starts: usize,
    bmc: FakeBmc,
    persona: &'static Persona,
    home: tempfile::TempDir,
    _database: Database,
}

impl Site {
    async fn new(has_tpm: bool, image_ca: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (port, image, database) = (free_port(), agent_image(), Database::sqlite());
        let (listen, url) = (format!("127.0.0.1:{port}"), format!("https://{HOST}:{port}"));
        let ca = home.path().join("image-ca.pem");
        fs::write(&ca, image_ca).unwrap();
        let more = [
            ("listen", listen.as_str()),
            ("url", url.as_str()),
            ("boot_listen", "127.0.0.1:0"),
            ("agent_image", image.to_str().unwrap()),
            ("image_ca_file", ca.to_str().unwrap()),
        ];
        let relay = LocalRelay::start_with(home.path(), "relay", &database, &Clock::system(), &more).await;
        let networks = json!({"siteId": "default", "bmcNetworks": ["127.0.0.1/32", "10.0.2.0/24"]});
        relay.call("compute/sites/update", &networks).await;
        let persona = PERSONAS.iter().find(|persona| persona.name == "dell").unwrap();
        let bmc = FakeBmc::start(persona);
        let vm = MetalVm::new(MetalHardware {
            uuid: persona.uuid.to_lowercase(),
            // As on Dell's: what SMBIOS calls the serial number is the BMC's SKU.
            serial: persona.sku.to_owned(),
            mac: "00:16:3e:00:00:17".to_owned(),
            disk_mib: 192,
            has_tpm,
        });
        let mut site =
            Self { relay, node: Value::Null, vm, starts: 0, bmc, persona, home, _database: database };
        let access = json!({
            "address": site.bmc.address(), "username": BMC_USER, "password": BMC_PASSWORD, "tlsPinSha256": site.bmc.pin(),
        });
        let input = json!({"tenantId": "provider", "poolId": "default", "bmc": access, "idempotencyKey": unique("key")});
        site.node = site.relay.call("compute/metal/enroll", &input).await["node"]["nodeId"].clone();
        site.until_state("enrolled").await;
        site
    }

    fn input(&self, more: &Value) -> Value {
        let mut input = json!({"tenantId": "provider", "poolId": "default", "nodeId": self.node});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        input
    }

    async fn view(&self) -> Value {
        self.relay.call("compute/metal/get", &self.input(&json!({}))).await["node"].clone()
    }

    /// A verb, and its workflow to its end.
    async fn done(&mut self, verb: &str, more: Value, state: &str) -> Value {
        let begun = Instant::now();
        self.ask(verb, more).await;
        let view = self.until_state(state).await;
        eprintln!("{verb} to {state}: {:.1} s", begun.elapsed().as_secs_f64());
        view
    }

    async fn ask(&self, verb: &str, mut more: Value) {
        more["idempotencyKey"] = json!(unique("key"));
        self.relay.call(&format!("compute/metal/{verb}"), &self.input(&more)).await;
    }

    async fn until_state(&mut self, state: &str) -> Value {
        self.until(state, |view| view["state"] == state).await
    }

    async fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            self.tend().await;
            let view = self.view().await;
            if is(&view) {
                return view;
            }
            let has_failed = view["state"].as_str().unwrap_or_default().ends_with("Failed");
            let is_late = begun.elapsed() > LONGEST;
            assert!(!has_failed && !is_late, "not {what}: {view:#}\n{}", self.vm.console());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Does to the machine what its BMC was told.
    async fn tend(&mut self) {
        let started = self.bmc.started();
        if !self.bmc.is_on() || started.len() > self.starts {
            self.vm.power_off();
        }
        if started.len() > self.starts {
            self.starts = started.len();
            let from = started.last().unwrap();
            // The system on the disk is no more than its files: that it starts, another test shows.
            if from != "disk" {
                let answer = client::plain(Ipv4Addr::LOCALHOST.into()).get(from).send().await.unwrap();
                assert_eq!(answer.status(), 200);
                let cd = self.home.path().join("cd.iso");
                fs::write(&cd, answer.bytes().await.unwrap()).unwrap();
                self.vm.power_on(StartFrom::Cd(&cd));
            }
        }
    }
}

/// A disk with one partition, on which a small system is.
fn system(folder: &Path) -> Vec<u8> {
    let root = folder.join("root");
    fs::create_dir_all(root.join("etc")).unwrap();
    fs::write(root.join("etc/os-release"), "PRETTY_NAME=\"Small 1\"\n").unwrap();
    let partition = folder.join("partition");
    let made = Command::new("mke2fs")
        .args(["-q", "-t", "ext4", "-d"])
        .arg(&root)
        .arg(&partition)
        .arg("24M")
        .status();
    assert!(made.is_ok_and(|made| made.success()), "mke2fs");
    let mut disk = vec![0; 1 << 20];
    disk.extend(fs::read(partition).unwrap());
    disk.extend(vec![0; 1 << 20]);
    // A table as the MBR has it: one partition from sector 2048 on.
    let sectors: u32 = 24 * 2048;
    let entry = [&[0, 0, 0, 0, 0x83, 0, 0, 0][..], &2048_u32.to_le_bytes(), &sectors.to_le_bytes()].concat();
    disk[446..462].copy_from_slice(&entry);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk
}

fn packed(folder: &Path, disk: &[u8], program: &str, arguments: &[&str]) -> Vec<u8> {
    let (from, to) = (folder.join("from"), folder.join("to"));
    fs::write(&from, disk).unwrap();
    let made = Command::new(program).args(arguments).arg(&from).arg(&to).output();
    assert!(made.as_ref().is_ok_and(|made| made.status.success()), "{program}: {made:?}");
    fs::read(to).unwrap()
}

pub(crate) fn sha256(bytes: &[u8]) -> String {
    hex::encode(digest(&SHA256, bytes).as_ref())
}

/// What `debugfs` says of a file on the system's partition.
fn file_on(disk: &Path, folder: &Path, ask: &str) -> String {
    let partition = folder.join("written");
    let bytes = fs::read(disk).unwrap();
    fs::write(&partition, &bytes[1 << 20..25 << 20]).unwrap();
    let said = Command::new("debugfs").args(["-R", ask]).arg(&partition).output().unwrap();
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// `ssh` into the machine.
pub(crate) fn ssh(port: u16, key: &Path, command: &str) -> (Option<i32>, String) {
    let mut ssh = Command::new("ssh");
    ssh.args(["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes"]);
    ssh.args(["-o", "ConnectTimeout=20", "-o", "LogLevel=ERROR", "-p", &port.to_string(), "-i"]).arg(key);
    let said = ssh.arg("root@127.0.0.1").arg(command).output().unwrap();
    (said.status.code(), String::from_utf8_lossy(&said.stdout).trim().to_owned())
}

pub(crate) fn key(folder: &Path, name: &str) -> (PathBuf, String) {
    let path = folder.join(name);
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
    assert!(made.is_ok_and(|made| made.success()), "ssh-keygen");
    let public = fs::read_to_string(path.with_extension("pub")).unwrap();
    let words: Vec<&str> = public.split_whitespace().take(2).collect();
    (path, words.join(" "))
}

/// The image server, and the deploy's input for each of its images.
async fn images(folder: &Path) -> (ImageServer, Vec<u8>, impl Fn(&str, &str) -> Value) {
    let disk = system(folder);
    let zst = packed(folder, &disk, "sh", &["-c", "zstd -q -c \"$0\" >\"$1\""]);
    let qcow2 = packed(folder, &disk, "qemu-img", &["convert", "-c", "-O", "qcow2"]);
    let hashes = BTreeMap::from([("raw.zst", sha256(&zst)), ("qcow2", sha256(&qcow2))]);
    let files = BTreeMap::from([("/raw.zst".to_owned(), zst), ("/qcow2".to_owned(), qcow2)]);
    let server = ImageServer::start(HOST, files).await;
    let port = server.port;
    let image = move |name: &str, format: &str| {
        let sha256 = hashes.get(name).cloned().unwrap_or_else(|| "0".repeat(64));
        json!({"image": {"url": format!("https://{HOST}:{port}/{name}"), "sha256": sha256, "format": format}})
    };
    (server, disk, image)
}

/// Deploys of what is no image of its format, and of what is elsewhere.
async fn bad_images_fail(site: &mut Site, image: &impl Fn(&str, &str) -> Value) {
    for (name, format, code) in [("qcow2", "raw.zst", "badImage"), ("elsewhere", "raw.zst", "fetchFailed")] {
        site.ask("deploy", image(name, format)).await;
        let begun = Instant::now();
        let failed = loop {
            site.tend().await;
            let view = site.view().await;
            if view["lastError"]["code"] == code {
                break view;
            }
            assert!(begun.elapsed() < LONGEST, "{name}: {view:#}\n{}", site.vm.console());
            tokio::time::sleep(Duration::from_millis(200)).await;
        };
        if failed["state"] != "deployFailed" {
            site.ask("abort", json!({})).await;
            while site.view().await["state"] != "deployFailed" {
                site.tend().await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

/// Deploys an image, and joins as the system that it is with the token that is on the disk.
async fn deployed(site: &mut Site, mut more: Value, (disk, folder): (&[u8], &Path), again: bool) -> Machine {
    let format = more["image"]["format"].clone();
    more["userData"] = json!("#cloud-config\n");
    more["disk"] = json!({"serial": "DISK-1"});
    if again {
        more["rebuild"] = json!(true);
    }
    let begun = Instant::now();
    site.ask("deploy", more).await;
    site.until("started", |view| view["waitingFor"] == "daemon").await;
    eprintln!("deploy of {format}, to the start of the system: {:.1} s", begun.elapsed().as_secs_f64());
    let bytes = fs::read(site.vm.disk()).unwrap();
    assert!(bytes[..1 << 20] == disk[..1 << 20], "{format} is not on the disk");
    let there = |ask: &str| file_on(&site.vm.disk(), folder, ask);
    assert!(there("stat /etc/credstore/bcd.join-token").contains("Mode:  0600"));
    assert!(there("cat /etc/bcd/bcd.toml.d/50-metal.toml").contains(HOST));
    assert_eq!(there("cat /var/lib/cloud/seed/nocloud/user-data"), "#cloud-config\n");
    let token = there("cat /etc/credstore/bcd.join-token");
    let persona = site.persona;
    let claim = json!({"productUuid": persona.uuid, "serial": persona.sku, "macs": ["00:16:3e:00:00:17"]});
    let mut machine = Machine::claiming(claim);
    let joined: Answer = machine.join(&site.relay, token.trim()).await;
    assert_eq!(joined.body["nodeId"], site.node, "{}", joined.body);
    site.until_state("deployed").await;
    machine
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_lives_from_its_enrollment_to_its_retirement_by_its_agent() {
    let folder = tempfile::tempdir().unwrap();
    let (server, disk, image) = images(folder.path()).await;
    let mut site = Site::new(false, &server.ca).await;
    site.done("inspect", json!({}), "inspected").await;
    let view = site.done("commission", json!({}), "available").await;
    assert_eq!(view["hardware"]["disks"], json!(["vda, 192 MiB"]), "{view}");
    assert!(view["hardware"]["memoryMib"].as_i64().unwrap() > 800, "{view}");
    let bytes = fs::read(site.vm.disk()).unwrap();
    assert!(
        bytes[..1 << 20].iter().all(|byte| *byte == 0) && bytes[100 << 20] == 0x5a,
        "only metadata is wiped"
    );

    bad_images_fail(&mut site, &image).await;
    let mut system = None;
    for name in ["qcow2", "raw.zst"] {
        system = Some(deployed(&mut site, image(name, name), (&disk, folder.path()), system.is_some()).await);
    }

    let (good, bad) = (key(folder.path(), "good"), key(folder.path(), "bad"));
    site.done("rescue", json!({"sshPublicKey": good.1, "ttlSeconds": 300}), "rescued").await;
    let port = site.vm.ssh_port();
    assert_eq!(ssh(port, &good.0, "id -u; ls /dev/vda1").1, "0\n/dev/vda1");
    assert_ne!(ssh(port, &bad.0, "id").0, Some(0), "another key");
    site.done("rescue", json!({"exit": true}), "deployed").await;

    site.done("release", json!({}), "available").await;
    assert!(fs::read(site.vm.disk()).unwrap().iter().all(|byte| *byte == 0), "the disk is not blank");
    let ended = system.unwrap().call(&site.relay, "node/heartbeat", &json!({})).await;
    assert_ne!(ended.status, 200, "its certificate has ended");
    site.done("retire", json!({}), "retired").await;
    let console = site.vm.console();
    assert!(!console.contains("bcjt_") && !console.contains("#cloud-config"), "{console}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_proves_the_endorsement_key_of_its_machine() {
    let mut site = Site::new(true, "").await;
    site.done("inspect", json!({}), "inspected").await;
    let view = site.done("commission", json!({}), "available").await;
    assert_eq!(view["identity"]["ekSha256"].as_str().map(str::len), Some(64), "{view}");
    // And again, by the same key.
    site.done("commission", json!({}), "available").await;
}
