//! What the verbs on a machine that is there take.

use super::Version;
use crate::{
    api::{
        join_tokens::Hosted,
        steps::{DiskHint, ImageFormat},
    },
    bounded::{IdempotencyKey, ImageUrl, Int, Name, Sha256Hex, SshPublicKey, TenantId},
    id::NodeId,
    secret::Secret,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A machine to move by a verb that takes nothing more.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MoveMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// The version that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// A machine to look over.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InspectMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// Whether the agent is started to look too: the machine is off afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_band: Option<bool>,
    /// The version that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// An image of a whole disk, for UEFI.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Image {
    /// Where it is, `https://host[:port]/path`: not at this relay, nor in networks that are no part of the public Internet, unless
    /// the site lists them.
    pub url: ImageUrl,
    /// SHA-256 of what is there.
    pub sha256: Sha256Hex,
    /// In which form.
    pub format: ImageFormat,
}

/// A machine to give a system. It may carry a secret, so it can't be serialised.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeployMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// The image.
    pub image: Image,
    /// Which disk it goes to; the smallest that it fits on where absent.
    #[serde(default)]
    pub disk: Option<DiskHint>,
    /// Whether all disks are wiped first.
    #[serde(default)]
    pub wipe: Option<bool>,
    /// What the system is to find, at most 64 KiB; it is sealed, and never shown.
    #[serde(default)]
    pub user_data: Option<Secret>,
    /// Where the system's bcd will be hosted.
    #[serde(default)]
    pub hosted: Option<Hosted>,
    /// Whether a machine that is deployed may lose its system.
    #[serde(default)]
    pub rebuild: Option<bool>,
    /// The version that it must still have.
    #[serde(default)]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// A machine to start beside its system.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RescueMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// Who is let in; required unless `exit` is set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssh_public_key: Option<SshPublicKey>,
    /// For how long; an hour unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<Int<300, 86_400>>,
    /// Whether to end it: the machine starts its system again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<bool>,
    /// The version that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// A machine to switch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SwitchPower {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// What it is to be.
    pub target: PowerTarget,
    /// The version that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// What a machine is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PowerTarget {
    /// On.
    On,
    /// Off: its system is asked, and after 300 seconds not asked any more.
    Off,
    /// Off at once.
    ForceOff,
}

impl PowerTarget {
    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::ForceOff => "forceOff",
        }
    }
}

/// A machine to retire.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RetireMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// Whether to go on where its BMC can't be reached; the view names the steps that were skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force: Option<bool>,
    /// The version that it must still have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}
