//! The drivers of BMCs, each by itself: what `metal.md` lists as known behaviours, on a strict fake BMC of each maker's kind, and
//! services that others have written. Stories of whole machines are elsewhere.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test whose BMC is not as it should be fails")]

mod hostile;
mod known;
mod let_in;
mod media;
mod outsiders;
mod power;

use relay::metal::{
    bmc::{Bmc, BmcError, Networks},
    facts::{Credentials, Reach, TlsTrust},
};
use shared::{
    api::{metal::BmcProtocol, sites::Cidr},
    secret::Secret,
};
use tests::{BMC_PASSWORD, BMC_USER, FakeBmc, PERSONAS, Persona};

fn persona(name: &str) -> &'static Persona {
    PERSONAS.iter().find(|persona| persona.name == name).unwrap()
}

fn networks() -> Networks {
    Networks::of(&[Cidr("127.0.0.1/32".to_owned())])
}

fn credentials(password: &str) -> Credentials {
    Credentials { username: BMC_USER.to_owned(), password: Secret::new(password.to_owned()) }
}

fn reach(address: String, tls: TlsTrust) -> Reach {
    Reach { address, protocol: BmcProtocol::Redfish, cipher_suite: 17, tls }
}

async fn opened(bmc: &FakeBmc, password: &str) -> Result<Bmc, BmcError> {
    let reach = reach(bmc.address(), TlsTrust::Pin(bmc.pin()));
    Bmc::open(&reach, credentials(password), &networks()).await
}

/// The BMC, which must let us in.
async fn open(bmc: &FakeBmc) -> Bmc {
    match opened(bmc, BMC_PASSWORD).await {
        Ok(bmc) => bmc,
        Err(error) => panic!("{error}"),
    }
}

/// Why the BMC does not let us in.
async fn refused(bmc: &FakeBmc) -> BmcError {
    match opened(bmc, BMC_PASSWORD).await {
        Ok(_) => panic!("it let us in"),
        Err(error) => error,
    }
}

/// Does something with the BMC, and leaves it.
async fn with<T>(bmc: &FakeBmc, work: impl AsyncFnOnce(&Bmc) -> T) -> T {
    let driver = open(bmc).await;
    let done = work(&driver).await;
    driver.close().await;
    done
}
