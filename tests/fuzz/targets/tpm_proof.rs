//! The challenge that comes back with a proof. An input that begins with a zero byte makes a challenge and then
//! changes it: only the unchanged one is answered. Any other is taken for a challenge as it is: none of them is.
#![no_main]

use base64::{Engine as _, engine::general_purpose::STANDARD};
use libfuzzer_sys::fuzz_target;
use relay::{
    join::attest::tpm::challenge::{
        BadProof, Expected, LIFETIME_SECONDS, MAX_ID_CHARS, Question, Subject, judge_proof, seal_challenge,
    },
    random::Random,
    seal::{KeyRing, MasterKey},
};
use shared::{id::JoinTokenId, secret::Secret, time::Timestamp};
use std::sync::LazyLock;

static RING: LazyLock<KeyRing> =
    LazyLock::new(|| KeyRing::new(MasterKey::from_bytes([7; 32].into()), vec![]));
static TOKEN: LazyLock<JoinTokenId> = LazyLock::new(|| JoinTokenId::derive(&[1; 32]));
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

fuzz_target!(|data: &[u8]| match data {
    [0, at_high, at_low, change, rest @ ..] => {
        a_challenge(rest, usize::from(u16::from_be_bytes([*at_high, *at_low])), *change);
    }
    text => {
        if let Ok(text) = std::str::from_utf8(text) {
            assert!(judge(text, "", &[0; 32], &[0; 32]).is_err());
        }
    }
});

/// Seals a question made of the input, then changes one byte of it.
fn a_challenge(input: &[u8], at: usize, change: u8) {
    let mut bytes = [0; 96];
    bytes.iter_mut().zip(input).for_each(|(slot, byte)| *slot = *byte);
    let (csr_sha256, rest) = bytes.split_first_chunk::<32>().expect("96 bytes");
    let (ek_sha256, secret) = rest.split_first_chunk::<32>().expect("64 bytes");
    let secret: &[u8; 32] = secret.first_chunk().expect("32 bytes");
    let question = Question { subject: Subject::Join(&TOKEN), csr_sha256, ek_sha256 };
    let expires_at = NOW.plus_seconds(LIFETIME_SECONDS);
    let id =
        seal_challenge(&RING, question, secret, expires_at, &Random::seeded(1)).expect("it can be sealed");
    assert!(id.len() <= MAX_ID_CHARS);
    let answer = STANDARD.encode(secret);
    assert_eq!(judge(&id, &answer, csr_sha256, ek_sha256), Ok(0));

    let changed = changed(&id, at, change);
    if changed != id.as_bytes()
        && let Ok(changed) = std::str::from_utf8(&changed)
    {
        let verdict = judge(changed, &answer, csr_sha256, ek_sha256);
        assert!(matches!(verdict, Err(BadProof::Sealed(_))), "{verdict:?}");
    }
    if let Ok(other) = String::from_utf8(self::changed(&answer, at, change))
        && other != answer
    {
        assert_eq!(judge(&id, &other, csr_sha256, ek_sha256), Err(BadProof::Secret));
    }
}

fn changed(text: &str, at: usize, change: u8) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    let at = at % bytes.len();
    bytes[at] = change;
    bytes
}

fn judge(id: &str, secret: &str, csr_sha256: &[u8; 32], ek_sha256: &[u8; 32]) -> Result<usize, BadProof> {
    let eks = [*ek_sha256];
    let expected = Expected { subject: Subject::Join(&TOKEN), csr_sha256, ek_sha256s: &eks };
    judge_proof(&RING, id, &Secret::new(secret.to_owned()), expected, NOW)
}
