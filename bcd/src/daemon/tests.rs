//! The loop with its signals, the service manager and the status, against a relay in this process. Each test is a
//! process of its own, so that a signal reaches only itself.

use super::*;
use crate::testing::{Machine, Relay};
use nix::sys::signal::{Signal as Number, raise};
use sd_notify::NotifyState;
use shared::problem::{Problem, Reason};
use std::os::unix::net::UnixDatagram;

struct Manager {
    socket: UnixDatagram,
    path: std::path::PathBuf,
}

impl Manager {
    fn new(machine: &Machine) -> Self {
        let path = machine.folder.path().join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self { socket, path }
    }
    fn notifier(&self) -> Notifier {
        let (socket, path) = (UnixDatagram::unbound().unwrap(), self.path.clone());
        let tell = move |state: &[NotifyState<'_>]| {
            let text: Vec<String> = state.iter().map(ToString::to_string).collect();
            socket.send_to(text.join("\n").as_bytes(), &path).map(drop)
        };
        Notifier::told_by(tell, Some(Duration::from_millis(200)))
    }
    /// Everything that it was told since it was last asked.
    fn heard(&self) -> Vec<String> {
        let mut all = Vec::new();
        let mut buffer = [0; 1024];
        while let Ok(length) = self.socket.recv(&mut buffer) {
            all.push(String::from_utf8_lossy(&buffer[..length]).into_owned());
        }
        all
    }
}

/// The node on the real clock.
fn node(machine: &Machine, relay: &Relay) -> Node {
    Node::open(machine.settings(relay), machine.sources(), Arc::new(crate::host::System)).unwrap()
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..200 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("{what} did not come");
}

fn beats(relay: &Relay) -> usize {
    relay.calls().iter().filter(|call| call.path.ends_with("heartbeat")).count()
}

#[tokio::test]
async fn it_comes_up_reloads_and_stops_as_the_service_manager_says() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let manager = Manager::new(&machine);
    let settings = machine.settings(&relay);
    let socket = settings.socket.clone().unwrap();
    let reload = || Ok((machine.settings(&relay), machine.sources()));
    let script = async {
        until("the first heartbeat", || beats(&relay) == 1).await;
        let status = crate::status::ask(&socket).await.unwrap();
        assert_eq!((status.state.as_str(), status.skew_seconds), ("enrolled", Some(0)));
        tokio::time::sleep(Duration::from_millis(250)).await;
        let heard = manager.heard();
        let at = |word: &str| heard.iter().position(|text| text.starts_with(word));
        assert!(at("READY=1").unwrap() < at("STATUS=enrolled").unwrap(), "{heard:?}");
        assert!(heard.iter().filter(|text| *text == "WATCHDOG=1").count() >= 2, "{heard:?}");
        raise(Number::SIGHUP).unwrap();
        // A reload tries at once what is waited for.
        until("the second heartbeat", || beats(&relay) == 2).await;
        let heard = manager.heard();
        let at = |word: &str| heard.iter().position(|text| text.starts_with(word));
        assert!(at("RELOADING=1\nMONOTONIC_USEC=").unwrap() < at("READY=1").unwrap(), "{heard:?}");
        raise(Number::SIGTERM).unwrap();
        std::future::pending::<()>().await;
    };
    let exit = tokio::select! {
        exit = run(node(&machine, &relay), manager.notifier(), &reload) => exit,
        () = script => unreachable!(),
    };
    assert_eq!(exit, Exit::Done);
    assert!(manager.heard().contains(&"STOPPING=1".to_owned()));
    assert!(!socket.exists());
    // What it was is on disk; the next one only says that it lives.
    assert_eq!(node(&machine, &relay).stored.state.name(), "enrolled");
    assert_eq!(relay.issued(), 1);
}

#[tokio::test]
async fn a_ban_ends_the_daemon_with_its_code_and_again_after_a_restart() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let reload = || Ok((machine.settings(&relay), machine.sources()));
    for _ in 0..2 {
        relay.refuse(Problem::refused(Reason::NodeBanned, "by an admin"));
        let exit = run(node(&machine, &relay), Notifier::of_environment(), &reload).await;
        assert_eq!(exit, Exit::Banned);
    }
    assert_eq!(relay.calls().len(), 2, "each asks once");
}

#[tokio::test]
async fn one_that_waits_stays_up_says_why_and_ends_when_it_is_told_to() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut node = node(&machine, &relay);
    node.settings.when_final = crate::config::WhenFinal::Wait;
    let socket = node.settings.socket.clone().unwrap();
    let reload = || Ok((machine.settings(&relay), machine.sources()));
    relay.refuse(Problem::refused(Reason::RequestDenied, "by an admin"));
    let script = async {
        until("the refusal", || relay.calls().len() == 1).await;
        until("the state", || machine.folder.path().join("state/state.json").exists()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let status = crate::status::ask(&socket).await.unwrap();
        assert!(status.state == "final" && status.reason.unwrap().contains("by an admin"));
        assert!(!crate::status::is_ready(&socket).await.unwrap());
        raise(Number::SIGTERM).unwrap();
        std::future::pending::<()>().await;
    };
    let exit = tokio::select! {
        exit = run(node, Notifier::of_environment(), &reload) => exit,
        () = script => unreachable!(),
    };
    assert_eq!((exit, relay.calls().len()), (Exit::Done, 1));
}

#[tokio::test]
async fn settings_that_are_wrong_do_not_replace_good_ones() {
    let (relay, machine) = (Relay::start().await, Machine::new());
    let mut life = Life::new(node(&machine, &relay));
    life.act(Action::Join).await;
    let mut without_trust = machine.settings(&relay);
    without_trust.trust = None;
    life.reload(Ok((without_trust, machine.sources())));
    life.reload(Err(Failure::new(Exit::Usage, "no TOML")));
    life.act(Action::Heartbeat).await;
    assert!(life.is_ready());
}
