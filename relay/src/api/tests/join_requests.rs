//! compute/joinRequests: who may decide, and what a person sees. What the decisions do to joins is told in the stories.

use super::*;
use crate::{
    join::requests::About,
    store::{StoreError, identifiers, join_requests as rows, join_tokens},
};
use Code::{NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};
use shared::{
    api::join_requests::{DeferReason, JoinRequest, JoinRequestState},
    hardware::{self, Machine},
    id::JoinRequestId,
};
use std::time::Duration;

/// A request that waits in the pool, as a join would have written it.
pub(super) async fn wait(desk: &Desk, tenant: &str, pool: &str, token: &str) -> String {
    let now = desk.clock.now();
    let request = JoinRequest {
        id: JoinRequestId::draw(now, desk.relay.random.bytes()),
        tenant_id: tenant.to_owned(),
        pool_id: pool.to_owned(),
        token_id: token.parse().unwrap(),
        csr_sha256: "ab".repeat(32),
        reasons: vec![DeferReason::UnknownMachine],
        identity: hardware::Identity { serial: Some("SN-1".to_owned()), ..hardware::Identity::default() },
        ek_sha256: None,
        ek_manufacturer: None,
        ek_vouched: None,
        remote_address: "192.0.2.7".to_owned(),
        shared_with: Vec::new(),
        state: JoinRequestState::Pending,
        created_at: now,
        expires_at: now.plus_seconds(3600),
        decided_at: None,
        decided_by: None,
        note: None,
    };
    let id = request.id.to_string();
    let written = desk.relay.store.transact("wait", request, |tx, request| {
        Box::pin(async move {
            join_tokens::hold(tx, &request.token_id).await?;
            let about = About { content_sha256: "content", ek_sha256: None, incumbents: &[] };
            rows::insert(tx, request, about).await?;
            let holder = identifiers::Holder { tenant_id: &request.tenant_id, id: request.id.as_str() };
            identifiers::note(tx, holder, &Machine::judge(&request.identity), None).await?;
            Ok::<_, StoreError>(())
        })
    });
    written.await.unwrap();
    id
}

async fn token(desk: &Desk, tenant: &str, pool: &str) -> String {
    let input = json!({"tenantId": tenant, "poolId": pool, "ttlSeconds": 600, "maxUses": 20});
    let answer = desk.good(&root(), "compute.joinTokens.create", input).await;
    answer["joinToken"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn both_owners_see_and_deny_and_the_sites_owner_approves() {
    at_a_desk(async |desk| {
        let token = token(&desk, "acme", "gpu-a").await;
        let denied = Some(PermissionDenied);
        let absent = Some(NotFound);
        for (caller, read, approve, deny) in [
            (root(), None, None, None),
            (auditor(), None, denied, denied),
            (member("provider", Owner), None, None, None),
            (member("provider", Editor), None, None, None),
            (member("provider", Viewer), None, denied, denied),
            (member("provider", Guest), absent, absent, absent),
            (member("acme", Owner), None, denied, None),
            (member("acme", Viewer), None, denied, denied),
            (project_member("ml", ProjectRole::Editor), None, denied, None),
            (project_member("web", ProjectRole::Owner), absent, absent, absent),
            (member("other", Owner), absent, absent, absent),
        ] {
            let name = &caller.subject;
            let id = wait(&desk, "acme", "gpu-a", &token).await;
            let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
            let named = json!({"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": id});
            assert_eq!(desk.code(&caller, "compute.joinRequests.list", pool).await, read, "{name}");
            for (method, expected) in [("get", read), ("approve", approve), ("deny", deny)] {
                let method = format!("compute.joinRequests.{method}");
                assert_eq!(desk.code(&caller, &method, named.clone()).await, expected, "{name} {method}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn where_the_tenant_vouches_itself_its_project_decides() {
    at_a_desk(async |desk| {
        let own = json!({"poolId": "barn-a", "tenantId": "acme", "projectId": "ml", "siteId": "barn"});
        desk.good(&root(), "compute.pools.create", own).await;
        let token = token(&desk, "acme", "barn-a").await;
        let id = wait(&desk, "acme", "barn-a", &token).await;
        let named = json!({"tenantId": "acme", "poolId": "barn-a", "joinRequestId": id});
        let approve = "compute.joinRequests.approve";
        let code = desk.code(&project_member("ml", ProjectRole::Viewer), approve, named.clone()).await;
        assert_eq!(code, Some(PermissionDenied));
        desk.good(&project_member("ml", ProjectRole::Editor), approve, named).await;
    })
    .await;
}

#[tokio::test]
async fn a_project_is_told_of_its_own_machines_only() {
    at_a_desk(async |desk| {
        let other = json!({"poolId": "web-a", "tenantId": "acme", "projectId": "web", "siteId": "default"});
        desk.good(&root(), "compute.pools.create", other).await;
        let (here, there) = (token(&desk, "acme", "gpu-a").await, token(&desk, "acme", "web-a").await);
        let id = wait(&desk, "acme", "gpu-a", &here).await;
        let beside = wait(&desk, "acme", "gpu-a", &here).await;
        let elsewhere = wait(&desk, "acme", "web-a", &there).await;
        let named = json!({"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": id});
        for (caller, whole) in [
            (member("acme", Viewer), true),
            (root(), true),
            (project_member("ml", ProjectRole::Viewer), false),
            (member("provider", Viewer), false),
        ] {
            let shown = desk.good(&caller, "compute.joinRequests.get", named.clone()).await;
            let shared = shown["joinRequest"]["sharedWith"].to_string();
            assert!(shared.contains(&beside), "{}: {shared}", caller.subject);
            assert_eq!(shared.contains(&elsewhere), whole, "{}: {shared}", caller.subject);
        }
    })
    .await;
}

#[tokio::test]
async fn a_request_is_found_in_its_own_pool_and_its_events_name_it() {
    at_a_desk(async |desk| {
        let token = token(&desk, "provider", "own").await;
        let id = wait(&desk, "provider", "own", &token).await;
        let named =
            |tenant: &str, pool: &str| json!({"tenantId": tenant, "poolId": pool, "joinRequestId": id});
        for method in ["get", "approve", "deny"] {
            let method = format!("compute.joinRequests.{method}");
            let elsewhere = named("acme", "gpu-a");
            assert_eq!(desk.code(&root(), &method, elsewhere).await, Some(NotFound), "{method}");
        }
        // Events of one millisecond are in no order.
        desk.clock.advance(Duration::from_millis(1));
        let mut approval = named("provider", "own");
        approval["note"] = json!("rack 7");
        let approved = desk.good(&root(), "compute.joinRequests.approve", approval).await;
        assert_eq!(approved["joinRequest"]["decidedBy"], "bootstrap:editor");
        let data = desk.last_event().await;
        assert_eq!((&data["note"], &data["reasons"]), (&json!("rack 7"), &json!(["unknownMachine"])));
        desk.good(&root(), "compute.joinRequests.deny", named("provider", "own")).await;
        let told: Vec<(String, String)> = desk.events().await;
        for kind in ["approved", "denied"] {
            let kind = format!("security.join-request.{kind}");
            assert!(told.contains(&(kind, id.clone())), "{told:?}");
        }
        // With its token it is denied.
        let waiting = wait(&desk, "provider", "own", &token).await;
        let revoke = json!({"tenantId": "provider", "poolId": "own", "tokenId": token});
        desk.good(&root(), "compute.joinTokens.revoke", revoke).await;
        let mut shown = named("provider", "own");
        shown["joinRequestId"] = json!(waiting);
        let shown = desk.good(&root(), "compute.joinRequests.get", shown).await;
        assert_eq!(shown["joinRequest"]["state"], "denied");
    })
    .await;
}

#[tokio::test]
async fn what_is_overdue_has_expired_for_everybody_whether_it_was_swept_or_not() {
    at_a_desk(async |desk| {
        let token = token(&desk, "acme", "gpu-a").await;
        let pool = |more: Value| {
            let mut input = json!({"tenantId": "acme", "poolId": "gpu-a"});
            input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            input
        };
        let early = wait(&desk, "acme", "gpu-a", &token).await;
        let approved = wait(&desk, "acme", "gpu-a", &token).await;
        let approve = pool(json!({"joinRequestId": approved}));
        desk.good(&root(), "compute.joinRequests.approve", approve).await;
        let ids = async |state: &str| {
            let list = desk.good(&root(), "compute.joinRequests.list", pool(json!({"state": state}))).await;
            let found = list["joinRequests"].as_array().unwrap().iter();
            found
                .map(|one| {
                    assert_eq!(one["state"], state);
                    one["id"].as_str().unwrap().to_owned()
                })
                .collect::<Vec<_>>()
        };
        desk.clock.advance(Duration::from_secs(3599));
        assert_eq!(ids("pending").await, [early.as_str()]);
        desk.clock.advance(Duration::from_secs(1));
        let late = wait(&desk, "acme", "gpu-a", &token).await;
        assert_eq!(ids("pending").await, [late.as_str()]);
        assert_eq!(ids("expired").await, [early.as_str()]);
        assert_eq!(ids("approved").await, [approved.as_str()]);
        let shown = pool(json!({"joinRequestId": early}));
        let shown = desk.good(&root(), "compute.joinRequests.get", shown).await;
        assert_eq!(shown["joinRequest"]["state"], "expired");
        desk.clock.advance(Duration::from_secs(86_400 - 3600));
        // Denying all of the token's finds the late one overdue by now, and the approved one too.
        let all = pool(json!({"tokenId": token}));
        let denied = desk.good(&root(), "compute.joinRequests.deny", all).await;
        assert_eq!(denied["joinRequests"], json!([]));
        let mut expired = vec![early, approved, late];
        expired.sort();
        assert_eq!(ids("expired").await, expired);
        let told = desk.events().await;
        for id in &expired {
            assert!(told.contains(&("security.join-request.expired".to_owned(), id.clone())), "{told:?}");
        }
        // Their uses are free again.
        let tokens = pool(json!({"includeInactive": true}));
        let tokens = desk.good(&root(), "compute.joinTokens.list", tokens).await;
        assert_eq!(tokens["joinTokens"][0]["pending"], 0);
        // What is overdue holds no pool.
        let named = json!({"tenantId": "provider", "poolId": "own"});
        let short = self::token(&desk, "provider", "own").await;
        wait(&desk, "provider", "own", &short).await;
        desk.clock.advance(Duration::from_secs(3599));
        assert_eq!(desk.code(&root(), "compute.pools.delete", named.clone()).await, Some(Code::InvalidState));
        desk.clock.advance(Duration::from_secs(1));
        desk.good(&root(), "compute.pools.delete", named).await;
    })
    .await;
}

#[tokio::test]
async fn a_revoked_token_denies_what_is_open_and_not_what_has_expired() {
    at_a_desk(async |desk| {
        let token = token(&desk, "acme", "gpu-a").await;
        let early = wait(&desk, "acme", "gpu-a", &token).await;
        desk.clock.advance(Duration::from_secs(3600));
        let late = wait(&desk, "acme", "gpu-a", &token).await;
        let revoke = json!({"tenantId": "acme", "poolId": "gpu-a", "tokenId": token});
        let revoked = desk.good(&root(), "compute.joinTokens.revoke", revoke).await;
        assert_eq!(revoked["joinToken"]["pending"], 0);
        for (id, state) in [(early, "expired"), (late, "denied")] {
            let get = json!({"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": id});
            let shown = desk.good(&root(), "compute.joinRequests.get", get).await;
            assert_eq!(shown["joinRequest"]["state"], state);
        }
    })
    .await;
}
