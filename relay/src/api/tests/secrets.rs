//! compute/secrets: the site's owner sets them, nobody is shown them again.

use super::*;
use crate::{
    seal::Place,
    store::secrets::{COLUMN, TABLE, row_key, sealed},
};
use Code::{InvalidInput, InvalidState, NotFound};
use TenantRole::Owner;

fn secret(name: &str, value: &str) -> Value {
    json!({"tenantId": "acme", "poolId": "gpu-a", "name": name, "value": value})
}

#[tokio::test]
async fn the_sites_owner_decides() {
    at_a_desk(async |desk| {
        for (caller, read, write) in by_the_sites_owner() {
            let name = &caller.subject;
            let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
            let mut remove = pool.clone();
            remove["name"] = json!("s");
            assert_eq!(desk.code(&caller, "compute.secrets.put", secret("s", "v")).await, write, "{name}");
            assert_eq!(desk.code(&caller, "compute.secrets.list", pool).await, read, "{name}");
            assert_eq!(desk.code(&caller, "compute.secrets.remove", remove.clone()).await, write, "{name}");
            if write.is_none() {
                assert_eq!(
                    desk.code(&caller, "compute.secrets.remove", remove).await,
                    Some(NotFound),
                    "{name}"
                );
            }
        }
        // On acme's own site its owner is acme.
        let pool = json!({"poolId": "cows", "tenantId": "acme", "siteId": "barn"});
        desk.good(&root(), "compute.pools.create", pool).await;
        let mut own = secret("s", "v");
        own["poolId"] = json!("cows");
        assert_eq!(desk.code(&member("acme", Owner), "compute.secrets.put", own.clone()).await, None);
        assert_eq!(desk.code(&member("provider", Owner), "compute.secrets.put", own).await, Some(NotFound));
    })
    .await;
}

#[tokio::test]
async fn a_secret_is_sealed_to_its_place_and_never_shown() {
    at_a_desk(async |desk| {
        let put = desk.good(&root(), "compute.secrets.put", secret("db", "hunter2")).await;
        assert_eq!(put, json!({"secret": {"name": "db", "updatedAt": "2026-01-02T03:04:05.678Z", "updatedBy": root().subject}}));
        let list = desk.good(&root(), "compute.secrets.list", json!({"tenantId": "acme", "poolId": "gpu-a"})).await;
        assert_eq!(list, json!({"secrets": [put["secret"]]}));
        let stored = async || {
            let stored = desk.relay.store.read("sealed", (), |tx, ()| Box::pin(sealed(tx, "gpu-a"))).await.unwrap();
            stored.into_iter().next().unwrap()
        };
        let first = stored().await;
        assert!(!first.sealed.contains("hunter2"));
        let open = |row: &str, text: &str| desk.relay.keys.open(Place { table: TABLE, row, column: COLUMN }, text);
        assert_eq!(open(&row_key("gpu-a", "db"), &first.sealed).unwrap().as_slice(), b"hunter2");
        assert!(open(&row_key("own", "db"), &first.sealed).is_err());
        // Set again, it is another text under the same name.
        desk.good(&root(), "compute.secrets.put", secret("db", "swordfish")).await;
        let second = stored().await;
        assert_eq!(open(&second.row, &second.sealed).unwrap().as_slice(), b"swordfish");
    })
    .await;
}

#[tokio::test]
async fn values_and_names_have_bounds() {
    at_a_desk(async |desk| {
        let long = "n".repeat(128);
        for (name, value, code) in [
            ("empty", String::new(), None),
            ("most", "v".repeat(16 * 1024), None),
            ("most-utf8", "é".repeat(8 * 1024), None),
            ("more", "v".repeat(16 * 1024 + 1), Some("value")),
            ("more-utf8", "é".repeat(8 * 1024 + 1), Some("value")),
            (long.as_str(), "v".to_owned(), None),
            ("-n", "v".to_owned(), Some("name")),
            ("a/b", "v".to_owned(), Some("name")),
            ("", "v".to_owned(), Some("name")),
        ] {
            let result = desk.ask(&root(), "compute.secrets.put", secret(name, &value)).await;
            let field = result.err().map(|problem| {
                assert_eq!(problem.code, InvalidInput);
                assert!(!problem.detail.contains("vvv"));
                problem.errors[0].field.clone()
            });
            assert_eq!(field.as_deref(), code, "{name}");
        }
        let list = json!({"tenantId": "acme", "poolId": "gpu-a", "limit": 1});
        let listed = desk.pages(&root(), "compute.secrets.list", list, ("secrets", "name")).await;
        assert_eq!(listed, ["empty", "most", "most-utf8", long.as_str()]);
    })
    .await;
}

#[tokio::test]
async fn a_pool_holds_a_hundred_whoever_is_first() {
    at_a_desk(async |desk| {
        let root = root();
        for at in 0..96 {
            desk.good(&root, "compute.secrets.put", secret(&format!("s{at}"), "v")).await;
        }
        let more = (96..108).map(|at| desk.ask(&root, "compute.secrets.put", secret(&format!("s{at}"), "v")));
        let results = futures_util::future::join_all(more.collect::<Vec<_>>()).await;
        let refused: Vec<Code> =
            results.iter().filter_map(|result| Some(result.as_ref().err()?.code)).collect();
        assert_eq!(refused, [InvalidState; 8]);
        // One that is there can still be set, and one that goes makes room.
        desk.good(&root, "compute.secrets.put", secret("s0", "w")).await;
        desk.good(
            &root,
            "compute.secrets.remove",
            json!({"tenantId": "acme", "poolId": "gpu-a", "name": "s0"}),
        )
        .await;
        desk.good(&root, "compute.secrets.put", secret("fresh", "v")).await;
        assert_eq!(
            desk.code(&root, "compute.secrets.put", secret("one-more", "v")).await,
            Some(InvalidState)
        );
    })
    .await;
}
