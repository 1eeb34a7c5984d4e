//! People with real tokens: made as a login makes them, and found again by their bearer at every call.

use super::*;
use crate::{
    auth::tokens::{self, Purpose, Via},
    call::unauthenticated,
    fault::Fault,
    store::{memberships, projects, tenants, users},
};
use shared::{
    api::{
        members::Member,
        projects::Project,
        tenants::Tenant,
        tokens::{Labels, Rights},
        users::User,
    },
    secret::Secret,
};

impl Desk {
    /// A user that has logged in: its own tenant, and a token.
    pub(crate) async fn login(&self, id: &str) -> String {
        self.login_as(id, None).await
    }

    /// A login that asks for an admin role.
    pub(super) async fn login_as(&self, id: &str, admin_role: Option<AdminRole>) -> String {
        let now = self.clock.now();
        let made = self.relay.store.transact("login", (self, id), |tx, (desk, id)| {
            Box::pin(async move {
                let (id, name) = ((*id).to_owned(), (*id).to_owned());
                let user = User {
                    user_id: id.clone(),
                    display_name: name.clone(),
                    service: false,
                    issuer: Some("https://idp.test".to_owned()),
                    created_at: now,
                    created_by: id.clone(),
                };
                if users::insert(tx, &user, &id).await? {
                    let tenant =
                        Tenant { tenant_id: id.clone(), display_name: name.clone(), created_at: now };
                    assert!(tenants::insert(tx, &tenant).await?);
                    let (tenant_id, project_id) = (id.clone(), "default".to_owned());
                    let project = Project { tenant_id, project_id, display_name: name, created_at: now };
                    assert!(projects::insert(tx, &project).await?);
                    let member = Member {
                        tenant_id: id.clone(),
                        project_id: None,
                        member_id: id.clone(),
                        role: TenantRole::Owner,
                        since: now,
                        added_by: id.clone(),
                    };
                    assert!(memberships::insert(tx, &member).await?);
                }
                let purpose = Purpose {
                    token_type: TokenType::User,
                    subject: &id,
                    tenant_id: &id,
                    admin_role,
                    rights: Rights { admin_role, ..Rights::default() },
                    description: "login",
                    labels: Labels::new(),
                    created_by: &id,
                    lifetime_seconds: 8 * 3600,
                    ends_at: None,
                    login_at: Some(now),
                    predecessor: None,
                };
                Ok::<_, Fault>(tokens::issue(tx, &desk.relay, &purpose, now).await?.1)
            })
        });
        made.await.unwrap().expose().to_owned()
    }

    /// Asks a method with a bearer token, as a request does.
    pub(super) async fn with(&self, bearer: &str, method: &str, body: Value) -> Result<Value, Problem> {
        match tokens::authenticate(&self.relay, (bearer, Via::Header), self.clock.now()).await.unwrap() {
            Some(principal) => self.ask(&principal, method, body).await,
            None => Err(unauthenticated()),
        }
    }

    /// The answer to what must succeed.
    pub(crate) async fn done(&self, bearer: &str, method: &str, body: Value) -> Value {
        let answer = self.with(bearer, method, body.clone()).await;
        answer.unwrap_or_else(|problem| panic!("{method} {body}: {problem}"))
    }

    /// The code of the refusal; `None` if it succeeds.
    pub(super) async fn refusal(&self, bearer: &str, method: &str, body: Value) -> Option<Code> {
        self.with(bearer, method, body).await.err().map(|problem| problem.code)
    }

    /// Makes an API token and answers its id and bearer.
    pub(super) async fn api_token(&self, bearer: &str, rights: Value) -> (String, String) {
        let mut body = json!({"description": "for a program"});
        body.as_object_mut().unwrap().extend(rights.as_object().unwrap().clone());
        created(&self.done(bearer, "iam.tokens.create", body).await)
    }

    /// Gives a user a role, as the bootstrap admin.
    pub(crate) async fn member_of(&self, tenant: &str, user: &str, role: &str) {
        let body = json!({"tenantId": tenant, "memberId": user, "role": role});
        self.good(&root(), "iam.members.add", body).await;
    }
}

/// The id and the secret in the answer of a token's creation.
pub(super) fn created(answer: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&answer["token"]["id"]), text(&answer["secret"]))
}

/// A secret that is not the one.
pub(super) fn altered(secret: &str) -> String {
    let secret = Secret::new(secret.to_owned());
    let (head, last) = secret.expose().split_at(secret.expose().len() - 1);
    format!("{head}{}", if last == "A" { "B" } else { "A" })
}
