//! The keys that sign tokens (ES256, RFC 7518): one signs, all verify until the last token that they signed has ended.
//!
//! They are in the store, sealed, so that every relay has them. The key that signs is looked up in the transaction that
//! makes the token: no relay signs with a key that another has replaced. A key that a relay does not know is looked up
//! once before a token is refused, so that a token of a new key is good everywhere at once.

use crate::{
    context::Context,
    fault::Fault,
    random::Random,
    seal::{KeyRing, Place},
    store::{
        StoreError, Tx,
        signing_keys::{self, COLUMN, SealedKey, TABLE},
    },
};
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use jsonwebtoken::{DecodingKey, EncodingKey};
use shared::{id::SigningKeyId, time::Timestamp};
use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
};

/// How long a key signs, in seconds (30 days).
pub const SIGNS_SECONDS: i64 = 30 * 86_400;
/// How many keys are kept open: those of a year and a half.
const MAX_OPEN: usize = 20;

/// A key, opened. No `Debug`.
pub struct SigningKey {
    /// A token's `kid`.
    pub id: SigningKeyId,
    /// Signs.
    pub signs: EncodingKey,
    /// Verifies.
    pub verifies: DecodingKey,
}

/// The keys that this relay has opened.
#[derive(Default)]
pub struct SigningKeys(RwLock<BTreeMap<SigningKeyId, Arc<SigningKey>>>);

impl SigningKeys {
    /// The key of this id, from the store if it is not known; `None` if there is none.
    ///
    /// # Errors
    /// The store's; its seal does not open.
    pub async fn find(&self, relay: &Context, id: &SigningKeyId) -> Result<Option<Arc<SigningKey>>, Fault> {
        if let Some(known) = self.known(id) {
            return Ok(Some(known));
        }
        let stored: Result<_, StoreError> =
            relay.store.glance("signing key", id, |tx, id| Box::pin(signing_keys::find(tx, id))).await;
        stored?.map(|sealed| self.open(&relay.keys, &sealed)).transpose()
    }

    /// The key that signs now. One that has signed for 30 days is followed by a new one.
    ///
    /// # Errors
    /// The store's; a key can't be drawn, sealed or opened.
    pub async fn current(
        &self,
        tx: &mut Tx<'_>,
        (keys, random): (&KeyRing, &Random),
        now: Timestamp,
    ) -> Result<Arc<SigningKey>, Fault> {
        let newest = signing_keys::newest(tx).await?;
        let sealed = match newest.filter(|key| now < key.created_at.plus_seconds(SIGNS_SECONDS)) {
            Some(current) => current,
            None => {
                let made = draw(keys, random, now)?;
                signing_keys::insert(tx, &made).await?;
                made
            }
        };
        match self.known(&sealed.id) {
            Some(known) => Ok(known),
            None => self.open(keys, &sealed),
        }
    }

    /// Whether this relay has opened the key.
    #[must_use]
    pub fn knows(&self, id: &SigningKeyId) -> bool {
        self.known(id).is_some()
    }

    fn known(&self, id: &SigningKeyId) -> Option<Arc<SigningKey>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn open(&self, keys: &KeyRing, sealed: &SealedKey) -> Result<Arc<SigningKey>, Fault> {
        let opening = "opening a signing key";
        let document = keys.open(place(&sealed.id), &sealed.sealed).map_err(Fault::internal(opening))?;
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &document)
            .map_err(|_| Fault::internal(opening)("what is stored is no key on P-256"))?;
        let key = Arc::new(SigningKey {
            id: sealed.id.clone(),
            signs: EncodingKey::from_ec_der(&document),
            verifies: DecodingKey::from_ec_der(pair.public_key().as_ref()),
        });
        let mut open = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if open.len() >= MAX_OPEN {
            open.pop_first();
        }
        open.insert(key.id.clone(), key.clone());
        Ok(key)
    }
}

fn draw(keys: &KeyRing, random: &Random, now: Timestamp) -> Result<SealedKey, Fault> {
    let drawing = || Fault::internal("drawing a signing key")("the crypto provider refused");
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| drawing())?;
    let document = pair.to_pkcs8v1().map_err(|_| drawing())?;
    let id = SigningKeyId::draw(now, random.bytes());
    let sealed =
        keys.seal(place(&id), document.as_ref(), random).map_err(Fault::internal("sealing a signing key"))?;
    Ok(SealedKey { id, sealed, created_at: now })
}

fn place(id: &SigningKeyId) -> Place<'_> {
    Place { table: TABLE, row: id.as_str(), column: COLUMN }
}
