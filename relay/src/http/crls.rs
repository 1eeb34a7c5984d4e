//! CRLs as they are handed out: what was published last, shared by all who ask.
//!
//! Anybody may ask: so neither memory nor the store pays for each reader. Where nothing was published, or nothing for long
//! (a CA is new, no worker comes, the clock was put), the list is made here: revocation does not wait for the queue to be well.

use crate::{
    ca::{Authority, Revoked},
    context::Context,
    crls::STALE_SECONDS,
    fault::Fault,
    store::{certificates, crls},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use shared::time::Timestamp;
use std::collections::BTreeMap;
use tokio::sync::Mutex;

/// How long a list is handed out before it is looked for another one, in seconds.
const FRESH_SECONDS: i64 = 5;

/// The lists that were handed out last, by issuing CA. Bounded by the CAs.
#[derive(Default)]
pub struct Crls(Mutex<BTreeMap<String, Found>>);

struct Found {
    at: Timestamp,
    der: Bytes,
}

impl Crls {
    /// The list of an issuing CA, in DER.
    ///
    /// # Errors
    /// The store's; too many certificates for one list; there is no such CA.
    pub async fn get(&self, relay: &Context, ca: &Authority, issuer: &str) -> Result<Bytes, Fault> {
        // Held while a list is looked for: whoever waits gets that one.
        let mut found = self.0.lock().await;
        let now = relay.clock.now();
        let fresh = |found: &&Found| found.at <= now && now < found.at.plus_seconds(FRESH_SECONDS);
        if let Some(found) = found.get(issuer).filter(fresh) {
            return Ok(found.der.clone());
        }
        let der = match published(relay, issuer, now).await? {
            Some(der) => der,
            None => made(relay, ca, issuer, now).await?,
        };
        found.retain(|id, _| ca.issuers().any(|record| record.id == *id));
        found.insert(issuer.to_owned(), Found { at: now, der: der.clone() });
        Ok(der)
    }
}

/// The list that was published, if that is not long ago.
async fn published(relay: &Context, issuer: &str, now: Timestamp) -> Result<Option<Bytes>, Fault> {
    let read = relay.store.read("crl", issuer, |tx, issuer| {
        Box::pin(async move { Ok::<_, Fault>(crls::find(tx, issuer).await?) })
    });
    let holds = |made_at: Timestamp| made_at <= now && now < made_at.plus_seconds(STALE_SECONDS);
    let Some(list) = read.await?.filter(|list| holds(list.made_at)) else { return Ok(None) };
    let der = STANDARD.decode(&list.der).map_err(Fault::internal("reading a published CRL"))?;
    Ok(Some(der.into()))
}

/// The list as it would be published now.
async fn made(relay: &Context, ca: &Authority, issuer: &str, now: Timestamp) -> Result<Bytes, Fault> {
    let revoked = relay
        .store
        .read("crl", (issuer, now), |tx, (issuer, now)| {
            Box::pin(async move { Ok::<Vec<Revoked>, Fault>(certificates::revoked(tx, issuer, *now).await?) })
        })
        .await?;
    let der = ca.crl(issuer, &revoked, now, now.millis()).map_err(Fault::internal("signing a CRL"))?;
    Ok(der.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::tests::at_a_desk,
        store::{StoreError, crls::Published},
    };
    use std::time::Duration;

    #[tokio::test]
    async fn the_published_list_is_handed_out_until_it_is_stale_and_none_of_the_future() {
        at_a_desk(async |desk| {
            let ca = desk.relay.ca.load_full();
            let issuer = ca.issuers().next().unwrap().id.clone();
            let get = async || Crls::default().get(&desk.relay, &ca, &issuer).await.unwrap();
            let derived = get().await;
            assert!(!derived.is_empty(), "nothing was published");
            for (made_in, handed_out) in
                [(0, true), (1 - STALE_SECONDS, true), (-STALE_SECONDS, false), (1, false)]
            {
                let made_at = desk.clock.now().plus_seconds(made_in);
                let list = Published { number: 1, der: STANDARD.encode(b"published"), made_at };
                let work = (issuer.clone(), list);
                let put: Result<bool, StoreError> = desk
                    .relay
                    .store
                    .transact("put", work, |tx, (issuer, list)| {
                        Box::pin(async move {
                            crls::forget(tx, Timestamp::from_seconds(9_000_000_000)).await?;
                            crls::put(tx, issuer, list, 0).await
                        })
                    })
                    .await;
                assert!(put.unwrap());
                assert_eq!(get().await == b"published".as_slice(), handed_out, "{made_in}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_list_is_looked_for_again_after_seconds() {
        at_a_desk(async |desk| {
            let ca = desk.relay.ca.load_full();
            let issuer = ca.issuers().next().unwrap().id.clone();
            let crls = Crls::default();
            let first = crls.get(&desk.relay, &ca, &issuer).await.unwrap();
            desk.clock.advance(Duration::from_secs(4));
            assert_eq!(crls.get(&desk.relay, &ca, &issuer).await.unwrap(), first);
            desk.clock.advance(Duration::from_secs(1));
            assert_ne!(crls.get(&desk.relay, &ca, &issuer).await.unwrap(), first);
        })
        .await;
    }
}
