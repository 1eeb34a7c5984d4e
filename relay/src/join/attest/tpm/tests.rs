//! The node key that a machine offers with its request.

use super::{testing::*, *};
use shared::csr::Curve;

#[test]
fn a_node_key_is_the_one_of_the_request() {
    let node_key = node_key();
    assert_eq!(judge_node_key(NODE, node_key.key()).as_ref(), Ok(&node_key));
    let mut point = node_key.key().point().to_vec();
    point[5] ^= 1;
    let other = PublicKey::from_point(Curve::P256, &point).unwrap();
    assert_eq!(judge_node_key(NODE, &other), Err(KeyNotTpm::OtherKey));
    assert_eq!(judge_node_key(EK_RSA, node_key.key()), Err(KeyNotTpm::Rule(InvalidNodeKey::Curve)));
}

#[test]
fn a_refusal_says_which_rule_is_broken() {
    let refusal = judge_node_key(AK, node_key().key()).unwrap_err().refusal();
    assert_eq!(refusal.reason, Some(Reason::KeyNotTpm));
    assert!(refusal.detail.contains("it is restricted"), "{}", refusal.detail);
}
