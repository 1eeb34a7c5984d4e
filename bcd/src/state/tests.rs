//! The forms on disk, versions, the lock, and what a crash leaves.

use super::{dir::STATE, *};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

fn joining() -> Joining {
    Joining { csr: "csr".into(), token_id: JoinTokenId::derive(&[1; 32]) }
}

pub(crate) fn enrolled() -> Enrolled {
    Enrolled {
        node_id: NodeId::derive(&[2; 32]),
        generation: 1,
        trust: Trust::Platform,
        serial: "0a".into(),
        certificate: "leaf\n".into(),
        ca_bundle: "root\n".into(),
        issued_at: Timestamp::from_seconds(1),
        renew_after: Timestamp::from_seconds(2),
        expires_at: Timestamp::from_seconds(3),
        token_id: Some(JoinTokenId::derive(&[1; 32])),
        renewal_csr: None,
    }
}

fn states() -> Vec<State> {
    let identity = Identity { gpu_uuids: vec!["GPU-1".into()], ..Identity::default() };
    let deferred = Deferred {
        join_request_id: JoinRequestId::derive(&[3; 32]),
        tenant_id: "t".into(),
        pool_id: "p".into(),
        reasons: vec!["unknownMachine".into()],
        retry_after_seconds: 30,
    };
    vec![
        State::New,
        State::Joining(joining()),
        State::Waiting(Waiting::new(joining(), identity, deferred, Timestamp::from_seconds(10))),
        State::Enrolled(enrolled()),
        State::Final(Final {
            exit: 15,
            message: "banned".into(),
            token_id: None,
            node: Some(Box::new(enrolled())),
            since: Timestamp::from_seconds(4),
        }),
    ]
}

#[test]
fn every_state_comes_back_and_says_its_name_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    assert_eq!(dir.load().unwrap(), Stored::default());
    for state in states() {
        let stored = Stored { state, trust_domain: Some("td".into()), ..Stored::default() };
        dir.save(&stored).unwrap();
        assert_eq!(dir.load().unwrap(), stored);
        let json: serde_json::Value =
            serde_json::from_slice(&fs::read(folder.path().join(STATE)).unwrap()).unwrap();
        assert_eq!(json.get("version").unwrap(), 1);
        assert_eq!(json.get("state").unwrap(), stored.state.name());
    }
    let mode = fs::metadata(folder.path().join(STATE)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_newer_or_damaged_state_is_refused_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    for text in [r#"{"version":2,"state":"hovering"}"#, "{", r#"{"version":1,"state":"hovering"}"#] {
        fs::write(folder.path().join(STATE), text).unwrap();
        let error = dir.load().unwrap_err();
        assert_eq!(matches!(error, StateError::Newer { found: 2, .. }), text.contains('2'), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join(STATE)).unwrap(), text);
    }
}

#[test]
fn there_is_one_writer() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("made/here");
    let first = StateDir::open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    assert!(matches!(StateDir::open(&path), Err(StateError::Busy(_))));
    drop(first);
    StateDir::open(&path).unwrap();
}

#[test]
fn the_certificate_is_written_out_and_repaired_from_the_state() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    let stored = Stored { state: State::Enrolled(enrolled()), ..Stored::default() };
    // A crash after the state and before the files.
    dir.writes_left.set(1);
    assert!(dir.save(&stored).is_err());
    assert!(!folder.path().join(CERTIFICATE).exists());
    dir.writes_left.set(usize::MAX);
    assert_eq!(dir.load().unwrap(), stored);
    dir.export(&stored).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join(CERTIFICATE)).unwrap(), "leaf\n");
    assert_eq!(fs::read_to_string(folder.path().join(CA_BUNDLE)).unwrap(), "root\n");
}

#[test]
fn a_leftover_of_a_crash_does_not_lend_its_mode() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    let leftover = folder.path().join(".node.key.new");
    fs::write(&leftover, "half").unwrap();
    fs::set_permissions(&leftover, fs::Permissions::from_mode(0o666)).unwrap();
    dir.write(KEY, b"key", 0o600).unwrap();
    let key = folder.path().join(KEY);
    assert_eq!(fs::read(&key).unwrap(), b"key");
    assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!leftover.exists());
}

#[test]
fn what_a_crash_cut_short_is_gone_at_the_next_start_and_after_a_reset() {
    let folder = tempfile::tempdir().unwrap();
    let leave = || {
        for name in [STATE, TOKEN, KEY, TPM_KEY, CERTIFICATE, CA_BUNDLE] {
            fs::write(folder.path().join(format!(".{name}.new")), "half a secret").unwrap();
        }
    };
    let names = || {
        let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name());
        files.map(|name| name.to_string_lossy().into_owned()).collect::<Vec<_>>()
    };
    leave();
    let dir = StateDir::open(folder.path()).unwrap();
    assert_eq!(names(), ["lock"]);
    leave();
    dir.forget(false).unwrap();
    assert_eq!(names(), ["lock"]);
    // A write that fails leaves nothing either: a folder is where the file would go.
    fs::create_dir_all(folder.path().join(TOKEN).join("full")).unwrap();
    dir.write(TOKEN, b"secret", 0o600).unwrap_err();
    assert!(!names().iter().any(|name| name.ends_with(".new")), "{:?}", names());
}

/// Only root can give files away: for anybody else there is nothing to show.
#[test]
fn what_root_writes_is_the_folders_owners() {
    use std::os::unix::fs::{MetadataExt as _, chown};
    let folder = tempfile::tempdir().unwrap();
    if fs::metadata(folder.path()).unwrap().uid() != 0 {
        return;
    }
    chown(folder.path(), Some(4711), Some(4712)).unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    dir.save(&Stored { state: State::Enrolled(enrolled()), ..Stored::default() }).unwrap();
    dir.write(KEY, b"key", 0o600).unwrap();
    for name in ["lock", STATE, KEY, CERTIFICATE, CA_BUNDLE] {
        let file = fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!((file.uid(), file.gid()), (4711, 4712), "{name}");
    }
}

#[test]
fn a_link_in_the_folder_leads_nowhere() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    let (made, read) = (outside.path().join("made"), outside.path().join("read"));
    std::os::unix::fs::symlink(&made, path("lock")).unwrap();
    StateDir::open(folder.path()).unwrap_err();
    assert!(!made.exists());
    fs::remove_file(path("lock")).unwrap();
    fs::write(&read, "{}").unwrap();
    std::os::unix::fs::symlink(&read, path(STATE)).unwrap();
    std::os::unix::fs::symlink(&made, path(".state.json.new")).unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    assert!(matches!(dir.load(), Err(StateError::Io { .. })));
    dir.save(&Stored::default()).unwrap();
    assert_eq!(fs::read(&read).unwrap(), b"{}");
    assert!(!made.exists());
}

#[test]
fn forgetting_keeps_the_key_only_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let dir = StateDir::open(folder.path()).unwrap();
    for keep in [true, false] {
        dir.save(&Stored { state: State::Enrolled(enrolled()), ..Stored::default() }).unwrap();
        dir.write(KEY, b"key", 0o600).unwrap();
        dir.forget(keep).unwrap();
        assert_eq!(dir.load().unwrap(), Stored::default());
        assert_eq!(folder.path().join(KEY).exists(), keep);
        assert!(!folder.path().join(CERTIFICATE).exists());
    }
    dir.forget(false).unwrap();
}
