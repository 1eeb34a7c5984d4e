//! Logins that a person confirms on another device (RFC 8628): by a provider that lies, and by a real one. Time passes by
//! the story's clock.

use crate::{
    login::{Scene, borrowed},
    outcome,
};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{Answer, Browser, Database, Lie, LocalRelay, RealProvider, on_both_databases, unique};

on_both_databases!(
    a_person_confirms_a_login_on_another_device,
    a_handle_is_for_its_program_alone_and_good_once,
    the_provider_is_asked_as_often_as_it_says,
    what_is_refused_or_too_late_ends_the_login,
    a_provider_that_lies_vouches_for_nobody,
    where_it_is_not_offered_nothing_begins,
    a_real_provider_lets_a_login_be_confirmed,
);

async fn post(relay: &LocalRelay, path: &str, input: &Value) -> Answer {
    let request = relay.client(None).post(format!("{}{path}", relay.url()));
    let request = request.header("content-type", "application/json").body(input.to_string());
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    Answer { status, body: serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default() }
}

/// A program's login.
struct Login {
    verifier: String,
    begun: Answer,
}

impl Login {
    async fn begin(relay: &LocalRelay) -> Self {
        let verifier = unique("verifier");
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
        let begun = post(relay, "/auth/device", &json!({"challenge": challenge})).await;
        Self { verifier, begun }
    }

    async fn ask(&self, relay: &LocalRelay) -> Answer {
        self.ask_as(relay, &self.verifier).await
    }

    async fn ask_as(&self, relay: &LocalRelay, verifier: &str) -> Answer {
        let input = json!({"handle": self.begun.body["handle"], "verifier": verifier});
        post(relay, "/auth/device/token", &input).await
    }
}

fn pending(answer: &Answer) -> Option<i64> {
    (answer.body["status"] == "pending").then(|| answer.body["retryAfterSeconds"].as_i64().unwrap())
}

async fn a_person_confirms_a_login_on_another_device(database: Database) {
    let scene = Scene::new(&database).await;
    let login = Login::begin(&scene.relay).await;
    let begun = &login.begun.body;
    let page = format!("{}/enter", scene.provider.issuer());
    assert_eq!((login.begun.status, &begun["userCode"]), (200, &json!("USER-1")), "{begun}");
    assert_eq!(begun["verificationUri"], page);
    assert_eq!(begun["verificationUriComplete"], format!("{page}?user_code=USER-1"));
    assert_eq!((&begun["intervalSeconds"], &begun["expiresInSeconds"]), (&json!(2), &json!(600)));
    assert_eq!(scene.provider.device_codes(), ["device-code-1"]);
    assert!(!begun.to_string().contains("device-code"), "it is the relay's: {begun}");
    scene.clock.advance(Duration::from_secs(2));
    assert_eq!(pending(&login.ask(&scene.relay).await), Some(2));
    assert_eq!(scene.counts().await, (0, 1, 0), "nobody is made before it is confirmed");
    for odd in
        [json!({}), json!({"challenge": "x"}), json!({"challenge": "a".repeat(43), "adminRole": "EDITOR"})]
    {
        let answer = post(&scene.relay, "/auth/device", &odd).await;
        assert_eq!(outcome(&answer), "INVALID_INPUT", "{odd}: {}", answer.body);
    }
    assert_eq!(scene.provider.asked("/device"), 1);

    scene.provider.confirm_devices(true);
    scene.clock.advance(Duration::from_secs(2));
    // Any relay of the store goes on with it.
    let second = match database.kind() {
        tests::Kind::Postgres => {
            let settings = scene.provider.settings();
            let (home, settings) = (scene.home.path(), borrowed(&settings));
            Some(LocalRelay::start_with(home, "second", &database, &scene.clock, &settings).await)
        }
        tests::Kind::Sqlite => None,
    };
    let given = login.ask(second.as_ref().unwrap_or(&scene.relay)).await;
    assert_eq!((given.status, &given.body["status"]), (200, &json!("issued")), "{}", given.body);
    assert_eq!(given.body["token"]["subject"], "alice");
    let token = given.body["secret"].as_str().unwrap();
    assert_eq!(scene.relay.call_as(token, "iam/self/whoAmI", &json!({})).await.status, 200);
    assert_eq!(scene.counts().await, (1, 2, 1));
    let audit = scene.relay.call("admin/audit/list", &json!({"limit": 200})).await;
    let logins = audit["records"].as_array().unwrap().iter().filter(|record| record["action"] == "login");
    assert_eq!(logins.count(), 1, "{audit}");
}

async fn a_handle_is_for_its_program_alone_and_good_once(database: Database) {
    let scene = Scene::new(&database).await;
    let login = Login::begin(&scene.relay).await;
    scene.provider.confirm_devices(true);
    scene.clock.advance(Duration::from_secs(2));
    let tries = (0..8).map(|_| login.ask(&scene.relay));
    let answers = futures_util::future::join_all(tries).await;
    let given = answers.iter().filter(|answer| answer.body["status"] == "issued").count();
    assert_eq!((given, scene.provider.asked("/token")), (1, 1), "of eight at once one has it");
    assert_eq!(outcome(&login.ask(&scene.relay).await), "UNAUTHENTICATED");

    // Whoever sees a handle can't use it, and it is spent by the try.
    let login = Login::begin(&scene.relay).await;
    scene.provider.confirm_devices(true);
    scene.clock.advance(Duration::from_secs(2));
    assert_eq!(outcome(&login.ask_as(&scene.relay, "another").await), "UNAUTHENTICATED");
    assert_eq!(outcome(&login.ask(&scene.relay).await), "UNAUTHENTICATED");
    assert_eq!((scene.counts().await.2, scene.provider.asked("/token")), (1, 1));
    for odd in
        [json!({}), json!({"handle": "x"}), json!({"handle": "", "verifier": "", "more": 1}), json!([])]
    {
        assert_eq!(outcome(&post(&scene.relay, "/auth/device/token", &odd).await), "INVALID_INPUT", "{odd}");
    }
    let unknown = post(&scene.relay, "/auth/device/token", &json!({"handle": "x", "verifier": "y"})).await;
    assert_eq!(outcome(&unknown), "UNAUTHENTICATED");
}

async fn the_provider_is_asked_as_often_as_it_says(database: Database) {
    let scene = Scene::new(&database).await;
    let login = Login::begin(&scene.relay).await;
    let asked = || scene.provider.asked("/token");
    for _ in 0..5 {
        assert!(pending(&login.ask(&scene.relay).await).is_some_and(|seconds| (1..=3).contains(&seconds)));
    }
    assert_eq!(asked(), 0, "not before the first interval is over");
    scene.clock.advance(Duration::from_secs(2));
    let tries = (0..5).map(|_| login.ask(&scene.relay));
    let answers = futures_util::future::join_all(tries).await;
    assert!(answers.iter().all(|answer| pending(answer).is_some()));
    assert_eq!(asked(), 1);
    scene.provider.set(Lie::SlowsDown);
    for (wait, next) in [(2, 7), (7, 12)] {
        scene.clock.advance(Duration::from_secs(wait));
        assert_eq!(pending(&login.ask(&scene.relay).await), Some(next));
    }
    assert_eq!(asked(), 3);
    scene.provider.set(Lie::Nothing);
    scene.provider.confirm_devices(true);
    scene.clock.advance(Duration::from_secs(7));
    assert!(pending(&login.ask(&scene.relay).await).is_some(), "it was told to slow down");
    scene.clock.advance(Duration::from_secs(5));
    assert_eq!(login.ask(&scene.relay).await.body["status"], "issued");
    assert_eq!(asked(), 4);
}

async fn what_is_refused_or_too_late_ends_the_login(database: Database) {
    let scene = Scene::new(&database).await;
    let login = Login::begin(&scene.relay).await;
    scene.provider.confirm_devices(false);
    scene.clock.advance(Duration::from_secs(2));
    let refused = login.ask(&scene.relay).await;
    assert_eq!(outcome(&refused), "UNAUTHENTICATED");
    assert!(refused.body["detail"].as_str().unwrap().contains("access_denied"), "{}", refused.body);
    assert!(!refused.body.to_string().contains("told-by-the-provider"), "{}", refused.body);
    assert_eq!(outcome(&login.ask(&scene.relay).await), "UNAUTHENTICATED");

    let login = Login::begin(&scene.relay).await;
    scene.provider.confirm_devices(true);
    scene.clock.advance(Duration::from_secs(600));
    let late = login.ask(&scene.relay).await;
    assert_eq!(outcome(&late), "UNAUTHENTICATED");
    assert!(late.body["detail"].as_str().unwrap().contains("in time"), "{}", late.body);
    assert_eq!(scene.counts().await, (0, 1, 0));
}

async fn a_provider_that_lies_vouches_for_nobody(database: Database) {
    let scene = Scene::new(&database).await;
    for lie in Lie::OF_TOKENS.iter().chain(&[Lie::RefusesCode]).filter(|lie| **lie != Lie::NoNonce) {
        scene.provider.set(*lie);
        let login = Login::begin(&scene.relay).await;
        scene.provider.confirm_devices(true);
        scene.clock.advance(Duration::from_secs(2));
        let answer = login.ask(&scene.relay).await;
        assert_eq!(outcome(&answer), "UNAUTHENTICATED", "{lie:?}: {}", answer.body);
        assert_eq!(outcome(&login.ask(&scene.relay).await), "UNAUTHENTICATED", "{lie:?}");
    }
    assert_eq!(scene.counts().await, (0, 1, 0));
    // What may pass does not end a login, and is not asked again at once.
    scene.provider.set(Lie::Nothing);
    let login = Login::begin(&scene.relay).await;
    for lie in [Lie::Fails, Lie::NoJson, Lie::LongAnswer, Lie::RedirectsToken] {
        scene.provider.set(lie);
        scene.clock.advance(Duration::from_secs(2));
        assert_eq!(outcome(&login.ask(&scene.relay).await), "UNAVAILABLE", "{lie:?}");
        assert!(pending(&login.ask(&scene.relay).await).is_some(), "{lie:?}");
    }
    // The direct way needs no nonce in the token.
    scene.provider.set(Lie::NoNonce);
    scene.provider.confirm_devices(true);
    scene.clock.advance(Duration::from_secs(2));
    assert_eq!(login.ask(&scene.relay).await.body["status"], "issued");
    // Nobody is sent to a page that others can change.
    scene.provider.set(Lie::DevicePageOverHttp);
    let begun = Login::begin(&scene.relay).await.begun;
    assert_eq!((outcome(&begun), &begun.body["verificationUri"]), ("UNAVAILABLE".to_owned(), &Value::Null));
}

async fn where_it_is_not_offered_nothing_begins(database: Database) {
    let scene = Scene::new(&database).await;
    scene.provider.set(Lie::NoDevices);
    let begun = Login::begin(&scene.relay).await.begun;
    assert_eq!(outcome(&begun), "NOT_FOUND", "{}", begun.body);
    assert!(
        begun.body["detail"].as_str().unwrap().contains("device_authorization_endpoint"),
        "{}",
        begun.body
    );
    assert_eq!(scene.provider.asked("/device"), 0);
}

/// With a provider that nobody here wrote.
async fn a_real_provider_lets_a_login_be_confirmed(database: Database) {
    let home = tempfile::tempdir().unwrap();
    // It goes by the time of the day.
    let clock = relay::clock::Clock::system();
    let provider = RealProvider::start();
    let settings = provider.settings();
    let relay = LocalRelay::start_with(home.path(), "relay", &database, &clock, &borrowed(&settings)).await;
    let browser = Browser::trusting(&[&provider.ca()], &clock);
    let login = Login::begin(&relay).await;
    assert_eq!(login.begun.status, 200, "{}", login.begun.body);
    let page = login.begun.body["verificationUriComplete"].as_str().unwrap();
    let done = provider.confirm(&browser, page, "alice").await;
    assert!(done.status == 200 && done.body.contains("Success"), "{done:?}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    let given = login.ask(&relay).await;
    assert_eq!(given.body["token"]["subject"], "alice", "{}", given.body);
    let token = given.body["secret"].as_str().unwrap();
    assert_eq!(relay.call_as(token, "iam/self/whoAmI", &json!({})).await.status, 200);
}
