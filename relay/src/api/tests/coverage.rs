//! Every operator's row is decided as it says: a walk over the list itself, so that a new row is found if it is not.

use super::*;
use shared::api::{Access, Kind, access::Scope};

/// A body for each method, in an order in which all of them succeed; what begins with `$` is put in.
#[rustfmt::skip]
const BODIES: &[(&str, &str)] = &[
    ("iam.tenants.create", r#"{"tenantId": "t"}"#),
    ("iam.tenants.get", r#"{"tenantId": "t"}"#),
    ("iam.tenants.list", "{}"),
    ("iam.tenants.update", r#"{"tenantId": "t", "displayName": "T"}"#),
    ("iam.projects.create", r#"{"tenantId": "t", "projectId": "j"}"#),
    ("iam.projects.get", r#"{"tenantId": "t", "projectId": "j"}"#),
    ("iam.projects.list", r#"{"tenantId": "t"}"#),
    ("iam.projects.update", r#"{"tenantId": "t", "projectId": "j", "displayName": "J"}"#),
    ("admin.users.create", r#"{"userId": "svc"}"#),
    ("admin.users.list", "{}"),
    ("admin.tenants.list", "{}"),
    ("admin.tenants.addMember", r#"{"tenantId": "t", "memberId": "svc", "role": "OWNER"}"#),
    ("iam.members.add", r#"{"tenantId": "t", "projectId": "j", "memberId": "svc", "role": "VIEWER"}"#),
    ("iam.members.list", r#"{"tenantId": "t", "projectId": "j"}"#),
    ("iam.members.update", r#"{"tenantId": "t", "projectId": "j", "memberId": "svc", "role": "EDITOR"}"#),
    ("iam.members.remove", r#"{"tenantId": "t", "projectId": "j", "memberId": "svc"}"#),
    ("iam.members.leave", r#"{"tenantId": "t"}"#),
    ("iam.invites.create", r#"{"tenantId": "t"}"#),
    ("iam.invites.list", r#"{"tenantId": "t"}"#),
    ("iam.invites.delete", r#"{"tenantId": "t", "inviteId": "$invite"}"#),
    ("iam.invites.accept", r#"{"secret": "$invite.x"}"#),
    ("iam.webhooks.create", r#"{"tenantId": "t", "url": "https://hooks.example.org/x", "types": ["*"]}"#),
    ("iam.webhooks.list", r#"{"tenantId": "t"}"#),
    ("iam.webhooks.update", r#"{"tenantId": "t", "webhookId": "$webhook", "rotateSecret": true}"#),
    ("iam.webhooks.delete", r#"{"tenantId": "t", "webhookId": "$webhook"}"#),
    ("iam.tokens.create", r#"{"description": "d", "tenantRoles": [{"tenantId": "t", "role": "OWNER"}]}"#),
    ("iam.tokens.get", r#"{"tokenId": "$api"}"#),
    ("iam.tokens.list", "{}"),
    ("iam.tokens.update", r#"{"tokenId": "$api", "description": "e"}"#),
    ("iam.tokens.revoke", r#"{"tokenId": "$api"}"#),
    ("iam.tokens.refresh", "{}"),
    ("admin.tokens.create", r#"{"subject": "svc", "description": "d", "tenantRoles": [{"tenantId": "t", "role": "OWNER"}]}"#),
    ("admin.tokens.get", r#"{"tokenId": "$api"}"#),
    ("admin.tokens.list", "{}"),
    ("admin.tokens.revoke", r#"{"tokenId": "$api"}"#),
    ("iam.audit.list", r#"{"tenantId": "t"}"#),
    ("admin.audit.list", "{}"),
    ("infra.components.ping", r#"{"type": "worker", "identifier": "w-1", "version": "1", "startedAt": "2026-01-02T03:04:05Z", "intervalSeconds": 60}"#),
    ("admin.components.list", "{}"),
    ("admin.components.get", r#"{"type": "worker", "identifier": "w-1"}"#),
    ("admin.components.delete", r#"{"type": "worker", "identifier": "w-1"}"#),
    ("admin.tasks.list", "{}"),
    ("admin.tasks.queues", "{}"),
    ("admin.tasks.get", r#"{"taskId": "$task"}"#),
    ("admin.tasks.retry", r#"{"taskId": "$task"}"#),
    ("admin.tasks.delete", r#"{"taskId": "$task"}"#),
    ("iam.self.whoAmI", "{}"),
    ("iam.self.permissions", "{}"),
    ("compute.sites.create", r#"{"siteId": "s", "ownerTenantId": "t", "custom": true}"#),
    ("compute.sites.get", r#"{"siteId": "s"}"#),
    ("compute.sites.list", "{}"),
    ("admin.grants.put", r#"{"userId": "svc", "siteId": "s", "role": "EDITOR"}"#),
    ("admin.grants.list", r#"{"userId": "svc"}"#),
    ("admin.grants.remove", r#"{"userId": "svc", "siteId": "s"}"#),
    ("compute.sites.update", r#"{"siteId": "s", "bmcNetworks": []}"#),
    ("compute.pools.create", r#"{"poolId": "p", "tenantId": "t", "projectId": "j", "siteId": "s"}"#),
    ("compute.pools.get", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.pools.list", r#"{"tenantId": "t"}"#),
    ("compute.pools.update", r#"{"tenantId": "t", "poolId": "p", "policy": {}}"#),
    ("compute.events.list", r#"{"tenantId": "t"}"#),
    ("compute.secrets.put", r#"{"tenantId": "t", "poolId": "p", "name": "n", "value": "v"}"#),
    ("compute.secrets.list", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.secrets.remove", r#"{"tenantId": "t", "poolId": "p", "name": "n"}"#),
    ("compute.inventory.put", r#"{"tenantId": "t", "poolId": "p", "entryId": "e", "serial": "SN-1"}"#),
    ("compute.inventory.list", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.inventory.remove", r#"{"tenantId": "t", "poolId": "p", "entryId": "e"}"#),
    ("compute.endorsementAuthorities.add", r#"{"tenantId": "t", "poolId": "p", "certificates": "$pem"}"#),
    ("compute.endorsementAuthorities.list", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.endorsementAuthorities.remove", r#"{"tenantId": "t", "poolId": "p", "authorityId": "$authority"}"#),
    ("compute.endorsementKeys.add", r#"{"tenantId": "t", "poolId": "p", "ekSha256": "$ek"}"#),
    ("compute.endorsementKeys.list", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.endorsementKeys.listUnmatched", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.endorsementKeys.remove", r#"{"tenantId": "t", "poolId": "p", "ekSha256": "$ek"}"#),
    ("compute.joinTokens.create", r#"{"tenantId": "t", "poolId": "p", "ttlSeconds": 60}"#),
    ("compute.joinTokens.list", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.joinRequests.list", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.joinRequests.get", r#"{"tenantId": "t", "poolId": "p", "joinRequestId": "$request"}"#),
    ("compute.joinRequests.approve", r#"{"tenantId": "t", "poolId": "p", "joinRequestId": "$request"}"#),
    ("compute.joinRequests.deny", r#"{"tenantId": "t", "poolId": "p", "joinRequestId": "$request"}"#),
    ("compute.joinTokens.revoke", r#"{"tenantId": "t", "poolId": "p", "tokenId": "$token"}"#),
    ("compute.nodes.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.nodes.get", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$node"}"#),
    ("compute.nodes.ban", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$node"}"#),
    ("compute.nodes.unban", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$node"}"#),
    ("compute.nodes.release", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$node"}"#),
    ("compute.metal.enroll", r#"{"tenantId": "acme", "poolId": "gpu-a", "bmc": {"address": "192.0.2.7", "username": "u", "password": "p", "tlsInsecure": true}}"#),
    ("compute.metal.get", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.metal.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.metal.history", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.metal.setCredentials", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "bmc": {"username": "u", "password": "q"}}"#),
    ("compute.metal.abort", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.metal.power", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "target": "on"}"#),
    ("compute.metal.inspect", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.metal.commission", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.metal.deploy", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "image": {"url": "https://images.example.org/x", "sha256": "$ek", "format": "raw"}}"#),
    ("compute.metal.rescue", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"}"#),
    ("compute.metal.release", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.metal.retire", r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("compute.pools.delete", r#"{"tenantId": "t", "poolId": "p"}"#),
    ("compute.sites.delete", r#"{"siteId": "s"}"#),
    ("iam.projects.delete", r#"{"tenantId": "t", "projectId": "j"}"#),
    ("iam.tenants.delete", r#"{"tenantId": "t"}"#),
];

#[test]
fn every_operators_row_has_a_body_here() {
    let registry = api::registry().unwrap();
    let mut rows: Vec<&str> =
        registry.methods().filter(|row| row.for_operators()).map(|row| row.name).collect();
    let mut bodies: Vec<&str> = BODIES.iter().map(|(name, _)| *name).collect();
    rows.sort_unstable();
    bodies.sort_unstable();
    assert_eq!(rows, bodies);
}

#[tokio::test]
async fn every_row_is_decided_by_its_own_action() {
    at_a_desk(async |desk| {
        let node = nodes::admit(&desk, 1, nodes::UUID).await;
        let task = tasks::archived(&desk).await.to_string();
        metal::allow(&desk, &["192.0.2.0/24"]).await;
        let mut ids = Ids { node: node.as_str().to_owned(), task, ..Ids::default() };
        for (name, body) in BODIES {
            let body = filled(body, &ids);
            metal::stand(&desk, &ids.metal, name).await;
            let row = desk.registry.get(name).unwrap().method;
            refused_without_the_action(&desk, &row, &body).await;
            let mut unknown = body.clone();
            unknown["surprise"] = json!(1);
            let problem = desk.ask(&root(), name, unknown).await.unwrap_err();
            assert_eq!(
                (problem.code, problem.errors[0].field.as_str()),
                (Code::InvalidInput, "surprise"),
                "{name}"
            );
            if OF_A_STORED_TOKEN.contains(name) {
                continue;
            }
            let before = recorded(&desk, name).await;
            let answer = desk.good(&root(), name, body).await;
            let expected = before + i64::from(row.kind == Kind::Mutation);
            assert_eq!(recorded(&desk, name).await, expected, "{name}");
            if *name == "iam.invites.create" {
                ids.invite = answer["invite"]["id"].as_str().unwrap().to_owned();
            }
            if *name == "iam.webhooks.create" {
                ids.webhook = answer["webhook"]["id"].as_str().unwrap().to_owned();
            }
            if *name == "compute.metal.enroll" {
                ids.metal = answer["node"]["nodeId"].as_str().unwrap().to_owned();
            }
            if name.ends_with(".tokens.create") {
                ids.api = answer["token"]["id"].as_str().unwrap().to_owned();
            }
            if *name == "compute.joinTokens.create" {
                ids.token = answer["joinToken"]["id"].as_str().unwrap().to_owned();
                ids.request = join_requests::wait(&desk, "t", "p", &ids.token).await;
            }
            if *name == "compute.endorsementAuthorities.add" {
                ids.authority = answer["endorsementAuthority"]["id"].as_str().unwrap().to_owned();
            }
        }
    })
    .await;
}

/// Behaviours 1, 2: a method of a tenant, project or pool is refused where nothing says of which.
#[tokio::test]
async fn what_a_method_is_of_must_be_named() {
    at_a_desk(async |desk| {
        let mut asked = 0;
        for (name, body) in BODIES {
            let Access::May(_, scope) = desk.registry.get(name).unwrap().method.access else { continue };
            let needed: &[&str] = match scope {
                Scope::Tenant => &["tenantId"],
                Scope::Project => &["tenantId", "projectId"],
                Scope::ComputePool => &["tenantId", "poolId"],
                Scope::Own | Scope::Platform | Scope::Site => &[],
            };
            for field in needed {
                let mut body = filled(body, &Ids::default());
                body.as_object_mut().unwrap().remove(*field).unwrap();
                let refused = desk.ask(&root(), name, body).await.unwrap_err();
                assert_eq!(refused.code, Code::InvalidInput, "{name} without {field}: {refused:?}");
                assert!(refused.errors.iter().any(|error| error.field == *field), "{name}: {refused:?}");
                asked += 1;
            }
        }
        assert!(asked > 40, "{asked}");
    })
    .await;
}

/// How many changes by a method the audit has.
async fn recorded(desk: &Desk, method: &str) -> i64 {
    const COUNT: &str = "SELECT COUNT(*) AS count FROM audit WHERE method = $1 AND decision = 'allowed'";
    let counted = desk.relay.store.read("audit", method, |tx, method| {
        Box::pin(async move { tx.fetch_one(COUNT, &[(*method).into()]).await })
    });
    counted.await.unwrap().integer("count").unwrap()
}

/// What the bodies name that is not there before.
#[derive(Default)]
struct Ids {
    node: String,
    metal: String,
    token: String,
    request: String,
    authority: String,
    invite: String,
    webhook: String,
    api: String,
    task: String,
}

/// What only a user can whose token is in the store; `root` is none.
const OF_A_STORED_TOKEN: &[&str] =
    &["iam.members.leave", "iam.invites.accept", "iam.tokens.refresh", "iam.self.whoAmI"];

/// A body with what it leaves open.
fn filled(body: &str, ids: &Ids) -> Value {
    let body = body.replace("$node", &ids.node).replace("$metal", &ids.metal).replace("$token", &ids.token);
    let body = body.replace("$request", &ids.request).replace("$authority", &ids.authority);
    let body = body.replace("$invite", &ids.invite).replace("$api", &ids.api);
    let body = body.replace("$task", &ids.task).replace("$webhook", &ids.webhook);
    let pem = endorsement_authorities::bundle().replace('\n', "\\n");
    serde_json::from_str(&body.replace("$ek", &"ab".repeat(32)).replace("$pem", &pem)).unwrap()
}

/// Nobody is told anything without a grant; an admin VIEWER reads, and is told which action a change needs.
async fn refused_without_the_action(desk: &Desk, row: &shared::api::Method, body: &Value) {
    let name = row.name;
    let action = match row.access {
        Access::May(action, _) => action,
        // What is one's own is refused to a token that does not hold it.
        Access::Own(action) => {
            let mut nothing = stranger();
            nothing.powers.within = Some(Vec::new());
            let refused = desk.ask(&nothing, name, body.clone()).await.unwrap_err();
            assert_eq!(refused.code, Code::PermissionDenied, "{name}");
            assert!(refused.detail.contains(action.as_str()), "{name}: {}", refused.detail);
            return;
        }
        access => {
            assert_eq!((access, row.kind), (Access::Any, Kind::Read), "{name}");
            return;
        }
    };
    let code = desk.code(&stranger(), name, body.clone()).await;
    assert!(matches!(code, Some(Code::NotFound | Code::PermissionDenied)), "{name}: {code:?}");
    match desk.ask(&auditor(), name, body.clone()).await {
        Ok(_) => assert_eq!(row.kind, Kind::Read, "{name}"),
        Err(problem) => {
            assert_eq!((problem.code, row.kind), (Code::PermissionDenied, Kind::Mutation), "{name}");
            assert!(problem.detail.contains(action.as_str()), "{name}: {}", problem.detail);
        }
    }
}

#[tokio::test]
async fn a_machine_is_nobody_here() {
    at_a_desk(async |desk| {
        for (name, body) in BODIES {
            let id = |prefix: &str| format!("{prefix}{}", "0".repeat(26));
            let ids = Ids {
                node: id("nd_"),
                metal: id("nd_"),
                token: id("jt_"),
                request: id("jr_"),
                authority: id("ea_"),
                invite: id("inv_"),
                webhook: id("wh_"),
                api: id("tk_"),
                task: id("task_"),
            };
            let body = filled(body, &ids);
            let caller = Caller::JoinToken(shared::id::JoinTokenId::derive(&[1; 32]));
            let answer = desk.ask_as(caller, name, body).await;
            assert_eq!(answer.map_err(|problem| problem.code), Err(Code::Unauthenticated), "{name}");
        }
    })
    .await;
}
