//! compute/events: what happened, as CloudEvents 1.0 (structured JSON mode).

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{bounded::TenantId, id::EventId, time::Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Lists events.
pub const LIST: Op<ListEvents, EventList> = Op::read(
    "compute.events.list",
    Access::May(Action::EventsRead, Scope::Tenant),
    Phase::V0_2,
    "List what happened in a tenant, from the oldest on; GET /api/compute/events/stream tells of what follows.",
);

/// Whose events to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListEvents {
    /// The tenant.
    pub tenant_id: TenantId,
    /// Only those of this time and later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EventId>,
}

/// An event, as CloudEvents 1.0 writes it: the names of its attributes are in lower case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CloudEvent {
    /// The version of CloudEvents, 1.0.
    pub specversion: String,
    /// Its id.
    pub id: EventId,
    /// The installation, `spiffe://<trust domain>/relay`.
    pub source: String,
    /// What happened, such as `security.node.joined`.
    #[serde(rename = "type")]
    pub event_type: String,
    /// To what: the id of a node, a token, a member.
    pub subject: String,
    /// When.
    pub time: Timestamp,
    /// `application/json`.
    pub datacontenttype: String,
    /// To whom it is told: the tenant.
    pub tenantid: String,
    /// Who made it happen: a user or service, a join token, a node, or `relay`.
    pub actor: String,
    /// The request that made it happen; absent where the relay acted by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requestid: Option<String>,
    /// Its place in the order of all events, once it has one: what a stream is resumed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sequence: Option<String>,
    /// What else there is to know. Never a secret.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub data: Value,
}

/// A page of events.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventList {
    /// In order of id, which is that of time.
    pub events: Vec<CloudEvent>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EventId>,
}
