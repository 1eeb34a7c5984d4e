//! Which identities a machine has, and what it means that somebody holds one. Pure.
//!
//! MACs and GPU UUIDs are pins and evidence, not identities: they move between machines. An endorsement key is one
//! only once it was proved.

use crate::facts::{Identity, IdentityKind};
use shared::{
    api::join_requests::DeferReason,
    hardware::Machine,
    id::NodeId,
    problem::{Problem, Reason},
};

/// The rows that a machine with this key and this proven endorsement key holds once it is admitted, in the order in
/// which rows are locked.
#[must_use]
pub fn identities_of(machine: &Machine, key_sha256: &str, ek_sha256: Option<&str>) -> Vec<Identity> {
    let row = |kind, value: &str| Identity { kind, value: value.to_owned() };
    let mut rows: Vec<Identity> =
        ek_sha256.map(|ek| row(IdentityKind::EndorsementKey, ek)).into_iter().collect();
    rows.push(row(IdentityKind::Key, key_sha256));
    // A serial number only where there is no usable UUID: it is unique per vendor at best.
    if let Some(uuid) = machine.product_uuid.usable() {
        rows.push(row(IdentityKind::ProductUuid, uuid));
    } else if let Some(serial) = machine.serial.usable() {
        rows.push(row(IdentityKind::Serial, serial));
    }
    rows
}

/// A live node that holds one of the machine's identities.
#[derive(Clone, Debug)]
pub struct Incumbent {
    /// Which identity.
    pub identity: Identity,
    /// Which node.
    pub node: NodeId,
    /// Its tenant.
    pub tenant_id: String,
    /// Its pool.
    pub pool_id: String,
    /// The endorsement keys that it has proved: a TPM has several.
    pub eks_sha256: Vec<String>,
    /// Whether it sent a heartbeat within [`ALIVE_SECONDS`].
    pub alive: bool,
}

/// How long after a heartbeat an incumbent counts as alive, in seconds.
pub const ALIVE_SECONDS: i64 = 600;

/// The joining machine, as collisions are judged.
#[derive(Clone, Copy, Debug)]
pub struct Newcomer<'a> {
    /// Its token's pool.
    pub pool_id: &'a str,
    /// Its token's tenant.
    pub tenant_id: &'a str,
    /// The endorsement key that it has proved.
    pub ek_sha256: Option<&'a str>,
    /// Whether its token may take over a node.
    pub allow_reclaim: bool,
    /// Whether its token is pinned.
    pub pinned: bool,
    /// The node that its token is for, and no other.
    pub named: Option<Named<'a>>,
}

/// A node that a token is for: a metal machine's, which may not have joined yet.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The node.
    pub node: &'a NodeId,
    /// The endorsement keys that it has proved.
    pub eks_sha256: &'a [String],
}

/// What a join makes of the node table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// A node that was not there.
    New,
    /// The node with this key: the same machine again.
    Same(NodeId),
    /// The node whose identity the token may take over.
    Reclaim(NodeId),
}

/// Who the machine is, and what a person must be asked about that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// What its admission would be.
    pub admission: Admission,
    /// Why somebody has to look at it.
    pub reasons: Vec<DeferReason>,
    /// The nodes that those reasons are about, in order of id.
    pub about: Vec<NodeId>,
    /// Identities that stay with another tenant's node, also if the machine is admitted.
    pub disputed: Vec<Identity>,
}

/// Judges who the machine is by who holds its identities. Another tenant's node is never touched and never named.
///
/// # Errors
/// `identityTaken`, with the incumbent's id; `endorsementKeyMismatch`.
pub fn admission(newcomer: Newcomer<'_>, incumbents: &[Incumbent]) -> Result<Collision, Problem> {
    if let Some(named) = newcomer.named {
        return as_named(newcomer, named, incumbents);
    }
    let own_key = |i: &&Incumbent| i.pool_id == newcomer.pool_id && i.identity.kind == IdentityKind::Key;
    let same = incumbents.iter().find(own_key).map(|incumbent| incumbent.node.clone());
    let others = incumbents.iter().filter(|i| same.as_ref() != Some(&i.node));
    let (known, foreign): (Vec<&Incumbent>, Vec<&Incumbent>) =
        others.partition(|i| i.tenant_id == newcomer.tenant_id);
    let (mut reasons, mut about) = (Vec::new(), Vec::new());
    let admission = match (same, known.first()) {
        (Some(_), Some(incumbent)) => return Err(taken(incumbent, "")),
        (Some(node), None) => Admission::Same(node),
        (None, None) => Admission::New,
        (None, Some(incumbent)) => {
            if must_wait(newcomer, incumbent, &known)? {
                reasons.push(DeferReason::IncumbentAlive);
                about.push(incumbent.node.clone());
            }
            Admission::Reclaim(incumbent.node.clone())
        }
    };
    if !foreign.is_empty() {
        reasons.push(DeferReason::IdentityDisputed);
    }
    about.extend(foreign.iter().map(|incumbent| incumbent.node.clone()));
    about.sort();
    about.dedup();
    let disputed = foreign.into_iter().map(|incumbent| incumbent.identity.clone()).collect();
    Ok(Collision { admission, reasons, about, disputed })
}

/// Who the machine is whose token is for one node: that one, which it takes over, alive or not, if nobody else of its tenant
/// is what it says it is.
fn as_named(
    newcomer: Newcomer<'_>,
    named: Named<'_>,
    incumbents: &[Incumbent],
) -> Result<Collision, Problem> {
    let others = incumbents.iter().filter(|i| i.node != *named.node);
    let (known, foreign): (Vec<&Incumbent>, Vec<&Incumbent>) =
        others.partition(|i| i.tenant_id == newcomer.tenant_id);
    if let Some(incumbent) = known.first() {
        return Err(taken(incumbent, "; release that node first"));
    }
    if !named.eks_sha256.is_empty()
        && !newcomer.ek_sha256.is_some_and(|proved| named.eks_sha256.iter().any(|ek| ek == proved))
    {
        return Err(other_key(named.node));
    }
    let reasons = if foreign.is_empty() { Vec::new() } else { vec![DeferReason::IdentityDisputed] };
    let mut about: Vec<NodeId> = foreign.iter().map(|incumbent| incumbent.node.clone()).collect();
    about.sort();
    about.dedup();
    let disputed = foreign.into_iter().map(|incumbent| incumbent.identity.clone()).collect();
    Ok(Collision { admission: Admission::Reclaim(named.node.clone()), reasons, about, disputed })
}

/// Whether a person must see that the machine takes the node over.
fn must_wait(newcomer: Newcomer<'_>, incumbent: &Incumbent, all: &[&Incumbent]) -> Result<bool, Problem> {
    let one_node = all.iter().all(|other| other.node == incumbent.node);
    if !(newcomer.allow_reclaim && incumbent.pool_id == newcomer.pool_id && one_node) {
        let remedy = "; release that node, or take it over by a token of its own pool with allowReclaim (join-tokens create \
            --allow-reclaim)";
        return Err(taken(incumbent, remedy));
    }
    if incumbent.eks_sha256.is_empty() {
        return Ok(incumbent.alive && !newcomer.pinned);
    }
    if newcomer.ek_sha256.is_some_and(|proved| incumbent.eks_sha256.iter().any(|ek| ek == proved)) {
        return Ok(false);
    }
    Err(other_key(&incumbent.node))
}

pub(super) fn other_key(node: &NodeId) -> Problem {
    let detail = format!(
        "The node {node} has proved an endorsement key and is taken over by a machine that proves the same one only; \
         where its TPM was exchanged, release that node."
    );
    Problem::refused(Reason::EndorsementKeyMismatch, detail)
}

fn taken(incumbent: &Incumbent, remedy: &str) -> Problem {
    let kind = incumbent.identity.kind.as_str();
    let orders = match incumbent.identity.kind {
        IdentityKind::ProductUuid => " (in either byte order)",
        IdentityKind::Key | IdentityKind::Serial | IdentityKind::EndorsementKey => "",
    };
    let detail = format!("The machine's {kind}{orders} is held by the live node {}{remedy}.", incumbent.node);
    Problem::refused(Reason::IdentityTaken, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use DeferReason::{IdentityDisputed, IncumbentAlive};
    use IdentityKind::{EndorsementKey, Key, ProductUuid, Serial};
    use shared::hardware;

    const HERE: Newcomer<'_> = Newcomer {
        pool_id: "p",
        tenant_id: "t",
        ek_sha256: None,
        allow_reclaim: false,
        pinned: false,
        named: None,
    };

    fn node(seed: u8) -> NodeId {
        NodeId::derive(&[seed; 32])
    }
    fn incumbent(kind: IdentityKind, seed: u8, tenant: &str, pool: &str, alive: bool) -> Incumbent {
        Incumbent {
            identity: Identity { kind, value: "v".into() },
            node: node(seed),
            tenant_id: tenant.into(),
            pool_id: pool.into(),
            eks_sha256: Vec::new(),
            alive,
        }
    }
    fn with_ek(incumbent: Incumbent) -> Incumbent {
        Incumbent { eks_sha256: vec!["d".into(), "e".into()], ..incumbent }
    }

    #[test]
    fn a_serial_counts_only_without_a_usable_uuid_and_a_proven_key_always() {
        let kinds = |uuid: Option<&str>, serial: Option<&str>, ek: Option<&str>| -> Vec<IdentityKind> {
            let claim = hardware::Identity {
                product_uuid: uuid.map(Into::into),
                serial: serial.map(Into::into),
                ..Default::default()
            };
            identities_of(&Machine::judge(&claim), "k", ek).into_iter().map(|row| row.kind).collect()
        };
        let uuid = Some("00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(kinds(uuid, Some("SN1"), None), [Key, ProductUuid]);
        assert_eq!(kinds(Some("00000000-0000-0000-0000-000000000000"), Some("SN1"), None), [Key, Serial]);
        assert_eq!(kinds(None, Some("None"), None), [Key]);
        assert_eq!(kinds(uuid, None, Some("e")), [EndorsementKey, Key, ProductUuid]);
    }

    #[test]
    fn who_the_machine_is() {
        let reclaiming = Newcomer { allow_reclaim: true, ..HERE };
        let pinned = Newcomer { pinned: true, ..reclaiming };
        let proving = Newcomer { ek_sha256: Some("e"), ..reclaiming };
        let impostor = Newcomer { ek_sha256: Some("f"), ..pinned };
        let key = |pool| incumbent(Key, 1, "t", pool, true);
        let uuid = |seed, tenant, pool, alive| incumbent(ProductUuid, seed, tenant, pool, alive);
        let (taken, mismatch) = (Err(Some(Reason::IdentityTaken)), Err(Some(Reason::EndorsementKeyMismatch)));
        let new = |reasons: &[DeferReason]| Ok((Admission::New, reasons.to_vec()));
        let same = |reasons: &[DeferReason]| Ok((Admission::Same(node(1)), reasons.to_vec()));
        let reclaim = |reasons: &[DeferReason]| Ok((Admission::Reclaim(node(2)), reasons.to_vec()));
        for (who, incumbents, expected) in [
            (HERE, vec![], new(&[])),
            (HERE, vec![key("p")], same(&[])),
            (HERE, vec![key("p"), uuid(1, "t", "p", true)], same(&[])),
            (HERE, vec![key("p"), uuid(2, "t", "p", false)], taken.clone()),
            (reclaiming, vec![key("p"), uuid(2, "t", "p", false)], taken.clone()),
            (HERE, vec![key("p"), uuid(2, "u", "r", false)], same(&[IdentityDisputed])),
            (HERE, vec![key("q")], taken.clone()),
            (reclaiming, vec![key("q")], taken.clone()),
            (HERE, vec![uuid(2, "t", "p", false)], taken.clone()),
            (reclaiming, vec![uuid(2, "t", "p", false)], reclaim(&[])),
            (reclaiming, vec![uuid(2, "t", "p", true)], reclaim(&[IncumbentAlive])),
            (pinned, vec![uuid(2, "t", "p", true)], reclaim(&[])),
            (reclaiming, vec![uuid(2, "t", "p", false), uuid(3, "t", "p", false)], taken.clone()),
            (pinned, vec![uuid(2, "t", "q", false)], taken.clone()),
            (HERE, vec![uuid(2, "u", "r", false)], new(&[IdentityDisputed])),
            (pinned, vec![uuid(2, "u", "r", true)], new(&[IdentityDisputed])),
            (
                reclaiming,
                vec![uuid(2, "t", "p", true), uuid(3, "u", "r", false)],
                reclaim(&[IncumbentAlive, IdentityDisputed]),
            ),
            (proving, vec![with_ek(uuid(2, "t", "p", true))], reclaim(&[])),
            (
                Newcomer { ek_sha256: Some("d"), ..reclaiming },
                vec![with_ek(uuid(2, "t", "p", true))],
                reclaim(&[]),
            ),
            (pinned, vec![with_ek(uuid(2, "t", "p", false))], mismatch.clone()),
            (impostor, vec![with_ek(uuid(2, "t", "p", false))], mismatch),
            (HERE, vec![with_ek(incumbent(EndorsementKey, 2, "t", "p", false))], taken),
        ] {
            let judged = admission(who, &incumbents)
                .map(|collision| (collision.admission, collision.reasons))
                .map_err(|problem| problem.reason);
            assert_eq!(judged, expected, "{who:?} {incumbents:?}");
        }
    }

    #[test]
    fn a_token_for_one_node_is_for_no_other() {
        let (own, eks) = (node(2), vec!["e".to_owned()]);
        let named = Newcomer { named: Some(Named { node: &own, eks_sha256: &[] }), ..HERE };
        let proven = Newcomer { named: Some(Named { node: &own, eks_sha256: &eks }), ..HERE };
        let held = |seed, tenant: &str| incumbent(ProductUuid, seed, tenant, "p", true);
        for (who, incumbents, expected) in [
            (named, vec![], Ok(vec![])),
            (named, vec![held(2, "t")], Ok(vec![])),
            (named, vec![held(3, "t")], Err(Some(Reason::IdentityTaken))),
            (named, vec![incumbent(Key, 3, "t", "p", false)], Err(Some(Reason::IdentityTaken))),
            (named, vec![held(3, "u")], Ok(vec![IdentityDisputed])),
            (proven, vec![], Err(Some(Reason::EndorsementKeyMismatch))),
            (Newcomer { ek_sha256: Some("f"), ..proven }, vec![], Err(Some(Reason::EndorsementKeyMismatch))),
            (Newcomer { ek_sha256: Some("e"), ..proven }, vec![held(2, "t")], Ok(vec![])),
        ] {
            let judged = admission(who, &incumbents).map_err(|problem| problem.reason);
            let admission = judged.as_ref().ok().map(|collision| collision.admission.clone());
            assert!(admission.is_none_or(|it| it == Admission::Reclaim(own.clone())), "{who:?}");
            assert_eq!(judged.map(|collision| collision.reasons), expected, "{who:?} {incumbents:?}");
        }
    }

    #[test]
    fn a_person_is_asked_about_the_nodes_that_stand_in_the_way() {
        let reclaiming = Newcomer { allow_reclaim: true, ..HERE };
        let about = |incumbents: &[Incumbent]| admission(reclaiming, incumbents).unwrap().about;
        let own = |alive| incumbent(ProductUuid, 2, "t", "p", alive);
        let foreign = |seed| incumbent(Serial, seed, "u", "r", true);
        let mut both = vec![node(2), node(3)];
        both.sort();
        assert_eq!(about(&[own(true), foreign(3), foreign(3)]), both);
        assert_eq!(
            about(&[own(false), foreign(3)]),
            [node(3)],
            "nobody need see that this one is taken over"
        );
        assert_eq!(about(&[own(false)]), []);
    }

    #[test]
    fn what_another_tenant_holds_stays_theirs() {
        let foreign = incumbent(ProductUuid, 7, "u", "r", true);
        let collision = admission(HERE, std::slice::from_ref(&foreign)).unwrap();
        assert_eq!((collision.disputed, collision.about), (vec![foreign.identity], vec![node(7)]));
        let own = incumbent(ProductUuid, 7, "t", "q", false);
        assert!(admission(HERE, &[own]).unwrap_err().detail.contains(node(7).as_str()));
    }
}
