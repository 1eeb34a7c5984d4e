//! Baseboard management controllers: one bounded exchange at a time. No store here, and no waiting for what a BMC makes of a
//! request: that is the reconciler's.
//!
//! **Nothing that a BMC says is trusted.** Its address is judged by the site's networks before anything is sent, and connected to as
//! it was judged; its certificate before a credential leaves; its answers are bounded in size and time, read tolerantly, and
//! lead nowhere but to its own `/redfish/`. Of its words only a status and a `MessageId` are told on: others echo passwords.

mod address;
mod error;
mod ipmi;
mod quirks;
mod redact;
mod redfish;
mod tls;

pub use address::Networks;
pub use error::{BmcError, REASONS, Reason};

use super::facts::{Asked, Credentials, Reach};
use ipmi::Ipmi;
use redfish::Redfish;
use shared::{
    api::metal::{BmcProtocol, Hardware, MachineIdentity, PowerState},
    secret::Secret,
};

/// What a BMC says of itself and of its machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Said {
    /// Who made it.
    pub vendor: Option<String>,
    /// Its firmware's version.
    pub firmware: Option<String>,
    /// Whether it takes an image.
    pub virtual_media: bool,
    /// What the machine is.
    pub identity: MachineIdentity,
}

/// A BMC that has let us in.
pub enum Bmc {
    /// By Redfish.
    Redfish(Box<Redfish>),
    /// By IPMI.
    Ipmi(Box<Ipmi>),
}

impl Bmc {
    /// Judges the address, connects, judges the certificate, logs in and finds the machine.
    ///
    /// # Errors
    /// [`BmcError`]; no credential has left where the reason is one of address or certificate.
    pub async fn open(
        reach: &Reach,
        credentials: Credentials,
        networks: &Networks,
    ) -> Result<Self, BmcError> {
        match reach.protocol {
            BmcProtocol::Redfish => {
                Redfish::open(reach, &credentials, networks).await.map(|it| Self::Redfish(Box::new(it)))
            }
            BmcProtocol::Ipmi => {
                Ipmi::open(reach, credentials, networks).await.map(|it| Self::Ipmi(Box::new(it)))
            }
        }
    }

    /// Leaves nothing of us behind at the BMC. One that is only dropped does so too, but maybe after the next caller has come.
    pub async fn close(self) {
        match self {
            Self::Redfish(bmc) => bmc.close().await,
            Self::Ipmi(_) => {}
        }
    }

    /// SHA-256 of the SubjectPublicKeyInfo that a BMC shows; no credential is sent. `None` where its protocol has none.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn shown_key(reach: &Reach, networks: &Networks) -> Result<Option<String>, BmcError> {
        match reach.protocol {
            BmcProtocol::Redfish => Redfish::shown_key(reach, networks).await,
            BmcProtocol::Ipmi => Ok(None),
        }
    }

    /// Whether the machine is on.
    #[must_use]
    pub fn power(&self) -> PowerState {
        match self {
            Self::Redfish(bmc) => bmc.power(),
            Self::Ipmi(bmc) => bmc.power(),
        }
    }

    /// What it says of itself and of its machine.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn identity(&self) -> Result<Said, BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.identity().await,
            Self::Ipmi(bmc) => bmc.identity().await,
        }
    }

    /// What is in the machine.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn inspect(&self) -> Result<Hardware, BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.inspect().await,
            Self::Ipmi(_) => Ok(Ipmi::inspect()),
        }
    }

    /// Asks for another power state. That it was taken says nothing of what comes of it.
    ///
    /// # Errors
    /// [`BmcError`], also for what the machine can't.
    pub async fn ask(&self, asked: Asked) -> Result<(), BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.ask(asked).await,
            Self::Ipmi(bmc) => bmc.ask(asked).await,
        }
    }

    /// Inserts an image, if it is not the one that is inserted.
    ///
    /// # Errors
    /// [`BmcError`]; [`Reason::NoVirtualMedia`] where there is no slot for one.
    pub async fn insert(&self, url: &str) -> Result<(), BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.insert(url).await,
            Self::Ipmi(_) => Err(Reason::NoVirtualMedia.into()),
        }
    }

    /// Lets the machine start from the inserted image, once, by UEFI.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn boot_media_once(&self) -> Result<(), BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.boot_media_once().await,
            Self::Ipmi(_) => Err(Reason::NoVirtualMedia.into()),
        }
    }

    /// Takes an inserted image out, and lets the machine start from where it does by itself.
    ///
    /// # Errors
    /// [`BmcError`].
    pub async fn clear(&self) -> Result<(), BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.clear().await,
            Self::Ipmi(bmc) => bmc.clear().await,
        }
    }

    /// Gives an account of the BMC another password. Whether it holds is seen by who opens the BMC with it.
    ///
    /// # Errors
    /// [`BmcError`]; [`Reason::Unsupported`] by IPMI, whose program takes a password as an argument only, and where there is no such
    /// account.
    pub async fn set_password(&self, username: &str, password: &Secret) -> Result<(), BmcError> {
        match self {
            Self::Redfish(bmc) => bmc.set_password(username, password).await,
            Self::Ipmi(_) => Err(Reason::Unsupported.into()),
        }
    }
}
