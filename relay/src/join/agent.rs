//! The join of a metal machine's agent: by the token that is in the image of this very start, from the machine that its BMC says it
//! is, once. It gets a certificate that opens the machine's steps and nothing else: no node comes of it, no identity is held or
//! taken over by it, and a join of the node ends it.
//!
//! Whoever reads the image has the token, which is why it is spent by the machine's own agent within minutes, is refused to any other
//! machine, and leads to nothing that is a node's. The agent's key is what counts from then on: with it the certificate is renewed,
//! as long as the workflow lasts that started the agent.
//!
//! **Who comes first is believed, where no endorsement key tells two machines apart**: whoever reads the image on its way to the BMC and
//! knows what the machine calls itself can join in its stead. But not unseen: the other one of the two comes with the same token and
//! another key, and then neither goes on ([`contest`]).

use super::{
    attest::{self, endorsement},
    evidence, issue, standing,
    submit::{Judged, Submission},
    tokens,
};
use crate::{
    ca::{CaError, PeerCertificate, Profile},
    call::{Call, unauthenticated},
    facts::{NodeFacts, PoolFacts, TokenFacts},
    fault::Fault,
    metal::{causes::Cause, facts::Machine},
    store::{
        Tx,
        certificates::{self, CertificateRow, JoinPlace, JoinRow},
        join_tokens, metal, nodes, pools,
    },
};
use shared::{
    api::{
        node::{JoinAnswer, RenewInput},
        pools::TpmMode,
    },
    csr::PublicKey,
    hex,
    id::NodeId,
};

/// The longest life of an agent's certificate, in seconds (one hour).
const TTL_SECONDS: u32 = 3_600;

/// Judges an agent's join, and admits it. The token is locked.
///
/// # Errors
/// `tokenExpired` and its kin, `superseded` where the token is of an earlier start, `identityMismatch`, `tpmRequired`,
/// `endorsementKeyMismatch`, `nodeBanned`, `nodeReleased`.
pub(super) async fn judge(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    token: &TokenFacts,
    pool: &PoolFacts,
) -> Result<Judged, Fault> {
    let (relay, now) = (&join.call.relay, join.call.now);
    let node = token.node.as_ref().ok_or_else(unauthenticated)?;
    let prior = certificates::find_join(tx, join.token, &join.csr_sha256).await?;
    let row = nodes::lock(tx, node).await?.ok_or_else(standing::released)?;
    standing::judge("", &row)?;
    let mut machine = metal::lock(tx, node).await?.ok_or_else(standing::released)?;
    if let Some(prior) = prior {
        return replay(tx, join, token, &machine, &prior).await.map(Ok);
    }
    let is_current = machine.boot.as_ref().is_some_and(|boot| boot.token == token.id);
    let spent = tokens::admits(token, now).err();
    let is_second = is_current && machine.agent_key.is_some() && tokens::not_revoked(token).is_ok();
    match &spent {
        Some(spent) if !is_second => return Err(spent.clone().into()),
        _ if !is_current => return Err(standing::superseded().into()),
        _ => {}
    }
    let ek = join.ek_sha256();
    if ek.is_none() && pool.policy.attestors.tpm == TpmMode::Required {
        return Err(endorsement::required("The pool's policy").into());
    }
    attest::token::judge(token.expect.as_ref(), &join.machine, ek)
        .and(attest::bmc::judge(&machine.identity, &join.machine))
        .reasons()?;
    let known = evidence::proven_keys(tx, &row).await?;
    if !known.is_empty() && !ek.is_some_and(|ek| known.iter().any(|known| known == ek)) {
        return Err(super::identity::other_key(node).into());
    }
    if let Some(spent) = spent {
        contest(tx, join, node).await?;
        return Ok(Err(spent));
    }
    let certificate = certificate(join.call, &row, pool, (&join.request.key, &join.csr_sha256))?;
    join_tokens::consume(tx, join.token, false, now).await?;
    certificates::insert(tx, &certificate).await?;
    let row = JoinRow { node: node.clone(), serial: certificate.serial.clone(), generation: row.generation };
    let place = JoinPlace { remote_address: &join.remote_address, at: now };
    certificates::insert_join(tx, join.token, &join.csr_sha256, &row, place).await?;
    if let Some(ek) = ek {
        machine.identity.ek_sha256 = Some(ek.to_owned());
    }
    metal::agent_joined(tx, &machine, &join.key_sha256).await?;
    metal::nudge(tx, node).await?;
    tracing::info!(%node, remote = join.remote_address, "the agent of a machine has joined");
    Ok(Ok(JoinAnswer::Issued(issue::answer(&relay.ca.load(), &certificate, now))))
}

/// Cuts off the agent that came first, and ends its workflow: a second one has come that may as well be the machine's own. Nobody can
/// tell which of them took the image off the network, or whether the machine has started from it twice.
async fn contest(tx: &mut Tx<'_>, join: &Submission<'_>, node: &NodeId) -> Result<(), Fault> {
    tracing::warn!(%node, remote = join.remote_address, "a second agent has come to a machine by the token of one start");
    Ok(metal::agent_contested(tx, node, &Cause::AgentContested.told()).await?)
}

/// The answer to a join that was admitted before, as long as the agent counts.
async fn replay(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    token: &TokenFacts,
    machine: &Machine,
    prior: &JoinRow,
) -> Result<JoinAnswer, Fault> {
    tokens::not_revoked(token)?;
    let stored = certificates::find(tx, &prior.serial).await?;
    let counts = machine.agent_key.as_deref() == Some(join.key_sha256.as_str());
    match stored.filter(|stored| counts && join.call.now < stored.not_after) {
        Some(stored) => {
            Ok(JoinAnswer::Issued(issue::answer(&join.call.relay.ca.load(), &stored, join.call.now)))
        }
        None => Err(standing::superseded().into()),
    }
}

/// Renews an agent's certificate: for the key that it has, at once.
///
/// # Errors
/// UNAUTHENTICATED; `superseded` where the agent does not count any more, or for another key.
pub(super) async fn renew(call: &Call, input: &RenewInput) -> Result<JoinAnswer, Fault> {
    let request = super::submit::read_request(&input.csr)?;
    let peer = call.peer()?;
    if !standing::in_time(peer, call.now, 0) {
        return Err(unauthenticated().into());
    }
    if request.key.digest() != peer.key_digest {
        return Err(standing::superseded().into());
    }
    let csr_sha256 = hex::encode(&request.digest());
    let context = (call, peer, &request.key, csr_sha256.as_str());
    call.relay
        .store
        .transact("node.renew", context, |tx, (call, peer, key, csr_sha256)| {
            Box::pin(async move {
                let node = nodes::lock(tx, &peer.node).await?.ok_or_else(unauthenticated)?;
                counts(tx, peer).await?;
                let pool = pools::load(tx, &node.pool_id).await?.ok_or_else(standing::released)?;
                let fresh = certificate(call, &node, &pool, (key, csr_sha256))?;
                certificates::insert(tx, &fresh).await?;
                let ca = call.relay.ca.load();
                Ok::<_, Fault>(JoinAnswer::Issued(issue::answer(&ca, &fresh, call.now)))
            })
        })
        .await
}

/// The machine whose agent shows this certificate, as long as it counts.
///
/// # Errors
/// UNAUTHENTICATED for any other certificate; nodeBanned, nodeReleased; `superseded` where the agent does not count any more.
pub async fn counts(tx: &mut Tx<'_>, peer: &PeerCertificate) -> Result<Machine, Fault> {
    if peer.kind != Profile::Agent {
        return Err(unauthenticated().into());
    }
    let node = nodes::find(tx, &peer.node).await?.ok_or_else(unauthenticated)?;
    standing::judge("", &node)?;
    let machine = metal::find(tx, &peer.node).await?.ok_or_else(unauthenticated)?;
    if machine.agent_key.as_deref() == Some(hex::encode(&peer.key_digest).as_str()) {
        Ok(machine)
    } else {
        Err(standing::superseded().into())
    }
}

fn certificate(
    call: &Call,
    node: &NodeFacts,
    pool: &PoolFacts,
    (key, csr_sha256): (&PublicKey, &str),
) -> Result<CertificateRow, Fault> {
    let id: &NodeId = &node.id;
    let ca = call.relay.ca.load();
    let issued = ca
        .issue_node(Profile::Agent, key, &pool.uid, id, call.now, TTL_SECONDS)
        .map_err(Fault::internal::<CaError>("issuing a certificate"))?;
    Ok(CertificateRow {
        serial: issued.serial,
        node: id.clone(),
        generation: node.generation,
        issuer: issued.issuer,
        certificate: issued.certificate_pem,
        chain: issued.chain_pem,
        csr_sha256: csr_sha256.to_owned(),
        key_sha256: hex::encode(&key.digest()),
        trust: node.trust,
        not_before: issued.not_before,
        not_after: issued.not_after,
    })
}
