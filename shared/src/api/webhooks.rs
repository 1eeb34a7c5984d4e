//! iam/webhooks: where a tenant's events are sent to, signed as the Standard Webhooks specification has it.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{EventPattern, IdempotencyKey, TenantId, WebhookUrl},
    id::WebhookId,
    secret::Reveal,
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Makes a webhook.
pub const CREATE: Op<CreateWebhook, WebhookShown> = Op::mutation(
    "iam.webhooks.create",
    Access::May(Action::WebhooksCreate, Scope::Tenant),
    Phase::V0_2,
    "Send a tenant's events of now on to an address; the secret that signs them is shown this once.",
);
/// Lists webhooks.
pub const LIST: Op<ListWebhooks, WebhookList> = Op::read(
    "iam.webhooks.list",
    Access::May(Action::WebhooksRead, Scope::Tenant),
    Phase::V0_2,
    "List a tenant's webhooks, and how their deliveries go.",
);
/// Changes a webhook.
pub const UPDATE: Op<UpdateWebhook, WebhookShown> = Op::mutation(
    "iam.webhooks.update",
    Access::May(Action::WebhooksUpdate, Scope::Tenant),
    Phase::V0_2,
    "Aim a webhook elsewhere, end or begin its deliveries, or exchange its secret, which is then shown this once.",
);
/// Removes a webhook.
pub const DELETE: Op<DeleteWebhook, WebhookAnswer> = Op::mutation(
    "iam.webhooks.delete",
    Access::May(Action::WebhooksDelete, Scope::Tenant),
    Phase::V0_2,
    "Delete a webhook; what it has not delivered is not delivered.",
);

/// The most webhooks of a tenant.
pub const MAX_WEBHOOKS: i64 = 20;
/// The most entries of a webhook's `types`.
pub const MAX_TYPES: usize = 32;

/// A webhook to make.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebhook {
    /// Whose events.
    pub tenant_id: TenantId,
    /// Where they are sent to, `https://host[:port]/path`: not to this relay, nor into networks that are no part of the
    /// public Internet, unless `webhook_networks` lists them.
    pub url: WebhookUrl,
    /// Which: types, such as `security.node.joined`, beginnings, such as `security.node.*`, or `*` for all.
    #[schemars(length(min = 1, max = 32))]
    pub types: Vec<EventPattern>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Whose webhooks to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListWebhooks {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<WebhookId>,
}

/// A webhook's changes; what is absent stays.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateWebhook {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The webhook.
    pub webhook_id: WebhookId,
    /// Where the events are sent to from now on, those that wait too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<WebhookUrl>,
    /// Which are sent from now on, of those that wait too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub types: Option<Vec<EventPattern>>,
    /// Whether it delivers. One that is enabled again goes on where it stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether to exchange the secret; the old one signs nothing from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate_secret: Option<bool>,
}

/// Which webhook.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeleteWebhook {
    /// The tenant.
    pub tenant_id: TenantId,
    /// The webhook.
    pub webhook_id: WebhookId,
}

/// Why a webhook delivers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum DisabledReason {
    /// Somebody ended it.
    Request,
    /// Nothing but failures came of it for three days.
    Failing,
}

impl DisabledReason {
    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Failing => "failing",
        }
    }
}

/// A webhook. Its secret is nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// Whose events.
    pub tenant_id: String,
    /// Where they are sent to.
    pub url: String,
    /// Which.
    pub types: Vec<String>,
    /// Whether it delivers.
    pub enabled: bool,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: String,
    /// When an event was last delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<Timestamp>,
    /// Since when every attempt fails; absent where the last one did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing_since: Option<Timestamp>,
    /// Why the last attempt failed: `refusedAddress`, `notResolved`, `notReached`, `tls`, `timeout`, or `status` and the
    /// status. Nothing else of an answer is ever told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Since when it delivers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_at: Option<Timestamp>,
    /// Why it delivers nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled_reason: Option<DisabledReason>,
}

/// One webhook.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookAnswer {
    /// The webhook.
    pub webhook: Webhook,
}

/// A webhook, and its secret where that is new. A retry is answered without the secret.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookShown {
    /// The webhook.
    pub webhook: Webhook,
    /// `whsec_` and the key that signs, in base64; this once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<Reveal>,
}

/// A page of webhooks.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookList {
    /// In order of id.
    pub webhooks: Vec<Webhook>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<WebhookId>,
}
