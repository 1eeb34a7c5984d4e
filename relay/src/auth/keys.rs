//! The keys that sign tokens (ES256, RFC 7518): one signs, all verify until the last token that they signed has ended.
//!
//! They are in the store, sealed, so that every relay has them. The key that signs is looked up in the transaction that
//! makes the token: no relay signs with a key that another has replaced. A key that a relay does not know is looked up
//! once before a token is refused, so that a token of a new key is good everywhere at once.

use crate::{
    config,
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

/// How many keys are kept open: those of a year where each signs as short as it may, and room.
const MAX_OPEN: usize = 60;

/// A key, opened. No `Debug`.
pub struct SigningKey {
    /// A token's `kid`.
    pub id: SigningKeyId,
    /// Signs.
    pub signs: EncodingKey,
    /// Verifies.
    pub verifies: DecodingKey,
}

/// The keys that this relay has opened, and how long each signs.
pub struct SigningKeys {
    open: RwLock<BTreeMap<SigningKeyId, Arc<SigningKey>>>,
    signs_seconds: i64,
}

impl Default for SigningKeys {
    fn default() -> Self {
        Self::new(config::SIGNING_KEY_DAYS)
    }
}

impl SigningKeys {
    /// None opened yet; each signs for so many days.
    #[must_use]
    pub fn new(days: u32) -> Self {
        Self { open: RwLock::default(), signs_seconds: i64::from(days) * 86_400 }
    }

    /// How long a key signs, in seconds.
    #[must_use]
    pub const fn signs_seconds(&self) -> i64 {
        self.signs_seconds
    }

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

    /// The key that signs now. One that has signed for its time is followed by a new one.
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
        let sealed = match newest.filter(|key| now < key.created_at.plus_seconds(self.signs_seconds)) {
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
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
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
        let mut open = self.open.write().unwrap_or_else(PoisonError::into_inner);
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
