//! compute/endorsementAuthorities: whose certificates say to a pool that a TPM is genuine, decided by whoever vouches
//! for its site. A bundle is judged when it comes, and kept as PEM blocks without the text between them.

use super::{
    idempotency,
    pools::{DecidedBy, held, named},
    steps::{News, announce, invalid_state, page, page_size},
};
use crate::{
    auth::policy::not_found,
    ca::pem_of,
    call::Call,
    events::Kind,
    facts::PoolFacts,
    fault::Fault,
    join::attest::tpm::authorities::{Authority, parse_bundle},
    store::{
        StoreError, Tx,
        endorsement_authorities::{self, StoredAuthority},
    },
};
use serde_json::json;
use shared::{
    api::{
        access::Action,
        endorsement_authorities::{
            AddEndorsementAuthority, AuthorityCertificate, EndorsementAuthority, EndorsementAuthorityAnswer,
            EndorsementAuthorityList, ListEndorsementAuthorities, MAX_AUTHORITIES, MAX_BUNDLE_BYTES,
            RemoveEndorsementAuthority,
        },
    },
    id::EndorsementAuthorityId,
    problem::{FieldError, Problem},
};

/// compute/endorsementAuthorities/add.
///
/// # Errors
/// INVALID_INPUT with all that is wrong with the bundle; NOT_FOUND, PERMISSION_DENIED; CONFLICT for an idempotency key
/// that was used for another; INVALID_STATE for the 33rd of a pool.
pub async fn add(call: Call, input: AddEndorsementAuthority) -> Result<EndorsementAuthorityAnswer, Fault> {
    let authorities = judge(&input.certificates)?;
    let store = &call.relay.store;
    let add = store.transact(call.method, (&call, &input, &authorities), |tx, (call, input, authorities)| {
        Box::pin(enlist(tx, call, input, authorities))
    });
    add.await
}

/// compute/endorsementAuthorities/list.
///
/// # Errors
/// NOT_FOUND, PERMISSION_DENIED.
pub async fn list(call: Call, input: ListEndorsementAuthorities) -> Result<EndorsementAuthorityList, Fault> {
    let size = page_size(input.limit);
    let store = &call.relay.store;
    let read = store.read(call.method, (&call, &input), |tx, (call, input)| {
        Box::pin(async move {
            let name = (&input.tenant_id, &input.pool_id);
            let action = Action::EndorsementAuthoritiesRead;
            let pool = named(tx, call, name, action, DecidedBy::SiteOwner).await?;
            let after = input.cursor.as_ref().map_or("", |id| id.as_str());
            Ok::<_, Fault>(endorsement_authorities::page(tx, &pool.pool_id, after, size + 1).await?)
        })
    });
    let (stored, cursor) = page(read.await?, size, |authority| authority.id.clone());
    let views: Result<_, Fault> = stored.iter().map(read_back).collect();
    Ok(EndorsementAuthorityList { endorsement_authorities: views?, cursor })
}

/// compute/endorsementAuthorities/remove: nodes that joined by it stay.
///
/// # Errors
/// NOT_FOUND (also for the bundle), PERMISSION_DENIED.
pub async fn remove(
    call: Call,
    input: RemoveEndorsementAuthority,
) -> Result<EndorsementAuthorityAnswer, Fault> {
    let store = &call.relay.store;
    store.transact(call.method, (&call, &input), |tx, (call, input)| Box::pin(strike(tx, call, input))).await
}

/// The bundle's certificates. Nothing of it is repeated in a refusal: a private key may have got into it.
fn judge(certificates: &str) -> Result<Vec<Authority>, Problem> {
    let field = || "certificates".to_owned();
    // The schema counts characters.
    if certificates.len() > MAX_BUNDLE_BYTES {
        return Err(Problem::invalid_field(field(), format!("must be at most {MAX_BUNDLE_BYTES} bytes")));
    }
    parse_bundle(certificates).map_err(|problems| {
        let errors =
            problems.iter().map(|problem| FieldError { field: field(), message: problem.to_string() });
        let errors: Vec<FieldError> = errors.collect();
        // In the order of the blocks: sorted by words, the tenth would come before the second.
        Problem::invalid(errors.clone()).with_errors(errors)
    })
}

async fn enlist(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &AddEndorsementAuthority,
    authorities: &[Authority],
) -> Result<EndorsementAuthorityAnswer, Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    named(tx, call, name, Action::EndorsementAuthoritiesAdd, DecidedBy::SiteOwner).await?;
    // The lock makes the count exact.
    let pool = held(tx, &input.pool_id).await?;
    if let Some(answer) = idempotency::replay(tx, call, &input.idempotency_key, input).await? {
        return Ok(answer);
    }
    if endorsement_authorities::count(tx, &pool.pool_id).await? >= MAX_AUTHORITIES {
        let detail = format!(
            "The pool {} has {MAX_AUTHORITIES} bundles of endorsement authorities, and no more fit; remove one.",
            pool.pool_id
        );
        return Err(invalid_state(detail));
    }
    let stored = StoredAuthority {
        id: EndorsementAuthorityId::draw(call.now, call.relay.random.bytes()),
        certificates: authorities.iter().map(|authority| pem_of(authority.der())).collect(),
        added_at: call.now,
        added_by: call.actor(),
    };
    endorsement_authorities::insert(tx, &pool.pool_id, &stored).await?;
    let view = view(&stored, authorities);
    tell(tx, call, Kind::EndorsementAuthorityAdded, &pool, &view).await?;
    let answer = EndorsementAuthorityAnswer { endorsement_authority: view };
    idempotency::keep(tx, call, &input.idempotency_key, input, &answer).await?;
    Ok(answer)
}

async fn strike(
    tx: &mut Tx<'_>,
    call: &Call,
    input: &RemoveEndorsementAuthority,
) -> Result<EndorsementAuthorityAnswer, Fault> {
    let name = (&input.tenant_id, &input.pool_id);
    named(tx, call, name, Action::EndorsementAuthoritiesRemove, DecidedBy::SiteOwner).await?;
    // Of two that remove one bundle only the first tells so.
    let pool = held(tx, &input.pool_id).await?;
    let id = &input.authority_id;
    let found = endorsement_authorities::find(tx, &pool.pool_id, id).await?;
    let stored = found.ok_or_else(|| not_found(&format!("endorsement authority {id}")))?;
    let view = read_back(&stored)?;
    endorsement_authorities::remove(tx, &pool.pool_id, id).await?;
    tell(tx, call, Kind::EndorsementAuthorityRemoved, &pool, &view).await?;
    Ok(EndorsementAuthorityAnswer { endorsement_authority: view })
}

async fn tell(
    tx: &mut Tx<'_>,
    call: &Call,
    kind: Kind,
    pool: &PoolFacts,
    authority: &EndorsementAuthority,
) -> Result<(), StoreError> {
    let news = News { kind, tenant: &pool.tenant_id, subject: authority.id.as_str() };
    let certificates: Vec<&str> = authority.certificates.iter().map(|one| one.sha256.as_str()).collect();
    announce(tx, call, news, json!({"poolId": pool.pool_id, "certificates": certificates})).await
}

/// A stored bundle as the wire shows it.
fn read_back(stored: &StoredAuthority) -> Result<EndorsementAuthority, Fault> {
    let authorities = parse_bundle(&stored.certificates).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Fault::internal("reading a stored bundle of endorsement authorities")(problems.join("; "))
    })?;
    Ok(view(stored, &authorities))
}

fn view(stored: &StoredAuthority, authorities: &[Authority]) -> EndorsementAuthority {
    let certificates = authorities.iter().map(|authority| AuthorityCertificate {
        subject: authority.subject().to_owned(),
        sha256: authority.fingerprint(),
        not_after: authority.not_after(),
    });
    EndorsementAuthority {
        id: stored.id.clone(),
        certificates: certificates.collect(),
        added_at: stored.added_at,
        added_by: stored.added_by.clone(),
    }
}
