//! What happened, as CloudEvents 1.0: written in the transaction of the change they tell of, so that there is
//! never one without the other. Never a secret, never a request's body.

use serde_json::Value;
use shared::time::Timestamp;

/// An event's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is its own name in as_str")]
pub enum Kind {
    JoinTokenCreated,
    JoinTokenRevoked,
    JoinTokenExhausted,
    JoinRequestDeferred,
    JoinRequestApproved,
    JoinRequestDenied,
    JoinRequestConsumed,
    JoinRequestExpired,
    EndorsementKeyAdded,
    EndorsementKeyRemoved,
    EndorsementAuthorityAdded,
    EndorsementAuthorityRemoved,
    NodeJoined,
    NodeReclaimed,
    NodeRenewed,
    NodeBanned,
    NodeUnbanned,
    NodeReleased,
    NodeCloneSuspected,
    NodeIdentityDrift,
    NodeIdentityDisputed,
    CaRotated,
    StoreRestored,
    TenantCreated,
    TenantUpdated,
    TenantDeleted,
    ProjectCreated,
    ProjectUpdated,
    ProjectDeleted,
    MemberCreated,
    MemberUpdated,
    MemberDeleted,
    TokenCreated,
    TokenUpdated,
    TokenDeleted,
    TaskArchived,
    WebhookDisabled,
    MetalTransitioned,
}

impl Kind {
    /// Every type, in order of the enum, whose last one says how many there are.
    pub const ALL: [Self; Self::MetalTransitioned as usize + 1] = [
        Self::JoinTokenCreated,
        Self::JoinTokenRevoked,
        Self::JoinTokenExhausted,
        Self::JoinRequestDeferred,
        Self::JoinRequestApproved,
        Self::JoinRequestDenied,
        Self::JoinRequestConsumed,
        Self::JoinRequestExpired,
        Self::EndorsementKeyAdded,
        Self::EndorsementKeyRemoved,
        Self::EndorsementAuthorityAdded,
        Self::EndorsementAuthorityRemoved,
        Self::NodeJoined,
        Self::NodeReclaimed,
        Self::NodeRenewed,
        Self::NodeBanned,
        Self::NodeUnbanned,
        Self::NodeReleased,
        Self::NodeCloneSuspected,
        Self::NodeIdentityDrift,
        Self::NodeIdentityDisputed,
        Self::CaRotated,
        Self::StoreRestored,
        Self::TenantCreated,
        Self::TenantUpdated,
        Self::TenantDeleted,
        Self::ProjectCreated,
        Self::ProjectUpdated,
        Self::ProjectDeleted,
        Self::MemberCreated,
        Self::MemberUpdated,
        Self::MemberDeleted,
        Self::TokenCreated,
        Self::TokenUpdated,
        Self::TokenDeleted,
        Self::TaskArchived,
        Self::WebhookDisabled,
        Self::MetalTransitioned,
    ];

    /// The CloudEvents `type`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::JoinTokenCreated => "security.join-token.created",
            Self::JoinTokenRevoked => "security.join-token.revoked",
            Self::JoinTokenExhausted => "security.join-token.exhausted",
            Self::JoinRequestDeferred => "security.join-request.deferred",
            Self::JoinRequestApproved => "security.join-request.approved",
            Self::JoinRequestDenied => "security.join-request.denied",
            Self::JoinRequestConsumed => "security.join-request.consumed",
            Self::JoinRequestExpired => "security.join-request.expired",
            Self::EndorsementKeyAdded => "security.endorsement-key.added",
            Self::EndorsementKeyRemoved => "security.endorsement-key.removed",
            Self::EndorsementAuthorityAdded => "security.endorsement-authority.added",
            Self::EndorsementAuthorityRemoved => "security.endorsement-authority.removed",
            Self::NodeJoined => "security.node.joined",
            Self::NodeReclaimed => "security.node.reclaimed",
            Self::NodeRenewed => "security.node.renewed",
            Self::NodeBanned => "security.node.banned",
            Self::NodeUnbanned => "security.node.unbanned",
            Self::NodeReleased => "security.node.released",
            Self::NodeCloneSuspected => "security.node.clone-suspected",
            Self::NodeIdentityDrift => "security.node.identity-drift",
            Self::NodeIdentityDisputed => "security.node.identity-disputed",
            Self::CaRotated => "security.ca.rotated",
            Self::StoreRestored => "security.store.restored",
            Self::TenantCreated => "iam.tenant.created",
            Self::TenantUpdated => "iam.tenant.updated",
            Self::TenantDeleted => "iam.tenant.deleted",
            Self::ProjectCreated => "iam.project.created",
            Self::ProjectUpdated => "iam.project.updated",
            Self::ProjectDeleted => "iam.project.deleted",
            Self::MemberCreated => "iam.member.created",
            Self::MemberUpdated => "iam.member.updated",
            Self::MemberDeleted => "iam.member.deleted",
            Self::TokenCreated => "iam.token.created",
            Self::TokenUpdated => "iam.token.updated",
            Self::TokenDeleted => "iam.token.deleted",
            Self::TaskArchived => "infra.task.archived",
            Self::WebhookDisabled => "infra.webhook.disabled",
            Self::MetalTransitioned => "metal.node.transitioned",
        }
    }
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct Event<'a> {
    /// What.
    pub kind: Kind,
    /// To whom it is told.
    pub tenant: &'a str,
    /// The id of the thing that it happened to.
    pub subject: &'a str,
    /// What else there is to know.
    pub data: Value,
}

/// Who made it happen, by which request, when.
#[derive(Clone, Debug)]
pub struct Origin {
    /// A subject, a join token, a node, or `relay`.
    pub actor: String,
    /// The request's id; empty where the relay acted by itself.
    pub request_id: String,
    /// When.
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_stands_at_its_place_and_no_two_have_one_name() {
        for (at, kind) in Kind::ALL.into_iter().enumerate() {
            assert_eq!(kind as usize, at, "{kind:?}");
            assert_eq!(
                Kind::ALL.iter().filter(|other| other.as_str() == kind.as_str()).count(),
                1,
                "{kind:?}"
            );
        }
    }
}
