//! The tables `certificates` (every certificate of a node) and `joins` (which request each join admitted).

use super::{Fault, Row, StoreError, Tx};
use crate::ca::Revoked;
use shared::{
    api::node::Trust,
    id::{JoinTokenId, NodeId},
    time::Timestamp,
};

const INSERT: &str = "INSERT INTO certificates (serial, node_id, generation, issuer, certificate, chain, csr_sha256, \
    key_sha256, trust, not_before, not_after) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";
const FIND: &str = "SELECT serial, node_id, generation, issuer, certificate, chain, csr_sha256, key_sha256, trust, \
    not_before, not_after FROM certificates WHERE serial = $1";
const USED: &str = "UPDATE certificates SET first_used_at = $2 WHERE serial = $1 AND first_used_at IS NULL";
// What was issued in the same second counts as issued later: between its renewals a node waits longer.
const OVERTAKEN: &str = "SELECT later.serial FROM certificates old \
    JOIN nodes n ON n.id = old.node_id AND n.generation = old.generation AND n.state = 'live' \
    JOIN certificates later ON later.node_id = old.node_id AND later.generation = old.generation \
    AND later.serial <> old.serial AND later.not_before >= old.not_before \
    WHERE old.serial = $1 AND old.node_id = $2 AND old.serial <> n.current_serial \
    AND old.serial <> COALESCE(n.next_serial, '') AND later.first_used_at <= $3 LIMIT 1";
const FIND_JOIN: &str =
    "SELECT node_id, serial, generation FROM joins WHERE token_id = $1 AND csr_sha256 = $2";
const INSERT_JOIN: &str = "INSERT INTO joins (token_id, csr_sha256, node_id, serial, generation, remote_address, \
    joined_at) VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (token_id, csr_sha256) DO NOTHING";
const RESERIAL_JOIN: &str = "UPDATE joins SET serial = $3 WHERE token_id = $1 AND csr_sha256 = $2";
const REVOKED: &str = "SELECT c.serial, COALESCE(n.ended_at, n.joined_at) AS revoked_at FROM certificates c \
    JOIN nodes n ON n.id = c.node_id WHERE c.issuer = $1 AND c.not_after > $2 \
    AND (n.state <> 'live' OR c.generation < n.generation) ORDER BY c.serial LIMIT 100001";
/// The most entries of a CRL: one less than the statement's LIMIT.
const MAX_REVOKED: usize = 100_000;
const FORGET: &str = "DELETE FROM certificates WHERE serial IN \
    (SELECT serial FROM certificates WHERE not_after < $1 AND serial NOT IN \
    (SELECT current_serial FROM nodes) AND serial NOT IN (SELECT serial FROM joins) LIMIT $2)";

pub(super) const STATEMENTS: &[&str] =
    &[INSERT, FIND, USED, OVERTAKEN, FIND_JOIN, INSERT_JOIN, RESERIAL_JOIN, REVOKED, FORGET];

/// A certificate as it was issued.
#[derive(Clone, Debug)]
pub struct CertificateRow {
    /// Hexadecimal.
    pub serial: String,
    /// Its node.
    pub node: NodeId,
    /// The node's generation when it was issued.
    pub generation: i64,
    /// The issuing CA's id.
    pub issuer: String,
    /// PEM.
    pub certificate: String,
    /// PEM of the issuing CA.
    pub chain: String,
    /// The request that it answers.
    pub csr_sha256: String,
    /// Its key.
    pub key_sha256: String,
    /// What the node was taken for.
    pub trust: Trust,
    /// Start.
    pub not_before: Timestamp,
    /// End.
    pub not_after: Timestamp,
}

/// What a join was: which node, which certificate.
#[derive(Clone, Debug)]
pub struct JoinRow {
    /// The node.
    pub node: NodeId,
    /// The certificate that the join answers.
    pub serial: String,
    /// The node's generation then.
    pub generation: i64,
}

/// Writes a certificate.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, certificate: &CertificateRow) -> Result<(), StoreError> {
    let row = [
        (&certificate.serial).into(),
        certificate.node.as_str().into(),
        certificate.generation.into(),
        (&certificate.issuer).into(),
        (&certificate.certificate).into(),
        (&certificate.chain).into(),
        (&certificate.csr_sha256).into(),
        (&certificate.key_sha256).into(),
        certificate.trust.as_str().into(),
        certificate.not_before.into(),
        certificate.not_after.into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// The certificate with this serial.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, serial: &str) -> Result<Option<CertificateRow>, StoreError> {
    tx.fetch_optional(FIND, &[serial.into()]).await?.map(|row| certificate(&row)).transpose()
}

/// Notes the first use.
///
/// # Errors
/// The store's.
pub async fn used(tx: &mut Tx<'_>, serial: &str, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(USED, &[serial.into(), now.into()]).await.map(drop)
}

/// Whether a certificate is one of a live node's that counts no more, of the node's present generation, and one that was
/// issued after it was in use at `used_by` or before.
///
/// # Errors
/// The store's.
pub async fn overtaken(
    tx: &mut Tx<'_>,
    serial: &str,
    node: &NodeId,
    used_by: Timestamp,
) -> Result<bool, StoreError> {
    let args = [serial.into(), node.as_str().into(), used_by.into()];
    Ok(tx.fetch_optional(OVERTAKEN, &args).await?.is_some())
}

/// The join that this token and request named, if it was admitted.
///
/// # Errors
/// The store's.
pub async fn find_join(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    csr_sha256: &str,
) -> Result<Option<JoinRow>, StoreError> {
    let row = tx.fetch_optional(FIND_JOIN, &[token.as_str().into(), csr_sha256.into()]).await?;
    row.map(|row| {
        Ok(JoinRow {
            node: row.parsed("node_id")?,
            serial: row.text("serial")?,
            generation: row.integer("generation")?,
        })
    })
    .transpose()
}

/// Where and when a join was admitted.
#[derive(Clone, Copy, Debug)]
pub struct JoinPlace<'a> {
    /// The caller's address.
    pub remote_address: &'a str,
    /// When.
    pub at: Timestamp,
}

/// Writes a join.
///
/// # Errors
/// The store's; [`StoreError::Race`] if the same join was admitted meanwhile.
pub async fn insert_join(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    csr_sha256: &str,
    join: &JoinRow,
    place: JoinPlace<'_>,
) -> Result<(), StoreError> {
    let row = [
        token.as_str().into(),
        csr_sha256.into(),
        join.node.as_str().into(),
        (&join.serial).into(),
        join.generation.into(),
        place.remote_address.into(),
        place.at.into(),
    ];
    if tx.execute(INSERT_JOIN, &row).await? == 1 { Ok(()) } else { Err(StoreError::Race) }
}

/// A join's certificate had expired and was issued anew.
///
/// # Errors
/// The store's.
pub async fn reserial_join(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    csr_sha256: &str,
    serial: &str,
) -> Result<(), StoreError> {
    tx.execute(RESERIAL_JOIN, &[token.as_str().into(), csr_sha256.into(), serial.into()]).await.map(drop)
}

/// The certificates of an issuing CA that must not be accepted any more and have not expired: those of nodes that
/// are banned or released, and of earlier generations.
///
/// # Errors
/// The store's. More than 100,000 are none at all: a list that was cut would let through what it leaves out.
pub async fn revoked(tx: &mut Tx<'_>, issuer: &str, now: Timestamp) -> Result<Vec<Revoked>, StoreError> {
    let rows = tx.fetch_all(REVOKED, &[issuer.into(), now.into()]).await?;
    if rows.len() > MAX_REVOKED {
        let rule = "over 100,000 revoked certificates have not expired: too many for one CRL";
        return Err(StoreError::Other(Fault::new(rule)));
    }
    rows.iter().map(|row| Ok(Revoked { serial: row.text("serial")?, at: row.time("revoked_at")? })).collect()
}

/// Forgets at most `most` certificates that ended before `before` and that nothing refers to.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

fn certificate(row: &Row) -> Result<CertificateRow, StoreError> {
    Ok(CertificateRow {
        serial: row.text("serial")?,
        node: row.parsed("node_id")?,
        generation: row.integer("generation")?,
        issuer: row.text("issuer")?,
        certificate: row.text("certificate")?,
        chain: row.text("chain")?,
        csr_sha256: row.text("csr_sha256")?,
        key_sha256: row.text("key_sha256")?,
        trust: row.word("trust")?,
        not_before: row.time("not_before")?,
        not_after: row.time("not_after")?,
    })
}
