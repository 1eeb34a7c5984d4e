//! The node key in a TPM: what its public area must say, so that the key can't have come from anywhere else.
//!
//! fixedTPM, fixedParent and sensitiveDataOrigin: made in this TPM and never leaves it. sign and nothing else:
//! it signs what bcd hands it. userWithAuth and noDA: it works while the TPM is locked out. An empty policy.

use super::{
    fields::{Fields, InvalidPublic, KeyFields, alg, curve},
    public::{Name, NameHash, point},
};
use crate::csr::PublicKey;
use std::fmt::Write as _;

/// TPMA_OBJECT of a node key: fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, sign.
pub const NODE_KEY_ATTRIBUTES: u32 = (1 << 1) | (1 << 4) | (1 << 5) | (1 << 6) | (1 << 10) | (1 << 18);

/// Names of the bits of TPMA_OBJECT (part 2, 8.3).
const ATTRIBUTES: [(u32, &str); 14] = [
    (1, "fixedTPM"),
    (2, "stClear"),
    (4, "fixedParent"),
    (5, "sensitiveDataOrigin"),
    (6, "userWithAuth"),
    (7, "adminWithPolicy"),
    (8, "firmwareLimited"),
    (9, "svnLimited"),
    (10, "noDA"),
    (11, "encryptedDuplication"),
    (16, "restricted"),
    (17, "decrypt"),
    (18, "sign"),
    (19, "x509sign"),
];

/// A node key whose public area is exactly as demanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeKeyPublic {
    key: PublicKey,
    name: Name,
}

/// The rule that a node key breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNodeKey {
    /// No TPMT_PUBLIC.
    #[error(transparent)]
    Form(#[from] InvalidPublic),
    /// Another type or curve.
    #[error("must be an ECC key on P-256")]
    Curve,
    /// Another nameAlg.
    #[error("must have the nameAlg SHA-256")]
    NameAlg,
    /// Attributes that are missing, and such that must not be there.
    #[error(
        "must be fixedTPM, fixedParent, sensitiveDataOrigin, userWithAuth, noDA, sign and nothing else\
         {}{}", listed("; it is not ", *.missing), listed("; it is ", *.extra)
    )]
    Attributes {
        /// Bits of TPMA_OBJECT that should be set.
        missing: u32,
        /// Bits that should not.
        extra: u32,
    },
    /// There is a policy.
    #[error("must have an empty authPolicy")]
    AuthPolicy,
    /// There is a cipher, as a storage key has.
    #[error("must have no symmetric cipher")]
    Symmetric,
    /// Another scheme, or none.
    #[error("must have the scheme ECDSA with SHA-256")]
    Scheme,
    /// There is a key derivation.
    #[error("must have no kdf")]
    Kdf,
    /// The coordinates are not of the curve's size.
    #[error("must hold a point whose coordinates are of 32 bytes")]
    Point,
}

impl NodeKeyPublic {
    /// Reads a TPMT_PUBLIC.
    ///
    /// # Errors
    /// The first rule that it breaks.
    pub fn parse(tpmt_public: &[u8]) -> Result<Self, InvalidNodeKey> {
        let fields = Fields::read(tpmt_public)?;
        let KeyFields::Ecc { curve: curve::P256, has_kdf, x, y } = fields.key else {
            return Err(InvalidNodeKey::Curve);
        };
        let (missing, extra) =
            (NODE_KEY_ATTRIBUTES & !fields.attributes, fields.attributes & !NODE_KEY_ATTRIBUTES);
        let rules = [
            (fields.name_alg == alg::SHA256, InvalidNodeKey::NameAlg),
            (missing | extra == 0, InvalidNodeKey::Attributes { missing, extra }),
            (fields.auth_policy.is_empty(), InvalidNodeKey::AuthPolicy),
            (fields.symmetric.is_none(), InvalidNodeKey::Symmetric),
            (fields.scheme == Some((alg::ECDSA, alg::SHA256)), InvalidNodeKey::Scheme),
            (!has_kdf, InvalidNodeKey::Kdf),
        ];
        if let Some((_, broken)) = rules.into_iter().find(|(holds, _)| !holds) {
            return Err(broken);
        }
        let key = point(curve::P256, x, y).ok_or(InvalidNodeKey::Point)?;
        Ok(Self { key, name: Name::of(NameHash::Sha256, tpmt_public) })
    }

    /// The key. That its point is on the curve has not been checked.
    #[must_use]
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// Its Name: what a credential is made for.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }
}

/// The names of the bits after `before`; nothing for no bits.
fn listed(before: &str, bits: u32) -> String {
    let mut text = String::new();
    for bit in (0..u32::BITS).filter(|bit| bits & (1 << bit) != 0) {
        text.push_str(if text.is_empty() { before } else { ", " });
        match ATTRIBUTES.iter().find(|(known, _)| *known == bit) {
            Some((_, name)) => text.push_str(name),
            // Writing to a String can't fail.
            None => drop(write!(text, "bit {bit}")),
        }
    }
    text
}
