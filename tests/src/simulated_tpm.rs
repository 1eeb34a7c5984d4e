//! A TPM in software, as far as a join sees one: endorsement keys on P-256, the public areas of all its keys, and what
//! TPM2_ActivateCredential answers. It lets a story make a machine of any honesty, and a load tool thousands of them.

use crate::{Machine, TpmMaker};
use aws_lc_rs::{
    agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey},
    cipher::{AES_128, DecryptingKey, DecryptionContext, UnboundCipherKey},
    constant_time, digest, hmac,
    iv::FixedLength,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};
use shared::{
    hex,
    tpm::{EndorsementPublic, NODE_KEY_ATTRIBUTES, NodeKeyPublic, TEMPLATES},
};

/// TPM_ALG_ECC, TPM_ALG_SHA256.
const ECC_WITH_SHA256: [u8; 4] = [0x00, 0x23, 0x00, 0x0b];
/// AES-128 in CFB mode, no scheme, P-256, no KDF: TPMS_ECC_PARMS of an endorsement key.
const ENDORSEMENT_PARAMETERS: [u8; 12] = [0, 6, 0, 0x80, 0, 0x43, 0, 0x10, 0, 3, 0, 0x10];
/// No symmetric cipher, ECDSA with SHA-256, P-256, no KDF: TPMS_ECC_PARMS of a node key.
const NODE_KEY_PARAMETERS: [u8; 10] = [0, 0x10, 0, 0x18, 0, 0x0b, 0, 3, 0, 0x10];

/// The TPM.
pub struct SimulatedTpm {
    keys: Vec<Endorsement>,
}

/// An endorsement key.
struct Endorsement {
    private: PrivateKey,
    point: Vec<u8>,
    /// In DER, as the machine sends them with it.
    certificates: Vec<Vec<u8>>,
}

impl SimulatedTpm {
    /// A TPM with an endorsement key of its own.
    ///
    /// # Panics
    /// No key can be drawn.
    #[must_use]
    pub fn new() -> Self {
        Self::with_keys(1)
    }

    /// A TPM with so many endorsement keys, at least one; its node key lives beside each of them.
    ///
    /// # Panics
    /// No key can be drawn.
    #[must_use]
    pub fn with_keys(count: usize) -> Self {
        Self { keys: std::iter::repeat_with(Endorsement::draw).take(count.max(1)).collect() }
    }

    /// The same TPM with this maker's certificate for the endorsement key at `place`.
    #[must_use]
    pub fn certified(mut self, place: usize, maker: &TpmMaker) -> Self {
        if let Some(key) = self.keys.get_mut(place) {
            key.certificates = vec![maker.certify(&key.point)];
        }
        self
    }

    /// TPMT_PUBLIC of its first endorsement key, by the template L-2.
    #[must_use]
    pub fn endorsement_public(&self) -> Vec<u8> {
        self.keys.first().map(Endorsement::public).unwrap_or_default()
    }

    /// SHA-256 of its first endorsement key's SubjectPublicKeyInfo.
    ///
    /// # Panics
    /// The public area is not as it should be.
    #[must_use]
    pub fn ek_sha256(&self) -> String {
        self.ek_sha256_of(0)
    }

    /// The same of the endorsement key at `place`.
    ///
    /// # Panics
    /// There is none, or its public area is not as it should be.
    #[expect(clippy::panic, reason = "a test with a broken TPM fails")]
    #[must_use]
    pub fn ek_sha256_of(&self, place: usize) -> String {
        let area = self.keys.get(place).map(Endorsement::public).unwrap_or_default();
        let public = EndorsementPublic::parse(&area);
        hex::encode(&public.unwrap_or_else(|error| panic!("an endorsement key: {error}")).digest())
    }

    /// What a machine whose key lives in this TPM sends as `tpm`.
    #[must_use]
    pub fn offer(&self, machine: &Machine) -> Value {
        self.offer_of(&machine.point())
    }

    /// The same for the key with this public point.
    #[must_use]
    pub fn offer_of(&self, point: &[u8]) -> Value {
        self.offer_with(&area_of_key(point, NODE_KEY_ATTRIBUTES))
    }

    /// The same with another public area of the node key.
    #[must_use]
    pub fn offer_with(&self, key_public: &[u8]) -> Value {
        json!({
            "endorsementKeys": self.keys.iter().map(Endorsement::offer).collect::<Vec<_>>(),
            "keyPublic": STANDARD.encode(key_public),
        })
    }

    /// The proof for a challenge, as `proof`; `None` if the credential is not for this TPM and this machine's key.
    #[must_use]
    pub fn answer(&self, machine: &Machine, challenge: &Value) -> Option<Value> {
        self.answer_of(&machine.point(), challenge)
    }

    /// The same for the key with this public point.
    #[must_use]
    pub fn answer_of(&self, point: &[u8], challenge: &Value) -> Option<Value> {
        let bytes = |member: &str| STANDARD.decode(challenge.get(member)?.as_str()?).ok();
        let (blob, encrypted) = (bytes("credentialBlob")?, bytes("encryptedSecret")?);
        let name = NodeKeyPublic::parse(&area_of_key(point, NODE_KEY_ATTRIBUTES)).ok()?.name().clone();
        let place = usize::try_from(challenge.get("endorsementKey")?.as_u64()?).ok()?;
        let secret = self.keys.get(place)?.activate(&blob, &encrypted, name.as_bytes())?;
        Some(json!({"challengeId": challenge.get("challengeId")?, "secret": STANDARD.encode(secret)}))
    }
}

impl Endorsement {
    #[expect(clippy::panic, reason = "a test without its key fails")]
    fn draw() -> Self {
        let drawn = PrivateKey::generate(&ECDH_P256).and_then(|private| {
            let point = private.compute_public_key()?.as_ref().to_vec();
            Ok(Self { private, point, certificates: Vec::new() })
        });
        drawn.unwrap_or_else(|error| panic!("an endorsement key: {error}"))
    }

    fn public(&self) -> Vec<u8> {
        let template = TEMPLATES.iter().find(|template| template.name == "L-2");
        let (attributes, policy) =
            template.map_or((0, &[][..]), |template| (template.attributes, template.auth_policy));
        area(attributes, policy, &ENDORSEMENT_PARAMETERS, &self.point)
    }

    fn offer(&self) -> Value {
        let certificates: Vec<String> = self.certificates.iter().map(|der| STANDARD.encode(der)).collect();
        json!({"public": STANDARD.encode(self.public()), "certificates": certificates})
    }

    /// TPM2_ActivateCredential (TPM 2.0 part 1, 24).
    fn activate(&self, blob: &[u8], encrypted: &[u8], name: &[u8]) -> Option<Vec<u8>> {
        let (x, y) = (encrypted.get(2..34)?, encrypted.get(36..68)?);
        let peer = [&[4], x, y].concat();
        let own_x = self.point.get(1..33)?;
        let seed = agreement::agree(&self.private, UnparsedPublicKey::new(&ECDH_P256, &peer), (), |z| {
            let parts = [&1u32.to_be_bytes()[..], z, b"IDENTITY\0", x, own_x].concat();
            Ok(digest::digest(&digest::SHA256, &parts))
        })
        .ok()?;
        let (integrity, identity) = blob.get(2..)?.split_at_checked(32)?;
        let key = kdf_a(seed.as_ref(), b"INTEGRITY\0", &[], 256);
        let expected = sign(&key, &[identity, name].concat());
        constant_time::verify_slices_are_equal(&expected, integrity).ok()?;
        let key = kdf_a(seed.as_ref(), b"STORAGE\0", name, 128);
        let key = UnboundCipherKey::new(&AES_128, key.get(..16)?).ok()?;
        let mut text = identity.to_vec();
        let context = DecryptionContext::Iv128(FixedLength::from([0; 16]));
        DecryptingKey::cfb128(key).ok()?.decrypt(&mut text, context).ok()?;
        text.get(2..).map(<[u8]>::to_vec)
    }
}

impl Default for SimulatedTpm {
    fn default() -> Self {
        Self::new()
    }
}

/// TPMT_PUBLIC of a machine's key with these attributes.
#[must_use]
pub fn key_public(machine: &Machine, attributes: u32) -> Vec<u8> {
    area_of_key(&machine.point(), attributes)
}

fn area_of_key(point: &[u8], attributes: u32) -> Vec<u8> {
    area(attributes, &[], &NODE_KEY_PARAMETERS, point)
}

fn area(attributes: u32, policy: &[u8], parameters: &[u8], point: &[u8]) -> Vec<u8> {
    let (x, y) = (point.get(1..33).unwrap_or_default(), point.get(33..65).unwrap_or_default());
    let sized = |bytes: &[u8]| {
        let size = u16::try_from(bytes.len()).unwrap_or_default();
        [&size.to_be_bytes(), bytes].concat()
    };
    [&ECC_WITH_SHA256, &attributes.to_be_bytes()[..], &sized(policy), parameters, &sized(x), &sized(y)]
        .concat()
}

fn kdf_a(key: &[u8], label: &[u8], context: &[u8], bits: u32) -> Vec<u8> {
    sign(key, &[&1u32.to_be_bytes()[..], label, context, &bits.to_be_bytes()].concat())
}

fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), message).as_ref().to_vec()
}
