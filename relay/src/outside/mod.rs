//! Connections to addresses that somebody named. Whoever names one makes the relay connect to it, from where the relay is: so
//! none may lead into networks that are no part of the public Internet, nor to the relay's own machine, unless an admin has
//! listed it ([`shared::outside`]).
//!
//! A name is resolved once, and the connection goes to the very addresses that were judged: one that is refused among them
//! refuses the name, since whoever has the name may choose which one is taken. No redirect is followed, no proxy asked. Of
//! what went wrong only the words of [`Unreached`] are told, which say nothing of an answer.

pub mod client;
pub mod target;

pub use target::{Host, InvalidTarget, Target};

use crate::trusting::{TrustFileError, trusting_file};
use ipnet::IpNet;
use nix::ifaddrs::getifaddrs;
use reqwest::{
    Client, Response,
    dns::{Addrs, Name, Resolve, Resolving},
    tls,
};
use rustls::{ClientConfig, version::TLS13};
use shared::outside::is_allowed;
use std::{
    error::Error,
    fmt, io, iter,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::Arc,
    time::Duration,
};
use tokio::time::{Instant, timeout, timeout_at};

/// How long a name may take to be resolved.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many addresses of a name are tried.
const MAX_ADDRESSES: usize = 8;
/// How long is waited for what is discarded.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);
/// The most of an answer that is read, to be discarded, in bytes.
const MAX_DISCARDED_BYTES: usize = 64 << 10;

/// Why a target was not reached, or did not take what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// It is not outside.
    RefusedAddress,
    /// It has no address.
    NotResolved,
    /// No connection came about, or it broke.
    NotReached,
    /// Its certificate does not count, or it has no TLS 1.3.
    Tls,
    /// It took too long.
    Timeout,
    /// It answered with another status than success.
    Status(u16),
}

impl fmt::Display for Unreached {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RefusedAddress => out.write_str("refusedAddress"),
            Self::NotResolved => out.write_str("notResolved"),
            Self::NotReached => out.write_str("notReached"),
            Self::Tls => out.write_str("tls"),
            Self::Timeout => out.write_str("timeout"),
            Self::Status(status) => write!(out, "status {status}"),
        }
    }
}

/// The way outside.
pub struct Outside {
    listed: Vec<IpNet>,
    tls: Option<ClientConfig>,
}

impl Outside {
    /// To what is outside and to the networks that an admin has listed, trusting the CAs of this file alone, or the system's.
    ///
    /// # Errors
    /// The file can't be used.
    pub fn new(listed: Vec<IpNet>, ca_file: Option<&Path>) -> Result<Self, TrustFileError> {
        let tls = ca_file.map(|path| trusting_file(path, &[&TLS13])).transpose()?;
        Ok(Self { listed, tls })
    }

    /// Whether a target may be named: of a name that is seen when it is resolved.
    #[must_use]
    pub fn may_name(&self, target: &Target) -> bool {
        match target.host() {
            Host::Name(_) => true,
            Host::Address(address) => self.allows(&[*address]),
        }
    }

    /// Resolves and judges a target; what connects does so to the addresses that were judged alone.
    ///
    /// # Errors
    /// [`Unreached`].
    pub async fn open(&self, target: &Target) -> Result<Client, Unreached> {
        let addresses = addresses(target).await?;
        if !self.allows(&addresses) {
            return Err(Unreached::RefusedAddress);
        }
        let judged = addresses.iter().take(MAX_ADDRESSES);
        let judged = Judged(judged.map(|address| SocketAddr::new(*address, target.port())).collect());
        let builder = match self.tls.clone() {
            Some(tls) => client::builder(Some(tls)),
            None => client::builder(None).tls_version_min(tls::Version::TLS_1_3),
        };
        builder.dns_resolver(Arc::new(judged)).build().map_err(|error| {
            tracing::warn!(error = client::innermost(&error), "no client for a connection to the outside");
            Unreached::NotReached
        })
    }

    /// Whether a target may be named where these networks are listed beside the admin's.
    #[must_use]
    pub fn may_name_in(&self, target: &Target, listed: &[IpNet]) -> bool {
        match target.host() {
            Host::Name(_) => true,
            Host::Address(address) => self.allows_in(&[*address], listed),
        }
    }

    /// Resolves and judges a target that somebody else is to connect to; these networks are listed beside the admin's.
    ///
    /// # Errors
    /// [`Unreached::RefusedAddress`], [`Unreached::NotResolved`].
    pub async fn leads(&self, target: &Target, listed: &[IpNet]) -> Result<(), Unreached> {
        let addresses = addresses(target).await?;
        if self.allows_in(&addresses, listed) { Ok(()) } else { Err(Unreached::RefusedAddress) }
    }

    /// Whether all of these are allowed, and there is one.
    fn allows(&self, addresses: &[IpAddr]) -> bool {
        self.allows_in(addresses, &[])
    }

    fn allows_in(&self, addresses: &[IpAddr], more: &[IpNet]) -> bool {
        let Some(own) = own() else { return false };
        let listed = [self.listed.as_slice(), more].concat();
        !addresses.is_empty() && addresses.iter().all(|address| is_allowed(*address, &listed, &own))
    }
}

/// What an answer comes to. It is read to a bound, until then at the latest, and discarded.
///
/// # Errors
/// [`Unreached::Status`] of anything but success.
pub async fn settled(mut answer: Response, by: Instant) -> Result<(), Unreached> {
    let status = answer.status();
    // A connection whose answer was read to the end can be used again: that is all that a body is good for.
    let mut left = MAX_DISCARDED_BYTES;
    let discarded = async {
        while let Ok(Some(chunk)) = answer.chunk().await {
            match left.checked_sub(chunk.len()) {
                Some(rest) => left = rest,
                None => break,
            }
        }
    };
    let _ = timeout_at(by.min(Instant::now() + DISCARD_TIMEOUT), discarded).await;
    if status.is_success() { Ok(()) } else { Err(Unreached::Status(status.as_u16())) }
}

/// Why a request got no answer.
#[must_use]
pub fn unreached(error: &reqwest::Error) -> Unreached {
    let chain = iter::successors(error.source(), |&error| error.source());
    if error.is_timeout() {
        Unreached::Timeout
    } else if chain.into_iter().any(is_tls) {
        Unreached::Tls
    } else {
        Unreached::NotReached
    }
}

fn is_tls(error: &(dyn Error + 'static)) -> bool {
    // The source of an I/O error is that of the error which it wraps, and not that error.
    let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    error.is::<rustls::Error>() || wrapped.is_some_and(|wrapped| is_tls(wrapped))
}

/// All addresses of a target.
async fn addresses(target: &Target) -> Result<Vec<IpAddr>, Unreached> {
    match target.host() {
        Host::Address(address) => Ok(vec![*address]),
        Host::Name(name) => resolved(name, target.port()).await,
    }
}

/// All addresses of a name.
///
/// # Errors
/// [`Unreached::NotResolved`] if there is none, or it took too long.
pub async fn resolved(name: &str, port: u16) -> Result<Vec<IpAddr>, Unreached> {
    let lookup = tokio::net::lookup_host((name, port));
    let found = timeout(RESOLVE_TIMEOUT, lookup).await.map_err(|_| Unreached::NotResolved)?;
    let found: Vec<IpAddr> = found.map_err(|_| Unreached::NotResolved)?.map(|found| found.ip()).collect();
    if found.is_empty() { Err(Unreached::NotResolved) } else { Ok(found) }
}

/// The addresses of this machine; `None` if it does not say.
#[must_use]
pub fn own() -> Option<Vec<IpAddr>> {
    let interfaces = getifaddrs().map_err(|error| {
        tracing::warn!(error = client::innermost(&error), "the machine's own addresses are not known");
    });
    let addresses = interfaces.ok()?.filter_map(|interface| {
        let address = interface.address?;
        let v4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
    });
    Some(addresses.collect())
}

/// What says these addresses, which were judged, whatever name it is asked for; the first few.
#[must_use]
pub fn judged(addresses: Vec<SocketAddr>) -> Arc<impl Resolve + 'static> {
    Arc::new(Judged(addresses.into_iter().take(MAX_ADDRESSES).collect()))
}

/// Says the addresses that were judged, whatever name it is asked for: nothing is resolved a second time.
struct Judged(Vec<SocketAddr>);

impl Resolve for Judged {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
