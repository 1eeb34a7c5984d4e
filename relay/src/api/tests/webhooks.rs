//! iam/webhooks: its tenant's OWNER decides, its secret is shown once and is nowhere else.

use super::*;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};

fn hook() -> Value {
    json!({"tenantId": "acme", "url": "https://hooks.example.org/x", "types": ["security.node.*"]})
}

#[tokio::test]
async fn the_tenants_owner_decides() {
    at_a_desk(async |desk| {
        let made = desk.good(&root(), "iam.webhooks.create", hook()).await;
        let one = json!({"tenantId": "acme", "webhookId": made["webhook"]["id"]});
        for (caller, read, write) in [
            (root(), None, None),
            (auditor(), None, Some(PermissionDenied)),
            (member("acme", Owner), None, None),
            (member("acme", Editor), Some(PermissionDenied), Some(PermissionDenied)),
            (member("acme", Viewer), Some(PermissionDenied), Some(PermissionDenied)),
            (member("acme", Guest), Some(PermissionDenied), Some(PermissionDenied)),
            (project_member("ml", ProjectRole::Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (member("other", Owner), Some(NotFound), Some(NotFound)),
        ] {
            let name = &caller.subject;
            assert_eq!(
                desk.code(&caller, "iam.webhooks.list", json!({"tenantId": "acme"})).await,
                read,
                "{name}"
            );
            assert_eq!(desk.code(&caller, "iam.webhooks.create", hook()).await, write, "{name}");
            assert_eq!(desk.code(&caller, "iam.webhooks.update", one.clone()).await, write, "{name}");
        }
        // By another tenant it is not found, whoever asks.
        let mut others = one.clone();
        others["tenantId"] = json!("other");
        for method in ["iam.webhooks.update", "iam.webhooks.delete"] {
            assert_eq!(desk.code(&root(), method, others.clone()).await, Some(NotFound), "{method}");
        }
        desk.good(&member("acme", Owner), "iam.webhooks.delete", one.clone()).await;
        assert_eq!(desk.code(&root(), "iam.webhooks.delete", one).await, Some(NotFound));
    })
    .await;
}

#[tokio::test]
async fn where_it_leads_and_what_it_is_told_is_judged_by_field() {
    at_a_desk(async |desk| {
        let many: Vec<String> = vec!["*".to_owned(); 33];
        for (field, value, bad) in [
            ("url", json!("http://hooks.example.org"), "url"),
            ("url", json!("https://u:p@hooks.example.org"), "url"),
            ("url", json!("https://127.0.0.1/"), "url"),
            ("url", json!("https://0x7f.1/"), "url"),
            ("url", json!("https://[::ffff:10.0.0.1]/"), "url"),
            ("url", json!("https://169.254.169.254/"), "url"),
            ("url", json!(format!("https://hooks.example.org/{}", "x".repeat(1_000))), "url"),
            ("types", json!([]), "types"),
            ("types", json!(many), "types"),
            ("types", json!(["*", "security.nodes.*"]), "types.1"),
            ("types", json!(["security.node.join"]), "types.0"),
            ("types", json!(["Security.*"]), "types.0"),
        ] {
            let mut input = hook();
            input[field] = value.clone();
            let refused = desk.ask(&root(), "iam.webhooks.create", input).await.unwrap_err();
            assert_eq!((refused.code, refused.errors[0].field.as_str()), (InvalidInput, bad), "{value}");
        }
        for types in
            [json!(["*"]), json!(["security.*", "iam.token.created"]), json!(["infra.webhook.disabled"])]
        {
            let mut input = hook();
            input["types"] = types;
            desk.good(&root(), "iam.webhooks.create", input).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_retry_is_the_same_webhook_without_its_secret() {
    at_a_desk(async |desk| {
        let mut input = hook();
        input["idempotencyKey"] = json!("k");
        let made = desk.good(&root(), "iam.webhooks.create", input.clone()).await;
        assert!(made["secret"].as_str().unwrap().starts_with("whsec_"));
        let again = desk.good(&root(), "iam.webhooks.create", input.clone()).await;
        assert_eq!((&again["webhook"], again.get("secret")), (&made["webhook"], None));
        input["types"] = json!(["*"]);
        assert_eq!(desk.code(&root(), "iam.webhooks.create", input).await, Some(Conflict));
    })
    .await;
}

#[tokio::test]
async fn a_tenant_has_twenty_whoever_is_first_and_none_when_it_is_deleted() {
    at_a_desk(async |desk| {
        for _ in 0..16 {
            desk.good(&root(), "iam.webhooks.create", hook()).await;
        }
        let root = root();
        let more = (0..8).map(|_| desk.ask(&root, "iam.webhooks.create", hook()));
        let results = futures_util::future::join_all(more.collect::<Vec<_>>()).await;
        let refused: Vec<Code> =
            results.iter().filter_map(|result| Some(result.as_ref().err()?.code)).collect();
        assert_eq!(refused, [InvalidState; 4]);
        let list = json!({"tenantId": "acme", "limit": 7});
        assert_eq!(desk.pages(&root, "iam.webhooks.list", list, ("webhooks", "id")).await.len(), 20);
        desk.good(&root, "iam.tenants.create", json!({"tenantId": "t"})).await;
        let mut of_t = hook();
        of_t["tenantId"] = json!("t");
        desk.good(&root, "iam.webhooks.create", of_t).await;
        desk.good(&root, "iam.tenants.delete", json!({"tenantId": "t"})).await;
        let left = desk.relay.store.read("left", (), |tx, ()| {
            Box::pin(tx.fetch_one("SELECT COUNT(*) AS count FROM webhooks WHERE tenant_id = 't'", &[]))
        });
        assert_eq!(left.await.unwrap().integer("count").unwrap(), 0);
    })
    .await;
}

/// Whatever may hold a text that a webhook's secret could be in.
const TEXTS: &str = "SELECT sealed_secret AS text FROM webhooks UNION ALL SELECT url FROM webhooks \
    UNION ALL SELECT answer FROM idempotent_answers UNION ALL SELECT content_sha256 FROM idempotent_answers \
    UNION ALL SELECT data FROM events UNION ALL SELECT payload FROM tasks \
    UNION ALL SELECT resource FROM audit UNION ALL SELECT value FROM meta";

#[tokio::test]
async fn its_secret_is_sealed_to_its_row_and_nowhere_in_the_clear() {
    use crate::{
        seal::Place,
        store::webhooks::{COLUMN, TABLE, find},
    };
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    at_a_desk(async |desk| {
        let made = desk.good(&root(), "iam.webhooks.create", hook()).await;
        let one = json!({"tenantId": "acme", "webhookId": made["webhook"]["id"]});
        let mut rotate = one.clone();
        rotate["rotateSecret"] = json!(true);
        let rotated = desk.good(&root(), "iam.webhooks.update", rotate).await;
        let listed = desk.good(&root(), "iam.webhooks.list", json!({"tenantId": "acme"})).await;
        let plain = desk.good(&root(), "iam.webhooks.update", one.clone()).await;
        let audit = desk.good(&root(), "iam.audit.list", json!({"tenantId": "acme"})).await;
        let texts: Vec<String> = desk
            .relay
            .store
            .read("texts", (), |tx, ()| Box::pin(tx.fetch_all(TEXTS, &[])))
            .await
            .unwrap()
            .iter()
            .map(|row| row.text("text").unwrap())
            .collect();
        assert!(texts.len() > 5);
        for secret in [&made["secret"], &rotated["secret"]] {
            let secret = secret.as_str().unwrap().strip_prefix("whsec_").unwrap();
            let hex = shared::hex::encode(&STANDARD.decode(secret).unwrap());
            for text in texts.iter().chain([&listed.to_string(), &plain.to_string(), &audit.to_string()]) {
                assert!(!text.contains(secret) && !text.contains(&hex), "{text}");
            }
        }
        assert!(audit.to_string().contains(&format!("webhookId={}", one["webhookId"].as_str().unwrap())));
        let id = one["webhookId"].as_str().unwrap().parse().unwrap();
        let row: Result<_, crate::store::StoreError> =
            desk.relay.store.read("row", &id, |tx, id| Box::pin(find(tx, id))).await;
        let sealed = row.unwrap().unwrap().sealed_secret;
        let open = |row: &str| desk.relay.keys.open(Place { table: TABLE, row, column: COLUMN }, &sealed);
        let shown = rotated["secret"].as_str().unwrap().strip_prefix("whsec_").unwrap().to_owned();
        assert_eq!(STANDARD.encode(open(one["webhookId"].as_str().unwrap()).unwrap()), shown);
        assert!(open("wh_another").is_err());
    })
    .await;
}
