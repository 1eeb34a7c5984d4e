//! infra/components: programs that work for the installation say that they live. admin/components: which there are.
//!
//! A component is its (type, identifier), and whoever pinged it first has it until it is forgotten: nobody else can speak
//! for it. A ping tells of life, so only the first one, and one by another token, is news for the audit.

use super::steps::{conflict, on_platform, page, page_size};
use crate::{
    auth::policy::not_found,
    call::Call,
    fault::Fault,
    store::{Tx, components},
};
use shared::{
    api::{
        access::Action,
        components::{
            Component, ComponentAnswer, ComponentList, GetComponent, ListComponents, PingComponent, RELAY,
            RELAY_TASKS,
        },
    },
    bounded::Name,
    problem::{Code, Problem},
};

/// How many components may ping as one subject.
const MAX_PER_SUBJECT: i64 = 1_000;

/// infra/components/ping.
///
/// # Errors
/// PERMISSION_DENIED; CONFLICT if the component is another subject's or the relay's; RESOURCE_EXHAUSTED.
pub async fn ping(call: Call, input: PingComponent) -> Result<ComponentAnswer, Fault> {
    on_platform(&call, Action::ComponentsPing)?;
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(note(tx, call, input))).await
}

/// admin/components/list.
///
/// # Errors
/// PERMISSION_DENIED.
pub async fn list(call: Call, input: ListComponents) -> Result<ComponentList, Fault> {
    on_platform(&call, Action::AdminComponentsRead)?;
    let size = page_size(input.limit);
    let read = call.relay.store.read(call.method, (&input, size), |tx, (input, size)| {
        Box::pin(async move {
            let of = input.component_type.as_ref().map_or("", Name::as_str);
            let after = input.cursor.as_ref().and_then(|cursor| cursor.as_str().split_once('/'));
            Ok::<_, Fault>(components::page(tx, of, after.unwrap_or(("", "")), size + 1).await?)
        })
    });
    let (components, cursor) =
        page(read.await?, size, |last| format!("{}/{}", last.component_type, last.identifier));
    Ok(ComponentList { components, cursor })
}

/// admin/components/get.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND.
pub async fn get(call: Call, input: GetComponent) -> Result<ComponentAnswer, Fault> {
    on_platform(&call, Action::AdminComponentsRead)?;
    let read = call.relay.store.read(call.method, key(&input), |tx, key| {
        Box::pin(async move { Ok::<_, Fault>(components::find(tx, *key).await?) })
    });
    Ok(ComponentAnswer { component: found(read.await?, key(&input))? })
}

/// admin/components/delete.
///
/// # Errors
/// PERMISSION_DENIED, NOT_FOUND.
pub async fn delete(call: Call, input: GetComponent) -> Result<ComponentAnswer, Fault> {
    on_platform(&call, Action::AdminComponentsDelete)?;
    let store = &call.relay.store;
    store
        .transact(call.method, key(&input), |tx, key| {
            Box::pin(async move {
                let component = found(components::lock(tx, *key).await?, *key)?;
                components::remove(tx, *key).await?;
                Ok(ComponentAnswer { component })
            })
        })
        .await
}

fn key(input: &GetComponent) -> (&str, &str) {
    (input.component_type.as_str(), input.identifier.as_str())
}

fn found(component: Option<Component>, (of, identifier): (&str, &str)) -> Result<Component, Fault> {
    Ok(component.ok_or_else(|| not_found(&format!("component {of} {identifier}")))?)
}

async fn note(tx: &mut Tx<'_>, call: &Call, input: &PingComponent) -> Result<ComponentAnswer, Fault> {
    let principal = call.principal()?;
    let (of, identifier) = (input.component_type.as_str(), input.identifier.as_str());
    if [RELAY, RELAY_TASKS].contains(&of) {
        return Err(conflict(format!("The type {of} is the relay's own; choose another.")));
    }
    let known = components::lock(tx, (of, identifier)).await?;
    if known.as_ref().is_some_and(|known| known.subject != principal.subject) {
        return Err(conflict(format!(
            "The component {of} {identifier} is another subject's; choose another identifier, or let an admin delete it."
        )));
    }
    if known.is_none() && components::count(tx, &principal.subject).await? >= MAX_PER_SUBJECT {
        let detail = format!(
            "{MAX_PER_SUBJECT} components ping as this subject; those that are silent are forgotten after 24 hours."
        );
        return Err(Problem::new(Code::ResourceExhausted, detail).into());
    }
    if known.as_ref().and_then(|known| known.token_id.as_ref()) != Some(&principal.token_id) {
        tx.note_about(&principal.tenant_id, identifier);
    }
    let said = Component {
        component_type: of.to_owned(),
        identifier: identifier.to_owned(),
        version: input.version.as_str().to_owned(),
        started_at: input.started_at,
        interval_seconds: input.interval_seconds.get(),
        created_at: call.now,
        pinged_at: call.now,
        subject: principal.subject.clone(),
        token_id: Some(principal.token_id.clone()),
        token_expires_at: None,
    };
    components::put(tx, &said).await?;
    Ok(ComponentAnswer { component: found(components::find(tx, (of, identifier)).await?, (of, identifier))? })
}
