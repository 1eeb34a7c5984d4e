//! A BMC's passwords are known to the relay and the BMC alone: not in any answer, event, audit record, task, log, output of the command
//! line, list of processes, file, nor what a crash leaves; though BMCs echo them. A relay of its own, at its most talkative.

use super::{
    in_pool,
    metal::persona,
    secrecy::{Hidden, Places},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    env, fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use tests::{
    BMC_PASSWORD, BMC_USER, Database, FakeBmc, Finished, Ills, RelayProcess, on_both_databases, program,
    unique,
};

on_both_databases!(a_bmcs_password_is_known_to_the_relay_and_the_bmc_alone);

/// A password that IPMI can carry, and one that no BMC takes.
const IPMI_PASSWORD: &str = "ipmi-17-swordfish";
/// See [`IPMI_PASSWORD`].
const WRONG: &str = "wrong-17-mellon";

/// A relay whose `ipmitool` is a stub, what was looked through so far, and files with passwords in a folder of their own.
struct Scene {
    relay: RelayProcess,
    places: Places,
    home: tempfile::TempDir,
    private: tempfile::TempDir,
}

impl Scene {
    async fn new(database: &Database) -> Self {
        let home = tempfile::tempdir().unwrap();
        let tools = home.path().join("tools");
        fs::create_dir(&tools).unwrap();
        let path = env::join_paths(
            [tools.clone()].into_iter().chain(env::split_paths(&env::var_os("PATH").unwrap())),
        );
        let environment = [("PATH".to_owned(), path.unwrap().into_string().unwrap())];
        stub(&tools);
        let arguments = ["--log", "trace"];
        let relay = RelayProcess::start_in(home.path(), Some(database), &arguments, &environment);
        let site = json!({"siteId": "default", "bmcNetworks": ["127.0.0.1/32"]});
        relay.call("compute/sites/update", &site).await;
        Self { relay, places: Places::default(), home, private: tempfile::tempdir().unwrap() }
    }

    /// A command of `relay`, whose output is looked through.
    fn command(&mut self, words: &str) -> Finished {
        let mut command = program("relay");
        command.args(words.split(' ')).env("RELAY_DATA_DIR", self.relay.data_dir());
        let finished = tests::finish(command);
        self.places.note(format!("the output of relay {words}"), finished.to_string());
        finished
    }

    /// A file with this in it.
    fn file(&self, text: &str) -> PathBuf {
        let file = self.private.path().join(unique("password"));
        fs::write(&file, text).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    async fn get(&mut self, node: &str) -> Value {
        let got = self.relay.call("compute/metal/get", &in_pool(json!({"nodeId": node}))).await;
        self.places.note("the answer to get", got.to_string());
        got["node"].clone()
    }

    async fn until(&mut self, node: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let now = self.get(node).await;
            if is(&now) {
                return now;
            }
            assert!(started.elapsed() < Duration::from_secs(120), "not {what}: {now:#}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn verb(&mut self, verb: &str, node: &str, more: Value) {
        let mut input = in_pool(json!({"nodeId": node, "idempotencyKey": unique("key")}));
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.relay.call(&format!("compute/metal/{verb}"), &input).await;
        self.places.note(format!("the answer to {verb}"), answer.to_string());
    }
}

/// In the place of `ipmitool`: notes how it was run, who may read what it was handed, and answers that the machine is off.
fn stub(folder: &Path) {
    let text = format!(
        "#!/bin/sh\nset -e\ncd {}\ntest \"$IPMI_PASSWORD\" = {IPMI_PASSWORD} && echo right >>handed\n\
         echo $$ >pid\ntr '\\0' ' ' </proc/$$/cmdline >>arguments\nsleep 2\necho Chassis Power is off\n",
        folder.display()
    );
    // The stub knows the password, and is not looked through.
    let program = folder.join("ipmitool");
    fs::write(&program, text).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o700)).unwrap();
}

/// The arguments of every process of this machine.
fn processes() -> String {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let arguments = all.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    arguments.map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " ") + "\n").collect()
}

async fn a_bmcs_password_is_known_to_the_relay_and_the_bmc_alone(database: Database) {
    let mut scene = Scene::new(&database).await;
    let mut drawn = Vec::new();
    // One is asked by Basic, one by sessions.
    for maker in ["supermicro", "nvidia"] {
        drawn.extend(life(&mut scene, &FakeBmc::start(persona(maker))).await);
    }
    ipmi(&mut scene).await;
    let Scene { relay, mut places, home, .. } = scene;
    for (method, input) in [
        ("compute/metal/list", in_pool(json!({}))),
        ("compute/events/list", json!({"tenantId": "provider"})),
        ("iam/audit/list", json!({"tenantId": "provider"})),
        ("admin/audit/list", json!({})),
        ("admin/tasks/list", json!({})),
    ] {
        let listed = relay.call(method, &input).await.to_string();
        places.note(format!("the answer to {method}"), listed);
    }
    // What a crash leaves.
    places.arguments_of("the relay's arguments", relay.id());
    let limits = fs::read_to_string(format!("/proc/{}/limits", relay.id())).unwrap();
    let cores = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(cores.split_whitespace().nth(4), Some("0"), "{cores}");
    kill(Pid::from_raw(relay.id().try_into().unwrap()), Signal::SIGABRT).unwrap();
    let log = relay.log();
    relay.kill9();
    assert!(
        log.contains("TRACE") && log.contains("a BMC did not do its step"),
        "the log is not the talkative one"
    );
    places.note("the tables", database.dump().await);
    fs::remove_file(home.path().join("tools/ipmitool")).unwrap();
    places.note_files(home.path());
    database.folder().into_iter().for_each(|folder| places.note_files(folder));

    let basic = STANDARD.encode(format!("{BMC_USER}:{BMC_PASSWORD}"));
    let mut all = vec![("the BMC's password", BMC_PASSWORD.to_owned()), ("the same as a header", basic)];
    all.extend([("another password", WRONG.to_owned()), ("that of IPMI", IPMI_PASSWORD.to_owned())]);
    all.extend(drawn.iter().map(|drawn| ("one that was drawn", drawn.clone())));
    assert_eq!(drawn.len(), 4);
    for (what, secret) in all {
        let hidden = Hidden { what, secret, allowed: &[] };
        assert_eq!(places.holders(&hidden), [""; 0], "{what}");
    }
    // The search itself finds what is there.
    let serial =
        Hidden { what: "something else", secret: persona("supermicro").serial.to_owned(), allowed: &[] };
    assert!(!places.holders(&serial).is_empty());
}

/// Enrolled by the command line, switched, refused, given other passwords and drawn ones; answers the latter.
async fn life(scene: &mut Scene, bmc: &FakeBmc) -> Vec<String> {
    let echoes = || Ills { echoes: true, ..Ills::default() };
    bmc.suffer(echoes());
    let file = scene.file(BMC_PASSWORD);
    let words = format!(
        "metal enroll --pool default --bmc.address {} --bmc.username {BMC_USER} --bmc.password-file {} --bmc.tls-pin-sha256 {} -o json",
        bmc.address(),
        file.display(),
        bmc.pin()
    );
    let enrolled = scene.command(&words);
    let enrolled: Value = serde_json::from_str(&enrolled.stdout).unwrap_or_else(|_| panic!("{enrolled}"));
    let node = enrolled["node"]["nodeId"].as_str().unwrap().to_owned();
    scene.until(&node, "enrolled", |node| node["state"] == "enrolled").await;
    scene.verb("inspect", &node, json!({})).await;
    scene.until(&node, "inspected", |node| node["state"] == "inspected").await;

    // It says everything that it can to a request that it refuses.
    bmc.suffer(Ills { lies_about_reset: true, ..echoes() });
    scene.verb("power", &node, json!({"target": "on"})).await;
    scene.until(&node, "on", |node| node["powerState"] == "on" && node.get("step").is_none()).await;
    bmc.suffer(echoes());

    let mut drawn = Vec::new();
    for rotation in ["--rotate", "--rotate=true"] {
        let before = bmc.password();
        let rotated = scene.command(&format!("metal set-credentials {node} --pool default {rotation}"));
        assert_eq!(rotated.code, Some(0), "{rotated}");
        scene.until(&node, "at rest", |node| node.get("step").is_none() && bmc.password() != before).await;
        let at_rest = |node: &Value| node.get("step").is_none();
        scene.until(&node, "at rest", at_rest).await;
        drawn.push(bmc.password());
    }
    bmc.suffer(Ills { refuses_password: true, ..echoes() });
    scene.verb("setCredentials", &node, json!({"rotate": true})).await;
    scene
        .until(&node, "refused", |node| node["lastError"]["bmcStatus"] == 400 && node.get("step").is_none())
        .await;
    bmc.suffer(echoes());

    let file = scene.file(WRONG);
    let words = format!(
        "metal set-credentials {node} --pool default --bmc.username {BMC_USER} --bmc.password-file {}",
        file.display()
    );
    let dry = scene.command(&format!("{words} --dry-run"));
    assert_eq!(dry.code, Some(0), "{dry}");
    assert_eq!(scene.command(&words).code, Some(0));
    scene.verb("power", &node, json!({"target": "off"})).await;
    scene.until(&node, "unauthorized", |node| node["lastError"]["code"] == "unauthorized").await;
    for more in ["get", "history"] {
        let shown = scene.command(&format!("metal {more} {node} --pool default -o yaml"));
        assert_eq!(shown.code, Some(0), "{shown}");
    }
    let _ = scene.command("metal list --pool default -o wide");
    drawn
}

/// While IPMI is spoken: the password is in the environment of the program alone, which others can't read.
async fn ipmi(scene: &mut Scene) {
    let file = scene.file(IPMI_PASSWORD);
    let words = format!(
        "metal enroll --pool default --bmc.address 127.0.0.1:6230 --bmc.protocol ipmi --bmc.username {BMC_USER} \
         --bmc.password-file {} --bmc.tls-insecure",
        file.display()
    );
    assert_eq!(scene.command(&words).code, Some(0));
    let tools = scene.home.path().join("tools");
    let started = Instant::now();
    let environment = loop {
        let pid = fs::read_to_string(tools.join("pid")).unwrap_or_default();
        match fs::metadata(format!("/proc/{}/environ", pid.trim())) {
            Ok(environment) if !pid.trim().is_empty() => break environment,
            _ => assert!(started.elapsed() < Duration::from_secs(60), "ipmitool was not run"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(environment.mode() & 0o777, 0o400, "its user alone reads what it was handed");
    assert_eq!(environment.uid(), fs::metadata(scene.relay.data_dir()).unwrap().uid());
    let list = processes();
    assert!(list.contains("lanplus"), "{list}");
    scene.places.note("the list of processes", list);
    let handed = fs::read_to_string(tools.join("handed")).unwrap();
    assert!(handed.contains("right"), "it was handed over all the same");
}
