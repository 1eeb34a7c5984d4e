//! Public areas from real software TPMs, and every way in which one can be something else.

use super::{fields::alg, *};
use crate::{
    csr::{Curve, PublicKey},
    hex,
};
use sha2::{Digest as _, Sha256, Sha384};

const EK_RSA: &[u8] = include_bytes!("../../testdata/tpm/ek-rsa.pub");
const EK_RSA_3072: &[u8] = include_bytes!("../../testdata/tpm/ek-rsa3072.pub");
const EK_P256: &[u8] = include_bytes!("../../testdata/tpm/ek-p256.pub");
const EK_P384: &[u8] = include_bytes!("../../testdata/tpm/ek-p384.pub");
const NODE: &[u8] = include_bytes!("../../testdata/tpm/node.pub");
/// A restricted signing key: what other programs use for attestation.
const AK: &[u8] = include_bytes!("../../testdata/tpm/ak.pub");

fn golden() -> [(&'static [u8], &'static str); 4] {
    [(EK_RSA, "L-1"), (EK_P256, "L-2"), (EK_P384, "H-3"), (EK_RSA_3072, "H-6")]
}

/// A TPMT_PUBLIC of this template with some key.
fn area_of(template: &Template) -> Vec<u8> {
    let kind = match template.kind {
        EndorsementKind::Rsa(_) => alg::RSA,
        EndorsementKind::Ec(_) => alg::ECC,
    };
    let mut area = [kind, template.name_hash.id()].map(u16::to_be_bytes).concat();
    area.extend(template.attributes.to_be_bytes());
    area.extend(sized(template.auth_policy));
    area.extend([alg::AES, template.aes_bits, alg::CFB, alg::NULL].map(u16::to_be_bytes).concat());
    match template.kind {
        EndorsementKind::Rsa(bits) => {
            area.extend(bits.to_be_bytes());
            area.extend([0; 4]);
            area.extend(sized(&vec![0x81; usize::from(bits) / 8]));
        }
        EndorsementKind::Ec(curve) => {
            let (id, bytes) = match curve {
                Curve::P256 => (3u16, 32),
                Curve::P384 => (4, 48),
            };
            area.extend([id, alg::NULL].map(u16::to_be_bytes).concat());
            area.extend(sized(&vec![7; bytes]));
            area.extend(sized(&vec![9; bytes]));
        }
    }
    area
}

fn sized(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// The area with `bytes` at `at` in place of what is there.
fn with(area: &[u8], at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut changed = area.to_vec();
    changed[at..at + bytes.len()].copy_from_slice(bytes);
    changed
}

#[test]
fn keys_of_a_software_tpm_are_of_their_templates() {
    for (area, name) in golden() {
        let key = EndorsementPublic::parse(area).unwrap();
        assert_eq!(key.template().name, name);
        // Where the key stands in the area and in its DER form.
        match key.key() {
            EndorsementKey::Rsa(modulus) => assert!(area.ends_with(modulus.as_bytes())),
            EndorsementKey::Ec(point) => {
                assert!(area.ends_with(&point.point()[1 + point.point().len() / 2..]));
            }
        }
    }
}

#[test]
fn every_template_of_the_table_is_recognised_as_itself() {
    for template in &TEMPLATES {
        assert_eq!(EndorsementPublic::parse(&area_of(template)).unwrap().template(), template);
    }
}

/// The profile defines its policies by what they demand; the digests follow (TPM 2.0 part 3, 23).
#[test]
fn the_policies_are_what_the_profile_demands() {
    fn policies(hash: impl Fn(&[u8]) -> Vec<u8>, id: u16, nv_index: u32) -> (Vec<u8>, Vec<u8>) {
        let zeros = hash(&[]).iter().map(|_| 0).collect::<Vec<u8>>();
        let (secret, or, authorize_nv) = (0x151u32, 0x171u32, 0x192u32);
        let endorsement = 0x4000_000bu32;
        let a = hash(&hash(
            &[zeros.clone(), secret.to_be_bytes().into(), endorsement.to_be_bytes().into()].concat(),
        ));
        // The NV index holds a policy, may be written under PolicyA and is as long as a hash with its id.
        let index =
            [nv_index.to_be_bytes().to_vec(), id.to_be_bytes().into(), 0x220f_1008u32.to_be_bytes().into()];
        let size = u16::try_from(a.len() + 2).unwrap().to_be_bytes();
        let index = hash(&[index.concat(), sized(&a), size.into()].concat());
        let name = [id.to_be_bytes().as_slice(), &index].concat();
        let c = hash(&[zeros.clone(), authorize_nv.to_be_bytes().into(), name].concat());
        let b = hash(&[zeros, or.to_be_bytes().into(), a.clone(), c].concat());
        (a, b)
    }
    let (a_256, b_256) = policies(|bytes| Sha256::digest(bytes).to_vec(), alg::SHA256, 0x01c0_7f01);
    let (_, b_384) = policies(|bytes| Sha384::digest(bytes).to_vec(), alg::SHA384, 0x01c0_7f02);
    for template in &TEMPLATES {
        let expected = match (template.name.starts_with('L'), template.name_hash) {
            (true, _) => &a_256,
            (false, NameHash::Sha256) => &b_256,
            (false, NameHash::Sha384) => &b_384,
        };
        assert_eq!(template.auth_policy, expected, "{}", template.name);
    }
}

#[test]
fn a_name_is_the_digest_of_the_whole_area() {
    let key = EndorsementPublic::parse(EK_P256).unwrap();
    assert_eq!(key.name().as_bytes(), [&[0, 0x0b], Sha256::digest(EK_P256).as_slice()].concat());
    let key = EndorsementPublic::parse(EK_P384).unwrap();
    assert_eq!(key.name().as_bytes(), [&[0, 0x0c], Sha384::digest(EK_P384).as_slice()].concat());
    let key = NodeKeyPublic::parse(NODE).unwrap();
    assert_eq!(key.name().as_bytes(), [&[0, 0x0b], Sha256::digest(NODE).as_slice()].concat());
}

#[test]
fn the_der_form_of_a_key_is_the_one_that_openssl_writes() {
    // `openssl x509 -pubkey` of the certificates that came with these keys, then `openssl dgst -sha256`.
    for (area, digest) in [
        (EK_RSA, "ddf5d240dc3273192c2aca9be96cb75c71ae9a39f3813353c91518ab12b959dd"),
        (EK_P384, "aaa73ed5493a72971dfbb94de10c7f8312dfd652ebdd04ad12179ff8edbf3a9e"),
    ] {
        assert_eq!(hex::encode(&EndorsementPublic::parse(area).unwrap().digest()), digest);
    }
    let key = EndorsementPublic::parse(EK_P256).unwrap();
    assert!(PublicKey::from_spki_der(&key.spki_der()).is_some());
}

/// Any other value in any field before the key is no template, or makes the area another one's.
#[test]
fn every_field_varied_is_refused() {
    for (area, _) in golden() {
        let key_at = match EndorsementPublic::parse(area).unwrap().key() {
            EndorsementKey::Rsa(modulus) => area.len() - modulus.as_bytes().len(),
            EndorsementKey::Ec(point) => area.len() - point.point().len() - 1,
        };
        for at in 0..key_at {
            for value in 0..=255 {
                let changed = with(area, at, &[value]);
                assert_eq!(EndorsementPublic::parse(&changed).is_ok(), changed == area, "{at}: {value:#x}");
            }
            for value in [0u16, 1, 127, 128, 192, 256, 560, 1024, 2048, 0x7fff, 0x8000, 65535] {
                if at + 2 > key_at {
                    continue;
                }
                let changed = with(area, at, &value.to_be_bytes());
                assert_eq!(EndorsementPublic::parse(&changed).is_ok(), changed == area, "{at}: {value}");
            }
        }
    }
}

#[test]
fn aes_bits_and_exponents_of_ones_own_are_refused() {
    let aes_at = 2 + 2 + 4 + 2 + 32 + 2;
    assert_eq!(EK_RSA[aes_at..aes_at + 2], 128u16.to_be_bytes());
    for bits in [0u16, 1, 64, 192, 256, 560, 65535] {
        let refusal = EndorsementPublic::parse(&with(EK_RSA, aes_at, &bits.to_be_bytes())).unwrap_err();
        assert_eq!(refusal, InvalidEndorsementKey::NoTemplate("symmetric cipher"), "{bits}");
    }
    let exponent_at = aes_at + 2 + 2 + 2 + 2;
    for exponent in [1u32, 3, 17, 65536, 65537, u32::MAX] {
        let refusal =
            EndorsementPublic::parse(&with(EK_RSA, exponent_at, &exponent.to_be_bytes())).unwrap_err();
        assert_eq!(refusal, InvalidEndorsementKey::NoTemplate("exponent or kdf"), "{exponent}");
    }
}

#[test]
fn a_cut_or_extended_area_is_refused() {
    for area in golden().map(|(area, _)| area).into_iter().chain([NODE]) {
        for length in 0..area.len() {
            assert!(EndorsementPublic::parse(&area[..length]).is_err(), "{length}");
            assert!(NodeKeyPublic::parse(&area[..length]).is_err(), "{length}");
        }
        for more in [1, 2, 4096] {
            let longer = [area, &vec![0; more]].concat();
            assert!(EndorsementPublic::parse(&longer).is_err(), "{more}");
            assert!(NodeKeyPublic::parse(&longer).is_err(), "{more}");
        }
    }
}

#[test]
fn a_modulus_has_its_first_and_last_bit() {
    let (first, last) = (EK_RSA.len() - 256, EK_RSA.len() - 1);
    for changed in [with(EK_RSA, first, &[EK_RSA[first] & 0x7f]), with(EK_RSA, last, &[EK_RSA[last] & 0xfe])]
    {
        assert_eq!(EndorsementPublic::parse(&changed), Err(InvalidEndorsementKey::Key("modulus")));
    }
}

#[test]
fn a_short_coordinate_is_padded_and_a_long_or_odd_one_is_refused() {
    let head = &EK_P256[..EK_P256.len() - 68];
    let area = |x: &[u8], y: &[u8]| [head, &sized(x), &sized(y)].concat();
    let key = EndorsementPublic::parse(&area(&[5; 31], &[6; 32])).unwrap();
    let EndorsementKey::Ec(point) = key.key() else { panic!("an EC key") };
    assert_eq!(point.point(), [&[4, 0][..], &[5; 31], &[6; 32]].concat());
    // The same key at full length is the same endorsement key.
    let full = EndorsementPublic::parse(&area(&[&[0][..], &[5; 31]].concat(), &[6; 32])).unwrap();
    assert_eq!(full.digest(), key.digest());
    for x in [&[][..], &[0; 31], &[5; 33], &[5; 64]] {
        assert_eq!(EndorsementPublic::parse(&area(x, &[6; 32])), Err(InvalidEndorsementKey::Key("point")));
        assert_eq!(EndorsementPublic::parse(&area(&[6; 32], x)), Err(InvalidEndorsementKey::Key("point")));
    }
}

#[test]
fn a_node_key_is_one_and_an_attestation_or_endorsement_key_is_none() {
    let key = NodeKeyPublic::parse(NODE).unwrap();
    assert_eq!(key.key().curve(), Curve::P256);
    assert!(NODE.ends_with(&key.key().point()[33..]));
    assert!(matches!(NodeKeyPublic::parse(AK), Err(InvalidNodeKey::Attributes { .. })));
    assert_eq!(NodeKeyPublic::parse(EK_RSA), Err(InvalidNodeKey::Curve));
    assert_eq!(NodeKeyPublic::parse(EK_P384), Err(InvalidNodeKey::Curve));
    assert_eq!(EndorsementPublic::parse(NODE), Err(InvalidEndorsementKey::NoTemplate("objectAttributes")));
}

#[test]
fn each_attribute_that_is_set_or_missing_is_named() {
    for bit in 0..32u32 {
        let attributes = NODE_KEY_ATTRIBUTES ^ (1 << bit);
        let refusal = NodeKeyPublic::parse(&with(NODE, 4, &attributes.to_be_bytes())).unwrap_err();
        let missing = NODE_KEY_ATTRIBUTES & (1 << bit);
        assert_eq!(refusal, InvalidNodeKey::Attributes { missing, extra: (1 << bit) & !missing });
    }
    let said = |attributes: u32| {
        NodeKeyPublic::parse(&with(NODE, 4, &attributes.to_be_bytes())).unwrap_err().to_string()
    };
    assert!(said(NODE_KEY_ATTRIBUTES & !2).ends_with("nothing else; it is not fixedTPM"));
    let all = said((NODE_KEY_ATTRIBUTES & !0x30) | (1 << 16) | (1 << 31));
    assert!(all.ends_with("; it is not fixedParent, sensitiveDataOrigin; it is restricted, bit 31"), "{all}");
}

#[test]
fn every_other_rule_on_a_node_key_is_named() {
    let node = |name_alg: u16, policy: &[u8], parameters: &[u16], x: &[u8]| {
        let mut area = [alg::ECC, name_alg].map(u16::to_be_bytes).concat();
        area.extend(NODE_KEY_ATTRIBUTES.to_be_bytes());
        area.extend(sized(policy));
        area.extend(parameters.iter().flat_map(|value| value.to_be_bytes()));
        area.extend([sized(x), sized(&[2; 32])].concat());
        NodeKeyPublic::parse(&area).map(|_| ())
    };
    let good = [alg::NULL, alg::ECDSA, alg::SHA256, 3, alg::NULL];
    let x = [1; 32];
    assert_eq!(node(alg::SHA256, &[], &good, &x), Ok(()));
    assert_eq!(node(alg::SHA384, &[], &good, &x), Err(InvalidNodeKey::NameAlg));
    assert_eq!(node(4, &[], &good, &x), Err(InvalidNodeKey::NameAlg));
    assert_eq!(node(alg::SHA256, &[0; 32], &good, &x), Err(InvalidNodeKey::AuthPolicy));
    assert_eq!(node(alg::SHA256, &[], &good, &[1; 33]), Err(InvalidNodeKey::Point));
    let aes = [alg::AES, 128, alg::CFB, alg::ECDSA, alg::SHA256, 3, alg::NULL];
    assert_eq!(node(alg::SHA256, &[], &aes, &x), Err(InvalidNodeKey::Symmetric));
    let p384 = [alg::NULL, alg::ECDSA, alg::SHA256, 4, alg::NULL];
    assert_eq!(node(alg::SHA256, &[], &p384, &x), Err(InvalidNodeKey::Curve));
    let kdf = [alg::NULL, alg::ECDSA, alg::SHA256, 3, 0x22, alg::SHA256];
    assert_eq!(node(alg::SHA256, &[], &kdf, &x), Err(InvalidNodeKey::Kdf));
    for scheme in [&[alg::NULL][..], &[alg::ECDSA, alg::SHA384], &[alg::ECDSA, 4], &[alg::ECDH, alg::SHA256]]
    {
        let parameters = [&[alg::NULL], scheme, &[3, alg::NULL]].concat();
        assert_eq!(node(alg::SHA256, &[], &parameters, &x), Err(InvalidNodeKey::Scheme));
    }
    let rare = InvalidPublic::Unknown { field: "scheme", value: 0x1a };
    let parameters = [alg::NULL, 0x1a, alg::SHA256, 3, alg::NULL];
    assert_eq!(node(alg::SHA256, &[], &parameters, &x), Err(InvalidNodeKey::Form(rare)));
}

/// Noise never panics and is never a key.
#[test]
fn noise_is_refused() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 32).unwrap()
    };
    let areas = [EK_RSA, EK_P256, EK_P384, NODE, AK];
    for round in 0..50_000 {
        let mut area = areas[round % areas.len()].to_vec();
        for _ in 0..=next() % 4 {
            let at = next() % area.len().min(80);
            area[at] = u8::try_from(next() % 256).unwrap();
        }
        area.truncate(area.len() - next() % 3);
        if let Ok(key) = EndorsementPublic::parse(&area) {
            assert_eq!(area.len(), areas[round % areas.len()].len());
            assert_eq!(key.name().as_bytes().len(), 2 + key.template().name_hash.digest_bytes());
        }
        let _ = NodeKeyPublic::parse(&area);
    }
}
