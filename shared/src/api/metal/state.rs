//! The provision states of a metal machine, and the verbs that move it. Which verb is legal from which state is in the
//! relay's one table (`metal/machine`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where a machine is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each is its own name, and the table says what leads there")]
pub enum MetalState {
    Enrolling,
    EnrollFailed,
    Enrolled,
    Inspecting,
    InspectFailed,
    Inspected,
    Commissioning,
    CommissionFailed,
    Available,
    Deploying,
    DeployFailed,
    Deployed,
    Rescuing,
    RescueFailed,
    Rescued,
    Unrescuing,
    UnrescueFailed,
    Releasing,
    ReleaseFailed,
    Retiring,
    RetireFailed,
    Retired,
}

/// Which kind of state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing is being done with the machine.
    Stable,
    /// A workflow is at it.
    Transient,
    /// A workflow has failed.
    Failed,
}

impl MetalState {
    /// Every state.
    pub const ALL: [Self; 22] = [
        Self::Enrolling,
        Self::EnrollFailed,
        Self::Enrolled,
        Self::Inspecting,
        Self::InspectFailed,
        Self::Inspected,
        Self::Commissioning,
        Self::CommissionFailed,
        Self::Available,
        Self::Deploying,
        Self::DeployFailed,
        Self::Deployed,
        Self::Rescuing,
        Self::RescueFailed,
        Self::Rescued,
        Self::Unrescuing,
        Self::UnrescueFailed,
        Self::Releasing,
        Self::ReleaseFailed,
        Self::Retiring,
        Self::RetireFailed,
        Self::Retired,
    ];

    /// As the wire and the store say it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enrolling => "enrolling",
            Self::EnrollFailed => "enrollFailed",
            Self::Enrolled => "enrolled",
            Self::Inspecting => "inspecting",
            Self::InspectFailed => "inspectFailed",
            Self::Inspected => "inspected",
            Self::Commissioning => "commissioning",
            Self::CommissionFailed => "commissionFailed",
            Self::Available => "available",
            Self::Deploying => "deploying",
            Self::DeployFailed => "deployFailed",
            Self::Deployed => "deployed",
            Self::Rescuing => "rescuing",
            Self::RescueFailed => "rescueFailed",
            Self::Rescued => "rescued",
            Self::Unrescuing => "unrescuing",
            Self::UnrescueFailed => "unrescueFailed",
            Self::Releasing => "releasing",
            Self::ReleaseFailed => "releaseFailed",
            Self::Retiring => "retiring",
            Self::RetireFailed => "retireFailed",
            Self::Retired => "retired",
        }
    }

    /// Which kind it is.
    #[must_use]
    pub const fn phase(self) -> Phase {
        match self {
            Self::Enrolled
            | Self::Inspected
            | Self::Available
            | Self::Deployed
            | Self::Rescued
            | Self::Retired => Phase::Stable,
            Self::Enrolling
            | Self::Inspecting
            | Self::Commissioning
            | Self::Deploying
            | Self::Rescuing
            | Self::Unrescuing
            | Self::Releasing
            | Self::Retiring => Phase::Transient,
            Self::EnrollFailed
            | Self::InspectFailed
            | Self::CommissionFailed
            | Self::DeployFailed
            | Self::RescueFailed
            | Self::UnrescueFailed
            | Self::ReleaseFailed
            | Self::RetireFailed => Phase::Failed,
        }
    }

    /// Where a workflow ends that fails.
    #[must_use]
    pub const fn failed(self) -> Option<Self> {
        match self {
            Self::Enrolling => Some(Self::EnrollFailed),
            Self::Inspecting => Some(Self::InspectFailed),
            Self::Commissioning => Some(Self::CommissionFailed),
            Self::Deploying => Some(Self::DeployFailed),
            Self::Rescuing => Some(Self::RescueFailed),
            Self::Unrescuing => Some(Self::UnrescueFailed),
            Self::Releasing => Some(Self::ReleaseFailed),
            Self::Retiring => Some(Self::RetireFailed),
            _ => None,
        }
    }
}

/// What moves a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "each is the method of its name")]
pub enum MetalVerb {
    Enroll,
    Inspect,
    Commission,
    Deploy,
    Rescue,
    Release,
    Retire,
    Abort,
    SetCredentials,
    Power,
}

impl MetalVerb {
    /// Every verb.
    pub const ALL: [Self; 10] = [
        Self::Enroll,
        Self::Inspect,
        Self::Commission,
        Self::Deploy,
        Self::Rescue,
        Self::Release,
        Self::Retire,
        Self::Abort,
        Self::SetCredentials,
        Self::Power,
    ];

    /// As the wire says it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enroll => "enroll",
            Self::Inspect => "inspect",
            Self::Commission => "commission",
            Self::Deploy => "deploy",
            Self::Rescue => "rescue",
            Self::Release => "release",
            Self::Retire => "retire",
            Self::Abort => "abort",
            Self::SetCredentials => "setCredentials",
            Self::Power => "power",
        }
    }
}
