//! Key derivation as TPMs do it (TPM 2.0 part 1, 11.4.10): KDFa on HMAC, KDFe on a hash; one block is always enough.

use aws_lc_rs::{digest, hmac};
use shared::tpm::NameHash;
use zeroize::Zeroizing;

/// KDFa: `bytes` bytes, at most one digest, from a key, a label that ends with a zero byte, and contextU.
pub(super) fn kdf_a(
    hash: NameHash,
    key: &[u8],
    label: &[u8],
    context: &[u8],
    bytes: usize,
) -> Zeroizing<Vec<u8>> {
    let bits = u32::try_from(bytes * 8).unwrap_or(u32::MAX);
    let mut block = hmac(hash, key, &[&1u32.to_be_bytes(), label, context, &bits.to_be_bytes()]);
    block.truncate(bytes);
    block
}

/// KDFe: one digest from the x of a shared point, a label that ends with a zero byte, and the x of both public keys.
pub(super) fn kdf_e(
    hash: NameHash,
    z: &[u8],
    label: &[u8],
    party_u: &[u8],
    party_v: &[u8],
) -> Zeroizing<Vec<u8>> {
    let algorithm = match hash {
        NameHash::Sha256 => &digest::SHA256,
        NameHash::Sha384 => &digest::SHA384,
    };
    let mut context = digest::Context::new(algorithm);
    for part in [&1u32.to_be_bytes(), z, label, party_u, party_v] {
        context.update(part);
    }
    Zeroizing::new(context.finish().as_ref().to_vec())
}

/// HMAC over the parts, one after the other.
pub(super) fn hmac(hash: NameHash, key: &[u8], parts: &[&[u8]]) -> Zeroizing<Vec<u8>> {
    let algorithm = match hash {
        NameHash::Sha256 => hmac::HMAC_SHA256,
        NameHash::Sha384 => hmac::HMAC_SHA384,
    };
    let mut context = hmac::Context::with_key(&hmac::Key::new(algorithm, key));
    for part in parts {
        context.update(part);
    }
    Zeroizing::new(context.sign().as_ref().to_vec())
}
