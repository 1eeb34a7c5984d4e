//! Machines that boot with bcd from its package, as the fleet's own do: the token in SMBIOS, the key in the TPM.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a story that stumbles fails")]

use serde_json::Value;
use tests::{HOST, RelayProcess, finish, program};

/// A relay that machines reach, and what an operator asks it.
struct Site {
    relay: Option<RelayProcess>,
    _home: tempfile::TempDir,
}

impl Site {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let relay = RelayProcess::start(home.path(), None, &["--url", &format!("https://{HOST}")]);
        Self { relay: Some(relay), _home: home }
    }

    fn relay(&self) -> &RelayProcess {
        self.relay.as_ref().unwrap()
    }

    /// `relay ARGUMENTS --tenant provider --pool default -o json` on the relay's own machine.
    fn ask(&self, arguments: &str) -> Value {
        let mut relay = program("relay");
        relay.args(arguments.split_whitespace()).args(["--pool", "default", "-o", "json"]);
        relay.arg("--data-dir").arg(self.relay().data_dir());
        let answer = finish(relay);
        assert_eq!(answer.code, Some(0), "{arguments}: {answer}");
        serde_json::from_str(&answer.stdout).unwrap()
    }

    fn token(&self, uses: u8) -> String {
        let minted = self.ask(&format!("join-tokens create --ttl 1h --max-uses {uses}"));
        minted["token"].as_str().unwrap().to_owned()
    }

    fn nodes(&self) -> Vec<Value> {
        self.ask("nodes list")["nodes"].as_array().unwrap().clone()
    }
}

mod slow {
    use super::*;
    use std::{
        thread,
        time::{Duration, Instant},
    };
    use tests::{Hardware, Vm};

    const JOINED: &str = "joined node=";
    /// What `tests/vm/sandbox` tries.
    const PROBES: usize = 24;
    const BEATS: &str = "the relay takes this node's heartbeats";

    /// Waits until that is so.
    fn until<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            assert!(started.elapsed() < Duration::from_secs(600), "{what} did not come");
            thread::sleep(Duration::from_millis(500));
        }
    }

    #[test]
    fn a_machine_boots_joins_by_its_tpm_and_stays_the_same_node() {
        let mut site = Site::new();
        let hardware = Hardware { kernel: "test.sandbox".to_owned(), ..Hardware::new(1) };
        let mut vm = Vm::start(hardware.clone(), site.relay(), &site.token(1));
        vm.wait_for(JOINED, 1);
        vm.wait_for("sandbox bcd: done", 1);
        assert_sandbox(&vm.console(), "bcd", &["SMBIOS", "the TPM", "a GPU"]);
        let nodes = site.nodes();
        assert_eq!(nodes.len(), 1);
        let (identity, joined) = (&nodes[0]["identity"], &nodes[0]["nodeId"]);
        assert_eq!(identity["productUuid"], hardware.uuid.as_str());
        assert_eq!(identity["serial"], hardware.serial.as_str());
        assert_eq!(identity["macs"][0], "52:54:00:12:34:01");
        assert_eq!(nodes[0]["ekSha256"].as_str().map(str::len), Some(64), "{}", nodes[0]);
        vm.reboot();
        vm.wait_for(BEATS, 1);
        assert_eq!(vm.console().matches(JOINED).count(), 1, "{}", vm.console());
        let again = site.nodes();
        assert_eq!((again.len(), &again[0]["nodeId"]), (1, joined));
        assert_eq!(again[0]["keySha256"], nodes[0]["keySha256"]);
        let before = again[0]["lastHeartbeatAt"].clone();
        site.relay = site.relay.take().map(RelayProcess::restart);
        until("a heartbeat at the relay that was restarted", || {
            (site.nodes()[0]["lastHeartbeatAt"] != before).then_some(())
        });
        assert_eq!(site.nodes()[0]["nodeId"], *joined);
    }

    /// What a process sees that runs as this service does: of what can be tried, only its own settings, its state, TCP, and
    /// these. Without the sandbox all of it is open.
    fn assert_sandbox(console: &str, service: &str, needs: &[&str]) {
        let tried = console.lines().filter_map(|line| line.split_once("sandbox none: ")?.1.split_once(": "));
        let tried: Vec<(&str, &str)> = tried.collect();
        assert_eq!(tried.len(), PROBES, "{tried:?}\n{console}");
        for (what, found) in tried {
            assert_eq!(found.trim(), "open", "{what}, without a sandbox\n{console}");
            let is_open = ["the settings", "the state", "TCP"].contains(&what) || needs.contains(&what);
            let expected = if is_open { "open" } else { "closed" };
            let line = format!("sandbox {service}: {what}: {expected}");
            assert!(console.contains(&line), "{what} is not {expected}\n{console}");
        }
    }

    #[test]
    fn an_upgrade_keeps_the_node_and_a_purge_forgets_it() {
        let site = Site::new();
        let hardware = Hardware {
            kernel: "test.lifecycle systemd.wants=test-workload.service".to_owned(),
            credential: "test.join-token",
            ..Hardware::new(1)
        };
        let vm = Vm::start(hardware, site.relay(), &site.token(1));
        vm.wait_for("lifecycle: done", 1);
        assert_sandbox(&vm.console(), "relay", &[]);
        for what in [
            "bcd-join joins by a token in /etc/credstore, and the workload comes after it",
            "bcd is no root",
            "bcd-join leaves the daemon's socket",
            "there is a newer version",
            "an upgrade keeps node and certificate",
            "an upgrade restarts what runs",
            "an upgrade leaves the workload alone",
            "bcd that hangs is started again, as the same node",
            "a state of root is its own again",
            "bcd starts without SMBIOS",
            "a removal ends it",
            "a removal keeps the state",
            "what is installed again is the same node",
            "a purge forgets it",
            "only root and the relay read its settings",
            "without a url the relay is left down",
            "relay serves in its sandbox",
            "its master key is that of /etc/credstore",
            "the relay's data is its user's",
            "the relay's user asks it",
            "its master key may be encrypted",
            "a drop-in gives it a port below 1024",
            "without user namespaces it is left down",
            "a relay that hangs is started again",
            "an upgrade restarts the relay",
            "an override of the settings' mode stays",
            "a purge forgets the relay, and leaves its volume",
        ] {
            assert!(vm.console().contains(&format!("lifecycle: {what}")), "{what}\n{}", vm.console());
        }
        assert_eq!(site.nodes().len(), 1);
    }

    #[test]
    fn a_clock_that_is_years_behind_is_named_and_overcome() {
        let site = Site::new();
        let now = relay::clock::Clock::system().now().seconds();
        // The emulated machine takes about this long to the moment when its clock is set.
        let kernel = format!("test.clock={}", now + 60);
        let hardware = Hardware { rtc: Some("1970-01-01T00:00:00"), kernel, ..Hardware::new(1) };
        let vm = Vm::start(hardware, site.relay(), &site.token(1));
        vm.wait_for("exit code 16", 1);
        assert!(site.nodes().is_empty());
        vm.wait_for(JOINED, 1);
        assert_eq!(site.nodes().len(), 1);
    }

    /// Whether bcd says by this line that it ends because its identity is another's.
    fn is_taken(line: &str) -> bool {
        line.contains("(identityTaken, ") && line.contains("(final, exit code 13)")
    }

    #[test]
    fn of_a_fleet_of_five_three_join_one_waits_and_one_is_refused() {
        let site = Site::new();
        let token = site.token(5);
        let mut fleet: Vec<Hardware> = (1..=5).map(Hardware::new).collect();
        // With a TPM it would be known by that.
        fleet[3].has_tpm = false;
        fleet[3].serial = "To be filled by O.E.M.".to_owned();
        fleet[3].uuid = "03000200-0400-0500-0006-000700080009".to_owned();
        fleet[4].uuid = fleet[0].uuid.clone();
        let fleet: Vec<Vm> =
            fleet.into_iter().map(|hardware| Vm::start(hardware, site.relay(), &token)).collect();
        let waiting = until("a join that waits", || {
            let waiting = site.ask("join-requests list")["joinRequests"].as_array()?.first()?.clone();
            Some(waiting)
        });
        assert_eq!(waiting["reasons"], serde_json::json!(["placeholderIdentifiers"]));
        let (one, other) = (&fleet[0], &fleet[4]);
        until("the refusal", || {
            [one, other].iter().any(|vm| vm.console().lines().any(is_taken)).then_some(())
        });
        until("three nodes", || (site.nodes().len() == 3).then_some(()));
        let joined = |vm: &Vm| vm.console().contains(JOINED);
        assert_ne!(joined(one), joined(other), "of two with one UUID one is a node");
        site.ask(&format!("join-requests approve {}", waiting["id"].as_str().unwrap()));
        fleet[3].wait_for(JOINED, 1);
        let mut serials: Vec<String> =
            site.nodes().iter().map(|node| node["identity"]["serial"].as_str().unwrap().to_owned()).collect();
        serials.sort();
        assert_eq!(serials.len(), 4, "{serials:?}");
        assert!(serials.iter().any(|serial| serial == "To be filled by O.E.M."), "{serials:?}");
    }
}
