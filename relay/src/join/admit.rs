//! Writing a join that was judged: all of it in the transaction that judged it.

use super::{
    issue::{self, Order},
    queue,
    requests::Earlier,
    submit::{self, Submission},
    trust,
};
use crate::{
    crls,
    events::{Event, Kind, Origin},
    facts::{Identity, NodeFacts, PoolFacts, TokenFacts},
    fault::Fault,
    store::{
        StoreError, Tx,
        certificates::{self, CertificateRow, JoinPlace, JoinRow},
        events,
        identifiers::{self, Holder},
        identities, join_tokens, metal,
        node_conditions::{self, IDENTITY_DRIFT},
        nodes::{self, Joined, NewNode},
    },
};
use serde_json::json;
use shared::{
    api::{
        join_tokens::Hosted,
        node::{JoinAnswer, Trust},
    },
    id::{JoinRequestId, NodeId},
};

/// A join that was judged: what is left is to write it.
pub(super) struct Admitted<'a> {
    pub(super) join: &'a Submission<'a>,
    pub(super) token: TokenFacts,
    pub(super) pool: PoolFacts,
    /// The identities that the node will hold.
    pub(super) wanted: Vec<Identity>,
    pub(super) reclaim: bool,
    /// The node that it is, or takes over.
    pub(super) incumbent: Option<NodeFacts>,
    /// The request that admits it, with the use that it holds.
    pub(super) by: Option<JoinRequestId>,
    /// The requests that it has made, that one among them.
    pub(super) earlier: Vec<Earlier>,
}

/// Writes the node, its certificate, the use and the event, and ends the join's requests.
///
/// # Errors
/// The store's; [`StoreError::Race`] where something came between.
pub(super) async fn admit(tx: &mut Tx<'_>, admitted: Admitted<'_>) -> Result<JoinAnswer, Fault> {
    let Admitted { join, token, pool, incumbent, reclaim, by, earlier, .. } = &admitted;
    let relay = &join.call.relay;
    let now = join.call.now;
    // A node keeps `hosted` and its trust only falls, whatever token it joins again with.
    let hosted: Option<Hosted> = incumbent.as_ref().and_then(|node| node.hosted).or(token.hosted);
    // A metal machine's next system is judged afresh: nothing is left of the one before.
    let fresh = token.node.is_some();
    let hosted = if fresh { token.hosted } else { hosted };
    let evaluated = trust::evaluate(pool, hosted);
    let (node, generation, trust): (NodeId, i64, Trust) = match incumbent {
        None => (NodeId::draw(now, relay.random.bytes()), 1, evaluated),
        Some(node) => {
            let trust = if fresh { evaluated } else { trust::fallen(node.trust, evaluated) };
            (node.id.clone(), node.generation + i64::from(*reclaim), trust)
        }
    };
    let order =
        Order { pool, node: &node, generation, trust, key: &join.request.key, csr_sha256: &join.csr_sha256 };
    let certificate = issue::certificate(&relay.ca.load(), &order, now)?;
    join_tokens::consume(tx, join.token, by.is_some(), now).await?;
    let given_back = queue::settle(tx, join, pool, by.as_ref(), earlier).await?;
    write_node(tx, &admitted, &node, &certificate, hosted).await?;
    certificates::insert(tx, &certificate).await?;
    let row = JoinRow { node: node.clone(), serial: certificate.serial.clone(), generation };
    let place = JoinPlace { remote_address: &join.remote_address, at: now };
    certificates::insert_join(tx, join.token, &join.csr_sha256, &row, place).await?;
    publish(tx, &admitted, &certificate, given_back).await?;
    if token.node.is_some() {
        // The workflow that installed it waits for this.
        metal::nudge(tx, &node).await?;
    }
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
        ek_sha256: join.ek_sha256(),
        ek_manufacturer: join.ek_manufacturer(),
        ek_vouched: join.ek_vouched().unwrap_or_default(),
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
            crls::changed(tx, &join.call.relay.random).await?;
            nodes::replace_certificate(tx, node, &join.key_sha256, &certificate.serial).await?;
            // Its endorsement keys stay: only a machine with one of them takes it over.
            identities::free_claims(tx, node).await?;
            identities::free_other_keys(tx, node, &join.key_sha256).await?;
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
    let holder = Holder { tenant_id: &pool.tenant_id, id: node.as_str() };
    if incumbent.is_some() {
        identifiers::forget(tx, holder.id).await?;
        // What is told of a key outlives another join of it.
        match reclaim {
            true => node_conditions::clear_all(tx, node).await?,
            false => node_conditions::clear(tx, node, IDENTITY_DRIFT).await?,
        }
    }
    identifiers::note(tx, holder, &join.machine, join.ek_sha256()).await?;
    // A ban frees what it covers. Now that this node holds all of it, a ban that came between is seen: judge again.
    match submit::banned(tx, join, pool).await? {
        true => Err(StoreError::Race.into()),
        false => Ok(()),
    }
}

async fn publish(
    tx: &mut Tx<'_>,
    admitted: &Admitted<'_>,
    certificate: &CertificateRow,
    given_back: i64,
) -> Result<(), Fault> {
    let Admitted { join, token, pool, reclaim, incumbent, by, .. } = admitted;
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
        "ekSha256": join.ek_sha256(),
        "joinRequestId": by,
    });
    // The node of a metal machine was there before it first joined.
    let again = incumbent.as_ref().is_some_and(|node| node.generation > 0);
    let kind = if *reclaim && again { Kind::NodeReclaimed } else { Kind::NodeJoined };
    let random = &join.call.relay.random;
    let event = Event { kind, tenant: &pool.tenant_id, subject: certificate.node.as_str(), data };
    events::insert(tx, random, &origin, &event).await?;
    let held = token.pending - i64::from(by.is_some()) - given_back;
    if token.uses + 1 + held >= token.max_uses {
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
