//! The audit: every change by a call, every refusal and every login leaves a record of who, what, from where and with which
//! outcome. Never a body, never a secret: of an input only the names of what it is about are read ([`named`]).
//!
//! - **A change and its record are one transaction.** A call that may change something runs inside of
//!   [`Beside::around`]; the store then writes the record into every transaction of that call which succeeds, under the same
//!   id, so that there is one however many transactions there are. A call that changes nothing in the store leaves none.
//! - **A machine's call** is recorded where it has news: where its transaction writes an event (a join, a deferral, a
//!   renewal). Heartbeats, and the retries of a machine that waits, are neither news nor records.
//! - **A component's ping** is recorded where it is the first, or comes with another token; it is a sign of life otherwise.
//! - **A refusal** is recorded right after it, in a transaction of its own and before the answer leaves: a crash between the
//!   two loses the record of a request that was never answered. How many are recorded is bounded ([`denials`]). Nobody who
//!   did not prove who they are leaves any: those are counted, by `relay_requests_total`.
//! - **A login** is recorded by whoever makes its token, in the same transaction ([`Login::record`]).
//!
//! Records that are committed are chained by one relay at a time ([`sealer`]); no change waits for that.

pub mod chain;
pub mod denials;
pub mod named;
pub mod sealer;
#[cfg(test)]
mod tests;
pub mod verify;

use crate::{
    auth::{
        Principal,
        policy::{Decision, Resource, may},
    },
    call::{Call, Caller},
    fault::chain as told,
    random::Random,
    store::{
        StoreError, Tx, audit,
        beside::{Beside, When},
        nodes, token_views,
    },
};
use denials::Denials;
use named::Named;
use shared::{
    api::{
        Access, Kind, Method,
        access::Action,
        audit::{AuditDecision, AuditRecord},
    },
    id::{AuditId, TokenId},
    problem::{Code, Problem},
    time::Timestamp,
};
use std::net::IpAddr;

/// What a record says of what was done.
const OK: &str = "OK";

/// What is written beside the changes of a call; `None` if it can change nothing, or tells of nothing but life.
#[must_use]
pub fn beside(call: &Call, method: &Method, input: &[u8]) -> Option<Beside> {
    if method.kind != Kind::Mutation || matches!(method.access, Access::Node | Access::Agent) {
        return None;
    }
    let record = record(call, action(method), &named(call, input));
    let when = match &call.caller {
        Caller::Credential(_) if is_sign_of_life(method) => When::News,
        Caller::Credential(_) => When::Always { drawn: draws(method) },
        Caller::JoinToken(_) | Caller::Peer(_) => When::News,
    };
    Some(Beside::new(record, when, call.relay.keys.chain_key()))
}

/// Whether a method's calls say that somebody lives, again and again: they are news only where something is another.
#[must_use]
pub fn is_sign_of_life(method: &Method) -> bool {
    matches!(method.access, Access::May(Action::ComponentsPing, _))
}

/// Records a refusal of an action, if it is one and there were not too many. What fails here is logged: the refusal stands.
pub async fn refused(denials: &Denials, call: &Call, action: &str, input: &[u8], problem: &Problem) {
    if !is_denial(&call.caller, problem) {
        return;
    }
    let Some(left_out) = denials.admit(&call.actor(), call.now) else { return };
    let named = named(call, input);
    let mut denied = record(call, action, &named);
    denied.decision = AuditDecision::Denied;
    problem.code.as_str().clone_into(&mut denied.code);
    denied.left_out = left_out;
    let for_admins = Action::named(action).is_some_and(|action| action.row().tenant.is_none());
    if let Caller::Credential(principal) = &call.caller
        && (problem.code == Code::NotFound || for_admins || is_foreign(principal, &named))
    {
        // Who may not know that a thing exists leaves no trace at its owner's; nor does who asks for what admins alone may, or
        // names a tenant that they have nothing to do with as the owner of what there is not yet.
        denied.tenant_id.clone_from(&principal.tenant_id);
    }
    let kept: Result<(), StoreError> = call
        .relay
        .store
        .transact("audit", (call, &denied), |tx, (call, denied)| Box::pin(keep(tx, call, denied)))
        .await;
    if let Err(error) = kept {
        let (method, request_id) = (call.method, &call.request_id);
        tracing::warn!(method, request_id, error = told(&error), "a refusal could not be recorded");
    }
}

/// Whether the tenant that a new thing is to belong to is hidden from the caller.
fn is_foreign(principal: &Principal, named: &Named) -> bool {
    named.owner().is_some_and(|tenant| {
        may(&principal.powers, Action::TenantsRead, Resource::Tenant { tenant }) == Decision::Hidden
    })
}

/// Writes a refusal, at the tenant of the machine where one was refused.
async fn keep(tx: &mut Tx<'_>, call: &Call, denied: &AuditRecord) -> Result<(), StoreError> {
    let tenant = match &call.caller {
        Caller::Credential(_) => None,
        Caller::JoinToken(id) => token_views::find(tx, id).await?.map(|token| token.tenant_id),
        Caller::Peer(peer) => nodes::find(tx, &peer.node).await?.map(|node| node.tenant_id),
    };
    let key = call.relay.keys.chain_key();
    match tenant {
        Some(tenant_id) => {
            audit::insert(tx, key.as_ref(), &AuditRecord { tenant_id, ..denied.clone() }).await
        }
        None => audit::insert(tx, key.as_ref(), denied).await,
    }
}

/// Whether a problem says that the caller may not. What is hidden from the caller is told as absent, so that is one too;
/// a machine's identity that is taken, or that was overtaken, has a reason.
fn is_denial(caller: &Caller, problem: &Problem) -> bool {
    match problem.code {
        Code::PermissionDenied | Code::NotFound => true,
        Code::Conflict => problem.reason.is_some() && !matches!(caller, Caller::Credential(_)),
        _ => false,
    }
}

/// A machine's input names nothing that it did not make up.
fn named(call: &Call, input: &[u8]) -> Named {
    match &call.caller {
        Caller::Credential(_) => Named::read(input),
        Caller::JoinToken(_) | Caller::Peer(_) => Named::default(),
    }
}

/// Whether what the method makes gets its name from the relay, or what it takes is named by its secret alone.
fn draws(method: &Method) -> bool {
    matches!(method.parts().2, "create" | "add" | "refresh" | "accept")
}

fn record(call: &Call, action: &str, named: &Named) -> AuditRecord {
    let principal = match &call.caller {
        Caller::Credential(principal) => Some(principal.as_ref()),
        Caller::JoinToken(_) | Caller::Peer(_) => None,
    };
    let own_tenant = principal.map_or("", |principal: &Principal| &principal.tenant_id);
    AuditRecord {
        id: AuditId::draw(call.now, call.relay.random.bytes()),
        occurred_at: call.now,
        subject: call.actor(),
        token_id: principal.map(|principal| principal.token_id.to_string()),
        created_by: principal.map(|principal| principal.created_by.clone()),
        tenant_id: named.tenant().unwrap_or(own_tenant).to_owned(),
        action: action.to_owned(),
        method: call.method.to_owned(),
        resource: named.words().join(" "),
        decision: AuditDecision::Allowed,
        code: OK.to_owned(),
        client_address: call.remote.to_string(),
        request_id: call.request_id.clone(),
        left_out: 0,
    }
}

/// The action that a method asks for, as records say it: of a machine's, which asks for none, its name.
#[must_use]
pub fn action(method: &Method) -> &'static str {
    match method.access {
        Access::Own(action) | Access::May(action, _) => action.as_str(),
        Access::Any
        | Access::JoinToken
        | Access::RenewingNode
        | Access::Node
        | Access::PlatformNode
        | Access::Agent => method.name,
    }
}

/// Who logged in, from where.
pub struct Login<'a> {
    /// The user.
    pub subject: &'a str,
    /// The token that was made, unless it was refused.
    pub token_id: Option<&'a TokenId>,
    /// The user's own tenant.
    pub tenant_id: &'a str,
    /// What else was asked for, such as `adminRole=EDITOR`; empty if nothing.
    pub asked: &'a str,
    /// The client's address.
    pub remote: IpAddr,
    /// The request's id.
    pub request_id: &'a str,
    /// When.
    pub at: Timestamp,
}

impl Login<'_> {
    /// The record of it, to be written in the transaction that makes the token, or that refuses one.
    #[must_use]
    pub fn record(&self, random: &Random) -> AuditRecord {
        let (decision, code) = match self.token_id {
            Some(_) => (AuditDecision::Allowed, OK),
            None => (AuditDecision::Denied, Code::PermissionDenied.as_str()),
        };
        AuditRecord {
            id: AuditId::draw(self.at, random.bytes()),
            occurred_at: self.at,
            subject: self.subject.to_owned(),
            token_id: self.token_id.map(ToString::to_string),
            created_by: self.token_id.map(|_| self.subject.to_owned()),
            tenant_id: self.tenant_id.to_owned(),
            action: "login".to_owned(),
            method: "login".to_owned(),
            resource: self.asked.to_owned(),
            decision,
            code: code.to_owned(),
            client_address: self.remote.to_string(),
            request_id: self.request_id.to_owned(),
            left_out: 0,
        }
    }
}
