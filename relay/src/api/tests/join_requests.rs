//! compute/joinRequests: who may decide, and what a person sees. What the decisions do to joins is told in the stories.

use super::*;
use crate::store::{StoreError, join_requests as rows, join_tokens};
use Code::{NotFound, PermissionDenied};
use TenantRole::{Editor, Guest, Owner, Viewer};
use shared::{
    api::join_requests::{DeferReason, JoinRequest, JoinRequestState},
    hardware,
    id::JoinRequestId,
};

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
            rows::insert(tx, request, "content").await?;
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
async fn both_owners_see_and_the_sites_owner_decides() {
    at_a_desk(async |desk| {
        let token = token(&desk, "acme", "gpu-a").await;
        for (caller, read, decide) in [
            (root(), None, None),
            (auditor(), None, Some(PermissionDenied)),
            (member("provider", Owner), None, None),
            (member("provider", Editor), None, None),
            (member("provider", Viewer), None, Some(PermissionDenied)),
            (member("provider", Guest), Some(NotFound), Some(NotFound)),
            (member("acme", Owner), None, Some(PermissionDenied)),
            (member("acme", Viewer), None, Some(PermissionDenied)),
            (project_member("ml", ProjectRole::Editor), None, Some(PermissionDenied)),
            (project_member("web", ProjectRole::Owner), Some(NotFound), Some(NotFound)),
            (member("other", Owner), Some(NotFound), Some(NotFound)),
        ] {
            let name = &caller.subject;
            let id = wait(&desk, "acme", "gpu-a", &token).await;
            let pool = json!({"tenantId": "acme", "poolId": "gpu-a"});
            let named = json!({"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": id});
            assert_eq!(desk.code(&caller, "compute.joinRequests.list", pool).await, read, "{name}");
            for (method, expected) in [("get", read), ("approve", decide), ("deny", decide)] {
                let method = format!("compute.joinRequests.{method}");
                assert_eq!(desk.code(&caller, &method, named.clone()).await, expected, "{name} {method}");
            }
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
