//! An open TPM: what all work on it shares.
//!
//! Whatever a piece of work has loaded is flushed at the latest when its [`Chip`] goes, on every path.

use super::{
    Tcti, TpmError,
    error::{failed, is_old_tpm, kind},
};
use tss_esapi::{
    Context,
    constants::{CapabilityType, PropertyTag, response_code::Tss2ResponseCodeKind as Kind},
    handles::{KeyHandle, TpmHandle},
    interface_types::{resource_handles::Hierarchy, session_handles::AuthSession},
    structures::{CapabilityData, Public},
};

/// "2.0" and a zero byte, as TPM_PT_FAMILY_INDICATOR has it.
const FAMILY_2_0: u32 = 0x322e_3000;
/// Where the numbers of transient objects and of loaded sessions begin.
const TRANSIENT_FIRST: u32 = 0x8000_0000;
const LOADED_SESSION_FIRST: u32 = 0x0200_0000;
/// The most leftovers that are flushed, of each kind: more than a TPM has room for.
const MAX_LEFTOVERS: u32 = 64;

/// A TPM that is open. The library's context flushes, when it goes, what was loaded and not flushed before.
pub(super) struct Chip {
    pub(super) context: Context,
}

impl Chip {
    pub(super) fn open(tcti: &Tcti) -> Result<Self, TpmError> {
        let conf = tcti.name_conf()?;
        let context = Context::new(conf).map_err(|error| tcti.diagnose(error))?;
        let mut chip = Self { context };
        match chip.context.get_tpm_property(PropertyTag::FamilyIndicator) {
            Ok(Some(FAMILY_2_0)) => Ok(chip),
            Ok(_) => Err(TpmError::NotTpm2),
            Err(error) if is_old_tpm(error) => Err(TpmError::NotTpm2),
            Err(error) => Err(failed("asking the TPM for its version")(error)),
        }
    }

    /// A property, as the TPM says it.
    pub(super) fn property(&mut self, tag: PropertyTag) -> Result<Option<u32>, TpmError> {
        self.context.get_tpm_property(tag).map_err(failed("reading the TPM's properties"))
    }

    /// The key that this template makes in this hierarchy: the same one each time.
    pub(super) fn primary(
        &mut self,
        hierarchy: Hierarchy,
        template: Public,
    ) -> Result<(KeyHandle, Public), TpmError> {
        let made = self.context.execute_with_session(Some(AuthSession::Password), |context| {
            context.create_primary(hierarchy, template, None, None, None, None)
        });
        let made = made.map_err(|error| match kind(error) {
            Some(Kind::BadAuth | Kind::AuthFail) => TpmError::Password(name(hierarchy)),
            Some(Kind::Hierarchy) => TpmError::Disabled(name(hierarchy)),
            Some(
                Kind::Curve
                | Kind::Value
                | Kind::KeySize
                | Kind::Hash
                | Kind::Symmetric
                | Kind::Asymmetric
                | Kind::Type
                | Kind::Kdf
                | Kind::Scheme,
            ) => TpmError::Lacks("keys of this template"),
            _ => failed("making a primary key")(error),
        })?;
        Ok((made.key_handle, made.out_public))
    }

    /// Frees a key's slot: a TPM without a resource manager has three.
    pub(super) fn flush(&mut self, key: KeyHandle) -> Result<(), TpmError> {
        self.context.flush_context(key.into()).map_err(failed("flushing a key"))
    }

    /// Handles in use from this number on, at most `most`.
    pub(super) fn handles(&mut self, first: u32, most: u32) -> Result<Vec<TpmHandle>, TpmError> {
        let list = self.context.get_capability(CapabilityType::Handles, first, most);
        match list.map_err(failed("listing the TPM's handles"))? {
            (CapabilityData::Handles(handles), _) => Ok(handles.into_inner()),
            _ => Err(TpmError::Odd("no list of handles")),
        }
    }

    /// Flushes what a client that was killed has left. Behind a resource manager only our own would be listed; without
    /// one, a TPM has one client at a time, and that is us.
    pub(super) fn flush_leftovers(&mut self) {
        for first in [TRANSIENT_FIRST, LOADED_SESSION_FIRST] {
            for handle in self.handles(first, MAX_LEFTOVERS).unwrap_or_default() {
                let flushed = self.context.tr_from_tpm_public(handle).and_then(|object| {
                    // For a policy session the wrapper complains after it has flushed it.
                    self.context.flush_context(object)
                });
                tracing::debug!(handle = u32::from(handle), ?flushed, "what was left in the TPM is flushed");
            }
        }
    }
}

fn name(hierarchy: Hierarchy) -> &'static str {
    match hierarchy {
        Hierarchy::Endorsement => "endorsement",
        Hierarchy::Owner => "owner",
        Hierarchy::Platform => "platform",
        Hierarchy::Null => "null",
    }
}
