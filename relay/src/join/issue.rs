//! A certificate to issue, and the answer that carries it.

use super::trust;
use crate::{
    ca::{Authority, BACKDATE_SECONDS, CaError, Domain},
    facts::PoolFacts,
    fault::Fault,
    store::certificates::CertificateRow,
};
use shared::{
    api::node::{Issued, Trust},
    csr::PublicKey,
    hex,
    id::NodeId,
    time::Timestamp,
};

/// What a certificate is to say.
pub struct Order<'a> {
    /// The pool: its id and its policy.
    pub pool: &'a PoolFacts,
    /// The node.
    pub node: &'a NodeId,
    /// The node's generation.
    pub generation: i64,
    /// What the relay takes it for: which CA issues.
    pub trust: Trust,
    /// The key; of a request only this counts.
    pub key: &'a PublicKey,
    /// The request that is answered.
    pub csr_sha256: &'a str,
}

/// Signs a certificate. Nothing is stored yet.
///
/// # Errors
/// The CA can't sign now.
pub fn certificate(ca: &Authority, order: &Order<'_>, now: Timestamp) -> Result<CertificateRow, Fault> {
    let ttl = u32::try_from(order.pool.policy.certificate_ttl_seconds.get()).unwrap_or(u32::MAX);
    let issued = ca
        .issue_node(trust::profile(order.trust), order.key, &order.pool.uid, order.node, now, ttl)
        .map_err(Fault::internal::<CaError>("issuing a certificate"))?;
    Ok(CertificateRow {
        serial: issued.serial,
        node: order.node.clone(),
        generation: order.generation,
        issuer: issued.issuer,
        certificate: issued.certificate_pem,
        chain: issued.chain_pem,
        csr_sha256: order.csr_sha256.to_owned(),
        key_sha256: hex::encode(&order.key.digest()),
        trust: order.trust,
        not_before: issued.not_before,
        not_after: issued.not_after,
    })
}

/// The answer with a certificate: what its holder needs to use it and when to renew it.
#[must_use]
pub fn answer(ca: &Authority, certificate: &CertificateRow, now: Timestamp) -> Issued {
    let issued_at = certificate.not_before.plus_seconds(BACKDATE_SECONDS);
    let half_life = certificate.not_after.since(issued_at).as_secs() / 2;
    Issued {
        node_id: certificate.node.clone(),
        generation: certificate.generation,
        trust: certificate.trust,
        certificate: certificate.certificate.clone(),
        chain: certificate.chain.clone(),
        ca_bundle: ca.bundle(Domain::Platform),
        renew_after: issued_at.plus_seconds(i64::try_from(half_life).unwrap_or(0)),
        expires_at: certificate.not_after,
        server_time: now,
    }
}
