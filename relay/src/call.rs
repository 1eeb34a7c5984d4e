//! One call: who calls, from where, when, and the relay that is asked.

use crate::{
    auth::{
        Principal,
        policy::{Resource, may},
    },
    ca::PeerCertificate,
    context::Context,
    fault::Fault,
};
use shared::{
    api::{Access, access::Action},
    id::JoinTokenId,
    problem::{Code, Problem},
    time::Timestamp,
};
use std::{net::IpAddr, sync::Arc};

/// What a handler gets beside its input.
#[derive(Clone)]
pub struct Call {
    /// The relay.
    pub relay: Arc<Context>,
    /// Who calls; authenticated.
    pub caller: Caller,
    /// The method's name.
    pub method: &'static str,
    /// The caller's address, for people. Nothing is decided by it.
    pub remote: IpAddr,
    /// The request's id, as in `x-request-id`.
    pub request_id: String,
    /// When the call came.
    pub now: Timestamp,
}

/// An authenticated caller.
#[derive(Clone)]
pub enum Caller {
    /// A person or a service with a bearer credential.
    Credential(Arc<Principal>),
    /// The bearer of a join token whose secret matched.
    JoinToken(JoinTokenId),
    /// A machine whose certificate verified in the handshake. That it still counts is judged where it is used.
    Peer(Arc<PeerCertificate>),
}

impl Caller {
    /// The machine's certificate, if a machine calls with one.
    #[must_use]
    pub fn peer(&self) -> Option<Arc<PeerCertificate>> {
        match self {
            Self::Peer(peer) => Some(peer.clone()),
            Self::Credential(_) | Self::JoinToken(_) => None,
        }
    }
}

impl Call {
    /// The person or service.
    ///
    /// # Errors
    /// UNAUTHENTICATED if a machine calls.
    pub fn principal(&self) -> Result<&Principal, Fault> {
        match &self.caller {
            Caller::Credential(principal) => Ok(principal),
            Caller::JoinToken(_) | Caller::Peer(_) => Err(unauthenticated().into()),
        }
    }

    /// That the caller may do this to what is its own.
    ///
    /// # Errors
    /// UNAUTHENTICATED if a machine calls; PERMISSION_DENIED if the token does not hold the action.
    pub fn may_own(&self, action: Action) -> Result<(), Fault> {
        let decision = may(&self.principal()?.powers, action, Resource::Own);
        Ok(decision.require(action, "what is your own")?)
    }

    /// The join token.
    ///
    /// # Errors
    /// UNAUTHENTICATED if the caller has none.
    pub fn join_token(&self) -> Result<&JoinTokenId, Fault> {
        match &self.caller {
            Caller::JoinToken(id) => Ok(id),
            Caller::Credential(_) | Caller::Peer(_) => Err(unauthenticated().into()),
        }
    }

    /// The machine's certificate.
    ///
    /// # Errors
    /// UNAUTHENTICATED if the caller has none.
    pub fn peer(&self) -> Result<&PeerCertificate, Fault> {
        match &self.caller {
            Caller::Peer(peer) => Ok(peer),
            Caller::Credential(_) | Caller::JoinToken(_) => Err(unauthenticated().into()),
        }
    }

    /// Who acts, as events and records say it.
    #[must_use]
    pub fn actor(&self) -> String {
        match &self.caller {
            Caller::Credential(principal) => principal.subject.clone(),
            Caller::JoinToken(id) => id.to_string(),
            Caller::Peer(peer) => peer.node.to_string(),
        }
    }
}

/// The answer to a call without a credential of the kind that its method asks for. It says which kind that is, and
/// nothing about the one that came.
#[must_use]
pub fn no_credential(access: Access) -> Problem {
    let detail = match access {
        Access::JoinToken => {
            "No valid join token came with the request: there is none with this id and this secret. Copy it again, whole, \
             or mint another (relay join-tokens create)."
        }
        Access::Any | Access::Own(_) | Access::May(..) => {
            "No valid API credential came with the request; show one that is current (a join token is none)."
        }
        Access::RenewingNode | Access::Node | Access::PlatformNode | Access::Agent => {
            return unauthenticated();
        }
    };
    Problem::new(Code::Unauthenticated, detail)
}

/// The one answer to every credential that doesn't count; it never says why.
#[must_use]
pub fn unauthenticated() -> Problem {
    Problem::new(
        Code::Unauthenticated,
        "No valid credential came with the request; get a current one and try again.",
    )
}
