//! The table `pools`, with the site that each stands at.

use super::{Row, StoreError, Tx};
use crate::facts::PoolFacts;
use shared::{api::pools::Policy, time::Timestamp};

const FACTS: &str = "SELECT p.id, p.uid, p.tenant_id, p.project_id, p.site_id, p.agent, p.policy, p.created_at, \
    s.owner_tenant_id, s.custom FROM pools p JOIN sites s ON s.id = p.site_id \
    WHERE p.id = $1 AND p.deleted_at IS NULL";

const PAGE: &str = "SELECT p.id, p.uid, p.tenant_id, p.project_id, p.site_id, p.agent, p.policy, p.created_at, \
    s.owner_tenant_id, s.custom FROM pools p JOIN sites s ON s.id = p.site_id \
    WHERE p.tenant_id = $1 AND p.deleted_at IS NULL AND p.id > $2 AND ($3 = '' OR p.project_id = $3) ORDER BY p.id LIMIT $4";
// Apart from FACTS, which would lock the site too.
const LOCK: &str = "SELECT id FROM pools WHERE id = $1 AND deleted_at IS NULL";
const INSERT: &str = "INSERT INTO pools (id, uid, tenant_id, project_id, site_id, agent, policy, created_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (id) DO NOTHING";
const SET_POLICY: &str = "UPDATE pools SET policy = $2 WHERE id = $1";
const DELETE: &str = "UPDATE pools SET deleted_at = $2 WHERE id = $1";
const DELETE_SECRETS: &str = "DELETE FROM secrets WHERE pool_id = $1";
const DELETE_INVENTORY: &str = "DELETE FROM inventory WHERE pool_id = $1";
const DELETE_ENDORSEMENT_KEYS: &str = "DELETE FROM endorsement_keys WHERE pool_id = $1";
const DELETE_ENDORSEMENT_AUTHORITIES: &str = "DELETE FROM endorsement_authorities WHERE pool_id = $1";

pub(super) const STATEMENTS: &[&str] = &[
    FACTS,
    PAGE,
    LOCK,
    INSERT,
    SET_POLICY,
    DELETE,
    DELETE_SECRETS,
    DELETE_INVENTORY,
    DELETE_ENDORSEMENT_KEYS,
    DELETE_ENDORSEMENT_AUTHORITIES,
];

/// The pool of this name, unless it is absent or deleted.
///
/// # Errors
/// The store's.
pub async fn load(tx: &mut Tx<'_>, pool_id: &str) -> Result<Option<PoolFacts>, StoreError> {
    tx.fetch_optional(FACTS, &[pool_id.into()]).await?.map(|row| facts(&row)).transpose()
}

/// The pool of this name, locked until the transaction ends: before it is changed or deleted, and before anything
/// is counted in it.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, pool_id: &str) -> Result<Option<PoolFacts>, StoreError> {
    match tx.lock_optional(LOCK, &[pool_id.into()]).await? {
        Some(_) => load(tx, pool_id).await,
        None => Ok(None),
    }
}

/// At most `limit` pools of a tenant behind `after`, in order of id; only of this project, if it is not empty.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    (tenant, project): (&str, &str),
    after: &str,
    limit: i64,
) -> Result<Vec<PoolFacts>, StoreError> {
    let args = [tenant.into(), after.into(), project.into(), limit.into()];
    tx.fetch_all(PAGE, &args).await?.iter().map(facts).collect()
}

/// Writes a new pool, whose tenant, project and site are locked; `false` if the id is taken or was used before.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &PoolFacts) -> Result<bool, StoreError> {
    let policy = json(&new.policy);
    let row = [
        (&new.pool_id).into(),
        new.uid.as_str().into(),
        (&new.tenant_id).into(),
        (&new.project_id).into(),
        (&new.site_id).into(),
        new.agent.as_str().into(),
        (&policy).into(),
        new.created_at.into(),
    ];
    Ok(tx.execute(INSERT, &row).await? == 1)
}

/// Writes a pool's policy.
///
/// # Errors
/// The store's.
pub async fn set_policy(tx: &mut Tx<'_>, pool_id: &str, policy: &Policy) -> Result<(), StoreError> {
    tx.execute(SET_POLICY, &[pool_id.into(), (&json(policy)).into()]).await.map(drop)
}

/// Deletes a pool whose nodes are all released, its secrets and what it knows of machines. The row stays, so that its id is never used again.
///
/// # Errors
/// The store's.
pub async fn delete(tx: &mut Tx<'_>, pool_id: &str, now: Timestamp) -> Result<(), StoreError> {
    for list in [DELETE_SECRETS, DELETE_INVENTORY, DELETE_ENDORSEMENT_KEYS, DELETE_ENDORSEMENT_AUTHORITIES] {
        tx.execute(list, &[pool_id.into()]).await?;
    }
    tx.execute(DELETE, &[pool_id.into(), now.into()]).await.map(drop)
}

fn json(policy: &Policy) -> String {
    serde_json::json!(policy).to_string()
}

fn facts(row: &Row) -> Result<PoolFacts, StoreError> {
    Ok(PoolFacts {
        uid: row.parsed("uid")?,
        pool_id: row.text("id")?,
        tenant_id: row.text("tenant_id")?,
        project_id: row.text("project_id")?,
        site_id: row.text("site_id")?,
        agent: row.word("agent")?,
        policy: row.json("policy")?,
        created_at: row.time("created_at")?,
        site_owner: row.text("owner_tenant_id")?,
        custom_site: row.flag("custom")?,
    })
}
