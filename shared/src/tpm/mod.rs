//! TPM 2.0 public areas, as bcd writes them and relay judges them: no TPM library, no I/O, no curve arithmetic.
//!
//! Two kinds of keys are taken, each by a rule that leaves one reading: endorsement keys made from the TCG's
//! templates ([`EndorsementPublic`]) and node keys ([`NodeKeyPublic`]). Everything else is refused, with the
//! field that is not as it must be. That a point is on its curve is the crypto provider's to say.

mod endorsement;
mod fields;
mod node_key;
mod public;

pub use endorsement::{
    EndorsementKey, EndorsementKind, EndorsementPublic, InvalidEndorsementKey, POLICY_A_SHA256, TEMPLATES,
    Template,
};
pub use fields::InvalidPublic;
pub use node_key::{InvalidNodeKey, NODE_KEY_ATTRIBUTES, NodeKeyPublic};
pub use public::{Name, NameHash, RsaModulus};

#[cfg(test)]
mod tests;
