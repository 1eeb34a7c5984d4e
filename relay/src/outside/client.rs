//! The client of every request that the relay makes: over https, bounded in time, redirected nowhere, by no proxy.

use bytes::Bytes;
use reqwest::{Body, Client, ClientBuilder, redirect};
use rustls::{ClientConfig, crypto::aws_lc_rs};
use std::{error::Error, iter, time::Duration};
use zeroize::Zeroizing;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a whole request may take, its answer included.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A client to be: it trusts as `tls` says, or the system's CAs.
pub fn builder(tls: Option<ClientConfig>) -> ClientBuilder {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(REQUEST_TIMEOUT)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .https_only(true)
        .user_agent(concat!("relay/", env!("CARGO_PKG_VERSION")));
    match tls {
        Some(tls) => builder.tls_backend_preconfigured(tls),
        None => {
            // reqwest asks the process for its provider when it verifies by the system's CAs. An earlier one is the same
            // one.
            let _ = aws_lc_rs::default_provider().install_default();
            builder.tls_backend_rustls()
        }
    }
}

/// A body that holds secrets: wiped when it was sent.
#[must_use]
pub fn wiped(body: Zeroizing<Vec<u8>>) -> Body {
    Bytes::from_owner(body).into()
}

/// What an error came from in the end: the part that a person can use.
#[must_use]
pub fn innermost(error: &dyn Error) -> String {
    iter::successors(Some(error), |&error| error.source()).last().map(ToString::to_string).unwrap_or_default()
}
