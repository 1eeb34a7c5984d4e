//! A join, start to end.
//!
//! The request is read and its signature checked before the transaction; inside it: lock the token, find the join
//! if it was admitted before, judge token, bans, pins and identities, then write all of it. See the module above
//! for why that admits exactly once.

use super::{
    identity::{self, ALIVE_SECONDS, Admission, Incumbent, Newcomer},
    issue::{self, Order},
    standing, tokens, trust,
};
use crate::{
    call::{Call, unauthenticated},
    csr,
    events::{Event, Kind, Origin},
    facts::{self, Held, NodeFacts, PoolFacts, TokenFacts},
    fault::Fault,
    store::{
        StoreError, Tx,
        certificates::{self, CertificateRow, JoinPlace, JoinRow},
        events, identities, join_tokens,
        nodes::{self, Joined, NewNode},
        pools,
    },
};
use serde_json::json;
use shared::{
    api::{
        join_tokens::Hosted,
        node::{JoinAnswer, JoinInput, Trust},
        nodes::NodeState,
        pools::TpmMode,
    },
    csr::CertificateRequest,
    hardware::{Identity, Machine},
    hex,
    id::{JoinTokenId, NodeId},
    problem::{Problem, Reason},
};

/// A join that is ready to be judged: everything that needs no store is done.
struct Submission<'a> {
    call: &'a Call,
    token: &'a JoinTokenId,
    request: CertificateRequest,
    csr_sha256: String,
    key_sha256: String,
    machine: Machine,
    identity: Identity,
    remote_address: String,
    agent_version: &'a str,
    kubernetes_node_name: Option<&'a str>,
}

/// Joins a machine.
///
/// # Errors
/// Every refusal of the API's table that needs no TPM and no person.
pub async fn submit(call: &Call, input: &JoinInput) -> Result<JoinAnswer, Fault> {
    let request = read_request(&input.csr)?;
    let machine = Machine::judge(&input.identity);
    let submission = Submission {
        call,
        token: call.join_token()?,
        csr_sha256: hex::encode(&request.digest()),
        key_sha256: hex::encode(&request.key.digest()),
        request,
        identity: machine.to_identity(),
        machine,
        remote_address: call.remote.to_string(),
        agent_version: &input.agent.version,
        kubernetes_node_name: input.kubernetes.as_ref().map(|cluster| cluster.node_name.as_str()),
    };
    call.relay
        .store
        .transact("node.join", submission, |tx, submission| Box::pin(judge_and_admit(tx, submission)))
        .await
}

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

async fn judge_and_admit(tx: &mut Tx<'_>, join: &Submission<'_>) -> Result<JoinAnswer, Fault> {
    let token = join_tokens::lock(tx, join.token).await?.ok_or_else(unauthenticated)?;
    let pool = pools::load(tx, &token.pool_id).await?.ok_or_else(pool_gone)?;
    if let Some(prior) = certificates::find_join(tx, join.token, &join.csr_sha256).await? {
        return replay(tx, join, &token, &pool, prior).await;
    }
    tokens::admits(&token, join.call.now)?;
    if banned(tx, join, &pool).await? {
        return Err(standing::banned().into());
    }
    judge_machine(join, &token, &pool)?;
    let wanted = identity::identities_of(&join.machine, &join.key_sha256);
    let held = identities::lock(tx, &pool.site_id, &join.key_sha256, wanted.get(1)).await?;
    let (incumbents, mut rows) = load_incumbents(tx, join, held).await?;
    let newcomer = Newcomer {
        pool_id: &pool.pool_id,
        tenant_id: &pool.tenant_id,
        allow_reclaim: token.allow_reclaim,
        pinned: token.expect.is_some(),
    };
    let admission = identity::admission(newcomer, &incumbents)?;
    let incumbent = match &admission {
        Admission::New => None,
        Admission::Same(id) | Admission::Reclaim(id) => {
            rows.iter().position(|row| row.id == *id).map(|at| rows.swap_remove(at))
        }
    };
    admit(
        tx,
        Admitted {
            join,
            token,
            pool,
            wanted,
            reclaim: matches!(admission, Admission::Reclaim(_)),
            incumbent,
        },
    )
    .await
}

fn pool_gone() -> Problem {
    Problem::refused(Reason::TokenRevoked, "The token's pool was deleted; ask for a token of another pool.")
}

async fn banned(tx: &mut Tx<'_>, join: &Submission<'_>, pool: &PoolFacts) -> Result<bool, Fault> {
    let (uuid, serial) = (join.machine.product_uuid.usable(), join.machine.serial.usable());
    Ok(identities::banned(tx, &pool.site_id, &join.key_sha256, uuid, serial).await?.is_some())
}

/// What token and policy demand of the machine itself.
fn judge_machine(join: &Submission<'_>, token: &TokenFacts, pool: &PoolFacts) -> Result<(), Problem> {
    if let Some(expect) = &token.expect {
        tokens::matches_pin(expect, &join.machine)?;
    }
    if pool.policy.attestors.tpm == TpmMode::Required {
        return Err(tokens::tpm_required("The pool's policy demands a TPM"));
    }
    Ok(())
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
    let mut rows = Vec::with_capacity(ids.len());
    for id in &ids {
        let row = nodes::lock(tx, id).await?.filter(|row| row.state == NodeState::Live);
        // The identity was read before the node was locked: it may have been let go meanwhile.
        rows.push(row.ok_or(StoreError::Race)?);
    }
    let incumbents = held.into_iter().filter_map(|held| {
        let row = rows.iter().find(|row| row.id == held.node)?;
        let alive = row.last_heartbeat_at.is_some_and(|at| join.call.now < at.plus_seconds(ALIVE_SECONDS));
        Some(Incumbent {
            identity: held.identity,
            node: held.node,
            tenant_id: row.tenant_id.clone(),
            pool_id: row.pool_id.clone(),
            alive,
        })
    });
    Ok((incumbents.collect(), rows))
}

/// A join that was judged: what is left is to write it.
struct Admitted<'a> {
    join: &'a Submission<'a>,
    token: TokenFacts,
    pool: PoolFacts,
    wanted: Vec<facts::Identity>,
    reclaim: bool,
    incumbent: Option<NodeFacts>,
}

async fn admit(tx: &mut Tx<'_>, admitted: Admitted<'_>) -> Result<JoinAnswer, Fault> {
    let Admitted { join, token, pool, incumbent, reclaim, .. } = &admitted;
    let relay = &join.call.relay;
    let now = join.call.now;
    // A node keeps `hosted` and its trust only falls, whatever token it joins again with.
    let hosted: Option<Hosted> = incumbent.as_ref().and_then(|node| node.hosted).or(token.hosted);
    let evaluated = trust::evaluate(pool, hosted);
    let (node, generation, trust): (NodeId, i64, Trust) = match incumbent {
        None => (NodeId::draw(now, relay.random.bytes()), 1, evaluated),
        Some(node) => {
            (node.id.clone(), node.generation + i64::from(*reclaim), trust::fallen(node.trust, evaluated))
        }
    };
    let order =
        Order { pool, node: &node, generation, trust, key: &join.request.key, csr_sha256: &join.csr_sha256 };
    let certificate = issue::certificate(&relay.ca.load(), &order, now)?;
    join_tokens::consume(tx, join.token, now).await?;
    write_node(tx, &admitted, &node, &certificate, hosted).await?;
    certificates::insert(tx, &certificate).await?;
    let row = JoinRow { node: node.clone(), serial: certificate.serial.clone(), generation };
    let place = JoinPlace { remote_address: &join.remote_address, at: now };
    certificates::insert_join(tx, join.token, &join.csr_sha256, &row, place).await?;
    publish(tx, &admitted, &certificate).await?;
    Ok(JoinAnswer::Issued(issue::answer(&relay.ca.load(), &certificate, now)))
}

/// Writes the node and makes it the holder of what the machine is.
async fn write_node(
    tx: &mut Tx<'_>,
    admitted: &Admitted<'_>,
    node: &NodeId,
    certificate: &CertificateRow,
    hosted: Option<Hosted>,
) -> Result<(), Fault> {
    let Admitted { join, pool, wanted, reclaim, incumbent, .. } = admitted;
    let joined = Joined {
        id: node,
        trust: certificate.trust,
        hosted,
        identity: &join.identity,
        token: join.token,
        remote_address: &join.remote_address,
        kubernetes_node_name: join.kubernetes_node_name,
        agent_version: join.agent_version,
        at: join.call.now,
    };
    match incumbent {
        None => {
            let new = NewNode {
                pool_id: &pool.pool_id,
                tenant_id: &pool.tenant_id,
                site_id: &pool.site_id,
                key_sha256: &join.key_sha256,
                serial: &certificate.serial,
            };
            nodes::insert(tx, new, &joined).await?;
        }
        Some(_) if *reclaim => {
            nodes::rejoin(tx, certificate.generation, &joined).await?;
            nodes::replace_certificate(tx, node, &join.key_sha256, &certificate.serial).await?;
            identities::free(tx, node).await?;
        }
        Some(_) => {
            nodes::rejoin(tx, certificate.generation, &joined).await?;
            nodes::offer_certificate(tx, node, &certificate.serial, certificate.trust).await?;
            identities::free_claims(tx, node).await?;
        }
    }
    for identity in wanted {
        if !identities::hold(tx, &pool.site_id, identity, node).await? {
            // Somebody was admitted with it since it was looked for: judge again.
            return Err(StoreError::Race.into());
        }
    }
    // A ban frees what it covers. Now that this node holds all of it, a ban that came between is seen: judge again.
    match banned(tx, join, pool).await? {
        true => Err(StoreError::Race.into()),
        false => Ok(()),
    }
}

async fn publish(
    tx: &mut Tx<'_>,
    admitted: &Admitted<'_>,
    certificate: &CertificateRow,
) -> Result<(), Fault> {
    let Admitted { join, token, pool, reclaim, .. } = admitted;
    let origin =
        Origin { actor: join.token.to_string(), request_id: join.call.request_id.clone(), at: join.call.now };
    let data = json!({
        "poolId": pool.pool_id,
        "tokenId": join.token,
        "generation": certificate.generation,
        "trust": certificate.trust,
        "serial": certificate.serial,
        "keySha256": join.key_sha256,
        "csrSha256": join.csr_sha256,
        "remoteAddress": join.remote_address,
        "placeholders": join.machine.placeholders(),
    });
    let kind = if *reclaim { Kind::NodeReclaimed } else { Kind::NodeJoined };
    let random = &join.call.relay.random;
    let event = Event { kind, tenant: &pool.tenant_id, subject: certificate.node.as_str(), data };
    events::insert(tx, random, &origin, &event).await?;
    if token.uses + 1 + token.pending >= token.max_uses {
        let data = json!({"poolId": pool.pool_id, "maxUses": token.max_uses});
        let event = Event {
            kind: Kind::JoinTokenExhausted,
            tenant: &pool.tenant_id,
            subject: join.token.as_str(),
            data,
        };
        events::insert(tx, random, &origin, &event).await?;
    }
    Ok(())
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
