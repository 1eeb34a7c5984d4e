//! Renewal, in two phases: the certificate in use counts until the new one has been used once.
//!
//! A lost answer is harmless: the old certificate still works, and the same request again is given the same
//! certificate. The node's row is locked from the judgement to the commit, so a ban either comes first and the
//! renewal is refused, or comes after and refuses what was issued at its first use.

use super::{
    agent,
    evidence::{self, Evidence},
    issue::{self, Order},
    standing::{self, Standing},
    submit, trust,
};
use crate::{
    ca::Profile,
    call::{Call, unauthenticated},
    events::{Event, Kind, Origin},
    facts::NodeFacts,
    fault::Fault,
    store::{
        StoreError, Tx,
        certificates::{self, CertificateRow},
        events, identities, nodes, pools,
    },
};
use serde_json::json;
use shared::{
    api::node::{JoinAnswer, RenewInput, Trust},
    csr::CertificateRequest,
    hex,
};

struct Renewal<'a> {
    call: &'a Call,
    request: CertificateRequest,
    csr_sha256: String,
    key_sha256: String,
    /// Whether the key was proved beside the node's endorsement key.
    proven: bool,
}

/// Renews the caller's certificate.
///
/// # Errors
/// badCsr, nodeBanned, nodeReleased, superseded, identityTaken; UNAUTHENTICATED past the grace. With another key, of a node
/// that has proved an endorsement key: as `evidence::of_renewal`.
pub async fn renew(call: &Call, input: &RenewInput) -> Result<JoinAnswer, Fault> {
    if call.peer()?.kind == Profile::Agent {
        return agent::renew(call, input).await;
    }
    let request = submit::read_request(&input.csr)?;
    let proven = match evidence_of(call, &request, input).await? {
        Evidence::Asked(challenge) => return Ok(JoinAnswer::Challenge(challenge)),
        Evidence::Proven(_) => true,
        Evidence::Nothing => false,
    };
    let renewal = Renewal {
        proven,
        call,
        csr_sha256: hex::encode(&request.digest()),
        key_sha256: hex::encode(&request.key.digest()),
        request,
    };
    call.relay
        .store
        .transact("node.renew", renewal, |tx, renewal| Box::pin(judge_and_renew(tx, renewal)))
        .await
}

/// What a node must show that has proved an endorsement key and comes with another key than it has.
async fn evidence_of(
    call: &Call,
    request: &CertificateRequest,
    input: &RenewInput,
) -> Result<Evidence, Fault> {
    let peer = call.peer()?;
    let node = call.relay.lookups.find(&call.relay.store, &peer.node).await?;
    // Who may not call need not prove anything: it is told why where all of it is judged.
    let bound = node.filter(|node| {
        let own = match standing::judge(&peer.serial, node) {
            Ok(Standing::Current) => node.key_sha256.clone(),
            // Its first use: from now on its key is the node's.
            Ok(Standing::Next) => hex::encode(&peer.key_digest),
            Ok(Standing::Other) | Err(_) => return false,
        };
        own != hex::encode(&request.key.digest())
    });
    match bound.and_then(|node| Some((node.id, node.ek_sha256?))) {
        Some((node, ek)) => {
            let shown = (input.tpm.as_ref(), input.proof.as_ref());
            evidence::of_renewal(call, &node, &ek, request, shown)
        }
        None => Ok(Evidence::Nothing),
    }
}

async fn judge_and_renew(tx: &mut Tx<'_>, renewal: &Renewal<'_>) -> Result<JoinAnswer, Fault> {
    let (call, peer, now) = (renewal.call, renewal.call.peer()?, renewal.call.now);
    let ca = call.relay.ca.load();
    let (node, standing) = standing::stand(tx, peer, true).await?;
    let pool = pools::load(tx, &node.pool_id).await?.ok_or_else(standing::released)?;
    if !standing::in_time(peer, now, pool.policy.renew_grace_seconds.get()) {
        return Err(unauthenticated().into());
    }
    let node = standing::promote(tx, peer, node, standing, now).await?;
    let trust = trust::fallen(node.trust, trust::evaluate(&pool, node.hosted));
    if let Some(offered) = same_request(tx, renewal, &node, trust).await? {
        return Ok(JoinAnswer::Issued(issue::answer(&ca, &offered, now)));
    }
    // It was looked at before the row was locked: a key may have been proved or exchanged since.
    if node.ek_sha256.is_some() && node.key_sha256 != renewal.key_sha256 && !renewal.proven {
        return Err(StoreError::Race.into());
    }
    // What an earlier renewal offered and nobody used is given up.
    identities::free_other_keys(tx, &node.id, &node.key_sha256).await?;
    standing::hold_key(tx, &node, &renewal.key_sha256).await?;
    let order = Order {
        pool: &pool,
        node: &node.id,
        generation: node.generation,
        trust,
        key: &renewal.request.key,
        csr_sha256: &renewal.csr_sha256,
    };
    let fresh = issue::certificate(&ca, &order, now)?;
    certificates::insert(tx, &fresh).await?;
    nodes::offer_certificate(tx, &node.id, &fresh.serial, trust).await?;
    let origin = Origin { actor: node.id.to_string(), request_id: call.request_id.clone(), at: now };
    let data = json!({"poolId": pool.pool_id, "serial": fresh.serial, "previousSerial": node.current_serial, "trust": trust});
    let event = Event { kind: Kind::NodeRenewed, tenant: &pool.tenant_id, subject: node.id.as_str(), data };
    events::insert(tx, &call.relay.random, &origin, &event).await?;
    Ok(JoinAnswer::Issued(issue::answer(&ca, &fresh, now)))
}

/// The certificate that was offered for this very request and still counts.
async fn same_request(
    tx: &mut Tx<'_>,
    renewal: &Renewal<'_>,
    node: &NodeFacts,
    trust: Trust,
) -> Result<Option<CertificateRow>, Fault> {
    let Some(serial) = &node.next_serial else { return Ok(None) };
    let offered = certificates::find(tx, serial).await?;
    Ok(offered.filter(|offered| {
        offered.csr_sha256 == renewal.csr_sha256
            && offered.trust == trust
            && renewal.call.now < offered.not_after
    }))
}
