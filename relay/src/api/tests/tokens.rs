//! Tokens: what they hold, whom they act for, when they end.

use super::{
    people::{altered, created},
    *,
};
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied, Unauthenticated};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use std::time::Duration;

fn mint() -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 600})
}

fn pool() -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a"})
}

/// Behaviours 10, 40: a token says whom it acts for and until when, and nothing of what it may do.
#[tokio::test]
async fn a_token_says_nothing_of_what_it_may() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        let (_, api) =
            desk.api_token(&ada, json!({"tenantRoles": [{"tenantId": "acme", "role": "OWNER"}]})).await;
        for (bearer, word) in [(&ada, "USER"), (&api, "API")] {
            let mut parts = bearer.split('.').map(|part| URL_SAFE_NO_PAD.decode(part).unwrap());
            let mut json = || serde_json::from_slice::<Value>(&parts.next().unwrap()).unwrap();
            let (head, claims) = (json(), json());
            assert_eq!((&head["alg"], &head["typ"]), (&json!("ES256"), &json!("JWT")));
            let mut names: Vec<&str> = claims.as_object().unwrap().keys().map(String::as_str).collect();
            names.sort_unstable();
            assert_eq!(names, ["aud", "exp", "iat", "iss", "jti", "nbf", "sub", "typ"]);
            assert_eq!((&claims["sub"], &claims["typ"]), (&json!("ada"), &json!(word)));
        }
    })
    .await;
}

/// Behaviours 3, 4, 5, 41, 42: a user's token is what its user holds at that moment.
#[tokio::test]
async fn a_users_token_follows_its_memberships_at_the_next_request() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        for own in ["iam.self.whoAmI", "iam.self.permissions", "iam.tokens.list", "compute.sites.list"] {
            assert_eq!(desk.refusal(&ada, own, json!({})).await, None, "{own}");
        }
        assert_eq!(desk.refusal(&ada, "compute.joinTokens.create", mint()).await, Some(NotFound));
        desk.member_of("acme", "ada", "EDITOR").await;
        assert_eq!(desk.refusal(&ada, "compute.joinTokens.create", mint()).await, None);
        let permissions = desk.done(&ada, "iam.self.permissions", json!({})).await.to_string();
        assert!(permissions.contains("tenant/acme") && permissions.contains("compute:join-tokens:create"));
        let demoted = json!({"tenantId": "acme", "memberId": "ada", "role": "VIEWER"});
        desk.good(&root(), "iam.members.update", demoted).await;
        assert_eq!(desk.refusal(&ada, "compute.joinTokens.create", mint()).await, Some(PermissionDenied));
        desk.good(&root(), "iam.members.remove", json!({"tenantId": "acme", "memberId": "ada"})).await;
        assert_eq!(desk.refusal(&ada, "compute.pools.get", pool()).await, Some(NotFound));
    })
    .await;
}

/// Behaviours 6, 43, 44, 45, 46, 62: a token holds what it was given, as far as its owner holds it now.
#[tokio::test]
async fn an_api_token_may_what_it_holds_and_its_owner_holds() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        let single = json!({"permissions": [{"subject": "compute-pool/gpu-a", "actions": ["compute:join-tokens:create"]}]});
        let (_, single) = desk.api_token(&ada, single).await;
        let (_, role) = desk.api_token(&ada, json!({"tenantRoles": [{"tenantId": "acme", "role": "EDITOR"}]})).await;
        assert_eq!(desk.refusal(&single, "compute.joinTokens.create", mint()).await, None);
        for (method, body) in [
            ("compute.pools.get", pool()),
            ("compute.joinTokens.list", pool()),
            ("iam.tokens.list", json!({})),
            ("iam.tokens.refresh", json!({})),
        ] {
            assert_eq!(desk.refusal(&single, method, body).await, Some(PermissionDenied), "{method}");
        }
        assert_eq!(desk.refusal(&single, "iam.tenants.get", json!({"tenantId": "acme"})).await, Some(NotFound));
        assert_eq!(desk.refusal(&role, "compute.joinTokens.create", mint()).await, None);
        // A role, and the list of its actions, decide alike.
        let held = desk.done(&role, "iam.self.permissions", json!({})).await["permissions"].clone();
        let of_acme = held.as_array().unwrap().iter().find(|of| of["subject"] == "tenant/acme").unwrap().clone();
        let (_, listed) = desk.api_token(&ada, json!({"permissions": [of_acme]})).await;
        for (method, body) in every_read_and_some_changes() {
            let with = async |bearer: &str| desk.refusal(bearer, method, body.clone()).await;
            assert_eq!(with(&role).await, with(&listed).await, "{method}");
        }
        let demoted = json!({"tenantId": "acme", "memberId": "ada", "role": "VIEWER"});
        desk.login("bob").await;
        desk.member_of("acme", "bob", "OWNER").await;
        desk.good(&root(), "iam.members.update", demoted).await;
        for bearer in [&single, &role] {
            assert_eq!(desk.refusal(bearer, "compute.joinTokens.create", mint()).await, Some(PermissionDenied));
        }
        assert_eq!(desk.refusal(&role, "compute.pools.get", pool()).await, None);
        desk.good(&root(), "iam.members.remove", json!({"tenantId": "acme", "memberId": "ada"})).await;
        assert_eq!(desk.refusal(&role, "compute.pools.get", pool()).await, Some(NotFound));
    })
    .await;
}

fn every_read_and_some_changes() -> Vec<(&'static str, Value)> {
    let tenant = json!({"tenantId": "acme"});
    vec![
        ("iam.tenants.get", tenant.clone()),
        ("iam.tenants.update", json!({"tenantId": "acme", "displayName": "A"})),
        ("iam.projects.list", tenant.clone()),
        ("iam.projects.get", json!({"tenantId": "acme", "projectId": "ml"})),
        ("iam.members.list", tenant.clone()),
        ("iam.invites.list", tenant.clone()),
        ("compute.pools.list", tenant),
        ("compute.pools.get", pool()),
        ("compute.pools.update", json!({"tenantId": "acme", "poolId": "gpu-a", "policy": {}})),
        ("compute.joinTokens.create", mint()),
        ("compute.joinTokens.list", pool()),
        ("compute.nodes.list", pool()),
        ("compute.secrets.list", pool()),
        ("compute.sites.create", json!({"siteId": "s", "ownerTenantId": "acme", "custom": true})),
    ]
}

/// Behaviours 47, 54, 55, 56, 59: nothing beyond the token that asks, nor beyond its user.
#[tokio::test]
async fn no_token_is_made_beyond_its_maker() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        let roles = |tenant: &str, role: &str| json!({"tenantRoles": [{"tenantId": tenant, "role": role}]});
        let make = async |bearer: &str, rights: Value| {
            let mut body = json!({"description": "d"});
            body.as_object_mut().unwrap().extend(rights.as_object().unwrap().clone());
            desk.refusal(bearer, "iam.tokens.create", body).await
        };
        for wrong in [
            roles("acme", "BOSS"),
            json!({"permissions": [{"subject": "tenant/acme", "actions": ["compute:pools:fly"]}]}),
            json!({"permissions": [{"subject": "pool/x", "actions": ["compute:pools:read"]}]}),
            json!({"permissions": [{"subject": "tenant/acme", "actions": []}]}),
            json!({"adminrole": "EDITOR"}),
            json!({}),
        ] {
            assert_eq!(make(&ada, wrong.clone()).await, Some(InvalidInput), "{wrong}");
        }
        for beyond in [
            roles("other", "GUEST"),
            json!({"adminRole": "VIEWER"}),
            json!({"infraRoles": [{"siteId": "default", "role": "VIEWER"}]}),
            json!({"projectRoles": [{"tenantId": "other", "projectId": "default", "role": "VIEWER"}]}),
            json!({"permissions": [{"subject": "platform", "actions": ["admin:tokens:read"]}]}),
            json!({"permissions": [{"subject": "compute-pool/own", "actions": ["compute:pools:read"]}]}),
            json!({"permissions": [{"subject": "compute-pool/none", "actions": ["compute:pools:read"]}]}),
        ] {
            assert_eq!(make(&ada, beyond.clone()).await, Some(PermissionDenied), "{beyond}");
        }
        let mut maker = roles("acme", "VIEWER");
        maker["permissions"] = json!([{"subject": "self", "actions": ["iam:tokens:create"]}]);
        let (_, maker) = desk.api_token(&ada, maker).await;
        assert_eq!(make(&maker, roles("acme", "OWNER")).await, Some(PermissionDenied));
        assert_eq!(
            make(&maker, roles("*", "VIEWER")).await,
            Some(PermissionDenied),
            "it holds one tenant only"
        );
        assert_eq!(make(&maker, roles("acme", "VIEWER")).await, None);
        assert_eq!(make(&ada, roles("*", "OWNER")).await, None);
        let mut stale = roles("acme", "OWNER");
        stale["permissions"] = json!([{"subject": "self", "actions": ["iam:tokens:create"]}]);
        let (_, stale) = desk.api_token(&ada, stale).await;
        desk.login("bob").await;
        desk.member_of("acme", "bob", "OWNER").await;
        let demoted = json!({"tenantId": "acme", "memberId": "ada", "role": "VIEWER"});
        desk.good(&root(), "iam.members.update", demoted).await;
        assert_eq!(make(&stale, roles("acme", "EDITOR")).await, Some(PermissionDenied));
        assert_eq!(make(&stale, roles("acme", "VIEWER")).await, None);
    })
    .await;
}

/// Behaviours 48, 49, 50, 60, 61: every way in which a token doesn't count has one answer.
#[tokio::test]
async fn a_token_that_is_not_whole_in_time_or_known_is_none() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        let rights = json!({"permissions": [{"subject": "self", "actions": ["iam:tokens:read"]}]});
        let (id, api) = desk.api_token(&ada, rights.clone()).await;
        let (_, sibling) = desk.api_token(&ada, rights).await;
        let who = async |bearer: &str| desk.refusal(bearer, "iam.self.whoAmI", json!({})).await;
        assert_eq!(who(&api).await, None);
        let (head, signature) = api.rsplit_once('.').unwrap();
        for wrong in [
            altered(&api),
            format!("{head}."),
            head.to_owned(),
            format!("{api}.x"),
            format!("{}.{signature}", sibling.rsplit_once('.').unwrap().0),
            "x.y.z".to_owned(),
            "a".repeat(5000),
            String::new(),
            unsigned(&api),
        ] {
            assert_eq!(who(&wrong).await, Some(Unauthenticated), "{wrong:.40}");
        }
        let revoked = desk.done(&ada, "iam.tokens.revoke", json!({"tokenId": id})).await;
        assert_eq!(revoked["token"]["id"], json!(id));
        assert_eq!(who(&api).await, Some(Unauthenticated));
        assert_eq!(who(&sibling).await, None);
        desk.relay
            .store
            .transact("forget", (), |tx, ()| Box::pin(tx.execute("DELETE FROM credentials", &[])))
            .await
            .unwrap();
        assert_eq!(who(&sibling).await, Some(Unauthenticated), "a signature alone is nothing");
        let late = desk.login("ada").await;
        desk.clock.advance(Duration::from_secs(8 * 3600));
        assert_eq!(who(&late).await, Some(Unauthenticated));
    })
    .await;
}

/// The token with `alg: none` and no signature.
fn unsigned(bearer: &str) -> String {
    let mut parts = bearer.split('.');
    let head: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts.next().unwrap()).unwrap()).unwrap();
    let none = json!({"alg": "none", "typ": "JWT", "kid": head["kid"]});
    format!("{}.{}.", URL_SAFE_NO_PAD.encode(none.to_string()), parts.next().unwrap())
}

/// Behaviours 51, 52, 53, 89, 91.
#[tokio::test]
async fn a_token_is_described_without_its_secret() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        let body = json!({
            "description": "ci", "expiresInSeconds": 28_800, "labels": {"team": "infra"}, "idempotencyKey": "k",
            "tenantRoles": [{"tenantId": "ada", "role": "VIEWER"}],
        });
        let made = desk.done(&ada, "iam.tokens.create", body.clone()).await;
        let (id, secret) = created(&made);
        let again = desk.done(&ada, "iam.tokens.create", body.clone()).await;
        assert_eq!((&again["token"], again.get("secret")), (&made["token"], None));
        let mut other = body;
        other["description"] = json!("other");
        assert_eq!(desk.refusal(&ada, "iam.tokens.create", other).await, Some(Conflict));
        let shown = desk.done(&ada, "iam.tokens.get", json!({"tokenId": id})).await;
        assert_eq!(shown["token"], made["token"]);
        let token = &shown["token"];
        assert_eq!((&token["type"], &token["subject"], &token["createdBy"]), (&json!("API"), &json!("ada"), &json!("ada")));
        assert_eq!((&token["labels"]["team"], &token["tenantRoles"][0]["role"]), (&json!("infra"), &json!("VIEWER")));
        let time = |name: &str| Timestamp::parse(token[name].as_str().unwrap()).unwrap().seconds();
        assert_eq!(time("expiresAt") - time("createdAt"), 28_800);
        let everything = desk.done(&ada, "iam.tokens.list", json!({})).await.to_string() + &shown.to_string();
        assert!(!everything.contains(&secret) && !everything.contains(secret.rsplit_once('.').unwrap().1));
        for seconds in [599, 31_536_001] {
            let body = json!({"description": "d", "expiresInSeconds": seconds, "tenantRoles": [{"tenantId": "ada", "role": "VIEWER"}]});
            assert_eq!(desk.refusal(&ada, "iam.tokens.create", body).await, Some(InvalidInput), "{seconds}");
        }
        let bob = desk.login("bob").await;
        assert_eq!(desk.refusal(&bob, "iam.tokens.get", json!({"tokenId": id})).await, Some(NotFound));
        assert_eq!(desk.refusal(&bob, "iam.tokens.revoke", json!({"tokenId": id})).await, Some(NotFound));
    })
    .await;
}

/// Behaviours 57, 58.
#[tokio::test]
async fn an_update_narrows_at_the_next_request_and_never_widens_beyond_its_maker() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        let mut rights = json!({"tenantRoles": [{"tenantId": "acme", "role": "EDITOR"}]});
        rights["permissions"] =
            json!([{"subject": "self", "actions": ["iam:tokens:update", "iam:tokens:read"]}]);
        let (id, api) = desk.api_token(&ada, rights).await;
        let update = |rights: Value| {
            let mut body = json!({"tokenId": id});
            body.as_object_mut().unwrap().extend(rights.as_object().unwrap().clone());
            body
        };
        let before = desk.done(&ada, "iam.tokens.get", json!({"tokenId": id})).await;
        let wide = update(json!({"tenantRoles": [{"tenantId": "acme", "role": "OWNER"}]}));
        assert_eq!(desk.refusal(&api, "iam.tokens.update", wide).await, Some(PermissionDenied));
        assert_eq!(desk.done(&ada, "iam.tokens.get", json!({"tokenId": id})).await, before);
        assert_eq!(desk.refusal(&api, "compute.joinTokens.create", mint()).await, None);
        let narrow = update(json!({"tenantRoles": [{"tenantId": "acme", "role": "VIEWER"}]}));
        desk.done(&ada, "iam.tokens.update", narrow).await;
        assert_eq!(desk.refusal(&api, "compute.joinTokens.create", mint()).await, Some(PermissionDenied));
        assert_eq!(desk.refusal(&api, "compute.pools.get", pool()).await, None);
        desk.done(&ada, "iam.tokens.update", update(json!({"description": "renamed"}))).await;
        assert_eq!(desk.refusal(&api, "compute.pools.get", pool()).await, None);
    })
    .await;
}

/// Behaviours 96, 97, 98: the same again; the old one ends when the new one is first used.
#[tokio::test]
async fn a_refresh_gives_the_same_and_ends_the_old_at_first_use() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        let rights = json!({"permissions": [{"subject": "self", "actions": ["iam:tokens:refresh"]}]});
        let (old_id, old) = desk.api_token(&ada, rights).await;
        desk.clock.advance(Duration::from_secs(6 * 3600));
        let made = desk.done(&old, "iam.tokens.refresh", json!({})).await;
        let lost = created(&desk.done(&old, "iam.tokens.refresh", json!({})).await).1;
        let (new_id, new) = created(&made);
        assert_ne!(new_id, old_id);
        let token = &made["token"];
        assert_eq!(token["permissions"][0]["actions"], json!(["iam:tokens:refresh"]));
        let time = |name: &str| Timestamp::parse(token[name].as_str().unwrap()).unwrap().seconds();
        assert_eq!(time("expiresAt") - time("createdAt"), 8 * 3600);
        let who = async |bearer: &str| desk.refusal(bearer, "iam.self.whoAmI", json!({})).await;
        assert_eq!((who(&old).await, who(&new).await), (None, None));
        assert_eq!((who(&old).await, who(&lost).await), (Some(Unauthenticated), Some(Unauthenticated)));
        // A login is over after a day, however often it is refreshed.
        let mut bearer = desk.login("bob").await;
        for hours in [7, 7, 7] {
            desk.clock.advance(Duration::from_secs(hours * 3600));
            bearer = created(&desk.done(&bearer, "iam.tokens.refresh", json!({})).await).1;
        }
        desk.clock.advance(Duration::from_secs(3 * 3600 - 1));
        assert_eq!(who(&bearer).await, None);
        assert_eq!(desk.refusal(&bearer, "iam.tokens.refresh", json!({})).await, Some(InvalidState));
        desk.clock.advance(Duration::from_secs(1));
        assert_eq!(who(&bearer).await, Some(Unauthenticated));
    })
    .await;
}

/// Behaviours 75, 76, 77, 83, 85: the admin role that was asked for counts as far as the provider's tenant gives it.
#[tokio::test]
async fn an_admin_role_is_asked_for_and_follows_the_providers_tenant() {
    at_a_desk(async |desk| {
        let everything = json!({});
        for (role, editor, viewer) in
            [("OWNER", true, true), ("EDITOR", false, true), ("VIEWER", false, true), ("GUEST", false, false)]
        {
            let user = format!("u-{role}");
            let plain = desk.login(&user).await;
            desk.member_of("provider", &user, role).await;
            let admin = desk.login_as(&user, Some(AdminRole::Editor)).await;
            let reads = desk.refusal(&admin, "admin.tokens.list", everything.clone()).await.is_none();
            let service = json!({"userId": format!("svc-{role}")});
            let changes = desk.refusal(&admin, "admin.users.create", service).await.is_none();
            assert_eq!((changes, reads), (editor, viewer), "{role}");
            assert_eq!(
                desk.refusal(&plain, "admin.tokens.list", everything.clone()).await,
                Some(PermissionDenied),
                "never by itself: {role}"
            );
        }
        let body = json!({"tenantId": "provider", "memberId": "u-OWNER"});
        let admin = desk.login_as("u-OWNER", Some(AdminRole::Editor)).await;
        desk.login("other-owner").await;
        desk.member_of("provider", "other-owner", "OWNER").await;
        desk.good(&root(), "iam.members.remove", body).await;
        assert_eq!(desk.refusal(&admin, "admin.tokens.list", everything).await, Some(PermissionDenied));
    })
    .await;
}

/// Behaviours 70, 87, 88, 90: a token for a service holds what the service holds, and says who made it.
#[tokio::test]
async fn an_admin_makes_tokens_for_a_service_within_what_it_holds() {
    at_a_desk(async |desk| {
        desk.good(&root(), "admin.users.create", json!({"userId": "worker"})).await;
        let rights = json!({"subject": "worker", "description": "d", "infraRoles": [{"siteId": "default", "role": "EDITOR"}]});
        assert_eq!(desk.code(&root(), "admin.tokens.create", rights.clone()).await, Some(PermissionDenied));
        let grant = json!({"userId": "worker", "siteId": "default", "role": "EDITOR"});
        desk.good(&root(), "admin.grants.put", grant).await;
        let made = desk.good(&root(), "admin.tokens.create", rights.clone()).await;
        let (id, bearer) = created(&made);
        assert_eq!((&made["token"]["subject"], &made["token"]["createdBy"]), (&json!("worker"), &json!("bootstrap:editor")));
        let ada = desk.login("ada").await;
        assert_eq!(desk.refusal(&ada, "admin.tokens.create", rights).await, Some(PermissionDenied));
        let shown = desk.ask(&auditor(), "admin.tokens.get", json!({"tokenId": id})).await.unwrap();
        assert_eq!(shown["token"], made["token"]);
        let permissions = desk.done(&bearer, "iam.self.permissions", json!({})).await;
        let of_site = permissions["permissions"].as_array().unwrap().iter().find(|of| of["subject"] == "site/default");
        assert_eq!(of_site.unwrap()["actions"], json!(["compute:sites:read", "infra:components:ping"]));
        assert_eq!(desk.refusal(&bearer, "admin.users.list", json!({})).await, Some(PermissionDenied));
        desk.good(&root(), "admin.grants.remove", json!({"userId": "worker", "siteId": "default"})).await;
        let permissions = desk.done(&bearer, "iam.self.permissions", json!({})).await;
        assert!(!permissions.to_string().contains("site/default"), "{permissions}");
        desk.good(&root(), "admin.tokens.revoke", json!({"tokenId": id})).await;
        assert_eq!(desk.refusal(&bearer, "iam.self.whoAmI", json!({})).await, Some(Unauthenticated));
        assert_eq!(desk.code(&root(), "admin.users.create", json!({"userId": "acme"})).await, Some(Conflict));
        for reserved in ["bootstrap-admin-editor", "provider"] {
            let user = json!({"userId": reserved});
            assert_eq!(desk.code(&root(), "admin.users.create", user).await, Some(Conflict), "{reserved}");
        }
    })
    .await;
}

/// Behaviour 99: a rotated key signs at once, and the old one verifies to the end of its tokens, on another relay too.
#[tokio::test]
async fn signing_keys_rotate_without_a_gap() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        let year = json!({"description": "d", "expiresInSeconds": 31_536_000, "tenantRoles": [{"tenantId": "ada", "role": "VIEWER"}]});
        let long = created(&desk.done(&ada, "iam.tokens.create", year).await).1;
        desk.clock.advance(Duration::from_secs(31 * 86_400));
        let new = desk.login("ada").await;
        let kid = |bearer: &str| URL_SAFE_NO_PAD.decode(bearer.split('.').next().unwrap()).unwrap();
        assert_ne!(kid(&long), kid(&new));
        let elsewhere = Desk::new(desk.relay.store.clone()).await;
        // The other relay has the same store and master key, and its own clock and keys in memory.
        elsewhere.clock.advance(Duration::from_secs(31 * 86_400));
        for bearer in [&long, &new] {
            assert_eq!(desk.refusal(bearer, "iam.self.whoAmI", json!({})).await, None);
            assert_eq!(elsewhere.refusal(bearer, "iam.self.whoAmI", json!({})).await, None);
        }
    })
    .await;
}

/// Whoever refreshed a token does not outlive its end, nor its narrowing; and a word about it changes nothing.
#[tokio::test]
async fn an_unused_successor_follows_its_predecessor() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        let rights = json!({
            "tenantRoles": [{"tenantId": "acme", "role": "OWNER"}],
            "permissions": [{"subject": "self", "actions": ["iam:tokens:refresh"]}],
        });
        let (id, old) = desk.api_token(&ada, rights.clone()).await;
        let thiefs = created(&desk.done(&old, "iam.tokens.refresh", json!({})).await).1;
        let narrow = json!({"tokenId": id, "tenantRoles": [{"tenantId": "acme", "role": "VIEWER"}]});
        desk.done(&ada, "iam.tokens.update", narrow).await;
        assert_eq!(desk.refusal(&old, "compute.pools.get", pool()).await, None);
        // Who refreshed it before has what it holds now, also where it is the only one that is left.
        assert_eq!(desk.refusal(&thiefs, "compute.joinTokens.create", mint()).await, Some(PermissionDenied));
        assert_eq!(desk.refusal(&thiefs, "compute.pools.get", pool()).await, None);

        let (id, old) = desk.api_token(&ada, rights).await;
        let thiefs = created(&desk.done(&old, "iam.tokens.refresh", json!({})).await).1;
        desk.done(&ada, "iam.tokens.revoke", json!({"tokenId": id})).await;
        for bearer in [&old, &thiefs] {
            assert_eq!(desk.refusal(bearer, "compute.pools.get", pool()).await, Some(Unauthenticated));
        }
    })
    .await;
}

/// A refresh is no way to a bucket of one's own, nor to more tokens than one may have, and is never refused for those before.
#[tokio::test]
async fn a_chain_of_refreshes_is_one_token() {
    at_a_desk(async |desk| {
        let chain = async |bearer: &str| {
            let via = crate::auth::tokens::Via::Header;
            let found = crate::auth::tokens::authenticate(&desk.relay, (bearer, via), desk.clock.now()).await;
            found.unwrap().map(|principal| principal.chain)
        };
        let first = desk.login("ada").await;
        let root = chain(&first).await.unwrap();
        assert_ne!(chain(&desk.login("ada").await).await, Some(root.clone()), "another login");
        let mut bearers = Vec::new();
        for _ in 0..12 {
            desk.clock.advance(Duration::from_millis(1));
            bearers.push(created(&desk.done(&first, "iam.tokens.refresh", json!({})).await).1);
        }
        let count = async |sql: &'static str| {
            let row = desk.relay.store.read("test", (), |tx, ()| Box::pin(tx.fetch_one(sql, &[])));
            row.await.unwrap().integer("n").unwrap()
        };
        assert_eq!(count("SELECT COUNT(*) AS n FROM credentials WHERE predecessor IS NOT NULL").await, 8);
        let counted = desk.relay.store.read("test", desk.clock.now(), |tx, now| {
            Box::pin(crate::store::credentials::count(tx, "ada", *now))
        });
        let counted: Result<i64, crate::store::StoreError> = counted.await;
        assert_eq!(counted.unwrap(), 2);
        assert_eq!(chain(&bearers[0]).await, None, "the oldest of those that nobody used");
        assert_eq!(chain(&bearers[11]).await, Some(root.clone()));
        let third = created(&desk.done(&bearers[11], "iam.tokens.refresh", json!({})).await).1;
        assert_eq!(chain(&third).await, Some(root));
    })
    .await;
}

/// Behaviour 54, on a pool of one tenant at the site of another; and what is made by a token of single actions counts.
#[tokio::test]
async fn a_token_on_a_pool_holds_nothing_that_its_maker_lacks_there() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        desk.member_of("provider", "ada", "OWNER").await;
        let own = json!({"subject": "self", "actions": ["iam:tokens:create"]});
        let of_acme = json!({"tenantRoles": [{"tenantId": "acme", "role": "OWNER"}], "permissions": [own]});
        let (_, narrow) = desk.api_token(&ada, of_acme).await;
        let on_pool = |action: &str| {
            json!({"description": "x", "permissions": [{"subject": "compute-pool/gpu-a", "actions": [action]}]})
        };
        for (action, lacks) in [
            // The site's owner decides on these, and the token is of the pool's tenant alone.
            ("compute:pools:update", true),
            ("compute:secrets:put", true),
            ("compute:inventory:put", true),
            // A tenant mints, and the site's owner approves by the same action.
            ("compute:join-tokens:create", true),
            ("compute:nodes:ban", false),
        ] {
            let refused = desk.refusal(&narrow, "iam.tokens.create", on_pool(action)).await;
            assert_eq!(refused, lacks.then_some(PermissionDenied), "{action}");
            assert_eq!(desk.refusal(&ada, "iam.tokens.create", on_pool(action)).await, None, "{action}");
        }
        let zoe = desk.login("zoe").await;
        desk.member_of("acme", "zoe", "EDITOR").await;
        assert_eq!(desk.refusal(&zoe, "iam.tokens.create", on_pool("compute:join-tokens:create")).await, None);
        assert_eq!(desk.refusal(&zoe, "iam.tokens.create", on_pool("compute:pools:update")).await, Some(PermissionDenied));
    })
    .await;
}
