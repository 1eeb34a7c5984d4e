//! Seals that hold at their place only, and files that hold a key.

use super::*;
use crate::random::Random;
use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

const PLACE: Place<'static> = Place { table: "secrets", row: "pl_1/db", column: "value" };

fn key(byte: u8) -> MasterKey {
    MasterKey::from_bytes(Zeroizing::new([byte; 32]))
}

fn ring(byte: u8) -> KeyRing {
    KeyRing::new(key(byte), vec![])
}

fn write(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    path
}

#[test]
fn what_was_sealed_opens_at_its_place_and_nowhere_else() {
    let random = Random::seeded(1);
    let ring = ring(1);
    for plain in [&b""[..], b"x", &[0xff; 16_384]] {
        let sealed = ring.seal(PLACE, plain, &random).unwrap();
        assert_eq!(ring.open(PLACE, &sealed).unwrap().as_slice(), plain);
        for other in [
            Place { table: "secret", ..PLACE },
            Place { row: "pl_2/db", ..PLACE },
            Place { column: "note", ..PLACE },
            // The same bytes with the borders elsewhere.
            Place { table: "secretsp", row: "l_1/db", column: "value" },
            Place { table: "secrets", row: "pl_1/dbv", column: "alue" },
        ] {
            let altered = SealError::Altered { place: other.to_string() };
            assert_eq!(ring.open(other, &sealed), Err(altered));
        }
    }
}

#[test]
fn the_same_text_is_sealed_differently_each_time() {
    let random = Random::system();
    let ring = ring(1);
    let sealed = [(); 2].map(|()| ring.seal(PLACE, b"secret", &random).unwrap());
    assert_ne!(sealed[0], sealed[1]);
    assert!(sealed[0].starts_with(&format!("v1.{}.", ring.current_id())));
    assert!(!sealed[0].contains("secret"));
}

#[test]
fn no_altered_bit_opens() {
    let ring = ring(1);
    let sealed = ring.seal(PLACE, b"secret", &Random::seeded(1)).unwrap();
    let (head, body) = sealed.rsplit_once('.').unwrap();
    let bytes = STANDARD.decode(body).unwrap();
    assert_eq!(bytes.len(), 12 + 6 + 16);
    for bit in 0..bytes.len() * 8 {
        let mut flipped = bytes.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let text = format!("{head}.{}", STANDARD.encode(flipped));
        assert_eq!(ring.open(PLACE, &text), Err(SealError::Altered { place: PLACE.to_string() }), "{bit}");
    }
}

#[test]
fn a_text_of_another_form_is_malformed() {
    let ring = ring(1);
    let sealed = ring.seal(PLACE, b"secret", &Random::seeded(1)).unwrap();
    let id = ring.current_id();
    for bad in [
        String::new(),
        "secret".to_owned(),
        sealed.replace("v1.", "v2."),
        sealed.replace(id, &id[1..]),
        sealed.replace(id, "zzzzzzzzzzzzzzzz"),
        format!("{sealed}\n"),
        format!("v1.{id}."),
        format!("v1.{id}.AAAA"),
        format!("v1.{id}"),
    ] {
        assert_eq!(ring.open(PLACE, &bad), Err(SealError::Malformed { place: PLACE.to_string() }), "{bad:?}");
    }
}

#[test]
fn older_keys_open_the_current_one_seals_and_an_unknown_one_is_named() {
    let random = Random::seeded(1);
    let old = ring(1);
    let sealed = old.seal(PLACE, b"secret", &random).unwrap();
    let rotated = KeyRing::new(key(2), vec![key(3), key(1)]);
    assert_eq!(rotated.open(PLACE, &sealed).unwrap().as_slice(), b"secret");
    assert!(rotated.is_outdated(&sealed));
    let resealed = rotated.seal(PLACE, b"secret", &random).unwrap();
    assert!(!rotated.is_outdated(&resealed));
    let unknown = old.open(PLACE, &resealed).unwrap_err();
    assert_eq!(unknown, SealError::UnknownKey { place: PLACE.to_string(), key_id: key(2).id().to_owned() });
    assert!(unknown.to_string().contains(key(2).id()));
    // A text that claims another key of the ring does not open either.
    let claimed = sealed.replace(key(1).id(), key(2).id());
    assert_eq!(rotated.open(PLACE, &claimed), Err(SealError::Altered { place: PLACE.to_string() }));
}

#[test]
fn the_check_value_tells_whether_the_key_belongs_to_the_store() {
    let random = Random::seeded(1);
    let stored = ring(1).check_value(&random).unwrap();
    assert_eq!(ring(1).verify_check_value(&stored), Ok(()));
    assert!(matches!(ring(2).verify_check_value(&stored), Err(SealError::UnknownKey { .. })));
    let elsewhere = ring(1).seal(PLACE, b"relay master key check", &random).unwrap();
    assert!(matches!(ring(1).verify_check_value(&elsewhere), Err(SealError::Altered { .. })));
    let other_text = ring(1).seal(CHECK_PLACE, b"other", &random).unwrap();
    assert!(ring(1).verify_check_value(&other_text).is_err());
}

#[test]
fn a_key_file_is_made_once_and_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("master.key");
    let random = Random::seeded(1);
    let made = MasterKey::create(&path, &random).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(MasterKey::load(&path, None).unwrap().id(), made.id());
    let before = fs::read(&path).unwrap();
    let again = MasterKey::create(&path, &random);
    assert!(
        matches!(again, Err(MasterKeyError::Create { source, .. }) if source.kind() == std::io::ErrorKind::AlreadyExists)
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left beside it");
    let sealed = KeyRing::new(made, vec![]).seal(PLACE, b"secret", &random).unwrap();
    let ring = KeyRing::new(MasterKey::load(&path, None).unwrap(), vec![]);
    assert_eq!(ring.open(PLACE, &sealed).unwrap().as_slice(), b"secret");
}

#[test]
fn hex_and_base64_are_the_same_key_and_other_contents_are_none() {
    let dir = tempfile::tempdir().unwrap();
    let hex = "07".repeat(32);
    let base64 = STANDARD.encode([7; 32]);
    for (name, text) in
        [("a", hex.clone()), ("b", format!("{hex}\n")), ("c", base64.clone()), ("d", format!("{base64}\n"))]
    {
        let path = write(dir.path(), name, &text, 0o600);
        assert_eq!(MasterKey::load(&path, None).unwrap().id(), key(7).id());
    }
    for text in [
        String::new(),
        "\n".to_owned(),
        hex[2..].to_owned(),
        format!("{hex}00"),
        format!("{hex}\n{hex}\n"),
        format!("{hex}\n\n"),
        format!(" {hex}"),
        hex.replace('7', "g"),
        STANDARD.encode([7; 31]),
        STANDARD.encode([7; 33]),
        "A".repeat(300),
        "x".repeat(100_000),
    ] {
        let path = write(dir.path(), "bad", &text, 0o600);
        assert!(matches!(MasterKey::load(&path, None), Err(MasterKeyError::Form { .. })), "{text:?}");
    }
    assert!(matches!(
        MasterKey::load(dir.path(), None),
        Err(MasterKeyError::Read { source, .. }) if source.to_string().contains("a folder")
    ));
    let binary = dir.path().join("binary");
    fs::write(&binary, [0xff; 32]).unwrap();
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(MasterKey::load(&binary, None), Err(MasterKeyError::Form { .. })));
    let fifo = dir.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(
        matches!(MasterKey::load(&fifo, None), Err(MasterKeyError::Read { .. })),
        "and is not waited for"
    );
}

#[test]
fn a_key_that_is_nowhere_is_said_with_all_places() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent");
    let said = |credentials| MasterKey::load(&absent, credentials).map(drop).unwrap_err().to_string();
    let here = absent.display().to_string();
    let alone = said(None);
    for part in [here.as_str(), "relay.master-key can be seen", "$CREDENTIALS_DIRECTORY", "master_key_file"] {
        assert!(alone.contains(part), "{part}: {alone}");
    }
    let credential = dir.path().join(CREDENTIAL);
    let neither = said(Some(dir.path()));
    assert!(
        neither.contains(&format!("nor does the systemd credential {}", credential.display())),
        "{neither}"
    );
    fs::write(&credential, "x").unwrap();
    assert!(said(Some(dir.path())).contains("the setting master_key_file goes before the credential"));
}

#[test]
fn a_file_that_others_may_use_is_refused_and_a_credential_may_show_its_access_list() {
    let dir = tempfile::tempdir().unwrap();
    let credentials = dir.path().join("credentials");
    fs::create_dir(&credentials).unwrap();
    let hex = "07".repeat(32);
    for (mode, alone, credential) in [
        (0o600, true, true),
        (0o400, true, true),
        (0o440, false, true),
        (0o640, false, true),
        (0o460, false, false),
        (0o444, false, false),
        (0o604, false, false),
        (0o620, false, false),
    ] {
        let path = write(&credentials, &format!("{mode:o}"), &hex, mode);
        assert_eq!(MasterKey::load(&path, None).is_ok(), alone, "{mode:o}");
        assert_eq!(MasterKey::load(&path, Some(&credentials)).is_ok(), credential, "{mode:o}");
    }
    let outside = write(dir.path(), "outside", &hex, 0o440);
    let refused = MasterKey::load(&outside, Some(&credentials)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("0440") && refused.to_string().contains("chmod 600"), "{refused}");
}

#[test]
fn what_a_client_carries_opens_for_its_purpose_and_by_any_key_of_the_ring() {
    let random = Random::system();
    let sealed = ring(1).seal_carried("one purpose", b"plain", &random).unwrap();
    let rotated = KeyRing::new(key(2), vec![key(1)]);
    for ring in [&ring(1), &rotated] {
        assert_eq!(ring.open_carried("one purpose", &sealed).unwrap().as_slice(), b"plain");
        assert_eq!(ring.open_carried("another purpose", &sealed), Err(CarriedError::Altered));
    }
    let unknown = CarriedError::UnknownKey(key(1).id().to_owned());
    assert_eq!(ring(2).open_carried("one purpose", &sealed), Err(unknown));
    // Moved to another key's name it does not open either.
    let moved = sealed.replace(key(1).id(), key(2).id());
    assert_eq!(rotated.open_carried("one purpose", &moved), Err(CarriedError::Altered));
    assert_ne!(ring(1).seal_carried("one purpose", b"plain", &random).unwrap(), sealed);
}

#[test]
fn what_is_stored_and_what_is_carried_are_not_each_other() {
    let (random, ring) = (Random::seeded(1), ring(1));
    let stored = ring.seal(PLACE, &[7; 64], &random).unwrap();
    assert_eq!(ring.open_carried("one purpose", &stored), Err(CarriedError::Altered));
    let carried = ring.seal_carried("one purpose", &[7; 64], &random).unwrap();
    assert_eq!(ring.open(PLACE, &carried), Err(SealError::Altered { place: PLACE.to_string() }));
    for text in ["", "v1", "v1.0123456789abcdef", "v2.0123456789abcdef.AAAA", "v1.0123456789abcde.AAAA"] {
        assert_eq!(ring.open_carried("one purpose", text), Err(CarriedError::Malformed), "{text}");
    }
    for body in ["", "AAAA", "*", "A"] {
        let text = format!("v1.{}.{body}", ring.current_id());
        assert_eq!(ring.open_carried("one purpose", &text), Err(CarriedError::Malformed), "{body}");
    }
}
