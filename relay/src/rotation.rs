//! Rotating the CAs in the store: lock, judge, replace, and the event, in one transaction. The serving relay does it
//! when it is due, an operator by `relay ca rotate`; every relay of the store takes over what it finds there.

use crate::{
    ca::{self, Change, Demand, Rotation, TrustDomain},
    events::{Event, Kind, Origin},
    fault::Fault,
    random::Random,
    seal::KeyRing,
    store::{Store, authorities, events},
};
use serde_json::json;
use shared::time::Timestamp;

/// Who rotates, and by which keys.
pub struct Rotator<'a> {
    /// The platform's trust domain.
    pub trust_domain: &'a TrustDomain,
    /// The tenant that the event names.
    pub provider_tenant: &'a str,
    /// The master keys.
    pub keys: &'a KeyRing,
    /// Randomness.
    pub random: &'a Random,
    /// Who asked for it, for the event.
    pub actor: &'a str,
}

/// Rotates what is demanded. The answer holds all CAs of the store, also where nothing was due.
///
/// # Errors
/// The store's, or the CA's.
pub async fn rotate(
    store: &Store,
    rotator: &Rotator<'_>,
    demand: Demand,
    now: Timestamp,
) -> Result<Rotation, Fault> {
    let context = (rotator, demand, now);
    let rotated = store.transact("rotate CAs", context, |tx, (rotator, demand, now)| {
        Box::pin(async move {
            let stored = authorities::lock_all(tx).await?;
            let rotation =
                ca::rotate(rotator.trust_domain, stored, *demand, *now, rotator.keys, rotator.random)
                    .map_err(Fault::internal("rotating the CAs"))?;
            // What only waits for an offline root's signature changes nothing.
            if rotation.changes.iter().all(|change| matches!(change, Change::Waiting { .. })) {
                return Ok::<_, Fault>(rotation);
            }
            authorities::replace(tx, &rotation.records).await?;
            let changes: Vec<String> = rotation.changes.iter().map(|change| format!("{change:?}")).collect();
            let origin = Origin { actor: rotator.actor.to_owned(), request_id: String::new(), at: *now };
            let event = Event {
                kind: Kind::CaRotated,
                tenant: rotator.provider_tenant,
                subject: rotator.trust_domain.as_str(),
                data: json!({"changes": changes}),
            };
            events::insert(tx, rotator.random, &origin, &event).await?;
            Ok(rotation)
        })
    });
    let rotation = rotated.await?;
    if rotation.changes.iter().any(|change| !matches!(change, Change::Waiting { .. })) {
        tracing::info!(changes = ?rotation.changes, by = rotator.actor, "CAs were rotated");
    }
    Ok(rotation)
}
