//! compute/joinTokens. The secret leaves in one answer and is nowhere else: the store has its digest only.

use super::{
    join_requests,
    pools::{DecidedBy, held, named},
    steps::{News, announce, conflict, invalid_state, page, page_size},
};
use crate::{
    auth::policy::not_found,
    call::Call,
    events::Kind,
    fault::Fault,
    join::queue,
    store::{Tx, token_views},
};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use shared::{
    api::{
        access::Action,
        join_tokens::{
            CreateJoinToken, Expect, JoinToken, JoinTokenCreated, JoinTokenList, JoinTokenRevoked,
            ListJoinTokens, MaxUses, RevokeJoinToken, TokenRole,
        },
        pools::AgentKind,
    },
    bounded::IdempotencyKey,
    hardware::{Claim, Identity, Machine, canonical_uuid},
    id::JoinTokenId,
    problem::{FieldError, Problem},
    token,
};

/// compute/joinTokens/create. An equal retry is answered the record without the token, with no decision anew: whoever
/// knows subject and key made the first call.
///
/// # Errors
/// INVALID_INPUT for a placeholder in `expect`; CONFLICT for the same key with other content; NOT_FOUND,
/// PERMISSION_DENIED; INVALID_STATE for a pool whose machines run no bcd.
pub async fn create(call: Call, input: CreateJoinToken) -> Result<JoinTokenCreated, Fault> {
    refuse_placeholders(input.expect.as_ref())?;
    let id = derive_id(input.tenant_id.as_str(), &call.principal()?.subject, &input.idempotency_key);
    let store = &call.relay.store;
    let minted = store.transact(call.method, (&call, &input, &id), |tx, (call, input, id)| {
        Box::pin(replay_or_mint(tx, call, input, id))
    });
    minted.await
}

/// compute/joinTokens/list: the live ones unless told otherwise; never a secret.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListJoinTokens) -> Result<JoinTokenList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let pool = named(tx, call, name, Action::JoinTokensRead, DecidedBy::PoolTenant).await?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            let listed =
                token_views::Listed { inactive: input.include_inactive.unwrap_or(false), now: call.now };
            Ok::<_, Fault>(token_views::page(tx, &pool.pool_id, listed, after, size + 1).await?)
        })
    });
    let (join_tokens, cursor) = page(read.await?, size, |token| token.id.clone());
    Ok(JoinTokenList { join_tokens, cursor })
}

/// compute/joinTokens/revoke: counts from the next judgement on, also of joins that are on their way. Its open requests are
/// denied.
///
/// # Errors
/// NOT_FOUND (also for a token of another pool), PERMISSION_DENIED.
pub async fn revoke(call: Call, input: RevokeJoinToken) -> Result<JoinTokenRevoked, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(end(tx, call, input))).await
}

async fn replay_or_mint(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &CreateJoinToken,
    id: &JoinTokenId,
) -> Result<JoinTokenCreated, Fault> {
    if let Some(earlier) = token_views::find(tx, id).await? {
        return replay(earlier, input);
    }
    let name = (&input.tenant_id, &input.pool_id);
    named(tx, call, name, Action::JoinTokensCreate, DecidedBy::PoolTenant).await?;
    // The lock keeps the pool from being deleted under its new token.
    let pool = held(tx, &input.pool_id).await?;
    if pool.agent != AgentKind::Bcd {
        let detail = format!(
            "The machines of pool {} run no bcd (its agent is none): nothing could join.",
            pool.pool_id
        );
        return Err(invalid_state(detail));
    }
    let (token, digest) = token::JoinToken::mint(id.clone(), &call.relay.random.bytes());
    let record = record(call, input, id);
    token_views::insert(tx, &record, digest).await?;
    let mut data = told(&record);
    data.insert("pinned".to_owned(), json!(record.expect.is_some()));
    announce(tx, call, news(Kind::JoinTokenCreated, &record), data.into()).await?;
    Ok(JoinTokenCreated { join_token: record, token: Some(token.bearer().reveal()) })
}

/// The stored record, if the request is the one that made it.
fn replay(earlier: JoinToken, input: &CreateJoinToken) -> Result<JoinTokenCreated, Fault> {
    let same = earlier.pool_id == input.pool_id.as_str()
        && earlier.expect == input.expect
        && earlier.allow_reclaim == input.allow_reclaim.unwrap_or(false)
        && earlier.hosted == input.hosted;
    if same {
        return Ok(JoinTokenCreated { join_token: earlier, token: None });
    }
    let detail = "This idempotencyKey made a token with another poolId, expect, allowReclaim or hosted; take a fresh key, \
        or repeat that request unchanged.";
    Err(conflict(detail))
}

async fn end(tx: &mut Tx<'_>, call: &Call, input: &RevokeJoinToken) -> Result<JoinTokenRevoked, Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    let pool = named(tx, call, name, Action::JoinTokensRevoke, DecidedBy::PoolTenant).await?;
    queue::lock_token(tx, &call.relay, &input.token_id, call.now).await?;
    let found = token_views::find(tx, &input.token_id).await?.filter(|token| token.pool_id == pool.pool_id);
    let mut record = found.ok_or_else(|| not_found(&format!("join token {}", input.token_id)))?;
    if record.revoked_at.is_none() {
        record.revoked_at = Some(call.now);
        token_views::revoke(tx, &record.id, call.now).await?;
        join_requests::deny_all(tx, call, &record.id, None).await?;
        record.pending = 0;
        announce(tx, call, news(Kind::JoinTokenRevoked, &record), told(&record).into()).await?;
    }
    Ok(JoinTokenRevoked { join_token: record })
}

fn record(call: &Call, input: &CreateJoinToken, id: &JoinTokenId) -> JoinToken {
    JoinToken {
        id: id.clone(),
        tenant_id: input.tenant_id.as_str().to_owned(),
        pool_id: input.pool_id.as_str().to_owned(),
        role: TokenRole::Node,
        max_uses: input.max_uses.unwrap_or(MaxUses::of::<1>()).get(),
        uses: 0,
        pending: 0,
        expect: input.expect.clone(),
        allow_reclaim: input.allow_reclaim.unwrap_or(false),
        hosted: input.hosted,
        created_at: call.now,
        created_by: call.actor(),
        expires_at: call.now.plus_seconds(input.ttl_seconds.get()),
        revoked_at: None,
        last_used_at: None,
    }
}

fn news(kind: Kind, record: &JoinToken) -> News<'_> {
    News { kind, tenant: &record.tenant_id, subject: record.id.as_str() }
}

/// What both events tell; `hosted` only where it is set.
fn told(record: &JoinToken) -> Map<String, Value> {
    let mut data = Map::new();
    data.insert("poolId".to_owned(), json!(record.pool_id));
    if let Some(hosted) = record.hosted {
        data.insert("hosted".to_owned(), json!(hosted));
    }
    data
}

/// The same tenant, caller and key: the same token. The parts are length-prefixed, so that no two triples are one text.
fn derive_id(tenant: &str, subject: &str, key: &IdempotencyKey) -> JoinTokenId {
    let mut digest = Sha256::new();
    for part in [tenant, subject, key.as_str()] {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    JoinTokenId::derive(&digest.finalize().into())
}

/// A pin on a value that many machines share would pin nothing. A UUID of an odd form is no placeholder: it is
/// what the operator wrote, and matches no machine.
fn refuse_placeholders(expect: Option<&Expect>) -> Result<(), Problem> {
    let Some(expect) = expect else { return Ok(()) };
    let pinned = Identity {
        product_uuid: expect.product_uuid.as_ref().and_then(|uuid| canonical_uuid(uuid.as_str())),
        serial: expect.serial.as_ref().map(|serial| serial.as_str().to_owned()),
        ..Identity::default()
    };
    let machine = Machine::judge(&pinned);
    let members = [("expect.productUuid", &machine.product_uuid), ("expect.serial", &machine.serial)];
    let errors: Vec<FieldError> = members
        .into_iter()
        .filter(|(_, claim)| matches!(claim, Claim::Placeholder(_)))
        .map(|(field, _)| FieldError {
            field: field.to_owned(),
            message: "is a vendor's default that many machines share; pin what is the machine's own"
                .to_owned(),
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> IdempotencyKey {
        text.parse().unwrap()
    }

    #[test]
    fn the_id_is_derived_from_tenant_caller_and_key_and_from_nothing_else() {
        let id = derive_id("acme", "user:ann", &key("k1"));
        assert_eq!(id, derive_id("acme", "user:ann", &key("k1")));
        assert_eq!(id.as_str().len(), "jt_".len() + 52);
        for (tenant, subject, other) in [
            ("acm", "euser:ann", "k1"),
            ("acme", "user:annk", "1"),
            ("acme", "user:bob", "k1"),
            ("acme", "user:ann", "k2"),
        ] {
            assert_ne!(id, derive_id(tenant, subject, &key(other)), "{tenant} {subject} {other}");
        }
        // Another program's SHA-256 and base32 of three texts of one letter, each behind its length in eight bytes.
        let known = "jt_d6kd3418mp9tbcwqrzm59vdk1d2p91ne8fnzpcyqv23tnkqh1c90";
        assert_eq!(derive_id("t", "s", &key("k")).as_str(), known);
    }

    #[test]
    fn a_vendors_default_pins_nothing() {
        let bad = |uuid: Option<&str>, serial: Option<&str>| -> Vec<String> {
            let expect = Expect {
                product_uuid: uuid.map(|text| text.parse().unwrap()),
                serial: serial.map(|text| text.parse().unwrap()),
                ..Expect::default()
            };
            let judged = refuse_placeholders(Some(&expect));
            judged.err().into_iter().flat_map(|problem| problem.errors).map(|error| error.field).collect()
        };
        let (uuid, serial) = ("expect.productUuid", "expect.serial");
        assert_eq!(bad(Some("00000000-0000-0000-0000-000000000000"), Some("Default-string")), [uuid, serial]);
        assert_eq!(bad(Some("FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"), None), [uuid]);
        assert_eq!(bad(Some("03000200-0400-0500-0006-000700080009"), Some("SN-12.7/a")), [uuid]);
        assert_eq!(bad(None, Some("0123456789")), [serial]);
        for odd in ["12345678", "abcdef01-2345", "4c4c4544-0043-3010-8052-b4c04f4e3132", "--------"] {
            assert!(bad(Some(odd), Some("C02XL0GYJGH5")).is_empty(), "{odd}");
        }
        assert!(refuse_placeholders(None).is_ok());
    }
}
