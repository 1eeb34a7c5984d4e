//! The key that the audit's chain is made with: derived from the master key, so that it is nowhere in the database.
//!
//! It is symmetric: "signed" means HMAC-SHA-256 (RFC 2104) here. Whoever has the database alone can neither make a link nor
//! a signature; whoever has the master key too can make both.

use super::{KeyRing, MasterKey};
use aws_lc_rs::{hkdf, hmac};

/// The bytes of a link.
pub const LINK_BYTES: usize = 32;
/// What the key is derived for (HKDF-SHA-256, RFC 5869); no other purpose has this text.
const INFO: &[u8] = b"relay audit chain\0";

/// A key of the chain.
pub struct ChainKey {
    id: String,
    key: hmac::Key,
}

impl KeyRing {
    /// The key that the chain goes on with.
    #[must_use]
    pub fn chain_key(&self) -> Option<ChainKey> {
        ChainKey::of(&self.current)
    }

    /// The key of this id; `None` if this relay was not given it.
    #[must_use]
    pub fn chain_key_of(&self, id: &str) -> Option<ChainKey> {
        ChainKey::of(self.key(id)?)
    }
}

impl ChainKey {
    /// `None` only if the provider refuses the lengths, which are fixed.
    fn of(master: &MasterKey) -> Option<Self> {
        let derived = hkdf::Salt::new(hkdf::HKDF_SHA256, &[]).extract(master.expose());
        let key = derived.expand(&[INFO, master.id().as_bytes()], hmac::HMAC_SHA256).ok()?.into();
        Some(Self { id: master.id().to_owned(), key })
    }

    /// The master key's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The code over a purpose and parts, each behind its length, so that no two lists of parts are one text.
    #[must_use]
    pub fn code(&self, purpose: &str, parts: &[&[u8]]) -> [u8; LINK_BYTES] {
        let mut context = hmac::Context::with_key(&self.key);
        for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let mut code = [0; LINK_BYTES];
        for (to, from) in code.iter_mut().zip(context.sign().as_ref()) {
            *to = *from;
        }
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(byte: u8) -> KeyRing {
        KeyRing::new(MasterKey::from_bytes([byte; 32].into()), Vec::new())
    }

    #[test]
    fn the_code_depends_on_key_purpose_and_where_parts_end() {
        let key = ring(1).chain_key().unwrap();
        let code = key.code("a", &[b"bc", b"d"]);
        assert_eq!(code, ring(1).chain_key_of(key.id()).unwrap().code("a", &[b"bc", b"d"]));
        for (ring, purpose, parts) in [
            (ring(2), "a", [b"bc".as_slice(), b"d"]),
            (ring(1), "ab", [b"c".as_slice(), b"d"]),
            (ring(1), "a", [b"b".as_slice(), b"cd"]),
        ] {
            assert_ne!(code, ring.chain_key().unwrap().code(purpose, &parts));
        }
        assert!(ring(2).chain_key_of(key.id()).is_none(), "another master key");
    }
}
