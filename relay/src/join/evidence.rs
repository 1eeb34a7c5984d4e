//! What a machine shows by its TPM: the two round trips of the proof, around the pure rules of `attest::tpm`.
//!
//! All of it happens before the transaction that admits, with nothing written: a challenge is a sealed box that comes
//! back. What the pool knows of the proven key is judged inside that transaction, where the policy is read too; of an
//! authority that vouches for the key only whether it is the pool's still, since its signatures can't change.

use super::{
    attest::{
        endorsement::Endorsement,
        tpm::{
            BadEndorsementKey, KeyNotTpm, Known, Offered,
            authorities::{Authority, parse_bundle},
            challenge::{self, Expected, Subject},
            choose, judge_node_key, judge_offer,
        },
    },
    tokens,
};
use crate::{
    call::Call,
    facts::{IdentityKind, NodeFacts, PoolFacts, TokenFacts},
    fault::Fault,
    store::{
        StoreError, Tx, certificates,
        endorsement_authorities::{self, StoredAuthority},
        endorsement_keys,
        identities::{self, KnownKeys},
        inventory, join_requests, join_tokens, pools,
    },
};
use shared::{
    api::{
        join_requests::JoinRequestState,
        node::{Challenge, EndorsementKey, JoinInput, Proof, Tpm},
        pools::{DiscoveryMode, TpmMode, UnknownKeys},
    },
    binary::Binary,
    csr::CertificateRequest,
    hex,
    id::{EndorsementAuthorityId, JoinTokenId, NodeId},
    problem::{Problem, Reason},
    time::Timestamp,
    tpm::EndorsementPublic,
};

/// A proven endorsement key.
pub(super) struct Proven {
    /// SHA-256 of its SubjectPublicKeyInfo.
    pub(super) ek_sha256: String,
    /// Who made the TPM, as the key's certificate says: anybody can say so, unless an authority vouches for the key.
    pub(super) manufacturer: Option<String>,
    /// The authority of the pool that vouches for it.
    vouched_by: Option<EndorsementAuthorityId>,
}

impl Proven {
    /// Whether an authority of the pool vouches for the key.
    pub(super) fn is_vouched(&self) -> bool {
        self.vouched_by.is_some()
    }
}

/// What a machine has shown so far.
pub(super) enum Evidence {
    /// Nothing that counts.
    Nothing,
    /// It must answer this first.
    Asked(Challenge),
    /// Its key lives beside this endorsement key.
    Proven(Proven),
}

/// What a machine comes with, as far as the store is asked about it.
struct Asked<'a> {
    csr_sha256: &'a str,
    /// Digests of the offered endorsement keys.
    keys: &'a [String],
    /// Whether some have certificates.
    have_certificates: bool,
}

/// What is known of the keys that a machine offers.
#[derive(Default)]
struct Facts {
    bundles: Vec<StoredAuthority>,
    banned: Vec<[u8; 32]>,
    pinned: Option<[u8; 32]>,
    bound: Vec<[u8; 32]>,
    listed: Vec<[u8; 32]>,
    waiting: Vec<[u8; 32]>,
    asks_authorities: bool,
}

impl Facts {
    fn known(&self) -> Known<'_> {
        Known {
            banned: &self.banned,
            pinned: self.pinned,
            bound: &self.bound,
            listed: &self.listed,
            waiting: &self.waiting,
            asks_authorities: self.asks_authorities,
        }
    }
}

/// What a joining machine shows. A join that was admitted before has nothing to show any more.
///
/// # Errors
/// `keyNotTpm`, `badEndorsementKey`, `badProof`; faults of the relay.
pub(super) async fn of_join(
    call: &Call,
    token: &JoinTokenId,
    request: &CertificateRequest,
    input: &JoinInput,
) -> Result<Evidence, Fault> {
    let Some(tpm) = &input.tpm else { return without_tpm(input.proof.as_ref()) };
    let csr_sha256 = hex::encode(&request.digest());
    let keys = digests(tpm);
    let have_certificates = tpm.endorsement_keys.iter().any(|key| !key.certificates.is_empty());
    let asked = Asked { csr_sha256: &csr_sha256, keys: &keys, have_certificates };
    let facts = call
        .relay
        .store
        .read("node.evidence", (token, asked, call.now), |tx, (token, asked, now)| {
            Box::pin(wanted(tx, token, asked, *now))
        })
        .await?;
    match facts {
        Some(facts) => judge(call, Subject::Join(token), request, (tpm, input.proof.as_ref()), &facts),
        None => Ok(Evidence::Nothing),
    }
}

/// What a node shows that has proved an endorsement key and renews with another key: only that endorsement key counts.
///
/// # Errors
/// As [`of_join`]; also `tpmRequired` without a TPM.
pub(super) fn of_renewal(
    call: &Call,
    node: &NodeId,
    ek_sha256: &str,
    request: &CertificateRequest,
    (tpm, proof): (Option<&Tpm>, Option<&Proof>),
) -> Result<Evidence, Fault> {
    let Some(tpm) = tpm else {
        let detail = "The node has proved an endorsement key: another node key must be proved beside it (tpm, proof), or \
            renew with the key that it has.";
        return Err(Problem::refused(Reason::TpmRequired, detail).into());
    };
    let pinned = hex::decode::<32>(ek_sha256);
    let mismatch = || {
        let detail = "The node has proved another endorsement key than those that are offered; where the TPM was exchanged, \
            release the node and join anew.";
        Problem::refused(Reason::EndorsementKeyMismatch, detail)
    };
    if !tpm.endorsement_keys.iter().any(|key| digest(key) == pinned) {
        return Err(mismatch().into());
    }
    let facts = Facts { pinned, ..Facts::default() };
    match judge(call, Subject::Renewal(node), request, (tpm, proof), &facts)? {
        Evidence::Proven(proven) if proven.ek_sha256 != ek_sha256 => Err(mismatch().into()),
        evidence => Ok(evidence),
    }
}

/// What the pool knows of a proven key, as it is inside the transaction that admits.
///
/// # Errors
/// The store's.
pub(super) async fn endorsement(
    tx: &mut Tx<'_>,
    token: &TokenFacts,
    pool: &PoolFacts,
    proven: &Proven,
) -> Result<Endorsement, StoreError> {
    let pin = token.expect.as_ref().and_then(|expect| expect.ek_sha256.as_ref());
    let pinned = pin.is_some_and(|pin| pin.as_str() == proven.ek_sha256);
    let listed = !endorsement_keys::listed(tx, &pool.pool_id, &[&proven.ek_sha256]).await?.is_empty();
    let endorsed = match &proven.vouched_by {
        Some(id) if asks_authorities(pool) && !pinned && !listed => {
            endorsement_authorities::stands(tx, &pool.pool_id, id).await?
        }
        _ => false,
    };
    Ok(Endorsement { pinned, listed, endorsed })
}

/// Whether it counts who vouches for a proven key.
fn asks_authorities(pool: &PoolFacts) -> bool {
    pool.policy.tpm.authority_admits && pool.policy.unknown_endorsement_keys == UnknownKeys::Defer
}

fn without_tpm(proof: Option<&Proof>) -> Result<Evidence, Fault> {
    match proof {
        None => Ok(Evidence::Nothing),
        Some(_) => {
            let detail = "A proof comes with the same tpm as the join that was challenged.";
            Err(Problem::refused(Reason::BadProof, detail).into())
        }
    }
}

/// What is known of the keys, if the join is one that has to show something.
async fn wanted(
    tx: &mut Tx<'_>,
    token: &JoinTokenId,
    asked: &Asked<'_>,
    now: Timestamp,
) -> Result<Option<Facts>, Fault> {
    let csr_sha256 = asked.csr_sha256;
    let Some(token) = join_tokens::find(tx, token).await? else { return Ok(None) };
    let Some(pool) = pools::load(tx, &token.pool_id).await? else { return Ok(None) };
    if certificates::find_join(tx, &token.id, csr_sha256).await?.is_some() {
        return Ok(None);
    }
    // Whoever may not join by this token need not prove anything.
    let earlier = join_requests::of_join(tx, &token.id, csr_sha256).await?;
    // What requests hold may be overdue, and is counted where the join is judged.
    tokens::hears(&TokenFacts { pending: 0, ..token.clone() }, !earlier.is_empty(), now)?;
    let keys: Vec<&str> = asked.keys.iter().map(String::as_str).collect();
    let KnownKeys { held, banned } = identities::known_endorsement_keys(tx, &pool.site_id, &keys).await?;
    let pin = token.expect.as_ref().and_then(|expect| expect.ek_sha256.as_ref());
    let named = match pool.policy.attestors.discovery {
        DiscoveryMode::Off => Vec::new(),
        DiscoveryMode::Defer => inventory::named_keys(tx, &pool.pool_id, &keys).await?,
    };
    // `off` looks at no TPM that nobody knows. A node that has proved its key is taken over by that key alone, a ban covers
    // it, and the inventory may know the machine by it: all ask for the proof whatever the policy has become since.
    let is_known = pin.is_some() || !held.is_empty() || !banned.is_empty() || !named.is_empty();
    if pool.policy.attestors.tpm == TpmMode::Off && !is_known {
        return Ok(None);
    }
    let of_requests = |state: JoinRequestState| {
        let some = earlier.iter().filter(move |request| request.state.at(now) == state);
        some.filter_map(|request| request.ek_sha256.clone())
    };
    let listed = endorsement_keys::listed(tx, &pool.pool_id, &keys).await?;
    // They choose the key; and with the proof, the operator is told whether they vouch for it.
    let bundles = match asked.have_certificates {
        true => endorsement_authorities::all(tx, &pool.pool_id).await?,
        false => Vec::new(),
    };
    Ok(Some(Facts {
        bundles,
        banned: decoded(banned),
        pinned: pin.and_then(|pin| hex::decode(pin.as_str())),
        bound: decoded(held.into_iter().chain(of_requests(JoinRequestState::Approved))),
        listed: decoded(listed.into_iter().chain(named)),
        waiting: decoded(of_requests(JoinRequestState::Pending)),
        asks_authorities: asks_authorities(&pool),
    }))
}

fn decoded(keys: impl IntoIterator<Item = String>) -> Vec<[u8; 32]> {
    keys.into_iter().filter_map(|key| hex::decode(&key)).collect()
}

/// Challenges the machine, or judges its answer.
fn judge(
    call: &Call,
    subject: Subject<'_>,
    request: &CertificateRequest,
    (tpm, proof): (&Tpm, Option<&Proof>),
    facts: &Facts,
) -> Result<Evidence, Fault> {
    let relay = &call.relay;
    let node_key = judge_node_key(tpm.key_public.as_bytes(), &request.key).map_err(KeyNotTpm::refusal)?;
    let (authorities, bundle_of) = authorities(&facts.bundles)?;
    let offers: Vec<Result<Offered, BadEndorsementKey>> =
        tpm.endorsement_keys.iter().map(|key| judged(key, &authorities, call.now)).collect();
    let csr_sha256 = &request.digest();
    let Some(proof) = proof else {
        let chosen = choose(&offers, facts.known()).map_err(BadEndorsementKey::refusal)?;
        let question = (subject, csr_sha256);
        return challenge::issue(&relay.keys, question, chosen, &node_key, call.now, &relay.random)
            .map(Evidence::Asked)
            .map_err(Fault::internal("making a challenge"));
    };
    let usable: Vec<&Offered> = offers.iter().filter_map(|offer| offer.as_ref().ok()).collect();
    let ek_sha256s: Vec<[u8; 32]> = usable.iter().map(|offered| offered.digest).collect();
    let expected = Expected { subject, csr_sha256, ek_sha256s: &ek_sha256s };
    let secret = proof.secret.clone().into_secret();
    let judged = challenge::judge_proof(&relay.keys, &proof.challenge_id, &secret, expected, call.now);
    let place = judged.map_err(|why| {
        tracing::info!(request_id = call.request_id, %why, "a proof is refused");
        why.refusal()
    })?;
    let offered = usable.get(place).ok_or_else(|| BadEndorsementKey::None.refusal())?;
    Ok(Evidence::Proven(Proven {
        ek_sha256: offered.ek_sha256(),
        manufacturer: offered.claims().and_then(|claims| claims.manufacturer.clone()),
        vouched_by: offered.authority().and_then(|place| bundle_of.get(place)).map(|id| (*id).clone()),
    }))
}

/// All endorsement keys that a node has proved. Its row names the last one, which is none that it holds where it was in
/// dispute.
///
/// # Errors
/// The store's.
pub(super) async fn proven_keys(tx: &mut Tx<'_>, node: &NodeFacts) -> Result<Vec<String>, StoreError> {
    let Some(last) = &node.ek_sha256 else { return Ok(Vec::new()) };
    let held = identities::proven(tx, &node.id).await?.into_iter();
    let keys = held.filter(|identity| identity.kind == IdentityKind::EndorsementKey);
    Ok(keys.map(|identity| identity.value).chain([last.clone()]).collect())
}

fn judged(
    key: &EndorsementKey,
    authorities: &[Authority],
    now: Timestamp,
) -> Result<Offered, BadEndorsementKey> {
    let certificates: Vec<&[u8]> = key.certificates.iter().map(Binary::as_bytes).collect();
    judge_offer(key.public.as_bytes(), &certificates, authorities, now)
}

/// The authorities of all bundles, and which bundle each is of.
fn authorities(bundles: &[StoredAuthority]) -> Result<(Vec<Authority>, Vec<&EndorsementAuthorityId>), Fault> {
    let (mut all, mut bundle_of) = (Vec::new(), Vec::new());
    for bundle in bundles {
        let read = parse_bundle(&bundle.certificates).map_err(|problems| {
            let first = problems.first().map(ToString::to_string).unwrap_or_default();
            Fault::internal("reading a pool's endorsement authorities")(first)
        })?;
        bundle_of.extend(read.iter().map(|_| &bundle.id));
        all.extend(read);
    }
    Ok((all, bundle_of))
}

/// The digests of the offered keys that are keys at all, in hexadecimal.
fn digests(tpm: &Tpm) -> Vec<String> {
    tpm.endorsement_keys.iter().filter_map(digest).map(|digest| hex::encode(&digest)).collect()
}

fn digest(key: &EndorsementKey) -> Option<[u8; 32]> {
    EndorsementPublic::parse(key.public.as_bytes()).ok().map(|public| public.digest())
}
