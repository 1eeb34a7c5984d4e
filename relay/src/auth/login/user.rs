//! The user of a login. The first login makes the user, a tenant of its own with the project `default`, and the membership
//! that makes it the tenant's OWNER, in the transaction of its caller; a later one makes nothing. A login never joins a
//! tenant that is there.

use crate::{
    auth::bootstrap,
    context::Context,
    events::{Event, Kind, Origin},
    facts::Vouched,
    fault::Fault,
    store::{StoreError, Tx, events, memberships, tenants, users},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use shared::{
    api::{access::TenantRole, members::Member, tenants::Tenant, users::User},
    base32,
    bounded::Label,
    hex,
    id::{JoinTokenId, NodeId},
    time::Timestamp,
};

/// The longest id of a tenant, in characters.
const MAX_ID_CHARS: usize = 128;
/// The characters of a suffix: `-` and five drawn bytes.
const SUFFIX_CHARS: usize = 9;
/// How often another suffix is drawn.
const TRIES: usize = 4;
/// Ids that name something else: the relay itself, as an actor, and the provider tenant of most installations.
const RESERVED: &[&str] = &["provider", "relay"];

/// The user whom a provider vouches for, made at its first login.
///
/// # Errors
/// The store's.
pub(super) async fn of(
    tx: &mut Tx<'_>,
    relay: &Context,
    who: &Vouched,
    request_id: &str,
    now: Timestamp,
) -> Result<User, Fault> {
    let Some(mut user) = users::known(tx, &who.issuer, &who.subject).await? else {
        return first(tx, relay, who, request_id, now).await;
    };
    if !who.display_name.is_empty() && user.display_name != who.display_name {
        users::rename(tx, &user.user_id, &who.display_name).await?;
        user.display_name.clone_from(&who.display_name);
    }
    Ok(user)
}

async fn first(
    tx: &mut Tx<'_>,
    relay: &Context,
    who: &Vouched,
    request_id: &str,
    now: Timestamp,
) -> Result<User, Fault> {
    let tenant = settled(tx, relay, who, now).await?;
    let id = tenant.tenant_id.as_str();
    let user = User {
        user_id: id.to_owned(),
        display_name: tenant.display_name.clone(),
        service: false,
        issuer: Some(who.issuer.clone()),
        created_at: now,
        created_by: id.to_owned(),
    };
    if !users::insert(tx, &user, &who.subject).await? {
        // Another login of this user was first: with its rows in sight this is a later one.
        return Err(StoreError::Race.into());
    }
    let member = Member {
        tenant_id: id.to_owned(),
        project_id: None,
        member_id: id.to_owned(),
        role: TenantRole::Owner,
        since: now,
        added_by: id.to_owned(),
    };
    if !memberships::insert(tx, &member).await? {
        return Err(StoreError::Race.into());
    }
    let origin = Origin { actor: id.to_owned(), request_id: request_id.to_owned(), at: now };
    for (kind, data) in [(Kind::TenantCreated, json!(tenant)), (Kind::MemberCreated, json!(member))] {
        events::insert(tx, &relay.random, &origin, &Event { kind, tenant: id, subject: id, data }).await?;
    }
    Ok(user)
}

/// A tenant that was not there: of the login's own id, or with a suffix.
async fn settled(tx: &mut Tx<'_>, relay: &Context, who: &Vouched, now: Timestamp) -> Result<Tenant, Fault> {
    let base = id_of(&who.login);
    let mut id = base.clone();
    let name = [who.display_name.as_str(), &base].into_iter().find(|name| name.parse::<Label>().is_ok());
    let suffixed = || with_suffix(&base, &base32::encode(&relay.random.bytes::<5>()));
    if is_reserved(&base, &relay.provider_tenant) {
        id = suffixed();
    }
    for _ in 0..TRIES {
        if let Some(tenant) = tenants::settle(tx, &id, name.unwrap_or(&id), now).await? {
            return Ok(tenant);
        }
        id = suffixed();
    }
    Err(StoreError::Race.into())
}

/// What an id breaks that is reserved.
pub const RESERVED_RULE: &str = "names something else (the relay, the provider tenant, a bootstrap credential, a node or a token); choose another";

/// Whether an id may be taken for something else than a user or a tenant.
#[must_use]
pub fn is_reserved(id: &str, provider_tenant: &str) -> bool {
    id == provider_tenant
        || RESERVED.contains(&id)
        || bootstrap::role_of(id).is_some()
        || id.parse::<NodeId>().is_ok()
        || id.parse::<JoinTokenId>().is_ok()
}

/// A login as the id of a tenant; no two logins have the same. Bytes that an id can't have are written `:xx`; of what is too
/// long, the end is its SHA-256 behind `::`, which no other id has.
fn id_of(login: &str) -> String {
    let mut parts = login.bytes().map(|byte| {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            char::from(byte).to_string()
        } else {
            format!(":{byte:02x}")
        }
    });
    let whole: String = parts.clone().collect();
    if whole.len() <= MAX_ID_CHARS {
        return whole;
    }
    let end = format!("::{}", hex::encode(&Sha256::digest(login.as_bytes())));
    let mut id = String::new();
    while let Some(part) = parts.next().filter(|part| id.len() + part.len() + end.len() <= MAX_ID_CHARS) {
        id.push_str(&part);
    }
    id + &end
}

fn with_suffix(base: &str, drawn: &str) -> String {
    let kept: String = base.chars().take(MAX_ID_CHARS - SUFFIX_CHARS).collect();
    format!("{kept}-{drawn}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::bounded::TenantId;
    use std::collections::BTreeSet;

    #[test]
    fn an_id_is_the_login_with_what_it_cannot_have_written_out() {
        for (login, id) in [
            ("alice", "alice"),
            ("Alice.B-c_d", "Alice.B-c_d"),
            ("alice@example.org", "alice:40example.org"),
            ("a:40b", "a:3a40b"),
            ("auth0|5f", "auth0:7c5f"),
            ("é /", ":c3:a9:20:2f"),
        ] {
            assert_eq!(id_of(login), id);
        }
        assert_eq!(id_of(&"a".repeat(128)), "a".repeat(128));
    }

    #[test]
    fn no_two_logins_have_one_id_and_each_is_a_tenants() {
        let long = |end: &str| format!("{}{end}", "é".repeat(100));
        let logins = [
            "a@b".to_owned(),
            "a:40b".to_owned(),
            "a%40b".to_owned(),
            long("1"),
            long("2"),
            "a".repeat(129),
            "a".repeat(130),
            format!("{}@", "a".repeat(126)),
        ];
        let ids: BTreeSet<String> = logins.iter().map(|login| id_of(login)).collect();
        assert_eq!(ids.len(), logins.len());
        for id in ids {
            assert!(id.parse::<TenantId>().is_ok(), "{id}");
            assert!(with_suffix(&id, "01234567").parse::<TenantId>().is_ok());
        }
        assert!(id_of(&long("1")).contains("::"));
    }

    #[test]
    fn what_names_something_else_is_reserved() {
        let node = NodeId::derive(&[1; 32]).to_string();
        for id in ["relay", "provider", "house", "bootstrap-admin-editor", "bootstrap-admin-viewer", &node] {
            assert!(is_reserved(id, "house"), "{id}");
        }
        assert!(!is_reserved("alice", "house"));
    }
}
