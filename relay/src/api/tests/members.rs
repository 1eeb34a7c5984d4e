//! Memberships and invites.

use super::{people::altered, *};
use Code::{Conflict, InvalidInput, InvalidState, NotFound, PermissionDenied};

/// Behaviours 19, 20: anything but the roles of a scope is refused.
#[tokio::test]
async fn a_tenant_and_a_project_have_their_roles_and_no_other() {
    at_a_desk(async |desk| {
        desk.login("ada").await;
        for (project, roles) in [
            (None, vec!["GUEST", "VIEWER", "EDITOR", "OWNER"]),
            (Some("ml"), vec!["VIEWER", "EDITOR", "OWNER"]),
        ] {
            let place = json!({"tenantId": "acme", "projectId": project, "memberId": "ada"});
            let with = |role: &str| {
                let mut body = place.clone();
                body["role"] = json!(role);
                body
            };
            let first = with(roles[0]);
            desk.good(&root(), "iam.members.add", first).await;
            for role in &roles {
                let answer = desk.good(&root(), "iam.members.update", with(role)).await;
                assert_eq!(answer["member"]["role"], *role);
            }
            for wrong in ["owner", "ADMIN", "", "MEMBER"] {
                assert_eq!(
                    desk.code(&root(), "iam.members.update", with(wrong)).await,
                    Some(InvalidInput),
                    "{wrong}"
                );
            }
        }
        let guest = json!({"tenantId": "acme", "projectId": "ml", "memberId": "ada", "role": "GUEST"});
        let refused = desk.ask(&root(), "iam.members.update", guest).await.unwrap_err();
        assert_eq!((refused.code, refused.errors[0].field.as_str()), (InvalidInput, "role"));
    })
    .await;
}

/// Behaviours 21, 22, 23, 24, 25: what a role reaches, and what it does not.
#[tokio::test]
async fn a_role_holds_where_it_was_given_and_below() {
    at_a_desk(async |desk| {
        let (eve, bob, gus) = (desk.login("eve").await, desk.login("bob").await, desk.login("gus").await);
        desk.member_of("acme", "eve", "EDITOR").await;
        desk.member_of("acme", "gus", "GUEST").await;
        let ml = json!({"tenantId": "acme", "projectId": "ml", "memberId": "bob", "role": "EDITOR"});
        desk.good(&root(), "iam.members.add", ml).await;
        let project = |id: &str| json!({"tenantId": "acme", "projectId": id});
        for id in ["ml", "web", "default"] {
            assert_eq!(desk.refusal(&eve, "iam.projects.get", project(id)).await, None, "{id}");
        }
        desk.good(&root(), "iam.projects.create", json!({"tenantId": "acme", "projectId": "later"})).await;
        assert_eq!(desk.refusal(&eve, "iam.projects.get", project("later")).await, None);

        let token = |pool: &str| json!({"tenantId": "acme", "poolId": pool, "ttlSeconds": 600});
        assert_eq!(desk.refusal(&bob, "compute.joinTokens.create", token("gpu-a")).await, None);
        assert_eq!(desk.refusal(&bob, "iam.projects.get", project("web")).await, Some(NotFound));
        let web = json!({"poolId": "web-1", "tenantId": "acme", "projectId": "web", "siteId": "default"});
        desk.good(&root(), "compute.pools.create", web).await;
        assert_eq!(desk.refusal(&bob, "compute.joinTokens.create", token("web-1")).await, Some(NotFound));

        for guest in [&bob, &gus] {
            let tenant = json!({"tenantId": "acme"});
            assert_eq!(desk.refusal(guest, "iam.tenants.get", tenant.clone()).await, None);
            assert_eq!(desk.refusal(guest, "iam.members.list", tenant).await, Some(PermissionDenied));
        }
        let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
        assert_eq!(desk.refusal(&gus, "compute.pools.get", pool).await, Some(NotFound));
        assert_eq!(
            desk.refusal(&gus, "iam.projects.list", json!({"tenantId": "acme"})).await,
            Some(PermissionDenied)
        );
    })
    .await;
}

/// Behaviours 26, 27, 28, 81, 82, 86: members are made without an invite, and are gone when they are removed.
#[tokio::test]
async fn a_user_that_is_known_is_made_a_member_and_removed_again() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        let body = |user: &str| json!({"tenantId": "acme", "memberId": user, "role": "VIEWER"});
        assert_eq!(desk.code(&root(), "admin.tenants.addMember", body("nobody")).await, Some(NotFound));
        let answer = desk.good(&root(), "admin.tenants.addMember", body("ada")).await;
        assert_eq!(answer, desk.good(&root(), "admin.tenants.addMember", body("ada")).await);
        assert_eq!(desk.code(&root(), "iam.members.add", body("ada")).await, Some(Conflict));
        let list = desk.done(&ada, "iam.members.list", json!({"tenantId": "acme"})).await;
        let ada_there = json!({
            "tenantId": "acme", "memberId": "ada", "role": "VIEWER",
            "since": desk.clock.now(), "addedBy": "bootstrap:editor",
        });
        assert_eq!(list["members"], json!([ada_there]));
        let gone = json!({"tenantId": "acme", "memberId": "ada"});
        desk.good(&root(), "iam.members.remove", gone.clone()).await;
        assert_eq!(desk.refusal(&ada, "iam.tenants.get", json!({"tenantId": "acme"})).await, Some(NotFound));
        assert_eq!(desk.code(&root(), "iam.members.remove", gone).await, Some(NotFound));
        let mut kinds: Vec<String> = desk.events().await.into_iter().map(|(kind, _)| kind).collect();
        kinds.sort_unstable();
        assert_eq!(kinds, ["iam.member.created", "iam.member.deleted"]);
    })
    .await;
}

/// Leaving or removing a tenant's member takes the projects too: gone is gone.
#[tokio::test]
async fn who_leaves_a_tenant_leaves_its_projects() {
    at_a_desk(async |desk| {
        let ada = desk.login("ada").await;
        desk.member_of("acme", "ada", "VIEWER").await;
        let ml = json!({"tenantId": "acme", "projectId": "ml", "memberId": "ada", "role": "OWNER"});
        desk.good(&root(), "iam.members.add", ml).await;
        let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
        desk.done(&ada, "iam.members.leave", json!({"tenantId": "acme", "projectId": "ml"})).await;
        assert_eq!(desk.refusal(&ada, "compute.pools.get", pool.clone()).await, None);
        let ml = json!({"tenantId": "acme", "projectId": "ml", "memberId": "ada", "role": "OWNER"});
        desk.good(&root(), "iam.members.add", ml).await;
        desk.done(&ada, "iam.members.leave", json!({"tenantId": "acme"})).await;
        assert_eq!(desk.refusal(&ada, "compute.pools.get", pool).await, Some(NotFound));
        assert_eq!(
            desk.refusal(&ada, "iam.members.leave", json!({"tenantId": "acme"})).await,
            Some(NotFound)
        );
    })
    .await;
}

/// Behaviours 16, 17, 29, 30: a tenant that has had an OWNER keeps one, and a user its own tenant.
#[tokio::test]
async fn the_last_owner_and_ones_own_tenant_stay() {
    at_a_desk(async |desk| {
        let (ada, bob) = (desk.login("ada").await, desk.login("bob").await);
        desk.member_of("acme", "ada", "OWNER").await;
        desk.member_of("acme", "bob", "EDITOR").await;
        let of = |user: &str| json!({"tenantId": "acme", "memberId": user});
        let demoted = json!({"tenantId": "acme", "memberId": "ada", "role": "EDITOR"});
        for (method, body) in [
            ("iam.members.remove", of("ada")),
            ("iam.members.update", demoted.clone()),
            ("iam.members.leave", json!({"tenantId": "acme"})),
        ] {
            assert_eq!(desk.refusal(&ada, method, body).await, Some(InvalidState), "{method}");
        }
        let owner = json!({"tenantId": "acme", "memberId": "bob", "role": "OWNER"});
        desk.done(&ada, "iam.members.update", owner).await;
        desk.done(&bob, "iam.members.update", demoted).await;
        assert_eq!(desk.refusal(&ada, "iam.members.remove", of("bob")).await, Some(PermissionDenied));

        // Her own tenant: whoever asks, and another owner or not.
        desk.member_of("ada", "bob", "OWNER").await;
        let own = json!({"tenantId": "ada", "memberId": "ada"});
        assert_eq!(
            desk.refusal(&ada, "iam.members.leave", json!({"tenantId": "ada"})).await,
            Some(InvalidState)
        );
        assert_eq!(desk.refusal(&bob, "iam.members.remove", own).await, Some(InvalidState));
        assert_eq!(
            desk.refusal(&ada, "iam.tenants.delete", json!({"tenantId": "ada"})).await,
            Some(InvalidState)
        );
    })
    .await;
}

/// Two owners who remove each other at once: one stays.
#[tokio::test]
async fn of_two_owners_who_remove_each_other_one_stays() {
    at_a_desk(async |desk| {
        let (ada, bob) = (desk.login("ada").await, desk.login("bob").await);
        desk.member_of("acme", "ada", "OWNER").await;
        desk.member_of("acme", "bob", "OWNER").await;
        let of = |user: &str| json!({"tenantId": "acme", "memberId": user});
        let (one, other) = tokio::join!(
            desk.with(&ada, "iam.members.remove", of("bob")),
            desk.with(&bob, "iam.members.remove", of("ada")),
        );
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        let list = desk.good(&root(), "iam.members.list", json!({"tenantId": "acme"})).await;
        assert_eq!(list["members"].as_array().unwrap().len(), 1, "{list}");
    })
    .await;
}

/// Nobody gives a role above their own, by whatever token.
#[tokio::test]
async fn nobody_gives_more_than_they_have() {
    at_a_desk(async |desk| {
        let (eve, pat) = (desk.login("eve").await, desk.login("pat").await);
        desk.login("bob").await;
        desk.member_of("acme", "eve", "OWNER").await;
        let ml = json!({"tenantId": "acme", "projectId": "ml", "memberId": "pat", "role": "OWNER"});
        desk.good(&root(), "iam.members.add", ml).await;
        let bob = json!({"tenantId": "acme", "memberId": "bob", "role": "OWNER"});
        assert_eq!(desk.refusal(&pat, "iam.members.add", bob.clone()).await, Some(PermissionDenied));
        // A token with the single action does not hold what an OWNER holds.
        let adds = json!({"permissions": [{"subject": "tenant/acme", "actions": ["iam:members:add", "iam:invites:create"]}]});
        let (_, narrow) = desk.api_token(&eve, adds).await;
        assert_eq!(desk.refusal(&narrow, "iam.members.add", bob.clone()).await, Some(PermissionDenied));
        let invite = json!({"tenantId": "acme", "role": "OWNER"});
        assert_eq!(desk.refusal(&narrow, "iam.invites.create", invite).await, Some(PermissionDenied));
        assert_eq!(desk.refusal(&eve, "iam.members.add", bob).await, None);
        // Nor has an admin's token for adding members alone what they would hold.
        let ada = desk.login_as("ada", Some(AdminRole::Editor)).await;
        desk.member_of("provider", "ada", "OWNER").await;
        let adds = json!({"permissions": [{"subject": "platform", "actions": ["admin:tenants:add-member", "admin:grants:put"]}]});
        let (_, narrow) = desk.api_token(&ada, adds).await;
        let mallory = json!({"tenantId": "provider", "memberId": "bob", "role": "OWNER"});
        assert_eq!(desk.refusal(&narrow, "admin.tenants.addMember", mallory.clone()).await, Some(PermissionDenied));
        desk.good(&root(), "admin.users.create", json!({"userId": "svc"})).await;
        let grant = json!({"userId": "svc", "siteId": "default", "role": "EDITOR"});
        assert_eq!(desk.refusal(&narrow, "admin.grants.put", grant.clone()).await, Some(PermissionDenied));
        for (method, body) in [("admin.tenants.addMember", mallory), ("admin.grants.put", grant)] {
            assert_eq!(desk.refusal(&ada, method, body).await, None, "{method}");
        }
    })
    .await;
}

/// Whoever was put out while their request waited for the tenant's lock puts nobody in, or out.
#[tokio::test]
async fn what_a_caller_holds_counts_when_the_place_is_locked() {
    at_a_desk(async |desk| {
        let bob = desk.login("bob").await;
        desk.login("eve").await;
        desk.login("ada").await;
        desk.member_of("acme", "ada", "OWNER").await;
        desk.member_of("acme", "bob", "OWNER").await;
        desk.member_of("acme", "eve", "VIEWER").await;
        let late = crate::auth::tokens::authenticate(
            &desk.relay,
            (&bob, crate::auth::tokens::Via::Header),
            desk.clock.now(),
        )
        .await
        .unwrap()
        .unwrap();
        desk.good(&root(), "iam.members.remove", json!({"tenantId": "acme", "memberId": "bob"})).await;
        let eve = |more: Value| {
            let mut body = json!({"tenantId": "acme", "memberId": "eve"});
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            body
        };
        for (method, body) in [
            ("iam.members.update", eve(json!({"role": "OWNER"}))),
            ("iam.members.remove", eve(json!({}))),
            ("iam.members.add", json!({"tenantId": "acme", "memberId": "bob", "role": "OWNER"})),
            ("iam.invites.create", json!({"tenantId": "acme", "role": "OWNER"})),
        ] {
            assert_eq!(desk.code(&late, method, body).await, Some(NotFound), "{method}");
        }
    })
    .await;
}

/// Behaviours 31, 32, 33, 34, 35, 36, 37, 39.
#[tokio::test]
async fn an_invite_makes_exactly_its_member_once() {
    at_a_desk(async |desk| {
        let (ada, bob, eve) = (desk.login("ada").await, desk.login("bob").await, desk.login("eve").await);
        desk.member_of("acme", "ada", "OWNER").await;
        desk.member_of("acme", "eve", "EDITOR").await;
        for (place, role, got) in [
            (json!({"tenantId": "acme"}), None, "VIEWER"),
            (json!({"tenantId": "acme", "projectId": "ml"}), Some("EDITOR"), "EDITOR"),
        ] {
            let mut body = place.clone();
            if let Some(role) = role {
                body["role"] = json!(role);
            }
            assert_eq!(desk.refusal(&eve, "iam.invites.create", body.clone()).await, Some(PermissionDenied));
            body["idempotencyKey"] = json!(format!("key-{got}"));
            let made = desk.done(&ada, "iam.invites.create", body.clone()).await;
            let again = desk.done(&ada, "iam.invites.create", body).await;
            assert_eq!((&again["invite"], again.get("secret")), (&made["invite"], None));
            let secret = json!({"secret": made["secret"]});
            let list = desk.done(&ada, "iam.invites.list", place.clone()).await;
            assert_eq!(list["invites"], json!([made["invite"]]));
            assert!(!list.to_string().contains(made["secret"].as_str().unwrap()));
            let wrong = json!({"secret": altered(made["secret"].as_str().unwrap())});
            assert_eq!(desk.refusal(&bob, "iam.invites.accept", wrong).await, Some(NotFound));
            let (one, other) = tokio::join!(
                desk.with(&bob, "iam.invites.accept", secret.clone()),
                desk.with(&bob, "iam.invites.accept", secret.clone()),
            );
            let member = one.clone().or(other.clone()).unwrap()["member"].clone();
            assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
            assert_eq!((&member["memberId"], &member["role"]), (&json!("bob"), &json!(got)));
            assert_eq!(member.get("projectId"), place.get("projectId"));
            assert_eq!(desk.refusal(&eve, "iam.invites.accept", secret).await, Some(NotFound));
            assert_eq!(desk.done(&ada, "iam.invites.list", place).await["invites"], json!([]));
        }
        let made = desk.done(&ada, "iam.invites.create", json!({"tenantId": "acme"})).await;
        let deleted = json!({"tenantId": "acme", "inviteId": made["invite"]["id"]});
        desk.done(&ada, "iam.invites.delete", deleted).await;
        let secret = json!({"secret": made["secret"]});
        assert_eq!(
            desk.refusal(&desk.login("zoe").await, "iam.invites.accept", secret).await,
            Some(NotFound)
        );
    })
    .await;
}

/// Behaviour 38; and an invite is worth what its maker may still give.
#[tokio::test]
async fn an_invite_that_is_over_admits_nobody() {
    at_a_desk(async |desk| {
        let (ada, bob) = (desk.login("ada").await, desk.login("bob").await);
        desk.login("eve").await;
        desk.member_of("acme", "ada", "OWNER").await;
        desk.member_of("acme", "eve", "OWNER").await;
        let short = json!({"tenantId": "acme", "expiresInSeconds": 600});
        let made = desk.done(&ada, "iam.invites.create", short).await;
        let other = desk.done(&ada, "iam.invites.create", json!({"tenantId": "acme"})).await;
        desk.clock.advance(std::time::Duration::from_secs(600));
        let list = desk.done(&ada, "iam.invites.list", json!({"tenantId": "acme"})).await;
        assert_eq!(list["invites"], json!([other["invite"]]));
        let accept = |made: &Value| json!({"secret": made["secret"]});
        assert_eq!(desk.refusal(&bob, "iam.invites.accept", accept(&made)).await, Some(NotFound));
        // Already a member: refused, and the invite is still good.
        assert_eq!(desk.refusal(&ada, "iam.invites.accept", accept(&other)).await, Some(InvalidState));
        let demoted = json!({"tenantId": "acme", "memberId": "ada", "role": "EDITOR"});
        desk.good(&root(), "iam.members.update", demoted).await;
        assert_eq!(desk.refusal(&bob, "iam.invites.accept", accept(&other)).await, Some(InvalidState));
        let restored = json!({"tenantId": "acme", "memberId": "ada", "role": "OWNER"});
        desk.good(&root(), "iam.members.update", restored).await;
        assert_eq!(desk.refusal(&bob, "iam.invites.accept", accept(&other)).await, None);
    })
    .await;
}

/// Nobody is kept in places that they did not ask for, and nobody fills up what another may have.
#[tokio::test]
async fn who_was_added_to_many_projects_leaves_them_all_at_once() {
    at_a_desk(async |desk| {
        let (eve, vic) = (desk.login("eve").await, desk.login("vic").await);
        for at in 0..100 {
            let id = format!("p{at}");
            desk.done(&eve, "iam.projects.create", json!({"tenantId": "eve", "projectId": id})).await;
            let add = json!({"tenantId": "eve", "projectId": id, "memberId": "vic", "role": "VIEWER"});
            desk.done(&eve, "iam.members.add", add).await;
        }
        let one_more =
            json!({"tenantId": "eve", "projectId": "default", "memberId": "vic", "role": "VIEWER"});
        assert_eq!(desk.refusal(&eve, "iam.members.add", one_more).await, Some(InvalidState));
        desk.member_of("acme", "vic", "VIEWER").await;
        let left = desk.done(&vic, "iam.members.leave", json!({"tenantId": "eve"})).await;
        assert_eq!(left["member"]["memberId"], "vic");
        assert_eq!(
            desk.refusal(&vic, "iam.projects.get", json!({"tenantId": "eve", "projectId": "p7"})).await,
            Some(NotFound)
        );
        assert_eq!(desk.refusal(&vic, "iam.members.leave", json!({"tenantId": "eve"})).await, Some(NotFound));
        // A tenant's OWNER ends it for them as well.
        let add = json!({"tenantId": "eve", "projectId": "p1", "memberId": "vic", "role": "VIEWER"});
        desk.done(&eve, "iam.members.add", add).await;
        desk.done(&eve, "iam.members.remove", json!({"tenantId": "eve", "memberId": "vic"})).await;
        assert_eq!(
            desk.refusal(&vic, "iam.members.leave", json!({"tenantId": "eve", "projectId": "p1"})).await,
            Some(NotFound)
        );
    })
    .await;
}

/// Who is no member of a place is told of it what is told of one that there is not.
#[tokio::test]
async fn leaving_tells_nothing_of_what_there_is() {
    at_a_desk(async |desk| {
        let eve = desk.login("eve").await;
        for (there, nowhere) in [
            (json!({"tenantId": "acme"}), json!({"tenantId": "nope"})),
            (
                json!({"tenantId": "acme", "projectId": "ml"}),
                json!({"tenantId": "acme", "projectId": "nope"}),
            ),
        ] {
            let told = async |body: &Value| {
                let refused = desk.with(&eve, "iam.members.leave", body.clone()).await.unwrap_err();
                let text = refused.to_string();
                ["acme", "nope", "ml"].iter().fold(text, |text, id| text.replace(id, "ID"))
            };
            assert_eq!(told(&there).await, told(&nowhere).await);
        }
    })
    .await;
}
