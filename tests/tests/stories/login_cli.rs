//! `relay login` and what comes after it, by the built program: contexts, their credentials, and their end. What the relay
//! does is the same on every database, so this runs on its own default.

use serde_json::{Value, json};
use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};
use tests::{Browser, FakeProvider, Finished, RelayProcess, program};

/// A relay, its provider, and the home of somebody who works with it.
struct Desk {
    home: tempfile::TempDir,
    provider: FakeProvider,
    relay: RelayProcess,
    browser: Browser,
}

impl Desk {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = relay::clock::Clock::system();
        let provider = FakeProvider::start(&clock);
        let mut arguments = vec!["--metrics-listen=127.0.0.1:0".to_owned()];
        arguments.extend(
            provider
                .settings()
                .into_iter()
                .map(|(name, value)| format!("--{}={value}", name.replace('_', "-"))),
        );
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let relay = RelayProcess::start(home.path(), None, &arguments);
        let browser = Browser::trusting(&[&relay.ca_bundle(), &provider.ca()], &clock);
        // A browser that writes down where it is sent.
        let script = home.path().join("browser");
        fs::write(
            &script,
            format!(
                "#!/bin/sh\necho \"$1\" > {0}.new && mv {0}.new {0}\n",
                home.path().join("sent").display()
            ),
        )
        .unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        Self { home, provider, relay, browser }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command(&self, words: &str) -> Command {
        let mut command = program("relay");
        command.args(words.split(' ')).env("HOME", self.path("me")).env("BROWSER", self.path("browser"));
        command.env_remove("XDG_CONFIG_HOME");
        command
    }

    fn run(&self, words: &str) -> Finished {
        tests::finish(self.command(words))
    }

    /// Where the relay is, as flags.
    fn place(&self) -> String {
        format!("--relay {} --ca-file {}", self.relay.url(), self.relay.ca_bundle().display())
    }

    /// Logs in by the loopback.
    async fn log_in(&self, words: &str) -> Finished {
        let sent = self.path("sent");
        drop(fs::remove_file(&sent));
        let child = spawn(self.command(&format!("login {words}")));
        let address = wait_for(&sent).await;
        let page = self.browser.follow(&address, "http://127.0.0.1").await;
        let Some(back) = page.location else { panic!("{page:?}") };
        // A page of another site that guesses the port is not taken for the answer.
        let forged = back.split("?").next().unwrap().to_owned() + "?code=evil&state=evil";
        assert_eq!(self.browser.get(&forged).await.status, 404);
        let shown = self.browser.get(&back).await;
        assert_eq!(shown.status, 200, "{shown:?}");
        ended(child).await
    }

    /// The file of a context's credential.
    fn token_file(&self, context: &str) -> PathBuf {
        self.path("me/.config/relay/tokens").join(context)
    }
}

fn spawn(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

async fn ended(child: Child) -> Finished {
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await.unwrap().unwrap();
    Finished {
        code: output.status.code(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

async fn wait_for(file: &Path) -> String {
    let began = Instant::now();
    loop {
        match fs::read_to_string(file) {
            Ok(text) => return text.trim().to_owned(),
            Err(_) => assert!(began.elapsed() < Duration::from_secs(30), "no browser was opened"),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Behaviours 8, 9, 11, 12, 61, 92.
#[tokio::test]
async fn a_login_makes_a_context_and_a_logout_ends_it() {
    let desk = Desk::new();
    let done = desk.log_in(&desk.place()).await;
    assert_eq!(done.code, Some(0), "{done}");
    assert!(done.stderr.contains("as alice") && done.stderr.contains("hours from now"), "{done}");
    let file = desk.token_file("127.0.0.1");
    let token = fs::read_to_string(&file).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!done.to_string().contains(token.trim()), "only the file has it");
    assert!(!desk.relay.log().contains(token.trim()));
    let who = desk.run("self who-am-i -o json");
    assert_eq!(who.code, Some(0), "{who}");

    // Behaviour 12: another context; the first stays.
    desk.provider.set_user(json!({"sub": "bob"}));
    let other = desk.log_in(&format!("--context work {}", desk.place())).await;
    assert_eq!(other.code, Some(0), "{other}");
    let listed: Value = serde_json::from_str(&desk.run("context list -o json").stdout).unwrap();
    let names = listed["contexts"].as_array().unwrap().iter();
    let names: Vec<(&str, bool, &str)> = names
        .map(|c| (c["name"].as_str().unwrap(), c["active"].as_bool().unwrap(), c["tenant"].as_str().unwrap()))
        .collect();
    assert_eq!(names, [("127.0.0.1", false, "alice"), ("work", true, "bob")]);
    let of = |words: &str, template: &str| {
        let done = tests::finish({
            let mut command = desk.command(words);
            command.args(["--template", template]);
            command
        });
        assert_eq!(done.code, Some(0), "{words}: {done}");
        done.stdout
    };
    assert_eq!(of("tenants list", "{tenantId}={displayName}"), "bob=bob\n");
    assert_eq!(of("tenants list --context 127.0.0.1", "{tenantId}"), "alice\n");

    // Behaviours 8 and 9; --dry-run sends nothing.
    assert_eq!(desk.run("context set-project web").code, Some(0));
    let dry = |words: &str| {
        let done = desk.run(format!("pools create p --site s --dry-run -o json {words}").trim());
        assert_eq!(done.code, Some(0), "{done}");
        serde_json::from_str::<Value>(&done.stdout).unwrap()["body"].clone()
    };
    assert_eq!((&dry("")["projectId"], &dry("")["tenantId"]), (&json!("web"), &json!("bob")));
    assert_eq!(dry("--project other")["projectId"], "other");
    assert_eq!(dry("--tenant alice")["projectId"], Value::Null, "a project is its tenant's");
    assert_eq!(desk.run("pools get p").code, Some(4), "nothing was made");

    // Behaviour 61 by `logout`: what it revoked counts no more, and its sibling does.
    let token = fs::read_to_string(desk.token_file("work")).unwrap();
    let out = desk.run("logout");
    assert!(out.code == Some(0) && out.stdout.contains("tk_"), "{out}");
    assert!(!desk.token_file("work").exists());
    let after = desk.relay.call_as(token.trim(), "iam/self/whoAmI", &json!({})).await.unwrap();
    assert_eq!(after.status, 401);
    assert_eq!(desk.run("self who-am-i").code, Some(3), "nobody is logged in there");
    assert_eq!(desk.run("context use 127.0.0.1").code, Some(0));
    assert_eq!(desk.run("self who-am-i").code, Some(0));
}

/// Headless: the address is opened elsewhere, and the code is pasted.
#[tokio::test]
async fn a_code_is_pasted_where_there_is_no_browser() {
    let desk = Desk::new();
    let mut command = desk.command(&format!("login --no-browser {}", desk.place()));
    let log = desk.path("said");
    command.stderr(fs::File::create(&log).unwrap()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    let address = loop {
        let said = fs::read_to_string(&log).unwrap();
        if let Some(line) = said.lines().find(|line| line.trim().starts_with("https://")) {
            break line.trim().to_owned();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{said}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let page = desk.browser.follow(&address, "http://").await;
    let code = page.code().unwrap_or_else(|| panic!("{page:?}"));
    writeln!(child.stdin.take().unwrap(), "  {code} ").unwrap();
    let status = tokio::task::spawn_blocking(move || child.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0), "{}", fs::read_to_string(&log).unwrap());
    assert!(desk.token_file("127.0.0.1").exists() && !desk.path("sent").exists());
    assert_eq!(desk.run("self who-am-i").code, Some(0));
}

/// Behaviours 18, 83, 84, 85.
#[tokio::test]
async fn a_refused_login_leaves_no_context_and_an_admin_role_is_asked_for() {
    let desk = Desk::new();
    let help = desk.run("login --help");
    assert!(help.stdout.contains("--no-browser") && !help.stdout.contains("admin-role"), "{help}");
    desk.provider.set(tests::Lie::WrongNonce);
    let refused = desk.log_in(&desk.place()).await;
    assert!(refused.code == Some(3) && refused.stderr.contains("nonce"), "{refused}");
    assert!(!desk.path("me").exists(), "nothing is kept");
    desk.provider.set(tests::Lie::Nothing);
    let refused = desk.log_in(&format!("--admin-role EDITOR {}", desk.place())).await;
    assert!(refused.code == Some(1) && refused.stderr.contains("no admin role"), "{refused}");
    for role in ["VIEWER", "OWNER"] {
        if role == "OWNER" {
            let member = json!({"tenantId": "provider", "memberId": "alice"});
            desk.relay.call("iam/members/remove", &member).await;
        }
        let member = json!({"tenantId": "provider", "memberId": "alice", "role": role});
        desk.relay.call("admin/tenants/addMember", &member).await;
        let done = desk.log_in(&format!("--admin-role EDITOR {}", desk.place())).await;
        assert_eq!(done.code, Some(if role == "OWNER" { 0 } else { 1 }), "{role}: {done}");
    }
    assert_eq!(desk.run("admin users list").code, Some(0), "as admin");
}

#[test]
fn a_relay_without_a_provider_says_so_before_a_browser_is_opened() {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), None, &["--metrics-listen", "127.0.0.1:0"]);
    let mut command = program("relay");
    command.args(["login", "--relay", &relay.url(), "--ca-file"]).arg(relay.ca_bundle());
    command.env("HOME", home.path()).env("BROWSER", "/nonexistent");
    let refused = tests::finish(command);
    assert!(refused.code == Some(4) && refused.stderr.contains("oidc.issuer"), "{refused}");
}

/// Behaviours 96 and 97, by the program's own code with a clock that moves: a call on the way refreshes, and one that can't
/// be refreshed goes out all the same.
#[tokio::test]
async fn a_token_is_refreshed_on_the_way_from_three_quarters_of_its_lifetime() {
    let home = tempfile::tempdir().unwrap();
    // Certificates are judged by the time of the day.
    let clock = relay::clock::Clock::manual(relay::clock::Clock::system().now());
    let database = tests::Database::sqlite();
    let relay = tests::LocalRelay::start(home.path(), "relay", &database, &clock).await;
    let rights = json!([{"subject": "self", "actions": ["iam:tokens:refresh"]}]);
    let made =
        json!({"description": "d", "expiresInSeconds": 3600, "permissions": rights, "idempotencyKey": "a"});
    let answer = relay.call_as(&relay.admin(), "iam/tokens/create", &made).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    let folder = home.path().join(".config/relay");
    fs::create_dir_all(folder.join("tokens")).unwrap();
    let file = folder.join("tokens/a");
    fs::write(&file, answer.body["secret"].as_str().unwrap()).unwrap();
    let config = format!(
        "active = \"a\"\n[contexts.a]\nrelay = \"{}\"\nca_file = \"{}\"\n",
        relay.url(),
        relay.ca_bundle().display()
    );
    fs::write(folder.join("config.toml"), config).unwrap();
    let run = |words: &'static str| {
        let (home, clock) = (home.path().display().to_string(), clock.clone());
        tokio::task::spawn_blocking(move || {
            let registry = relay::api::registry().unwrap();
            let methods: Vec<_> = registry.methods().copied().collect();
            let env = |name: &str| (name == "HOME").then(|| home.clone());
            let random = relay::random::Random::system();
            let world = relay::cli::World { env: &env, names: &Vec::new, clock: &clock, random: &random };
            let words = words.replace("HOME", &home);
            match relay::cli::start(words.split(' ').map(Into::into), &methods, &world) {
                relay::cli::Start::Ended(exit) => exit,
                relay::cli::Start::Serve(_) => panic!("it serves"),
            }
        })
    };
    let token = || fs::read_to_string(&file).unwrap().trim().to_owned();
    let (call, ok) = ("relay self who-am-i", relay::cli::Exit::Ok);
    let first = token();
    clock.advance(Duration::from_secs(2690));
    assert_eq!(run(call).await.unwrap(), ok);
    assert_eq!(token(), first, "not before three quarters");
    clock.advance(Duration::from_secs(20));
    // One that could never be refreshed is told of while there is time, at each run.
    let made = json!({"description": "d", "permissions": [{"subject": "self", "actions": ["iam:tokens:read"]}], "idempotencyKey": "b"});
    let bare = relay.call_as(&relay.admin(), "iam/tokens/create", &made).await;
    fs::write(folder.join("tokens/b"), bare.body["secret"].as_str().unwrap()).unwrap();
    let lacks = "relay token refresh-secret --file HOME/.config/relay/tokens/b";
    assert_eq!(run(lacks).await.unwrap(), relay::cli::Exit::Refused);
    // By hand, in the file that it is in.
    assert_eq!(run("relay token refresh-secret --file HOME/.config/relay/tokens/a").await.unwrap(), ok);
    let second = token();
    assert_ne!(second, first);
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(run(call).await.unwrap(), ok);
    assert_eq!(relay.call_as(&first, "iam/self/whoAmI", &json!({})).await.status, 401, "the old one ended");
    clock.advance(Duration::from_secs(2800));
    assert_eq!(run(call).await.unwrap(), ok);
    let third = token();
    assert_ne!(third, second, "on the way");
    // A refresh that fails does not fail the call: here there is no place to write.
    clock.advance(Duration::from_secs(2800));
    fs::create_dir(folder.join("tokens/.a.new")).unwrap();
    assert_eq!(run(call).await.unwrap(), ok);
    assert_eq!(token(), third);
}

/// Where a person has a telephone and this machine no browser.
#[tokio::test]
async fn a_login_is_confirmed_on_another_device() {
    let desk = Desk::new();
    let child = spawn(desk.command(&format!("login --device {}", desk.place())));
    let began = Instant::now();
    while desk.provider.device_codes().is_empty() {
        assert!(began.elapsed() < Duration::from_secs(30), "no login began");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It waits until the person has decided.
    tokio::time::sleep(Duration::from_secs(3)).await;
    desk.provider.confirm_devices(true);
    let done = ended(child).await;
    assert_eq!(done.code, Some(0), "{done}");
    let page = format!("{}/enter", desk.provider.issuer());
    for told in [page.as_str(), "USER-1", "as alice"] {
        assert!(done.stderr.contains(told), "{told}: {done}");
    }
    assert!(!done.to_string().contains("device-code-1"), "{done}");
    assert_eq!(desk.run("self who-am-i").code, Some(0));
    let log = desk.relay.log();
    assert!(!log.contains("device-code-1") && !log.contains("USER-1"), "{log}");

    let child = spawn(desk.command(&format!("login --device {}", desk.place())));
    while desk.provider.device_codes().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    desk.provider.confirm_devices(false);
    let refused = ended(child).await;
    assert_eq!(refused.code, Some(3), "{refused}");
    assert!(refused.stderr.contains("access_denied"), "{refused}");
    for odd in ["--device --no-browser", "--device --admin-role EDITOR"] {
        assert_eq!(desk.run(&format!("login {odd} {}", desk.place())).code, Some(2), "{odd}");
    }
}
