//! The relay's process is killed in the middle of a storm of joins, again and again. What it had answered holds, a
//! retry is the same join, and the books are right.

use relay::random::Random;
use reqwest::Client;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use tests::{Answer, Database, Kind, Machine, RelayProcess, on_both_databases, try_post};
use tokio::task::JoinSet;

on_both_databases!(killed_at_any_moment_of_a_storm_of_joins, killed_when_the_last_use_is_fought_for);

/// A machine of the storm, and what it was told so far.
struct Joiner {
    machine: Machine,
    certificate: Option<String>,
}

/// A number below `bound`.
fn draw(bound: usize) -> usize {
    usize::from(u16::from_le_bytes(Random::system().bytes())) % bound.max(1)
}

/// All ask at once; the relay is killed as soon as a random number of them has its answer, and a random moment after.
/// Answers the relay, started again, and how many got no answer.
async fn round(relay: RelayProcess, token: &str, joiners: &mut Vec<Joiner>) -> (RelayProcess, usize) {
    let (client, url) = (relay.client(None), relay.url());
    let (all, answered) = (joiners.len(), Arc::new(AtomicUsize::new(0)));
    let mut asked = JoinSet::new();
    for joiner in joiners.drain(..) {
        let (client, url, token, answered) =
            (client.clone(), url.clone(), token.to_owned(), answered.clone());
        asked.spawn(async move {
            let answer = ask(&client, &url, &token, &joiner.machine).await;
            answered.fetch_add(1, Ordering::SeqCst);
            (joiner, answer)
        });
    }
    let (enough, moment) = (draw(all * 3 / 4), Duration::from_micros(draw(5_000) as u64));
    let started = Instant::now();
    while answered.load(Ordering::SeqCst) < enough && started.elapsed() < Duration::from_secs(60) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(moment).await;
    let relay = relay.restart();
    let mut lost = 0;
    while let Some(asked) = asked.join_next().await {
        let (mut joiner, answer) = asked.unwrap();
        match answer {
            Some(answer) => note(&mut joiner, &answer),
            None => lost += 1,
        }
        joiners.push(joiner);
    }
    (relay, lost)
}

async fn ask(client: &Client, url: &str, token: &str, machine: &Machine) -> Option<Answer> {
    try_post(client, url, Some(token), "node/join", &machine.join_input()).await.ok()
}

/// Whatever it was told before, it is told again.
fn note(joiner: &mut Joiner, answer: &Answer) {
    if answer.status != 200 {
        return;
    }
    let given = answer.body["certificate"].as_str().map(str::to_owned);
    assert!(given.is_some(), "{}", answer.body);
    assert!(joiner.certificate.is_none() || joiner.certificate == given, "two certificates for one join");
    joiner.certificate = given;
    joiner.machine.keep(answer);
}

async fn uses(relay: &RelayProcess) -> i64 {
    let input = json!({"tenantId": "provider", "poolId": "default", "includeInactive": true});
    let list = relay.call("compute/joinTokens/list", &input).await;
    list["joinTokens"].as_array().unwrap().iter().filter_map(|token| token["uses"].as_i64()).sum()
}

/// Uses, nodes, joins and certificates are the same number, in the relay's words and in its tables.
async fn books_are_right(relay: &RelayProcess, database: &Database, admitted: usize) {
    let admitted = i64::try_from(admitted).unwrap();
    assert_eq!(uses(relay).await, admitted);
    for count in [
        "SELECT COUNT(*) FROM nodes",
        "SELECT COUNT(*) FROM joins",
        "SELECT COUNT(*) FROM certificates",
        "SELECT COUNT(DISTINCT node_id) FROM certificates",
        "SELECT COUNT(DISTINCT key_sha256) FROM nodes",
        "SELECT COUNT(*) FROM identities WHERE kind = 'key'",
        "SELECT COUNT(*) FROM events WHERE type = 'security.node.joined'",
    ] {
        assert_eq!(database.number(count).await, admitted, "{count}");
    }
    if database.kind() == Kind::Sqlite {
        let broken = "SELECT COUNT(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'";
        assert_eq!(database.number(broken).await, 0);
    }
}

fn joiners(count: u32) -> Vec<Joiner> {
    (0..count).map(|number| Joiner { machine: Machine::new(number), certificate: None }).collect()
}

async fn killed_at_any_moment_of_a_storm_of_joins(database: Database) {
    const MACHINES: u32 = 48;
    let home = tempfile::tempdir().unwrap();
    let mut relay = RelayProcess::start(home.path(), Some(&database), &[]);
    // As many uses as machines: one that is spent twice is missing for somebody.
    let token = relay.join_token(MACHINES).await;
    let mut joiners = joiners(MACHINES);
    let mut lost = 0;
    for _ in 0..5 {
        let lost_now;
        (relay, lost_now) = round(relay, &token, &mut joiners).await;
        lost += lost_now;
    }
    assert!(lost > 0, "it was never killed in the middle");
    let client = relay.client(None);
    for _ in 0..2 {
        for joiner in &mut joiners {
            let answer = ask(&client, &relay.url(), &token, &joiner.machine).await.unwrap();
            assert_eq!(answer.status, 200, "{}", answer.body);
            note(joiner, &answer);
        }
    }
    let certificates: BTreeSet<_> = joiners.iter().map(|joiner| &joiner.certificate).collect();
    assert_eq!(certificates.len(), joiners.len());
    books_are_right(&relay, &database, joiners.len()).await;
    for Joiner { machine, .. } in &joiners {
        let key = machine.key_pem();
        let client = relay.client(machine.certificate().map(|chain| (chain, key.as_str())));
        let beat = try_post(&client, &relay.url(), None, "node/heartbeat", &json!({})).await.unwrap();
        assert_eq!(beat.status, 200, "{}", beat.body);
    }
}

async fn killed_when_the_last_use_is_fought_for(database: Database) {
    const USES: u32 = 8;
    let home = tempfile::tempdir().unwrap();
    let mut relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let token = relay.join_token(USES).await;
    let mut joiners = joiners(3 * USES);
    for _ in 0..4 {
        (relay, _) = round(relay, &token, &mut joiners).await;
    }
    let client = relay.client(None);
    let mut losers = 0;
    for joiner in &mut joiners {
        let answer = ask(&client, &relay.url(), &token, &joiner.machine).await.unwrap();
        note(joiner, &answer);
        if answer.status != 200 {
            assert_eq!(answer.body["reason"], "tokenExhausted", "{}", answer.body);
            assert_eq!(joiner.certificate, None, "it had been admitted");
            losers += 1;
        }
    }
    assert_eq!(losers, 2 * USES);
    books_are_right(&relay, &database, usize::try_from(USES).unwrap()).await;
    let exhausted = "SELECT COUNT(*) FROM events WHERE type = 'security.join-token.exhausted'";
    assert_eq!(database.number(exhausted).await, 1);
    let told: Value =
        relay.call("compute/nodes/list", &json!({"tenantId": "provider", "poolId": "default"})).await;
    assert_eq!(told["nodes"].as_array().map(Vec::len), usize::try_from(USES).ok());
}

/// Every connection to the database is cut, again and again, while machines join: some of them at their commit, where
/// nobody knows what became of it.
#[tokio::test]
async fn cut_off_from_its_database_in_a_storm_of_joins() {
    const CUT: &str = "SELECT COUNT(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity \
                       WHERE datname = current_database() AND pid <> pg_backend_pid()";
    const MACHINES: u32 = 60;
    let (home, database) = (tempfile::tempdir().unwrap(), Database::postgres());
    let relay = RelayProcess::start(home.path(), Some(&database), &[]);
    let token = relay.join_token(MACHINES).await;
    let (client, url) = (relay.client(None), relay.url());
    let mut joins = JoinSet::new();
    for mut joiner in joiners(MACHINES) {
        let (client, url, token) = (client.clone(), url.clone(), token.clone());
        joins.spawn(async move {
            for refusals in 0..200 {
                let answer = ask(&client, &url, &token, &joiner.machine).await.unwrap();
                note(&mut joiner, &answer);
                if answer.status == 200 {
                    return (joiner, refusals);
                }
                assert_eq!(answer.status, 503, "{}", answer.body);
                assert!(answer.body["retryAfterSeconds"].as_u64().is_some_and(|seconds| seconds > 0));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            panic!("no join in 200 tries");
        });
    }
    let mut cut = 0;
    for _ in 0..25 {
        cut += database.number(CUT).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let joined = joins.join_all().await;
    assert!(cut > 0 && joined.iter().any(|(_, refusals)| *refusals > 0), "{cut} cuts, and nobody noticed");
    for (mut joiner, _) in joined {
        let answer = ask(&client, &url, &token, &joiner.machine).await.unwrap();
        note(&mut joiner, &answer);
    }
    books_are_right(&relay, &database, usize::try_from(MACHINES).unwrap()).await;
}
