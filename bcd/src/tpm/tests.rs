//! The TPM side against swtpm: keys, signatures, challenges, and everything that can be wrong with a TPM.

use super::*;
use crate::{
    config::TpmMode,
    key::{self, NodeKey as _},
    state::{KEY, StateDir, TPM_KEY},
    testing::{
        Made, Swtpm,
        tpm::{answering, leak, lock_out, make_credential, set_password, write_nv},
    },
};
use shared::{
    api::node::Challenge,
    binary::Binary,
    csr::{Curve, PublicKey},
    time::Timestamp,
};
use std::{os::unix::fs::PermissionsExt as _, path::Path, time::Instant};
use tss_esapi::interface_types::resource_handles::Hierarchy;

fn tpm(swtpm: &Swtpm) -> Tpm {
    Tpm::new(Tcti::parse(&swtpm.tcti()).unwrap())
}

fn assert_signs(key: &TpmKey) {
    let signature = key.sign(b"message").unwrap();
    assert!(verifies(key.public_key(), &signature));
}

fn verifies(key: &PublicKey, signature: &[u8]) -> bool {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
    assert_eq!(key.curve(), Curve::P256);
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key.point()).verify(b"message", signature).is_ok()
}

fn names(found: &Found) -> Vec<&'static str> {
    found.endorsement_keys.iter().map(|key| key.public.template().name).collect()
}

/// A challenge as a relay makes it, for the endorsement key at `place`.
fn challenge(swtpm: &Swtpm, key: &TpmKey, found: &Found, place: usize, secret: &[u8]) -> Challenge {
    let offer = key.offer(found).unwrap();
    let ek = offer.endorsement_keys[place].public.as_bytes();
    let (blob, encrypted) = make_credential(swtpm, ek, offer.key_public.as_bytes(), secret);
    Challenge {
        challenge_id: "box".into(),
        endorsement_key: u32::try_from(place).unwrap(),
        credential_blob: Binary::new(blob).unwrap(),
        encrypted_secret: Binary::new(encrypted).unwrap(),
        expires_at: Timestamp::from_seconds(0),
    }
}

fn proven(key: &TpmKey, found: &Found, challenge: &Challenge) -> Result<String, TpmError> {
    let proof = key.prove(found, challenge)?;
    assert_eq!(proof.challenge_id, challenge.challenge_id);
    Ok(proof.secret.into_secret().expose().to_owned())
}

fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let started = Instant::now();
    let result = work();
    println!("{what}: {:.1} ms", started.elapsed().as_secs_f64() * 1000.0);
    result
}

#[test]
fn a_key_signs_answers_for_every_endorsement_key_and_survives_a_power_cycle() {
    let mut swtpm = Swtpm::start(Made::WithCertificates);
    let key = timed("create", || TpmKey::create(tpm(&swtpm))).unwrap();
    let found = timed("look", || tpm(&swtpm).look()).unwrap();
    assert_eq!(names(&found), ["L-1", "L-2", "H-3"]);
    assert_eq!(found.manufacturer, "IBM");
    let indices: Vec<_> =
        found.endorsement_keys.iter().map(|key| key.certificate.as_ref().map(|c| c.0)).collect();
    assert_eq!(indices, [Some(0x01c0_0002), None, Some(0x01c0_0016)]);
    timed("sign", || assert_signs(&key));
    for place in 0..found.endorsement_keys.len() {
        let challenge = challenge(&swtpm, &key, &found, place, &[0x5a; 32]);
        let secret = timed("activate", || proven(&key, &found, &challenge)).unwrap();
        assert_eq!(secret, "WlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlpaWlo=", "{place}");
    }
    let file = key.to_file();
    swtpm.restart();
    let again = TpmKey::from_file(tpm(&swtpm), file.as_bytes()).unwrap();
    assert_eq!(again.public_key(), key.public_key());
    assert_signs(&again);
    assert_eq!(tpm(&swtpm).look().unwrap().report(), found.report());
    // What was found before the power cycle is still good.
    for place in 0..found.endorsement_keys.len() {
        let challenge = challenge(&swtpm, &again, &found, place, &[1; 32]);
        proven(&again, &found, &challenge).unwrap();
    }
}

#[test]
fn a_challenge_for_another_key_place_or_tpm_is_not_answered() {
    let (swtpm, other) = (Swtpm::start(Made::Bare), Swtpm::start(Made::Bare));
    let found = tpm(&swtpm).look().unwrap();
    let (key, second) = (TpmKey::create(tpm(&swtpm)).unwrap(), TpmKey::create(tpm(&swtpm)).unwrap());
    let good = challenge(&swtpm, &key, &found, 1, &[7; 32]);
    assert_eq!(proven(&second, &found, &good), Err(TpmError::NotOurs));
    let moved = Challenge { endorsement_key: 0, ..good.clone() };
    assert_eq!(proven(&key, &found, &moved), Err(TpmError::NotOurs));
    let nowhere = Challenge { endorsement_key: 3, ..good.clone() };
    assert_eq!(proven(&key, &found, &nowhere), Err(TpmError::NotOffered(3)));
    let foreign = tpm(&other).look().unwrap();
    let theirs = challenge(&swtpm, &key, &foreign, 1, &[7; 32]);
    assert_eq!(proven(&key, &found, &theirs), Err(TpmError::NotOurs));
    for length in [0, 1, 600] {
        let empty = Challenge { credential_blob: Binary::new(vec![0; length]).unwrap(), ..good.clone() };
        assert_eq!(proven(&key, &found, &empty), Err(TpmError::NotOurs), "{length}");
    }
    let mut altered = good.credential_blob.as_bytes().to_vec();
    *altered.last_mut().unwrap() ^= 1;
    let altered = Challenge { credential_blob: Binary::new(altered).unwrap(), ..good.clone() };
    assert_eq!(proven(&key, &found, &altered), Err(TpmError::NotOurs));
    // None of that has left anything behind.
    proven(&key, &found, &good).unwrap();
    // The key's blobs are worth nothing elsewhere.
    let stolen = TpmKey::from_file(tpm(&other), key.to_file().as_bytes()).unwrap();
    assert!(matches!(stolen.sign(b"x"), Err(key::KeyError::Tpm(TpmError::KeyLost))));
}

#[test]
fn a_tpm_without_certificates_offers_its_keys_all_the_same() {
    let swtpm = Swtpm::start(Made::Bare);
    let found = tpm(&swtpm).look().unwrap();
    assert_eq!(names(&found), ["L-1", "L-2", "H-3"]);
    assert!(found.endorsement_keys.iter().all(|key| key.certificate.is_none()));
    let report = serde_json::to_value(found.report()).unwrap();
    let key = &report["endorsementKeys"][0];
    assert_eq!((&key["algorithm"], key.get("nvIndex")), (&"RSA-2048".into(), None));
    assert_eq!(key["ekSha256"].as_str().unwrap().len(), 64);
}

#[test]
fn the_key_is_kept_in_the_folder_and_settings_do_not_move_it() {
    let mut swtpm = Swtpm::start(Made::Bare);
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    let tcti = Tcti::parse(&swtpm.tcti()).unwrap();
    dir.writes_left.set(0);
    assert!(matches!(key::load_or_make(&dir, TpmMode::Auto, &tcti), Err(key::KeyError::State(_))));
    dir.writes_left.set(usize::MAX);
    let made = key::load_or_make(&dir, TpmMode::Auto, &tcti).unwrap();
    let path = folder.path().join(TPM_KEY);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(made.in_tpm().is_some() && !folder.path().join(KEY).exists());
    swtpm.stop();
    // The TPM is gone: the key is the same, it only does not sign, and no other one is made.
    for mode in [TpmMode::Auto, TpmMode::Required] {
        let key = key::load_or_make(&dir, mode, &tcti).unwrap();
        assert_eq!(key.public_key(), made.public_key());
        assert!(matches!(key.sign(b"x"), Err(key::KeyError::Tpm(TpmError::NoAnswer(_)))));
    }
    assert!(matches!(key::load_or_make(&dir, TpmMode::Off, &tcti), Err(key::KeyError::InTpm(_))));
    assert!(!folder.path().join(KEY).exists());
}

#[test]
fn where_no_key_is_yet_only_a_missing_tpm_means_a_file() {
    let mut swtpm = Swtpm::start(Made::Tpm12);
    let tpm12 = Tcti::parse(&swtpm.tcti()).unwrap();
    let missing = Tcti::parse("device:/nonexistent/tpmrm0").unwrap();
    for (tcti, error) in
        [(&tpm12, TpmError::NotTpm2), (&missing, TpmError::Missing("/nonexistent/tpmrm0".into()))]
    {
        assert_eq!(Tpm::new(tcti.clone()).look().unwrap_err(), error);
        let folder = tempfile::tempdir().unwrap();
        let dir = StateDir::open(folder.path()).unwrap();
        assert!(key::load_or_make(&dir, TpmMode::Required, tcti).is_err());
        assert!(key::load_or_make(&dir, TpmMode::Auto, tcti).unwrap().in_tpm().is_none());
    }
    swtpm.stop();
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    let dead = key::load_or_make(&dir, TpmMode::Auto, &tpm12);
    assert!(matches!(dead, Err(key::KeyError::Tpm(TpmError::NoAnswer(_)))));
    assert!(!folder.path().join(KEY).exists());
}

#[test]
fn a_hierarchy_with_a_password_is_named() {
    let swtpm = Swtpm::start(Made::Bare);
    let key = TpmKey::create(tpm(&swtpm)).unwrap();
    set_password(&swtpm, Hierarchy::Endorsement);
    assert_eq!(tpm(&swtpm).look().unwrap_err(), TpmError::Password("endorsement"));
    assert_signs(&key);
    set_password(&swtpm, Hierarchy::Owner);
    assert_eq!(TpmKey::create(tpm(&swtpm)).unwrap_err(), TpmError::Password("owner"));
    assert!(matches!(key.sign(b"x"), Err(key::KeyError::Tpm(TpmError::Password("owner")))));
}

#[test]
fn what_a_killed_client_left_in_the_tpm_is_no_hindrance() {
    let swtpm = Swtpm::start(Made::Bare);
    let key = TpmKey::create(tpm(&swtpm)).unwrap();
    let found = tpm(&swtpm).look().unwrap();
    let challenge = challenge(&swtpm, &key, &found, 2, &[3; 32]);
    for times in [1, 2, 3, 5] {
        leak(&swtpm, times);
        assert_signs(&key);
        leak(&swtpm, times);
        proven(&key, &found, &challenge).unwrap();
        leak(&swtpm, times);
        assert_eq!(tpm(&swtpm).look().unwrap().report(), found.report());
    }
}

#[test]
fn nothing_is_left_in_the_tpm_whatever_failed() {
    let swtpm = Swtpm::start(Made::Bare);
    let key = TpmKey::create(tpm(&swtpm)).unwrap();
    let found = tpm(&swtpm).look().unwrap();
    let mut bad = challenge(&swtpm, &key, &found, 2, &[3; 32]);
    bad.credential_blob = Binary::new(vec![0; 60]).unwrap();
    for _ in 0..5 {
        assert!(proven(&key, &found, &bad).is_err());
        assert_signs(&key);
    }
    let mut chip = Chip::open(&Tcti::parse(&swtpm.tcti()).unwrap()).unwrap();
    assert_eq!(chip.handles(0x8000_0000, 10).unwrap(), []);
    assert_eq!(chip.handles(0x0200_0000, 10).unwrap(), []);
}

#[test]
fn a_busy_tpm_is_asked_again_for_a_while() {
    let swtpm = Swtpm::start(Made::Bare);
    let tries = Arc::new(std::sync::atomic::AtomicU32::new(0));
    let busy_for = |times: u32| {
        let tries = Arc::clone(&tries);
        tries.store(0, Ordering::Relaxed);
        tpm(&swtpm).run(Duration::from_secs(30), move |_| {
            if tries.fetch_add(1, Ordering::Relaxed) < times { Err(TpmError::Busy) } else { Ok(()) }
        })
    };
    assert_eq!(busy_for(2), Ok(()));
    assert_eq!(busy_for(u32::MAX), Err(TpmError::Busy));
    assert_eq!(tries.load(Ordering::Relaxed), 7);
}

/// By the response codes as a TPM sends them (TPM 2.0 part 2, 6.6.3).
#[test]
fn what_a_tpm_answers_is_told_apart() {
    let said = |code: u32| Chip::open(&Tcti::parse(&answering(code)).unwrap()).map(|_| ()).unwrap_err();
    // TPM_RC_YIELDED, _CANCELED, _TESTING, _NV_RATE, _RETRY.
    for code in [0x908, 0x909, 0x90a, 0x920, 0x922] {
        assert_eq!(said(code), TpmError::Busy, "{code:#x}");
    }
    // TPM_RC_CONTEXT_GAP, _OBJECT_MEMORY, _SESSION_MEMORY, _MEMORY, _SESSION_HANDLES, _OBJECT_HANDLES.
    for code in 0x901..=0x906 {
        assert_eq!(said(code), TpmError::Full, "{code:#x}");
    }
    // TPM_RC_LOCKOUT.
    let locked = said(0x921);
    assert_eq!(locked, TpmError::LockedOut);
    assert!(locked.to_string().contains("--clear-lockout"), "{locked}");
    // TPM_RC_FAILURE: its number is what people search for.
    let failed = said(0x101);
    assert!(matches!(failed, TpmError::Failed { .. }) && failed.to_string().contains("0x101"), "{failed}");
    // What a TPM 1.2 says to a command of a TPM 2.0.
    assert_eq!(said(0x1e), TpmError::NotTpm2);
}

#[test]
fn a_device_that_no_tpm_is_behind_is_not_taken_for_a_missing_one() {
    let null = Tpm::new(Tcti::parse("device:/dev/null").unwrap()).look().unwrap_err();
    assert!(!null.is_absent(), "{null}");
}

#[test]
fn a_locked_out_tpm_still_signs_and_proves() {
    let swtpm = Swtpm::start(Made::Bare);
    let key = TpmKey::create(tpm(&swtpm)).unwrap();
    let found = tpm(&swtpm).look().unwrap();
    lock_out(&swtpm);
    assert_signs(&key);
    for place in 0..3 {
        let challenge = challenge(&swtpm, &key, &found, place, &[3; 32]);
        proven(&key, &found, &challenge).unwrap();
    }
    TpmKey::create(tpm(&swtpm)).unwrap();
    assert_eq!(tpm(&swtpm).look().unwrap().report(), found.report());
}

#[test]
fn a_device_works_as_a_server_does_and_a_second_client_waits_no_longer_than_its_limit() {
    let swtpm = Swtpm::start(Made::Bare);
    let device = swtpm.device();
    let by_device = Tpm::new(Tcti::parse(&device.tcti()).unwrap());
    let key = TpmKey::create(by_device.clone()).unwrap();
    assert_signs(&key);
    assert_eq!(names(&by_device.look().unwrap()), ["L-1", "L-2", "H-3"]);
    // The device's bridge is swtpm's one client: whoever else comes is not answered.
    let limit = Duration::from_millis(300);
    let second = tpm(&swtpm);
    assert_eq!(second.run(limit, |_| Ok(())), Err(TpmError::Silent(limit)));
    assert_eq!(
        second.run(limit, |_| Ok(())),
        Err(TpmError::Silent(limit)),
        "and does not start another thread"
    );
    drop(device);
    // The thread that was stuck goes on, and gives the turn back.
    second.run(Duration::from_secs(10), |_| Ok(())).unwrap();
    assert_signs(&TpmKey::from_file(second, key.to_file().as_bytes()).unwrap());
}

#[test]
fn certificates_are_cut_and_found_at_any_index() {
    let swtpm = Swtpm::start(Made::WithCertificates);
    let before = tpm(&swtpm).look().unwrap();
    let (_, der) = before.endorsement_keys[0].certificate.clone().unwrap();
    let authorities: Vec<Vec<u8>> = swtpm.authorities().iter().map(|path| read_pem(path)).collect();
    // The vendor keeps it elsewhere, with padding behind it, and its CAs over two indices.
    write_nv(&swtpm, 0x01c0_0002, None);
    write_nv(&swtpm, 0x01c0_0020, Some([der.as_slice(), &[0xff; 300]].concat()));
    let chain = [authorities.concat(), vec![0; 50]].concat();
    let (head, tail) = chain.split_at(700);
    write_nv(&swtpm, 0x01c0_0100, Some(head.to_vec()));
    write_nv(&swtpm, 0x01c0_0101, Some(tail.to_vec()));
    // What is no certificate, and a certificate of another key at a place of its own.
    write_nv(&swtpm, 0x01c0_0021, Some(vec![0x30; 40]));
    write_nv(&swtpm, 0x01c0_000a, Some(authorities[0].clone()));
    let found = tpm(&swtpm).look().unwrap();
    assert_eq!(found.endorsement_keys[0].certificate, Some((0x01c0_0020, der)));
    assert_eq!(found.endorsement_keys[1].certificate, Some((0x01c0_000a, authorities[0].clone())));
    assert_eq!(found.report().endorsement_keys[2], before.report().endorsement_keys[2]);
    assert_eq!(found.authorities, authorities);
    let offer = TpmKey::create(tpm(&swtpm)).unwrap().offer(&found).unwrap();
    let counts: Vec<_> = offer.endorsement_keys.iter().map(|key| key.certificates.len()).collect();
    assert_eq!(counts, [3, 3, 3]);
}

fn read_pem(path: &Path) -> Vec<u8> {
    crate::client::certificates(&std::fs::read(path).unwrap()).unwrap().remove(0).to_vec()
}
