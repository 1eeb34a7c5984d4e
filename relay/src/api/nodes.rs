//! compute/nodes: the machines of a pool, and the moves that people make with them.
//!
//! live → banned | released; banned → live | released; released is final. The same move again changes nothing and
//! tells nobody.

use super::{
    pools::{DecidedBy, named},
    steps::{News, announce, conflict, invalid_state, page, page_size},
};
use crate::{
    auth::policy::not_found,
    call::Call,
    crls,
    events::Kind,
    facts::{Identity, IdentityKind},
    fault::Fault,
    store::{StoreError, Tx, identifiers, identities, metal, node_views, nodes as rows},
};
use serde_json::json;
use shared::{
    api::{
        access::Action,
        metal::MetalState,
        nodes::{BanNode, BannedIdentifier, GetNode, ListNodes, Node, NodeAnswer, NodeList, NodeState},
    },
    bounded::Label,
    id::NodeId,
    problem::Problem,
};

/// compute/nodes/list: without the released ones unless told otherwise.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListNodes) -> Result<NodeList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::NodesRead, DecidedBy::PoolTenant).await?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            let released_too = input.include_released.unwrap_or(false);
            Ok::<_, Fault>(node_views::page(tx, &pool.pool_id, released_too, after, size + 1).await?)
        })
    });
    let (nodes, cursor) = page(read.await?, size, |node| node.node_id.clone());
    Ok(NodeList { nodes, cursor })
}

/// compute/nodes/get.
///
/// # Errors
/// NOT_FOUND (also for a node of another pool), PERMISSION_DENIED.
pub async fn get(call: Call, input: GetNode) -> Result<NodeAnswer, Fault> {
    let store = &call.relay.store;
    let show = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::NodesRead, DecidedBy::PoolTenant).await?;
            Ok::<_, Fault>(NodeAnswer { node: find(tx, &pool.pool_id, &input.node_id).await? })
        })
    });
    show.await
}

/// compute/nodes/ban: the node and its key are refused from the next request on. Naming identifiers that an earlier ban
/// did not cover adds them.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; INVALID_STATE for a released node.
pub async fn ban(call: Call, input: BanNode) -> Result<NodeAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(shut_out(tx, call, input)))
        .await
}

/// compute/nodes/unban: the node is live again, with its certificate as far as that still holds.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED; CONFLICT if its identity is taken meanwhile; INVALID_STATE for a released node.
pub async fn unban(call: Call, input: GetNode) -> Result<NodeAnswer, Fault> {
    let store = &call.relay.store;
    store
        .transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(let_back(tx, call, input)))
        .await
}

/// compute/nodes/release: the certificate ends and the identity is free, also of a banned node.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn release(call: Call, input: GetNode) -> Result<NodeAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(let_go(tx, call, input))).await
}

async fn shut_out(tx: &mut Tx<'_>, call: &Call, input: &BanNode) -> Result<NodeAnswer, Fault> {
    let target = GetNode {
        tenant_id: input.tenant_id.clone(),
        pool_id: input.pool_id.clone(),
        node_id: input.node_id.clone(),
    };
    let (node, site) = held(tx, call, &target, Action::NodesBan).await?;
    if node.state == NodeState::Released {
        return Err(refused(&node, "banned"));
    }
    let covered = covered(tx, &node, input.identifiers.as_deref().unwrap_or_default()).await?;
    let mut added = false;
    for identity in &covered {
        added |= identities::ban(tx, &site, identity, &node.node_id).await?;
    }
    let reason = input.reason.as_ref().map(Label::as_str);
    let says_more = reason.is_some_and(|reason| node.ban_reason.as_deref() != Some(reason));
    if node.state == NodeState::Banned && !added && !says_more {
        return Ok(NodeAnswer { node });
    }
    identities::suspend(tx, &node.node_id).await?;
    node_views::ban(tx, &node.node_id, reason, call.now).await?;
    crls::changed(tx, &call.relay.random).await?;
    let kinds: Vec<&str> = covered.iter().map(|identity| identity.kind.as_str()).collect();
    let data = json!({"poolId": node.pool_id, "reason": reason, "covers": kinds});
    announce(tx, call, news(Kind::NodeBanned, &node), data).await?;
    Ok(NodeAnswer { node: find(tx, &node.pool_id, &node.node_id).await? })
}

async fn let_back(tx: &mut Tx<'_>, call: &Call, input: &GetNode) -> Result<NodeAnswer, Fault> {
    let (node, site) = held(tx, call, input, Action::NodesBan).await?;
    match node.state {
        NodeState::Live => return Ok(NodeAnswer { node }),
        NodeState::Released => return forgive(tx, call, node).await,
        NodeState::Banned => {}
    }
    // What was in dispute when it was admitted it never held.
    for identity in identities::suspended(tx, &node.node_id).await? {
        if !identities::hold(tx, &site, &identity, &node.node_id).await? {
            let detail = format!(
                "The {} of node {} is held by another node now; release that one, or this one.",
                identity.kind.as_str(),
                node.node_id
            );
            return Err(conflict(detail));
        }
    }
    identities::drop_suspended(tx, &node.node_id).await?;
    identities::lift_ban(tx, &node.node_id).await?;
    node_views::unban(tx, &node.node_id).await?;
    crls::changed(tx, &call.relay.random).await?;
    announce(tx, call, news(Kind::NodeUnbanned, &node), json!({"poolId": node.pool_id})).await?;
    Ok(NodeAnswer { node: find(tx, &node.pool_id, &node.node_id).await? })
}

/// Ends the ban of a node that was released meanwhile: its key may join again, as another node.
async fn forgive(tx: &mut Tx<'_>, call: &Call, node: Node) -> Result<NodeAnswer, Fault> {
    if !identities::lift_ban(tx, &node.node_id).await? {
        return Err(refused(&node, "unbanned"));
    }
    announce(tx, call, news(Kind::NodeUnbanned, &node), json!({"poolId": node.pool_id})).await?;
    Ok(NodeAnswer { node })
}

async fn let_go(tx: &mut Tx<'_>, call: &Call, input: &GetNode) -> Result<NodeAnswer, Fault> {
    let (node, _) = held(tx, call, input, Action::NodesRelease).await?;
    if node.state == NodeState::Released {
        return Ok(NodeAnswer { node });
    }
    if let Some(machine) = metal::find(tx, &node.node_id).await?.filter(|it| it.state != MetalState::Retired)
    {
        return Err(invalid_state(format!(
            "The node {} is a metal machine, and {}: release it and retire it (relay metal), which releases its node.",
            node.node_id,
            machine.state.as_str()
        )));
    }
    // A ban outlasts the node: it ends by unban alone.
    identities::free(tx, &node.node_id).await?;
    identities::drop_suspended(tx, &node.node_id).await?;
    identifiers::forget(tx, node.node_id.as_str()).await?;
    node_views::release(tx, &node.node_id, call.now).await?;
    crls::changed(tx, &call.relay.random).await?;
    announce(tx, call, news(Kind::NodeReleased, &node), json!({"poolId": node.pool_id})).await?;
    Ok(NodeAnswer { node: find(tx, &node.pool_id, &node.node_id).await? })
}

/// The named node, decided on and locked, and its site.
async fn held(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &GetNode,
    action: Action,
) -> Result<(Node, String), Fault> {
    let pool = named(tx, call, (&input.tenant_id, &input.pool_id), action, DecidedBy::PoolTenant).await?;
    // Identities before nodes: the order of every change, the join's above all.
    identities::lock_of(tx, &input.node_id).await?;
    let locked = rows::lock(tx, &input.node_id).await?.filter(|node| node.pool_id == pool.pool_id);
    let site = locked.ok_or_else(|| absent(&input.node_id))?.site_id;
    Ok((find(tx, &pool.pool_id, &input.node_id).await?, site))
}

async fn find(tx: &mut Tx<'_>, pool_id: &str, id: &NodeId) -> Result<Node, Fault> {
    Ok(node_views::find(tx, pool_id, id).await?.ok_or_else(|| absent(id))?)
}

fn absent(id: &NodeId) -> Problem {
    not_found(&format!("node {id}"))
}

fn refused(node: &Node, move_: &str) -> Fault {
    invalid_state(format!(
        "The node {} is released, which is final: it can't be {move_}. Its machine may join anew with a token.",
        node.node_id
    ))
}

/// What a ban covers: its keys and proven endorsement keys, and the identifiers that are named. One that the node has no
/// usable value of (none, or a vendor's default) covers nothing.
async fn covered(
    tx: &mut Tx<'_>,
    node: &Node,
    named: &[BannedIdentifier],
) -> Result<Vec<Identity>, StoreError> {
    let key = node.key_sha256.clone().map(|value| Identity { kind: IdentityKind::Key, value });
    let mut covered: Vec<Identity> = key.into_iter().collect();
    covered
        .extend(node.ek_sha256.clone().map(|value| Identity { kind: IdentityKind::EndorsementKey, value }));
    // A renewal may have given it another key that it has not used yet, and a TPM has several endorsement keys.
    let proven = identities::proven(tx, &node.node_id).await?;
    covered.extend(proven.into_iter().filter(|identity| !covered.contains(identity)).collect::<Vec<_>>());
    for name in named {
        let kind = match name {
            BannedIdentifier::ProductUuid => IdentityKind::ProductUuid,
            BannedIdentifier::Serial => IdentityKind::Serial,
        };
        let value = identifiers::of_node(tx, &node.node_id, kind).await?;
        covered.extend(value.map(|value| Identity { kind, value }));
    }
    Ok(covered)
}

fn news(kind: Kind, node: &Node) -> News<'_> {
    News { kind, tenant: &node.tenant_id, subject: node.node_id.as_str() }
}
