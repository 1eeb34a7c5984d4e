//! Proofs: the right one, and everything that differs from it.

use super::*;
use crate::{
    join::attest::tpm::{
        choice::judge_offer,
        credential::Credential,
        testing::{NOW, SoftwareTpm, master_key, node_key, ring},
    },
    seal::KeyRing,
};

const CSR: [u8; 32] = [0xc5; 32];

fn token() -> JoinTokenId {
    JoinTokenId::derive(&[1; 32])
}

/// A challenge that a machine with this TPM was given, and what its TPM makes of it.
fn challenged(ring: &KeyRing, subject: Subject<'_>) -> (Challenge, Secret, [u8; 32]) {
    let tpm = SoftwareTpm::new(1);
    let offered = judge_offer(&tpm.endorsement_public(), &[], &[], NOW).unwrap();
    let challenge =
        issue(ring, (subject, &CSR), (2, &offered), &node_key(), NOW, &Random::seeded(5)).unwrap();
    let credential = Credential {
        blob: challenge.credential_blob.as_bytes().to_vec(),
        encrypted_secret: challenge.encrypted_secret.as_bytes().to_vec(),
    };
    let secret = tpm.activate(&credential, node_key().name()).unwrap();
    (challenge, Secret::new(STANDARD.encode(secret)), offered.digest)
}

fn judged(
    ring: &KeyRing,
    id: &str,
    secret: &Secret,
    expected: Expected<'_>,
    now: Timestamp,
) -> Result<usize, BadProof> {
    judge_proof(ring, id, secret, expected, now)
}

#[test]
fn the_tpm_that_was_challenged_proves_its_key_and_the_same_proof_does_so_again() {
    let token = token();
    let (challenge, secret, ek) = challenged(&ring(1), Subject::Join(&token));
    assert_eq!((challenge.endorsement_key, challenge.expires_at), (2, NOW.plus_seconds(300)));
    assert!(challenge.challenge_id.len() <= 512 && challenge.challenge_id.is_ascii());
    let eks = [[7; 32], ek];
    let expected = Expected { subject: Subject::Join(&token), csr_sha256: &CSR, ek_sha256s: &eks };
    for _ in 0..3 {
        assert_eq!(judged(&ring(1), &challenge.challenge_id, &secret, expected, NOW), Ok(1));
    }
    // Another relay with the same master key; one whose key has been rotated since; one of another store.
    let rotated = KeyRing::new(master_key(2), vec![master_key(1)]);
    assert_eq!(judged(&rotated, &challenge.challenge_id, &secret, expected, NOW), Ok(1));
    let foreign = judged(&ring(2), &challenge.challenge_id, &secret, expected, NOW);
    assert!(matches!(foreign, Err(BadProof::Sealed(CarriedError::UnknownKey(_)))), "{foreign:?}");
}

#[test]
fn a_proof_is_for_one_token_one_request_one_endorsement_key_and_five_minutes() {
    let token = token();
    let other_token = JoinTokenId::derive(&[2; 32]);
    let node: NodeId = NodeId::derive(&[1; 32]);
    let (challenge, secret, ek) = challenged(&ring(1), Subject::Join(&token));
    let eks = [ek];
    let right = Expected { subject: Subject::Join(&token), csr_sha256: &CSR, ek_sha256s: &eks };
    let verdict = |expected, now| judged(&ring(1), &challenge.challenge_id, &secret, expected, now);
    assert_eq!(verdict(right, NOW), Ok(0));
    let last = NOW.plus_seconds(LIFETIME_SECONDS);
    assert_eq!(verdict(right, Timestamp::from_millis(last.millis() - 1)), Ok(0));
    assert_eq!(verdict(right, last), Err(BadProof::Late));
    for subject in [Subject::Join(&other_token), Subject::Renewal(&node)] {
        assert_eq!(verdict(Expected { subject, ..right }, NOW), Err(BadProof::OtherSubject));
    }
    let csr_sha256 = &[0xc6; 32];
    assert_eq!(verdict(Expected { csr_sha256, ..right }, NOW), Err(BadProof::OtherRequest));
    for eks in [&[][..], &[[7; 32]]] {
        let expected = Expected { ek_sha256s: eks, ..right };
        assert_eq!(verdict(expected, NOW), Err(BadProof::OtherEndorsementKey));
    }
}

#[test]
fn a_renewals_challenge_is_for_that_node() {
    let (node, other) = (NodeId::derive(&[1; 32]), NodeId::derive(&[2; 32]));
    let (challenge, secret, ek) = challenged(&ring(1), Subject::Renewal(&node));
    let eks = [ek];
    let expected = |subject| Expected { subject, csr_sha256: &CSR, ek_sha256s: &eks };
    let verdict = |subject| judged(&ring(1), &challenge.challenge_id, &secret, expected(subject), NOW);
    assert_eq!(verdict(Subject::Renewal(&node)), Ok(0));
    assert_eq!(verdict(Subject::Renewal(&other)), Err(BadProof::OtherSubject));
    assert_eq!(verdict(Subject::Join(&token())), Err(BadProof::OtherSubject));
}

#[test]
fn no_box_with_an_altered_bit_or_character_opens() {
    let token = token();
    let (challenge, secret, ek) = challenged(&ring(1), Subject::Join(&token));
    let eks = [ek];
    let expected = Expected { subject: Subject::Join(&token), csr_sha256: &CSR, ek_sha256s: &eks };
    let ring = ring(1);
    let refused = |id: &str| {
        let verdict = judged(&ring, id, &secret, expected, NOW);
        assert!(matches!(verdict, Err(BadProof::Sealed(_))), "{verdict:?}");
    };
    let id = &challenge.challenge_id;
    let (head, body) = id.rsplit_once('.').unwrap();
    let sealed = STANDARD.decode(body).unwrap();
    for bit in 0..sealed.len() * 8 {
        let mut altered = sealed.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        refused(&format!("{head}.{}", STANDARD.encode(altered)));
    }
    for at in 0..id.len() {
        for other in ["A", "B", "=", ".", "0", "f"].into_iter().filter(|other| id[at..=at] != **other) {
            refused(&format!("{}{other}{}", &id[..at], &id[at + 1..]));
        }
        refused(&id[..at]);
    }
    for more in ["A", "=", "\n", " "] {
        refused(&format!("{id}{more}"));
    }
    let long = judged(&ring, &"A".repeat(MAX_ID_CHARS + 1), &secret, expected, NOW);
    assert_eq!(long, Err(BadProof::Content));
}

#[test]
fn only_the_whole_secret_proves_anything() {
    let token = token();
    let (challenge, secret, ek) = challenged(&ring(1), Subject::Join(&token));
    let eks = [ek];
    let expected = Expected { subject: Subject::Join(&token), csr_sha256: &CSR, ek_sha256s: &eks };
    let ring = ring(1);
    let refused = |text: String| {
        let verdict = judged(&ring, &challenge.challenge_id, &Secret::new(text), expected, NOW);
        assert_eq!(verdict, Err(BadProof::Secret));
    };
    let bytes = STANDARD.decode(secret.expose()).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut altered = bytes.clone();
        altered[bit / 8] ^= 1 << (bit % 8);
        refused(STANDARD.encode(altered));
    }
    for length in 0..bytes.len() {
        refused(STANDARD.encode(&bytes[..length]));
    }
    refused(STANDARD.encode([bytes.as_slice(), &[0]].concat()));
    refused(format!("{} ", secret.expose()));
    refused("*".repeat(44));
}

#[test]
fn what_was_sealed_for_something_else_is_no_challenge() {
    let (ring, token) = (ring(1), token());
    let expected = Expected { subject: Subject::Join(&token), csr_sha256: &CSR, ek_sha256s: &[] };
    let secret = Secret::new(STANDARD.encode([0; 32]));
    let elsewhere = ring.seal_carried("something else", &[1; 200], &Random::seeded(1)).unwrap();
    let verdict = judged(&ring, &elsewhere, &secret, expected, NOW);
    assert_eq!(verdict, Err(BadProof::Sealed(CarriedError::Altered)));
    // Another release's content: another version, too short, an id that is no text.
    let mut unreadable = vec![1; 106];
    unreadable.push(0xff);
    for content in [vec![2; 200], vec![], vec![VERSION; 105], unreadable] {
        let sealed = ring.seal_carried(PURPOSE, &content, &Random::seeded(1)).unwrap();
        assert_eq!(judged(&ring, &sealed, &secret, expected, NOW), Err(BadProof::Content));
    }
}

#[test]
fn a_machine_is_told_the_same_whatever_is_wrong() {
    let told = BadProof::Late.refusal();
    assert_eq!(told.reason, Some(Reason::BadProof));
    for other in [BadProof::Secret, BadProof::OtherSubject, BadProof::Sealed(CarriedError::Altered)] {
        assert_eq!(other.refusal(), told);
        assert_ne!(other.to_string(), BadProof::Late.to_string());
    }
}
