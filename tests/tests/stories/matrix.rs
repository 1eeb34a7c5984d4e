//! Every method against every kind of caller, over the wire: who is let in, who is refused, who is told nothing. What is
//! found is compared with `matrix.txt`; a method that has no row here or there fails.
//!
//! `+` the method was let run (whatever it then said of the state), `-` PERMISSION_DENIED, `.` NOT_FOUND, `!`
//! UNAUTHENTICATED. To change the stored matrix, run this with BLESS_MATRIX=1 and read the difference.

use super::World;
use relay::{
    auth::tokens::{self, Purpose},
    fault::Fault,
    tasks::{Asked, Kind, Manner, Queue, enqueue},
};
use serde_json::{Value, json};
use shared::api::{
    access::AdminRole,
    tokens::{Labels, Rights, TokenType},
};
use std::{collections::BTreeSet, fmt::Write as _, fs};
use tests::{Database, Machine, TpmMaker, post, unique};

const STORED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stories/matrix.txt");

/// A row: a name for people where one method has several, the method, what must be there before each call, the body.
/// `$n` is another number for each call, `$own` a token of the caller's, `$self` its subject; other words with a dollar
/// are made by [`Facts`].
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)], &'static str);

/// The placeholder join that the queue's rows ask for, made before each call.
const WAITS: &[(&str, &str)] = &[("", "wait")];
const JOINS: &[(&str, &str)] = &[("", "join")];
/// A task that waits, made before each call.
const TASK: &[(&str, &str)] = &[("", "task")];
const PING: &str = r#"{"type": "worker", "identifier": "w", "version": "1", "startedAt": "2026-01-02T03:04:05Z", "intervalSeconds": 60}"#;
const PINGED: &[(&str, &str)] = &[("infra.components.ping", PING)];
/// A machine that is being enrolled, whose BMC nobody reaches, made once.
const METAL: &[(&str, &str)] = &[("", "metal")];
/// A tenant has not many webhooks: all are deleted first.
const NO_WEBHOOK: &[(&str, &str)] = &[("", "no webhook")];
const A_WEBHOOK: &[(&str, &str)] = &[("", "no webhook"), ("iam.webhooks.create", WEBHOOK)];
const WEBHOOK: &str = r#"{"tenantId": "acme", "url": "https://hooks.example.org/x", "types": ["*"]}"#;
/// What nobody here does.
static ERRANDS: Queue = Queue { name: "errands", at_a_time: 1 };
static ERRAND: Kind =
    Kind { name: "errand.run", queue: &ERRANDS, manner: Manner::Retried, lease_seconds: 60 };

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("", "iam.tenants.create", &[], r#"{"tenantId": "t-$n"}"#),
    ("", "iam.tenants.get", &[], r#"{"tenantId": "acme"}"#),
    ("", "iam.tenants.list", &[], "{}"),
    ("", "iam.tenants.update", &[], r#"{"tenantId": "acme", "displayName": "A"}"#),
    ("", "iam.tenants.delete", &[], r#"{"tenantId": "acme"}"#),
    ("", "iam.projects.create", &[], r#"{"tenantId": "acme", "projectId": "p-$n"}"#),
    ("", "iam.projects.get", &[], r#"{"tenantId": "acme", "projectId": "ml"}"#),
    ("", "iam.projects.list", &[], r#"{"tenantId": "acme"}"#),
    ("", "iam.projects.update", &[], r#"{"tenantId": "acme", "projectId": "ml", "displayName": "M"}"#),
    ("", "iam.projects.delete", &[], r#"{"tenantId": "acme", "projectId": "ml"}"#),
    ("tenant", "iam.members.add", &[], r#"{"tenantId": "acme", "memberId": "extra", "role": "VIEWER"}"#),
    ("project", "iam.members.add", &[], r#"{"tenantId": "acme", "projectId": "ml", "memberId": "extra", "role": "VIEWER"}"#),
    ("tenant", "iam.members.list", &[], r#"{"tenantId": "acme"}"#),
    ("project", "iam.members.list", &[], r#"{"tenantId": "acme", "projectId": "ml"}"#),
    ("", "iam.members.update", &[("iam.members.add", r#"{"tenantId": "acme", "memberId": "extra", "role": "VIEWER"}"#)],
        r#"{"tenantId": "acme", "memberId": "extra", "role": "VIEWER"}"#),
    ("", "iam.members.remove", &[("iam.members.add", r#"{"tenantId": "acme", "memberId": "extra", "role": "VIEWER"}"#)],
        r#"{"tenantId": "acme", "memberId": "extra"}"#),
    ("", "iam.members.leave", &[], r#"{"tenantId": "$self"}"#),
    ("tenant", "iam.invites.create", &[], r#"{"tenantId": "acme"}"#),
    ("project", "iam.invites.create", &[], r#"{"tenantId": "acme", "projectId": "ml"}"#),
    ("", "iam.invites.list", &[], r#"{"tenantId": "acme"}"#),
    ("", "iam.invites.delete", &[("iam.invites.create", r#"{"tenantId": "acme"}"#)],
        r#"{"tenantId": "acme", "inviteId": "$invite.id"}"#),
    ("", "iam.invites.accept", &[], r#"{"secret": "no secret of an invite"}"#),
    ("", "iam.webhooks.create", NO_WEBHOOK, WEBHOOK),
    ("", "iam.webhooks.list", &[], r#"{"tenantId": "acme"}"#),
    ("", "iam.webhooks.update", A_WEBHOOK, r#"{"tenantId": "acme", "webhookId": "$webhook.id", "rotateSecret": true}"#),
    ("", "iam.webhooks.delete", A_WEBHOOK, r#"{"tenantId": "acme", "webhookId": "$webhook.id"}"#),
    ("", "iam.audit.list", &[], r#"{"tenantId": "acme"}"#),
    ("", "admin.audit.list", &[], "{}"),
    ("", "iam.tokens.create", &[], r#"{"description": "d", "permissions": [{"subject": "self", "actions": ["iam:tokens:read"]}]}"#),
    ("", "iam.tokens.get", &[], r#"{"tokenId": "$own"}"#),
    ("", "iam.tokens.list", &[], "{}"),
    ("", "iam.tokens.update", &[], r#"{"tokenId": "$own", "description": "e"}"#),
    ("", "iam.tokens.revoke", &[], r#"{"tokenId": "$own"}"#),
    ("", "iam.tokens.refresh", &[], "{}"),
    ("", "iam.self.whoAmI", &[], "{}"),
    ("", "iam.self.permissions", &[], "{}"),
    ("", "admin.users.create", &[], r#"{"userId": "u-$n"}"#),
    ("", "admin.users.list", &[], "{}"),
    ("", "admin.grants.put", &[], r#"{"userId": "extra", "siteId": "default", "role": "VIEWER"}"#),
    ("", "admin.grants.list", &[], r#"{"userId": "extra"}"#),
    ("", "admin.grants.remove", &[("admin.grants.put", r#"{"userId": "extra", "siteId": "default", "role": "VIEWER"}"#)],
        r#"{"userId": "extra", "siteId": "default"}"#),
    ("", "admin.tenants.list", &[], "{}"),
    ("", "admin.tenants.addMember", &[], r#"{"tenantId": "acme", "memberId": "extra", "role": "VIEWER"}"#),
    ("", "admin.tokens.create", &[], r#"{"subject": "extra", "description": "d", "permissions": [{"subject": "self", "actions": ["iam:tokens:read"]}]}"#),
    ("", "admin.tokens.get", &[], r#"{"tokenId": "$spare"}"#),
    ("", "admin.tokens.list", &[], "{}"),
    ("", "admin.tokens.revoke", &[], r#"{"tokenId": "$spare"}"#),
    ("", "infra.components.ping", &[], PING),
    ("", "admin.components.list", &[], "{}"),
    ("", "admin.components.get", PINGED, r#"{"type": "worker", "identifier": "w"}"#),
    ("", "admin.components.delete", PINGED, r#"{"type": "worker", "identifier": "w"}"#),
    ("", "admin.tasks.list", &[], "{}"),
    ("", "admin.tasks.queues", &[], "{}"),
    ("", "admin.tasks.get", TASK, r#"{"taskId": "$task"}"#),
    ("", "admin.tasks.retry", TASK, r#"{"taskId": "$task"}"#),
    ("", "admin.tasks.delete", TASK, r#"{"taskId": "$task"}"#),
    ("", "compute.events.list", &[], r#"{"tenantId": "acme"}"#),
    ("custom", "compute.sites.create", &[], r#"{"siteId": "s-$n", "ownerTenantId": "acme", "custom": true}"#),
    ("platform", "compute.sites.create", &[], r#"{"siteId": "s-$n", "ownerTenantId": "provider"}"#),
    ("", "compute.sites.get", &[], r#"{"siteId": "default"}"#),
    ("", "compute.sites.list", &[], "{}"),
    ("", "compute.sites.update", &[], r#"{"siteId": "barn", "bmcNetworks": []}"#),
    ("", "compute.sites.delete", &[], r#"{"siteId": "barn"}"#),
    ("platform", "compute.pools.create", &[], r#"{"poolId": "x-$n", "tenantId": "acme", "siteId": "default"}"#),
    ("custom", "compute.pools.create", &[], r#"{"poolId": "x-$n", "tenantId": "acme", "siteId": "barn"}"#),
    ("", "compute.pools.get", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.pools.list", &[], r#"{"tenantId": "acme"}"#),
    ("platform", "compute.pools.update", &[], r#"{"tenantId": "acme", "poolId": "gpu-a", "policy": {}}"#),
    ("custom", "compute.pools.update", &[], r#"{"tenantId": "acme", "poolId": "barn-a", "policy": {}}"#),
    ("", "compute.pools.delete", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.secrets.put", &[], r#"{"tenantId": "acme", "poolId": "gpu-a", "name": "n", "value": "v"}"#),
    ("", "compute.secrets.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.secrets.remove", &[("compute.secrets.put", r#"{"tenantId": "acme", "poolId": "gpu-a", "name": "n", "value": "v"}"#)],
        r#"{"tenantId": "acme", "poolId": "gpu-a", "name": "n"}"#),
    ("", "compute.inventory.put", &[], r#"{"tenantId": "acme", "poolId": "gpu-a", "entryId": "e", "serial": "SN-X"}"#),
    ("", "compute.inventory.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.inventory.remove", &[("compute.inventory.put", r#"{"tenantId": "acme", "poolId": "gpu-a", "entryId": "e", "serial": "SN-X"}"#)],
        r#"{"tenantId": "acme", "poolId": "gpu-a", "entryId": "e"}"#),
    ("", "compute.endorsementAuthorities.add", &[], r#"{"tenantId": "acme", "poolId": "gpu-a", "certificates": "$pem"}"#),
    ("", "compute.endorsementAuthorities.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.endorsementAuthorities.remove", &[("compute.endorsementAuthorities.add", r#"{"tenantId": "acme", "poolId": "gpu-a", "certificates": "$pem"}"#)],
        r#"{"tenantId": "acme", "poolId": "gpu-a", "authorityId": "$endorsementAuthority.id"}"#),
    ("", "compute.endorsementKeys.add", &[], r#"{"tenantId": "acme", "poolId": "gpu-a", "ekSha256": "$ek"}"#),
    ("", "compute.endorsementKeys.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.endorsementKeys.listUnmatched", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.endorsementKeys.remove", &[("compute.endorsementKeys.add", r#"{"tenantId": "acme", "poolId": "gpu-a", "ekSha256": "$ek"}"#)],
        r#"{"tenantId": "acme", "poolId": "gpu-a", "ekSha256": "$ek"}"#),
    ("", "compute.joinTokens.create", &[], r#"{"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 600}"#),
    ("", "compute.joinTokens.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.joinTokens.revoke", &[("compute.joinTokens.create", r#"{"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 600}"#)],
        r#"{"tenantId": "acme", "poolId": "gpu-a", "tokenId": "$joinToken.id"}"#),
    ("", "compute.joinRequests.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.joinRequests.get", WAITS, r#"{"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": "$request"}"#),
    ("", "compute.joinRequests.approve", WAITS, r#"{"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": "$request"}"#),
    ("", "compute.joinRequests.deny", WAITS, r#"{"tenantId": "acme", "poolId": "gpu-a", "joinRequestId": "$request"}"#),
    ("", "compute.nodes.list", &[], r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.nodes.get", JOINS, r#"{"tenantId": "acme", "poolId": "barn-a", "nodeId": "$node"}"#),
    ("", "compute.nodes.ban", JOINS, r#"{"tenantId": "acme", "poolId": "barn-a", "nodeId": "$node"}"#),
    ("", "compute.nodes.unban", JOINS, r#"{"tenantId": "acme", "poolId": "barn-a", "nodeId": "$node"}"#),
    ("", "compute.nodes.release", JOINS, r#"{"tenantId": "acme", "poolId": "barn-a", "nodeId": "$node"}"#),
    ("platform", "compute.metal.enroll", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "bmc": {"address": "bmc$n", "username": "u", "password": "p", "tlsInsecure": true}}"#),
    ("custom", "compute.metal.enroll", METAL, r#"{"tenantId": "acme", "poolId": "barn-a", "bmc": {"address": "bmc$n", "username": "u", "password": "p", "tlsInsecure": true}}"#),
    ("", "compute.metal.get", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "compute.metal.list", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("", "compute.metal.history", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "compute.metal.setCredentials", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "bmc": {"username": "u", "password": "q"}}"#),
    ("", "compute.metal.power", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "target": "on"}"#),
    ("", "compute.metal.inspect", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "compute.metal.commission", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "compute.metal.deploy", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "image": {"url": "https://images.example.org/x", "sha256": "$ek", "format": "raw"}}"#),
    ("", "compute.metal.rescue", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal", "sshPublicKey": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAA"}"#),
    ("", "compute.metal.release", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "compute.metal.abort", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "compute.metal.retire", METAL, r#"{"tenantId": "acme", "poolId": "gpu-a", "nodeId": "$metal"}"#),
    ("", "node.steps.poll", &[], "{}"),
    ("", "node.steps.report", &[], r#"{"stepId": "ms_00000000000000000000000000", "result": {}}"#),
    ("", "node.join", &[], "$join"),
    ("", "node.renew", &[], "$renew"),
    ("", "node.heartbeat", &[], "{}"),
    ("", "node.secrets", &[], "{}"),
];

/// A kind of caller.
struct Caller {
    name: &'static str,
    subject: String,
    bearer: Option<String>,
    machine: Option<Machine>,
    /// A token of its own, for what is done to tokens.
    own: String,
}

#[tokio::test]
async fn every_method_lets_in_whom_the_stored_matrix_says() {
    let mut facts = Facts::new().await;
    let callers = facts.callers().await;
    let methods: BTreeSet<String> =
        relay::api::registry().unwrap().methods().map(|row| row.name.into()).collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|row| row.1.to_owned()).collect();
    assert_eq!(methods, rows, "every method has a row here");
    let mut found = String::from("# Written by the test of the same name; see there.\n");
    for (at, caller) in callers.iter().enumerate() {
        let _ = writeln!(found, "# {:>2} {}", at + 1, caller.name);
    }
    for (what, method, before, body) in ROWS {
        let _ = write!(found, "{:<52}", format!("{method} {what}").trim());
        for caller in &callers {
            facts.prepare(before).await;
            let _ = write!(found, "  {}", facts.ask(caller, method, body).await);
        }
        found.push('\n');
    }
    if std::env::var_os("BLESS_MATRIX").is_some() {
        fs::write(STORED, &found).unwrap();
    }
    let stored = fs::read_to_string(STORED).unwrap_or_default();
    let changed: Vec<(&str, &str)> =
        stored.lines().zip(found.lines()).filter(|(old, new)| old != new).collect();
    assert!(stored == found, "stored and found differ: {changed:#?}");
}

/// A world with a tenant acme, and what the rows name.
struct Facts {
    world: World,
    number: u32,
    token: String,
    pem: String,
    spare: String,
    made: Value,
    request: String,
    node: String,
    metal: String,
    task: String,
}

impl Facts {
    async fn new() -> Self {
        let world = World::unlimited(Database::sqlite()).await;
        let relay = &world.relay;
        for (method, mut body) in [
            ("iam/tenants/create", json!({"tenantId": "acme"})),
            ("iam/projects/create", json!({"tenantId": "acme", "projectId": "ml"})),
            ("iam/projects/create", json!({"tenantId": "acme", "projectId": "web"})),
            ("compute/sites/create", json!({"siteId": "barn", "ownerTenantId": "acme", "custom": true})),
            (
                "compute/pools/create",
                json!({"poolId": "gpu-a", "tenantId": "acme", "projectId": "ml", "siteId": "default"}),
            ),
            (
                "compute/pools/create",
                json!({"poolId": "barn-a", "tenantId": "acme", "projectId": "ml", "siteId": "barn"}),
            ),
            ("admin/users/create", json!({"userId": "extra"})),
        ] {
            body["idempotencyKey"] = json!(unique("key"));
            relay.call(method, &body).await;
        }
        let pem = TpmMaker::new("id:4e544300").pem().to_owned();
        let mut facts = Self {
            world,
            number: 0,
            token: String::new(),
            pem,
            spare: String::new(),
            made: Value::Null,
            request: String::new(),
            node: String::new(),
            metal: String::new(),
            task: String::new(),
        };
        let many = json!({"tenantId": "acme", "poolId": "barn-a", "ttlSeconds": 86_400, "maxUses": 10_000});
        facts.token = facts.root("compute/joinTokens/create", many).await["token"].as_str().unwrap().into();
        // What is live in it keeps the pool from being deleted.
        let live = json!({"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 86_400});
        facts.root("compute/joinTokens/create", live).await;
        facts.spare = facts.issue("extra", None, 8 * 3600).await.0;
        facts
    }

    /// Every kind of caller, from the least up.
    async fn callers(&mut self) -> Vec<Caller> {
        let mut callers = Vec::new();
        let plain = |name, bearer: Option<String>| Caller {
            name,
            subject: "nobody".to_owned(),
            bearer,
            machine: None,
            own: format!("tk_{}", "0".repeat(26)),
        };
        callers.push(plain("nobody", None));
        callers.push(plain("garbage", Some("garbage".to_owned())));
        callers.push(plain("a join token", Some(self.token.clone())));
        callers.extend(self.ended().await);
        callers.push(self.machine_caller("a node", "provider", "default").await);
        callers.push(self.machine_caller("a node-tenant", "acme", "barn-a").await);
        callers.push(self.user("another tenant's OWNER", "stranger", None).await);
        for (name, project, role) in [
            ("acme GUEST", None, "GUEST"),
            ("acme VIEWER", None, "VIEWER"),
            ("acme EDITOR", None, "EDITOR"),
            ("acme OWNER", None, "OWNER"),
            ("acme/ml VIEWER", Some("ml"), "VIEWER"),
            ("acme/ml EDITOR", Some("ml"), "EDITOR"),
            ("acme/ml OWNER", Some("ml"), "OWNER"),
            ("acme/web OWNER", Some("web"), "OWNER"),
        ] {
            let subject = name.to_lowercase().replace([' ', '/'], "-");
            let caller = self.user(name, &subject, None).await;
            self.member(&caller.subject, "acme", project, role).await;
            callers.push(caller);
        }
        for (name, role) in [("provider VIEWER", "VIEWER"), ("provider OWNER", "OWNER")] {
            let caller = self.user(name, &format!("provider-{role}").to_lowercase(), None).await;
            self.member(&caller.subject, "provider", None, role).await;
            callers.push(caller);
        }
        for (name, role) in [("infra VIEWER", "VIEWER"), ("infra EDITOR", "EDITOR")] {
            let caller = self.user(name, &format!("infra-{role}").to_lowercase(), None).await;
            let grant = json!({"userId": caller.subject, "siteId": "default", "role": role});
            self.root("admin/grants/put", grant).await;
            callers.push(caller);
        }
        for (name, role, of_provider) in
            [("admin VIEWER", AdminRole::Viewer, "VIEWER"), ("admin EDITOR", AdminRole::Editor, "OWNER")]
        {
            let subject = name.to_lowercase().replace(' ', "-");
            let caller = self.user(name, &subject, Some(role)).await;
            self.member(&caller.subject, "provider", None, of_provider).await;
            callers.push(caller);
        }
        callers
    }

    /// Tokens that counted once.
    async fn ended(&self) -> Vec<Caller> {
        let mut ended = Vec::new();
        for (name, lifetime) in
            [("an expired token of acme's OWNER", 1), ("a revoked token of acme's OWNER", 600)]
        {
            let mut caller = self.user(name, &format!("ended-{lifetime}"), None).await;
            self.member(&caller.subject, "acme", None, "OWNER").await;
            let (id, bearer) = self.issue(&caller.subject, None, lifetime).await;
            if lifetime > 1 {
                self.root("admin/tokens/revoke", json!({"tokenId": id})).await;
            }
            caller.bearer = Some(bearer);
            ended.push(caller);
        }
        self.world.clock.advance(std::time::Duration::from_secs(2));
        ended
    }

    async fn root(&self, method: &str, mut body: Value) -> Value {
        if method.ends_with("/create") || method.ends_with("/add") {
            body["idempotencyKey"] = json!(unique("key"));
        }
        self.world.relay.call(method, &body).await
    }

    async fn member(&self, user: &str, tenant: &str, project: Option<&str>, role: &str) {
        let body = json!({"tenantId": tenant, "projectId": project, "memberId": user, "role": role});
        self.root("iam/members/add", body).await;
    }

    async fn user(&self, name: &'static str, subject: &str, admin_role: Option<AdminRole>) -> Caller {
        self.root("admin/users/create", json!({"userId": subject})).await;
        let (_, bearer) = self.issue(subject, admin_role, 8 * 3600).await;
        let (own, _) = self.issue(subject, None, 8 * 3600).await;
        Caller { name, subject: subject.to_owned(), bearer: Some(bearer), machine: None, own }
    }

    /// A token as from a login: its id and its bearer.
    async fn issue(
        &self,
        subject: &str,
        admin_role: Option<AdminRole>,
        lifetime_seconds: i64,
    ) -> (String, String) {
        let context = self.world.relay.context.clone();
        let now = self.world.clock.now();
        let purpose = Purpose {
            token_type: TokenType::User,
            subject,
            tenant_id: subject,
            admin_role,
            rights: Rights { admin_role, ..Rights::default() },
            description: "login",
            labels: Labels::new(),
            created_by: subject,
            lifetime_seconds,
            ends_at: None,
            login_at: Some(now),
            predecessor: None,
        };
        let issue = context.store.transact("login", (&context, &purpose), |tx, (context, purpose)| {
            Box::pin(tokens::issue(tx, context, purpose, now))
        });
        let (token, bearer) = issue.await.unwrap();
        (token.id.to_string(), bearer.expose().to_owned())
    }

    async fn machine_caller(&mut self, name: &'static str, tenant: &str, pool: &str) -> Caller {
        let mint = json!({"tenantId": tenant, "poolId": pool, "ttlSeconds": 600});
        let token = self.root("compute/joinTokens/create", mint).await["token"].as_str().unwrap().to_owned();
        let mut machine = Machine::new(self.next());
        let joined = machine.join(&self.world.relay, &token).await;
        assert_eq!(joined.status, 200, "{}", joined.body);
        let (subject, own) = ("nobody".to_owned(), format!("tk_{}", "0".repeat(26)));
        Caller { name, subject, bearer: None, machine: Some(machine), own }
    }

    fn next(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    async fn errand(&self) -> String {
        let context = self.world.relay.context.clone();
        let asked = context.store.transact("ask", &context, |tx, context| {
            Box::pin(async move {
                let id = enqueue(tx, &context.random, &Asked::now(&ERRAND, &Value::Null)).await?;
                Ok::<_, Fault>(id.unwrap().to_string())
            })
        });
        asked.await.unwrap()
    }

    /// Makes what a row must find.
    async fn prepare(&mut self, before: &[(&str, &str)]) {
        for (method, body) in before {
            match (*method, *body) {
                ("", "wait") => {
                    let mut machine = Machine::claiming(json!({"serial": "To be filled by O.E.M."}));
                    // A token of its own: not so many may wait by one.
                    let mint = json!({"tenantId": "acme", "poolId": "gpu-a", "ttlSeconds": 600});
                    let minted = self.root("compute/joinTokens/create", mint).await;
                    let answer = machine.join(&self.world.relay, minted["token"].as_str().unwrap()).await;
                    self.request = answer.body["joinRequestId"].as_str().unwrap().to_owned();
                }
                ("", "no webhook") => {
                    let acme = json!({"tenantId": "acme"});
                    let listed = self.root("iam/webhooks/list", acme.clone()).await;
                    for webhook in listed["webhooks"].as_array().unwrap() {
                        let mut delete = acme.clone();
                        delete["webhookId"] = webhook["id"].clone();
                        self.root("iam/webhooks/delete", delete).await;
                    }
                }
                ("", "metal") if !self.metal.is_empty() => {}
                ("", "metal") => {
                    for site in ["default", "barn"] {
                        let networks = json!({"siteId": site, "bmcNetworks": ["192.0.2.0/24"]});
                        self.root("compute/sites/update", networks).await;
                    }
                    let bmc = json!({"address": "192.0.2.0", "username": "u", "password": "p", "tlsInsecure": true});
                    let enroll = json!({"tenantId": "acme", "poolId": "gpu-a", "bmc": bmc, "idempotencyKey": unique("key")});
                    let made = self.root("compute/metal/enroll", enroll).await;
                    self.metal = made["node"]["nodeId"].as_str().unwrap().to_owned();
                }
                ("", "task") => self.task = self.errand().await,
                ("", _) => {
                    let mut machine = Machine::new(self.next());
                    let answer = machine.join(&self.world.relay, &self.token).await;
                    assert_eq!(answer.body["status"], "issued", "{}", answer.body);
                    self.node = answer.body["nodeId"].as_str().unwrap().to_owned();
                }
                (method, body) => {
                    // No authority is added twice, and a pool has not many.
                    let id = self.made["endorsementAuthority"]["id"].clone();
                    let last = json!({"tenantId": "acme", "poolId": "gpu-a", "authorityId": id});
                    let (relay, remove) = (&self.world.relay, "compute/endorsementAuthorities/remove");
                    relay.call_as(&relay.admin(), remove, &last).await;
                    self.pem = TpmMaker::new("id:4e544300").pem().to_owned();
                    let mut body = self.filled(body, None);
                    if method.ends_with(".create") || method.ends_with(".add") {
                        body["idempotencyKey"] = json!(unique("key"));
                    }
                    let relay = &self.world.relay;
                    // It may be there already.
                    self.made = relay.call_as(&relay.admin(), &method.replace('.', "/"), &body).await.body;
                }
            }
        }
    }

    fn filled(&mut self, body: &str, caller: Option<&Caller>) -> Value {
        let number = self.next();
        let (own, subject) = caller.map_or(("", ""), |caller| (&caller.own, &caller.subject));
        let mut text = body
            .replace("$n\"", &format!("{number}\""))
            .replace("$own", own)
            .replace("$self", subject)
            .replace("$spare", &self.spare)
            .replace("$request", &self.request)
            .replace("$node", &self.node)
            .replace("$metal", &self.metal)
            .replace("$task", &self.task)
            .replace("$pem", &self.pem.replace('\n', "\\n"))
            .replace("$ek", &"ab".repeat(32));
        for thing in ["invite", "endorsementAuthority", "joinToken", "webhook"] {
            let id = self.made[thing]["id"].as_str().unwrap_or_default();
            text = text.replace(&format!("${thing}.id"), id);
        }
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Asks, and says in a sign what became of it.
    async fn ask(&mut self, caller: &Caller, method: &str, body: &str) -> char {
        let mut body = match body {
            "$join" => Machine::new(self.next()).join_input(),
            "$renew" => match &caller.machine {
                Some(machine) => json!({"csr": machine.csr}),
                None => json!({"csr": Machine::new(self.next()).csr}),
            },
            body => self.filled(body, Some(caller)),
        };
        let reads = ["get", "list", "history"].iter().any(|own| method.ends_with(own));
        let verb = method.starts_with("compute.metal.") && !reads;
        if method.ends_with(".create") || method.ends_with(".add") || verb {
            body["idempotencyKey"] = json!(unique("key"));
        }
        let relay = &self.world.relay;
        let client =
            caller.machine.as_ref().map_or_else(|| relay.client(None), |machine| machine.client(relay));
        let answer =
            post(&client, &relay.url(), caller.bearer.as_deref(), &method.replace('.', "/"), &body).await;
        match answer.status {
            401 => '!',
            403 => '-',
            404 => '.',
            400 => panic!("{method} {body}: {}", answer.body),
            429 | 500.. => panic!("{method} as {}: {}", caller.name, answer.body),
            _ => '+',
        }
    }
}
