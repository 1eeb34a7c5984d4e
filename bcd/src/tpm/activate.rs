//! The answer to a challenge: TPM2_ActivateCredential on the node key itself, with the endorsement key that the relay
//! chose (TPM 2.0 part 1, 24). Only the TPM that holds both gets the secret out.
//!
//! The endorsement keys' policies are those of the TCG EK Credential Profile 2.5, B.6: PolicyA asks for the endorsement
//! hierarchy's (empty) password, PolicyB for PolicyA or a policy in NV. Passwords would do for the high range too, but
//! those a lock-out refuses.

use super::{
    Endorsement, TpmError,
    chip::Chip,
    ek,
    error::{failed, kind},
    key::{self, Blob},
};
use shared::tpm::{NameHash, POLICY_A_SHA256, Template};
use tss_esapi::{
    constants::{SessionType, response_code::Tss2ResponseCodeKind as Kind},
    handles::AuthHandle,
    interface_types::{
        algorithm::HashingAlgorithm,
        session_handles::{AuthSession, PolicySession},
    },
    structures::{Digest, DigestList, EncryptedSecret, IdObject, Nonce, SymmetricDefinition},
};

/// PolicyA, SHA-384.
const POLICY_A_SHA384: &[u8] = &[
    0x8b, 0xbf, 0x22, 0x66, 0x53, 0x7c, 0x17, 0x1c, 0xb5, 0x6e, 0x40, 0x3c, 0x4d, 0xc1, 0xd4, 0xb6, 0x4f,
    0x43, 0x26, 0x11, 0xdc, 0x38, 0x6e, 0x6f, 0x53, 0x20, 0x50, 0xc3, 0x27, 0x8c, 0x93, 0x0e, 0x14, 0x3e,
    0x8b, 0xb1, 0x13, 0x38, 0x24, 0xcc, 0xb4, 0x31, 0x05, 0x38, 0x71, 0xc6, 0xdb, 0x53,
];
/// PolicyC: a policy that is kept in NV. Here it is only the other branch of PolicyB.
const POLICY_C_SHA256: &[u8] = &[
    0x37, 0x67, 0xe2, 0xed, 0xd4, 0x3f, 0xf4, 0x5a, 0x3a, 0x7e, 0x1e, 0xae, 0xfc, 0xef, 0x78, 0x64, 0x3d,
    0xca, 0x96, 0x46, 0x32, 0xe7, 0xaa, 0xd8, 0x2c, 0x67, 0x3a, 0x30, 0xd8, 0x63, 0x3f, 0xde,
];
const POLICY_C_SHA384: &[u8] = &[
    0xd6, 0x03, 0x2c, 0xe6, 0x1f, 0x2f, 0xb3, 0xc2, 0x40, 0xeb, 0x3c, 0xf6, 0xa3, 0x32, 0x37, 0xef, 0x2b,
    0x6a, 0x16, 0xf4, 0x29, 0x3c, 0x22, 0xb4, 0x55, 0xe2, 0x61, 0xcf, 0xfd, 0x21, 0x7a, 0xd5, 0xb4, 0x94,
    0x7c, 0x2d, 0x73, 0xe6, 0x30, 0x05, 0xee, 0xd2, 0xdc, 0x2b, 0x35, 0x93, 0xd1, 0x65,
];

/// A credential as the relay sends it: the contents of TPM2B_ID_OBJECT and of TPM2B_ENCRYPTED_SECRET.
pub(super) struct Credential {
    pub(super) blob: Vec<u8>,
    pub(super) secret: Vec<u8>,
}

/// The secret in the credential.
pub(super) fn activate(
    chip: &mut Chip,
    key: &Blob,
    endorsement_key: &Endorsement,
    credential: &Credential,
) -> Result<Vec<u8>, TpmError> {
    let blob = IdObject::try_from(credential.blob.clone()).map_err(|_| TpmError::NotOurs)?;
    let secret = EncryptedSecret::try_from(credential.secret.clone()).map_err(|_| TpmError::NotOurs)?;
    // In this order three slots are enough.
    let node_key = key::load(chip, key)?;
    let loaded = ek::load(chip, endorsement_key)?;
    let session = authorize(chip, endorsement_key.public.template())?;
    let activated =
        chip.context.execute_with_sessions((Some(AuthSession::Password), Some(session), None), |context| {
            context.activate_credential(node_key, loaded, blob, secret)
        });
    activated.map(|secret| secret.value().to_vec()).map_err(|error| match kind(error) {
        Some(Kind::Integrity | Kind::Value | Kind::Size | Kind::EccPoint | Kind::Insufficient) => {
            TpmError::NotOurs
        }
        _ => failed("activating the credential")(error),
    })
}

/// A session that has met the template's policy.
fn authorize(chip: &mut Chip, template: &Template) -> Result<AuthSession, TpmError> {
    let (hash, branches) = match template.name_hash {
        NameHash::Sha256 => (HashingAlgorithm::Sha256, [POLICY_A_SHA256, POLICY_C_SHA256]),
        NameHash::Sha384 => (HashingAlgorithm::Sha384, [POLICY_A_SHA384, POLICY_C_SHA384]),
    };
    let starting = failed("starting a policy session");
    let session = chip
        .context
        .start_auth_session(None, None, None, SessionType::Policy, SymmetricDefinition::AES_128_CFB, hash)
        .map_err(&starting)?
        .ok_or(TpmError::Odd("no session"))?;
    let policy = PolicySession::try_from(session).map_err(&starting)?;
    chip.context
        .execute_with_session(Some(AuthSession::Password), |context| {
            let (nonce, command, reference) = (Nonce::default(), Digest::default(), Nonce::default());
            context.policy_secret(policy, AuthHandle::Endorsement, nonce, command, reference, None)
        })
        .map_err(|error| match kind(error) {
            Some(Kind::BadAuth | Kind::AuthFail) => TpmError::Password("endorsement"),
            _ => failed("meeting the endorsement key's policy")(error),
        })?;
    if template.auth_policy != POLICY_A_SHA256 {
        either(chip, policy, branches).map_err(failed("meeting the endorsement key's policy"))?;
    }
    Ok(session)
}

/// PolicyB: it is enough that one of the branches was met.
fn either(chip: &mut Chip, policy: PolicySession, branches: [&[u8]; 2]) -> tss_esapi::Result<()> {
    let mut list = DigestList::new();
    for branch in branches {
        list.add(Digest::try_from(branch)?)?;
    }
    chip.context.policy_or(policy, list)
}
