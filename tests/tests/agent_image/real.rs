//! The real thing: a BMC that others have written starts a virtual machine, and an operator takes it from its enrollment to its
//! retirement by the CLI alone. Relay, bcd and the agent's image are as they are installed; what is deployed is a Debian with bcd
//! from its package.

use super::{
    image_server::ImageServer,
    slow::{key, sha256, ssh},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::Read as _,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use tests::{
    BMC_PASSWORD, BMC_USER, Finished, HOST, MetalHardware, MetalVm, RealMetal, RelayProcess, StartFrom,
    agent_image, disk_image, finish, free_port, program,
};

/// How long a workflow may take, and what a system does when it has started: all of it is emulated.
const LONGEST: Duration = Duration::from_secs(900);
const UUID: &str = "4c4c4544-0035-3410-8050-c6c04f314733";
const MAC: &str = "00:16:3e:00:00:17";
/// A tenant's user data.
const USER_DATA: &str = "#cloud-config\n# 7f3a-user-data\n";
/// What bcd says when it has joined, when it goes on as the node that it is, and when it is none any more.
const JOINED: &str = "joined node=";
const BEATS: &str = "the relay takes this node's heartbeats";
const RELEASED: &str = "(final, exit code 17)";

/// A relay, and a machine that it may know.
struct Site {
    relay: RelayProcess,
    machine: RealMetal,
    node: String,
    /// All that the CLI has printed.
    said: String,
    home: tempfile::TempDir,
}

impl Site {
    fn new(image_ca: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let (ca, image, port) = (home.path().join("image-ca.pem"), agent_image(), free_port());
        fs::write(&ca, image_ca).unwrap();
        let url = format!("https://{HOST}:{port}");
        let arguments = [
            ["--url", &url],
            ["--boot-listen", "127.0.0.1:0"],
            ["--metrics-listen", "127.0.0.1:0"],
            ["--agent-image", image.to_str().unwrap()],
            ["--image-ca-file", ca.to_str().unwrap()],
        ];
        let relay =
            RelayProcess::start_at(home.path(), &format!("127.0.0.1:{port}"), arguments.as_flattened());
        let machine = RealMetal::new(MetalHardware {
            uuid: UUID.to_owned(),
            serial: "SN-REAL-1".to_owned(),
            mac: MAC.to_owned(),
            disk_mib: 640,
            has_tpm: true,
        });
        let mut site = Self { relay, machine, node: String::new(), said: String::new(), home };
        site.ask(&["sites", "update", "default", "--bmc-networks", "127.0.0.1/32,10.0.2.2/32"]);
        site
    }

    /// `relay ARGUMENTS -o json` on the relay's own machine.
    fn run(&mut self, arguments: &[&str]) -> Finished {
        let mut relay = program("relay");
        relay.args(arguments).args(["-o", "json", "--data-dir"]).arg(self.relay.data_dir());
        let answer = finish(relay);
        self.said.push_str(&format!("{answer}\n"));
        answer
    }

    /// What it answers when all is well.
    fn ask(&mut self, arguments: &[&str]) -> Value {
        let answer = self.run(arguments);
        assert_eq!(answer.code, Some(0), "{arguments:?}: {answer}");
        serde_json::from_str(&answer.stdout).unwrap()
    }

    /// `relay metal VERB NODE MORE`.
    fn metal(&mut self, verb: &str, more: &[&str]) -> Value {
        let node = self.node.clone();
        self.ask(&[&["metal", verb, "--node", &node, "--pool", "default"], more].concat())
    }

    fn view(&mut self) -> Value {
        self.metal("get", &[])["node"].clone()
    }

    /// `relay metal enroll`, to its end.
    fn enroll(&mut self) -> Value {
        let begun = Instant::now();
        let (password, emulator) = (self.home.path().join("password"), self.machine.emulator());
        fs::write(&password, BMC_PASSWORD).unwrap();
        let (address, ca) = (format!("127.0.0.1:{}", emulator.port), emulator.certificate.clone());
        let answer = self.ask(&[
            "metal",
            "enroll",
            "--pool",
            "default",
            "--bmc.address",
            &address,
            "--bmc.username",
            BMC_USER,
            "--bmc.password-file",
            password.to_str().unwrap(),
            "--bmc.tls-ca-file",
            ca.to_str().unwrap(),
        ]);
        answer["node"]["nodeId"].as_str().unwrap().clone_into(&mut self.node);
        self.ended("enroll", begun, "enrolled")
    }

    /// A verb, and its workflow to its end.
    fn done(&mut self, verb: &str, more: &[&str], state: &str) -> Value {
        let begun = Instant::now();
        let answer = self.metal(verb, more);
        assert!(answer["taskId"].is_string(), "{verb}: {answer}");
        self.ended(verb, begun, state)
    }

    /// Waits for a workflow's end by `relay metal watch --until-done`.
    fn ended(&mut self, verb: &str, begun: Instant, state: &str) -> Value {
        let mut watch = program("relay");
        watch.args(["metal", "watch", "--until-done", "--interval", "1s", "--pool", "default", "--data-dir"]);
        watch.arg(self.relay.data_dir()).stdout(self.watched()).stderr(self.watched());
        let mut watch = watch.spawn().unwrap();
        let ended = loop {
            let ended = watch.try_wait().unwrap();
            if ended.is_some() || begun.elapsed() > LONGEST {
                break ended;
            }
            thread::sleep(Duration::from_millis(200));
        };
        watch.kill().unwrap();
        watch.wait().unwrap();
        let view = self.view();
        let is_well = ended.is_some_and(|status| status.success()) && view["state"] == state;
        assert!(is_well, "{verb}: {ended:?} {view:#}\n{}\n{}", self.console(), self.relay.log());
        eprintln!("{verb} to {state}: {:.1} s", begun.elapsed().as_secs_f64());
        view
    }

    /// Where what `watch` says is kept.
    fn watched(&self) -> File {
        let path = self.home.path().join("watched");
        OpenOptions::new().create(true).append(true).open(path).unwrap()
    }

    /// All that `watch` has said.
    fn told_by_watch(&self) -> String {
        fs::read_to_string(self.home.path().join("watched")).unwrap()
    }

    fn console(&self) -> String {
        self.machine.with(|vm| vm.console())
    }

    /// Waits until the console has shown this text that many times.
    fn wait_for(&self, text: &str, times: usize) {
        let begun = Instant::now();
        while self.console().matches(text).count() < times {
            assert!(begun.elapsed() < LONGEST, "{text:?} is not there {times} times:\n{}", self.console());
            thread::sleep(Duration::from_millis(500));
        }
        eprintln!("{text:?}: {:.1} s", begun.elapsed().as_secs_f64());
    }

    fn disk(&self) -> PathBuf {
        self.machine.with(|vm| vm.disk())
    }

    /// Whether all of its disk says nothing but this byte.
    fn is_filled(&self, with: u8) -> bool {
        let mut disk = File::open(self.disk()).unwrap();
        let mut some = vec![0; 1 << 20];
        loop {
            let read = disk.read(&mut some).unwrap();
            if read == 0 {
                return true;
            }
            if some[..read].iter().any(|byte| *byte != with) {
                return false;
            }
        }
    }

    /// Nothing that is secret is where others may read it.
    fn assert_secrecy(&self) {
        let (console, log) = (self.console(), self.relay.log());
        let watched = self.told_by_watch();
        let admin = self.relay.admin_token();
        for (place, text) in
            [("console", &console), ("log", &log), ("watch", &watched), ("answers", &self.said)]
        {
            for secret in [BMC_PASSWORD, "bcjt_", "7f3a-user-data", &admin] {
                assert!(!text.contains(secret), "{secret} is in the {place}:\n{text}");
            }
        }
    }
}

mod slow {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_machine_lives_from_its_enrollment_to_its_retirement_by_the_programs_alone() {
        let image = fs::read(disk_image()).unwrap();
        let hash = sha256(&image);
        let server = ImageServer::start(HOST, BTreeMap::from([("/disk.raw.zst".to_owned(), image)])).await;
        let mut site = Site::new(&server.ca);
        available(&mut site);
        deployed(&mut site, &format!("https://{HOST}:{}/disk.raw.zst", server.port), &hash);
        let kept = rescued(&mut site);
        released(&mut site, &kept);

        let view = site.done("retire", &[], "retired");
        assert_eq!(view["bmc"]["credentialsSet"], false, "{view:#}");
        let told = site.machine.told();
        assert_eq!(told["boot_image"]["Cd"], json!([null, true, false]), "{told:#}");
        assert_ne!(told["boot_device"], "Cd", "{told:#}");
        assert_eq!(site.machine.starts(), ["cd", "cd", "disk", "cd", "disk", "cd"]);
        let history = site.metal("history", &[]);
        let ends =
            history["transitions"].as_array().unwrap().iter().rev().map(|it| it["to"].as_str().unwrap());
        let ends: Vec<&str> = ends.filter(|state| state.ends_with('d') || *state == "available").collect();
        let lived = ["enrolled", "inspected", "available", "deployed", "rescued", "deployed", "available"];
        assert_eq!(ends, [&lived[..], &["retired"]].concat(), "{history:#}");
        site.assert_secrecy();
    }

    /// Enroll, inspect, commission.
    fn available(site: &mut Site) {
        let view = site.enroll();
        assert_eq!(view["identity"]["productUuid"], UUID, "{view:#}");
        assert_eq!(view["identity"]["macs"], json!([MAC]), "{view:#}");
        assert_eq!((&view["bmc"]["credentialsSet"], &view["powerState"]), (&json!(true), &json!("off")));
        site.done("inspect", &[], "inspected");
        assert!(site.is_filled(0x5a), "an inspection changes nothing");
        let view = site.done("commission", &[], "available");
        assert_eq!(view["hardware"]["disks"], json!(["vda, 640 MiB"]), "{view:#}");
        assert_eq!(view["identity"]["ekSha256"].as_str().map(str::len), Some(64), "{view:#}");
        assert!(view.get("certificate").is_none() && view["powerState"] == "off", "{view:#}");
        assert!(!site.machine.with(MetalVm::is_on));
    }

    /// Deploy: its disk's own bcd joins as the node.
    fn deployed(site: &mut Site, url: &str, hash: &str) {
        let user_data = site.home.path().join("user-data");
        fs::write(&user_data, USER_DATA).unwrap();
        let proved = site.view()["identity"]["ekSha256"].clone();
        let image = ["--image.url", url, "--image.sha256", hash, "--image.format", "raw.zst"];
        let more = ["--disk.serial", "DISK-1", "--user-data-file", user_data.to_str().unwrap()];
        let view = site.done("deploy", &[&image[..], &more].concat(), "deployed");
        assert_eq!((&view["powerState"], &view["identity"]["ekSha256"]), (&json!("on"), &proved), "{view:#}");
        assert!(view["certificate"]["serial"].is_string(), "{view:#}");
        assert_eq!(view["certificate"]["trust"], "platform", "{view:#}");
        let told = site.told_by_watch();
        let progress = told.lines().filter(|line| line.contains(r#""step":"writeImage""#));
        assert!(progress.filter(|line| line.contains(r#""progress":{"bytes":"#)).count() > 1, "{told}");
        let refused = site.run(&["metal", "retire", "--node", &site.node.clone(), "--pool", "default"]);
        assert_eq!(refused.code, Some(1), "{refused}");
        assert!(refused.stderr.contains("release"), "it says what may be done: {refused}");
        site.wait_for(&format!("{JOINED}{}", site.node), 1);
        let node = site.node.clone();
        let node = site.ask(&["nodes", "get", "--node", &node, "--pool", "default"])["node"].clone();
        assert_eq!(
            (&node["ekSha256"], &node["identity"]["productUuid"]),
            (&proved, &json!(UUID)),
            "{node:#}"
        );
    }

    /// Rescue, by SSH, and out of it again; answers a copy of the disk with the system on it.
    fn rescued(site: &mut Site) -> PathBuf {
        let (good, bad) = (key(site.home.path(), "good"), key(site.home.path(), "bad"));
        let before = site.view()["certificate"]["serial"].clone();
        site.done("rescue", &["--ssh-public-key", &good.1, "--ttl", "30m"], "rescued");
        let port = site.machine.with(|vm| vm.ssh_port());
        let look = "id -u && mkdir /tmp/system && mount -t ext4 -o ro /dev/vda2 /tmp/system && cd /tmp/system && \
                    cat etc/hostname var/lib/cloud/seed/nocloud/user-data";
        assert_eq!(ssh(port, &good.0, look), (Some(0), format!("0\nvm\n{}", USER_DATA.trim_end())));
        assert_ne!(ssh(port, &bad.0, "id").0, Some(0), "another key");
        let kept = site.home.path().join("kept.img");
        fs::copy(site.disk(), &kept).unwrap();

        let beats = site.console().matches(BEATS).count();
        let view = site.done("rescue", &["--exit"], "deployed");
        site.wait_for(BEATS, beats + 1);
        assert_eq!(site.console().matches(JOINED).count(), 1, "it is the same node, without another join");
        assert_eq!(view["certificate"]["serial"], before, "{view:#}");
        kept
    }

    /// Release: the disk is blank, and who puts the old one back has no node.
    fn released(site: &mut Site, kept: &Path) {
        let view = site.done("release", &[], "available");
        assert!(view.get("certificate").is_none() && view["powerState"] == "off", "{view:#}");
        assert!(!site.machine.with(MetalVm::is_on));
        assert!(site.is_filled(0), "the disk is not blank");
        site.machine.with(|vm| {
            fs::copy(kept, vm.disk()).unwrap();
            vm.power_on(StartFrom::Disk);
        });
        site.wait_for(RELEASED, 1);
        site.machine.with(MetalVm::power_off);
        let after = site.view();
        assert_eq!((&after["state"], after.get("certificate")), (&json!("available"), None), "{after:#}");
    }
}
