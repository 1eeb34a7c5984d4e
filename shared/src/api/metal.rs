//! compute/metal: machines that are known by their BMC before any software runs on them. The states, the verbs and the view
//! are in files of their own.

use super::{
    Access, Op, PageLimit, Phase,
    access::{Action, Scope},
};
use crate::{
    bounded::{BmcAddress, IdempotencyKey, Int, Label, Name, SerialPin, Sha256Hex, TenantId},
    id::{EventId, NodeId},
    secret::Secret,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod state;
mod verbs;
mod view;

pub use state::{MetalState, MetalVerb, Phase as StatePhase};
pub use verbs::{
    DeployMetal, Image, InspectMetal, MoveMetal, PowerTarget, RescueMetal, RetireMetal, SwitchPower,
};
pub use view::{
    Bmc, BmcProtocol, Hardware, LastError, MachineIdentity, Metal, MetalAnswer, MetalDone, MetalHistory,
    MetalList, NodeCertificate, PowerState, Transition, WaitingFor,
};

/// The version of a machine.
pub type Version = Int<1, 1_000_000_000>;

const fn may(action: Action) -> Access {
    Access::May(action, Scope::ComputePool)
}

/// Makes a node of a machine, by its BMC.
pub const ENROLL: Op<EnrollMetal, MetalDone> = Op::mutation(
    "compute.metal.enroll",
    may(Action::MetalEnroll),
    Phase::V0_3,
    "Enroll a machine by its BMC: make it a node, find out what it is and what it can.",
);
/// Shows a machine.
pub const GET: Op<GetMetal, MetalAnswer> =
    Op::read("compute.metal.get", may(Action::MetalRead), Phase::V0_3, "Show a machine.");
/// Lists a pool's machines.
pub const LIST: Op<ListMetal, MetalList> = Op::read(
    "compute.metal.list",
    may(Action::MetalRead),
    Phase::V0_3,
    "List a pool's machines, without the retired ones unless told otherwise.",
);
/// Lists what a machine went through.
pub const HISTORY: Op<GetHistory, MetalHistory> = Op::read(
    "compute.metal.history",
    may(Action::MetalRead),
    Phase::V0_3,
    "List the transitions of a machine, the latest first.",
);
/// Exchanges the BMC's credentials.
pub const SET_CREDENTIALS: Op<SetCredentials, MetalDone> = Op::mutation(
    "compute.metal.setCredentials",
    may(Action::MetalSetCredentials),
    Phase::V0_3,
    "Set the BMC's credentials, or its address and trust, and a workflow that waits for them goes on; or have its password changed.",
);
/// Switches a machine.
pub const POWER: Op<SwitchPower, MetalDone> =
    Op::mutation("compute.metal.power", may(Action::MetalPower), Phase::V0_3, "Switch a machine on or off.");
/// Looks a machine over.
pub const INSPECT: Op<InspectMetal, MetalDone> = Op::mutation(
    "compute.metal.inspect",
    may(Action::MetalInspect),
    Phase::V0_3,
    "Find out a machine's processors, memory, disks and network cards, by its BMC, and by the agent if asked to.",
);
/// Makes a machine ready for whoever gets it.
pub const COMMISSION: Op<MoveMetal, MetalDone> = Op::mutation(
    "compute.metal.commission",
    may(Action::MetalCommission),
    Phase::V0_3,
    "Start the agent in a machine: look it over, compare, wipe its disks, burn it in; then it is available.",
);
/// Gives a machine a system.
pub const DEPLOY: Op<DeployMetal, MetalDone> = Op::mutation(
    "compute.metal.deploy",
    may(Action::MetalDeploy),
    Phase::V0_3,
    "Write an image of a disk to a machine; it is deployed once the bcd in that has joined as this node.",
);
/// Starts a machine beside its system.
pub const RESCUE: Op<RescueMetal, MetalDone> = Op::mutation(
    "compute.metal.rescue",
    may(Action::MetalRescue),
    Phase::V0_3,
    "Start a deployed machine beside its system, reachable by an SSH key; or end that.",
);
/// Takes a machine's system away.
pub const RELEASE: Op<MoveMetal, MetalDone> = Op::mutation(
    "compute.metal.release",
    may(Action::MetalRelease),
    Phase::V0_3,
    "End a machine's certificate and erase all its disks; then it is available.",
);
/// Lets a machine go for good.
pub const RETIRE: Op<RetireMetal, MetalDone> = Op::mutation(
    "compute.metal.retire",
    may(Action::MetalRetire),
    Phase::V0_3,
    "Retire a machine: off, its credentials forgotten, its node released.",
);
/// Ends what a machine is going through.
pub const ABORT: Op<MoveMetal, MetalDone> = Op::mutation(
    "compute.metal.abort",
    may(Action::MetalAbort),
    Phase::V0_3,
    "End what a machine is going through, at the next step's boundary; it has failed then.",
);

/// A machine to enroll. It carries a password, so it can't be serialised.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnrollMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine, where enrolling it failed before; what is absent below stays as it was then.
    #[serde(default)]
    pub node_id: Option<NodeId>,
    /// How its BMC is reached.
    #[serde(default)]
    pub bmc: BmcAccess,
    /// The serial or SKU number that it must say; a machine that says another is not enrolled.
    #[serde(default)]
    pub expect_serial: Option<SerialPin>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// How a BMC is reached, and by whom; what is absent stays.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BmcAccess {
    /// Its address, in one of the site's `bmcNetworks`: HOST or HOST:PORT. Another one drops credentials and pin.
    #[serde(default)]
    pub address: Option<BmcAddress>,
    /// `redfish` unless told otherwise.
    #[serde(default)]
    pub protocol: Option<BmcProtocol>,
    /// Its user.
    #[serde(default)]
    pub username: Option<Label>,
    /// The user's password, at most 256 bytes.
    #[serde(default)]
    pub password: Option<Secret>,
    /// SHA-256 of the SubjectPublicKeyInfo of its TLS certificate.
    #[serde(default)]
    pub tls_pin_sha256: Option<Sha256Hex>,
    /// CA certificates in PEM that its TLS certificate comes from, at most 64 KiB.
    #[serde(default)]
    #[schemars(length(max = 65536), extend("contentMediaType" = "application/x-pem-file"))]
    pub tls_ca: Option<String>,
    /// Whether the certificate that it shows first is the one that it must show from then on.
    #[serde(default)]
    pub tls_trust_first_use: Option<bool>,
    /// Whether any certificate does. Whoever is on the way to the BMC then learns its password.
    #[serde(default)]
    pub tls_insecure: Option<bool>,
    /// The cipher suite of IPMI: 17 unless told otherwise.
    #[serde(default)]
    pub ipmi_cipher_suite: Option<Int<3, 17>>,
}

/// New credentials, address or trust of a BMC. It carries a password, so it can't be serialised.
#[derive(Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetCredentials {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// How its BMC is reached from now on.
    #[serde(default)]
    pub bmc: BmcAccess,
    /// Whether the BMC's user gets another password instead, which the relay draws (16 characters) and shows to nobody; then nothing of
    /// `bmc` is given. Not by IPMI (`unsupported`), nor while a workflow is at the machine.
    #[serde(default)]
    pub rotate: Option<bool>,
    /// The version that it must still have.
    #[serde(default)]
    pub expected_version: Option<Version>,
    /// Makes a retry the same request.
    pub idempotency_key: IdempotencyKey,
}

/// Which machine.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
}

/// Which machines to list.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ListMetal {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// Also retired ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_retired: Option<bool>,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<NodeId>,
}

/// Whose history.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GetHistory {
    /// The pool's tenant.
    pub tenant_id: TenantId,
    /// The pool.
    pub pool_id: Name,
    /// The machine.
    pub node_id: NodeId,
    /// The page's size, 100 unless told otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<PageLimit>,
    /// The last page's cursor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<EventId>,
}
