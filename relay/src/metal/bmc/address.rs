//! Which addresses BMCs have, and the way to one: resolved once, judged, and connected to as it was judged.

use super::error::{BmcError, Reason};
use crate::{
    metal::reach::{self, Host, Location, is_allowed},
    outside,
};
use ipnet::IpNet;
use shared::api::sites::Cidr;
use std::net::{IpAddr, SocketAddr};

/// The networks that a site's BMCs are in.
#[derive(Clone, Debug)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// The networks of a site as they are stored; one that is none leads nowhere.
    #[must_use]
    pub fn of(networks: &[Cidr]) -> Self {
        Self(networks.iter().filter_map(|network| network.0.parse().ok()).collect())
    }

    /// Resolves and judges an address; the port is `default` where it names none.
    ///
    /// # Errors
    /// [`Reason::AddressRefused`], [`Reason::NotResolved`].
    pub(super) async fn judged(
        &self,
        address: &str,
        default: u16,
    ) -> Result<(Location, Vec<SocketAddr>), BmcError> {
        let location = reach::location(address).ok_or(Reason::AddressRefused)?;
        let port = location.port.unwrap_or(default);
        let found = match &location.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => outside::resolved(name, port).await.map_err(|_| Reason::NotResolved)?,
        };
        let own = outside::own().ok_or(Reason::AddressRefused)?;
        let allowed = |address: &IpAddr| is_allowed(*address, &self.0, &own);
        if found.is_empty() || !found.iter().all(allowed) {
            return Err(Reason::AddressRefused.into());
        }
        Ok((location, found.into_iter().map(|address| SocketAddr::new(address, port)).collect()))
    }
}
