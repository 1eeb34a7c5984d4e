//! `relay token refresh-secret --secret`: an API token in a Secret of a cluster, by the program's own code with a clock that
//! moves. What the relay does is the same on every database, so this runs on its own default.

use relay::cli::Exit;
use serde_json::json;
use std::time::Duration;
use tests::{Cluster, Database, FakeCluster, LocalRelay};

/// A pod whose Secret holds a token of an hour.
struct Pod {
    home: tempfile::TempDir,
    clock: relay::clock::Clock,
    relay: LocalRelay,
    cluster: FakeCluster,
    _database: Database,
}

impl Pod {
    async fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        // Certificates are judged by the time of the day.
        let clock = relay::clock::Clock::manual(relay::clock::Clock::system().now());
        let database = Database::sqlite();
        let relay = LocalRelay::start(home.path(), "relay", &database, &clock).await;
        let rights = json!([{"subject": "self", "actions": ["iam:tokens:refresh"]}]);
        let made = json!({
            "description": "d", "expiresInSeconds": 3600, "permissions": rights, "idempotencyKey": "a",
        });
        let answer = relay.call("iam/tokens/create", &made).await;
        let cluster = FakeCluster::start();
        cluster.put("token", answer["secret"].as_str().unwrap());
        cluster.put("note", "stays");
        Self { home, clock, relay, cluster, _database: database }
    }

    async fn run(&self, words: &str) -> Exit {
        let mut words: Vec<String> =
            format!("relay token refresh-secret {words}").split(' ').map(str::to_owned).collect();
        let (ca, account) = (self.relay.ca_bundle(), self.cluster.account());
        let more = [
            format!("--relay={}", self.relay.url()),
            format!("--ca-file={}", ca.display()),
            format!("--service-account-dir={}", account.display()),
        ];
        words.extend(more);
        let mut environment = self.cluster.environment();
        environment.push(("HOME".to_owned(), self.home.path().display().to_string()));
        let clock = self.clock.clone();
        let ran = tokio::task::spawn_blocking(move || {
            let registry = relay::api::registry().unwrap();
            let methods: Vec<_> = registry.methods().copied().collect();
            let env = |name: &str| Some(environment.iter().find(|(known, _)| known == name)?.1.clone());
            let random = relay::random::Random::system();
            let world = relay::cli::World { env: &env, names: &Vec::new, clock: &clock, random: &random };
            match relay::cli::start(words.into_iter().map(Into::into), &methods, &world) {
                relay::cli::Start::Ended(exit) => exit,
                relay::cli::Start::Serve(_) => panic!("it serves"),
            }
        });
        ran.await.unwrap()
    }

    fn token(&self) -> String {
        self.cluster.text("token").unwrap()
    }

    /// What the relay answers to a token.
    async fn status(&self, token: &str) -> u16 {
        self.relay.call_as(token, "iam/self/whoAmI", &json!({})).await.status
    }

    fn asked(&self, method: &str) -> usize {
        self.cluster.asked().iter().filter(|asked| asked.method == method).count()
    }
}

#[tokio::test]
async fn a_token_in_a_secret_is_refreshed_when_it_is_due_and_nothing_else_is_touched() {
    let pod = Pod::new().await;
    let first = pod.token();
    pod.clock.advance(Duration::from_secs(2690));
    assert_eq!(pod.run("--secret api").await, Exit::Ok);
    assert_eq!((pod.token() == first, pod.asked("PATCH")), (true, 0), "not before three quarters");
    pod.clock.advance(Duration::from_secs(20));
    assert_eq!(pod.run("--secret api --key token").await, Exit::Ok);
    let second = pod.token();
    assert_ne!(second, first);
    assert_eq!(pod.cluster.text("note").as_deref(), Some("stays"));
    let asked = pod.cluster.asked();
    let written = asked.last().unwrap();
    assert_eq!(written.path, "/api/v1/namespaces/fleet/secrets/api?fieldManager=relay");
    assert_eq!(
        (&*written.content_type, &*written.authorization),
        ("application/merge-patch+json", "Bearer first")
    );
    assert_eq!(written.body["metadata"]["resourceVersion"], "2", "as it was read: {}", written.body);
    // Until the new one is used, the old one counts: whoever has it mounted has not seen the new one yet.
    assert_eq!(pod.status(&first).await, 200);
    assert_eq!((pod.status(&second).await, pod.status(&first).await), (200, 401));
    assert_eq!(pod.run("--secret api").await, Exit::Ok);
    assert_eq!(pod.token(), second);
    pod.clock.advance(Duration::from_secs(3600));
    assert_eq!(pod.run("--secret api").await, Exit::Unauthenticated, "it has ended");
}

#[tokio::test]
async fn of_many_at_once_one_writes_and_the_token_is_not_lost() {
    let pod = Pod::new().await;
    let first = pod.token();
    pod.clock.advance(Duration::from_secs(2800));
    let runs = (0..6).map(|_| pod.run("--secret api"));
    let exits = futures_util::future::join_all(runs).await;
    assert!(exits.iter().all(|exit| *exit == Exit::Ok), "{exits:?}");
    let second = pod.token();
    assert_ne!(second, first);
    assert_eq!((pod.status(&second).await, pod.status(&first).await), (200, 401));

    // Somebody else changes the Secret between reading and writing, again and again: nothing is overwritten.
    pod.clock.advance(Duration::from_secs(2800));
    pod.cluster.set(Cluster::Races);
    let before = pod.asked("PATCH");
    assert_eq!(pod.run("--secret api").await, Exit::TryAgain);
    assert_eq!((pod.token() == second, pod.asked("PATCH") - before), (true, 3));
    assert_eq!(pod.cluster.text("other").as_deref(), Some("x"));
    assert_eq!(pod.status(&second).await, 200, "what was not written ended nothing");
    pod.cluster.set(Cluster::Obeys);
    assert_eq!(pod.run("--secret api").await, Exit::Ok);
    let third = pod.token();
    assert_eq!((pod.status(&third).await, pod.status(&second).await), (200, 401));
    assert_eq!(pod.cluster.text("other").as_deref(), Some("x"));
}

#[tokio::test]
async fn a_cluster_that_refuses_loses_no_token() {
    let pod = Pod::new().await;
    let first = pod.token();
    pod.clock.advance(Duration::from_secs(2800));
    for (status, exit) in
        [(403, Exit::Refused), (404, Exit::Refused), (409, Exit::TryAgain), (503, Exit::TryAgain)]
    {
        pod.cluster.set(Cluster::Refuses(status));
        assert_eq!(pod.run("--secret api").await, exit, "{status}");
    }
    pod.cluster.set(Cluster::Obeys);
    for odd in
        ["--secret Api", "--secret ../x", "--secret api --key a/b", "--secret api --file f", "--key token"]
    {
        assert_eq!(pod.run(odd).await, Exit::Usage, "{odd}");
    }
    assert_eq!(pod.run("--secret api --key none").await, Exit::Refused);
    assert_eq!(pod.run("--secret api --key note").await, Exit::Usage, "it is no token");
    assert_eq!(pod.asked("PATCH"), 0, "nothing of all this came so far");
    assert_eq!((pod.token() == first, pod.status(&first).await), (true, 200));
}
