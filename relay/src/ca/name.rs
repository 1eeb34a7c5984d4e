//! The names in certificates: trust domains, CA names and SPIFFE ids, and which goes with which.
//!
//! SPIFFE ids are built and taken apart here only, so that what is issued and what is accepted can't differ.

use shared::id::{NodeId, PoolUid};
use std::{fmt, str::FromStr};

/// What the tenants' trust domain puts before the platform's.
const TENANT_PREFIX: &str = "tenant.";
/// The longest trust domain, in bytes: SPIFFE's 255, less the tenants' prefix.
pub const MAX_TRUST_DOMAIN_BYTES: usize = 255 - TENANT_PREFIX.len();

/// The platform's SPIFFE trust domain: lower-case letters, digits, `.`, `-`, `_`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TrustDomain(String);

/// The text is no trust domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a trust domain must be 1 to {MAX_TRUST_DOMAIN_BYTES} characters of a-z, 0-9, '.', '-', '_' and not start \
     with 'tenant.'; set trust_domain"
)]
pub struct InvalidTrustDomain;

impl FromStr for TrustDomain {
    type Err = InvalidTrustDomain;
    fn from_str(text: &str) -> Result<Self, InvalidTrustDomain> {
        let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || b".-_".contains(&c);
        let fits = (1..=MAX_TRUST_DOMAIN_BYTES).contains(&text.len()) && text.bytes().all(allowed);
        // `tenant.x` as a platform domain would be the tenants' domain of a relay of `x`.
        if fits && !text.starts_with(TENANT_PREFIX) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidTrustDomain)
        }
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl TrustDomain {
    /// The text of the platform's domain.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `spiffe://` and the name of one of the two domains, without a path.
    #[must_use]
    pub fn uri(&self, domain: Domain) -> String {
        match domain {
            Domain::Platform => format!("spiffe://{}", self.0),
            Domain::Tenant => format!("spiffe://{TENANT_PREFIX}{}", self.0),
        }
    }

    /// The SPIFFE id of the relay's own server certificate.
    #[must_use]
    pub fn relay_uri(&self) -> String {
        self.uri(Domain::Platform) + "/relay"
    }

    /// The SPIFFE id of a machine's certificate.
    #[must_use]
    pub fn node_uri(&self, profile: Profile, pool: &PoolUid, node: &NodeId) -> String {
        format!("{}/{}/{pool}/{node}", self.uri(profile.domain()), profile.as_str())
    }

    /// What a SPIFFE id says, if it is one that [`TrustDomain::node_uri`] makes.
    #[must_use]
    pub fn parse_node_uri(&self, uri: &str) -> Option<(Profile, PoolUid, NodeId)> {
        Profile::ALL.into_iter().find_map(|profile| {
            let rest = uri.strip_prefix(&self.uri(profile.domain()))?.strip_prefix('/')?;
            let (pool, node) = rest.strip_prefix(profile.as_str())?.strip_prefix('/')?.split_once('/')?;
            Some((profile, pool.parse().ok()?, node.parse().ok()?))
        })
    }
}

/// Declares an enum of fixed words: `as_str`, `FromStr` and `ALL` from one list.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$item_doc])* $item,)* }

        impl $name {
            /// All of them.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$item),*];

            /// The word, as it is stored and shown.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$item => $word,)* }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                Self::ALL.into_iter().find(|item| item.as_str() == text).ok_or(UnknownWord)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(self.as_str())
            }
        }
    };
}

/// The text is none of the fixed words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("is none of the known words")]
pub struct UnknownWord;

words! {
    /// One of the two roots, each with a trust domain of its own.
    Domain {
        /// The platform's: relay, node, agent.
        Platform = "platform",
        /// The tenants': node-tenant.
        Tenant = "tenant",
    }
}

words! {
    /// What a CA of this relay is for.
    CaName {
        /// A root. There is one in each domain.
        Root = "root",
        /// Issues the relay's own server certificate.
        Relay = "relay",
        /// Issues certificates of platform nodes.
        Node = "node",
        /// Issues certificates of in-band metal agents.
        Agent = "agent",
        /// Issues certificates of nodes that a tenant controls.
        NodeTenant = "node-tenant",
    }
}

words! {
    /// What a machine's certificate makes of it. Named as the CA that issues it.
    Profile {
        /// A platform node.
        Node = "node",
        /// A node that a tenant controls.
        NodeTenant = "node-tenant",
        /// An in-band metal agent.
        Agent = "agent",
    }
}

words! {
    /// What a CA of this relay does now.
    CaState {
        /// A root that is trusted and announced, and signs nothing yet.
        Announced = "announced",
        /// Trusted and signing.
        Active = "active",
        /// Trusted until what it signed has run out, and signing no more.
        Overlap = "overlap",
    }
}

impl CaName {
    /// The issuing CAs, in the order in which they are made.
    pub const ISSUING: [Self; 4] = [Self::Relay, Self::Node, Self::Agent, Self::NodeTenant];

    /// The domain of an issuing CA; `None` for a root, which may be in either.
    #[must_use]
    pub const fn domain(self) -> Option<Domain> {
        match self {
            Self::Root => None,
            Self::Relay | Self::Node | Self::Agent => Some(Domain::Platform),
            Self::NodeTenant => Some(Domain::Tenant),
        }
    }
}

impl Profile {
    /// The CA that issues this profile.
    #[must_use]
    pub const fn issuer(self) -> CaName {
        match self {
            Self::Node => CaName::Node,
            Self::NodeTenant => CaName::NodeTenant,
            Self::Agent => CaName::Agent,
        }
    }

    /// The domain that this profile belongs to.
    #[must_use]
    pub const fn domain(self) -> Domain {
        match self {
            Self::Node | Self::Agent => Domain::Platform,
            Self::NodeTenant => Domain::Tenant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trust_domain_has_spiffes_characters_and_room_for_the_prefix() {
        let longest = "a".repeat(MAX_TRUST_DOMAIN_BYTES);
        for good in ["relay.example", "127.0.0.1", "a", "a_b-c.9", &longest] {
            assert_eq!(good.parse::<TrustDomain>().unwrap().as_str(), good);
        }
        let too_long = "a".repeat(MAX_TRUST_DOMAIN_BYTES + 1);
        for bad in ["", "Relay", "a/b", "a:1", "[::1]", "a b", "é", "a\n", "tenant.example", &too_long] {
            assert_eq!(bad.parse::<TrustDomain>(), Err(InvalidTrustDomain), "{bad:?}");
        }
    }

    #[test]
    fn a_node_uri_comes_back_and_nothing_else_does() {
        let td: TrustDomain = "td.example".parse().unwrap();
        let (pool, node) = (PoolUid::derive(&[1; 32]), NodeId::derive(&[2; 32]));
        for (profile, start) in [
            (Profile::Node, "spiffe://td.example/node/pl_"),
            (Profile::Agent, "spiffe://td.example/agent/pl_"),
            (Profile::NodeTenant, "spiffe://tenant.td.example/node-tenant/pl_"),
        ] {
            let uri = td.node_uri(profile, &pool, &node);
            assert!(uri.starts_with(start), "{uri}");
            assert_eq!(td.parse_node_uri(&uri), Some((profile, pool.clone(), node.clone())));
            for bad in [
                format!("{uri}/"),
                format!("{uri}/x"),
                format!("{uri}?x"),
                uri.replace("spiffe", "SPIFFE"),
                uri.replace("td.example", "td.example.evil"),
                uri.replace("td.example", "evil.td.example"),
                uri.replace("/pl_", "//pl_"),
                uri.replace("/nd_", "/../nd_"),
                uri.replace("/nd_", "/jt_"),
            ] {
                assert_eq!(td.parse_node_uri(&bad), None, "{bad}");
            }
        }
        let crossed = td.node_uri(Profile::NodeTenant, &pool, &node).replace("tenant.td", "td");
        assert_eq!(td.parse_node_uri(&crossed), None);
        let crossed = td.node_uri(Profile::Node, &pool, &node).replace("//td", "//tenant.td");
        assert_eq!(td.parse_node_uri(&crossed), None);
        assert_eq!(td.parse_node_uri(&td.relay_uri()), None);
    }

    #[test]
    fn the_words_come_back() {
        for name in CaName::ALL {
            assert_eq!(name.as_str().parse(), Ok(name));
        }
        assert_eq!("Root".parse::<CaName>(), Err(UnknownWord));
        for profile in Profile::ALL {
            assert_eq!(profile.issuer().as_str(), profile.as_str());
            assert_eq!(profile.issuer().domain(), Some(profile.domain()));
        }
    }
}
