//! What was ended elsewhere, as the machine tells it: to `bcd join` and `bcd status`.

use serde_json::json;
use std::fs;
use tests::{Bcd, FakeMachine, RelayProcess, finish};

async fn mint(relay: &RelayProcess, key: &str) -> String {
    let input = json!({
        "tenantId": "provider", "poolId": "default", "ttlSeconds": 600, "maxUses": 1, "idempotencyKey": key,
    });
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
        let bcd = Bcd::new(&place, &machine, &relay, &mint(&relay, verb).await);
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
    let bcd = Bcd::new(&place, &machine, &relay, &mint(&relay, "down").await);
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
