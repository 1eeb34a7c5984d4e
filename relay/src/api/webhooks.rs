//! iam/webhooks: where a tenant's events are sent to. The secret that signs them is sealed before it is stored, and shown once.

use super::{
    idempotency,
    members::Place,
    steps::{invalid_state, page, page_size},
};
use crate::{
    auth::policy::not_found,
    call::Call,
    events::Kind,
    fault::Fault,
    outside::Target,
    store::{
        Tx,
        webhooks::{self, WebhookRow},
    },
    webhooks::{
        beginning, matches, resume, sealed,
        sign::{KEY_BYTES, SigningKey},
    },
};
use shared::{
    api::{
        access::Action,
        webhooks::{
            CreateWebhook, DeleteWebhook, DisabledReason, ListWebhooks, MAX_WEBHOOKS, UpdateWebhook, Webhook,
            WebhookAnswer, WebhookList, WebhookShown,
        },
    },
    bounded::{EventPattern, WebhookUrl},
    id::WebhookId,
    problem::Problem,
};
use zeroize::Zeroizing;

/// iam/webhooks/create.
///
/// # Errors
/// INVALID_INPUT for an address that it may not lead to, or a type that there is not; NOT_FOUND, PERMISSION_DENIED,
/// CONFLICT; INVALID_STATE for the 21st of a tenant.
pub async fn create(call: Call, input: CreateWebhook) -> Result<WebhookShown, Fault> {
    aim(&call, Some(&input.url), Some(&input.types))?;
    let key = drawn(&call);
    let store = &call.relay.store;
    let (webhook, fresh) = store
        .transact(call.method, (&call, &input, &key), |tx, (call, input, key)| {
            Box::pin(make(tx, call, input, key))
        })
        .await?;
    Ok(WebhookShown { webhook, secret: fresh.then(|| key.shown().reveal()) })
}

/// iam/webhooks/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListWebhooks) -> Result<WebhookList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let place = Place::new(&input.tenant_id, None);
            place.decide(call, Action::WebhooksRead)?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            Ok::<_, Fault>(webhooks::page(tx, place.tenant, after, size + 1).await?)
        })
    });
    let (webhooks, cursor) = page(read.await?, size, |webhook| webhook.id.clone());
    Ok(WebhookList { webhooks, cursor })
}

/// iam/webhooks/update.
///
/// # Errors
/// INVALID_INPUT as for [`create`]; NOT_FOUND, PERMISSION_DENIED.
pub async fn update(call: Call, input: UpdateWebhook) -> Result<WebhookShown, Fault> {
    aim(&call, input.url.as_ref(), input.types.as_deref())?;
    let key = (input.rotate_secret == Some(true)).then(|| drawn(&call));
    let store = &call.relay.store;
    let webhook = store
        .transact(call.method, (&call, &input, &key), |tx, (call, input, key)| {
            Box::pin(change(tx, call, input, key.as_ref()))
        })
        .await?;
    Ok(WebhookShown { webhook, secret: key.map(|key| key.shown().reveal()) })
}

/// iam/webhooks/delete.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn delete(call: Call, input: DeleteWebhook) -> Result<WebhookAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| {
            Box::pin(async move {
                let place = Place::new(&input.tenant_id, None);
                place.decide(call, Action::WebhooksDelete)?;
                let row = held(tx, place, &input.webhook_id).await?;
                webhooks::remove(tx, &input.webhook_id).await?;
                Ok::<_, Fault>(WebhookAnswer { webhook: row.webhook })
            })
        })
        .await
}

async fn make(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &CreateWebhook,
    key: &SigningKey,
) -> Result<(Webhook, bool), Fault> {
    let place = Place::new(&input.tenant_id, None);
    place.decide(call, Action::WebhooksCreate)?;
    place.hold(tx).await?;
    if let Some(webhook) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok((webhook, false));
    }
    // The lock makes the count exact.
    if webhooks::count(tx, place.tenant).await? >= MAX_WEBHOOKS {
        let detail = format!("{} has {MAX_WEBHOOKS} webhooks, and no more fit; delete one.", place.words());
        return Err(invalid_state(detail));
    }
    let relay = &call.relay;
    let webhook = Webhook {
        id: WebhookId::draw(call.now, relay.random.bytes()),
        tenant_id: place.tenant.to_owned(),
        url: input.url.as_str().to_owned(),
        types: words(&input.types),
        enabled: true,
        created_at: call.now,
        created_by: call.principal()?.subject.clone(),
        delivered_at: None,
        failing_since: None,
        last_error: None,
        disabled_at: None,
        disabled_reason: None,
    };
    let sealed = sealed(&relay.keys, &relay.random, &webhook.id, key)?;
    let behind = beginning(tx, &relay.random).await?;
    webhooks::insert(tx, &webhook, &sealed, behind).await?;
    tx.note_about(&webhook.tenant_id, webhook.id.as_str());
    idempotency::keep(tx, call, &input.idempotency_key, input, &webhook).await?;
    Ok((webhook, true))
}

async fn change(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &UpdateWebhook,
    key: Option<&SigningKey>,
) -> Result<Webhook, Fault> {
    let place = Place::new(&input.tenant_id, None);
    place.decide(call, Action::WebhooksUpdate)?;
    let before = held(tx, place, &input.webhook_id).await?;
    let mut row = changed(&before, input, call);
    if let Some(key) = key {
        row.sealed_secret = sealed(&call.relay.keys, &call.relay.random, &input.webhook_id, key)?;
    }
    if row != before {
        webhooks::change(tx, &row).await?;
        if row.webhook.enabled {
            resume(tx, &call.relay.random, &input.webhook_id).await?;
        }
    }
    Ok(row.webhook)
}

/// What a webhook is by its changes. Failures count for where it led, and as long as it was enabled.
fn changed(before: &WebhookRow, input: &UpdateWebhook, call: &Call) -> WebhookRow {
    let mut row = before.clone();
    let webhook = &mut row.webhook;
    if let Some(url) = &input.url {
        url.as_str().clone_into(&mut webhook.url);
    }
    if let Some(types) = &input.types {
        webhook.types = words(types);
    }
    match input.enabled {
        Some(false) if webhook.enabled => {
            webhook.enabled = false;
            webhook.disabled_at = Some(call.now);
            webhook.disabled_reason = Some(DisabledReason::Request);
        }
        Some(true) => {
            webhook.enabled = true;
            webhook.disabled_at = None;
            webhook.disabled_reason = None;
        }
        _ => {}
    }
    if webhook.url != before.webhook.url || webhook.enabled != before.webhook.enabled {
        webhook.failing_since = None;
        webhook.last_error = None;
        row.failures = 0;
    }
    row
}

/// That a webhook may lead there, and that there are events of these types.
fn aim(call: &Call, url: Option<&WebhookUrl>, types: Option<&[EventPattern]>) -> Result<(), Problem> {
    if let Some(url) = url {
        let target = url.as_str().parse::<Target>();
        let target = target.map_err(|rule| Problem::invalid_field("url", rule.to_string()))?;
        if !call.relay.outside.may_name(&target) {
            let rule = "must lead to the public Internet: not to this relay's machine, nor into private networks, unless an \
                        admin lists them in webhook_networks";
            return Err(Problem::invalid_field("url", rule));
        }
    }
    let types = words(types.unwrap_or_default());
    let is_known = |pattern: &String| {
        let pattern = std::slice::from_ref(pattern);
        Kind::ALL.iter().any(|kind| matches(pattern, kind.as_str()))
    };
    match types.iter().position(|pattern| !is_known(pattern)) {
        Some(at) => {
            let rule = "there is no event of this type; README.md (of the package in /usr/share/doc/relay) lists them all, under \"Webhooks\"";
            Err(Problem::invalid_field(format!("types.{at}"), rule))
        }
        None => Ok(()),
    }
}

/// The webhook, if it is this tenant's, locked.
async fn held(tx: &mut Tx<'_>, place: Place<'_>, id: &WebhookId) -> Result<WebhookRow, Fault> {
    let found = webhooks::lock(tx, id).await?.filter(|row| row.webhook.tenant_id == place.tenant);
    Ok(found.ok_or_else(|| not_found(&format!("webhook {id} of {}", place.words())))?)
}

fn drawn(call: &Call) -> SigningKey {
    let mut key = Zeroizing::new(vec![0; KEY_BYTES]);
    call.relay.random.fill(&mut key);
    SigningKey::new(key)
}

fn words(types: &[EventPattern]) -> Vec<String> {
    types.iter().map(ToString::to_string).collect()
}
