//! TPMT_PUBLIC as a machine offers it: exactly one of the templates, or exactly a node key, or refused. Whatever is
//! taken for an endorsement key can be worked with.
#![no_main]

use libfuzzer_sys::fuzz_target;
use relay::{
    join::attest::tpm::{
        BadEndorsementKey,
        credential::{CredentialError, SECRET_BYTES, make_credential},
        judge_node_key, judge_offer,
    },
    random::Random,
};
use shared::{
    time::Timestamp,
    tpm::{EndorsementKey, EndorsementPublic, NODE_KEY_ATTRIBUTES, NodeKeyPublic},
};

fuzz_target!(|data: &[u8]| {
    if let Ok(key) = EndorsementPublic::parse(data) {
        endorsement_key(data, &key);
    }
    if let Ok(key) = NodeKeyPublic::parse(data) {
        node_key(data, &key);
    }
});

fn endorsement_key(data: &[u8], key: &EndorsementPublic) {
    let template = key.template();
    assert_eq!(data[2..4], template.name_hash.id().to_be_bytes());
    assert_eq!(data[4..8], template.attributes.to_be_bytes());
    assert_eq!(data[10..10 + template.auth_policy.len()], *template.auth_policy);
    assert_eq!(key.name().as_bytes().len(), 2 + template.name_hash.digest_bytes());
    if let EndorsementKey::Rsa(modulus) = key.key() {
        assert!(data.ends_with(modulus.as_bytes()));
    }
    // The key is its own name: a byte more or less is not the same area.
    assert!(EndorsementPublic::parse(&data[..data.len() - 1]).is_err());
    assert!(EndorsementPublic::parse(&[data, &[0]].concat()).is_err());

    let made = make_credential(key, &key.name(), &[7; SECRET_BYTES], &Random::seeded(1));
    match judge_offer(data, &[], &[], Timestamp::from_seconds(1_800_000_000)) {
        Ok(offered) => {
            assert_eq!(offered.digest, key.digest());
            assert_eq!(
                made.expect("a key that is taken gets a credential").blob
                    [2 + template.name_hash.digest_bytes()..]
                    .len(),
                2 + SECRET_BYTES
            );
        }
        Err(BadEndorsementKey::NoKey) => assert_eq!(made, Err(CredentialError::Key)),
        Err(error) => assert_eq!(error, BadEndorsementKey::Weak),
    }
}

fn node_key(data: &[u8], key: &NodeKeyPublic) {
    assert_eq!(data[4..8], NODE_KEY_ATTRIBUTES.to_be_bytes());
    assert!(judge_node_key(data, key.key()).is_ok());
    for bit in 0..32 {
        let mut changed = data.to_vec();
        changed[4 + bit / 8] ^= 1 << (bit % 8);
        assert!(NodeKeyPublic::parse(&changed).is_err());
    }
    assert!(EndorsementPublic::parse(data).is_err());
}
