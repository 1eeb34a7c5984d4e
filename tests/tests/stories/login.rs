//! Logins by OpenID Connect: by a provider that is honest, by one that lies in every way there is, and by a real one. Time
//! passes by the story's clock.

use crate::{START, outcome};
use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{
    Answer, Browser, Database, FakeProvider, Lie, LocalRelay, Page, RealProvider, on_both_databases, unique,
};

on_both_databases!(
    a_first_login_makes_a_tenant_and_a_later_one_nothing,
    nobody_leaves_or_deletes_their_own_tenant,
    a_provider_that_lies_makes_no_tenant_and_no_token,
    a_provider_whose_documents_lie_is_not_used,
    an_admin_role_is_asked_for_and_goes_by_the_membership,
    a_code_is_good_once_and_for_its_program_alone,
    a_login_belongs_to_its_browser,
    only_a_loopback_is_redirected_to,
    a_login_never_joins_a_tenant_that_is_there,
    an_address_counts_only_if_the_provider_verified_it,
    first_logins_at_once_make_one_user,
    a_real_provider_logs_people_in,
    a_token_of_a_login_lasts_eight_hours_and_its_chain_a_day,
);

/// A relay, its provider, and a browser.
pub(crate) struct Scene {
    pub(crate) home: tempfile::TempDir,
    pub(crate) clock: relay::clock::Clock,
    pub(crate) provider: FakeProvider,
    pub(crate) relay: LocalRelay,
    pub(crate) browser: Browser,
}

impl Scene {
    pub(crate) async fn new(database: &Database) -> Self {
        Self::with(database, &[]).await
    }

    pub(crate) async fn with(database: &Database, more: &[(&'static str, &str)]) -> Self {
        let home = tempfile::tempdir().unwrap();
        let clock = relay::clock::Clock::manual(START);
        let provider = FakeProvider::start(&clock);
        let mut settings = provider.settings();
        settings.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        settings.push(("limits.per_ip_per_minute", "100000".to_owned()));
        let relay =
            LocalRelay::start_with(home.path(), "relay", database, &clock, &borrowed(&settings)).await;
        let browser = Browser::trusting(&[&relay.ca_bundle(), &provider.ca()], &clock);
        Self { home, clock, provider, relay, browser }
    }

    /// Somebody else logs in from now on.
    pub(crate) fn user(&self, name: &str) {
        self.provider.set_user(json!({"sub": name, "preferred_username": name}));
    }

    /// Begins a login: the page to go to.
    async fn begin(&self, more: &str) -> (Page, String) {
        let verifier = unique("verifier");
        (self.browser.get(&begin(&self.relay, &verifier, more)).await, verifier)
    }

    /// Goes through a login as far as the page with the code.
    async fn page(&self, more: &str) -> (Page, String) {
        let (begun, verifier) = self.begin(more).await;
        let Some(to) = &begun.location else { return (begun, verifier) };
        (self.browser.follow(to, "http://127.0.0.1").await, verifier)
    }

    /// A whole login without a loopback.
    async fn log_in(&self, more: &str) -> Answer {
        let (page, verifier) = self.page(more).await;
        let code = page.code().unwrap_or_else(|| panic!("no code: {page:?}\n"));
        claim(&self.relay, &code, &verifier).await
    }

    pub(crate) async fn token(&self, more: &str) -> String {
        let answer = self.log_in(more).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body["secret"].as_str().unwrap().to_owned()
    }

    async fn call(&self, bearer: &str, method: &str, input: Value) -> Answer {
        self.relay.call_as(bearer, method, &input).await
    }

    /// How many users, tenants and tokens of logins there are.
    pub(crate) async fn counts(&self) -> (usize, usize, usize) {
        let users = self.relay.call("admin/users/list", &json!({})).await;
        let tenants = self.relay.call("admin/tenants/list", &json!({})).await;
        let tokens = self.relay.call("admin/tokens/list", &json!({})).await;
        let many = |list: &Value| list.as_array().unwrap().len();
        let logins =
            tokens["tokens"].as_array().unwrap().iter().filter(|token| token["description"] == "login");
        (many(&users["users"]), many(&tenants["tenants"]), logins.count())
    }
}

/// Settings as a start takes them.
pub(crate) fn borrowed<'a>(settings: &'a [(&'static str, String)]) -> Vec<(&'static str, &'a str)> {
    settings.iter().map(|(name, value)| (*name, value.as_str())).collect()
}

fn begin(relay: &LocalRelay, verifier: &str, more: &str) -> String {
    let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, verifier.as_bytes()));
    format!("{}/auth/login?code_challenge={challenge}{more}", relay.url())
}

async fn claim(relay: &LocalRelay, code: &str, verifier: &str) -> Answer {
    let input = json!({"code": code, "verifier": verifier});
    let request = relay.client(None).post(format!("{}/auth/token", relay.url()));
    let request = request.header("content-type", "application/json").body(input.to_string());
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    Answer { status, body: serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default() }
}

/// Behaviours 3, 4, 10, 13, 14, 15, 40.
async fn a_first_login_makes_a_tenant_and_a_later_one_nothing(database: Database) {
    let scene = Scene::new(&database).await;
    let answer = scene.log_in("").await;
    assert_eq!(answer.body["token"]["subject"], "alice", "{}", answer.body);
    assert_eq!(answer.body["token"]["type"], "USER");
    assert_eq!(answer.body["token"]["createdBy"], "alice");
    let token = answer.body["secret"].as_str().unwrap();
    let claims = URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    assert!(claims.as_object().unwrap().keys().all(|name| !name.to_lowercase().contains("role")), "{claims}");
    let tenants = scene.call(token, "iam/tenants/list", json!({})).await;
    assert_eq!(tenants.body["tenants"][0]["tenantId"], "alice");
    assert_eq!(tenants.body["tenants"].as_array().unwrap().len(), 1);
    let projects = scene.call(token, "iam/projects/list", json!({"tenantId": "alice"})).await;
    assert_eq!(projects.body["projects"][0]["projectId"], "default");
    let members = scene.call(token, "iam/members/list", json!({"tenantId": "alice"})).await;
    assert_eq!(members.body["members"][0]["role"], "OWNER");
    let project = json!({"tenantId": "alice", "projectId": "web", "idempotencyKey": unique("k")});
    assert_eq!(scene.call(token, "iam/projects/create", project).await.status, 200);

    let before = scene.counts().await;
    let renamed = json!({"sub": "alice", "preferred_username": "Alice A."});
    scene.provider.set_user(renamed);
    assert_eq!(scene.log_in("").await.body["token"]["subject"], "alice");
    let after = scene.counts().await;
    assert_eq!((after.0, after.1, after.2), (before.0, before.1, before.2 + 1));
    let users = scene.relay.call("admin/users/list", &json!({})).await;
    assert_eq!(users["users"][0]["displayName"], "Alice A.");
    assert_eq!(users["users"][0]["issuer"], scene.provider.issuer());
    assert_eq!(scene.provider.asked("/.well-known/openid-configuration"), 1, "it is kept");
    assert_eq!(scene.provider.asked("/keys"), 1);
}

/// Behaviours 16, 17.
async fn nobody_leaves_or_deletes_their_own_tenant(database: Database) {
    let scene = Scene::new(&database).await;
    let token = scene.token("").await;
    let own = json!({"tenantId": "alice"});
    assert_eq!(outcome(&scene.call(&token, "iam/members/leave", own.clone()).await), "INVALID_STATE");
    assert_eq!(outcome(&scene.call(&token, "iam/tenants/delete", own).await), "INVALID_STATE");
}

/// Behaviour 18.
async fn a_provider_that_lies_makes_no_tenant_and_no_token(database: Database) {
    let scene = Scene::new(&database).await;
    scene.user("bob");
    scene.token("").await;
    scene.user("alice");
    let before = scene.counts().await;
    for lie in Lie::OF_TOKENS.iter().chain(Lie::OF_ANSWERS) {
        scene.provider.set(*lie);
        let (page, _) = scene.page("").await;
        assert!(page.status >= 400 && page.code().is_none(), "{lie:?}: {page:?}");
        assert!(page.body.contains("Not logged in"), "{lie:?}: {page:?}");
        assert!(!page.body.contains("told-by-the-provider"), "{lie:?}: {page:?}");
    }
    assert_eq!(scene.counts().await, before);
    scene.provider.set(Lie::Nothing);
    scene.token("").await;

    // Another key of the provider is read once; what names yet another one a moment later is not a reason to ask again.
    let asked = scene.provider.asked("/keys");
    assert_eq!(asked, 2, "UnknownKey was asked for once");
    scene.provider.rotate();
    let (page, _) = scene.page("").await;
    assert_eq!((page.status, scene.provider.asked("/keys")), (401, asked), "{page:?}");
}

/// Behaviour 80.
async fn a_provider_whose_documents_lie_is_not_used(database: Database) {
    let scene = Scene::new(&database).await;
    for lie in Lie::OF_DOCUMENTS {
        scene.provider.set(*lie);
        let (page, _) = scene.begin("").await;
        assert_eq!((page.status, page.location.as_ref()), (503, None), "{lie:?}: {page:?}");
        assert!(page.body.contains("can&#39;t be used now"), "{lie:?}: {page:?}");
    }
    assert_eq!(scene.provider.asked("/moved"), 0, "a redirect is not followed");
    // One that does not answer is given up, and nothing else waits for it: an admin's credential works.
    scene.provider.set(Lie::Stalls);
    let began = std::time::Instant::now();
    let nothing = json!({});
    let ((page, _), (other, _), sites) =
        tokio::join!(scene.begin(""), scene.begin(""), scene.relay.call("compute/sites/list", &nothing));
    assert_eq!((page.status, other.status), (503, 503), "{page:?}");
    assert!(sites["sites"].is_array());
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    scene.provider.set(Lie::Nothing);
    scene.token("").await;
}

/// Behaviours 72, 75, 76, 77, 81, 82, 83, 85.
async fn an_admin_role_is_asked_for_and_goes_by_the_membership(database: Database) {
    let scene = Scene::new(&database).await;
    let refused = scene.log_in("&admin_role=VIEWER").await;
    assert_eq!(outcome(&refused), "PERMISSION_DENIED", "{}", refused.body);
    assert!(refused.body["detail"].as_str().unwrap().contains("no admin role"), "{}", refused.body);
    // The first login made the user all the same: an admin can make it a member.
    for (role, viewer, editor) in
        [("VIEWER", true, false), ("EDITOR", true, false), ("GUEST", false, false), ("OWNER", true, true)]
    {
        let user = format!("user-{role}");
        scene.user(&user);
        scene.token("").await;
        let member = json!({"tenantId": "provider", "memberId": user, "role": role});
        scene.relay.call("admin/tenants/addMember", &member).await;
        for (asked, given) in [("VIEWER", viewer), ("EDITOR", editor)] {
            let answer = scene.log_in(&format!("&admin_role={asked}")).await;
            assert_eq!(answer.status == 200, given, "{role} asks for {asked}: {}", answer.body);
            if !given {
                assert_eq!(outcome(&answer), "PERMISSION_DENIED");
                continue;
            }
            assert_eq!(answer.body["token"]["adminRole"], asked);
            let seconds = |name: &str| {
                shared::time::Timestamp::parse(answer.body["token"][name].as_str().unwrap())
                    .unwrap()
                    .seconds()
            };
            assert_eq!(seconds("expiresAt") - seconds("createdAt"), 3600, "it lives an hour");
            let token = answer.body["secret"].as_str().unwrap();
            assert_eq!(scene.call(token, "admin/users/list", json!({})).await.status, 200);
            let tenant = json!({"tenantId": unique("by"), "idempotencyKey": unique("k")});
            let made = scene.call(token, "iam/tenants/create", tenant).await;
            assert_eq!(made.status == 200, asked == "EDITOR", "{asked}: {}", made.body);
        }
        // Never automatic.
        let plain = scene.token("").await;
        assert_eq!(outcome(&scene.call(&plain, "admin/users/list", json!({})).await), "PERMISSION_DENIED");
    }
    // Each login is in the audit, with the person's name and what was asked for (behaviour 72).
    let audit = scene.relay.call("admin/audit/list", &json!({"limit": 200})).await;
    let logins = |subject: &str, resource: &str, code: &str| {
        let all = audit["records"].as_array().unwrap().iter();
        let same = |record: &&Value| {
            (&record["action"], &record["subject"], &record["resource"], &record["code"])
                == (&json!("login"), &json!(subject), &json!(resource), &json!(code))
        };
        all.filter(same).count()
    };
    assert_eq!(logins("user-OWNER", "adminRole=EDITOR", "OK"), 1, "{audit}");
    assert_eq!(logins("user-OWNER", "", "OK"), 2, "{audit}");
    assert_eq!(logins("user-VIEWER", "adminRole=EDITOR", "PERMISSION_DENIED"), 1, "{audit}");
    let odd = scene.begin("&admin_role=OWNER").await.0;
    assert_eq!((odd.status, odd.location), (400, None));
}

async fn a_code_is_good_once_and_for_its_program_alone(database: Database) {
    let scene = Scene::new(&database).await;
    let (page, verifier) = scene.page("").await;
    let code = page.code().unwrap();
    let tries = (0..8).map(|_| claim(&scene.relay, &code, &verifier));
    let answers = futures_util::future::join_all(tries).await;
    let words: Vec<String> = answers.iter().map(outcome).filter(|word| word != "UNAUTHENTICATED").collect();
    assert_eq!(words, ["200"], "of eight at once one has it");
    assert_eq!(scene.counts().await.2, 1);

    // Any relay of the store takes it.
    if database.kind() == tests::Kind::Postgres {
        let settings = scene.provider.settings();
        let second = LocalRelay::start_with(
            scene.home.path(),
            "second",
            &database,
            &scene.clock,
            &borrowed(&settings),
        )
        .await;
        let (page, verifier) = scene.page("").await;
        let answer = claim(&second, &page.code().unwrap(), &verifier).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
    }
    let tokens = scene.counts().await.2;

    // Whoever sees a code can't use it, and it is spent by the try.
    let (page, verifier) = scene.page("").await;
    let code = page.code().unwrap();
    assert_eq!(outcome(&claim(&scene.relay, &code, "another").await), "UNAUTHENTICATED");
    assert_eq!(outcome(&claim(&scene.relay, &code, &verifier).await), "UNAUTHENTICATED");

    let (page, verifier) = scene.page("").await;
    scene.clock.advance(Duration::from_secs(300));
    assert_eq!(outcome(&claim(&scene.relay, &page.code().unwrap(), &verifier).await), "UNAUTHENTICATED");
    assert_eq!(scene.counts().await.2, tokens);
    // What is no code is no fault of ours.
    for odd in ["", "x"] {
        assert_eq!(outcome(&claim(&scene.relay, odd, odd).await), "UNAUTHENTICATED");
    }
}

async fn a_login_belongs_to_its_browser(database: Database) {
    let scene = Scene::new(&database).await;
    let begun = scene.begin("").await.0;
    let cookie = begun.cookies.first().unwrap();
    for word in ["__Host-relay-login=", "HttpOnly", "Secure", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(word), "{cookie}");
    }
    let back = format!("{}/auth/callback", scene.relay.url());
    let answer = scene.browser.follow(&begun.location.unwrap(), &back).await.location.unwrap();
    // Another browser, which was sent that link.
    scene.browser.forget();
    let other = scene.browser.get(&answer).await;
    assert_eq!((other.status, other.code()), (400, None), "{other:?}");
    // One that has a login of its own.
    scene.begin("").await;
    let other = scene.browser.get(&answer).await;
    assert_eq!((other.status, other.code()), (400, None), "{other:?}");
    assert!(other.cookies.first().unwrap().contains("Max-Age=0"), "{other:?}");

    // One that took its time.
    let begun = scene.begin("").await.0;
    let answer = scene.browser.follow(&begun.location.unwrap(), &back).await.location.unwrap();
    scene.clock.advance(Duration::from_secs(601));
    let late = scene.browser.get(&answer).await;
    assert_eq!((late.status, late.code()), (400, None), "{late:?}");

    // What a person refuses at the provider is told in one word, and nothing of it is a page's own text.
    let begun = scene.begin("").await.0;
    let to = reqwest::Url::parse(&begun.location.unwrap()).unwrap();
    let state = to.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    let refused = scene
        .browser
        .get(&format!("{back}?error=access_denied&error_description=%3Cb%3E&state={state}"))
        .await;
    assert_eq!(refused.status, 401);
    assert!(refused.body.contains("access_denied") && !refused.body.contains("<b>"), "{refused:?}");
    assert_eq!(scene.counts().await.2, 0);
}

async fn only_a_loopback_is_redirected_to(database: Database) {
    let scene = Scene::new(&database).await;
    let state = URL_SAFE_NO_PAD.encode([7; 32]);
    for bad in [
        "https%3A%2F%2Fevil.example%2Fcallback",
        "http%3A%2F%2F127.0.0.1%3A80%2Fother",
        "http%3A%2F%2F127.0.0.1%3A80%40evil.example%2Fcallback",
        "http%3A%2F%2Flocalhost%3A80%2Fcallback",
        "%2F%2Fevil.example",
        "",
    ] {
        let page = scene.begin(&format!("&redirect_uri={bad}&state={state}")).await.0;
        assert_eq!(
            (page.status, page.location.as_ref(), page.cookies.len()),
            (400, None, 0),
            "{bad}: {page:?}"
        );
    }
    for odd in ["&state=x", "&redirect_uri", "&other=1", "&code_challenge=x", "&return=/"] {
        assert_eq!(scene.begin(odd).await.0.status, 400, "{odd}");
    }
    let good = format!("&redirect_uri=http%3A%2F%2F127.0.0.1%3A4711%2Fcallback&state={state}");
    let (page, verifier) = scene.page(&good).await;
    let to = reqwest::Url::parse(&page.location.unwrap()).unwrap();
    assert!(to.as_str().starts_with("http://127.0.0.1:4711/callback?code="), "{to}");
    let of =
        |name: &str| to.query_pairs().find(|(known, _)| known == name).map(|(_, value)| value.into_owned());
    assert_eq!(of("state").as_ref(), Some(&state));
    let answer = claim(&scene.relay, &of("code").unwrap(), &verifier).await;
    let token = answer.body["secret"].as_str().unwrap();
    assert!(!to.as_str().contains(token), "no token is in a URL");
    // A login that fails is told to the program that waits.
    scene.provider.set(Lie::WrongNonce);
    let (page, _) = scene.page(&good).await;
    let to = page.location.unwrap();
    assert!(to.starts_with("http://127.0.0.1:4711/callback?error=UNAUTHENTICATED&detail="), "{to}");
    assert!(to.contains(&state) && !to.contains("code="), "{to}");
}

async fn a_login_never_joins_a_tenant_that_is_there(database: Database) {
    let scene = Scene::new(&database).await;
    let taken = json!({"tenantId": "alice", "idempotencyKey": unique("k")});
    scene.relay.call("iam/tenants/create", &taken).await;
    for name in ["alice", "provider", "relay", "bootstrap-admin-editor"] {
        scene.user(name);
        let answer = scene.log_in("").await;
        let id = answer.body["token"]["subject"].as_str().unwrap().to_owned();
        assert!(id.starts_with(&format!("{name}-")) && id.len() == name.len() + 9, "{id}");
        assert_eq!(answer.body["token"]["tenantId"], id.as_str());
        let token = answer.body["secret"].as_str().unwrap();
        let tenants = scene.call(token, "iam/tenants/list", json!({})).await;
        assert_eq!(tenants.body["tenants"].as_array().unwrap().len(), 1, "{}", tenants.body);
        assert_eq!(tenants.body["tenants"][0]["tenantId"], id.as_str());
        assert_eq!(outcome(&scene.call(token, "admin/users/list", json!({})).await), "PERMISSION_DENIED");
        assert_eq!(
            scene.log_in("").await.body["token"]["subject"],
            id.as_str(),
            "the same at the next login"
        );
    }
    // Ids are injective: what one login has written out, another has to the letter.
    let mut ids = std::collections::BTreeSet::new();
    for name in ["a@b", "a:40b", "a b", &"é".repeat(80)] {
        scene.user(name);
        ids.insert(scene.log_in("").await.body["token"]["subject"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert!(ids.contains("a:40b") && ids.contains("a:3a40b"), "{ids:?}");
}

async fn an_address_counts_only_if_the_provider_verified_it(database: Database) {
    let scene = Scene::with(&database, &[("oidc.key", "email")]).await;
    for unverified in [
        json!({"sub": "1", "email": "alice@example.org", "email_verified": false}),
        json!({"sub": "1", "email": "alice@example.org", "email_verified": "true"}),
        json!({"sub": "1", "email": "alice@example.org"}),
        json!({"sub": "1", "email_verified": true}),
        json!({"sub": "1", "email": "", "email_verified": true}),
        json!({"sub": "1", "email": "alice", "email_verified": true}),
    ] {
        scene.provider.set_user(unverified.clone());
        let (page, _) = scene.page("").await;
        assert_eq!((page.status, page.code()), (401, None), "{unverified}: {page:?}");
        assert!(page.body.contains("email that the provider verified"), "{page:?}");
    }
    assert_eq!(scene.counts().await, (0, 1, 0));
    scene.provider.set_user(json!({"sub": "1", "email": "alice@example.org", "email_verified": true}));
    assert_eq!(scene.log_in("").await.body["token"]["subject"], "alice:40example.org");
    scene.provider.set_user(json!({"sub": "2", "email": "alice@example.org", "email_verified": true}));
    assert_eq!(
        scene.log_in("").await.body["token"]["subject"],
        "alice:40example.org",
        "the address is the key"
    );
}

async fn first_logins_at_once_make_one_user(database: Database) {
    let scene = Scene::new(&database).await;
    let mut codes = Vec::new();
    for _ in 0..8 {
        let (page, verifier) = scene.page("").await;
        codes.push((page.code().unwrap(), verifier));
    }
    let claims = codes.iter().map(|(code, verifier)| claim(&scene.relay, code, verifier));
    for answer in futures_util::future::join_all(claims).await {
        assert_eq!(answer.body["token"]["subject"], "alice", "{}", answer.body);
    }
    assert_eq!(scene.counts().await, (1, 2, 8));
}

/// Behaviours 11 and 13 with a provider that nobody here wrote.
async fn a_real_provider_logs_people_in(database: Database) {
    let home = tempfile::tempdir().unwrap();
    // It goes by the time of the day.
    let clock = relay::clock::Clock::system();
    let provider = RealProvider::start();
    let relay =
        LocalRelay::start_with(home.path(), "relay", &database, &clock, &borrowed(&provider.settings()))
            .await;
    let back = format!("{}/auth/callback", relay.url());
    let browser = Browser::trusting(&[&relay.ca_bundle(), &provider.ca()], &clock);
    let verifier = unique("verifier");

    provider.set_redirect_uri("https://127.0.0.1:1/auth/callback");
    let begun = browser.get(&begin(&relay, &verifier, "")).await.location.unwrap();
    let refused = browser.get(&begun).await;
    assert_eq!((refused.status, refused.location), (400, None), "another redirect address: {}", refused.body);

    provider.set_redirect_uri(&back);
    for user in ["alice", "bob", "alice"] {
        let begun = browser.get(&begin(&relay, &verifier, "")).await.location.unwrap();
        let page = provider.log_in(&browser, &begun, user, &back).await;
        let Some(to) = &page.location else { panic!("{page:?}") };
        let page = browser.get(to).await;
        let code = page.code().unwrap_or_else(|| panic!("{page:?}"));
        let answer = claim(&relay, &code, &verifier).await;
        assert_eq!(answer.body["token"]["subject"], user, "{}", answer.body);
        let token = answer.body["secret"].as_str().unwrap();
        let who = relay.call_as(token, "iam/self/whoAmI", &json!({})).await;
        assert_eq!(who.status, 200, "{}", who.body);
        browser.forget();
    }
    let begun = browser.get(&format!("{}/auth/login?return=/x", relay.url())).await.location.unwrap();
    let page = provider.log_in(&browser, &begun, "alice", &back).await;
    let page = browser.get(&page.location.unwrap()).await;
    assert_eq!(page.location, Some(format!("{}/x", relay.url())), "{page:?}");
    assert!(browser.cookie(&relay.url(), "__Host-relay-session").is_some());
    let users = relay.call("admin/users/list", &json!({})).await;
    assert_eq!(users["users"].as_array().unwrap().len(), 2, "{users}");
}

/// Behaviours 60 and 97, and the end of a login.
async fn a_token_of_a_login_lasts_eight_hours_and_its_chain_a_day(database: Database) {
    let scene = Scene::new(&database).await;
    let mut token = scene.token("").await;
    for hours in [7, 14, 21] {
        scene.clock.advance(Duration::from_secs(7 * 3600));
        let next = scene.call(&token, "iam/tokens/refresh", json!({})).await;
        assert_eq!(next.status, 200, "after {hours} h: {}", next.body);
        token = next.body["secret"].as_str().unwrap().to_owned();
        assert_eq!(scene.call(&token, "iam/self/whoAmI", json!({})).await.status, 200);
    }
    scene.clock.advance(Duration::from_secs(3 * 3600));
    assert_eq!(outcome(&scene.call(&token, "iam/self/whoAmI", json!({})).await), "UNAUTHENTICATED");
    let token = scene.token("").await;
    scene.clock.advance(Duration::from_secs(8 * 3600));
    assert_eq!(outcome(&scene.call(&token, "iam/self/whoAmI", json!({})).await), "UNAUTHENTICATED");
}
