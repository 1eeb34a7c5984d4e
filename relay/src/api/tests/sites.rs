//! compute/sites: who vouches.

use super::*;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};

#[tokio::test]
async fn sites_are_made_by_admins_and_custom_ones_also_by_their_owner() {
    at_a_desk(async |desk| {
        for (at, (caller, custom, platform)) in [
            (root(), None, None),
            (auditor(), Some(PermissionDenied), Some(PermissionDenied)),
            (member("acme", Owner), None, Some(PermissionDenied)),
            (member("acme", Editor), Some(PermissionDenied), Some(PermissionDenied)),
            (member("other", Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (member("provider", Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (project_member("ml", ProjectRole::Owner), Some(PermissionDenied), Some(PermissionDenied)),
            (stranger(), Some(PermissionDenied), Some(PermissionDenied)),
        ]
        .into_iter()
        .enumerate()
        {
            let site = |kind: &str, custom| {
                json!({"siteId": format!("{kind}-{at}"), "ownerTenantId": "acme", "custom": custom})
            };
            let name = &caller.subject;
            assert_eq!(desk.code(&caller, "compute.sites.create", site("c", true)).await, custom, "{name}");
            assert_eq!(desk.code(&caller, "compute.sites.create", site("p", false)).await, platform, "{name}");
        }
        // What the relay connects to is not its owner's to say.
        let with_networks = json!({
            "siteId": "c", "ownerTenantId": "acme", "custom": true, "bmcNetworks": ["10.0.0.0/8"],
        });
        let owner = member("acme", Owner);
        assert_eq!(desk.code(&owner, "compute.sites.create", with_networks).await, Some(PermissionDenied));
        let absent = json!({"siteId": "x", "ownerTenantId": "nobody"});
        assert_eq!(desk.code(&root(), "compute.sites.create", absent).await, Some(NotFound));
    })
    .await;
}

#[tokio::test]
async fn networks_are_parsed_and_shown_to_the_owners_members_and_admins() {
    at_a_desk(async |desk| {
        let networks = json!(["10.7.0.0/16", "FD00:7::/64"]);
        let update = json!({"siteId": "barn", "bmcNetworks": networks});
        let shown = json!(["10.7.0.0/16", "fd00:7::/64"]);
        for (caller, change, sees) in [
            (root(), None, true),
            (auditor(), Some(PermissionDenied), true),
            (member("acme", Owner), Some(PermissionDenied), true),
            (member("acme", Viewer), Some(PermissionDenied), true),
            (member("acme", Guest), Some(PermissionDenied), false),
            (project_member("ml", ProjectRole::Owner), Some(PermissionDenied), false),
            (member("provider", Owner), Some(PermissionDenied), false),
            (member("other", Owner), Some(PermissionDenied), false),
        ] {
            let name = &caller.subject;
            assert_eq!(desk.code(&caller, "compute.sites.update", update.clone()).await, change, "{name}");
            let got = desk.good(&caller, "compute.sites.get", json!({"siteId": "barn"})).await;
            let expected = if sees { shown.clone() } else { json!([]) };
            assert_eq!(got["site"]["bmcNetworks"], expected, "{name}");
            let list = desk.good(&caller, "compute.sites.list", json!({})).await;
            assert_eq!(list["sites"][0]["bmcNetworks"], expected, "{name}");
        }
        let bad = json!({"siteId": "barn", "bmcNetworks": ["10.0.0.0/8", "10.0.0.0/33", "10.0.0.1/8"]});
        let problem = desk.ask(&root(), "compute.sites.update", bad).await.unwrap_err();
        let fields: Vec<&str> = problem.errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!((problem.code, fields), (InvalidInput, vec!["bmcNetworks.1", "bmcNetworks.2"]));
        for (count, code) in [(64, None), (65, Some(InvalidInput))] {
            let many = json!({"siteId": "barn", "bmcNetworks": vec!["10.0.0.0/8"; count]});
            assert_eq!(desk.code(&root(), "compute.sites.update", many).await, code, "{count}");
        }
    })
    .await;
}

#[tokio::test]
async fn sites_replay_page_and_are_deleted_without_pools() {
    at_a_desk(async |desk| {
        let body = json!({"siteId": "s", "ownerTenantId": "acme", "custom": true, "idempotencyKey": "k"});
        let made = desk.good(&root(), "compute.sites.create", body.clone()).await;
        assert_eq!(desk.good(&root(), "compute.sites.create", body.clone()).await, made);
        let other = json!({"siteId": "s", "ownerTenantId": "acme", "custom": false, "idempotencyKey": "k"});
        assert_eq!(desk.code(&root(), "compute.sites.create", other).await, Some(Conflict));
        let taken = json!({"siteId": "s", "ownerTenantId": "other", "custom": true});
        assert_eq!(desk.code(&root(), "compute.sites.create", taken.clone()).await, Some(Conflict));
        for limit in [1, 2, 3, 4] {
            let listed = desk
                .pages(&stranger(), "compute.sites.list", json!({"limit": limit}), ("sites", "siteId"))
                .await;
            assert_eq!(listed, ["barn", "default", "s"]);
        }
        assert_eq!(
            desk.code(&root(), "compute.sites.delete", json!({"siteId": "default"})).await,
            Some(InvalidState)
        );
        assert_eq!(
            desk.code(&member("acme", Editor), "compute.sites.delete", json!({"siteId": "s"})).await,
            Some(PermissionDenied)
        );
        desk.good(&member("acme", Owner), "compute.sites.delete", json!({"siteId": "s"})).await;
        for method in ["compute.sites.get", "compute.sites.delete"] {
            assert_eq!(desk.code(&root(), method, json!({"siteId": "s"})).await, Some(NotFound));
        }
        assert_eq!(
            desk.code(&root(), "compute.sites.create", taken).await,
            Some(Conflict),
            "no id is used twice"
        );
        // Owner and kind are no fields of an update.
        let moved = json!({"siteId": "barn", "bmcNetworks": [], "custom": false, "ownerTenantId": "other"});
        let problem = desk.ask(&root(), "compute.sites.update", moved).await.unwrap_err();
        assert_eq!(problem.errors.len(), 2, "{problem:?}");
    })
    .await;
}
