//! compute/joinTokens: the table of the API at both edges, replays, pages, revocation.

use super::*;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};
use shared::token::{self, SecretDigest};
use std::time::Duration;

fn body() -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 3600})
}

/// The body with one field more; dots name members.
fn with(path: &str, value: Value) -> Value {
    let mut body = body();
    match path.split_once('.') {
        None => body[path] = value,
        Some((outer, inner)) => body[outer] = json!({inner: value}),
    }
    body
}

/// The fields that are named as bad, each once: some break two rules.
async fn bad_fields(desk: &Desk, body: Value) -> Vec<String> {
    let mut fields: Vec<String> = match desk.ask(&root(), "compute.joinTokens.create", body).await {
        Ok(_) => Vec::new(),
        Err(problem) if problem.code == InvalidInput => {
            problem.errors.into_iter().map(|error| error.field).collect()
        }
        Err(problem) => vec![problem.to_string()],
    };
    fields.dedup();
    fields
}

/// Path, values that are taken, values that are refused, as JSON; `@7@` is seven letters.
#[rustfmt::skip]
const EDGES: &[(&str, &str, &str)] = &[
    ("maxUses", r#"[1, 10000, null]"#, r#"[0, 10001, -1, 1.5, "1"]"#),
    ("ttlSeconds", r#"[60, 86400]"#, r#"[59, 86401, 60.5, 60.0, "60", null]"#),
    ("allowReclaim", r#"[true, false, null]"#, r#"[1, "true"]"#),
    ("hosted", r#"["kubernetes", null]"#, r#"["Kubernetes", "nomad", ""]"#),
    ("expect", r#"[null]"#, r#"[{}, [], {"serial": null}, "x"]"#),
    ("expect.productUuid", r#"["12345678", "@64@", "4C4C4544-0043-3010-8052-b4c04f4e3132"]"#,
        r#"["1234567", "@65@", "4C4C4544_0043", "12345678\n", ""]"#),
    ("expect.serial", r#"["5", "@128@", "A._:/+-9"]"#, r#"["", "@129@", "a b", "a\n", "é"]"#),
    ("expect.mac", r#"["00:1a:2B:3c:4d:5E"]"#,
        r#"["00:1a:2b:3c:4d", "00:1a:2b:3c:4d:5e:6f", "00-1a-2b-3c-4d-5e", "00:1a:2b:3c:4d:5e\n"]"#),
    ("expect.gpuUuid", r#"["GPU-12345678", "GPU-@64@"]"#,
        r#"["GPU-1234567", "GPU-@65@", "gpu-12345678", "GPU-12345678\n"]"#),
    ("expect.ekSha256", r#"["@64@"]"#, r#"["@63@", "@65@", "@63@A", "@63@g"]"#),
    ("expect.colour", r#"[]"#, r#"["red"]"#),
    ("idempotencyKey", r#"["@1@", "@128@", "A9._~:/+=-"]"#, r#"["", "@129@", "a b", "a\n"]"#),
    ("tenantId", r#"[]"#, r#"["", "@129@", "a/b", "acme\n", null]"#),
    ("poolId", r#"[]"#, r#"["", "@129@", "-a", "gpu-a\n", null]"#),
    ("maxuses", r#"[]"#, r#"[1]"#),
];

fn values(text: &str) -> Vec<Value> {
    let expanded = [1, 63, 64, 65, 128, 129]
        .into_iter()
        .fold(text.to_owned(), |text, count| text.replace(&format!("@{count}@"), &"a".repeat(count)));
    serde_json::from_str(&expanded).unwrap()
}

#[tokio::test]
async fn every_constraint_holds_at_both_edges() {
    at_a_desk(async |desk| {
        for (path, good, bad) in EDGES {
            for value in values(good) {
                assert_eq!(bad_fields(&desk, with(path, value.clone())).await, [""; 0], "{path} {value}");
            }
            for value in values(bad) {
                // `null` is absent: an emptied `expect` is named as such.
                assert_eq!(bad_fields(&desk, with(path, value.clone())).await, [*path], "{path} {value}");
            }
        }
        let a = |count| json!("a".repeat(count));
        // The longest names are not wrong, only absent.
        assert_eq!(
            desk.code(&root(), "compute.joinTokens.create", with("tenantId", a(128))).await,
            Some(NotFound)
        );
        assert_eq!(
            desk.code(&root(), "compute.joinTokens.create", with("poolId", a(128))).await,
            Some(NotFound)
        );
        let mut many = with("expect", json!({"mac": "1", "serial": "to-be-filled-by-oem", "x": 1}));
        many["ttlSeconds"] = json!(1);
        assert_eq!(bad_fields(&desk, many).await, ["expect.mac", "expect.x", "ttlSeconds"]);
    })
    .await;
}

#[tokio::test]
async fn a_vendors_default_is_invalid_as_a_pin() {
    at_a_desk(async |desk| {
        let pins = json!({"productUuid": "00000000-0000-0000-0000-000000000000", "serial": "Default-string"});
        assert_eq!(bad_fields(&desk, with("expect", pins)).await, ["expect.productUuid", "expect.serial"]);
        // Before it is looked whether the pool is there.
        let mut nowhere = with("expect", json!({"serial": "none"}));
        nowhere["poolId"] = json!("nowhere");
        assert_eq!(bad_fields(&desk, nowhere).await, ["expect.serial"]);
    })
    .await;
}

#[tokio::test]
async fn a_token_is_shown_once_and_kept_as_a_digest() {
    at_a_desk(async |desk| {
        let mut body = with("expect", json!({"serial": "SN1"}));
        body["hosted"] = json!("kubernetes");
        body["idempotencyKey"] = json!("k");
        let minted = desk.good(&root(), "compute.joinTokens.create", body.clone()).await;
        let bearer = minted["token"].as_str().unwrap().to_owned();
        let token = token::JoinToken::parse(&bearer).ok().unwrap();
        let record = &minted["joinToken"];
        assert_eq!(record["id"], token.id.as_str());
        assert_eq!(token.id.as_str().len(), 3 + 52);
        assert_eq!(
            *record,
            json!({
                "id": token.id, "tenantId": "acme", "poolId": "gpu-a", "role": "node", "maxUses": 1, "uses": 0,
                "pending": 0, "expect": {"serial": "SN1"}, "allowReclaim": false, "hosted": "kubernetes",
                "createdAt": "2026-01-02T03:04:05.678Z", "createdBy": root().subject,
                "expiresAt": "2026-01-02T04:04:05.678Z"
            })
        );
        assert_eq!(desk.events().await, [("security.join-token.created".into(), token.id.to_string())]);
        assert_eq!(desk.last_event().await, json!({"poolId": "gpu-a", "pinned": true, "hosted": "kubernetes"}));
        let row = desk.relay.store.read("row", (), |tx, ()| {
            Box::pin(tx.fetch_one("SELECT secret_sha256 FROM join_tokens", &[]))
        });
        assert_eq!(row.await.unwrap().text("secret_sha256").unwrap(), SecretDigest::of(&token.secret).to_hex());
        // A retry has the record and no token; what is compared is pool, pins and rights, not uses and lifetime.
        let replay = json!({"joinToken": record});
        for (field, value, code) in [
            ("maxUses", json!(7), None),
            ("ttlSeconds", json!(60), None),
            ("allowReclaim", json!(false), None),
            ("allowReclaim", json!(true), Some(Conflict)),
            ("hosted", json!(null), Some(Conflict)),
            ("expect", json!(null), Some(Conflict)),
            ("expect", json!({"serial": "SN2"}), Some(Conflict)),
            ("expect", json!({"serial": "SN1", "mac": "00:1a:2b:3c:4d:5e"}), Some(Conflict)),
            ("poolId", json!("own"), Some(Conflict)),
        ] {
            let mut again = body.clone();
            again[field] = value;
            match desk.ask(&root(), "compute.joinTokens.create", again).await {
                Ok(answer) => assert_eq!((code, &answer), (None, &replay), "{field}"),
                Err(problem) => assert_eq!(Some(problem.code), code, "{field}"),
            }
        }
        // Without a new decision, by whichever credential of the subject; another subject's key is another token.
        let demoted = who(&root().subject, "provider", Vec::new());
        assert_eq!(desk.good(&demoted, "compute.joinTokens.create", body.clone()).await, replay);
        let other = desk.good(&member("acme", Editor), "compute.joinTokens.create", body).await;
        assert_ne!(other["joinToken"]["id"], record["id"]);
        assert_eq!(desk.events().await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn equal_requests_at_once_mint_one_token() {
    at_a_desk(async |desk| {
        let body = with("idempotencyKey", json!("k"));
        let root = root();
        let all = (0..8).map(|_| desk.good(&root, "compute.joinTokens.create", body.clone()));
        let answers = futures_util::future::join_all(all).await;
        assert_eq!(answers.iter().filter(|answer| answer.get("token").is_some()).count(), 1);
        assert!(answers.iter().all(|answer| answer["joinToken"] == answers[0]["joinToken"]));
        assert_eq!(desk.events().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn who_mints_lists_and_revokes() {
    at_a_desk(async |desk| {
        let id = desk.good(&root(), "compute.joinTokens.create", body()).await["joinToken"]["id"].clone();
        for (caller, read, write) in [
            (root(), None, None),
            (auditor(), None, Some(PermissionDenied)),
            (member("acme", Editor), None, None),
            (member("acme", Viewer), None, Some(PermissionDenied)),
            (member("acme", Guest), Some(NotFound), Some(NotFound)),
            (project_member("ml", ProjectRole::Editor), None, None),
            (project_member("ml", ProjectRole::Viewer), None, Some(PermissionDenied)),
            (project_member("web", ProjectRole::Owner), Some(NotFound), Some(NotFound)),
            // The site's owner sees the pool, and has no say about its tokens.
            (member("provider", Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (member("other", Owner), Some(NotFound), Some(NotFound)),
            (stranger(), Some(NotFound), Some(NotFound)),
        ] {
            let name = &caller.subject;
            let list = json!({"tenantId": "acme", "poolId": "gpu-a"});
            let revoke = json!({"tenantId": "acme", "poolId": "gpu-a", "tokenId": id});
            assert_eq!(desk.code(&caller, "compute.joinTokens.create", body()).await, write, "{name}");
            assert_eq!(desk.code(&caller, "compute.joinTokens.list", list).await, read, "{name}");
            assert_eq!(desk.code(&caller, "compute.joinTokens.revoke", revoke).await, write, "{name}");
            // The pool is not that tenant's.
            let foreign = with("tenantId", json!("other"));
            assert_eq!(
                desk.code(&caller, "compute.joinTokens.create", foreign).await,
                Some(NotFound),
                "{name}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_pool_without_bcd_mints_nothing() {
    at_a_desk(async |desk| {
        let pool = json!({"poolId": "bare", "tenantId": "acme", "siteId": "barn", "agent": "none"});
        desk.good(&root(), "compute.pools.create", pool).await;
        let bare = with("poolId", json!("bare"));
        assert_eq!(desk.code(&root(), "compute.joinTokens.create", bare.clone()).await, Some(InvalidState));
        assert_eq!(
            desk.code(&member("acme", Viewer), "compute.joinTokens.create", bare).await,
            Some(PermissionDenied)
        );
    })
    .await;
}

#[tokio::test]
async fn lists_show_live_tokens_and_page() {
    at_a_desk(async |desk| {
        let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
        let mut ids = Vec::new();
        for ttl in [60, 3600, 3600, 3600] {
            let minted =
                desk.good(&root(), "compute.joinTokens.create", with("ttlSeconds", json!(ttl))).await;
            ids.push(minted["joinToken"]["id"].as_str().unwrap().to_owned());
        }
        let mut revoke = pool.clone();
        revoke["tokenId"] = json!(ids[1]);
        desk.good(&root(), "compute.joinTokens.revoke", revoke).await;
        let id = ids[2].clone();
        desk.relay
            .store
            .transact("use up", id, |tx, id| {
                Box::pin(async move {
                    tx.execute("UPDATE join_tokens SET uses = 1 WHERE id = $1", &[id.into()]).await
                })
            })
            .await
            .unwrap();
        let listed = async |inactive: bool, limit: u32| {
            let mut list = pool.clone();
            list["includeInactive"] = json!(inactive);
            list["limit"] = json!(limit);
            desk.pages(&root(), "compute.joinTokens.list", list, ("joinTokens", "id")).await
        };
        let sorted = |mut ids: Vec<String>| {
            ids.sort();
            ids
        };
        // Expiry is exact: at its end a token is no more.
        for (advance, live) in [(0, vec![0, 3]), (59, vec![0, 3]), (1, vec![3]), (3540, vec![])] {
            desk.clock.advance(Duration::from_secs(advance));
            let live = sorted(live.into_iter().map(|at: usize| ids[at].clone()).collect());
            for limit in [1, 2, 200] {
                assert_eq!(listed(false, limit).await, live);
                assert_eq!(listed(true, limit).await, sorted(ids.clone()));
            }
        }
        let all = desk
            .good(
                &root(),
                "compute.joinTokens.list",
                json!({"tenantId": "acme", "poolId": "gpu-a", "includeInactive": true}),
            )
            .await;
        assert!(!all.to_string().contains("secret"), "{all}");
        for cursor in ["jt_", "nd_0123456789abcdefghjkmnpqrs", "x"] {
            let list = json!({"tenantId": "acme", "poolId": "gpu-a", "cursor": cursor});
            assert_eq!(
                desk.code(&root(), "compute.joinTokens.list", list).await,
                Some(InvalidInput),
                "{cursor}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn a_revocation_counts_once() {
    at_a_desk(async |desk| {
        let minted = desk.good(&root(), "compute.joinTokens.create", body()).await;
        let id = minted["joinToken"]["id"].clone();
        let revoke = json!({"tenantId": "acme", "poolId": "gpu-a", "tokenId": id});
        desk.clock.advance(Duration::from_millis(5));
        let revoked = desk.good(&member("acme", Editor), "compute.joinTokens.revoke", revoke.clone()).await;
        assert_eq!(revoked["joinToken"]["revokedAt"], "2026-01-02T03:04:05.683Z");
        desk.clock.advance(Duration::from_secs(1));
        assert_eq!(desk.good(&root(), "compute.joinTokens.revoke", revoke.clone()).await, revoked);
        let kinds: Vec<String> = desk.events().await.into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["security.join-token.created", "security.join-token.revoked"]);
        for (field, value) in
            [("poolId", "own"), ("tenantId", "provider"), ("tokenId", "jt_0123456789abcdefghjkmnpqrs")]
        {
            let mut other = revoke.clone();
            other[field] = json!(value);
            assert_eq!(
                desk.code(&root(), "compute.joinTokens.revoke", other).await,
                Some(NotFound),
                "{field}"
            );
        }
        let elsewhere = json!({"tenantId": "provider", "poolId": "own", "tokenId": id});
        assert_eq!(desk.code(&root(), "compute.joinTokens.revoke", elsewhere).await, Some(NotFound));
    })
    .await;
}
