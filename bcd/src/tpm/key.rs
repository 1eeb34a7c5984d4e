//! The node key in the TPM: made there, kept as the two blobs that only this TPM can load, used by loading it anew.
//!
//! Its parent is the storage root key on P-256 (TCG TPM v2.0 Provisioning Guidance, 7.5.1), which is made again from its
//! template each time: nothing persistent is taken in the TPM.

use super::{
    Found, Tpm, TpmError,
    activate::{Credential, activate},
    chip::Chip,
    error::{failed, kind},
};
use crate::key::{KeyError, NodeKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use shared::{
    api::node::{self, Challenge, MAX_TPM_BYTES, Proof},
    binary::Binary,
    csr::PublicKey,
    secret::Secret,
    tpm::{NODE_KEY_ATTRIBUTES, NodeKeyPublic},
};
use std::{sync::Arc, time::Duration};
use tss_esapi::{
    attributes::{ObjectAttributes, ObjectAttributesBuilder},
    constants::{response_code::Tss2ResponseCodeKind as Kind, tss},
    handles::KeyHandle,
    interface_types::{
        algorithm::{HashingAlgorithm, PublicAlgorithm},
        ecc::EccCurve,
        resource_handles::Hierarchy,
        session_handles::AuthSession,
    },
    structures::{
        Digest, EccParameter, EccPoint, EccScheme, HashScheme, HashcheckTicket, KeyDerivationFunctionScheme,
        Private, Public, PublicBuilder, PublicEccParametersBuilder, Signature, SignatureScheme,
        SymmetricDefinitionObject,
    },
    traits::{Marshall as _, UnMarshall as _},
    tss2_esys::TPMT_TK_HASHCHECK,
};

/// The version of the file.
const VERSION: u64 = 1;
/// How long each may take: chips need a second or two for a P-256 key, half a minute for RSA.
const CREATE_LIMIT: Duration = Duration::from_secs(60);
const SIGN_LIMIT: Duration = Duration::from_secs(12);
const ACTIVATE_LIMIT: Duration = Duration::from_secs(75);

/// What the file holds. Both parts are worth nothing without the TPM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Blob {
    version: u64,
    /// TPM2B_PRIVATE without its size.
    private: Binary<MAX_TPM_BYTES>,
    /// TPMT_PUBLIC.
    public: Binary<MAX_TPM_BYTES>,
}

/// A node key in a TPM.
#[derive(Clone, Debug)]
pub struct TpmKey {
    tpm: Tpm,
    blob: Arc<Blob>,
    public: PublicKey,
}

impl TpmKey {
    /// Makes a key. It is lost unless [`TpmKey::to_file`] is kept.
    ///
    /// # Errors
    /// There is no TPM, or it does not do as it should.
    pub fn create(tpm: Tpm) -> Result<Self, TpmError> {
        let blob = tpm.run(CREATE_LIMIT, create)?;
        Self::of(tpm, blob).ok_or(TpmError::Odd("a node key that is not as its template"))
    }

    /// The key of this file. The TPM is not asked.
    ///
    /// # Errors
    /// What is wrong with the file.
    pub fn from_file(tpm: Tpm, bytes: &[u8]) -> Option<Self> {
        let blob: Blob = serde_json::from_slice(bytes).ok()?;
        Self::of(tpm, blob).filter(|key| key.blob.version == VERSION)
    }

    /// The file to keep.
    #[must_use]
    pub fn to_file(&self) -> String {
        serde_json::to_string_pretty(&*self.blob).unwrap_or_default()
    }

    /// The TPM that it is in.
    #[must_use]
    pub fn tpm(&self) -> &Tpm {
        &self.tpm
    }

    /// What a join sends of the TPM; `None` if nothing of it fits the wire.
    #[must_use]
    pub fn offer(&self, found: &Found) -> Option<node::Tpm> {
        found.offer(self.blob.public.as_bytes())
    }

    /// Answers the challenge to what was found. It blocks.
    ///
    /// # Errors
    /// It is not for this TPM and this key, or the TPM does not do as it should.
    pub fn prove(&self, found: &Found, challenge: &Challenge) -> Result<Proof, TpmError> {
        let place = challenge.endorsement_key;
        let chosen = usize::try_from(place).ok().and_then(|place| found.endorsement_keys.get(place));
        let endorsement_key = chosen.ok_or(TpmError::NotOffered(place))?.clone();
        let credential = Credential {
            blob: challenge.credential_blob.as_bytes().to_vec(),
            secret: challenge.encrypted_secret.as_bytes().to_vec(),
        };
        let blob = Arc::clone(&self.blob);
        let secret = self.tpm.run(ACTIVATE_LIMIT, move |chip| {
            activate(chip, &blob, &endorsement_key, &credential)
                .map(|secret| Secret::new(STANDARD.encode(secret)))
        })?;
        Ok(Proof { challenge_id: challenge.challenge_id.clone(), secret: secret.reveal() })
    }

    fn of(tpm: Tpm, blob: Blob) -> Option<Self> {
        let public = NodeKeyPublic::parse(blob.public.as_bytes()).ok()?.key().clone();
        Some(Self { tpm, blob: Arc::new(blob), public })
    }
}

impl NodeKey for TpmKey {
    fn public_key(&self) -> &PublicKey {
        &self.public
    }
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, message);
        let (blob, digest) = (Arc::clone(&self.blob), digest.as_ref().to_vec());
        Ok(self.tpm.run(SIGN_LIMIT, move |chip| sign(chip, &blob, &digest))?)
    }
    fn in_tpm(&self) -> Option<&TpmKey> {
        Some(self)
    }
}

fn create(chip: &mut Chip) -> Result<Blob, TpmError> {
    let step = "making the node key";
    let template = node_key_template().map_err(failed(step))?;
    let root = storage_root(chip)?;
    let made = chip
        .context
        .execute_with_session(Some(AuthSession::Password), |context| {
            context.create(root, template, None, None, None, None)
        })
        .map_err(failed(step))?;
    chip.flush(root)?;
    let public = made.out_public.marshall().map_err(failed(step))?;
    let fits = Binary::new(made.out_private.value().to_vec()).zip(Binary::new(public));
    let (private, public) = fits.ok_or(TpmError::Odd("a node key that is too long"))?;
    Ok(Blob { version: VERSION, private, public })
}

/// Loads the key and frees its parent's slot.
pub(super) fn load(chip: &mut Chip, blob: &Blob) -> Result<KeyHandle, TpmError> {
    let step = "loading the node key";
    let private = Private::try_from(blob.private.as_bytes()).map_err(failed(step))?;
    let public = Public::unmarshall(blob.public.as_bytes()).map_err(failed(step))?;
    let root = storage_root(chip)?;
    let loaded = chip
        .context
        .execute_with_session(Some(AuthSession::Password), |context| context.load(root, private, public))
        .map_err(|error| match kind(error) {
            Some(Kind::Integrity | Kind::Binding | Kind::Size | Kind::Sensitive) => TpmError::KeyLost,
            _ => failed(step)(error),
        })?;
    chip.flush(root)?;
    Ok(loaded)
}

fn sign(chip: &mut Chip, blob: &Blob, digest: &[u8]) -> Result<Vec<u8>, TpmError> {
    let step = failed("signing in the TPM");
    let key = load(chip, blob)?;
    let digest = Digest::try_from(digest).map_err(&step)?;
    // The key is not restricted: no proof is needed that the digest was made in the TPM.
    let ticket = TPMT_TK_HASHCHECK {
        tag: tss::TPM2_ST_HASHCHECK,
        hierarchy: tss::TPM2_RH_NULL,
        digest: Default::default(),
    };
    let ticket = HashcheckTicket::try_from(ticket).map_err(&step)?;
    let signature = chip.context.execute_with_session(Some(AuthSession::Password), |context| {
        context.sign(key, digest, SignatureScheme::Null, ticket)
    });
    match signature.map_err(&step)? {
        Signature::EcDsa(signature) => {
            Ok(to_der(signature.signature_r().value(), signature.signature_s().value()))
        }
        _ => Err(TpmError::Odd("a signature of another kind")),
    }
}

fn storage_root(chip: &mut Chip) -> Result<KeyHandle, TpmError> {
    let template = storage_root_template().map_err(failed("writing the storage root key's template"))?;
    Ok(chip.primary(Hierarchy::Owner, template)?.0)
}

fn storage_root_template() -> tss_esapi::Result<Public> {
    let attributes = ObjectAttributesBuilder::new()
        .with_fixed_tpm(true)
        .with_fixed_parent(true)
        .with_sensitive_data_origin(true)
        .with_user_with_auth(true)
        .with_no_da(true)
        .with_restricted(true)
        .with_decrypt(true)
        .build()?;
    let parameters = PublicEccParametersBuilder::new_restricted_decryption_key(
        SymmetricDefinitionObject::AES_128_CFB,
        EccCurve::NistP256,
    );
    let zeros = EccParameter::try_from(vec![0; 32])?;
    on_p256(attributes, parameters, EccPoint::new(zeros.clone(), zeros))
}

fn node_key_template() -> tss_esapi::Result<Public> {
    let scheme = EccScheme::EcDsa(HashScheme::new(HashingAlgorithm::Sha256));
    let parameters = PublicEccParametersBuilder::new_unrestricted_signing_key(scheme, EccCurve::NistP256)
        .with_key_derivation_function_scheme(KeyDerivationFunctionScheme::Null);
    on_p256(ObjectAttributes::from(NODE_KEY_ATTRIBUTES), parameters, EccPoint::default())
}

fn on_p256(
    attributes: ObjectAttributes,
    parameters: PublicEccParametersBuilder,
    unique: EccPoint,
) -> tss_esapi::Result<Public> {
    PublicBuilder::new()
        .with_public_algorithm(PublicAlgorithm::Ecc)
        .with_name_hashing_algorithm(HashingAlgorithm::Sha256)
        .with_object_attributes(attributes)
        .with_ecc_parameters(parameters.build()?)
        .with_ecc_unique_identifier(unique)
        .build()
}

/// Ecdsa-Sig-Value (RFC 3279, 2.2.3). The TPM's numbers have 32 bytes at most, and may have fewer.
fn to_der(r: &[u8], s: &[u8]) -> Vec<u8> {
    let numbers = [integer(r), integer(s)].concat();
    [vec![0x30, short(numbers.len())], numbers].concat()
}

/// An INTEGER: no leading zeros but the one that keeps it positive.
fn integer(number: &[u8]) -> Vec<u8> {
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = number.get(zeros..).unwrap_or_default();
    let sign = digits.first().is_none_or(|first| *first >= 0x80);
    let length = short(digits.len() + usize::from(sign));
    let head = [0x02, length].into_iter().chain(sign.then_some(0));
    head.chain(digits.iter().copied()).collect()
}

/// A length below 128.
fn short(length: usize) -> u8 {
    u8::try_from(length).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_der_whatever_their_numbers_begin_with() {
        let parse = |r: &[u8], s: &[u8]| to_der(r, s);
        assert_eq!(parse(&[1], &[0x7f]), [0x30, 6, 2, 1, 1, 2, 1, 0x7f]);
        assert_eq!(parse(&[0, 0, 1], &[0x80]), [0x30, 7, 2, 1, 1, 2, 2, 0, 0x80]);
        assert_eq!(parse(&[], &[0]), [0x30, 6, 2, 1, 0, 2, 1, 0]);
        let long = parse(&[0xff; 32], &[0x7f; 32]);
        assert_eq!((long.len(), long[1], long[3], long[4]), (2 + 35 + 34, 69, 33, 0));
    }
}
