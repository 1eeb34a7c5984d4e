//! A metal machine as people see it. Credentials are in none of these types.

use super::{MetalState, MetalVerb};
use crate::{
    api::{node::Trust, steps::Progress},
    id::{EventId, NodeId, TaskId},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a BMC speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum BmcProtocol {
    /// DMTF Redfish over https.
    #[default]
    Redfish,
    /// IPMI 2.0 over LAN: enroll, inspect, power and retire only.
    Ipmi,
}

impl BmcProtocol {
    /// Every protocol.
    pub const ALL: [Self; 2] = [Self::Redfish, Self::Ipmi];

    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Redfish => "redfish",
            Self::Ipmi => "ipmi",
        }
    }
}

/// What a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WaitingFor {
    /// The BMC does what it was asked.
    Bmc,
    /// The agent in the machine reports.
    Agent,
    /// The bcd that was installed joins.
    Daemon,
}

impl WaitingFor {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Bmc, Self::Agent, Self::Daemon];

    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bmc => "bmc",
            Self::Agent => "agent",
            Self::Daemon => "daemon",
        }
    }
}

/// Whether a machine is on, as its BMC said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PowerState {
    /// On.
    On,
    /// Off.
    Off,
    /// On its way on.
    PoweringOn,
    /// On its way off.
    PoweringOff,
    /// Something else, or nothing.
    Unknown,
}

impl PowerState {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::On, Self::Off, Self::PoweringOn, Self::PoweringOff, Self::Unknown];

    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::PoweringOn => "poweringOn",
            Self::PoweringOff => "poweringOff",
            Self::Unknown => "unknown",
        }
    }
}

/// A metal machine: a node that is known by its BMC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Metal {
    /// The node.
    pub node_id: NodeId,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool.
    pub pool_id: String,
    /// Where it is.
    pub state: MetalState,
    /// What is being done, within a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// Which attempt at that step it is, from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i64>,
    /// When that step has failed if nothing comes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// What that step waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<WaitingFor>,
    /// How far that step is, where the agent in the machine says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// What went wrong last, in this workflow or in the one that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// Steps that a forced retirement skipped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// The verbs that its state allows.
    pub allowed_verbs: Vec<MetalVerb>,
    /// Its BMC.
    pub bmc: Bmc,
    /// What its BMC says that it is.
    pub identity: MachineIdentity,
    /// What is in it, once it was inspected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<Hardware>,
    /// Whether it is on, as its BMC said last.
    pub power_state: PowerState,
    /// The certificate of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<NodeCertificate>,
    /// Raised by each change.
    pub version: i64,
    /// When it was enrolled.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// A word of a closed set, as `unreachable` or `deadline`.
    pub code: String,
    /// What it means, and what to do; for the site's owner with the BMC's own words.
    pub message: String,
    /// The BMC's HTTP status; for the site's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_status: Option<u16>,
    /// The BMC's `MessageId`; for the site's owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bmc_message_id: Option<String>,
}

/// A BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bmc {
    /// Where it is.
    pub address: String,
    /// What it speaks.
    pub protocol: BmcProtocol,
    /// Who made it, as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor: Option<String>,
    /// Its firmware's version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Whether the relay has its credentials.
    pub credentials_set: bool,
    /// SHA-256 of the SubjectPublicKeyInfo that it must show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_pin_sha256: Option<String>,
    /// Whether an image can be inserted; without, no agent can be booted (`noVirtualMedia`).
    pub virtual_media: bool,
}

/// What a machine is, out of band.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineIdentity {
    /// SMBIOS System UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub product_uuid: Option<String>,
    /// Serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// SKU number, which on some machines is what people call the serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sku: Option<String>,
    /// Model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Permanent hardware addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub macs: Vec<String>,
    /// The endorsement key that its agent or bcd has proved: SHA-256 of its SubjectPublicKeyInfo.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ek_sha256: Option<String>,
}

/// What is in a machine, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Hardware {
    /// Processors, each as `2 × AMD EPYC 9654`.
    #[serde(default)]
    pub processors: Vec<String>,
    /// Main memory, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<i64>,
    /// Disks, each as `SAMSUNG MZQL21T9, 1788 GiB`.
    #[serde(default)]
    pub disks: Vec<String>,
    /// GPUs and other accelerators.
    #[serde(default)]
    pub accelerators: Vec<String>,
    /// The version of its UEFI firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
}

/// A certificate of a machine's node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeCertificate {
    /// Its serial number, hexadecimal.
    pub serial: String,
    /// When it ends.
    pub expires_at: Timestamp,
    /// What the relay takes the node for.
    pub trust: Trust,
}

/// One machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetalAnswer {
    /// The machine.
    pub node: Metal,
}

/// A machine, and the task that goes on with it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetalDone {
    /// The machine.
    pub node: Metal,
    /// What is done when the verb is; absent where nothing is left to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
}

/// A page of machines.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetalList {
    /// In order of id.
    pub nodes: Vec<Metal>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<NodeId>,
}

/// A move from state to state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Transition {
    /// The id of its event.
    pub id: EventId,
    /// When.
    pub at: Timestamp,
    /// Who: a subject, or `relay`.
    pub actor: String,
    /// By which verb; absent where a workflow came to its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<MetalVerb>,
    /// From; absent at the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<MetalState>,
    /// To.
    pub to: MetalState,
    /// Why, where it failed: the code of its error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The verb's task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
}

/// A page of a machine's history.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MetalHistory {
    /// The latest first.
    pub transitions: Vec<Transition>,
    /// Where the next page begins; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EventId>,
}
