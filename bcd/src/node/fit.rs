//! Whether the key that is there is the one that the state goes with. A key that was lost or exchanged heals by nothing that
//! this machine can do, so it is said at once and for good, and no new key is made beside a state that needs the old one.

use crate::{
    client::certificates,
    config::Settings,
    failure::{Exit, Failure},
    key::{self, NodeKey},
    state::{State, StateError, Stored, damaged, has_key},
};
use shared::csr::CertificateRequest;
use std::path::Path;
use x509_parser::{certificate::X509Certificate, prelude::FromDer as _};

/// What a state says of its key.
struct Mark {
    /// SubjectPublicKeyInfo in DER.
    spki: Vec<u8>,
    /// What goes with the key, for people.
    of: String,
}

/// Whether what is in this folder goes together, by its files alone: for who only looks. No key is made or used.
///
/// # Errors
/// The key is gone, another one or none, or the state is damaged.
pub fn check(settings: &Settings, stored: &Stored) -> Result<(), Failure> {
    let folder = settings.state_dir.as_path();
    // A state that goes with no key says more than a key can.
    let Some(mark) = mark(folder, stored)? else { return Ok(()) };
    match key::load(folder, settings.tpm, &settings.tcti)? {
        Some(key) => check_same(folder, stored, &*key),
        None => Err(lost(folder, &mark, "is gone")),
    }
}

/// Before a key is made: whether the state needs one that is gone.
///
/// # Errors
/// It does, or the state is damaged.
pub(super) fn check_kept(folder: &Path, stored: &Stored) -> Result<(), Failure> {
    match mark(folder, stored)? {
        Some(mark) if !has_key(folder)? => Err(lost(folder, &mark, "is gone")),
        _ => Ok(()),
    }
}

/// Whether this is the key that the state goes with.
///
/// # Errors
/// It is another one, or the state is damaged.
pub(super) fn check_same(folder: &Path, stored: &Stored, key: &dyn NodeKey) -> Result<(), Failure> {
    match mark(folder, stored)? {
        Some(mark) if mark.spki != key.public_key().spki_der() => Err(lost(folder, &mark, "is another one")),
        _ => Ok(()),
    }
}

fn lost(folder: &Path, mark: &Mark, what: &str) -> Failure {
    let (folder, of) = (folder.display(), &mark.of);
    Failure::new(
        Exit::Broken,
        format!(
            "the node key in {folder} {what}, and {of} is of no use without its own: put the right key back, or `bcd reset` and \
             join with a fresh token"
        ),
    )
}

fn mark(folder: &Path, stored: &Stored) -> Result<Option<Mark>, StateError> {
    let (spki, of) = match &stored.state {
        State::Enrolled(node) => (key_of(&node.certificate), format!("the certificate of {}", node.node_id)),
        State::Joining(joining) => (requested(&joining.csr), "the join under way".to_owned()),
        State::Waiting(waiting) => {
            (requested(&waiting.joining.csr), format!("join request {}", waiting.join_request_id))
        }
        // What is over is evidence; a new join takes whatever key there is.
        State::New | State::Final(_) => return Ok(None),
    };
    let spki = spki.ok_or_else(|| damaged(folder, format!("{of} cannot be read")))?;
    Ok(Some(Mark { spki, of }))
}

/// The key of the leaf.
fn key_of(certificate: &str) -> Option<Vec<u8>> {
    let list = certificates(certificate.as_bytes()).ok()?;
    let (_, leaf) = X509Certificate::from_der(list.first()?).ok()?;
    Some(leaf.tbs_certificate.subject_pki.raw.to_vec())
}

fn requested(csr: &str) -> Option<Vec<u8>> {
    CertificateRequest::parse(csr).ok().map(|request| request.key.spki_der())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        node::Node,
        state::{CERTIFICATE, KEY},
        testing::{Fault, Machine, Relay},
    };
    use shared::hardware::Identity;
    use std::{fs, path::PathBuf};

    /// A relay, and a machine that has joined it or waits.
    async fn machine(waits: bool) -> (std::sync::Arc<Relay>, Machine, PathBuf) {
        let (relay, machine) = (Relay::start().await, Machine::new());
        if waits {
            relay.fault(Fault::Defer);
        }
        let joined = crate::join::attempt(&mut machine.node(&relay), Identity::default()).await;
        assert_eq!(joined.is_err(), waits);
        let state = machine.folder.path().join("state");
        (relay, machine, state)
    }

    fn open(relay: &Relay, machine: &Machine) -> Result<Node, Failure> {
        Node::open(machine.settings(relay), machine.sources(), machine.host.clone())
    }

    fn refused(relay: &Relay, machine: &Machine) -> String {
        let failure = open(relay, machine).err().unwrap();
        assert_eq!(failure.exit, Exit::Broken, "{failure}");
        failure.to_string()
    }

    #[tokio::test]
    async fn a_lost_or_exchanged_key_is_said_for_good_and_no_other_is_made() {
        for waits in [false, true] {
            let (relay, machine, state) = machine(waits).await;
            let key = state.join(KEY);
            let kept = fs::read(&key).unwrap();
            fs::remove_file(&key).unwrap();
            let text = refused(&relay, &machine);
            assert!(
                text.contains("is gone") && text.contains("bcd reset") && text.contains("(final"),
                "{text}"
            );
            assert!(!key.exists());
            let looked = || {
                let settings = machine.settings(&relay);
                check(&settings, &crate::state::read(&settings.state_dir).unwrap())
            };
            assert_eq!(looked().unwrap_err().to_string(), text, "who only looks is told the same");
            assert!(!key.exists());
            fs::write(&key, rcgen::KeyPair::generate().unwrap().serialize_pem()).unwrap();
            let text = refused(&relay, &machine);
            assert!(text.contains(if waits { "jr_" } else { "nd_" }), "{text}");
            assert_eq!(looked().unwrap_err().to_string(), text);
            fs::write(&key, kept).unwrap();
            looked().unwrap();
            open(&relay, &machine).unwrap();
        }
    }

    #[tokio::test]
    async fn a_certificate_or_request_that_cannot_be_read_is_damage() {
        for (waits, member) in [(false, "certificate"), (true, "csr")] {
            let (relay, machine, state) = machine(waits).await;
            let path = state.join("state.json");
            let mut stored: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            stored[member] = "x".into();
            fs::write(&path, stored.to_string()).unwrap();
            let text = refused(&relay, &machine);
            assert!(text.contains("state.json is damaged"), "{text}");
            let certificate = fs::read_to_string(state.join(CERTIFICATE)).unwrap_or_default();
            assert_ne!(certificate, "x", "what others use stays as it was");
        }
    }

    #[tokio::test]
    async fn what_is_over_begins_anew_with_any_key() {
        let (relay, machine, state) = machine(false).await;
        let mut node = open(&relay, &machine).unwrap();
        node.finish(&Failure::new(Exit::Released, "released")).unwrap();
        drop(node);
        fs::remove_file(state.join(KEY)).unwrap();
        let mut node = open(&relay, &machine).unwrap();
        assert!(!state.join(KEY).exists(), "one that does not join leaves no key");
        node.make_key().await.unwrap();
        assert!(state.join(KEY).exists());
    }
}
