//! Nobody gets more by any sequence, whoever does it: users and tokens that make, narrow, widen, refresh and revoke tokens, add and
//! remove members, invite and accept, over two tenants of which one owns the other's site. There is no model: what somebody may is
//! found out by asking, and compared.
//!
//! - A token may nothing that a login of its owner may not, at any moment.
//! - What a token makes, changes or refreshes may nothing that it may not itself.
//! - Whom somebody gives a role gains nothing that the giver did not have.
//!
//! `LINEAGE_SEED` adds a seed to those that are always tried.

use super::*;
use std::{collections::BTreeSet, env};

const USERS: [&str; 4] = ["ada", "bob", "eve", "zoe"];
const STEPS: usize = 50;

/// What is asked: nothing of it changes anything.
const PROBES: &[(&str, &str)] = &[
    ("compute.pools.get", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.pools.update", r#"{"tenantId": "acme", "poolId": "gpu-a", "policy": {}}"#),
    ("compute.pools.update", r#"{"tenantId": "provider", "poolId": "own", "policy": {}}"#),
    ("compute.joinTokens.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.joinRequests.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.nodes.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.secrets.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.inventory.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.endorsementKeys.list", r#"{"tenantId": "acme", "poolId": "gpu-a"}"#),
    ("compute.events.list", r#"{"tenantId": "acme"}"#),
    ("compute.events.list", r#"{"tenantId": "provider"}"#),
    ("iam.tenants.get", r#"{"tenantId": "acme"}"#),
    ("iam.tenants.get", r#"{"tenantId": "provider"}"#),
    ("iam.projects.get", r#"{"tenantId": "acme", "projectId": "ml"}"#),
    ("iam.members.list", r#"{"tenantId": "acme"}"#),
    ("iam.invites.list", r#"{"tenantId": "acme"}"#),
    ("iam.audit.list", r#"{"tenantId": "provider"}"#),
    ("iam.webhooks.list", r#"{"tenantId": "acme"}"#),
    ("iam.tokens.list", "{}"),
    ("admin.tenants.list", "{}"),
    ("admin.tasks.queues", "{}"),
    ("admin.tokens.list", "{}"),
];

/// What a token may be asked to hold.
const RIGHTS: &[&str] = &[
    r#"{"tenantRoles": [{"tenantId": "acme", "role": "OWNER"}]}"#,
    r#"{"tenantRoles": [{"tenantId": "acme", "role": "VIEWER"}]}"#,
    r#"{"tenantRoles": [{"tenantId": "*", "role": "EDITOR"}]}"#,
    r#"{"tenantRoles": [{"tenantId": "acme", "role": "OWNER"}], "permissions": [{"subject": "self", "actions": ["iam:tokens:create", "iam:tokens:update", "iam:tokens:refresh"]}]}"#,
    r#"{"projectRoles": [{"tenantId": "acme", "projectId": "ml", "role": "OWNER"}]}"#,
    r#"{"projectRoles": [{"tenantId": "*", "projectId": "*", "role": "EDITOR"}], "permissions": [{"subject": "self", "actions": ["iam:tokens:create", "iam:tokens:refresh"]}]}"#,
    r#"{"adminRole": "EDITOR"}"#,
    r#"{"adminRole": "VIEWER", "permissions": [{"subject": "self", "actions": ["iam:tokens:create"]}]}"#,
    r#"{"permissions": [{"subject": "compute-pool/gpu-a", "actions": ["compute:pools:update", "compute:secrets:read"]}]}"#,
    r#"{"permissions": [{"subject": "compute-pool/gpu-a", "actions": ["compute:join-tokens:read", "compute:nodes:read"]}]}"#,
    r#"{"permissions": [{"subject": "*", "actions": ["compute:pools:update", "compute:inventory:read", "iam:tokens:create"]}]}"#,
    r#"{"permissions": [{"subject": "tenant/acme", "actions": ["iam:members:add", "iam:members:read"]}, {"subject": "self", "actions": ["iam:tokens:create"]}]}"#,
    r#"{"permissions": [{"subject": "platform", "actions": ["admin:tenants:add-member", "admin:tasks:read"]}]}"#,
    r#"{"permissions": [{"subject": "platform", "actions": ["admin:tokens:read"]}, {"subject": "self", "actions": ["iam:tokens:create", "iam:tokens:update"]}]}"#,
];

/// Numbers that a seed gives: xorshift64 (Marsaglia 2003).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(sides).unwrap()).unwrap()
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }
}

/// A token that somebody has.
#[derive(Clone)]
struct Had {
    owner: &'static str,
    id: String,
    bearer: String,
}

struct Play<'a> {
    desk: &'a Desk,
    dice: Dice,
    /// A login of each user that asks for all that it may be.
    logins: Vec<Had>,
    tokens: Vec<Had>,
    told: Vec<String>,
}

type Powers = BTreeSet<usize>;

impl Play<'_> {
    async fn powers(&self, bearer: &str) -> Powers {
        let mut may = Powers::new();
        for (at, (method, body)) in PROBES.iter().enumerate() {
            let body = serde_json::from_str(body).unwrap();
            if self.desk.refusal(bearer, method, body).await.is_none() {
                may.insert(at);
            }
        }
        may
    }

    fn within(&self, less: &Powers, more: &Powers, what: &str) {
        let beyond: Vec<_> = less.difference(more).map(|at| PROBES[*at]).collect();
        assert!(beyond.is_empty(), "{what} may {beyond:?}, after:\n{}", self.told.join("\n"));
    }

    fn anybody(&mut self) -> Had {
        let all: Vec<&Had> = self.logins.iter().chain(&self.tokens).collect();
        (*self.dice.one(&all)).clone()
    }

    fn login_of(&self, user: &str) -> String {
        self.logins.iter().find(|login| login.owner == user).unwrap().bearer.clone()
    }

    async fn ask(&mut self, who: &Had, method: &str, body: Value) -> Option<Value> {
        let answer = self.desk.with(&who.bearer, method, body.clone()).await;
        let came =
            answer.as_ref().map_or_else(|problem| problem.code.as_str().to_owned(), |_| "ok".to_owned());
        self.told.push(format!("{} by {} {method} {body}: {came}", who.owner, who.id));
        answer.ok()
    }

    async fn step(&mut self) {
        let who = self.anybody();
        let rights: Value = serde_json::from_str(self.dice.one(RIGHTS)).unwrap();
        match self.dice.roll(8) {
            0..=2 => {
                let mut body = rights;
                body["description"] = json!("d");
                let before = self.powers(&who.bearer).await;
                let Some(made) = self.ask(&who, "iam.tokens.create", body).await else { return };
                let (id, bearer) = people::created(&made);
                let child = Had { owner: who.owner, id, bearer };
                self.within(&self.powers(&child.bearer).await, &before, "what was made");
                self.tokens.push(child);
            }
            3 if !self.tokens.is_empty() => {
                let target = self.dice.roll(self.tokens.len());
                let target = self.tokens[target].clone();
                let (before, had) = (self.powers(&who.bearer).await, self.powers(&target.bearer).await);
                let mut body = rights;
                body["tokenId"] = json!(target.id);
                if self.ask(&who, "iam.tokens.update", body).await.is_some() {
                    let most = if who.id == target.id { had } else { before };
                    self.within(&self.powers(&target.bearer).await, &most, "what was changed");
                }
            }
            4 if !self.tokens.is_empty() => {
                let at = self.dice.roll(self.tokens.len());
                let old = self.tokens[at].clone();
                let before = self.powers(&old.bearer).await;
                let Some(made) = self.ask(&old, "iam.tokens.refresh", json!({})).await else { return };
                let (id, bearer) = people::created(&made);
                self.within(&self.powers(&bearer).await, &before, "what was refreshed");
                self.tokens[at] = Had { id, bearer, ..old };
            }
            5 if !self.tokens.is_empty() => {
                let at = self.dice.roll(self.tokens.len());
                let id = self.tokens[at].id.clone();
                if self.ask(&who, "iam.tokens.revoke", json!({"tokenId": id})).await.is_some() {
                    let over = self.tokens.swap_remove(at);
                    self.within(&self.powers(&over.bearer).await, &Powers::new(), "what was revoked");
                }
            }
            _ => self.move_somebody(&who).await,
        }
    }

    /// Gives a role, or takes one.
    async fn move_somebody(&mut self, who: &Had) {
        let member = self.dice.one(&USERS);
        let role = self.dice.one(&["GUEST", "VIEWER", "EDITOR", "OWNER"]);
        let tenant = self.dice.one(&["acme", "provider"]);
        let method = self.dice.one(&["add", "update", "remove", "addMember", "invite"]);
        let mut body = json!({"tenantId": tenant, "memberId": member});
        if method != "remove" {
            body["role"] = json!(role);
        }
        if tenant == "acme" && method != "addMember" && self.dice.roll(3) == 0 {
            body["projectId"] = json!("ml");
        }
        let theirs = self.login_of(member);
        let (before, giver) = (self.powers(&theirs).await, self.powers(&who.bearer).await);
        if method == "invite" {
            body.as_object_mut().unwrap().remove("memberId");
            let Some(invite) = self.ask(who, "iam.invites.create", body).await else { return };
            let Some(secret) = invite.get("secret").cloned() else { return };
            let them = self.logins.iter().find(|login| login.owner == member).unwrap().clone();
            self.ask(&them, "iam.invites.accept", json!({"secret": secret})).await;
        } else {
            let module = if method == "addMember" { "admin.tenants" } else { "iam.members" };
            self.ask(who, &format!("{module}.{method}"), body).await;
        }
        let gained: Powers = self.powers(&theirs).await.difference(&before).copied().collect();
        self.within(&gained, &giver, "what was gained by a role");
    }

    /// A token may nothing that a login of its owner may not.
    async fn check(&mut self) {
        for at in 0..self.tokens.len().min(3) {
            let token = self.tokens[(self.dice.roll(self.tokens.len()) + at) % self.tokens.len()].clone();
            let (may, owner) =
                (self.powers(&token.bearer).await, self.powers(&self.login_of(token.owner)).await);
            self.within(&may, &owner, "a token");
        }
    }
}

mod slow {
    use super::*;

    #[tokio::test]
    async fn nobody_gets_more_by_any_sequence() {
        let more = env::var("LINEAGE_SEED").ok().and_then(|seed| seed.parse().ok());
        for seed in [17].into_iter().chain(more) {
            at_a_desk(async |desk| {
                let mut play = Play {
                    desk: &desk,
                    dice: Dice(seed),
                    logins: Vec::new(),
                    tokens: Vec::new(),
                    told: vec![format!("seed {seed}")],
                };
                for owner in USERS.into_iter().chain(["keeper"]) {
                    let bearer = desk.login_as(owner, Some(AdminRole::Editor)).await;
                    play.logins.push(Had { owner, id: "login".to_owned(), bearer });
                }
                // So that somebody can do something from the beginning, and no tenant loses its last OWNER.
                for (tenant, user, role) in [
                    ("acme", "keeper", "OWNER"),
                    ("provider", "keeper", "OWNER"),
                    ("acme", "ada", "OWNER"),
                    ("provider", "bob", "EDITOR"),
                ] {
                    desk.member_of(tenant, user, role).await;
                }
                let mut made = 0;
                for _ in 0..STEPS {
                    let before = play.tokens.len();
                    play.step().await;
                    made += usize::from(play.tokens.len() > before);
                    play.check().await;
                }
                assert!(made > 3, "{made} tokens were made");
            })
            .await;
        }
    }
}
