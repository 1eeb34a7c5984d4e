//! CRLs as they are handed out: made anew when they are a few seconds old, one at a time, and shared by all who ask.
//!
//! Anybody may ask, and making one reads every revoked certificate: so neither memory nor the store pays for each reader.

use crate::{
    ca::{Authority, Revoked},
    context::Context,
    fault::Fault,
    store::certificates,
};
use bytes::Bytes;
use shared::time::Timestamp;
use std::collections::BTreeMap;
use tokio::sync::Mutex;

/// How old a list may be when it is handed out, in seconds.
const FRESH_SECONDS: i64 = 5;

/// The lists that were made last, by issuing CA. Bounded by the CAs.
#[derive(Default)]
pub struct Crls(Mutex<BTreeMap<String, Made>>);

struct Made {
    at: Timestamp,
    der: Bytes,
}

impl Crls {
    /// The list of an issuing CA, in DER.
    ///
    /// # Errors
    /// The store's; too many certificates for one list; there is no such CA.
    pub async fn get(&self, relay: &Context, ca: &Authority, issuer: &str) -> Result<Bytes, Fault> {
        // Held while a list is made: whoever waits gets that one.
        let mut made = self.0.lock().await;
        let now = relay.clock.now();
        let fresh = |made: &&Made| made.at <= now && now < made.at.plus_seconds(FRESH_SECONDS);
        if let Some(made) = made.get(issuer).filter(fresh) {
            return Ok(made.der.clone());
        }
        let revoked = relay
            .store
            .read("crl", (issuer, now), |tx, (issuer, now)| {
                Box::pin(
                    async move { Ok::<Vec<Revoked>, Fault>(certificates::revoked(tx, issuer, *now).await?) },
                )
            })
            .await?;
        let der = Bytes::from(ca.crl(issuer, &revoked, now).map_err(Fault::internal("signing a CRL"))?);
        made.retain(|id, _| ca.issuers().any(|record| record.id == *id));
        made.insert(issuer.to_owned(), Made { at: now, der: der.clone() });
        Ok(der)
    }
}
