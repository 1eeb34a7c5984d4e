//! The simulated machines: keys, certificate requests and bodies, all made before anything is measured.

use super::LoadError;
use crate::SimulatedTpm;
use bytes::Bytes;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ECDSA_P256_SHA256};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _},
    sign::{CertifiedKey, SigningKey},
};
use serde_json::{Value, json};
use shared::api::node::JoinAnswer;
use std::{sync::Arc, thread};

/// A machine that has not joined.
pub(super) struct Machine {
    /// What it sends to join.
    pub(super) join: Bytes,
    renew: Bytes,
    key: Arc<dyn SigningKey>,
    /// The TPM that its key is in, and the key's public point.
    tpm: Option<(SimulatedTpm, Vec<u8>)>,
}

impl Machine {
    /// What it sends after a challenge: the same join with the proof. `None` if that was no challenge.
    pub(super) fn proof(&self, answer: &[u8]) -> Option<Bytes> {
        let (tpm, point) = self.tpm.as_ref()?;
        let challenge: Value = serde_json::from_slice(answer).ok()?;
        let proof = tpm.answer_of(point, &challenge)?;
        let join = std::str::from_utf8(&self.join).ok()?.strip_suffix('}')?;
        Some(format!("{join},\"proof\":{proof}}}").into())
    }
}

/// A machine with a certificate.
pub(super) struct Enrolled {
    /// What it sends to renew.
    pub(super) renew: Bytes,
    /// What it shows in the handshake.
    pub(super) certified: Arc<CertifiedKey>,
}

/// Makes `count` machines that differ in every identifier, each with a key, in a TPM or not, on all cores.
pub(super) fn make(count: usize, tpm: bool) -> Result<Vec<Machine>, LoadError> {
    let share = count.div_ceil(cores()).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = (0..count)
            .step_by(share)
            .map(|from| {
                scope.spawn(move || (from..count.min(from + share)).map(|at| machine(at, tpm)).collect())
            })
            .collect();
        let mut all = Vec::with_capacity(count);
        for part in parts {
            let made: Result<Vec<Machine>, LoadError> =
                part.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            all.extend(made?);
        }
        Ok(all)
    })
}

/// Takes the certificates of the joins, each answer with its machine's number.
pub(super) fn enroll(machines: &[Machine], answers: Vec<(usize, Bytes)>) -> Result<Vec<Enrolled>, LoadError> {
    let machine = |(at, answer)| Some((machines.get(at)?, answer));
    let enroll = |(machine, answer): (&Machine, Bytes)| {
        let certified = certified(&chain_of(&answer)?, machine.key.clone())?;
        Ok(Enrolled { renew: machine.renew.clone(), certified })
    };
    answers.into_iter().filter_map(machine).map(enroll).collect()
}

/// Takes the certificates of the renewals, each answer with its node's number.
pub(super) fn renewed(nodes: &[Enrolled], answers: Vec<(usize, Bytes)>) -> Result<Vec<Enrolled>, LoadError> {
    let node = |(at, answer)| Some((nodes.get(at)?, answer));
    let renew = |(node, answer): (&Enrolled, Bytes)| {
        let certified = certified(&chain_of(&answer)?, node.certified.key.clone())?;
        Ok(Enrolled { renew: node.renew.clone(), certified })
    };
    answers.into_iter().filter_map(node).map(renew).collect()
}

/// A heartbeat of a machine to which nothing has happened.
pub(super) const fn heartbeat() -> Bytes {
    Bytes::from_static(br#"{"agentVersion":"0.1.0","bootId":"8f7f9d0e-7d9e-4c55-9a53-5d0f7c1c2b3a"}"#)
}

/// How many threads run at a time.
pub(super) fn cores() -> usize {
    thread::available_parallelism().map_or(1, Into::into)
}

fn machine(number: usize, tpm: bool) -> Result<Machine, LoadError> {
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(LoadError::prepare("making a key"))?;
    let digits = format!("{number:012x}");
    let mac: Vec<&str> = [0, 2, 4, 6, 8, 10].iter().filter_map(|at| digits.get(*at..at + 2)).collect();
    let tpm = tpm.then(|| (SimulatedTpm::new(), key.public_key_raw().to_vec()));
    let mut join = json!({
        "csr": request(&key, &format!("join-{number}"))?,
        "identity": {
            "productUuid": format!("4c4c4544-0042-4a10-8054-{digits}"),
            "serial": format!("SN-{number:08}"),
            "macs": [mac.join(":")],
            "hostname": format!("machine-{number}"),
        },
        "agent": {"version": "0.1.0", "os": "Debian GNU/Linux 12", "arch": "x86_64"},
    });
    if let (Some((tpm, point)), Some(members)) = (&tpm, join.as_object_mut()) {
        members.insert("tpm".to_owned(), tpm.offer_of(point));
    }
    let renew = json!({"csr": request(&key, &format!("renew-{number}"))?});
    let der = PrivateKeyDer::try_from(key.serialize_der()).map_err(LoadError::prepare("writing a key"))?;
    Ok(Machine { join: join.to_string().into(), renew: renew.to_string().into(), key: signing(der)?, tpm })
}

/// A key as rustls signs with it.
pub(super) fn signing(der: PrivateKeyDer<'static>) -> Result<Arc<dyn SigningKey>, LoadError> {
    let key = aws_lc_rs::default_provider().key_provider.load_private_key(der);
    key.map_err(LoadError::prepare("reading a key"))
}

/// A certificate request in PEM.
pub(super) fn request(key: &KeyPair, name: &str) -> Result<String, LoadError> {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    let request = params.serialize_request(key).and_then(|request| request.pem());
    request.map_err(LoadError::prepare("making a certificate request"))
}

/// The certificate and its issuing CA's, in PEM.
fn chain_of(answer: &[u8]) -> Result<String, LoadError> {
    match serde_json::from_slice(answer).map_err(LoadError::prepare("reading the relay's answer"))? {
        JoinAnswer::Issued(issued) => Ok(issued.certificate + &issued.chain),
        JoinAnswer::Challenge(_) | JoinAnswer::Deferred(_) => {
            Err(LoadError::prepare("reading the relay's answer")("it does not admit a machine at once"))
        }
    }
}

/// What a machine with this chain and key shows in a handshake.
pub(super) fn certified(pem: &str, key: Arc<dyn SigningKey>) -> Result<Arc<CertifiedKey>, LoadError> {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    let chain = chain.map_err(LoadError::prepare("reading a certificate"))?;
    Ok(Arc::new(CertifiedKey::new(chain, key)))
}
