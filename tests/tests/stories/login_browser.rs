//! A browser's session: a token in a cookie, which counts only where a page of the relay asks. Time passes by the story's
//! clock.

use crate::{login::Scene, outcome};
use serde_json::{Value, json};
use std::time::Duration;
use tests::{Answer, Browser, Database, Lie, Page, on_both_databases, unique};

on_both_databases!(
    a_browser_logs_in_and_has_a_session,
    a_session_counts_only_where_a_page_of_the_relay_asks,
    a_stream_is_for_a_page_of_the_relay_and_no_answer_says_that_others_may_ask,
    a_session_is_nothing_to_machines_and_beside_another_credential,
    a_browser_goes_nowhere_else_and_a_login_that_fails_leaves_no_session,
    an_admin_role_is_given_to_no_browser_that_did_not_ask,
    a_link_ends_no_session_and_the_form_does,
    a_session_is_refreshed_once_for_all_its_requests_and_ends_in_a_day,
);

const SESSION: &str = "__Host-relay-session";
const CSRF: &str = "__Host-relay-csrf";

/// What a browser keeps, and shows by hand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Session {
    token: String,
    csrf: String,
}

impl Session {
    fn of(browser: &Browser, scene: &Scene) -> Option<Self> {
        let of = |name| browser.cookie(&scene.relay.url(), name);
        Some(Self { token: of(SESSION)?, csrf: of(CSRF)? })
    }

    fn cookie(&self) -> String {
        format!("{CSRF}={}; {SESSION}={}", self.csrf, self.token)
    }
}

/// Goes through a login of a browser, as far as where it leads.
async fn page(scene: &Scene, query: &str) -> Page {
    let begun = scene.browser.get(&format!("{}/auth/login{query}", scene.relay.url())).await;
    let Some(to) = &begun.location else { return begun };
    let back = format!("{}/auth/callback", scene.relay.url());
    let answered = scene.browser.follow(to, &back).await;
    scene.browser.get(&answered.location.unwrap()).await
}

async fn session(scene: &Scene) -> Session {
    let page = page(scene, "").await;
    Session::of(&scene.browser, scene).unwrap_or_else(|| panic!("no session: {page:?}"))
}

/// An answer, and the session that it gives, if it gives one.
async fn send(
    scene: &Scene,
    method: &str,
    input: Value,
    headers: &[(&str, &str)],
) -> (Answer, Option<Session>) {
    let mut request = scene.relay.client(None).post(format!("{}/api/{method}", scene.relay.url()));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer = request.header("content-type", "application/json").body(input.to_string()).send().await;
    let answer = answer.unwrap();
    assert!(!answer.headers().keys().any(|name| name.as_str().starts_with("access-control-")));
    let cookies = answer.headers().get_all("set-cookie").iter().map(|value| value.to_str().unwrap());
    let cookies: Vec<String> = cookies.map(str::to_owned).collect();
    let of = |name: &str| {
        let found = cookies.iter().find_map(|cookie| cookie.strip_prefix(&format!("{name}=")))?;
        Some(found.split(';').next().unwrap().to_owned())
    };
    let given = of(SESSION).zip(of(CSRF)).map(|(token, csrf)| Session { token, csrf });
    let status = answer.status().as_u16();
    let body = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or_default();
    (Answer { status, body }, given)
}

/// A call as a page of the relay makes it.
async fn call(scene: &Scene, session: &Session, method: &str, input: Value) -> (Answer, Option<Session>) {
    let (cookie, url) = (session.cookie(), scene.relay.url());
    let headers = [
        ("cookie", cookie.as_str()),
        ("x-csrf-token", &session.csrf),
        ("sec-fetch-site", "same-origin"),
        ("origin", &url),
    ];
    send(scene, method, input, &headers).await
}

async fn status(scene: &Scene, session: &Session) -> u16 {
    call(scene, session, "iam/self/whoAmI", json!({})).await.0.status
}

async fn a_browser_logs_in_and_has_a_session(database: Database) {
    let scene = Scene::new(&database).await;
    let back = page(&scene, "?return=/console/nodes?state%3Dready").await;
    let to = format!("{}/console/nodes?state=ready", scene.relay.url());
    assert_eq!((back.status, back.location.as_ref()), (303, Some(&to)), "{back:?}");
    let set = |name: &str| {
        let found = back.cookies.iter().find(|cookie| cookie.starts_with(&format!("{name}=")));
        found.unwrap_or_else(|| panic!("{name}: {back:?}")).clone()
    };
    for word in ["Path=/", "HttpOnly", "Secure", "SameSite=Strict", "Max-Age=28800"] {
        assert!(set(SESSION).contains(word), "{back:?}");
        assert_eq!(set(CSRF).contains(word), word != "HttpOnly", "{back:?}");
    }
    assert!(set("__Host-relay-login").contains("Max-Age=0"), "{back:?}");
    let given = Session::of(&scene.browser, &scene).unwrap();
    assert!(!to.contains(&given.token) && !back.body.contains(&given.token));

    let (who, renewed) = call(&scene, &given, "iam/self/whoAmI", json!({})).await;
    assert_eq!((who.status, renewed), (200, None), "{}", who.body);
    let token = &who.body["token"];
    assert_eq!((&token["type"], &token["subject"]), (&json!("USER"), &json!("alice")), "{token}");
    assert_eq!(token["description"], "browser session");
    let project = json!({"tenantId": "alice", "projectId": "web", "idempotencyKey": unique("k")});
    assert_eq!(call(&scene, &given, "iam/projects/create", project).await.0.status, 200);
    // It is in the audit as any token is.
    let audit = scene.relay.call("admin/audit/list", &json!({"limit": 200})).await;
    let by = |action: &str| {
        let all = audit["records"].as_array().unwrap().iter();
        all.filter(|record| record["action"] == action && record["tokenId"] == token["id"]).count()
    };
    assert_eq!((by("login"), by("iam:projects:create")), (1, 1), "{audit}");

    // Without a wish, it ends on a page that says so.
    let end = page(&scene, "").await;
    assert_eq!(end.location, Some(format!("{}/auth/session", scene.relay.url())));
    let shown = scene.browser.get(&end.location.unwrap()).await;
    assert!(shown.status == 200 && shown.body.contains("/auth/logout"), "{shown:?}");
}

async fn a_session_counts_only_where_a_page_of_the_relay_asks(database: Database) {
    let scene = Scene::new(&database).await;
    let (mine, url) = (session(&scene).await, scene.relay.url());
    scene.user("bob");
    let other = session(&scene).await;
    let cookie = mine.cookie();
    let (cookie, csrf) = (("cookie", cookie.as_str()), ("x-csrf-token", mine.csrf.as_str()));
    let who = |headers: Vec<(&'static str, String)>| {
        let scene = &scene;
        async move {
            let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
            send(scene, "iam/self/whoAmI", json!({}), &headers).await.0
        }
    };
    let of = |pairs: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    };
    assert_eq!(who(of(&[cookie, csrf])).await.status, 200);
    assert_eq!(
        who(of(&[cookie, csrf, ("origin", &url), ("sec-fetch-site", "same-origin")])).await.status,
        200
    );
    let twice = format!("{}; {SESSION}={}", mine.cookie(), mine.token);
    let forged = format!("{CSRF}=x; {SESSION}={}", mine.token);
    for refused in [
        of(&[csrf]),
        of(&[cookie]),
        of(&[cookie, ("x-csrf-token", "")]),
        of(&[cookie, ("x-csrf-token", &other.csrf)]),
        of(&[cookie, ("x-csrf-token", &mine.token)]),
        of(&[("cookie", &forged), ("x-csrf-token", "x")]),
        of(&[cookie, csrf, csrf]),
        of(&[cookie, csrf, ("origin", "https://evil.example")]),
        of(&[cookie, csrf, ("origin", "null")]),
        of(&[cookie, csrf, ("sec-fetch-site", "cross-site")]),
        of(&[cookie, csrf, ("origin", &url), ("sec-fetch-site", "same-site")]),
        of(&[cookie, ("origin", &url), ("sec-fetch-site", "same-origin")]),
        of(&[("cookie", &twice), csrf]),
        of(&[cookie, cookie, csrf]),
    ] {
        let answer = who(refused.clone()).await;
        assert_eq!(outcome(&answer), "UNAUTHENTICATED", "{refused:?}: {}", answer.body);
    }
}

/// A page can give a stream no header: the browser's own word counts there.
async fn a_stream_is_for_a_page_of_the_relay_and_no_answer_says_that_others_may_ask(database: Database) {
    let scene = Scene::new(&database).await;
    let (mine, url) = (session(&scene).await, scene.relay.url());
    let (cookie, twice) = (mine.cookie(), format!("{0}; {0}", mine.cookie()));
    let (cookie, csrf) = (("cookie", cookie.as_str()), ("x-csrf-token", mine.csrf.as_str()));
    let stream = format!("{url}/api/compute/events/stream?tenantId=alice");
    for (headers, status) in [
        (&[cookie][..], 401),
        (&[cookie, ("sec-fetch-site", "cross-site")][..], 401),
        (&[cookie, ("sec-fetch-site", "same-site")][..], 401),
        (&[cookie, ("sec-fetch-site", "none")][..], 401),
        (&[cookie, csrf, ("origin", "https://evil.example")][..], 401),
        (&[("cookie", twice.as_str()), ("sec-fetch-site", "same-origin")][..], 401),
        (&[cookie, csrf][..], 200),
        (&[cookie, ("sec-fetch-site", "same-origin")][..], 200),
    ] {
        let mut request = scene.relay.client(None).get(&stream);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        assert_eq!(request.send().await.unwrap().status().as_u16(), status, "{headers:?}");
    }

    // Nobody else's pages are told that they may ask.
    let client = scene.relay.client(None);
    let asked = client.request(reqwest::Method::OPTIONS, format!("{url}/api/iam/self/whoAmI"));
    let asked =
        asked.header("origin", "https://evil.example").header("access-control-request-method", "POST");
    let answer = asked.send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 405);
    assert!(!answer.headers().keys().any(|name| name.as_str().starts_with("access-control-")));
}

async fn a_session_is_nothing_to_machines_and_beside_another_credential(database: Database) {
    let scene = Scene::new(&database).await;
    let mine = session(&scene).await;
    let token = scene.token("").await;
    let cookie = mine.cookie();
    let shown = [("cookie", cookie.as_str()), ("x-csrf-token", mine.csrf.as_str())];
    // The header alone is judged, whatever it holds.
    for bad in ["Bearer x", "Bearer ", "Basic eDp5", ""] {
        let headers = [&shown[..], &[("authorization", bad)]].concat();
        let (answer, renewed) = send(&scene, "iam/self/whoAmI", json!({}), &headers).await;
        assert_eq!((outcome(&answer).as_str(), renewed), ("UNAUTHENTICATED", None), "{bad}");
    }
    let bearer = format!("Bearer {token}");
    let headers = [("cookie", cookie.as_str()), ("authorization", &bearer)];
    let (answer, _) = send(&scene, "iam/self/whoAmI", json!({}), &headers).await;
    assert_eq!(answer.body["token"]["description"], "login", "{}", answer.body);
    // The token is one as any other.
    assert_eq!(scene.relay.call_as(&mine.token, "iam/self/whoAmI", &json!({})).await.status, 200);
    for method in ["node/join", "node/renew", "node/heartbeat", "node/secrets"] {
        let (answer, _) = send(&scene, method, json!({}), &shown).await;
        assert_eq!(outcome(&answer), "UNAUTHENTICATED", "{method}: {}", answer.body);
    }
    // A join token in the cookie is none.
    let join = scene.relay.mint(json!({})).await;
    let cookie = format!("{SESSION}={join}");
    let (answer, _) = send(&scene, "node/join", json!({}), &[("cookie", &cookie)]).await;
    assert_eq!(outcome(&answer), "UNAUTHENTICATED", "{}", answer.body);
}

async fn a_browser_goes_nowhere_else_and_a_login_that_fails_leaves_no_session(database: Database) {
    let scene = Scene::new(&database).await;
    for bad in [
        "?return=",
        "?return=https://evil.example/",
        "?return=//evil.example/",
        "?return=/%5Cevil.example/",
        "?return=%2F%2Fevil.example",
        "?return=/a/..//evil.example",
        "?return=/auth/login",
        "?return=/%0d%0aset-cookie:a%3Db",
        "?return=/&state=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "?redirect_uri=http://127.0.0.1:1/callback",
        "?return=/&return=/",
        &format!("?return=/{}", "a".repeat(512)),
    ] {
        let page = page(&scene, bad).await;
        assert_eq!((page.status, page.location, page.cookies.len()), (400, None, 0), "{bad}");
    }
    for lie in [Lie::WrongNonce, Lie::OtherAudience, Lie::Expired, Lie::SignedByAnother, Lie::RefusesCode] {
        scene.provider.set(lie);
        let page = page(&scene, "?return=/x").await;
        assert!(page.status >= 400 && page.location.is_none(), "{lie:?}: {page:?}");
        assert_eq!(Session::of(&scene.browser, &scene), None, "{lie:?}");
    }
    assert_eq!(scene.counts().await, (0, 1, 0));
    // One that another browser began.
    scene.provider.set(Lie::Nothing);
    let begun = scene.browser.get(&format!("{}/auth/login", scene.relay.url())).await;
    let back = format!("{}/auth/callback", scene.relay.url());
    let answer = scene.browser.follow(&begun.location.unwrap(), &back).await.location.unwrap();
    scene.browser.forget();
    let other = scene.browser.get(&answer).await;
    assert_eq!((other.status, Session::of(&scene.browser, &scene)), (400, None), "{other:?}");
}

async fn an_admin_role_is_given_to_no_browser_that_did_not_ask(database: Database) {
    let scene = Scene::new(&database).await;
    session(&scene).await;
    let member = json!({"tenantId": "provider", "memberId": "alice", "role": "OWNER"});
    scene.relay.call("admin/tenants/addMember", &member).await;
    let begin = |site: &'static str| {
        let address = format!("{}/auth/login?admin_role=EDITOR", scene.relay.url());
        let browser = &scene.browser;
        async move { browser.get_with(&address, ("sec-fetch-site", site)).await }
    };
    for foreign in ["cross-site", "same-site", ""] {
        let page = begin(foreign).await;
        assert_eq!((page.status, page.location), (400, None), "{foreign}");
    }
    assert_eq!(page(&scene, "?admin_role=EDITOR").await.status, 400, "a browser that says nothing");
    for own in ["none", "same-origin"] {
        let begun = begin(own).await;
        let back = format!("{}/auth/session", scene.relay.url());
        scene.browser.follow(&begun.location.unwrap(), &back).await;
        let admin = Session::of(&scene.browser, &scene).unwrap();
        let (who, _) = call(&scene, &admin, "iam/self/whoAmI", json!({})).await;
        assert_eq!(who.body["token"]["adminRole"], "EDITOR", "{}", who.body);
    }
    // Without asking, there is none; and who may not have one has no session.
    let plain = session(&scene).await;
    let (users, _) = call(&scene, &plain, "admin/users/list", json!({})).await;
    assert_eq!(outcome(&users), "PERMISSION_DENIED");
    scene.browser.forget();
    scene.user("bob");
    let begun = begin("none").await;
    let refused = scene.browser.follow(&begun.location.unwrap(), "nowhere").await;
    assert_eq!((refused.status, Session::of(&scene.browser, &scene)), (403, None), "{refused:?}");
}

async fn a_link_ends_no_session_and_the_form_does(database: Database) {
    let scene = Scene::new(&database).await;
    let (mine, url) = (session(&scene).await, scene.relay.url());
    let logout = format!("{url}/auth/logout");
    let asked = scene.browser.get(&logout).await;
    assert_eq!((asked.status, asked.location, asked.cookies.len()), (200, None, 0), "a link only asks");
    assert!(asked.body.contains("<form method=\"post\" action=\"/auth/logout\">"), "{}", asked.body);
    assert_eq!(status(&scene, &mine).await, 200);
    // Another site's form, in a browser that sends cookies with it.
    for foreign in
        [("origin", "https://evil.example"), ("origin", "null"), ("sec-fetch-site", "cross-site"), ("x", "y")]
    {
        let page = scene.browser.post_with(&logout, "", foreign).await;
        assert_eq!((page.status, page.cookies.len()), (401, 0), "{foreign:?}: {page:?}");
        assert_eq!(status(&scene, &mine).await, 200);
    }
    // And in one that does not: the answer must not make it forget them.
    let stranger = Browser::trusting(&[&scene.relay.ca_bundle()], &scene.clock);
    for foreign in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site"), ("x", "y")] {
        let page = stranger.post_with(&logout, "", foreign).await;
        assert_eq!((page.status, page.cookies.len()), (401, 0), "{foreign:?}: {page:?}");
    }
    let bearer = format!("Bearer {}", mine.token);
    let program = scene.browser.post_with(&logout, "", ("authorization", &bearer)).await;
    assert_eq!(program.status, 400, "{program:?}");

    let done = scene.browser.post_with(&logout, "", ("sec-fetch-site", "same-origin")).await;
    assert_eq!(done.status, 200, "{done:?}");
    let end = format!("{}/end?client_id=relay", scene.provider.issuer());
    assert!(done.body.contains(&format!("<a href=\"{end}\"")), "{}", done.body);
    assert_eq!(Session::of(&scene.browser, &scene), None);
    assert_eq!(status(&scene, &mine).await, 401, "the token has ended");
    let audit = scene.relay.call("admin/audit/list", &json!({"limit": 200})).await;
    let revoked = audit["records"].as_array().unwrap().iter();
    let revoked =
        revoked.filter(|record| record["method"] == "iam.tokens.revoke" && record["subject"] == "alice");
    assert_eq!(revoked.count(), 1, "{audit}");
    // Again, and by a browser whose session ended elsewhere: it is logged out all the same.
    let again = scene.browser.post_with(&logout, "", ("origin", &url)).await;
    assert_eq!(again.status, 200, "{again:?}");
    let mine = session(&scene).await;
    scene.clock.advance(Duration::from_secs(8 * 3600));
    let late = scene.browser.post_with(&logout, "", ("origin", &url)).await;
    assert_eq!((late.status, status(&scene, &mine).await), (200, 401), "{late:?}");
    assert_eq!(Session::of(&scene.browser, &scene), None);
}

async fn a_session_is_refreshed_once_for_all_its_requests_and_ends_in_a_day(database: Database) {
    let scene = Scene::new(&database).await;
    let mut mine = session(&scene).await;
    scene.clock.advance(Duration::from_secs(6 * 3600 - 1));
    let (answer, renewed) = call(&scene, &mine, "iam/self/whoAmI", json!({})).await;
    assert_eq!((answer.status, renewed), (200, None), "three quarters are not over");
    scene.clock.advance(Duration::from_secs(1));
    // What a page asks at once gives it one successor.
    let calls = (0..6).map(|_| call(&scene, &mine, "iam/self/whoAmI", json!({})));
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|(answer, _)| answer.status == 200));
    let mut given: Vec<Session> = answers.into_iter().filter_map(|(_, renewed)| renewed).collect();
    assert_eq!(given.len(), 1, "{given:?}");
    assert_eq!(status(&scene, &mine).await, 200, "until the other is used");
    // One that is lost on the way is not waited for for ever.
    scene.clock.advance(Duration::from_secs(61));
    let (_, renewed) = call(&scene, &mine, "iam/self/whoAmI", json!({})).await;
    let lost = std::mem::replace(given.first_mut().unwrap(), renewed.unwrap());
    let next = given.remove(0);
    assert_eq!(status(&scene, &next).await, 200);
    // What was under way with the one before is served a little longer, and not for what somebody revoked.
    assert_eq!((status(&scene, &mine).await, status(&scene, &lost).await), (200, 401));
    let header = format!("Bearer {}", mine.token);
    let (told, _) = send(&scene, "iam/self/whoAmI", json!({}), &[("authorization", &header)]).await;
    assert_eq!(told.status, 401, "a program has none under way");
    scene.clock.advance(Duration::from_secs(31));
    assert_eq!((status(&scene, &mine).await, status(&scene, &next).await), (401, 200));
    mine = next;
    // A refused call refreshes nothing, and the cookies alone are no reason to.
    scene.clock.advance(Duration::from_secs(7 * 3600));
    let cookie = mine.cookie();
    let (refused, renewed) = send(&scene, "iam/self/whoAmI", json!({}), &[("cookie", &cookie)]).await;
    assert_eq!((refused.status, renewed), (401, None));
    let (_, renewed) = call(&scene, &mine, "iam/self/whoAmI", json!({})).await;
    mine = renewed.unwrap();
    scene.clock.advance(Duration::from_secs(7 * 3600));
    mine = call(&scene, &mine, "iam/self/whoAmI", json!({})).await.1.unwrap();
    assert_eq!(status(&scene, &mine).await, 200, "after 20 hours");
    scene.clock.advance(Duration::from_secs(4 * 3600));
    assert_eq!(status(&scene, &mine).await, 401, "a day after the login");
}
