//! Stories over the operator's handlers, each on both databases, through the same pipeline as a request.

mod coverage;
mod endorsement_authorities;
mod endorsement_keys;
mod inventory;
mod join_requests;
mod join_tokens;
mod lineage;
mod members;
mod metal;
pub(crate) mod nodes;
mod people;
mod pools;
mod powers;
mod secrets;
mod sites;
mod tasks;
mod tenants;
mod tokens;
mod webhooks;

use crate::{
    api::{self, registry::Registry},
    audit::{self, denials::Denials},
    auth::{Grant, Powers, Principal, keys::SigningKeys},
    ca::Authority,
    call::{Call, Caller},
    clock::Clock,
    config,
    context::Context,
    first_start::{self, Beginning},
    http::limits::Limits,
    join::{heartbeats::Heartbeats, lookups::Lookups},
    metrics::Metrics,
    outside::Outside,
    random::Random,
    seal::{KeyRing, MasterKey},
    store::{Store, testing},
};
use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::{Value, json};
use shared::{
    api::{
        Kind,
        access::{AdminRole, ProjectRole, TenantRole},
        tokens::TokenType,
    },
    id::TokenId,
    problem::{Code, Problem},
    time::Timestamp,
};
use std::{net::IpAddr, sync::Arc};

/// A relay without its edges. Beside what a first start makes it has the tenants `acme` and `other`, the projects `ml`
/// and `web` of acme, acme's custom site `barn`, and on the platform's site the pools `gpu-a` (acme, ml) and `own`
/// (provider).
pub(crate) struct Desk {
    pub(crate) relay: Arc<Context>,
    registry: Registry,
    denials: Denials,
    pub(crate) clock: Clock,
}

/// Runs a story on both databases.
pub(crate) async fn at_a_desk(story: impl AsyncFn(Desk)) {
    testing::on_both_migrated(async |store| {
        let desk = Desk::new(store).await;
        desk.furnish().await;
        story(desk).await;
    })
    .await;
}

impl Desk {
    async fn new(store: Store) -> Self {
        Self::limited(store, &limits()).await
    }

    /// One whose callers are slowed.
    pub(crate) async fn limited(store: Store, limits: &config::Limits) -> Self {
        let clock = Clock::manual(Timestamp::parse("2026-01-02T03:04:05.678Z").unwrap());
        let random = Random::seeded(7);
        let keys = KeyRing::new(MasterKey::from_bytes(random.bytes().into()), Vec::new());
        let trust_domain = "relay.test".parse().unwrap();
        let now = clock.now();
        let drawn = first_start::drawn(&store, &trust_domain, &keys, &random, now).await.unwrap();
        let beginning = Beginning {
            trust_domain: &trust_domain,
            provider_tenant: first_start::PROVIDER,
            authorities: &drawn,
            keys: &keys,
            random: &random,
            now,
        };
        let installation = first_start::ensure(&store, &beginning).await.unwrap();
        let authority = Authority::open(&trust_domain, installation.authorities, &keys, &random).unwrap();
        let relay = Arc::new(Context {
            store,
            clock: clock.clone(),
            random,
            ca: ArcSwap::from_pointee(authority),
            keys,
            signing_keys: SigningKeys::default(),
            oidc: None,
            outside: Outside::new(Vec::new(), None).unwrap(),
            limits: Limits::new(limits),
            metrics: Metrics::default(),
            heartbeats: Heartbeats::default(),
            lookups: Lookups::default(),
            url: "https://relay.test:8443".to_owned(),
            image_roots: None,
            boot_url: Some("http://relay.test:8080".to_owned()),
            provider_tenant: installation.provider_tenant,
        });
        let registry = api::registry().unwrap();
        Self { relay, registry, denials: Denials::default(), clock }
    }

    async fn furnish(&self) {
        for tenant in ["acme", "other"] {
            self.good(&root(), "iam.tenants.create", json!({"tenantId": tenant})).await;
        }
        for project in ["ml", "web"] {
            self.good(&root(), "iam.projects.create", json!({"tenantId": "acme", "projectId": project}))
                .await;
        }
        let barn = json!({"siteId": "barn", "ownerTenantId": "acme", "custom": true});
        self.good(&root(), "compute.sites.create", barn).await;
        for (pool, tenant, project) in [("gpu-a", "acme", "ml"), ("own", "provider", "default")] {
            let pool = json!({"poolId": pool, "tenantId": tenant, "projectId": project, "siteId": "default"});
            self.good(&root(), "compute.pools.create", pool).await;
        }
        self.relay
            .store
            .transact("forget", (), |tx, ()| {
                Box::pin(async move {
                    tx.execute("DELETE FROM audit", &[]).await?;
                    tx.execute("DELETE FROM events", &[]).await
                })
            })
            .await
            .unwrap();
    }

    /// Asks a method as `who`. A creation gets an idempotency key of its own unless the body has one.
    pub(crate) async fn ask(&self, who: &Principal, method: &str, body: Value) -> Result<Value, Problem> {
        self.ask_as(Caller::Credential(Arc::new(who.clone())), method, body).await
    }

    pub(crate) async fn ask_as(
        &self,
        caller: Caller,
        method: &str,
        mut body: Value,
    ) -> Result<Value, Problem> {
        let bound = self.registry.get(method).unwrap();
        let of_metal = method.starts_with("compute.metal.") && bound.method.kind == Kind::Mutation;
        let creates = method.ends_with(".create") || method.ends_with(".add") || of_metal;
        if creates && body.get("idempotencyKey").is_none() {
            body["idempotencyKey"] = json!(shared::hex::encode(&self.relay.random.bytes::<16>()));
        }
        let call = Call {
            relay: self.relay.clone(),
            caller,
            method: bound.method.name,
            remote: IpAddr::from([192, 0, 2, 1]),
            request_id: "req-1".to_owned(),
            now: self.clock.now(),
        };
        let body = Bytes::from(body.to_string());
        match bound.run(call.clone(), body.clone()).await {
            Ok(answer) => Ok(serde_json::from_slice(&answer).unwrap()),
            Err(fault) => {
                let problem = fault.into_problem(bound.method.name, "req-1");
                let action = audit::action(&bound.method);
                audit::refused(&self.denials, &call, action, &body, &problem).await;
                Err(problem)
            }
        }
    }

    /// The answer to what must succeed.
    pub(crate) async fn good(&self, who: &Principal, method: &str, body: Value) -> Value {
        let answer = self.ask(who, method, body.clone()).await;
        answer.unwrap_or_else(|problem| panic!("{method} {body}: {problem}"))
    }

    /// The code of the refusal; `None` if it succeeds.
    pub(crate) async fn code(&self, who: &Principal, method: &str, body: Value) -> Option<Code> {
        self.ask(who, method, body).await.err().map(|problem| problem.code)
    }

    /// The events so far: type and subject, in order.
    pub(crate) async fn events(&self) -> Vec<(String, String)> {
        let rows = self.relay.store.read("events", (), |tx, ()| {
            Box::pin(
                tx.fetch_all("SELECT type, subject FROM events ORDER BY occurred_at, id LIMIT 1000", &[]),
            )
        });
        rows.await
            .unwrap()
            .iter()
            .map(|row| (row.text("type").unwrap(), row.text("subject").unwrap()))
            .collect()
    }

    /// The data of the last event.
    pub(crate) async fn last_event(&self) -> Value {
        let rows = self.relay.store.read("events", (), |tx, ()| {
            Box::pin(tx.fetch_one("SELECT data FROM events ORDER BY occurred_at DESC, id DESC LIMIT 1", &[]))
        });
        rows.await.unwrap().json("data").unwrap()
    }

    /// Everything of a list, page by page; every page but the last is full.
    pub(crate) async fn pages(
        &self,
        who: &Principal,
        method: &str,
        mut body: Value,
        (field, id): (&str, &str),
    ) -> Vec<String> {
        let mut all = Vec::new();
        loop {
            let page = self.good(who, method, body.clone()).await;
            let items = page[field].as_array().unwrap();
            all.extend(items.iter().map(|item| item[id].as_str().unwrap().to_owned()));
            let Some(cursor) = page.get("cursor") else { break };
            assert_eq!(Some(items.len() as u64), body["limit"].as_u64(), "{page}");
            assert_eq!(cursor.as_str(), all.last().map(String::as_str));
            body["cursor"] = cursor.clone();
        }
        assert!(all.is_sorted(), "{all:?}");
        all
    }
}

/// Nothing here is slowed: limits are the edge's.
fn limits() -> config::Limits {
    let many = std::num::NonZeroU32::MAX;
    config::Limits {
        per_token_per_minute: many,
        per_ip_per_minute: many,
        health_per_minute: many,
        join_per_ip_per_minute: many,
        join_in_flight: many,
    }
}

pub(crate) fn who(subject: &str, tenant: &str, grants: Vec<Grant>) -> Principal {
    Principal {
        subject: subject.to_owned(),
        tenant_id: tenant.to_owned(),
        token_id: TokenId::derive(&[1; 32]),
        chain: TokenId::derive(&[1; 32]),
        token_type: TokenType::User,
        created_by: subject.to_owned(),
        powers: Powers::of(grants),
    }
}

/// The bootstrap admin.
pub(crate) fn root() -> Principal {
    who("bootstrap:editor", "provider", vec![Grant::Admin { role: AdminRole::Editor }])
}

fn auditor() -> Principal {
    who("bootstrap:viewer", "provider", vec![Grant::Admin { role: AdminRole::Viewer }])
}

pub(crate) fn member(tenant: &str, role: TenantRole) -> Principal {
    let grants = vec![Grant::Tenant { tenant_id: tenant.to_owned(), role }];
    who(&format!("user:{tenant}:{role:?}"), "home", grants)
}

fn project_member(project: &str, role: ProjectRole) -> Principal {
    let grants = vec![Grant::Project { tenant_id: "acme".to_owned(), project_id: project.to_owned(), role }];
    who(&format!("user:acme/{project}:{role:?}"), "home", grants)
}

/// Who may read and who may change what the owner of gpu-a's site decides: what each is refused with.
fn by_the_sites_owner() -> Vec<(Principal, Option<Code>, Option<Code>)> {
    let (denied, hidden) = (Some(Code::PermissionDenied), Some(Code::NotFound));
    vec![
        (root(), None, None),
        (auditor(), None, denied),
        (member("provider", TenantRole::Owner), None, None),
        (member("provider", TenantRole::Editor), None, denied),
        (member("provider", TenantRole::Viewer), None, denied),
        (member("provider", TenantRole::Guest), hidden, hidden),
        (member("acme", TenantRole::Owner), denied, denied),
        (project_member("ml", ProjectRole::Owner), denied, denied),
        (project_member("web", ProjectRole::Owner), hidden, hidden),
        (member("other", TenantRole::Owner), hidden, hidden),
    ]
}

fn stranger() -> Principal {
    who("user:stranger", "home", Vec::new())
}
