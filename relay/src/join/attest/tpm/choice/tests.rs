//! What makes a key bad, and which of several is taken.

use super::*;
use crate::join::attest::tpm::testing::*;

const ROCA: &[u8] = include_bytes!("../../../../../testdata/tpm/roca-2048.modulus");

fn offer(area: &[u8], certificates: &[&[u8]]) -> Result<Offered, BadEndorsementKey> {
    judge_offer(area, certificates, &[Authority::from_der(ROOT).unwrap()], NOW)
}

fn chosen(
    offers: &[Result<Offered, BadEndorsementKey>],
    known: Known<'_>,
) -> Result<usize, BadEndorsementKey> {
    choose(offers, known).map(|(place, _)| place)
}

#[test]
fn a_weak_key_a_point_off_its_curve_and_no_template_are_refused_whoever_vouches() {
    assert_eq!(offer(&rsa_area(ROCA), &[]).map(|_| ()), Err(BadEndorsementKey::Weak));
    for area in [EK_P256, EK_P384] {
        let mut area = area.to_vec();
        *area.last_mut().unwrap() ^= 1;
        assert_eq!(offer(&area, &[]).map(|_| ()), Err(BadEndorsementKey::NoKey));
    }
    assert!(matches!(offer(NODE, &[]), Err(BadEndorsementKey::Template(_))));
    assert!(matches!(offer(&[], &[]), Err(BadEndorsementKey::Template(_))));
}

#[test]
fn each_thing_that_is_known_of_a_key_has_its_rank() {
    let offers = [
        offer(EK_P256, &[]),
        offer(NODE, &[]),
        offer(EK_P384, &[EK_P384_CERTIFICATE]),
        offer(EK_RSA, &[EK_RSA_CERTIFICATE, INTERMEDIATE]),
    ];
    let digest = |place: usize| offers[place].as_ref().unwrap().digest;
    // The path of the second is not at hand.
    assert!(
        offers[2].as_ref().unwrap().authority().is_none()
            && offers[3].as_ref().unwrap().authority().is_some()
    );
    let (one, two, three) = ([digest(0)], [digest(2)], [digest(3)]);
    let none = Known::default();
    assert_eq!(chosen(&offers[..3], none), Ok(0));
    for (known, expected) in [
        (none, 3),
        (Known { waiting: &one, ..none }, 0),
        // What it waits with goes before who vouches, unless that is what admits.
        (Known { waiting: &one, asks_authorities: true, ..none }, 3),
        (Known { waiting: &two, listed: &one, ..none }, 0),
        (Known { listed: &two, ..none }, 2),
        (Known { listed: &two, asks_authorities: true, ..none }, 2),
        (Known { listed: &[digest(3), digest(0)], ..none }, 0),
        (Known { listed: &two, bound: &three, ..none }, 3),
        (Known { listed: &two, pinned: Some(digest(0)), bound: &three, ..none }, 0),
        // A pin that nothing matches changes nothing.
        (Known { listed: &two, pinned: Some([9; 32]), ..none }, 2),
        (Known { banned: &three, pinned: Some(digest(0)), bound: &two, listed: &two, ..none }, 3),
        (Known { banned: &two, asks_authorities: true, ..none }, 2),
    ] {
        assert_eq!(chosen(&offers, known), Ok(expected), "{known:?}");
    }
    // Where nobody vouches, it is what it waits with all the same.
    let waiting = Known { waiting: &two, asks_authorities: true, ..none };
    assert_eq!(chosen(&offers[..3], waiting), Ok(2));
}

#[test]
fn where_none_can_be_taken_the_first_one_says_why() {
    let offers = [offer(&rsa_area(ROCA), &[]), offer(NODE, &[])];
    assert_eq!(chosen(&offers, Known::default()), Err(BadEndorsementKey::Weak));
    assert_eq!(chosen(&[], Known::default()), Err(BadEndorsementKey::None));
    let refusal = BadEndorsementKey::Weak.refusal();
    assert_eq!(refusal.reason, Some(Reason::BadEndorsementKey));
    assert!(refusal.detail.contains("ROCA"));
    // One that can be taken is enough.
    let offers = [offer(&rsa_area(ROCA), &[]), offer(EK_P256, &[])];
    assert_eq!(chosen(&offers, Known::default()), Ok(1));
}

#[test]
fn what_a_certificate_claims_is_kept_apart_from_who_vouches() {
    let vouched = offer(EK_RSA, &[EK_RSA_CERTIFICATE, INTERMEDIATE]).unwrap();
    let claimed = offer(EK_RSA, &[EK_RSA_CERTIFICATE]).unwrap();
    assert_eq!(vouched.claims(), claimed.claims());
    assert!(vouched.authority().is_some() && claimed.authority().is_none());
    assert_eq!(vouched.ek_sha256(), claimed.ek_sha256());
    assert_eq!(offer(EK_RSA, &[]).unwrap().claims(), None);
}
