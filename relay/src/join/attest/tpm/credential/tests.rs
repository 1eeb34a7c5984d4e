//! Credentials against those of another implementation (Python's `cryptography`, with the TPM's private half).

use super::*;
use crate::join::attest::tpm::testing::{EK_P384, EK_RSA, SoftwareTpm, node_key, off_curve};
use aws_lc_rs::rsa::{OaepPrivateDecryptingKey, PrivateDecryptingKey};
use serde::Deserialize;

/// Made with the stream of `Random::seeded(7)`.
const VECTORS: &str = include_str!("../../../../../testdata/tpm/credentials.json");

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Vector {
    template: String,
    public: String,
    private: String,
    name: String,
    secret: String,
    seed: String,
    blob: String,
    encrypted_secret: String,
}

fn vectors() -> Vec<Vector> {
    serde_json::from_str(VECTORS).unwrap()
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn open_oaep(private: &str, hash: NameHash, encrypted: &[u8], label: Option<&[u8]>) -> Option<Vec<u8>> {
    let key = PrivateDecryptingKey::from_pkcs8(&bytes(private)).unwrap();
    let key = OaepPrivateDecryptingKey::new(key).unwrap();
    let algorithm = match hash {
        NameHash::Sha256 => &OAEP_SHA256_MGF1SHA256,
        NameHash::Sha384 => &OAEP_SHA384_MGF1SHA384,
    };
    let mut seed = vec![0; key.min_output_size()];
    key.decrypt(algorithm, encrypted, &mut seed, label).ok().map(|seed| seed.to_vec())
}

#[test]
fn credentials_are_those_of_another_implementation() {
    assert_eq!(vectors().len(), 4);
    for vector in vectors() {
        let ek = EndorsementPublic::parse(&bytes(&vector.public)).unwrap();
        assert_eq!(ek.template().name, vector.template);
        assert_eq!(node_key().name().as_bytes(), bytes(&vector.name));
        let secret = bytes(&vector.secret).try_into().unwrap();
        let made = make_credential(&ek, node_key().name(), &secret, &Random::seeded(7)).unwrap();
        assert_eq!(made.blob, bytes(&vector.blob), "{}", vector.template);
        match ek.key() {
            EndorsementKey::Ec(_) => assert_eq!(made.encrypted_secret, bytes(&vector.encrypted_secret)),
            // The padding is drawn: the other implementation's opens to the same seed, under the same label only.
            EndorsementKey::Rsa(_) => {
                let hash = ek.template().name_hash;
                for encrypted in [&made.encrypted_secret, &bytes(&vector.encrypted_secret)] {
                    let open = |label| open_oaep(&vector.private, hash, encrypted, label);
                    assert_eq!(open(Some(IDENTITY)), Some(bytes(&vector.seed)));
                    assert_eq!(open(Some(b"IDENTITY")), None);
                    assert_eq!(open(None), None);
                }
            }
        }
    }
}

#[test]
fn sizes_are_those_of_the_template() {
    let secret = [3; SECRET_BYTES];
    let of = |area| {
        let ek = EndorsementPublic::parse(area).unwrap();
        make_credential(&ek, node_key().name(), &secret, &Random::seeded(1)).unwrap()
    };
    let rsa = of(EK_RSA);
    assert_eq!((rsa.blob.len(), rsa.encrypted_secret.len()), (2 + 32 + 2 + 32, 256));
    let p384 = of(EK_P384);
    assert_eq!((p384.blob.len(), p384.encrypted_secret.len()), (2 + 48 + 2 + 32, 2 * (2 + 48)));
}

#[test]
fn only_that_key_beside_that_endorsement_key_opens_a_credential() {
    let (tpm, other) = (SoftwareTpm::new(1), SoftwareTpm::new(2));
    let ek = EndorsementPublic::parse(&tpm.endorsement_public()).unwrap();
    let secret = [5; SECRET_BYTES];
    let node_key = node_key();
    let credential = make_credential(&ek, node_key.name(), &secret, &Random::seeded(3)).unwrap();
    assert_eq!(tpm.activate(&credential, node_key.name()).as_deref(), Some(secret.as_slice()));
    assert_eq!(other.activate(&credential, node_key.name()), None);
    assert_eq!(tpm.activate(&credential, &ek.name()), None);
    for at in 2..credential.blob.len() {
        let mut altered = credential.clone();
        altered.blob[at] ^= 1;
        assert_eq!(tpm.activate(&altered, node_key.name()), None, "{at}");
    }
}

#[test]
fn a_point_off_its_curve_gets_no_credential() {
    for curve in [Curve::P256, Curve::P384] {
        let made = make_credential(&off_curve(curve), node_key().name(), &[0; 32], &Random::seeded(1));
        assert_eq!(made, Err(CredentialError::Key));
    }
}
