//! What was ended elsewhere, as the machine tells it: to `bcd join` and `bcd status`, and in a pod that nobody but its
//! probes looks at.

use serde_json::json;
use std::fs;
use tests::{Bcd, FakeMachine, Finished, RelayProcess, finish};

async fn mint(relay: &RelayProcess, key: &str, serial: Option<&str>) -> String {
    let mut input = json!({
        "tenantId": "provider", "poolId": "default", "ttlSeconds": 600, "maxUses": 1, "idempotencyKey": key,
    });
    if let Some(serial) = serial {
        input["expect"] = json!({"serial": serial});
    }
    relay.call("compute/joinTokens/create", &input).await["token"].as_str().unwrap().to_owned()
}

fn status(bcd: &Bcd) -> String {
    finish(bcd.command("status")).stdout
}

#[tokio::test]
async fn a_machine_that_has_joined_says_what_became_of_that() {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), None, &[]);
    for (number, verb, code) in [(1, "ban", 15), (2, "release", 17)] {
        let place = home.path().join(verb);
        let machine = FakeMachine::new(&place.join("machine"), number);
        let bcd = Bcd::new(&place, &machine, &relay, &mint(&relay, verb, None).await);
        let joined = bcd.join();
        assert_eq!(joined.code, Some(0), "{joined}");
        let again = bcd.join();
        assert_eq!((again.code, &again.stdout), (Some(0), &joined.stdout), "{again}");
        let decided = relay.command(&["nodes", verb, joined.stdout.trim(), "--pool", "default"]);
        assert_eq!(decided.code, Some(0), "{decided}");
        let over = bcd.join();
        assert_eq!(over.code, Some(code), "{over}");
        assert!(status(&bcd).contains("final") && status(&bcd).contains("relay refuses"), "{}", status(&bcd));
    }

    let place = home.path().join("down");
    let machine = FakeMachine::new(&place.join("machine"), 3);
    let bcd = Bcd::new(&place, &machine, &relay, &mint(&relay, "down", None).await);
    assert_eq!(bcd.join().code, Some(0));
    assert_eq!(relay.terminate(), Some(0));
    let unasked = bcd.join();
    assert_eq!(unasked.code, Some(0), "{unasked}");
    assert!(unasked.stdout.starts_with("nd_") && unasked.stderr.contains("could not be asked"), "{unasked}");
    fs::remove_file(bcd.state_dir().join("node.key")).unwrap();
    let keyless = bcd.join();
    assert!(keyless.code == Some(1) && keyless.stderr.contains("is gone"), "{keyless}");
    assert!(status(&bcd).contains("is gone") && !bcd.state_dir().join("node.key").exists());
}

#[tokio::test]
async fn a_pod_that_is_refused_says_why_to_its_probe_and_a_new_secret_heals_it() {
    let home = tempfile::tempdir().unwrap();
    let relay = RelayProcess::start(home.path(), None, &[]);
    let machine = FakeMachine::new(&home.path().join("machine"), 7);
    let wrong = mint(&relay, "wrong", Some("ANOTHER-MACHINE")).await;
    let bcd = Bcd::new(&home.path().join("bcd"), &machine, &relay, &wrong).in_a_cluster();
    let probe = || -> Finished {
        let mut status = bcd.command("status");
        status.arg("--ready");
        finish(status)
    };
    assert_eq!(probe().code, Some(75), "nobody runs");
    let mut running = bcd.run();
    let refused = running
        .wait_for("the refusal", || Some(probe()).filter(|probe| probe.stdout.contains("ANOTHER-MACHINE")));
    assert_eq!(refused.code, Some(75), "{refused}");
    assert!(refused.stdout.contains("final") && refused.stdout.contains("with a token for"), "{refused}");
    assert_eq!(refused.stdout.trim().lines().count(), 1, "an event is a line: {refused}");
    bcd.give_token(&mint(&relay, "right", None).await);
    running.wait_for("the join", || (probe().code == Some(0)).then_some(()));
    assert_eq!(running.log().matches("(final, exit code 13)").count(), 1, "said once: {}", running.log());
    assert_eq!(running.terminate(), Some(0));
}
