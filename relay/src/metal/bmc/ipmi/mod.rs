//! IPMI 2.0 over LAN, by the program `ipmitool`: the power, and what the machine is. It takes no image, so no agent can be started.
//!
//! Whoever knows a user's name gets from a BMC what that user's password can be guessed by (RAKP message 2): that is in the
//! protocol, and no setting here helps against it.

mod tool;
mod words;

use super::{
    Said,
    address::Networks,
    error::{BmcError, Reason},
    redact::Redact,
};
use crate::metal::facts::{Asked, Credentials, Reach};
use shared::api::metal::{Hardware, MachineIdentity, PowerState};
use tool::Tool;

/// Where IPMI is served unless an address names a port.
const PORT: u16 = 623;
/// The longest password of IPMI 2.0, in bytes.
const MAX_PASSWORD_BYTES: usize = 20;
/// The longest name of a user, in bytes.
const MAX_USERNAME_BYTES: usize = 16;

/// A BMC that has let us in, and its machine.
pub struct Ipmi {
    tool: Tool,
    power: PowerState,
    redact: Redact,
}

impl Ipmi {
    /// Judges the address, logs in and reads the power.
    ///
    /// # Errors
    /// [`BmcError`]; [`Reason::Unsupported`] for credentials that IPMI can't carry.
    pub(super) async fn open(
        reach: &Reach,
        credentials: Credentials,
        networks: &Networks,
    ) -> Result<Self, BmcError> {
        let (_, addresses) = networks.judged(&reach.address, PORT).await?;
        let address = *addresses.first().ok_or(Reason::AddressRefused)?;
        let fits = credentials.password.expose().len() <= MAX_PASSWORD_BYTES
            && credentials.username.len() <= MAX_USERNAME_BYTES;
        if !fits {
            return Err(Reason::Unsupported.into());
        }
        Self::by(Tool::to(address, reach.cipher_suite, credentials)).await
    }

    async fn by(tool: Tool) -> Result<Self, BmcError> {
        let redact = Redact::new(tool.password().clone());
        let power = words::power(&tool.run(&["chassis", "power", "status"]).await?);
        Ok(Self { tool, power, redact })
    }

    pub(super) fn power(&self) -> PowerState {
        self.power
    }

    pub(super) async fn identity(&self) -> Result<Said, BmcError> {
        let info = self.tool.run(&["mc", "info"]).await?;
        // Some have no GUID, some no FRU: what is said elsewhere counts without.
        let guid = self.optional(&["mc", "guid"]).await?;
        let fru = self.optional(&["fru", "print", "0"]).await?;
        let said = |text: &str, names: &[&str]| {
            self.redact.text(names.iter().find_map(|name| words::field(text, name)))
        };
        let uuid = said(&guid, &["System GUID"]).map(|uuid| uuid.to_ascii_lowercase());
        let identity = MachineIdentity {
            product_uuid: uuid,
            serial: said(&fru, &["Product Serial", "Chassis Serial"]),
            sku: said(&fru, &["Product Part Number"]),
            model: said(&fru, &["Product Name", "Board Product"]),
            macs: Vec::new(),
            ek_sha256: None,
        };
        let vendor = said(&fru, &["Product Manufacturer", "Board Mfg"])
            .or_else(|| said(&info, &["Manufacturer Name"]));
        Ok(Said { vendor, firmware: said(&info, &["Firmware Revision"]), virtual_media: false, identity })
    }

    /// IPMI says nothing of what is in a machine that could be counted on.
    pub(super) fn inspect() -> Hardware {
        Hardware::default()
    }

    pub(super) async fn ask(&self, asked: Asked) -> Result<(), BmcError> {
        let word = match asked {
            Asked::On => "on",
            Asked::ForceOff => "off",
            Asked::GracefulShutdown => "soft",
            Asked::PowerCycle => "cycle",
        };
        match self.tool.run(&["chassis", "power", word]).await {
            // One that is off can't be cycled (IPMI 2.0, 28.3).
            Err(error) if asked == Asked::PowerCycle && error.reason == Reason::Refused => {
                let now = words::power(&self.tool.run(&["chassis", "power", "status"]).await?);
                if now != PowerState::Off {
                    return Err(error);
                }
                self.tool.run(&["chassis", "power", "on"]).await.map(drop)
            }
            done => done.map(drop),
        }
    }

    /// Lets the machine start from where it does by itself.
    pub(super) async fn clear(&self) -> Result<(), BmcError> {
        let flags = self.optional(&["chassis", "bootparam", "get", "5"]).await?;
        if !words::has_boot_source(&flags) {
            return Ok(());
        }
        self.tool.run(&["chassis", "bootdev", "none"]).await.map(drop)
    }

    /// What a command says; nothing where it is refused.
    async fn optional(&self, command: &[&str]) -> Result<String, BmcError> {
        match self.tool.run(command).await {
            Err(error) if error.reason == Reason::Refused => Ok(String::new()),
            said => said,
        }
    }
}

#[cfg(test)]
mod tests;
