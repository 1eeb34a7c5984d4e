//! Which identities a machine has, and what it means that somebody holds one. Pure.
//!
//! MACs and GPU UUIDs are pins and evidence, not identities: they move between machines.

use crate::facts::{Identity, IdentityKind};
use shared::{
    hardware::Machine,
    id::NodeId,
    problem::{Problem, Reason},
};

/// The rows that a machine with this key holds once it is admitted, in the order in which rows are locked.
#[must_use]
pub fn identities_of(machine: &Machine, key_sha256: &str) -> Vec<Identity> {
    let mut rows = vec![Identity { kind: IdentityKind::Key, value: key_sha256.to_owned() }];
    // A serial number only where there is no usable UUID: it is unique per vendor at best.
    if let Some(uuid) = machine.product_uuid.usable() {
        rows.push(Identity { kind: IdentityKind::ProductUuid, value: uuid.to_owned() });
    } else if let Some(serial) = machine.serial.usable() {
        rows.push(Identity { kind: IdentityKind::Serial, value: serial.to_owned() });
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
    /// Whether its token may take over a node.
    pub allow_reclaim: bool,
    /// Whether its token is pinned.
    pub pinned: bool,
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

/// Judges who the machine is by who holds its identities.
///
/// # Errors
/// `identityTaken`, with the incumbent's id where it is the same tenant's.
pub fn admission(newcomer: Newcomer<'_>, incumbents: &[Incumbent]) -> Result<Admission, Problem> {
    let own = |incumbent: &&Incumbent| incumbent.pool_id == newcomer.pool_id;
    let same = incumbents.iter().filter(own).find(|incumbent| incumbent.identity.kind == IdentityKind::Key);
    let others = || incumbents.iter().filter(|i| same.is_none_or(|same| same.node != i.node));
    if let Some(same) = same {
        return match others().next() {
            None => Ok(Admission::Same(same.node.clone())),
            Some(incumbent) => Err(taken(newcomer, incumbent, "")),
        };
    }
    let Some(incumbent) = others().next() else { return Ok(Admission::New) };
    let one_node = incumbents.iter().all(|other| other.node == incumbent.node);
    if !(newcomer.allow_reclaim && own(&incumbent) && one_node) {
        return Err(taken(
            newcomer,
            incumbent,
            "; a token with allowReclaim of its own pool may take it over, or release that node",
        ));
    }
    if incumbent.alive && !newcomer.pinned {
        let remedy = "; it sent a heartbeat within 10 minutes: stop it and wait, pin the token to the machine, or release that node";
        return Err(taken(newcomer, incumbent, remedy));
    }
    Ok(Admission::Reclaim(incumbent.node.clone()))
}

/// `identityTaken`; another tenant's node is never named.
fn taken(newcomer: Newcomer<'_>, incumbent: &Incumbent, remedy: &str) -> Problem {
    let kind = incumbent.identity.kind.as_str();
    let detail = if incumbent.tenant_id == newcomer.tenant_id {
        format!("The machine's {kind} is held by the live node {}{remedy}.", incumbent.node)
    } else {
        format!("The machine's {kind} is in use; the site's operator can tell by whom.")
    };
    Problem::refused(Reason::IdentityTaken, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shared::hardware;

    const HERE: Newcomer<'_> = Newcomer { pool_id: "p", tenant_id: "t", allow_reclaim: false, pinned: false };

    fn node(seed: u8) -> NodeId {
        NodeId::derive(&[seed; 32])
    }
    fn incumbent(kind: IdentityKind, seed: u8, tenant: &str, pool: &str, alive: bool) -> Incumbent {
        let identity = Identity { kind, value: "v".into() };
        Incumbent { identity, node: node(seed), tenant_id: tenant.into(), pool_id: pool.into(), alive }
    }

    #[test]
    fn a_serial_counts_only_without_a_usable_uuid() {
        let kinds = |uuid: Option<&str>, serial: Option<&str>| -> Vec<IdentityKind> {
            let claim = hardware::Identity {
                product_uuid: uuid.map(Into::into),
                serial: serial.map(Into::into),
                ..Default::default()
            };
            identities_of(&Machine::judge(&claim), "k").into_iter().map(|row| row.kind).collect()
        };
        use IdentityKind::{Key, ProductUuid, Serial};
        let uuid = Some("00112233-4455-6677-8899-aabbccddeeff");
        assert_eq!(kinds(uuid, Some("SN1")), [Key, ProductUuid]);
        assert_eq!(kinds(Some("00000000-0000-0000-0000-000000000000"), Some("SN1")), [Key, Serial]);
        assert_eq!(kinds(None, Some("None")), [Key]);
    }

    #[test]
    fn who_the_machine_is() {
        use IdentityKind::{Key, ProductUuid};
        let reclaiming = Newcomer { allow_reclaim: true, ..HERE };
        let pinned = Newcomer { pinned: true, ..reclaiming };
        let key = |pool| incumbent(Key, 1, "t", pool, true);
        let uuid = |seed, tenant, pool, alive| incumbent(ProductUuid, seed, tenant, pool, alive);
        for (who, incumbents, expected) in [
            (HERE, vec![], Some(Admission::New)),
            (HERE, vec![key("p")], Some(Admission::Same(node(1)))),
            (HERE, vec![key("p"), uuid(1, "t", "p", true)], Some(Admission::Same(node(1)))),
            (HERE, vec![key("p"), uuid(2, "t", "p", false)], None),
            (reclaiming, vec![key("p"), uuid(2, "t", "p", false)], None),
            (HERE, vec![key("q")], None),
            (reclaiming, vec![key("q")], None),
            (HERE, vec![uuid(2, "t", "p", false)], None),
            (reclaiming, vec![uuid(2, "t", "p", false)], Some(Admission::Reclaim(node(2)))),
            (reclaiming, vec![uuid(2, "t", "p", true)], None),
            (pinned, vec![uuid(2, "t", "p", true)], Some(Admission::Reclaim(node(2)))),
            (pinned, vec![uuid(2, "t", "q", false)], None),
            (pinned, vec![uuid(2, "u", "r", false)], None),
        ] {
            assert_eq!(admission(who, &incumbents).ok(), expected, "{who:?} {incumbents:?}");
        }
    }

    #[test]
    fn only_the_own_tenants_incumbent_is_named() {
        let named = |tenant: &str| {
            let incumbents = [incumbent(IdentityKind::ProductUuid, 7, tenant, "q", false)];
            admission(HERE, &incumbents).unwrap_err().detail.contains(node(7).as_str())
        };
        assert!(named("t"));
        assert!(!named("u"));
    }
}
