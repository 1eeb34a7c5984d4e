//! iam/tenants and iam/projects.

use super::*;
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};
use TenantRole::{Guest, Owner, Viewer};

#[tokio::test]
async fn a_tenant_is_made_once_with_its_project_and_one_event() {
    at_a_desk(async |desk| {
        let body = json!({"tenantId": "new", "displayName": "New Inc.", "idempotencyKey": "k"});
        let made = desk.good(&root(), "iam.tenants.create", body.clone()).await;
        assert_eq!(made["tenant"]["displayName"], "New Inc.");
        let list = json!({"tenantId": "new"});
        assert_eq!(
            desk.good(&root(), "iam.projects.list", list).await["projects"][0]["projectId"],
            "default"
        );
        // Again: the same answer. Other content under the key, or the same id under another key: CONFLICT.
        assert_eq!(desk.good(&root(), "iam.tenants.create", body.clone()).await, made);
        for (field, value) in [("displayName", "Newer"), ("tenantId", "newer"), ("idempotencyKey", "k2")] {
            let mut other = body.clone();
            other[field] = json!(value);
            assert_eq!(desk.code(&root(), "iam.tenants.create", other).await, Some(Conflict), "{field}");
        }
        assert_eq!(desk.events().await, [("iam.tenant.created".into(), "new".into())]);
        // Only admins make tenants; another subject with the same key is another request.
        for caller in [auditor(), member("acme", Owner), stranger()] {
            let code = desk.code(&caller, "iam.tenants.create", json!({"tenantId": "theirs"})).await;
            assert_eq!(code, Some(PermissionDenied), "{}", caller.subject);
        }
    })
    .await;
}

#[tokio::test]
async fn equal_creations_at_once_make_one_tenant() {
    at_a_desk(async |desk| {
        let body = json!({"tenantId": "once", "idempotencyKey": "k"});
        let root = root();
        let all = (0..8).map(|_| desk.ask(&root, "iam.tenants.create", body.clone()));
        let answers = futures_util::future::join_all(all).await;
        assert!(
            answers.iter().all(|answer| answer.is_ok() && answer.as_ref().ok() == answers[0].as_ref().ok()),
            "{answers:?}"
        );
        assert_eq!(desk.events().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn who_may_do_what_with_a_tenant() {
    at_a_desk(async |desk| {
        for (caller, see, change) in [
            (root(), None, None),
            (auditor(), None, Some(PermissionDenied)),
            (member("acme", Owner), None, None),
            (member("acme", TenantRole::Editor), None, Some(PermissionDenied)),
            (member("acme", Guest), None, Some(PermissionDenied)),
            (project_member("ml", ProjectRole::Owner), None, Some(PermissionDenied)),
            (member("other", Owner), Some(NotFound), Some(NotFound)),
            (stranger(), Some(NotFound), Some(NotFound)),
        ] {
            let acme = json!({"tenantId": "acme"});
            let renamed = json!({"tenantId": "acme", "displayName": "Acme"});
            let name = &caller.subject;
            assert_eq!(desk.code(&caller, "iam.tenants.get", acme.clone()).await, see, "{name}");
            assert_eq!(desk.code(&caller, "iam.tenants.update", renamed).await, change, "{name}");
            // Allowed ones are stopped by the state: acme has pools.
            assert_eq!(
                desk.code(&caller, "iam.tenants.delete", acme).await,
                Some(change.unwrap_or(InvalidState)),
                "{name}"
            );
            let absent = json!({"tenantId": "nobody"});
            assert_eq!(desk.code(&caller, "iam.tenants.get", absent).await, Some(NotFound), "{name}");
        }
        // Renamed twice to the same: one event.
        assert_eq!(desk.events().await, [("iam.tenant.updated".into(), "acme".into())]);
    })
    .await;
}

#[tokio::test]
async fn a_tenant_is_deleted_empty_and_its_id_is_never_used_again() {
    at_a_desk(async |desk| {
        let delete = |id: &'static str| json!({"tenantId": id});
        assert_eq!(desk.code(&root(), "iam.tenants.delete", delete("provider")).await, Some(InvalidState));
        let owner = who("user:other", "other", member("other", Owner).powers.held);
        assert_eq!(desk.code(&owner, "iam.tenants.delete", delete("other")).await, Some(InvalidState));
        // acme has a pool and a site: first the one, then the other is in the way.
        desk.good(&root(), "compute.pools.delete", json!({"tenantId": "acme", "poolId": "gpu-a"})).await;
        assert_eq!(desk.code(&root(), "iam.tenants.delete", delete("acme")).await, Some(InvalidState));
        desk.good(&root(), "compute.sites.delete", json!({"siteId": "barn"})).await;
        desk.good(&root(), "iam.tenants.delete", delete("acme")).await;
        for (method, body) in [
            ("iam.tenants.get", delete("acme")),
            ("iam.tenants.delete", delete("acme")),
            ("iam.projects.list", delete("acme")),
            ("iam.projects.get", json!({"tenantId": "acme", "projectId": "ml"})),
            ("iam.projects.create", json!({"tenantId": "acme", "projectId": "x"})),
            ("compute.pools.list", delete("acme")),
            ("compute.sites.create", json!({"siteId": "x", "ownerTenantId": "acme", "custom": true})),
        ] {
            assert_eq!(desk.code(&root(), method, body.clone()).await, Some(NotFound), "{method}");
        }
        assert_eq!(desk.code(&root(), "iam.tenants.create", delete("acme")).await, Some(Conflict));
        assert_eq!(desk.events().await, [("iam.tenant.deleted".into(), "acme".into())]);
    })
    .await;
}

#[tokio::test]
async fn tenants_are_listed_to_those_who_belong_to_them() {
    at_a_desk(async |desk| {
        for (caller, seen) in [
            (root(), vec!["acme", "other", "provider"]),
            (auditor(), vec!["acme", "other", "provider"]),
            (member("acme", Guest), vec!["acme"]),
            (project_member("ml", ProjectRole::Viewer), vec!["acme"]),
            (member("nobody", Owner), vec![]),
            (stranger(), vec![]),
        ] {
            for limit in [1, 2, 3, 200] {
                let listed = desk
                    .pages(&caller, "iam.tenants.list", json!({"limit": limit}), ("tenants", "tenantId"))
                    .await;
                assert_eq!(listed, seen, "{} {limit}", caller.subject);
            }
        }
        let both = who(
            "user:both",
            "home",
            [member("other", Guest).powers.held, member("acme", Guest).powers.held].concat(),
        );
        let listed =
            desk.pages(&both, "iam.tenants.list", json!({"limit": 1}), ("tenants", "tenantId")).await;
        assert_eq!(listed, ["acme", "other"]);
        for limit in [0, 201] {
            assert_eq!(
                desk.code(&root(), "iam.tenants.list", json!({"limit": limit})).await,
                Some(InvalidInput)
            );
        }
    })
    .await;
}

#[tokio::test]
async fn who_may_do_what_with_a_project() {
    at_a_desk(async |desk| {
        // Caller; may create; sees ml; may change ml; what it is listed.
        for (caller, create, see, change, listed) in [
            (root(), None, None, None, Ok(vec!["default", "ml", "web"])),
            (member("acme", Owner), None, None, None, Ok(vec!["default", "ml", "web"])),
            (
                member("acme", Viewer),
                Some(PermissionDenied),
                None,
                Some(PermissionDenied),
                Ok(vec!["default", "ml", "web"]),
            ),
            (
                member("acme", Guest),
                Some(PermissionDenied),
                Some(NotFound),
                Some(NotFound),
                Err(PermissionDenied),
            ),
            (project_member("ml", ProjectRole::Owner), Some(PermissionDenied), None, None, Ok(vec!["ml"])),
            (
                project_member("ml", ProjectRole::Editor),
                Some(PermissionDenied),
                None,
                Some(PermissionDenied),
                Ok(vec!["ml"]),
            ),
            (
                project_member("web", ProjectRole::Owner),
                Some(PermissionDenied),
                Some(NotFound),
                Some(NotFound),
                Ok(vec!["web"]),
            ),
            (member("other", Owner), Some(NotFound), Some(NotFound), Some(NotFound), Err(NotFound)),
        ] {
            let name = caller.subject.clone();
            let body = |project: &str| json!({"tenantId": "acme", "projectId": project});
            let made = desk.code(&caller, "iam.projects.create", body(&name.replace(['/', ':'], "-"))).await;
            assert_eq!(made, create, "{name} create");
            if made.is_none() {
                desk.good(&caller, "iam.projects.delete", body(&name.replace(['/', ':'], "-"))).await;
            }
            assert_eq!(desk.code(&caller, "iam.projects.get", body("ml")).await, see, "{name} get");
            let mut renamed = body("ml");
            renamed["displayName"] = json!(format!("by {name}"));
            assert_eq!(desk.code(&caller, "iam.projects.update", renamed).await, change, "{name} update");
            let deleted = desk.code(&caller, "iam.projects.delete", body("ml")).await;
            assert_eq!(deleted, Some(change.unwrap_or(InvalidState)), "{name} delete: it has a pool");
            let list = desk.ask(&caller, "iam.projects.list", json!({"tenantId": "acme"})).await;
            let list = list.map_err(|problem| problem.code).map(|page| {
                let projects = page["projects"].as_array().unwrap().clone();
                projects
                    .iter()
                    .map(|project| project["projectId"].as_str().unwrap().to_owned())
                    .collect::<Vec<_>>()
            });
            assert_eq!(list, listed.map(|ids| ids.into_iter().map(str::to_owned).collect()), "{name} list");
        }
    })
    .await;
}

/// Behaviour 7.
#[tokio::test]
async fn projects_page_replay_and_tell() {
    at_a_desk(async |desk| {
        let body = json!({"tenantId": "other", "projectId": "p", "idempotencyKey": "k"});
        let made = desk.good(&root(), "iam.projects.create", body.clone()).await;
        assert_eq!(desk.good(&root(), "iam.projects.create", body.clone()).await, made);
        let taken = json!({"tenantId": "other", "projectId": "p"});
        assert_eq!(desk.code(&root(), "iam.projects.create", taken.clone()).await, Some(Conflict));
        for limit in [1, 2, 3] {
            let list = json!({"tenantId": "other", "limit": limit});
            assert_eq!(
                desk.pages(&root(), "iam.projects.list", list, ("projects", "projectId")).await,
                ["default", "p"]
            );
        }
        let some = [
            project_member("ml", ProjectRole::Viewer).powers.held,
            project_member("web", ProjectRole::Viewer).powers.held,
        ];
        let some = who("user:some", "home", some.concat());
        let list = json!({"tenantId": "acme", "limit": 1});
        assert_eq!(
            desk.pages(&some, "iam.projects.list", list, ("projects", "projectId")).await,
            ["ml", "web"]
        );
        desk.clock.advance(std::time::Duration::from_millis(1));
        desk.good(&root(), "iam.projects.delete", taken.clone()).await;
        assert_eq!(desk.code(&root(), "iam.projects.delete", taken).await, Some(NotFound));
        let kinds: Vec<String> = desk.events().await.into_iter().map(|(kind, _)| kind).collect();
        assert_eq!(kinds, ["iam.project.created", "iam.project.deleted"]);
    })
    .await;
}

/// Behaviour 17, for others too: a user's own tenant is deleted by an admin alone; and no id that names something else is given.
#[tokio::test]
async fn a_users_own_tenant_stays_for_all_but_admins() {
    at_a_desk(async |desk| {
        let ted = desk.login("ted").await;
        desk.login("eve").await;
        desk.member_of("eve", "ted", "OWNER").await;
        assert_eq!(
            desk.refusal(&ted, "iam.tenants.delete", json!({"tenantId": "eve"})).await,
            Some(InvalidState)
        );
        for reserved in ["relay", "provider", "bootstrap-admin-editor"] {
            let tenant = json!({"tenantId": reserved, "displayName": "x"});
            let refused = desk.code(&root(), "iam.tenants.create", tenant).await;
            assert!(matches!(refused, Some(InvalidInput | Conflict)), "{reserved}: {refused:?}");
            assert_eq!(
                desk.code(&root(), "admin.users.create", json!({"userId": reserved})).await,
                Some(Conflict),
                "{reserved}"
            );
        }
    })
    .await;
}
