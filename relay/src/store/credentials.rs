//! The table `credentials`: the tokens of people and services, each as the digest of its whole text and what it holds.

use super::{Row, StoreError, Tx};
use shared::{
    api::{
        access::AdminRole,
        tokens::{Rights, Token, TokenType},
    },
    id::{SigningKeyId, TokenId},
    time::Timestamp,
    token::SecretDigest,
};

const FIND: &str = "SELECT id, type, subject, tenant_id, token_sha256, admin_role, rights, description, labels, created_by, \
    created_at, expires_at, lifetime_seconds, login_at, predecessor, revoked_at, chain, lingers_until FROM credentials WHERE id = $1";
const PAGE: &str = "SELECT id, type, subject, tenant_id, token_sha256, admin_role, rights, description, labels, created_by, \
    created_at, expires_at, lifetime_seconds, login_at, predecessor, revoked_at, chain, lingers_until FROM credentials \
    WHERE subject = $1 AND id > $2 AND expires_at > $3 AND revoked_at IS NULL ORDER BY id LIMIT $4";
const PAGE_ALL: &str = "SELECT id, type, subject, tenant_id, token_sha256, admin_role, rights, description, labels, created_by, \
    created_at, expires_at, lifetime_seconds, login_at, predecessor, revoked_at, chain, lingers_until FROM credentials \
    WHERE id > $1 AND expires_at > $2 AND revoked_at IS NULL ORDER BY id LIMIT $3";
const INSERT: &str = "INSERT INTO credentials (id, type, subject, tenant_id, token_sha256, key_id, admin_role, rights, \
    description, labels, created_by, created_at, expires_at, lifetime_seconds, login_at, predecessor, chain) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)";
const UPDATE: &str =
    "UPDATE credentials SET admin_role = $2, rights = $3, description = $4, labels = $5 WHERE id = $1";
const UPDATE_SUCCESSORS: &str = "UPDATE credentials SET admin_role = $2, rights = $3 WHERE predecessor = $1";
const COUNT: &str = "SELECT COUNT(DISTINCT chain) AS count FROM credentials \
    WHERE subject = $1 AND expires_at > $2 AND revoked_at IS NULL";
const REVOKE: &str = "UPDATE credentials SET revoked_at = $2 WHERE id = $1 AND revoked_at IS NULL";
const REVOKE_SIBLINGS: &str =
    "UPDATE credentials SET revoked_at = $3 WHERE predecessor = $1 AND id <> $2 AND revoked_at IS NULL";
const SUCCESSORS: &str = "SELECT COUNT(*) AS successors FROM credentials \
    WHERE predecessor = $1 AND created_at > $2 AND revoked_at IS NULL";
const SHED: &str = "DELETE FROM credentials WHERE predecessor = $1 AND id < \
    (SELECT MIN(id) FROM (SELECT id FROM credentials WHERE predecessor = $1 ORDER BY id DESC LIMIT $2) AS newest)";
const LINGER: &str =
    "UPDATE credentials SET revoked_at = $2, lingers_until = $3 WHERE id = $1 AND revoked_at IS NULL";
const LINGER_NO_MORE: &str =
    "UPDATE credentials SET lingers_until = NULL WHERE chain = $1 AND lingers_until IS NOT NULL";
const SETTLE: &str = "UPDATE credentials SET predecessor = NULL WHERE id = $1";
const FORGET: &str = "DELETE FROM credentials WHERE id IN \
    (SELECT id FROM credentials WHERE expires_at < $1 LIMIT $2)";

pub(super) const STATEMENTS: &[&str] = &[
    FIND,
    PAGE,
    PAGE_ALL,
    INSERT,
    UPDATE,
    UPDATE_SUCCESSORS,
    COUNT,
    REVOKE,
    REVOKE_SIBLINGS,
    SUCCESSORS,
    SHED,
    LINGER,
    LINGER_NO_MORE,
    SETTLE,
    FORGET,
];

/// A token, and what it takes to count.
#[derive(Clone)]
pub struct CredentialRow {
    /// What is known of it; of one from a login, the rights hold the admin role alone.
    pub token: Token,
    /// The digest of its whole text.
    pub digest: SecretDigest,
    /// The admin role that counts, as far as the owner may have it.
    pub admin_role: Option<AdminRole>,
    /// How long it was made for, in seconds; its successors too.
    pub lifetime_seconds: i64,
    /// When the user logged in; of a token from a login only.
    pub login_at: Option<Timestamp>,
    /// The token that ends when this one is first used.
    pub predecessor: Option<TokenId>,
    /// The first token of its chain of refreshes; itself, where it is that.
    pub chain: TokenId,
    /// Where its successor is in use: until when it still counts for its browser's requests that were under way.
    pub lingers_until: Option<Timestamp>,
}

/// The token of this id.
///
/// # Errors
/// The store's.
pub async fn find(tx: &mut Tx<'_>, id: &TokenId) -> Result<Option<CredentialRow>, StoreError> {
    tx.fetch_optional(FIND, &[id.as_str().into()]).await?.map(|row| credential(&row)).transpose()
}

/// The token of this id, locked.
///
/// # Errors
/// The store's.
pub async fn lock(tx: &mut Tx<'_>, id: &TokenId) -> Result<Option<CredentialRow>, StoreError> {
    tx.lock_optional(FIND, &[id.as_str().into()]).await?.map(|row| credential(&row)).transpose()
}

/// At most `limit` tokens behind `after` that have not ended, in order of id: of a subject, or of everybody.
///
/// # Errors
/// The store's.
pub async fn page(
    tx: &mut Tx<'_>,
    subject: Option<&str>,
    after: &str,
    now: Timestamp,
    limit: i64,
) -> Result<Vec<Token>, StoreError> {
    let rows = match subject {
        Some(subject) => {
            tx.fetch_all(PAGE, &[subject.into(), after.into(), now.into(), limit.into()]).await?
        }
        None => tx.fetch_all(PAGE_ALL, &[after.into(), now.into(), limit.into()]).await?,
    };
    rows.iter().map(|row| Ok(credential(row)?.token)).collect()
}

/// Keeps a token that `key` signed.
///
/// # Errors
/// The store's.
pub async fn insert(tx: &mut Tx<'_>, new: &CredentialRow, key: &SigningKeyId) -> Result<(), StoreError> {
    let (token, digest) = (&new.token, new.digest.to_hex());
    let (rights, labels) = (rights_of(token), serde_json::json!(token.labels).to_string());
    let row = [
        token.id.as_str().into(),
        type_word(token.token_type).into(),
        (&token.subject).into(),
        (&token.tenant_id).into(),
        digest.as_str().into(),
        key.as_str().into(),
        new.admin_role.map(AdminRole::as_str).into(),
        (&rights).into(),
        (&token.description).into(),
        labels.as_str().into(),
        (&token.created_by).into(),
        token.created_at.into(),
        token.expires_at.into(),
        new.lifetime_seconds.into(),
        new.login_at.into(),
        new.predecessor.as_ref().map(TokenId::as_str).into(),
        new.chain.as_str().into(),
    ];
    tx.execute(INSERT, &row).await.map(drop)
}

/// Changes what a token holds and says of itself.
///
/// # Errors
/// The store's.
pub async fn update(tx: &mut Tx<'_>, changed: &CredentialRow) -> Result<(), StoreError> {
    let token = &changed.token;
    let (rights, labels) = (rights_of(token), serde_json::json!(token.labels).to_string());
    let row = [
        token.id.as_str().into(),
        changed.admin_role.map(AdminRole::as_str).into(),
        (&rights).into(),
        (&token.description).into(),
        labels.as_str().into(),
    ];
    tx.execute(UPDATE, &row).await.map(drop)
}

/// Gives the successors of a token that wait for their first use what it holds now.
///
/// # Errors
/// The store's.
pub async fn update_successors(tx: &mut Tx<'_>, changed: &CredentialRow) -> Result<(), StoreError> {
    let rights = rights_of(&changed.token);
    let row = [
        changed.token.id.as_str().into(),
        changed.admin_role.map(AdminRole::as_str).into(),
        (&rights).into(),
    ];
    tx.execute(UPDATE_SUCCESSORS, &row).await.map(drop)
}

/// Ends a token; nothing changes if it has been ended.
///
/// # Errors
/// The store's.
pub async fn revoke(tx: &mut Tx<'_>, id: &TokenId, now: Timestamp) -> Result<(), StoreError> {
    tx.execute(REVOKE, &[id.as_str().into(), now.into()]).await.map(drop)
}

/// Ends the successors of a token that wait for their first use.
///
/// # Errors
/// The store's.
pub async fn revoke_successors(tx: &mut Tx<'_>, id: &TokenId, now: Timestamp) -> Result<(), StoreError> {
    // No token has an empty id.
    tx.execute(REVOKE_SIBLINGS, &[id.as_str().into(), "".into(), now.into()]).await.map(drop)
}

/// How many tokens of a subject count now; a token and those that followed it by refreshes are one.
///
/// # Errors
/// The store's.
pub async fn count(tx: &mut Tx<'_>, subject: &str, now: Timestamp) -> Result<i64, StoreError> {
    tx.fetch_one(COUNT, &[subject.into(), now.into()]).await?.integer("count")
}

/// How many successors of a token were made after `since` and wait for their first use.
///
/// # Errors
/// The store's.
pub async fn successors(tx: &mut Tx<'_>, id: &TokenId, since: Timestamp) -> Result<i64, StoreError> {
    tx.fetch_one(SUCCESSORS, &[id.as_str().into(), since.into()]).await?.integer("successors")
}

/// Forgets the successors of a token that wait for their first use, but for the newest `keep`, at least one.
///
/// # Errors
/// The store's.
pub async fn shed_successors(tx: &mut Tx<'_>, id: &TokenId, keep: i64) -> Result<(), StoreError> {
    tx.execute(SHED, &[id.as_str().into(), keep.into()]).await.map(drop)
}

/// Ends what lingers of a chain: one of it was revoked.
///
/// # Errors
/// The store's.
pub async fn linger_no_more(tx: &mut Tx<'_>, chain: &TokenId) -> Result<(), StoreError> {
    tx.execute(LINGER_NO_MORE, &[chain.as_str().into()]).await.map(drop)
}

/// Notes that `used`, a successor of `ended`, is in use: `ended` and its other successors end. `ended` lingers.
///
/// # Errors
/// The store's.
pub async fn succeed(
    tx: &mut Tx<'_>,
    used: &TokenId,
    ended: &TokenId,
    (now, lingers_until): (Timestamp, Timestamp),
) -> Result<(), StoreError> {
    tx.execute(LINGER, &[ended.as_str().into(), now.into(), lingers_until.into()]).await?;
    tx.execute(REVOKE_SIBLINGS, &[ended.as_str().into(), used.as_str().into(), now.into()]).await?;
    tx.execute(SETTLE, &[used.as_str().into()]).await.map(drop)
}

/// Forgets at most `most` tokens that ended before `before`.
///
/// # Errors
/// The store's.
pub async fn forget(tx: &mut Tx<'_>, before: Timestamp, most: i64) -> Result<u64, StoreError> {
    tx.execute(FORGET, &[before.into(), most.into()]).await
}

const fn type_word(token_type: TokenType) -> &'static str {
    match token_type {
        TokenType::User => "USER",
        TokenType::Api => "API",
    }
}

/// A token from a login stores none: they are its user's at every request.
fn rights_of(token: &Token) -> Option<String> {
    (token.token_type == TokenType::Api).then(|| serde_json::json!(token.rights).to_string())
}

fn credential(row: &Row) -> Result<CredentialRow, StoreError> {
    let admin_role: Option<AdminRole> = row.maybe_word("admin_role")?;
    let rights: Option<Rights> = row.maybe_json("rights")?;
    let token = Token {
        id: row.parsed("id")?,
        token_type: row.word("type")?,
        subject: row.text("subject")?,
        tenant_id: row.text("tenant_id")?,
        description: row.text("description")?,
        rights: rights.unwrap_or_else(|| Rights { admin_role, ..Rights::default() }),
        labels: row.json("labels")?,
        created_by: row.text("created_by")?,
        created_at: row.time("created_at")?,
        expires_at: row.time("expires_at")?,
        revoked_at: row.maybe_time("revoked_at")?,
    };
    Ok(CredentialRow {
        token,
        digest: row.parse_with("token_sha256", SecretDigest::from_hex)?,
        admin_role,
        lifetime_seconds: row.integer("lifetime_seconds")?,
        login_at: row.maybe_time("login_at")?,
        predecessor: row.maybe_text("predecessor")?.map(|_| row.parsed("predecessor")).transpose()?,
        chain: row.parsed("chain")?,
        lingers_until: row.maybe_time("lingers_until")?,
    })
}
