//! What can be wrong with a TPM, told apart: each needs another remedy.

use std::{path::PathBuf, time::Duration};
use tss_esapi::{
    Error,
    constants::response_code::{Tss2ResponseCode, Tss2ResponseCodeKind as Kind},
};

/// Why the TPM did not do what was asked of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TpmError {
    /// No such device.
    #[error(
        "there is no TPM 2.0: {0} does not exist (see the firmware's settings, the kernel's module, and tcti; a TPM 1.2 \
         will not do)"
    )]
    Missing(PathBuf),
    /// Another kind of file.
    #[error("{0} is no character device: correct tcti")]
    NoDevice(PathBuf),
    /// The system does not let us.
    #[error(
        "the TPM at {path} cannot be opened: {why}; bcd's units are in the group tss, which the udev rules of the TSS (tpm-udev, \
         tpm2-tss) give it: `udevadm trigger {path}`, and `ls -l {path}` says root or tss, mode 0660"
    )]
    Unusable {
        /// The device.
        path: PathBuf,
        /// What the system says.
        why: String,
    },
    /// A dead port.
    #[error("nobody answers for a TPM at {0}: start what should, or correct tcti")]
    NoAnswer(String),
    /// A TPM 1.2, or something else.
    #[error("what answers is no TPM 2.0: set tpm to off, or correct tcti")]
    NotTpm2,
    /// Somebody else uses it.
    #[error(
        "the TPM is busy; if another program holds /dev/tpm0, let both use the resource manager, /dev/tpmrm0"
    )]
    Busy,
    /// Its memory is taken.
    #[error(
        "the TPM has no room for another key or session, and what fills it cannot be flushed: stop the other programs \
         that use it, or restart the machine"
    )]
    Full,
    /// It takes too long.
    #[error("the TPM has not answered for {} s", .0.as_secs())]
    Silent(Duration),
    /// Too many wrong passwords.
    #[error(
        "the TPM is locked out after wrong passwords: wait for its recovery time, or `tpm2_dictionarylockout --clear-lockout`"
    )]
    LockedOut,
    /// Somebody has set a password.
    #[error(
        "the TPM's {0} hierarchy has a password, and bcd needs it empty: `tpm2_changeauth`, or set tpm to off"
    )]
    Password(&'static str),
    /// Somebody has switched it off.
    #[error("the TPM's {0} hierarchy is disabled: enable it in the firmware's settings, or set tpm to off")]
    Disabled(&'static str),
    /// The key is not of this TPM as it is now.
    #[error(
        "the TPM does not know the node key (any more): it was cleared, or the state is that of another machine; \
         `bcd reset`, then join with a fresh token"
    )]
    KeyLost,
    /// The credential is for another key or another TPM.
    #[error("the relay's challenge is not for this TPM and this key")]
    NotOurs,
    /// The challenge names a key that was not offered.
    #[error("the relay's challenge is for endorsement key {0}, which was not offered")]
    NotOffered(u32),
    /// It lacks an algorithm that every TPM has.
    #[error("the TPM cannot do {0}")]
    Lacks(&'static str),
    /// It answers something odd.
    #[error("the TPM answers something odd: {0}")]
    Odd(&'static str),
    /// All else.
    #[error("{step} failed: {why}")]
    Failed {
        /// What was tried.
        step: &'static str,
        /// What the TPM or its library says.
        why: String,
    },
}

impl TpmError {
    /// Whether there is no TPM 2.0 at all.
    #[must_use]
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Missing(_) | Self::NotTpm2)
    }
}

/// Response codes above this are of the library's layers (TCG TSS 2.0 Overview, 4.2).
const MAX_TPM_CODE: u32 = 0xffff;
/// TPM_BAD_TAG, as a TPM 1.2 says it; and what the library says of a response in the form of a TPM 1.2.
const OLD_TPM_CODES: [u32; 2] = [0x1e, 0x0008_0001];

/// TSS2_TCTI_RC_IO_ERROR: the device can't be opened, or nobody takes the connection.
const IO_ERROR: u32 = 0x000a_000a;

/// The response code's number.
fn number(error: Error) -> Option<u32> {
    // It is shown, but not given.
    let text = match error {
        Error::Tss2Error(Tss2ResponseCode::FormatZero(code)) => code.to_string(),
        Error::Tss2Error(Tss2ResponseCode::FormatOne(code)) => code.to_string(),
        _ => return None,
    };
    u32::from_str_radix(text.rsplit_once("0x")?.1, 16).ok()
}

/// Whether the way to the TPM failed, and not the library itself.
pub(super) fn is_io(error: Error) -> bool {
    number(error) == Some(IO_ERROR)
}

/// Whether this is what a TPM 1.2 comes to.
pub(super) fn is_old_tpm(error: Error) -> bool {
    number(error).is_some_and(|number| OLD_TPM_CODES.contains(&number))
}

/// The kind of a response code of the TPM; `None` for one of the library.
pub(super) fn kind(error: Error) -> Option<Kind> {
    match error {
        Error::Tss2Error(code) if number(error)? <= MAX_TPM_CODE => code.kind(),
        _ => None,
    }
}

/// What a failed step comes to, but for codes that mean something special there.
pub(super) fn failed(step: &'static str) -> impl Fn(Error) -> TpmError {
    move |error| match kind(error) {
        Some(Kind::Retry | Kind::Yielded | Kind::Testing | Kind::NvRate | Kind::Canceled) => TpmError::Busy,
        Some(
            Kind::ObjectMemory
            | Kind::SessionMemory
            | Kind::Memory
            | Kind::ObjectHandles
            | Kind::SessionHandles
            | Kind::ContextGap,
        ) => TpmError::Full,
        Some(Kind::Lockout) => TpmError::LockedOut,
        _ => TpmError::Failed { step, why: describe(error) },
    }
}

/// In words, where there are any, and the code itself, which is what people search for.
fn describe(error: Error) -> String {
    match (kind(error), number(error)) {
        (Some(_), Some(number)) => format!("{error} ({number:#x})"),
        (None, Some(number)) => format!("response code {number:#x}"),
        (_, None) => error.to_string(),
    }
}
