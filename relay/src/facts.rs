//! What is loaded to be judged: plain data that the store fills and the pure rules read. No I/O, no decisions but
//! those that follow from one fact alone.

use crate::auth::policy::PoolOwners;
use shared::{
    api::{
        join_tokens::{Expect, Hosted},
        node::Trust,
        nodes::NodeState,
        pools::{AgentKind, Policy, Pool},
    },
    id::{JoinTokenId, NodeId, PoolUid},
    time::Timestamp,
};

/// A person as an identity provider vouches for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vouched {
    /// The provider.
    pub issuer: String,
    /// Whom it knows them as; never another person's.
    pub subject: String,
    /// Their login, of which their tenant's id is made.
    pub login: String,
    /// Their name for people.
    pub display_name: String,
}

/// A token as the join judges it.
#[derive(Clone, Debug)]
pub struct TokenFacts {
    /// Its id.
    pub id: JoinTokenId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// How many machines it admits.
    pub max_uses: i64,
    /// How many it has admitted.
    pub uses: i64,
    /// How many uses join requests hold.
    pub pending: i64,
    /// What the machine must be.
    pub expect: Option<Expect>,
    /// Whether it may take over a node of its pool.
    pub allow_reclaim: bool,
    /// Where its machines' bcd is hosted.
    pub hosted: Option<Hosted>,
    /// When it ends.
    pub expires_at: Timestamp,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
    /// What its bearer becomes.
    pub purpose: TokenPurpose,
    /// The one machine that it is for: a node that is there already.
    pub node: Option<NodeId>,
}

/// What the bearer of a join token becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenPurpose {
    /// A node.
    Node,
    /// The agent in a metal machine: it gets a certificate that opens its steps, and is no node by that.
    Agent,
}

impl TokenPurpose {
    /// As the store says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Agent => "agent",
        }
    }

    /// From its word; `None` for any other.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Node, Self::Agent].into_iter().find(|purpose| purpose.as_str() == word)
    }
}

/// A pool that is there, and what its site says about it.
#[derive(Clone, Debug)]
pub struct PoolFacts {
    /// The pool's own id, `pl_…`.
    pub uid: PoolUid,
    /// The operator's name for it.
    pub pool_id: String,
    /// Whose machines join.
    pub tenant_id: String,
    /// The tenant's project.
    pub project_id: String,
    /// Where it stands.
    pub site_id: String,
    /// What runs on its machines.
    pub agent: AgentKind,
    /// How it judges.
    pub policy: Policy,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who vouches for what stands there.
    pub site_owner: String,
    /// Whether the site is a tenant's own.
    pub custom_site: bool,
}

impl PoolFacts {
    /// Who has a say about it.
    #[must_use]
    pub fn owners(&self) -> PoolOwners<'_> {
        PoolOwners {
            pool: &self.pool_id,
            tenant: &self.tenant_id,
            project: &self.project_id,
            site_owner: &self.site_owner,
        }
    }

    /// Whether the platform owns the pool, so that `platformOperated` counts.
    #[must_use]
    pub fn platform_operated_counts(&self) -> bool {
        !self.custom_site && self.tenant_id == self.site_owner
    }

    /// As the wire shows it.
    #[must_use]
    pub fn view(&self) -> Pool {
        Pool {
            pool_id: self.pool_id.clone(),
            id: self.uid.clone(),
            tenant_id: self.tenant_id.clone(),
            project_id: self.project_id.clone(),
            site_id: self.site_id.clone(),
            agent: self.agent,
            policy: self.policy.clone(),
            platform_operated_counts: self.platform_operated_counts(),
            created_at: self.created_at,
        }
    }
}

/// A node as calls are judged by.
#[derive(Clone, Debug)]
pub struct NodeFacts {
    /// Its id.
    pub id: NodeId,
    /// Its pool.
    pub pool_id: String,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool's site.
    pub site_id: String,
    /// Where it is in its life.
    pub state: NodeState,
    /// Raised by each reclaim.
    pub generation: i64,
    /// What the relay takes it for.
    pub trust: Trust,
    /// Where its bcd is hosted, as its token said.
    pub hosted: Option<Hosted>,
    /// Its key.
    pub key_sha256: String,
    /// The endorsement key that it has proved.
    pub ek_sha256: Option<String>,
    /// The serial in use.
    pub current_serial: String,
    /// The one before it.
    pub previous_serial: Option<String>,
    /// The one that was issued and not yet used.
    pub next_serial: Option<String>,
    /// When it was last heard of.
    pub last_heartbeat_at: Option<Timestamp>,
    /// Its kernel's present boot id.
    pub boot_id: Option<String>,
}

/// What kind of identity a row holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdentityKind {
    /// SHA-256 of the key's SubjectPublicKeyInfo.
    Key,
    /// The product UUID.
    ProductUuid,
    /// The serial number.
    Serial,
    /// SHA-256 of a proven endorsement key's SubjectPublicKeyInfo.
    EndorsementKey,
}

impl IdentityKind {
    /// As the store and the wire say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::ProductUuid => "productUuid",
            Self::Serial => "serial",
            Self::EndorsementKey => "ekSha256",
        }
    }

    /// From its word; `None` for any other.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        let all = [Self::Key, Self::ProductUuid, Self::Serial, Self::EndorsementKey];
        all.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// One identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its kind.
    pub kind: IdentityKind,
    /// Its canonical value.
    pub value: String,
}

/// An identity and the node that holds it.
#[derive(Clone, Debug)]
pub struct Held {
    /// The identity.
    pub identity: Identity,
    /// Its holder.
    pub node: NodeId,
}
