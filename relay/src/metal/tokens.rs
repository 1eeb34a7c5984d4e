//! Join tokens of one machine: for its agent, and for the bcd that is installed in it. They are pinned to the machine by its node, whose
//! identity is compared at the join, and to its endorsement key once one was proved.

use super::facts::Machine;
use crate::{
    context::Context,
    fault::Fault,
    store::{Tx, token_views},
};
use shared::{
    api::join_tokens::{Expect, Hosted, JoinToken, TokenRole},
    id::JoinTokenId,
    secret::Secret,
    time::Timestamp,
    token,
};

pub(super) use crate::facts::TokenPurpose as Purpose;

/// Who mints them.
const ACTOR: &str = "relay";

/// Mints a token of one use for a machine; answers its id and what its bearer shows.
///
/// # Errors
/// The store's.
pub(super) async fn mint(
    tx: &mut Tx<'_>,
    relay: &Context,
    machine: &Machine,
    (purpose, seconds, hosted): (Purpose, i64, Option<Hosted>),
    now: Timestamp,
) -> Result<(JoinTokenId, Secret), Fault> {
    let id = JoinTokenId::draw(now, relay.random.bytes());
    let (minted, digest) = token::JoinToken::mint(id.clone(), &relay.random.bytes());
    let ek_sha256 = machine.identity.ek_sha256.as_deref().and_then(|ek| ek.parse().ok());
    let record = JoinToken {
        id: id.clone(),
        tenant_id: machine.tenant_id.clone(),
        pool_id: machine.pool_id.clone(),
        role: TokenRole::Node,
        max_uses: 1,
        uses: 0,
        pending: 0,
        expect: ek_sha256.map(|ek_sha256| Expect { ek_sha256: Some(ek_sha256), ..Expect::default() }),
        allow_reclaim: true,
        hosted,
        created_at: now,
        created_by: ACTOR.to_owned(),
        expires_at: now.plus_seconds(seconds),
        revoked_at: None,
        last_used_at: None,
    };
    token_views::insert_for(tx, &record, digest, (purpose, &machine.node_id)).await?;
    Ok((id, minted.bearer()))
}
