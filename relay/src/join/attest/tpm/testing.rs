//! What the tests here share: public areas of real software TPMs, certificates, and a TPM in software.

use super::{
    credential::Credential,
    kdf::{hmac, kdf_a, kdf_e},
};
use crate::{
    random::Random,
    seal::{KeyRing, MasterKey},
};
use aws_lc_rs::{
    agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey},
    cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey},
    iv::FixedLength,
};
use shared::{
    csr::Curve,
    time::Timestamp,
    tpm::{EndorsementPublic, Name, NameHash, NodeKeyPublic},
};
use zeroize::Zeroizing;

pub(super) const EK_RSA: &[u8] = include_bytes!("../../../../../shared/testdata/tpm/ek-rsa.pub");
pub(super) const EK_P256: &[u8] = include_bytes!("../../../../../shared/testdata/tpm/ek-p256.pub");
pub(super) const EK_P384: &[u8] = include_bytes!("../../../../../shared/testdata/tpm/ek-p384.pub");
pub(super) const NODE: &[u8] = include_bytes!("../../../../../shared/testdata/tpm/node.pub");
pub(super) const AK: &[u8] = include_bytes!("../../../../../shared/testdata/tpm/ak.pub");

/// swtpm's certificates of two of them, and its two CAs.
pub(super) const EK_RSA_CERTIFICATE: &[u8] = include_bytes!("../../../../testdata/tpm/ek-rsa.der");
pub(super) const EK_P384_CERTIFICATE: &[u8] = include_bytes!("../../../../testdata/tpm/ek-p384.der");
pub(super) const INTERMEDIATE: &[u8] = include_bytes!("../../../../testdata/tpm/inter.der");
pub(super) const ROOT: &[u8] = include_bytes!("../../../../testdata/tpm/root.der");

/// 2027-01-01T00:00:00Z: all certificates are valid but the one that has expired.
pub(super) const NOW: Timestamp = Timestamp::from_seconds(1_798_761_600);

pub(super) fn node_key() -> NodeKeyPublic {
    NodeKeyPublic::parse(NODE).unwrap()
}

/// The TPMT_PUBLIC of template L-1 with this modulus.
pub(super) fn rsa_area(modulus: &[u8]) -> Vec<u8> {
    let (head, own) = EK_RSA.split_at(EK_RSA.len() - 256);
    assert_eq!(own.len(), modulus.len());
    [head, modulus].concat()
}

pub(super) fn ring(byte: u8) -> KeyRing {
    KeyRing::new(master_key(byte), vec![])
}

pub(super) fn master_key(byte: u8) -> MasterKey {
    MasterKey::from_bytes(Zeroizing::new([byte; 32]))
}

/// A TPM's endorsement key on P-256, and what TPM2_ActivateCredential does with it.
pub(super) struct SoftwareTpm {
    private: PrivateKey,
    point: Vec<u8>,
}

impl SoftwareTpm {
    pub(super) fn new(seed: u64) -> Self {
        let scalar = Random::seeded(seed).bytes::<32>();
        let private = PrivateKey::from_private_key(&ECDH_P256, &scalar).unwrap();
        let point = private.compute_public_key().unwrap().as_ref().to_vec();
        Self { private, point }
    }

    /// TPMT_PUBLIC of template L-2.
    pub(super) fn endorsement_public(&self) -> Vec<u8> {
        let head = &EK_P256[..EK_P256.len() - 68];
        [head, &[0, 32], &self.point[1..33], &[0, 32], &self.point[33..]].concat()
    }

    /// The secret, if the credential is for this key and for that name.
    pub(super) fn activate(&self, credential: &Credential, name: &Name) -> Option<Vec<u8>> {
        let hash = NameHash::Sha256;
        let ephemeral = &credential.encrypted_secret;
        let (x, y) = (&ephemeral[2..34], &ephemeral[36..68]);
        let peer = [&[4], x, y].concat();
        let seed = agreement::agree(&self.private, UnparsedPublicKey::new(&ECDH_P256, &peer), (), |z| {
            Ok(kdf_e(hash, z, b"IDENTITY\0", x, &self.point[1..33]))
        })
        .ok()?;
        let (integrity, identity) = credential.blob[2..].split_at(32);
        let key = kdf_a(hash, &seed, b"INTEGRITY\0", &[], 32);
        if hmac(hash, &key, &[identity, name.as_bytes()]).as_slice() != integrity {
            return None;
        }
        let key =
            UnboundCipherKey::new(&AES_128, &kdf_a(hash, &seed, b"STORAGE\0", name.as_bytes(), 16)).unwrap();
        let mut text = identity.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from([0; 16]));
        DecryptingKey::cfb128(key).unwrap().decrypt(&mut text, context).unwrap();
        assert_eq!(text[..2], 32u16.to_be_bytes());
        Some(text.split_off(2))
    }
}

/// An endorsement key of the curve's template whose point is on no curve.
pub(super) fn off_curve(curve: Curve) -> EndorsementPublic {
    let mut area = match curve {
        Curve::P256 => EK_P256.to_vec(),
        Curve::P384 => EK_P384.to_vec(),
    };
    *area.last_mut().unwrap() ^= 1;
    EndorsementPublic::parse(&area).unwrap()
}
