//! A machine as the store has it: what workflows decide by. No store and no network here.

use serde::{Deserialize, Serialize};
use shared::{
    api::{
        join_tokens::Hosted,
        metal::{
            BmcProtocol, Hardware, Image, LastError, MachineIdentity, MetalState, NodeCertificate,
            PowerState, PowerTarget, StatePhase, WaitingFor,
        },
        steps::{DiskHint, Progress},
    },
    id::{JoinTokenId, MetalStepId, NodeId, TaskId},
    secret::Secret,
    time::Timestamp,
};

/// Who a BMC lets in. It is neither shown nor written anywhere.
#[derive(Clone)]
pub struct Credentials {
    /// The user's name.
    pub username: String,
    /// The password.
    pub password: Secret,
}

/// How a BMC's certificate is judged before it is sent a byte of a credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum TlsTrust {
    /// SHA-256 of its SubjectPublicKeyInfo, in hexadecimal.
    Pin(String),
    /// It comes from one of these CAs, in PEM, and names the host.
    Ca(String),
    /// Whatever it shows first becomes its pin.
    FirstUse,
    /// Not at all.
    Insecure,
    /// Nobody has said how since the BMC has another address: no connection comes about.
    Unsaid,
}

impl TlsTrust {
    /// The pin, if one is known.
    #[must_use]
    pub fn pin(&self) -> Option<&str> {
        match self {
            Self::Pin(pin) => Some(pin),
            _ => None,
        }
    }
}

/// How a BMC is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reach {
    /// `host[:port]`, as it was given.
    pub address: String,
    /// What it speaks.
    pub protocol: BmcProtocol,
    /// IPMI's cipher suite.
    pub cipher_suite: i64,
    /// How its certificate is judged.
    pub tls: TlsTrust,
}

/// What a BMC was asked for, written down before it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// What.
    pub asked: Asked,
    /// When it was last asked.
    pub at: Timestamp,
    /// When it was asked first.
    pub since: Timestamp,
    /// How often.
    pub times: u32,
}

/// What a BMC can be asked for, of the power.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Asked {
    /// On: may be repeated.
    On,
    /// Off at once: may be repeated.
    ForceOff,
    /// Off by the system: is not repeated.
    GracefulShutdown,
    /// Off and on: is never repeated.
    PowerCycle,
}

/// What a verb was asked with, as far as its workflow goes by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Options {
    /// With nothing.
    #[default]
    Nothing,
    /// To look with the agent too.
    InBand,
    /// What is deployed, and how.
    Deploy {
        /// The image.
        image: Image,
        /// The disk.
        disk: Option<DiskHint>,
        /// Whether all disks are wiped first.
        wipe: bool,
        /// Where the system's bcd will be hosted.
        hosted: Option<Hosted>,
    },
    /// Who is let in, and for how long.
    Rescue {
        /// Their key.
        ssh_public_key: String,
        /// In seconds.
        ttl_seconds: i64,
    },
}

/// A start of the agent: one image, by one path, with one token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Boot {
    /// The path's secret part and the token, sealed.
    pub sealed: String,
    /// SHA-256 of the path's secret part.
    pub path_sha256: String,
    /// The token.
    pub token: JoinTokenId,
}

/// A machine.
#[derive(Clone, Debug, PartialEq)]
pub struct Machine {
    /// Its node.
    pub node_id: NodeId,
    /// Its pool.
    pub pool_id: String,
    /// The pool's tenant.
    pub tenant_id: String,
    /// The pool's site.
    pub site_id: String,
    /// Where it is.
    pub state: MetalState,
    /// Where the last verb found it.
    pub began_from: MetalState,
    /// The verb's task.
    pub task_id: Option<TaskId>,
    /// The workflow's step.
    pub step: Option<String>,
    /// Which attempt at that step it is, from 1; 0 where there is none.
    pub attempt: i64,
    /// When the step has failed.
    pub deadline: Option<Timestamp>,
    /// What the step waits for.
    pub waiting_for: Option<WaitingFor>,
    /// What the step asked of the BMC.
    pub intent: Option<Intent>,
    /// What went wrong last.
    pub last_error: Option<LastError>,
    /// Steps that were skipped.
    pub skipped: Vec<String>,
    /// Whether an end was asked for.
    pub aborted: bool,
    /// Whether the retirement goes on without the BMC.
    pub forced: bool,
    /// What it is to be switched to.
    pub wanted_power: Option<PowerTarget>,
    /// How its BMC is reached.
    pub reach: Reach,
    /// User and password, sealed.
    pub sealed_credentials: Option<String>,
    /// Whether its BMC's user is to get another password.
    pub rotates: bool,
    /// User and password that the BMC was given, and that nobody has seen to hold, sealed.
    pub sealed_candidate: Option<String>,
    /// How often in a row the BMC refused them.
    pub refusals: i64,
    /// When they are tried again.
    pub retry_at: Option<Timestamp>,
    /// The serial or SKU that it must say.
    pub expect_serial: Option<String>,
    /// Who made the BMC.
    pub vendor: Option<String>,
    /// The BMC's firmware.
    pub firmware: Option<String>,
    /// Whether it takes an image.
    pub virtual_media: bool,
    /// What it is.
    pub identity: MachineIdentity,
    /// What is in it.
    pub hardware: Option<Hardware>,
    /// Whether it is on.
    pub power_state: PowerState,
    /// The certificate of its node.
    pub certificate: Option<NodeCertificate>,
    /// What its verb was asked with.
    pub options: Options,
    /// What the system that is deployed is to find, sealed.
    pub sealed_user_data: Option<String>,
    /// Whether somebody's data may be on its disks.
    pub tainted: bool,
    /// The start of the agent that is under way.
    pub boot: Option<Boot>,
    /// The key that its agent has joined with: SHA-256 of its SubjectPublicKeyInfo.
    pub agent_key: Option<String>,
    /// The token that the installed bcd joins by.
    pub install_token: Option<JoinTokenId>,
    /// Whether a bcd has joined by that. Read only.
    pub has_joined: bool,
    /// What the agent is at.
    pub agent_step: Option<MetalStepId>,
    /// How far that is. Read only.
    pub progress: Option<Progress>,
    /// Raised by each worker that takes it.
    pub fence: i64,
    /// Raised by each change.
    pub version: i64,
    /// When it was enrolled.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
}

impl Machine {
    /// Whether a worker has something to do with it.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.state.phase() == StatePhase::Transient || self.wanted_power.is_some() || self.rotates
    }

    /// Puts it at the beginning of a step, or between workflows.
    pub fn begin(&mut self, step: Option<(&str, Timestamp)>) {
        self.step = step.map(|(name, _)| name.to_owned());
        self.deadline = step.map(|(_, deadline)| deadline);
        self.attempt = i64::from(step.is_some());
        self.waiting_for = None;
        self.intent = None;
        self.agent_step = None;
    }
}
