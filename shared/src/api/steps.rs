//! node/steps: what the agent in a metal machine is to do, one step at a time, and what it says of it. Its certificate opens
//! this and nothing else.

use super::{Access, Op, Phase};
use crate::{
    bounded::{Int, Label, Sha256Hex},
    id::MetalStepId,
    secret::Reveal,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Asks what there is to do.
pub const POLL: Op<PollStep, StepAnswer> = Op::mutation(
    "node.steps.poll",
    Access::Agent,
    Phase::V0_3,
    "Ask for the step that the agent in a metal machine is to do now; the same one until it is reported.",
);
/// Says how a step goes.
pub const REPORT: Op<ReportStep, ReportAnswer> = Op::mutation(
    "node.steps.report",
    Access::Agent,
    Phase::V0_3,
    "Say how a step goes, or what became of it.",
);

/// The most disks of a report.
pub const MAX_DISKS: usize = 256;
/// The most network cards of a report.
pub const MAX_CARDS: usize = 64;

/// Nothing: the certificate says who asks.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PollStep {}

/// What there is to do.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StepAnswer {
    /// The step; absent where there is none now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<Step>,
    /// When to ask again, in seconds.
    pub retry_after_seconds: u32,
}

/// A step.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// Its id, for reports.
    pub step_id: MetalStepId,
    /// What to do.
    pub work: Work,
}

/// What to do.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "kind")]
pub enum Work {
    /// Look the machine over.
    Hardware,
    /// Take partition tables and signatures from all disks.
    Wipe,
    /// Run what is there to burn the machine in.
    BurnIn,
    /// Write an image to a disk, hashing it meanwhile, and read it back.
    Write {
        /// Where it is.
        url: String,
        /// SHA-256 of what is there.
        sha256: String,
        /// In which form.
        format: ImageFormat,
        /// Which disk; the smallest that it fits on where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        disk: Option<DiskHint>,
        /// Networks that it may come from though they are not public; the site lists them.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        networks: Vec<String>,
        /// CA certificates in PEM that its server's may come from, beside the public ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        roots: Option<String>,
    },
    /// Put what the installed bcd joins by where it looks for it.
    Credential {
        /// The relay's address.
        relay: String,
        /// The pin of its CA.
        ca_pin: String,
        /// A join token of this machine.
        token: Reveal,
        /// What the system is to find beside that.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user_data: Option<Reveal>,
    },
    /// Let somebody in by SSH.
    Rescue {
        /// Their public key.
        ssh_public_key: String,
        /// For how long, in seconds.
        ttl_seconds: i64,
    },
    /// Erase all disks, and say of each how.
    Erase,
}

impl Work {
    /// As the store says it.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Hardware => "hardware",
            Self::Wipe => "wipe",
            Self::BurnIn => "burnIn",
            Self::Write { .. } => "write",
            Self::Credential { .. } => "credential",
            Self::Rescue { .. } => "rescue",
            Self::Erase => "erase",
        }
    }
}

/// The form of an image of a whole disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ImageFormat {
    /// As it is.
    #[serde(rename = "raw")]
    Raw,
    /// Compressed by zstd.
    #[serde(rename = "raw.zst")]
    RawZst,
    /// Compressed by gzip.
    #[serde(rename = "raw.gz")]
    RawGz,
    /// QEMU's, without a backing or data file.
    #[serde(rename = "qcow2")]
    Qcow2,
}

/// Which disk is meant: all that is said must be so.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskHint {
    /// Its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Label>,
    /// Its world wide name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wwn: Option<Label>,
    /// Its model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<Label>,
    /// The least that it must hold, in GiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_size_gib: Option<Int<1, 1_000_000>>,
}

/// How a step goes: one of progress, result and error.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportStep {
    /// The step.
    pub step_id: MetalStepId,
    /// It goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// It is done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<StepResult>,
    /// It has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Progress {
    /// So many bytes are done.
    pub bytes: Int<0, { i64::MAX }>,
    /// Of so many, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<Int<0, { i64::MAX }>>,
}

/// What a step came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepResult {
    /// What is in the machine, of a look over it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareReport>,
    /// What became of each disk, of wiping and erasing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub disks: Vec<DiskReport>,
    /// What was written, of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageReport>,
    /// How to log in, of a rescue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rescue: Option<RescueReport>,
}

/// An image on its disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImageReport {
    /// The kernel's name for the disk.
    pub disk: Label,
    /// Bytes that the disk has of it.
    pub bytes: Int<0, { i64::MAX }>,
    /// SHA-256 of those, as they were read back.
    pub sha256: Sha256Hex,
}

/// How to log in for rescue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RescueReport {
    /// Addresses that the machine has.
    #[schemars(length(max = 64))]
    pub addresses: Vec<Label>,
    /// The keys that the machine will show, each as `SHA256:…`.
    #[schemars(length(max = 8))]
    pub host_keys: Vec<Label>,
}

/// What is in a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HardwareReport {
    /// What the machine says it is.
    pub identity: crate::hardware::Identity,
    /// Its processors, each as `2 × AMD EPYC 9654`.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub processors: Vec<Label>,
    /// Main memory, in MiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<Int<0, 1_000_000_000>>,
    /// Its disks, each as `SAMSUNG MZQL21T9, 1788 GiB`.
    #[serde(default)]
    #[schemars(length(max = 256))]
    pub disks: Vec<Label>,
    /// Its GPUs and other accelerators.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub accelerators: Vec<Label>,
    /// The version of its UEFI firmware.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<Label>,
}

/// What became of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DiskReport {
    /// The kernel's name for it, `nvme0n1`.
    pub name: Label,
    /// Its serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<Label>,
    /// How: `nvmeFormat`, `discard`, `overwrite`, `wipe`.
    pub method: Label,
    /// Whether nothing that was on it can be read any more.
    pub done: bool,
}

/// How a step can fail in a machine. Whether it is tried again is the relay's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is a row of STEP_FAULTS, which says what it means")]
pub enum StepFault {
    AddressRefused,
    BadImage,
    DigestMismatch,
    Disk,
    Fetch,
    ImageTooLarge,
    NoDisk,
    NoSystem,
    Program,
    ReadBack,
    Timeout,
}

/// Every fault, in order of the enum, with its word on the wire and what it means.
#[rustfmt::skip]
pub const STEP_FAULTS: &[(StepFault, &str, &str)] = &[
    (StepFault::AddressRefused, "addressRefused", "the image's server is at an address that no image may come from"),
    (StepFault::BadImage, "badImage", "the image is not of its format, or of a form that is not taken"),
    (StepFault::DigestMismatch, "digestMismatch", "the image is another one than its SHA-256 says"),
    (StepFault::Disk, "diskFault", "a disk can't be read or written"),
    (StepFault::Fetch, "fetchFailed", "the image can't be fetched"),
    (StepFault::ImageTooLarge, "imageTooLarge", "the image is larger than the disk"),
    (StepFault::NoDisk, "noDisk", "no disk fits what was asked for"),
    (StepFault::NoSystem, "noSystem", "there is no system on the disk to put files into"),
    (StepFault::Program, "programFailed", "a program of the agent's image failed or is missing"),
    (StepFault::ReadBack, "readBackMismatch", "what was read back is not what was written"),
    (StepFault::Timeout, "timeout", "it took too long, or is wanted no more"),
];

impl StepFault {
    /// As the wire says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        let found = STEP_FAULTS.iter().find(|(fault, ..)| *fault == self);
        found.map_or("programFailed", |(_, word, _)| word)
    }
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StepError {
    /// A word of [`STEP_FAULTS`], or one of a newer agent.
    #[schemars(length(max = 64), regex(pattern = r"^[a-zA-Z][a-zA-Z0-9]{0,63}$"))]
    pub code: String,
    /// What happened.
    pub message: Label,
}

/// A report was taken.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportAnswer {
    /// Whether to go on: a step that somebody ended is not.
    pub goes_on: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fault_has_its_row_and_its_word() {
        for (at, (fault, word, _)) in STEP_FAULTS.iter().enumerate() {
            assert_eq!((*fault as usize, fault.as_str()), (at, *word));
            assert_eq!(STEP_FAULTS.iter().filter(|(_, other, _)| other == word).count(), 1, "{word}");
        }
        assert_eq!(STEP_FAULTS.len(), StepFault::Timeout as usize + 1);
    }
}
