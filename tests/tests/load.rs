//! The load tool works: a few dozen machines on each database. How fast they are is for no test to judge.
#![expect(clippy::indexing_slicing, reason = "a report is indexed, where what is absent is null")]
#![expect(clippy::unwrap_used, reason = "a load that does not report fails")]

use serde_json::Value;
use tests::program;

const MACHINES: u64 = 24;
const HEARTBEATS: u64 = 200;
const NODES: u64 = 30;

fn a_small_load(database: &str, more: &[&str]) {
    let numbers = [MACHINES, HEARTBEATS, NODES].map(|number| number.to_string());
    let output = program("load")
        .args(["--json", "--database", database, "--connections", "8", "--kept", "4"])
        .args(more)
        .args(["--machines", &numbers[0], "--heartbeats", &numbers[1], "--nodes", &numbers[2]])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let phases = report["phases"].as_array().unwrap();
    let counts: Vec<_> =
        phases.iter().map(|phase| (phase["name"].as_str(), phase["operations"].as_u64())).collect();
    let expected = [("joins", MACHINES), ("renewals", MACHINES), ("heartbeats", HEARTBEATS)];
    assert_eq!(counts, expected.map(|(name, count)| (Some(name), Some(count))), "{said}");
    for phase in phases {
        for figure in ["perSecond", "p50Millis", "p99Millis"] {
            assert!(phase[figure].as_f64().unwrap() > 0.0, "{figure} of {phase}");
        }
        assert!(phase["p50Millis"].as_f64() <= phase["p99Millis"].as_f64(), "{phase}");
    }
    assert!(phases[0]["ofCeiling"].as_f64().unwrap() > 0.0);
    let after: Vec<_> =
        report["memory"].as_array().unwrap().iter().map(|at| at["after"].as_str().unwrap()).collect();
    assert_eq!(after, ["an empty store", "a start on the filled store", "joins", "renewals", "heartbeats"]);
    assert!(report["memory"].as_array().unwrap().iter().all(|at| at["anonymousBytes"].as_u64() > Some(0)));
}

#[test]
fn a_small_load_on_sqlite() {
    a_small_load("sqlite", &[]);
}

#[test]
fn a_small_load_on_postgres() {
    a_small_load("postgres", &[]);
}

#[test]
fn a_small_load_of_machines_with_tpms() {
    a_small_load("sqlite", &["--tpm"]);
}

#[test]
fn a_plan_that_cannot_be_is_refused() {
    let output = program("load").args(["--machines", "0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--machines"));
}
