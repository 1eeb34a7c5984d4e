//! compute/pools: the site's owner vouches, the pool's tenant looks on.

use super::*;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};

#[tokio::test]
async fn a_pool_is_made_by_its_sites_owner() {
    at_a_desk(async |desk| {
        // Caller; on the platform's site for acme; on acme's custom site for acme; there for another tenant.
        for (at, (caller, platform, custom, foreign)) in [
            (root(), None, None, None),
            (auditor(), Some(PermissionDenied), Some(PermissionDenied), Some(PermissionDenied)),
            (member("provider", Owner), None, Some(PermissionDenied), Some(PermissionDenied)),
            (
                member("provider", Editor),
                Some(PermissionDenied),
                Some(PermissionDenied),
                Some(PermissionDenied),
            ),
            (member("acme", Owner), Some(PermissionDenied), None, Some(NotFound)),
            (member("acme", Editor), Some(PermissionDenied), Some(PermissionDenied), Some(PermissionDenied)),
            (member("other", Owner), Some(PermissionDenied), Some(PermissionDenied), Some(PermissionDenied)),
            (
                project_member("ml", ProjectRole::Owner),
                Some(PermissionDenied),
                Some(PermissionDenied),
                Some(PermissionDenied),
            ),
            (stranger(), Some(PermissionDenied), Some(PermissionDenied), Some(PermissionDenied)),
        ]
        .into_iter()
        .enumerate()
        {
            let name = &caller.subject;
            for (kind, tenant, site, code) in [
                ("p", "acme", "default", platform),
                ("c", "acme", "barn", custom),
                ("f", "other", "barn", foreign),
            ] {
                let pool = json!({"poolId": format!("{kind}-{at}"), "tenantId": tenant, "siteId": site});
                assert_eq!(desk.code(&caller, "compute.pools.create", pool).await, code, "{name} {kind}");
            }
        }
        for (tenant, project, site) in
            [("nobody", "default", "default"), ("acme", "nothing", "default"), ("acme", "ml", "nowhere")]
        {
            let pool = json!({"poolId": "x", "tenantId": tenant, "projectId": project, "siteId": site});
            assert_eq!(
                desk.code(&root(), "compute.pools.create", pool).await,
                Some(NotFound),
                "{tenant} {project} {site}"
            );
        }
    })
    .await;
}

#[tokio::test]
async fn who_sees_a_pool_and_who_sets_its_policy() {
    at_a_desk(async |desk| {
        for (caller, see, change) in [
            (root(), None, None),
            (auditor(), None, Some(PermissionDenied)),
            (member("acme", Owner), None, Some(PermissionDenied)),
            (member("acme", Viewer), None, Some(PermissionDenied)),
            (member("acme", Guest), Some(NotFound), Some(NotFound)),
            (project_member("ml", ProjectRole::Viewer), None, Some(PermissionDenied)),
            (project_member("web", ProjectRole::Owner), Some(NotFound), Some(NotFound)),
            (member("provider", Owner), None, None),
            (member("provider", Viewer), None, Some(PermissionDenied)),
            (member("other", Owner), Some(NotFound), Some(NotFound)),
        ] {
            let name = &caller.subject;
            let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
            let mut update = pool.clone();
            update["policy"] = json!({"certificateTtlSeconds": 600});
            assert_eq!(desk.code(&caller, "compute.pools.get", pool).await, see, "{name}");
            assert_eq!(desk.code(&caller, "compute.pools.update", update).await, change, "{name}");
            // The tenant in the input is the pool's, whoever calls.
            let elsewhere = json!({"tenantId": "provider", "poolId": "gpu-a"});
            assert_eq!(desk.code(&caller, "compute.pools.get", elsewhere).await, Some(NotFound), "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_policy_is_a_patch_over_the_defaults() {
    at_a_desk(async |desk| {
        let name = json!({"tenantId": "provider", "poolId": "own"});
        let patched = async |policy: Value| {
            let mut update = name.clone();
            update["policy"] = policy;
            desk.ask(&root(), "compute.pools.update", update).await
        };
        let before = desk.good(&root(), "compute.pools.get", name.clone()).await["pool"].clone();
        assert_eq!(before["policy"]["attestors"], json!({"discovery": "off", "tpm": "optional"}));
        assert_eq!(before["platformOperatedCounts"], true);
        let after =
            patched(json!({"kubernetes": {"platformOperated": true}, "attestors": {"tpm": "required"}}))
                .await
                .unwrap();
        let mut expected = before["policy"].clone();
        expected["kubernetes"]["platformOperated"] = json!(true);
        expected["attestors"]["tpm"] = json!("required");
        assert_eq!(after["pool"]["policy"], expected);
        assert_eq!(desk.good(&root(), "compute.pools.get", name.clone()).await, after);
        for (field, low, high) in [
            ("certificateTtlSeconds", 600, 2_592_000),
            ("renewGraceSeconds", 0, 2_592_000),
            ("joinRequestTtlSeconds", 60, 2_592_000),
        ] {
            for (value, good) in [(low - 1, false), (low, true), (high, true), (high + 1, false)] {
                let result = patched(json!({field: value})).await;
                assert_eq!(result.is_ok(), good, "{field} {value}");
                if let Err(problem) = result {
                    assert_eq!(
                        (problem.code, problem.errors[0].field.clone()),
                        (InvalidInput, format!("policy.{field}"))
                    );
                }
            }
        }
        let unknown = patched(json!({"kubernetes": {"platformOperate": true}})).await.unwrap_err();
        assert_eq!(unknown.errors[0].field, "policy.kubernetes.platformOperate");
    })
    .await;
}

#[tokio::test]
async fn the_inventory_always_judges_for_a_pool_on_anothers_site() {
    at_a_desk(async |desk| {
        let pool = desk.good(&root(), "compute.pools.get", json!({"tenantId": "acme", "poolId": "gpu-a"})).await;
        assert_eq!(pool["pool"]["policy"]["attestors"]["discovery"], "defer");
        assert_eq!(pool["pool"]["platformOperatedCounts"], false);
        let off = json!({"attestors": {"discovery": "off"}});
        let update = json!({"tenantId": "acme", "poolId": "gpu-a", "policy": off});
        assert_eq!(desk.code(&root(), "compute.pools.update", update).await, Some(InvalidState));
        for (tenant, site, code) in
            [("acme", "default", Some(InvalidState)), ("acme", "barn", None), ("provider", "default", None)]
        {
            let pool = json!({"poolId": format!("{tenant}-{site}"), "tenantId": tenant, "siteId": site, "policy": off});
            assert_eq!(desk.code(&root(), "compute.pools.create", pool).await, code, "{tenant} on {site}");
        }
    })
    .await;
}

#[tokio::test]
async fn pools_replay_and_no_id_is_used_twice() {
    at_a_desk(async |desk| {
        let body = json!({"poolId": "p", "tenantId": "acme", "siteId": "barn", "agent": "none", "idempotencyKey": "k"});
        let made = desk.good(&member("acme", Owner), "compute.pools.create", body.clone()).await;
        assert_eq!(made["pool"]["projectId"], "default");
        assert!(made["pool"]["id"].as_str().unwrap().starts_with("pl_"));
        assert_eq!(desk.good(&member("acme", Owner), "compute.pools.create", body.clone()).await, made);
        let mut other = body.clone();
        other["agent"] = json!("bcd");
        assert_eq!(desk.code(&member("acme", Owner), "compute.pools.create", other).await, Some(Conflict));
        let taken = json!({"poolId": "p", "tenantId": "provider", "siteId": "default"});
        assert_eq!(desk.code(&root(), "compute.pools.create", taken.clone()).await, Some(Conflict), "ids are global");
        desk.good(&member("acme", Owner), "compute.pools.delete", json!({"tenantId": "acme", "poolId": "p"})).await;
        let name = json!({"tenantId": "acme", "poolId": "p"});
        assert_eq!(desk.code(&root(), "compute.pools.get", name.clone()).await, Some(NotFound));
        assert_eq!(desk.code(&root(), "compute.pools.delete", name).await, Some(NotFound));
        assert_eq!(desk.code(&root(), "compute.pools.create", taken).await, Some(Conflict), "and never used again");
    })
    .await;
}

#[tokio::test]
async fn a_pool_is_deleted_without_live_tokens() {
    at_a_desk(async |desk| {
        let name = json!({"tenantId": "provider", "poolId": "own"});
        let mut mint = name.clone();
        mint["ttlSeconds"] = json!(60);
        let token =
            desk.good(&root(), "compute.joinTokens.create", mint.clone()).await["joinToken"]["id"].clone();
        assert_eq!(
            desk.code(&member("provider", Editor), "compute.pools.delete", name.clone()).await,
            Some(PermissionDenied)
        );
        assert_eq!(desk.code(&root(), "compute.pools.delete", name.clone()).await, Some(InvalidState));
        let mut revoke = name.clone();
        revoke["tokenId"] = token;
        desk.good(&root(), "compute.joinTokens.revoke", revoke).await;
        desk.good(&root(), "compute.joinTokens.create", mint).await;
        desk.clock.advance(std::time::Duration::from_secs(60));
        desk.good(&root(), "compute.pools.delete", name).await;
    })
    .await;
}

#[tokio::test]
async fn pools_are_listed_to_those_who_may_read_them() {
    at_a_desk(async |desk| {
        for (pool, project, site) in
            [("a-barn", "web", "barn"), ("b-barn", "default", "barn"), ("c-plat", "web", "default")]
        {
            let pool = json!({"poolId": pool, "tenantId": "acme", "projectId": project, "siteId": site});
            desk.good(&root(), "compute.pools.create", pool).await;
        }
        let all = vec!["a-barn", "b-barn", "c-plat", "gpu-a"];
        let both =
            [member("provider", Viewer).powers.held, project_member("web", ProjectRole::Viewer).powers.held]
                .concat();
        for (caller, listed) in [
            (root(), Ok(all.clone())),
            (member("acme", Viewer), Ok(all)),
            (member("acme", Guest), Err(PermissionDenied)),
            (project_member("web", ProjectRole::Viewer), Ok(vec!["a-barn", "c-plat"])),
            (member("provider", Viewer), Ok(vec!["c-plat", "gpu-a"])),
            (who("user:both", "home", both), Ok(vec!["a-barn", "c-plat", "gpu-a"])),
            (member("provider", Guest), Err(NotFound)),
            (member("other", Owner), Err(NotFound)),
        ] {
            let name = &caller.subject;
            match listed {
                Err(code) => {
                    assert_eq!(
                        desk.code(&caller, "compute.pools.list", json!({"tenantId": "acme"})).await,
                        Some(code),
                        "{name}"
                    );
                }
                Ok(listed) => {
                    for limit in [1, 2, 3, 4, 200] {
                        let list = json!({"tenantId": "acme", "limit": limit});
                        assert_eq!(
                            desk.pages(&caller, "compute.pools.list", list, ("pools", "poolId")).await,
                            listed,
                            "{name}"
                        );
                    }
                    let web = json!({"tenantId": "acme", "projectId": "web"});
                    let web = desk.pages(&caller, "compute.pools.list", web, ("pools", "poolId")).await;
                    let expected: Vec<_> =
                        listed.iter().filter(|id| ["a-barn", "c-plat"].contains(id)).collect();
                    assert_eq!(web.iter().collect::<Vec<_>>(), expected, "{name}");
                }
            }
        }
        // Empty is not absent: an owner without pools, a project without any.
        assert_eq!(
            desk.good(&member("other", Owner), "compute.pools.list", json!({"tenantId": "other"})).await,
            json!({"pools": []})
        );
        let caller = project_member("ml", ProjectRole::Viewer);
        let none = json!({"tenantId": "acme", "projectId": "web"});
        assert_eq!(desk.good(&caller, "compute.pools.list", none).await, json!({"pools": []}));
        assert_eq!(
            desk.code(&root(), "compute.pools.list", json!({"tenantId": "nobody"})).await,
            Some(NotFound)
        );
    })
    .await;
}

/// Ids of sites and pools are everybody's, and are given once: nobody uses them up.
#[tokio::test]
async fn a_tenant_makes_so_many_custom_sites_and_pools_and_no_more() {
    at_a_desk(async |desk| {
        let owner = member("acme", Owner);
        let site = |at: i64| json!({"siteId": format!("s{at}"), "ownerTenantId": "acme", "custom": true});
        let mut made = 0;
        while desk.code(&owner, "compute.sites.create", site(made)).await.is_none() {
            desk.good(&owner, "compute.sites.delete", json!({"siteId": format!("s{made}")})).await;
            made += 1;
        }
        assert!((10..=20).contains(&made), "{made}, deleted ones included");
        assert_eq!(desk.code(&owner, "compute.sites.create", site(made)).await, Some(InvalidState));
        desk.good(&root(), "compute.sites.create", site(made)).await;
        let pool =
            |at: i64| json!({"poolId": format!("p{at}"), "tenantId": "acme", "siteId": format!("s{made}")});
        for at in 0..200 {
            assert_eq!(desk.code(&owner, "compute.pools.create", pool(at)).await, None, "{at}");
            desk.good(
                &owner,
                "compute.pools.delete",
                json!({"tenantId": "acme", "poolId": format!("p{at}")}),
            )
            .await;
        }
        assert_eq!(desk.code(&owner, "compute.pools.create", pool(200)).await, Some(InvalidState));
        desk.good(&root(), "compute.pools.create", pool(200)).await;
    })
    .await;
}
