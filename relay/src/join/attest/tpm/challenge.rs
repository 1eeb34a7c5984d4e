//! The challenge, and the proof that answers it.
//!
//! A challenge is a credential that only the right TPM opens, and a sealed box that says for whom it was made. The
//! box travels with the machine and comes back, so that any relay with the master key may judge it and nothing is
//! stored. The same proof again gets the same answer until the box is too old: what a proof admits is counted by
//! the join, not here.

use super::{
    choice::Offered,
    credential::{CredentialError, SECRET_BYTES, make_credential},
};
use crate::{
    random::Random,
    seal::{CarriedError, KeyRing},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};
use shared::{
    api::node::Challenge,
    binary::Binary,
    id::{JoinTokenId, NodeId},
    problem::{Problem, Reason},
    secret::{Secret, same_bytes},
    time::Timestamp,
    tpm::NodeKeyPublic,
};
use zeroize::Zeroizing;

/// How long a challenge may be answered, in seconds.
pub const LIFETIME_SECONDS: i64 = 300;
/// The longest challenge id, in characters.
pub const MAX_ID_CHARS: usize = 1024;

/// What the box is sealed for.
const PURPOSE: &str = "tpm challenge";
/// The version of the box's content.
const VERSION: u8 = 1;

/// Who is challenged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject<'a> {
    /// Who joins with this token.
    Join(&'a JoinTokenId),
    /// This node, which renews with another key.
    Renewal(&'a NodeId),
}

/// What a challenge is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// Who is challenged.
    pub subject: Subject<'a>,
    /// SHA-256 of the signed part of the certificate request.
    pub csr_sha256: &'a [u8; 32],
    /// SHA-256 of the endorsement key's SubjectPublicKeyInfo.
    pub ek_sha256: &'a [u8; 32],
}

/// What came back must be the answer to a question about these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expected<'a> {
    /// Who answers.
    pub subject: Subject<'a>,
    /// SHA-256 of the signed part of the certificate request.
    pub csr_sha256: &'a [u8; 32],
    /// SHA-256 of the endorsement keys that are offered and could be taken.
    pub ek_sha256s: &'a [[u8; 32]],
}

/// Why no challenge could be made: a fault of the relay.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChallengeError {
    /// No credential.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// No box.
    #[error(transparent)]
    Seal(#[from] CarriedError),
    /// A credential or box longer than the wire's bounds.
    #[error("make a challenge: its parts are longer than they may be")]
    TooLong,
}

/// Why a proof proves nothing. The machine is told none of this, the log is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadProof {
    /// The box does not open.
    #[error("the challenge does not open: {0}")]
    Sealed(#[from] CarriedError),
    /// Another release's box, or none.
    #[error("the challenge holds nothing that this release understands")]
    Content,
    /// Made for another token or node.
    #[error("the challenge was made for another token or node")]
    OtherSubject,
    /// Made for another certificate request.
    #[error("the challenge was made for another certificate request")]
    OtherRequest,
    /// Made for an endorsement key that is not offered.
    #[error("the challenge was made for another endorsement key")]
    OtherEndorsementKey,
    /// Over [`LIFETIME_SECONDS`] old.
    #[error("the challenge was answered too late")]
    Late,
    /// Not the secret.
    #[error("the secret is not the one that was wrapped")]
    Secret,
}

impl BadProof {
    /// As the machine is told: one text, whatever it is.
    #[must_use]
    pub fn refusal(&self) -> Problem {
        Problem::refused(
            Reason::BadProof,
            "The proof is not the answer to a challenge for this request and endorsement key of the last five \
             minutes. Send the request again without a proof.",
        )
    }
}

/// Challenges whoever holds `node_key` to show that it lives beside the endorsement key.
///
/// `place` is that of the endorsement key among those that were offered.
///
/// # Errors
/// Faults of the relay only: the keys have been judged.
pub fn issue(
    ring: &KeyRing,
    question: (Subject<'_>, &[u8; 32]),
    (place, ek): (usize, &Offered),
    node_key: &NodeKeyPublic,
    now: Timestamp,
    random: &Random,
) -> Result<Challenge, ChallengeError> {
    let (subject, csr_sha256) = question;
    let secret = Zeroizing::new(random.bytes::<SECRET_BYTES>());
    let credential = make_credential(&ek.public, node_key.name(), &secret, random)?;
    let expires_at = now.plus_seconds(LIFETIME_SECONDS);
    let question = Question { subject, csr_sha256, ek_sha256: &ek.digest };
    let too_long = || ChallengeError::TooLong;
    Ok(Challenge {
        challenge_id: seal_challenge(ring, question, &secret, expires_at, random)?,
        endorsement_key: u32::try_from(place).map_err(|_| too_long())?,
        credential_blob: Binary::new(credential.blob).ok_or_else(too_long)?,
        encrypted_secret: Binary::new(credential.encrypted_secret).ok_or_else(too_long)?,
        expires_at,
    })
}

/// The challenge's id: a box over the question, the secret's hash and the time, at most [`MAX_ID_CHARS`] long.
///
/// # Errors
/// As [`KeyRing::seal_carried`].
pub fn seal_challenge(
    ring: &KeyRing,
    question: Question<'_>,
    secret: &[u8; SECRET_BYTES],
    expires_at: Timestamp,
    random: &Random,
) -> Result<String, CarriedError> {
    let (kind, id) = spelled(question.subject);
    let secret_sha256 = Sha256::digest(secret);
    let time = expires_at.millis().to_be_bytes();
    let head = [VERSION, kind];
    let content =
        [head.as_slice(), question.csr_sha256, question.ek_sha256, &secret_sha256, &time, id.as_bytes()];
    ring.seal_carried(PURPOSE, &content.concat(), random)
}

/// Judges a proof; answers which of the expected endorsement keys it proves, by its place.
///
/// # Errors
/// The first rule that it breaks.
pub fn judge_proof(
    ring: &KeyRing,
    challenge_id: &str,
    secret: &Secret,
    expected: Expected<'_>,
    now: Timestamp,
) -> Result<usize, BadProof> {
    if challenge_id.len() > MAX_ID_CHARS {
        return Err(BadProof::Content);
    }
    let content = ring.open_carried(PURPOSE, challenge_id)?;
    let opened = Opened::read(&content).ok_or(BadProof::Content)?;
    if opened.subject != spelled(expected.subject) {
        return Err(BadProof::OtherSubject);
    }
    if opened.csr_sha256 != expected.csr_sha256 {
        return Err(BadProof::OtherRequest);
    }
    let place = expected.ek_sha256s.iter().position(|ek| ek == opened.ek_sha256);
    let place = place.ok_or(BadProof::OtherEndorsementKey)?;
    if now >= opened.expires_at {
        return Err(BadProof::Late);
    }
    let secret = Zeroizing::new(STANDARD.decode(secret.expose()).map_err(|_| BadProof::Secret)?);
    let digest = Sha256::digest(secret.as_slice());
    if same_bytes(&digest, opened.secret_sha256) { Ok(place) } else { Err(BadProof::Secret) }
}

/// A box's content.
struct Opened<'a> {
    subject: (u8, &'a str),
    csr_sha256: &'a [u8; 32],
    ek_sha256: &'a [u8; 32],
    secret_sha256: &'a [u8; 32],
    expires_at: Timestamp,
}

impl<'a> Opened<'a> {
    fn read(content: &'a [u8]) -> Option<Self> {
        let ([version, kind], rest) = content.split_first_chunk()?;
        let (csr_sha256, rest) = rest.split_first_chunk()?;
        let (ek_sha256, rest) = rest.split_first_chunk()?;
        let (secret_sha256, rest) = rest.split_first_chunk()?;
        let (time, id) = rest.split_first_chunk()?;
        let expires_at = Timestamp::from_millis(i64::from_be_bytes(*time));
        let subject = (*kind, std::str::from_utf8(id).ok()?);
        (*version == VERSION).then_some(Self { subject, csr_sha256, ek_sha256, secret_sha256, expires_at })
    }
}

/// A subject as the box says it.
fn spelled<'a>(subject: Subject<'a>) -> (u8, &'a str) {
    match subject {
        Subject::Join(token) => (b'j', token.as_str()),
        Subject::Renewal(node) => (b'r', node.as_str()),
    }
}

#[cfg(test)]
mod tests;
