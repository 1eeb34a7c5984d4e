//! A join, from its request to its judgement.
//!
//! The request is read and its signature checked before the transaction; inside it: lock the token, find the join
//! if it was admitted before, lock its requests, judge token, bans, pins, identities and attestors, then admit it
//! (`admit`), queue it (`queue`) or refuse it. See the module above for why that admits exactly once.

use super::{
    admit::{self, Admitted},
    agent,
    attest::{self, Verdict, discovery},
    evidence::{self, Evidence, Proven},
    identity::{self, ALIVE_SECONDS, Admission, Collision, Incumbent, Named, Newcomer},
    issue::{self, Order},
    queue,
    requests::{self, About, Next},
    standing, tokens, trust,
};
use crate::{
    call::{Call, unauthenticated},
    csr,
    facts::{Held, NodeFacts, PoolFacts, TokenFacts, TokenPurpose},
    fault::Fault,
    store::{
        StoreError, Tx,
        certificates::{self, JoinRow},
        identities::{self, Claimed},
        inventory, join_requests, metal, nodes, pools,
    },
};
use shared::{
    api::{
        join_requests::DeferReason,
        node::{JoinAnswer, JoinInput},
        nodes::NodeState,
        pools::DiscoveryMode,
    },
    csr::CertificateRequest,
    hardware::{Identity, Machine, uuid_in_one_order},
    hex,
    id::{JoinTokenId, NodeId},
    problem::{Problem, Reason},
};

/// A join that is ready to be judged: everything that needs no store is done.
pub(super) struct Submission<'a> {
    pub(super) call: &'a Call,
    pub(super) token: &'a JoinTokenId,
    pub(super) request: CertificateRequest,
    pub(super) csr_sha256: String,
    pub(super) key_sha256: String,
    pub(super) machine: Machine,
    pub(super) identity: Identity,
    /// The endorsement key that it has proved.
    pub(super) proven: Option<Proven>,
    pub(super) remote_address: String,
    pub(super) agent_version: &'a str,
    pub(super) kubernetes_node_name: Option<&'a str>,
}

impl Submission<'_> {
    /// The endorsement key that the machine has proved.
    pub(super) fn ek_sha256(&self) -> Option<&str> {
        self.proven.as_ref().map(|proven| proven.ek_sha256.as_str())
    }

    /// Who made its TPM, as the key's certificate says.
    pub(super) fn ek_manufacturer(&self) -> Option<&str> {
        self.proven.as_ref().and_then(|proven| proven.manufacturer.as_deref())
    }

    /// Whether an authority of the pool vouches for the key, if there is one.
    pub(super) fn ek_vouched(&self) -> Option<bool> {
        self.proven.as_ref().map(Proven::is_vouched)
    }
}

/// Joins a machine.
///
/// # Errors
/// Every refusal of the API's table.
pub async fn submit(call: &Call, input: &JoinInput) -> Result<JoinAnswer, Fault> {
    let request = read_request(&input.csr)?;
    let token = call.join_token()?;
    let proven = match evidence::of_join(call, token, &request, input).await? {
        Evidence::Asked(challenge) => return Ok(JoinAnswer::Challenge(challenge)),
        Evidence::Proven(proven) => Some(proven),
        Evidence::Nothing => None,
    };
    let machine = Machine::judge(&input.identity);
    let submission = Submission {
        call,
        token,
        csr_sha256: hex::encode(&request.digest()),
        key_sha256: hex::encode(&request.key.digest()),
        request,
        identity: machine.to_identity(),
        machine,
        proven,
        remote_address: call.remote.to_string(),
        agent_version: &input.agent.version,
        kubernetes_node_name: input.kubernetes.as_ref().map(|cluster| cluster.node_name.as_str()),
    };
    let judged =
        call.relay.store.transact("node.join", submission, |tx, join| Box::pin(judge(tx, join))).await?;
    Ok(judged?)
}

/// What a join came to. A refusal in it is one that keeps what its transaction wrote.
pub(super) type Judged = Result<JoinAnswer, Problem>;

/// Reads a certificate request and checks that its sender holds the key.
///
/// # Errors
/// `badCsr`, naming the rule.
pub fn read_request(pem: &str) -> Result<CertificateRequest, Problem> {
    let bad = |rule: String| {
        let error = shared::problem::FieldError { field: "csr".to_owned(), message: rule };
        Problem::refused(
            Reason::BadCsr,
            "The certificate request is not one that a certificate can be made for.",
        )
        .with_errors(vec![error])
    };
    let request = CertificateRequest::parse(pem).map_err(|error| bad(error.to_string()))?;
    csr::verify_request(&request).map_err(|error| bad(error.to_string()))?;
    Ok(request)
}

async fn judge(tx: &mut Tx<'_>, join: &Submission<'_>) -> Result<Judged, Fault> {
    let now = join.call.now;
    let token = queue::lock_token(tx, &join.call.relay, join.token, now).await?;
    let token = token.ok_or_else(unauthenticated)?;
    let pool = pools::load(tx, &token.pool_id).await?.ok_or_else(pool_gone)?;
    if token.purpose == TokenPurpose::Agent {
        return agent::judge(tx, join, &token, &pool).await;
    }
    of_node(tx, join, token, pool).await.map(Ok)
}

/// The judgement of whoever is to be a node. The token is locked.
async fn of_node(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    token: TokenFacts,
    pool: PoolFacts,
) -> Result<JoinAnswer, Fault> {
    let now = join.call.now;
    if let Some(prior) = certificates::find_join(tx, join.token, &join.csr_sha256).await? {
        return replay(tx, join, &token, &pool, prior).await;
    }
    let earlier = join_requests::lock_of_join(tx, join.token, &join.csr_sha256).await?;
    tokens::hears(&token, !earlier.is_empty(), now)?;
    if banned(tx, join, &pool).await? {
        return Err(standing::banned().into());
    }
    let attested = attest(tx, join, &token, &pool).await?.reasons()?;
    let wanted = identity::identities_of(&join.machine, &join.key_sha256, join.ek_sha256());
    let held = identities::lock(tx, &pool.site_id, &wanted).await?;
    let (incumbents, mut rows) = load_incumbents(tx, join, held).await?;
    let eks = named(tx, &token, &mut rows).await?;
    let collision = identity::admission(newcomer(join, &token, &pool, &eks), &incumbents)?;
    let attested = if looked_at(tx, join, &collision.admission).await? { Vec::new() } else { attested };
    let reasons = reasons(attested, &collision);
    let content = queue::content(join, &pool);
    let about = About { content_sha256: &content, ek_sha256: join.ek_sha256(), incumbents: &collision.about };
    let by = match requests::next(&earlier, about, &reasons, now)? {
        Next::Admit(Some(by)) => Some(by),
        Next::Admit(None) => {
            tokens::admits(&token, now)?;
            None
        }
        Next::Wait(id) => return Ok(queue::waiting(&pool, id, &reasons)),
        Next::Ask => {
            tokens::admits(&token, now)?;
            requests::has_room(token.pending)?;
            return queue::ask(tx, join, &pool, about, reasons, &incumbents).await;
        }
    };
    let incumbent = match &collision.admission {
        Admission::New => None,
        Admission::Same(id) | Admission::Reclaim(id) => {
            rows.iter().position(|row| row.id == *id).map(|at| rows.swap_remove(at))
        }
    };
    let reclaim = matches!(collision.admission, Admission::Reclaim(_));
    let wanted = wanted.into_iter().filter(|identity| !collision.disputed.contains(identity)).collect();
    admit::admit(tx, Admitted { join, token, pool, wanted, reclaim, incumbent, by, earlier }).await
}

fn pool_gone() -> Problem {
    Problem::refused(Reason::TokenRevoked, "The token's pool was deleted; ask for a token of another pool.")
}

/// Whether a ban covers the machine, its key or its endorsement key.
pub(super) async fn banned(tx: &mut Tx<'_>, join: &Submission<'_>, pool: &PoolFacts) -> Result<bool, Fault> {
    let claimed = Claimed {
        key_sha256: &join.key_sha256,
        tenant_id: &pool.tenant_id,
        product_uuid: join.machine.product_uuid.usable().unwrap_or(""),
        serial: join.machine.serial.usable().unwrap_or(""),
        ek_sha256: join.ek_sha256().unwrap_or(""),
    };
    Ok(identities::banned(tx, &pool.site_id, claimed).await?.is_some())
}

/// What all attestors together say.
async fn attest(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    token: &TokenFacts,
    pool: &PoolFacts,
) -> Result<Verdict, Fault> {
    let (policy, ek) = (&pool.policy, join.ek_sha256());
    let endorsement = match &join.proven {
        Some(proven) => Some(evidence::endorsement(tx, token, pool, proven).await?),
        None => None,
    };
    // A token for one machine vouches for that one: whether this is it, its BMC has said.
    if let Some(node) = &token.node {
        let said = metal::find(tx, node).await?.map(|machine| machine.identity).unwrap_or_default();
        return Ok(attest::token::judge(token.expect.as_ref(), &join.machine, ek)
            .and(attest::endorsement::judge(policy, endorsement))
            .and(attest::bmc::judge(&said, &join.machine)));
    }
    let entries = match policy.attestors.discovery {
        DiscoveryMode::Off => Vec::new(),
        DiscoveryMode::Defer => {
            inventory::matching(tx, &pool.pool_id, &discovery::lookups(&join.machine, ek)).await?
        }
    };
    Ok(attest::token::judge(token.expect.as_ref(), &join.machine, ek)
        .and(attest::endorsement::judge(policy, endorsement))
        .and(discovery::judge(policy.attestors.discovery, &entries, &join.machine, ek))
        .and(attest::placeholders::judge(policy.placeholders, &join.machine, ek.is_some())))
}

/// Whether it is a node that comes back with its key and claims to be no other machine than it was: that one was looked at.
async fn looked_at(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    admission: &Admission,
) -> Result<bool, StoreError> {
    let Admission::Same(node) = admission else { return Ok(false) };
    let (before, now) = (nodes::identity(tx, node).await?, &join.identity);
    let uuid = |identity: &Identity| identity.product_uuid.as_deref().map(uuid_in_one_order);
    Ok((now.product_uuid.is_none() || uuid(now) == uuid(&before))
        && (now.serial.is_none() || now.serial == before.serial))
}

/// Why a person must look at the machine.
fn reasons(attested: Vec<DeferReason>, collision: &Collision) -> Vec<DeferReason> {
    let mut all: Vec<DeferReason> = attested.into_iter().chain(collision.reasons.iter().copied()).collect();
    all.sort();
    all
}

/// Locks the node that a token is for, if it is for one; answers the endorsement keys that it has proved.
async fn named(tx: &mut Tx<'_>, token: &TokenFacts, rows: &mut Vec<NodeFacts>) -> Result<Vec<String>, Fault> {
    let Some(node) = &token.node else { return Ok(Vec::new()) };
    let row = match rows.iter().find(|row| row.id == *node) {
        Some(row) => row.clone(),
        None => {
            let row = nodes::lock(tx, node).await?.ok_or_else(standing::released)?;
            standing::judge("", &row)?;
            rows.push(row.clone());
            row
        }
    };
    Ok(evidence::proven_keys(tx, &row).await?)
}

fn newcomer<'a>(
    join: &'a Submission<'_>,
    token: &'a TokenFacts,
    pool: &'a PoolFacts,
    eks: &'a [String],
) -> Newcomer<'a> {
    Newcomer {
        pool_id: &pool.pool_id,
        tenant_id: &pool.tenant_id,
        ek_sha256: join.ek_sha256(),
        allow_reclaim: token.allow_reclaim,
        pinned: token.expect.is_some(),
        named: token.node.as_ref().map(|node| Named { node, eks_sha256: eks }),
    }
}

/// The live nodes that hold the machine's identities, their rows locked in order of id.
async fn load_incumbents(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    held: Vec<Held>,
) -> Result<(Vec<Incumbent>, Vec<NodeFacts>), Fault> {
    let mut ids: Vec<NodeId> = held.iter().map(|held| held.node.clone()).collect();
    ids.sort();
    ids.dedup();
    let (mut rows, mut eks) = (Vec::with_capacity(ids.len()), Vec::new());
    for id in &ids {
        let row = nodes::lock(tx, id).await?.filter(|row| row.state == NodeState::Live);
        // The identity was read before the node was locked: it may have been let go meanwhile.
        let row = row.ok_or(StoreError::Race)?;
        eks.push(evidence::proven_keys(tx, &row).await?);
        rows.push(row);
    }
    let incumbents = held.into_iter().filter_map(|held| {
        let (row, eks) = rows.iter().zip(&eks).find(|(row, _)| row.id == held.node)?;
        let alive = row.last_heartbeat_at.is_some_and(|at| join.call.now < at.plus_seconds(ALIVE_SECONDS));
        Some(Incumbent {
            identity: held.identity,
            node: held.node,
            tenant_id: row.tenant_id.clone(),
            pool_id: row.pool_id.clone(),
            eks_sha256: eks.clone(),
            alive,
        })
    });
    Ok((incumbents.collect(), rows))
}

/// The answer to a join that was admitted before: the same certificate, or a fresh one if that has expired.
async fn replay(
    tx: &mut Tx<'_>,
    join: &Submission<'_>,
    token: &TokenFacts,
    pool: &PoolFacts,
    prior: JoinRow,
) -> Result<JoinAnswer, Fault> {
    tokens::not_revoked(token)?;
    let now = join.call.now;
    let ca = join.call.relay.ca.load();
    identities::lock_of(tx, &prior.node).await?;
    let node = nodes::lock(tx, &prior.node).await?.ok_or_else(standing::released)?;
    let standing = standing::judge(&prior.serial, &node)?;
    let previous = node.previous_serial.as_ref() == Some(&prior.serial);
    if prior.generation != node.generation || (standing == standing::Standing::Other && !previous) {
        return Err(standing::superseded().into());
    }
    let stored = certificates::find(tx, &prior.serial).await?.ok_or_else(standing::superseded)?;
    if now < stored.not_after {
        return Ok(JoinAnswer::Issued(issue::answer(&ca, &stored, now)));
    }
    // A renewal may have given the node another key since.
    standing::hold_key(tx, &node, &join.key_sha256).await?;
    let trust = trust::fallen(node.trust, trust::evaluate(pool, node.hosted));
    let (key, csr_sha256) = (&join.request.key, join.csr_sha256.as_str());
    let order = Order { pool, node: &node.id, generation: node.generation, trust, key, csr_sha256 };
    let fresh = issue::certificate(&ca, &order, now)?;
    certificates::insert(tx, &fresh).await?;
    nodes::offer_certificate(tx, &node.id, &fresh.serial, trust).await?;
    certificates::reserial_join(tx, join.token, &join.csr_sha256, &fresh.serial).await?;
    Ok(JoinAnswer::Issued(issue::answer(&ca, &fresh, now)))
}
