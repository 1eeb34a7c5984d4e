//! compute/secrets: decided by the site's owner, sealed before they are stored, never shown to people again.

use super::{
    pools::{DecidedBy, held, named},
    steps::{invalid_state, page, page_size},
};
use crate::{
    auth::policy::not_found,
    call::Call,
    fault::Fault,
    seal::Place,
    store::{Tx, secrets},
};
use shared::{
    api::{
        access::Action,
        secrets::{
            ListSecrets, MAX_SECRET_BYTES, MAX_SECRETS, PutSecret, RemoveSecret, SecretAnswer, SecretInfo,
            SecretList,
        },
    },
    problem::Problem,
    secret::Secret,
};

/// compute/secrets/put.
///
/// # Errors
/// INVALID_INPUT for a value over 16 KiB; NOT_FOUND, PERMISSION_DENIED; INVALID_STATE for the 101st of a pool.
pub async fn put(call: Call, input: PutSecret) -> Result<SecretAnswer, Fault> {
    let value = input.value.clone().into_secret();
    if value.expose().len() > MAX_SECRET_BYTES {
        let rule = format!("must be at most {MAX_SECRET_BYTES} bytes of UTF-8");
        return Err(Problem::invalid_field("value", rule).into());
    }
    let store = &call.relay.store;
    let set = store.transact(call.method, (&call, &input, &value), |tx, (call, input, value)| {
        Box::pin(set(tx, call, input, value))
    });
    set.await
}

/// compute/secrets/list: names only.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListSecrets) -> Result<SecretList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::SecretsRead, DecidedBy::SiteOwner).await?;
            let after = input.cursor.as_ref().map_or("", |name| name.as_str());
            Ok::<_, Fault>(secrets::page(tx, &pool.pool_id, after, size + 1).await?)
        })
    });
    let (secrets, cursor) = page(read.await?, size, |secret| secret.name.clone());
    Ok(SecretList { secrets, cursor })
}

/// compute/secrets/remove.
///
/// # Errors
/// NOT_FOUND (also for the secret), PERMISSION_DENIED.
pub async fn remove(call: Call, input: RemoveSecret) -> Result<SecretAnswer, Fault> {
    let store = &call.relay.store;
    let forget = store.transact(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::SecretsRemove, DecidedBy::SiteOwner).await?;
            let found = secrets::find(tx, &pool.pool_id, input.name.as_str()).await?;
            let secret = found.ok_or_else(|| not_found(&format!("secret {}", input.name)))?;
            secrets::remove(tx, &pool.pool_id, input.name.as_str()).await?;
            Ok::<_, Fault>(SecretAnswer { secret })
        })
    });
    forget.await
}

async fn set(tx: &mut Tx<'_>, call: &Call, input: &PutSecret, value: &Secret) -> Result<SecretAnswer, Fault> {
    let name = input.name.as_str();
    let pool = (&input.tenant_id, &input.pool_id);
    named(tx, call, pool, Action::SecretsPut, DecidedBy::SiteOwner).await?;
    // The lock makes the count exact.
    let pool = held(tx, &input.pool_id).await?;
    let is_new = secrets::find(tx, &pool.pool_id, name).await?.is_none();
    if is_new && secrets::count(tx, &pool.pool_id).await? >= MAX_SECRETS {
        let detail =
            format!("The pool {} has {MAX_SECRETS} secrets, and no more fit; remove one.", pool.pool_id);
        return Err(invalid_state(detail));
    }
    let row = secrets::row_key(&pool.pool_id, name);
    let place = Place { table: secrets::TABLE, row: &row, column: secrets::COLUMN };
    let sealed = call.relay.keys.seal(place, value.expose().as_bytes(), &call.relay.random);
    let sealed = sealed.map_err(Fault::internal("sealing a secret"))?;
    let secret = SecretInfo { name: name.to_owned(), updated_at: call.now, updated_by: call.actor() };
    secrets::put(tx, &pool.pool_id, &secret, &sealed).await?;
    Ok(SecretAnswer { secret })
}
